"""Finds and adopts AWS resources with our tags but without a journal: a reboot empties /run.

Only those that this instance and run directory made in an earlier boot and, on request, those of instances
that no longer exist. Other instances' resources belong to them. Those of this boot may be in use in another
container, whose run directory may have the same name and whose journals and mounts are invisible here.
Resources restored from a backup have the original's tags, and are not ours.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esrally_ebs.aws.clients import Api, AwsError
from esrally_ebs.aws.describe import volumes_where
from esrally_ebs.aws.instance import Place, described_as
from esrally_ebs.aws.provision.goal import (
    TAG_ARM,
    TAG_MEMBER,
    TAG_OWNER,
    TAG_RUN,
    TAG_SESSION,
    TAG_SNAPSHOT,
    Goal,
    RunOwner,
    Sort,
    client_token,
    filesystem_uuid,
    tags_of,
)
from esrally_ebs.aws.provision.host import ArmDevice
from esrally_ebs.aws.provision.journal import JOURNAL_NAME, Journal, JournalEntry
from esrally_ebs.errors import EbsError, SetupError
from esrally_ebs.store.context import OF_CALLER

MOUNT_NAME = "mnt"
_ALL_TAGS = (TAG_SESSION, TAG_RUN, TAG_ARM, TAG_MEMBER, TAG_OWNER)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MEMBER = re.compile(r"[0-9]{1,2}")
_GONE = ("terminated", "shutting-down")
_OF_A_BACKUP = ("aws:backup:", "aws:dlm:")  # prefixes of AWS's tags on restored resources
_SETTLED_S = 3600.0  # an instance that is not listed yet looks like a terminated one


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """One arm that AWS still has; ``resources``: ids by member."""

    sort: Sort
    tags: Mapping[str, str]
    resources: Mapping[int, str]

    @property
    def text(self) -> str:
        return f"{self.tags[TAG_SESSION]}/{self.tags[TAG_ARM]}: {', '.join(self.resources.values())}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphans:
    """Resources on AWS that no journal here has."""

    arms: Sequence[Orphan]
    problems: Sequence[str] = ()  # one line per doubtful case
    notes: Sequence[str] = ()  # one line per thing rightly skipped or left alone


def known_runs(run_dir: Path) -> tuple[set[str], list[str]]:
    """Runs in this run directory's journals, and a line per unreadable journal."""
    runs, problems = set[str](), list[str]()
    for path in sorted(run_dir.glob(f"*/*/{JOURNAL_NAME}")):
        if path.parent.name == OF_CALLER:  # a file of the caller's, which may be a pipe
            continue
        try:
            history = Journal(path.parent).read()
        except EbsError as error:
            problems.append(str(error))
            continue
        if history is not None:
            runs.add(history.goal.run)
    return runs, problems


def orphans(api: Api, owner: RunOwner, *, now_s: float, dead_instances: bool = False) -> Orphans:
    """All of our arms on AWS that no journal here has and nobody else can be using.

    ``dead_instances`` includes those of terminated instances. Raises SetupError if not even volumes can be
    listed.
    """
    resources, problems, notes = [*_volumes(api)], list[str](), list[str]()
    try:
        resources += _file_systems(api)
    except SetupError as error:
        # Whoever may not even list file systems has made none.
        lines = notes if isinstance(error, AwsError) and error.denied else problems
        lines.append(f"EFS was not asked for what killed sessions left there: {error}")
    # read after asking AWS: a journal exists before its resources, even for a session that begins now
    known, unreadable = known_runs(owner.run_dir)
    problems += unreadable
    of_run: dict[str, list[_Resource]] = {}
    for resource in resources:
        if resource.tags[TAG_RUN] in known:
            continue
        why = _why_left(api, resource, owner, now_s, dead_instances=dead_instances)
        if why is None:
            of_run.setdefault(resource.tags[TAG_RUN], []).append(resource)
        elif why:
            notes.append(f"{resource.id} is left alone: {why}")
    arms = []
    for group in of_run.values():
        ids = {int(resource.tags[TAG_MEMBER]): resource.id for resource in group}
        if len(ids) == len(group):
            arms.append(Orphan(sort=group[0].sort, tags=group[0].tags, resources=ids))
            continue
        every = ", ".join(resource.id for resource in group)
        problems.append(f"{every}: more than one has the same tags; take them off those that are copies")
    return Orphans(arms=arms, problems=problems, notes=notes)


def on_disks(devices: Sequence[tuple[ArmDevice, Sequence[str]]], run_dir: Path) -> list[Orphan]:
    """Arms on the instance's own disks (which survive a reboot) that no journal here has.

    Only file systems whose label and UUID prove that we made them, and that nothing uses. None while a
    journal cannot be read: it may be that of one of them.
    """
    known, unreadable = known_runs(run_dir)
    if unreadable:
        return []
    return [
        Orphan(
            sort="instance-store",
            tags={TAG_SESSION: "on-disk", TAG_ARM: device.label, TAG_RUN: device.label, TAG_OWNER: ""},
            resources=dict(enumerate(serials)),
        )
        for device, serials in devices
        if device.label
        and device.uuid == filesystem_uuid(device.label)
        and not any(run.startswith(device.label) for run in known)
        and not device.mounts
        and not device.holders
    ]


