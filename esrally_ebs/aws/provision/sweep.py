"""What is left on AWS though no journal speaks of it (a reboot empties /run): found by our tags, and removed.

Only resources whose owner is this very instance and run directory in an earlier boot, and those whose owner's
instance is no more. Other instances' are theirs. What is of this boot may be in use in another container: two
of them may well have run directories of one name, and neither sees the other's journals and mounts.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from esrally_ebs.aws.clients import Api, AwsError, items
from esrally_ebs.aws.describe import volumes_where
from esrally_ebs.aws.provision.goal import (
    TAG_ARM,
    TAG_MEMBER,
    TAG_OWNER,
    TAG_RUN,
    TAG_SESSION,
    Goal,
    Place,
    Sort,
    filesystem_uuid,
    tags_of,
)
from esrally_ebs.aws.provision.journal import JOURNAL_NAME, Entry, Journal
from esrally_ebs.aws.provision.seen import SeenDevice
from esrally_ebs.errors import SetupError

MOUNT_NAME = "mnt"
_ALL_TAGS = (TAG_SESSION, TAG_RUN, TAG_ARM, TAG_MEMBER, TAG_OWNER)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_NOT_IN_TAGS = re.compile(r"[^A-Za-z0-9 +=._:/@-]")
_LONGEST_TAG = 256
_MARK = 12  # hexadecimal digits, of a hash or of the boot's id
_GONE = ("terminated", "shutting-down")


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """One arm that AWS still has; ``resources`` are ids by member."""

    sort: Sort
    tags: Mapping[str, str]
    resources: Mapping[int, str]

    @property
    def text(self) -> str:
        """For people."""
        return f"{self.tags[TAG_SESSION]}/{self.tags[TAG_ARM]}: {', '.join(self.resources.values())}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who uses what carries its tag: a run directory of an instance, since it booted."""

    instance: str
    boot: str  # the kernel's boot_id, the same in all containers of an instance and another after each boot
    run_dir: Path

    @property
    def tag(self) -> str:
        """The value of the owner's tag, in the characters and the length that AWS allows.

        A path that does not fit ends in a hash of the whole: two directories never have one owner.
        """
        wanted = f"{self.instance}:{self.boot[:_MARK]}:{self.run_dir}"
        if len(wanted) <= _LONGEST_TAG and not _NOT_IN_TAGS.search(wanted):
            return wanted
        mark = ":" + hashlib.sha256(os.fsencode(self.run_dir)).hexdigest()[:_MARK]
        return _NOT_IN_TAGS.sub("_", wanted)[: _LONGEST_TAG - len(mark)] + mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What there is on AWS that no journal here speaks of."""

    orphans: Sequence[Orphan]
    problems: Sequence[str] = ()  # one line per thing that cannot be told
    notes: Sequence[str] = ()  # one line per thing that was rightly not looked at or left alone


def known_runs(run_dir: Path) -> set[str]:
    """The runs that journals of this run directory speak of: they are taken down by those."""
    histories = [Journal(path.parent).read() for path in run_dir.glob(f"*/*/{JOURNAL_NAME}")]
    return {history.goal.run for history in histories if history is not None}


def orphans(api: Api, owner: Owner) -> Found:
    """All arms of ours on AWS that no journal here speaks of and nobody else can be using.

    SetupError when not even volumes could be listed.
    """
    listed, problems, notes = [*_volumes(api)], list[str](), list[str]()
    try:
        listed += _file_systems(api)
    except SetupError as error:
        # Whoever may not even list file systems has made none.
        untold = notes if isinstance(error, AwsError) and error.denied else problems
        untold.append(f"EFS was not asked for what killed sessions left there: {error}")
    # read after AWS was: a journal is there before what it speaks of, even of a session that begins now
    known = known_runs(owner.run_dir)
    of_run: dict[str, list[_Listed]] = {}
    for each in listed:
        if each.tags[TAG_RUN] in known:
            continue
        if each.tags[TAG_OWNER] == owner.tag:
            notes.append(
                f"{each.resource} is left alone: it was made since this machine has booted, and no journal"
                " here speaks of it, so another container may use it; if none does, delete it by hand, or"
                " clean after a reboot"
            )
        elif _may_go(api, each, owner):
            of_run.setdefault(each.tags[TAG_RUN], []).append(each)
    left = []
    for group in of_run.values():
        resources = {int(each.tags[TAG_MEMBER]): each.resource for each in group}
        if len(resources) == len(group):
            left.append(Orphan(sort=group[0].sort, tags=group[0].tags, resources=resources))
            continue
        every = ", ".join(each.resource for each in group)
        problems.append(f"{every}: more than one has the same tags; take them off those that are copies")
    return Found(orphans=left, problems=problems, notes=notes)


def on_disks(held: Sequence[tuple[SeenDevice, Sequence[str]]], run_dir: Path) -> list[Orphan]:
    """Arms on the instance's own disks (which outlive a reboot) that no journal here speaks of.

    Only file systems that prove by label and UUID that we made them, and that nothing uses.
    """
    known = known_runs(run_dir)
    return [
        Orphan(
            sort="instance-store",
            tags={
                TAG_SESSION: "on-disk",
                TAG_ARM: device.label,
                TAG_RUN: device.label,
                TAG_OWNER: "",
            },
            resources=dict(enumerate(serials)),
        )
        for device, serials in held
        if device.label
        and device.uuid == filesystem_uuid(device.label)
        and not any(run.startswith(device.label) for run in known)
        and not device.mounts
        and not device.holders
    ]


def adopt(orphan: Orphan, place: Place, run_dir: Path, *, at_s: float) -> Path:
    """Write the journal that the arm has lost; the directory that taking it down begins from.

    Raises SetupError when there is a journal: someone else works there.
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
    )
    journal.begin(goal, at_s)
    for key, known in _known_of(orphan).items():
        asked = {"operation": "found"}
        journal.append(Entry(key=key, state="intent", at_s=0.0, fields=asked))
        journal.append(Entry(key=key, state="done", at_s=0.0, fields=known))
    return directory


