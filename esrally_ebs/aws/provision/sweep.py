"""What is left on AWS though no journal speaks of it (a reboot empties /run): found by our tags, and removed.

Only resources whose owner is this very instance and run directory, and volumes whose owner's instance is no
more. Other instances' are theirs.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esrally_ebs.aws.clients import Api, items
from esrally_ebs.aws.provision.goal import (
    TAG_ARM,
    TAG_MEMBER,
    TAG_OWNER,
    TAG_RUN,
    TAG_SESSION,
    Goal,
    Place,
    Sort,
    tags_of,
)
from esrally_ebs.aws.provision.journal import JOURNAL_NAME, Entry, Journal
from esrally_ebs.errors import SetupError

MOUNT_NAME = "mnt"
_ALL_TAGS = (TAG_SESSION, TAG_RUN, TAG_ARM, TAG_MEMBER, TAG_OWNER)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_NOT_IN_TAGS = re.compile(r"[^A-Za-z0-9 +=._:/@-]")
_LONGEST_TAG = 256
_MARK = 12  # hexadecimal digits
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


def owner_of(instance: str, run_dir: Path) -> str:
    """The value of the owner's tag, in the characters and the length that AWS allows.

    A path that does not fit ends in a hash of the whole: two directories never have one owner.
    """
    wanted = f"{instance}:{run_dir}"
    if len(wanted) <= _LONGEST_TAG and not _NOT_IN_TAGS.search(wanted):
        return wanted
    mark = ":" + hashlib.sha256(os.fsencode(run_dir)).hexdigest()[:_MARK]
    return _NOT_IN_TAGS.sub("_", wanted)[: _LONGEST_TAG - len(mark)] + mark


def known_runs(run_dir: Path) -> set[str]:
    """The runs that journals of this run directory speak of: they are taken down by those."""
    histories = [Journal(path.parent).read() for path in run_dir.glob(f"*/*/{JOURNAL_NAME}")]
    return {history.goal.run for history in histories if history is not None}


def orphans(api: Api, instance: str, run_dir: Path) -> tuple[list[Orphan], list[str]]:
    """All arms of ours on AWS that no journal here speaks of and nobody else can be using.

    And one line per thing that cannot be told. SetupError when not even volumes could be listed.
    """
    listed, problems = [*_volumes(api)], []
    try:
        listed += _file_systems(api)
    except SetupError as error:
        problems.append(f"EFS was not asked for what killed sessions left there: {error}")
    # read after AWS was: a journal is there before what it speaks of, even of a session that begins now
    known, owner = known_runs(run_dir), owner_of(instance, run_dir)
    of_run: dict[str, list[_Found]] = {}
    for found in listed:
        _, _, tags, idle = found
        if tags[TAG_RUN] not in known and _may_go(api, tags[TAG_OWNER], owner, idle=idle):
            of_run.setdefault(tags[TAG_RUN], []).append(found)
    left = []
    for group in of_run.values():
        sort, _, tags, _ = group[0]
        resources = {int(tags[TAG_MEMBER]): resource for _, resource, tags, _ in group}
        if len(resources) == len(group):
            left.append(Orphan(sort=sort, tags=tags, resources=resources))
            continue
        every = ", ".join(resource for _, resource, _, _ in group)
        problems.append(f"{every}: more than one has the same tags; take them off those that are copies")
    return left, problems


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
    name = "VolumeId" if orphan.sort == "ebs" else "FileSystemId"
    for member, resource in orphan.resources.items():
        asked = {"operation": "found by its tags"}
        journal.append(Entry(key=f"create/{member}", state="intent", at_s=0.0, fields=asked))
        journal.append(Entry(key=f"create/{member}", state="done", at_s=0.0, fields={name: resource}))
    return directory


_Found = tuple[Sort, str, Mapping[str, str], bool]


def _volumes(api: Api) -> Iterator[_Found]:
    tagged = [{"Name": "tag-key", "Values": [TAG_OWNER]}]
    for raw in items(api, "ec2", "DescribeVolumes", "Volumes", Filters=tagged):
        tags = tags_of(raw.get("Tags"))
        if _complete(tags):
            yield "ebs", raw["VolumeId"], tags, raw["State"] == "available"


def _file_systems(api: Api) -> Iterator[_Found]:
    marker: dict[str, Any] = {}
    while True:
        answer = api.call("efs", "DescribeFileSystems", **marker)
        for raw in answer["FileSystems"]:
            tags = tags_of(raw.get("Tags"))
            if _complete(tags):
                yield "efs", raw["FileSystemId"], tags, False
        if not answer.get("NextMarker"):
            return
        marker = {"Marker": answer["NextMarker"]}


def _complete(tags: Mapping[str, str]) -> bool:
    """All our tags, with the values that only we give them."""
    if not all(name in tags for name in _ALL_TAGS):
        return False
    names = (tags[TAG_SESSION], tags[TAG_ARM])  # they become directories
    return tags[TAG_MEMBER].isdigit() and all(_NAME.fullmatch(name) for name in names)


def _may_go(api: Api, tagged: str, owner: str, *, idle: bool) -> bool:
    return tagged == owner or (idle and not _exists(api, tagged.split(":", 1)[0]))


def _exists(api: Api, instance: str) -> bool:
    wanted = [{"Name": "instance-id", "Values": [instance]}]
    groups: Sequence[Any] = list(items(api, "ec2", "DescribeInstances", "Reservations", Filters=wanted))
    states = [each["State"]["Name"] for group in groups for each in group["Instances"]]
    return any(state not in _GONE for state in states)