def adopt(orphan: Orphan, place: Place, run_dir: Path, *, at_s: float) -> Path:
    """Rewrite an arm's lost journal; returns the directory for taking it down.

    Raises SetupError if there is a journal: somebody else is working there.
    """
    session, arm = orphan.tags[TAG_SESSION], orphan.tags[TAG_ARM]
    directory = run_dir / session / arm
    journal = Journal(directory)
    if journal.path.exists():
        raise SetupError(f"{journal.path}: an arm was begun there meanwhile; run 'esrally-ebs clean' again")
    goal = Goal(
        session=session,
        arm=arm,
        run=orphan.tags[TAG_RUN],
        owner=orphan.tags[TAG_OWNER],
        place=place,
        sort=orphan.sort,
        type="",
        size_gib=0,
        point=directory / MOUNT_NAME,
        count=max(orphan.resources) + 1,
        snapshot=orphan.tags.get(TAG_SNAPSHOT),
        initialise=False,
    )
    known = [
        entry
        for key, outcome in _outcomes_of(orphan).items()
        for entry in (
            JournalEntry(key=key, state="intent", at_s=0.0, fields={"operation": "adopt"}),
            JournalEntry(key=key, state="done", at_s=0.0, fields=outcome),
        )
    ]
    # in one write: between goal and claim, a kill would leave disks without a journal
    journal.begin(goal, at_s, *known)
    return directory


def _outcomes_of(orphan: Orphan) -> Mapping[str, Mapping[str, Any]]:
    """Outcomes of all steps that must have been done for it to exist."""
    if orphan.sort == "instance-store":
        return {"claim": {"serials": list(orphan.resources.values())}, "stripe": {}, "format": {}}
    name = "VolumeId" if orphan.sort == "ebs" else "FileSystemId"
    return {f"create/{member}": {name: id_} for member, id_ in orphan.resources.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resource:
    """A volume or a file system with all our tags."""

    sort: Sort
    id: str
    tags: Mapping[str, str]
    idle: bool  # attached nowhere; or a file system mounted by its own instance only, which is gone
    made_s: float  # seconds since the epoch
    is_copy: bool  # restored or copied by somebody, with our tags


def _volumes(api: Api) -> Iterator[_Resource]:
    for raw in volumes_where(api, "tag-key", TAG_OWNER):
        tags = tags_of(raw.get("Tags"))
        if _complete(tags):
            yield _Resource(
                sort="ebs",
                id=raw["VolumeId"],
                tags=tags,
                idle=raw["State"] == "available",
                made_s=raw["CreateTime"].timestamp(),
                is_copy=_of_a_backup(tags) or (raw.get("SnapshotId") or "") != tags.get(TAG_SNAPSHOT, ""),
            )


def _file_systems(api: Api) -> Iterator[_Resource]:
    for raw in api.call("efs", "DescribeFileSystems")["FileSystems"]:
        tags = tags_of(raw.get("Tags"))
        if _complete(tags):
            token = client_token(tags[TAG_RUN], int(tags[TAG_MEMBER]))
            yield _Resource(
                sort="efs",
                id=raw["FileSystemId"],
                tags=tags,
                idle=True,
                made_s=raw["CreationTime"].timestamp(),
                is_copy=_of_a_backup(tags) or raw["CreationToken"] != token,
            )


def _of_a_backup(tags: Mapping[str, str]) -> bool:
    return any(name.startswith(_OF_A_BACKUP) for name in tags)


def _complete(tags: Mapping[str, str]) -> bool:
    """Whether all our tags are there, with values that only we give."""
    if not all(name in tags for name in _ALL_TAGS):
        return False
    names = (tags[TAG_SESSION], tags[TAG_ARM])  # become directory names
    return bool(_MEMBER.fullmatch(tags[TAG_MEMBER])) and all(_NAME.fullmatch(name) for name in names)


def _why_left(
    api: Api, resource: _Resource, owner: RunOwner, now_s: float, *, dead_instances: bool
) -> str | None:
    """Why a resource stays: "" if clearly somebody else's; None if it may be deleted."""
    tag = resource.tags[TAG_OWNER]
    if tag == owner.tag:
        return (
            "it was made since this machine has booted, and no journal here speaks of it, so another"
            " container may use it; if none does, delete it by hand, or clean after a reboot"
        )
    instance, ours = tag.partition(":")[0], owner.wrote(tag)
    try:
        if not ours and (not resource.idle or _runs(api, instance)):
            return ""
    except SetupError as error:  # must not prevent removing our own
        return f"whether its instance {instance} runs could not be asked: {error}"
    if resource.is_copy:
        return "it has our tags, but we have not made it: a backup was restored, or a snapshot copied"
    if ours:
        return None
    if now_s - resource.made_s < _SETTLED_S:
        return f"it was made within the last hour, and its instance {instance} may not be listed yet"
    if not dead_instances:
        return f"its instance {instance} is no more; 'esrally-ebs clean --dead-instances' deletes it"
    return None


def _runs(api: Api, instance: str) -> bool:
    return any(raw["State"]["Name"] not in _GONE for raw in described_as(api, instance))
