"""The write-ahead journal of one arm: each step's intent, then its outcome, one JSON line each.

An intent is recorded before AWS or the machine is asked, so that after a crash everything that may exist is
known. A line that a crash has cut was never acted upon.
"""

import itertools
import json
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from esrally_ebs.aws.provision.goal import Goal
from esrally_ebs.errors import FormatError
from esrally_ebs.store.encoding import parse_sealed, seal

JOURNAL_NAME = "aws-journal.jsonl"
EntryState = Literal["goal", "intent", "done", "refused"]
_DAMAGED = (
    "is not as this pack wrote it; take down by hand what it speaks of (in AWS by the tag esrally-ebs:run),"
    " then remove the file"
)
_GOAL = TypeAdapter(Goal)
_END = re.sub("[0-9a-f]", "0", seal("{}")[2:])


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One line. ``refused``: the other side said no, so the intent had no effect."""

    key: str  # the step's key, such as "create/0"
    state: EntryState
    at_s: float  # seconds since the epoch
    fields: Mapping[str, Any] = field(default_factory=dict)


_ENTRY = TypeAdapter(JournalEntry)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A journal's contents: the goal, and what is known of each step."""

    goal: Goal
    entries: tuple[JournalEntry, ...] = ()

    def done(self, key: str) -> Mapping[str, Any] | None:
        """The latest outcome of a step; None if there is none yet."""
        outcomes = [entry.fields for entry in self.entries if entry.key == key and entry.state == "done"]
        return outcomes[-1] if outcomes else None

    def pending(self, key: str) -> bool:
        """Whether a step was begun and, as far as is known, not refused; it may be done by now."""
        states = [entry.state for entry in self.entries if entry.key == key and entry.state != "done"]
        return states[-1:] == ["intent"]

    def intents(self, key: str) -> list[Mapping[str, Any]]:
        """The arguments of each try of a step."""
        return [entry.fields for entry in self.entries if entry.key == key and entry.state == "intent"]

    def begun(self, key: str) -> bool:
        """Whether a step was ever begun, whatever its outcome."""
        return bool(self.intents(key))

    def refusals(self, key: str, codes: Collection[str]) -> list[Mapping[str, Any]]:
        """Intents of this step that AWS refused with one of these codes."""
        entries = [entry for entry in self.entries if entry.key == key and entry.state != "done"]
        return [
            before.fields
            for before, after in itertools.pairwise(entries)
            if after.state == "refused" and after.fields["code"] in codes
        ]

    def is_copy(self, member: str | None, volume_id: str) -> bool:
        """Whether a volume with a member's tags is not the one we created: somebody copied its tags."""
        created = self.done(f"create/{member}")
        return created is not None and created["VolumeId"] != volume_id

    @property
    def resources(self) -> list[str]:
        """The arm's resources: ids of volumes or a file system, or serials of instance disks."""
        if self.goal.sort == "instance-store":
            return list((self.done("claim") or {}).get("serials", ()))
        name = "VolumeId" if self.goal.sort == "ebs" else "FileSystemId"
        created = (e for e in self.entries if e.state == "done" and e.key.startswith("create/"))
        return list(dict.fromkeys(str(entry.fields[name]) for entry in created))

    def left(self) -> list[str]:
        """Volumes or file system created and, as far as is known, not deleted."""
        created = [] if self.goal.sort == "instance-store" else self.resources
        return [id_ for id_ in created if self.done(f"delete/{id_}") is None]


class Journal:
    """The journal of the arm with this directory; ``sync`` forces a file to its disk."""

    def __init__(self, directory: Path, *, sync: Callable[[int], None] = os.fsync) -> None:
        self.path = directory / JOURNAL_NAME
        self._sync = sync

    def begin(self, goal: Goal, at_s: float, *known: JournalEntry) -> None:
        """Write the first line, before anything else is done, with steps already known to be done."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fields = _GOAL.dump_python(goal, mode="json")
        self.append(JournalEntry(key="goal", state="goal", at_s=at_s, fields=fields), *known)

    def append(self, *entries: JournalEntry) -> None:
        """Append lines in one write, which is on disk on return."""
        lines = [seal(json.dumps(_ENTRY.dump_python(entry, mode="json"))) for entry in entries]
        with self.path.open("ab+") as file:
            if not self._ends_whole(file.tell()):
                lines.insert(0, "")  # keeps a line cut by a crash from swallowing these
            file.write("".join(f"{line}\n" for line in lines).encode())
            file.flush()
            self._sync(file.fileno())

    def read(self) -> History | None:
        """The whole journal; None if the arm was never begun. Raises FormatError for foreign contents."""
        try:
            lines = self.path.read_text(encoding="ascii").split("\n")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise FormatError(f"{self.path}: byte {error.start}: {_DAMAGED}") from error
        entries = []
        goal: Goal | None = None
        for number, line in enumerate(lines, 1):
            try:
                entry = _parse(line)
                if entry is not None and goal is None:
                    if entry.state != "goal":
                        raise FormatError(f"{self.path}: does not begin with a goal; was it edited by hand?")
                    goal = _GOAL.validate_python(dict(entry.fields))
                elif entry is not None and goal is not None:
                    _check(entry, goal)
                    entries.append(entry)
            except (ValueError, RecursionError) as error:
                raise FormatError(f"{self.path}: line {number}: {_DAMAGED}") from error
        return None if goal is None else History(goal=goal, entries=tuple(entries))

    def remove(self) -> None:
        """Last step of taking an arm down."""
        self.path.unlink(missing_ok=True)

    def _ends_whole(self, size: int) -> bool:
        with self.path.open("rb") as file:
            file.seek(max(0, size - 1))
            return file.read(1) in (b"", b"\n")


@lru_cache(maxsize=1024)  # read before every step
def _parse(line: str) -> JournalEntry | None:
    """An entry; None for a line that a crash cut, as that was never acted upon. Else raises ValueError."""
    try:
        return _ENTRY.validate_python(parse_sealed(line, JOURNAL_NAME))
    except FormatError as error:
        raise ValueError("changed") from error
    except json.JSONDecodeError:
        if _ends_as_written(line) or _ends_as_written(line[:-1]):  # else cut by a crash
            raise
        return None


def _ends_as_written(line: str) -> bool:
    """Whether a line ends in a checksum, up to one wrong character."""
    end = re.sub("[0-9a-f]", "0", line[-len(_END) :])
    return len(end) == len(_END) and sum(map(str.__ne__, end, _END)) <= 1


def _check(entry: JournalEntry, goal: Goal) -> None:
    """Raise ValueError for an entry that lacks what later steps need."""
    fields, kind = entry.fields, entry.key.partition("/")[0]
    if entry.state == "intent":
        right = all(isinstance(fields.get(name, {}), dict) for name in ("parameters", "arguments"))
    elif entry.state == "refused":
        right = isinstance(fields.get("code"), str)
    elif kind == "create":
        right = isinstance(fields.get("FileSystemId" if goal.sort == "efs" else "VolumeId"), str)
    elif kind == "claim":
        serials = fields.get("serials")
        right = isinstance(serials, list) and all(isinstance(serial, str) for serial in serials)
    else:
        right = entry.state == "done"
    if not right:
        raise ValueError(f"{entry.key}: {fields}")