def _known_of(orphan: Orphan) -> Mapping[str, Mapping[str, Any]]:
    """The outcomes of the steps that must have been taken for it to be there."""
    if orphan.sort == "instance-store":
        striped: dict[str, dict[str, Any]] = {"stripe": {}} if len(orphan.resources) > 1 else {}
        return {"claim": {"serials": list(orphan.resources.values())}, **striped, "format": {}}
    name = "VolumeId" if orphan.sort == "ebs" else "FileSystemId"
    return {f"create/{member}": {name: resource} for member, resource in orphan.resources.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """One resource with all our tags."""

    sort: Sort
    resource: str
    tags: Mapping[str, str]
    idle: bool  # attached nowhere; a file system that only its own instance ever mounted is, without it


def _volumes(api: Api) -> Iterator[_Listed]:
    for raw in volumes_where(api, "tag-key", TAG_OWNER):
        tags = tags_of(raw.get("Tags"))
        if _complete(tags):
            idle = raw["State"] == "available"
            yield _Listed(sort="ebs", resource=raw["VolumeId"], tags=tags, idle=idle)


def _file_systems(api: Api) -> Iterator[_Listed]:
    marker: dict[str, Any] = {}
    while True:
        answer = api.call("efs", "DescribeFileSystems", **marker)
        for raw in answer["FileSystems"]:
            tags = tags_of(raw.get("Tags"))
            if _complete(tags):
                yield _Listed(sort="efs", resource=raw["FileSystemId"], tags=tags, idle=True)
        if not answer.get("NextMarker"):
            return
        marker = {"Marker": answer["NextMarker"]}


def _complete(tags: Mapping[str, str]) -> bool:
    """All our tags, with the values that only we give them."""
    if not all(name in tags for name in _ALL_TAGS):
        return False
    names = (tags[TAG_SESSION], tags[TAG_ARM])  # they become directories
    return tags[TAG_MEMBER].isdigit() and all(_NAME.fullmatch(name) for name in names)


def _may_go(api: Api, listed: _Listed, owner: Owner) -> bool:
    """Whether it is of an earlier boot of this owner, or its owner's instance is no more."""
    instance, _, rest = listed.tags[TAG_OWNER].partition(":")
    boot = rest.partition(":")[0]
    if listed.tags[TAG_OWNER] == replace(owner, boot=boot).tag:
        return True
    return listed.idle and not _exists(api, instance)


def _exists(api: Api, instance: str) -> bool:
    wanted = [{"Name": "instance-id", "Values": [instance]}]
    groups: Sequence[Any] = list(items(api, "ec2", "DescribeInstances", "Reservations", Filters=wanted))
    states = [each["State"]["Name"] for group in groups for each in group["Instances"]]
    return any(state not in _GONE for state in states)
