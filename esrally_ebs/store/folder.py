"""Writing a session folder: an object that holds only its path, for several processes at once."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from esrally_ebs.errors import FormatError, SetupError
from esrally_ebs.model import BaselineRow, Check, Event, State
from esrally_ebs.store.encoding import BASELINE, baseline_of, dump, dump_event, plain, to_table
from esrally_ebs.store.files import append_line, cannot_write, locked, write_text
from esrally_ebs.store.owner import Owner
from esrally_ebs.store.parts import SCHEMAS, Growing, PartWriter, as_it_is, compact, write_table, writer_for
from esrally_ebs.store.reading import read_baseline, read_document, read_events
from esrally_ebs.store.session import FORMAT

_GIVEN_AT_CREATION = frozenset({"format", "id", "kind", "owner", "started_at"})


@dataclass(frozen=True, slots=True)
class SessionFolder:
    """``sessions/<id>/``: each method leaves the folder readable at every moment, and after a crash."""

    path: Path

    @classmethod
    def create(
        cls,
        home: Path,
        session_id: str,
        *,
        kind: str,
        plan: Mapping[str, Any],
        started_at: float | None = None,
    ) -> Self:
        """A new folder in state ``running``, owned by this process.

        Raises SetupError when the session exists already or the folder cannot be made.
        """
        path = home / "sessions" / session_id
        try:
            path.mkdir(parents=True)
        except FileExistsError as error:
            raise SetupError(f"{path}: this session exists already; use another id or remove it") from error
        except OSError as error:
            cannot_write(path, error)
        document = {
            "format": FORMAT,
            "id": session_id,
            "kind": kind,
            "state": State.RUNNING,
            "reason": "",
            "owner": Owner.here(),
            "started_at": time.time() if started_at is None else started_at,
            "ended_at": None,
            "plan": plan,
            "arms": [],
            "environment": {},
            "dataset": {},
            "checks": [],
            "warnings": [],
        }
        write_text(path / "session.json", dump(document, indent=2), sync=True)
        return cls(path)

    def update(self, **changes: Any) -> None:  # noqa: ANN401 - any key of session.json
        """Replace top-level keys of ``session.json``: ``arms``, ``environment``, ``dataset`` ..."""
        fixed = sorted(_GIVEN_AT_CREATION & set(changes))
        if fixed:
            raise FormatError(f"{self.path}: {fixed[0]!r} is given when a session is created and stays")
        self._edit(lambda document: document.update(plain(changes)))

    def add_check(self, check: Check) -> None:
        """Add one check, in place of an earlier one of the same name."""

        def add(document: dict[str, Any]) -> None:
            others = [held for held in document["checks"] if held["name"] != check.name]
            document["checks"] = [*others, plain(check)]

        self._edit(add)

    def add_warning(self, text: str) -> None:
        """Add a warning that every report shows; the same text is kept once."""

        def add(document: dict[str, Any]) -> None:
            document["warnings"] = [*(held for held in document["warnings"] if held != text), text]

        self._edit(add)

    def finish(self, state: State, reason: str = "", *, ended_at: float | None = None) -> None:
        """End the session, then merge the parts of its tables; a second call changes nothing but the tables.

        The state comes first, so that a failing merge (a full disk) does not hide how the session ended.
        """

        def end(document: dict[str, Any]) -> None:
            if document["state"] == State.RUNNING:
                document.update(
                    state=str(state), reason=reason, ended_at=time.time() if ended_at is None else ended_at
                )

        self._edit(end)
        self.compact()

    def compact(self) -> None:
        """Merge the parts of each table into one file; readers and writers may go on meanwhile."""
        for kind, schema in SCHEMAS.items():
            if (self.path / kind).is_dir():
                compact(self.path / kind, schema)

    def event(self, event: Event) -> None:
        """Append one line to ``events.jsonl``."""
        append_line(self.path / "events.jsonl", dump_event(event))

    def events(self) -> tuple[Event, ...]:
        """All events so far, of all processes; a line that was cut is passed over."""
        return read_events(self.path)[0]

    def write_baseline(self, round: int, arm: str, job: str, fio_json_text: str) -> Path:
        """Keep fio's own output, untouched, and say where."""
        path = self.path / "baseline" / f"{round}-{arm}-{job}.json"
        self._make(path.parent)
        write_text(path, fio_json_text)
        return path

    def rows_baseline(self, rows: Iterable[BaselineRow]) -> None:
        """Add rows to ``baseline.parquet``; a row of the same arm, round, job and op is replaced."""
        with locked(self.path):
            held = {_row_key(row): row for row in baseline_of(read_baseline(self.path))}
            held.update({_row_key(row): row for row in rows})
            write_table(self.path / "baseline.parquet", to_table(held.values(), BASELINE))

    def part_writer(
        self, kind: Literal["samples", "telemetry"], row: Callable[[Any], Growing] = as_it_is
    ) -> PartWriter:
        """A writer of rows of one kind for this process; ``row`` as in PartWriter."""
        self._make(self.path / kind)
        return writer_for(self.path / kind, kind, row)

    def write_file(self, name: str, text: str) -> Path:
        """Write ``race.json``, ``report.md`` and the like, atomically."""
        write_text(self.path / name, text)
        return self.path / name

    def _make(self, folder: Path) -> None:
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            cannot_write(folder, error)

    def _edit(self, change: Callable[[dict[str, Any]], None]) -> None:
        with locked(self.path):
            document = read_document(self.path)
            change(document)
            write_text(self.path / "session.json", dump(document, indent=2), sync=True)


def _row_key(row: BaselineRow) -> tuple[str, int, str, str]:
    return row.arm, row.round, row.job, row.op
