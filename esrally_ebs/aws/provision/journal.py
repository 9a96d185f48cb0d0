"""The write-ahead journal of one arm: what is about to be done, then what came of it, one JSON line each.

Whatever was begun stands there before AWS or the machine hears of it, so that whoever comes after a crash
knows all that may exist. A line that was cut by a crash was never acted upon.
"""

import itertools
import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from esrally_ebs.aws.provision.goal import Goal
from esrally_ebs.errors import FormatError

JOURNAL_NAME = "aws-journal.jsonl"
State = Literal["goal", "intent", "done", "refused"]
_GOAL = TypeAdapter(Goal)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line. ``refused``: the other side said no, so that nothing has come of the intent."""

    key: str  # of the step, e.g. "create/0"
    state: State
    at_s: float  # seconds since the epoch
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A journal as read: the goal, and what is known of each step."""

    goal: Goal
    entries: tuple[Entry, ...] = ()

    def done(self, key: str) -> Mapping[str, Any] | None:
        """The outcome of a step; None as long as none is known."""
        found = [entry.fields for entry in self.entries if entry.key == key and entry.state == "done"]
        return found[-1] if found else None

    def intent(self, key: str) -> Entry | None:
        """The last time that a step was begun, unless it was refused then."""
        of_key = [entry for entry in self.entries if entry.key == key and entry.state != "done"]
        return of_key[-1] if of_key and of_key[-1].state == "intent" else None

    def asked(self, key: str) -> bool:
        """Whether a step was ever begun, whatever came of it."""
        return any(entry.key == key and entry.state == "intent" for entry in self.entries)

    def refusals(self, key: str, codes: Collection[str]) -> list[Mapping[str, Any]]:
        """What was asked for under this key and refused with one of these words of AWS."""
        begun = [entry for entry in self.entries if entry.key == key and entry.state != "done"]
        return [
            before.fields
            for before, after in itertools.pairwise(begun)
            if after.state == "refused" and after.fields["code"] in codes
        ]

    def is_copy(self, member: str | None, volume_id: str) -> bool:
        """Whether a volume with a member's tags is another than the one created: someone copied its tags."""
        created = self.done(f"create/{member}")
        return created is not None and created["VolumeId"] != volume_id

    def ids(self, prefix: str, name: str) -> list[str]:
        """The values of one field of the outcomes of all steps ``prefix/...``, e.g. all VolumeIds."""
        outcomes = [e for e in self.entries if e.state == "done" and e.key.startswith(f"{prefix}/")]
        return list(dict.fromkeys(str(entry.fields[name]) for entry in outcomes))


class Journal:
    """The journal of the arm whose directory this is; ``sync`` puts a file on its disk."""

    def __init__(self, directory: Path, *, sync: Callable[[int], None] = os.fsync) -> None:
        self.path = directory / JOURNAL_NAME
        self._sync = sync

    def begin(self, goal: Goal, at_s: float) -> None:
        """The first line, before anything else is done."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.append(Entry(key="goal", state="goal", at_s=at_s, fields=_GOAL.dump_python(goal, mode="json")))

    def append(self, entry: Entry) -> None:
        """Add a line, on disk when this returns."""
        line = {"key": entry.key, "state": entry.state, "at_s": entry.at_s, "fields": dict(entry.fields)}
        with self.path.open("ab+") as file:
            if not self._ends_whole(file.tell()):
                file.write(b"\n")  # a line that a crash cut must not swallow this one
            file.write(json.dumps(line).encode() + b"\n")
            file.flush()
            self._sync(file.fileno())

    def read(self) -> History | None:
        """All that stands there; None when the arm was never begun."""
        try:
            lines = self.path.read_text().splitlines()
        except FileNotFoundError:
            return None
        entries = [entry for line in lines if (entry := _parse(line)) is not None]
        if not entries:
            return None
        if entries[0].state != "goal":
            raise FormatError(f"{self.path}: does not begin with a goal; was it edited by hand?")
        return History(goal=_GOAL.validate_python(dict(entries[0].fields)), entries=tuple(entries[1:]))

    def remove(self) -> None:
        """The last step of taking an arm down."""
        self.path.unlink(missing_ok=True)

    def _ends_whole(self, size: int) -> bool:
        with self.path.open("rb") as file:
            file.seek(max(0, size - 1))
            return file.read(1) in (b"", b"\n")


@lru_cache(maxsize=1024)  # the journal is read before every step
def _parse(line: str) -> Entry | None:
    try:
        return Entry(**json.loads(line))
    except (ValueError, TypeError):
        return None  # cut by a crash: what it would have said was never acted upon
