"""Writes a session folder: an object that only holds the path, for several processes at once."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import pyarrow as pa

from esrally_ebs.errors import FormatError, SetupError
from esrally_ebs.model import BaselineRow, Check, Event, State, session_name
from esrally_ebs.plan import Plan
from esrally_ebs.store.encoding import BASELINE, TRACE, baseline_of, dump, dump_event, seal, to_table
from esrally_ebs.store.files import append_line, cannot_write, locked, make_directory, write_text
from esrally_ebs.store.parts import (
    FLUSH_EVERY_S,
    SCHEMAS,
    TELEMETRY_FLUSH_EVERY_S,
    Growing,
    PartWriter,
    compact,
    read_parts,
    write_table,
)
from esrally_ebs.store.reading import read_baseline, read_events, read_record, this_process
from esrally_ebs.store.session import PRICES, SessionRecord, changed, document_of

CANCELLED = "cancelled by the user"  # reason of a cancelled session
_GIVEN_AT_CREATION = frozenset({"format", "id", "kind", "owner", "started_at"})


@dataclass(frozen=True, slots=True)
class SessionFolder:
    """``sessions/<id>/``; after every method, and after a crash, the folder is readable."""

    path: Path

    @classmethod
    def create(
        cls,
        home: Path,
        session_id: str,
        *,
        kind: str,
        plan: Plan,
        started_at: float | None = None,
        path: Path | None = None,
    ) -> Self:
        """Create a folder in state ``running``, owned by this process; ``path`` overrides its place.

        Raises SetupError if the session exists already or the folder cannot be made, PlanError if its id is
        no valid session name.
        """
        path = path or home / "sessions" / session_name(session_id)
        try:
            path.mkdir(parents=True)
        except FileExistsError as error:
            raise SetupError(f"{path}: exists already; use another id or place, or remove it") from error
        except OSError as error:
            cannot_write(path, error)
        record = SessionRecord(
            id=session_id,
            kind=kind,
            owner=this_process(),
            started_at=time.time() if started_at is None else started_at,
            plan=plan,
        )
        try:
            write_text(path / "session.json", seal(dump(document_of(record), indent=2)), sync=True)
        except SetupError:
            with suppress(OSError):
                path.rmdir()  # a folder without a record is no session
            raise
        if prices := plan.cost.text_of_prices():
            write_text(path / PRICES, prices)
        return cls(path)

    @classmethod
    def own(cls, path: Path) -> Self:
        """A folder to write to. Raises SetupError if it is another user's, who could put links into it."""
        if path.lstat().st_uid != os.geteuid():
            raise SetupError(f"{path}: belongs to another user; run the command as its owner, or copy it")
        return cls(path)

    def update(self, **changes: Any) -> None:  # noqa: ANN401 - any key of session.json
        """Replace top-level keys of ``session.json``: ``arms``, ``environment``, ``dataset`` ..."""
        fixed = sorted(_GIVEN_AT_CREATION & set(changes))
        if fixed:
            raise FormatError(f"{self.path}: {fixed[0]!r} is given when a session is created and stays")
        self._edit(lambda record: changes)

    def add_check(self, check: Check) -> None:
        """Add a check; replaces an earlier one of the same name."""
        self._edit(
            lambda record: {"checks": [*(one for one in record.checks if one.name != check.name), check]}
        )

    def add_warning(self, text: str) -> None:
        """Add a warning for every report; repeated texts are kept once."""
        self._edit(lambda record: {"warnings": [*(one for one in record.warnings if one != text), text]})

    def finish(self, state: State, reason: str = "", *, ended_at: float | None = None) -> None:
        """End the session, then merge its tables' parts; a second call only merges.

        Sets the state first, so that a failing merge (full disk) does not hide how the session ended.
        """
        ended_at = time.time() if ended_at is None else ended_at

        def end(record: SessionRecord) -> dict[str, Any]:
            if record.state is not State.RUNNING:
                return {}
            return {"state": state, "reason": reason, "ended_at": ended_at}

        self._edit(end)
        self.compact()

    @contextmanager
    def failing_with(self) -> Iterator[None]:
        """An exception in the block, including Ctrl-C, ends the session, with its text in the record."""
        try:
            yield
        except KeyboardInterrupt:
            self.finish(State.CANCELLED, CANCELLED)
            raise
        except BaseException as error:
            self.finish(State.FAILED, str(error) or repr(error))
            raise

    def compact(self) -> None:
        """Merge each table's parts into one file; readers and writers may continue meanwhile."""
        for kind, schema in SCHEMAS.items():
            if (self.path / kind).is_dir():
                compact(self.path / kind, schema)

    def event(self, event: Event) -> None:
        """Append one line to ``events.jsonl``."""
        append_line(self.path / "events.jsonl", dump_event(event))

    def note(self, kind: str, *, arm: str | None = None, **fields: object) -> None:
        """Append an event with the current time."""
        self.event(Event(at_s=time.time(), kind=kind, arm=arm, fields=fields))

    def events(self) -> tuple[Event, ...]:
        """All events so far, of all processes; skips a truncated line."""
        return read_events(self.path)[0]

    def write_baseline(self, round: int, arm: str, job: str, fio_json_text: str) -> Path:
        """Write fio's own output unchanged; returns its path."""
        path = self.path / "baseline" / f"{round}-{arm}-{job}.json"
        make_directory(path.parent)
        write_text(path, fio_json_text, sync=True)
        return path

    def rows_baseline(self, rows: Iterable[BaselineRow]) -> None:
        """Add rows to ``baseline.parquet``; replaces rows of the same arm, round, job and op."""
        with locked(self.path):
            rows_by_key = {_row_key(row): row for row in baseline_of(read_baseline(self.path))}
            rows_by_key.update({_row_key(row): row for row in rows})
            write_table(self.path / "baseline.parquet", to_table(rows_by_key.values(), BASELINE))

    def part_writer(
        self, kind: Literal["samples", "telemetry"], row: Callable[[Any], Growing] = lambda row: row
    ) -> PartWriter:
        """This process's writer for rows of one kind; ``row`` as in PartWriter."""
        make_directory(self.path / kind)
        every_s = TELEMETRY_FLUSH_EVERY_S if kind == "telemetry" else FLUSH_EVERY_S
        return PartWriter(self.path / kind, SCHEMAS[kind], row=row, flush_every_s=every_s)

    def write_trace(self, arm: str, ios: pa.Table, part: int = 0) -> None:
        """Write a part of an arm's I/Os, a table of ``TRACE``; replaces an earlier version of that part."""
        make_directory(self.path / "trace")
        write_table(self.path / "trace" / f"part-{arm}-{part:06d}.parquet", ios)

    def read_trace(self) -> pa.Table:
        """All arms' I/Os. Raises FormatError if a file cannot be read."""
        ios, broken = read_parts(self.path / "trace", TRACE)
        if broken:
            raise FormatError(f"{self.path}/{broken[0]}; copy the session again")
        return ios

    def write_file(self, name: str, text: str) -> Path:
        """Write ``race.json``, ``report.md`` and the like atomically."""
        write_text(self.path / name, text)
        return self.path / name

    def _edit(self, changes: Callable[[SessionRecord], Mapping[str, Any]]) -> None:
        path = self.path / "session.json"
        with locked(self.path):
            record = read_record(self.path)
            after = changed(record, changes(record), str(path))
            write_text(path, seal(dump(document_of(after), indent=2)), sync=True)


def _row_key(row: BaselineRow) -> tuple[str, int, str, str]:
    return row.arm, row.round, row.job, row.op
