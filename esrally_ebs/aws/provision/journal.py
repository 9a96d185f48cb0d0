"""The write-ahead journal of one arm: what is about to be done, then what came of it, one JSON line each.

Whatever was begun stands there before AWS or the machine hears of it, so that whoever comes after a crash
knows all that may exist. A line that was cut by a crash was never acted upon.
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
    """One line. ``refused``: the other side said no, so that nothing has come of the intent."""

    key: str  # of the step, e.g. "create/0"
    state: EntryState
    at_s: float  # seconds since the epoch
    fields: Mapping[str, Any] = field(default_factory=dict)


_ENTRY = TypeAdapter(JournalEntry)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A journal as read: the goal, and what is known of each step."""

    goal: Goal
    entries: tuple[JournalEntry, ...] = ()

    def done(self, key: str) -> Mapping[str, Any] | None:
        """The latest outcome of a step; None as long as there is none."""
        outcomes = [entry.fields for entry in self.entries if entry.key == key and entry.state == "done"]
        return outcomes[-1] if outcomes else None

    def pending(self, key: str) -> bool:
        """Whether a step was begun and, as far as is known, not refused; it may be done by now."""
        states = [entry.state for entry in self.entries if entry.key == key and entry.state != "done"]
        return states[-1:] == ["intent"]

    def intents(self, key: str) -> list[Mapping[str, Any]]:
        """What each try of a step was to do."""
        return [entry.fields for entry in self.entries if entry.key == key and entry.state == "intent"]

    def begun(self, key: str) -> bool:
        """Whether a step was ever begun, whatever came of it."""
        return bool(self.intents(key))

    def refusals(self, key: str, codes: Collection[str]) -> list[Mapping[str, Any]]:
        """The intents of this key that AWS refused with one of these words."""
        entries = [entry for entry in self.entries if entry.key == key and entry.state != "done"]
        return [
            before.fields
            for before, after in itertools.pairwise(entries)
            if after.state == "refused" and after.fields["code"] in codes
        ]

    def is_copy(self, member: str | None, volume_id: str) -> bool:
        """Whether a volume with a member's tags is another than the one created: someone copied its tags."""
        created = self.done(f"create/{member}")
        return created is not None and created["VolumeId"] != volume_id

    @property
    def resources(self) -> list[str]:
        """What the arm got: ids of volumes or of a file system, or serials of the instance's disks."""
        if self.goal.sort == "instance-store":
            return list((self.done("claim") or {}).get("serials", ()))
        name = "VolumeId" if self.goal.sort == "ebs" else "FileSystemId"
        created = (e for e in self.entries if e.state == "done" and e.key.startswith("create/"))
        return list(dict.fromkeys(str(entry.fields[name]) for entry in created))

    def left(self) -> list[str]:
        """The volumes or the file system that were created and, as far as is known, not deleted."""
        created = [] if self.goal.sort == "instance-store" else self.resources
        return [id_ for id_ in created if self.done(f"delete/{id_}") is None]


class Journal:
    """The journal of the arm whose directory this is; ``sync`` puts a file on its disk."""

    def __init__(self, directory: Path, *, sync: Callable[[int], None] = os.fsync) -> None:
        self.path = directory / JOURNAL_NAME
        self._sync = sync

    def begin(self, goal: Goal, at_s: float, *known: JournalEntry) -> None:
        """The first line, before anything else is done; with what is known to have been done, at once."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fields = _GOAL.dump_python(goal, mode="json")
        self.append(JournalEntry(key="goal", state="goal", at_s=at_s, fields=fields), *known)

    def append(self, *entries: JournalEntry) -> None:
        """Add lines by one write, on disk when this returns."""
        lines = [seal(json.dumps(_ENTRY.dump_python(entry, mode="json"))) for entry in entries]
        with self.path.open("ab+") as file:
            if not self._ends_whole(file.tell()):
                lines.insert(0, "")  # a line that a crash cut must not swallow these
            file.write("".join(f"{line}\n" for line in lines).encode())
            file.flush()
            self._sync(file.fileno())

    def read(self) -> History | None:
        """All that stands there; None when the arm was never begun. FormatError for what we never wrote."""
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
        """The last step of taking an arm down."""
        self.path.unlink(missing_ok=True)

    def _ends_whole(self, size: int) -> bool:
        with self.path.open("rb") as file:
            file.seek(max(0, size - 1))
            return file.read(1) in (b"", b"\n")


@lru_cache(maxsize=1024)  # the journal is read before every step
def _parse(line: str) -> JournalEntry | None:
    """None for a line that a crash cut: what it would have said was never acted upon. Else ValueError."""
    try:
        return _ENTRY.validate_python(parse_sealed(line, JOURNAL_NAME))
    except FormatError as error:
        raise ValueError("changed") from error
    except json.JSONDecodeError:
        if _ends_as_written(line) or _ends_as_written(line[:-1]):  # else a crash cut it
            raise
        return None


def _ends_as_written(line: str) -> bool:
    """Whether a line ends in a checksum, but for one sign."""
    end = re.sub("[0-9a-f]", "0", line[-len(_END) :])
    return len(end) == len(_END) and sum(map(str.__ne__, end, _END)) <= 1


def _check(entry: JournalEntry, goal: Goal) -> None:
    """ValueError for an entry without what later steps take from it."""
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
