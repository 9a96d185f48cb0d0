"""Reading session folders: one whole, all as a list, or one by a name that a person would type."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from esrally_ebs.errors import FormatError, PlanError
from esrally_ebs.model import Event, Kind, State
from esrally_ebs.store.encoding import BASELINE, SAMPLES, TELEMETRY, parse_event
from esrally_ebs.store.owner import Owner
from esrally_ebs.store.parts import read_parts
from esrally_ebs.store.session import (
    ENDED_SILENTLY,
    Session,
    SessionSummary,
    check_format,
    parse_arms,
    parse_checks,
)


def load_session(path: Path, *, sample_columns: list[str] | None = None) -> Session:
    """Everything that a folder holds; ``sample_columns`` spares memory when there are many samples.

    A part that a crash cut short is left out with a warning. Raises FormatError for a ``session.json`` that
    is missing, broken, or of a format version unknown here.
    """
    document = read_document(path)
    samples, broken_samples = read_parts(path / "samples", SAMPLES, sample_columns)
    telemetry, broken_telemetry = read_parts(path / "telemetry", TELEMETRY)
    events, broken_events = read_events(path)
    with _well_formed(path):
        state, reason = _state(document)
        return Session(
            id=document["id"],
            path=path,
            kind=document["kind"],
            state=state,
            reason=reason,
            started_at=document["started_at"],
            ended_at=document["ended_at"],
            plan=document["plan"],
            arms=parse_arms(document),
            environment=document["environment"],
            dataset=document["dataset"],
            checks=parse_checks(document),
            warnings=(*document["warnings"], *broken_samples, *broken_telemetry, *broken_events),
            samples=samples,
            baseline=read_baseline(path),
            telemetry=telemetry,
            events=events,
        )


def read_baseline(path: Path) -> pa.Table:
    """The rows of ``baseline.parquet``; an empty table when there is none yet."""
    try:
        return pq.read_table(path / "baseline.parquet").cast(BASELINE)
    except FileNotFoundError:
        return BASELINE.empty_table()
    except (pa.ArrowException, OSError, ValueError) as error:  # cut, damaged, or of other columns
        raise FormatError(
            f"{path / 'baseline.parquet'}: not readable as Parquet; its fio output is beside it"
        ) from error


def list_sessions(home: Path) -> list[SessionSummary]:
    """All sessions under ``home``, oldest first; a broken one is listed as failed, with the reason."""
    folders = [path for path in (home / "sessions").glob("[!.]*") if path.is_dir()]
    return sorted((_summary(path) for path in folders), key=lambda found: (found.started_at or 0.0, found.id))


def find_session(home: Path, name: str) -> Path:
    """The folder of a session given by id, by the start of its id, by path, or as ``latest``.

    Raises PlanError when there is none, or more than one, that fits.
    """
    for path in (home / "sessions" / name, Path(name)):
        if name and _holds_session(path):
            return path
    sessions = list_sessions(home)
    fitting = (
        sessions[-1:] if name == "latest" else [found for found in sessions if found.id.startswith(name)]
    )
    if not fitting:
        raise PlanError(
            f"session {name!r}: not found in {home / 'sessions'}; 'esrally-ebs sessions' lists them"
        )
    if len(fitting) > 1:
        ids = ", ".join(found.id for found in fitting[:3])
        raise PlanError(
            f"session {name!r}: {len(fitting)} sessions start so ({ids} ...); give more of the id"
        )
    return fitting[0].path


def _holds_session(path: Path) -> bool:
    try:
        return (path / "session.json").is_file()
    except PermissionError:
        return True  # who reads it is told of the right that is missing
    except OSError:  # longer than any name of a file
        return False


@contextmanager
def _well_formed(path: Path) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = str(error).splitlines()[:2]  # of a list of problems: how many, and where the first is
        raise FormatError(
            f"{path / 'session.json'}: {' '.join(what)} does not fit its format; was it edited by hand?"
        ) from error


def read_document(path: Path) -> dict[str, Any]:
    """What ``session.json`` of a folder holds. Raises FormatError that says why it is of no use here."""
    file = path / "session.json"
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise FormatError(
            f"{file}: missing; this is not a session folder, or it was cut at its start"
        ) from error
    except OSError as error:
        raise FormatError(f"{file}: {error.strerror}; read it as its owner or as root") from error
    except ValueError as error:
        raise FormatError(f"{file}: not readable as JSON; was it edited by hand?") from error
    if not isinstance(document, dict):
        raise FormatError(f"{file}: not an object; was it edited by hand?")
    check_format(document, str(file))
    return document


def _state(document: Mapping[str, Any]) -> tuple[State, str]:
    state = State(document["state"])
    if state is State.RUNNING and not Owner.parse(document["owner"]).alive:
        return State.FAILED, ENDED_SILENTLY
    return state, document["reason"]


def read_events(path: Path) -> tuple[tuple[Event, ...], tuple[str, ...]]:
    """The events of a session folder, and a warning for each line that is none."""
    file = path / "events.jsonl"
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return (), ()
    except OSError as error:
        return (), (f"events.jsonl: {error.strerror}; its events are left out",)
    events, broken = [], []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line:
            continue
        try:
            events.append(parse_event(line, f"events.jsonl:{number}"))
        except FormatError as error:
            broken.append(str(error))
    return tuple(events), tuple(broken)


def _summary(path: Path) -> SessionSummary:
    try:
        return _parse_summary(path, read_document(path))
    except FormatError as error:
        return SessionSummary(
            id=path.name,
            path=path,
            kind="",
            state=State.FAILED,
            reason=str(error),
            started_at=None,
            ended_at=None,
            plan="",
            arms=(),
            emulated=False,
        )


def _parse_summary(path: Path, document: Mapping[str, Any]) -> SessionSummary:
    with _well_formed(path):
        arms = parse_arms(document)
        state, reason = _state(document)
        return SessionSummary(
            id=document["id"],
            path=path,
            kind=document["kind"],
            state=state,
            reason=reason,
            started_at=document["started_at"],
            ended_at=document["ended_at"],
            plan=str(document["plan"].get("name", "")),
            arms=tuple(arm.spec.name for arm in arms),
            emulated=any(arm.kind is Kind.EMULATED for arm in arms),
        )
