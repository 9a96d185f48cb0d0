"""Reading session folders: one whole, all as a list, or one by a name that a person would type."""

import os
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import pyarrow as pa

from esrally_ebs.errors import FormatError, PlanError
from esrally_ebs.machine.kernel_trees import text
from esrally_ebs.machine.processes import Process
from esrally_ebs.model import Event, State
from esrally_ebs.store.encoding import BASELINE, SAMPLES, TELEMETRY, parse_event, parse_sealed
from esrally_ebs.store.files import open_file
from esrally_ebs.store.parts import BROKEN, read_file, read_parts
from esrally_ebs.store.session import Owner, Session, SessionRecord, SessionSummary, parse_record

_MAX_RECORD_BYTES = 2**26
_MAX_EVENTS_BYTES = 2**31
_MAX_BROKEN_LINES = 5  # of events.jsonl that are named one by one


def this_process() -> Owner:
    """The process that asks, as the owner of what it makes."""
    process = Process.of(os.getpid())
    return Owner(os.getpid(), process.start_ticks if process else 0, _boot_id())


def as_it_ended(record: SessionRecord) -> SessionRecord:
    """The record; a session whose process died without a word is failed."""
    owner = Process(record.owner.pid, record.owner.start_ticks)
    if record.state is not State.RUNNING or (record.owner.boot_id == _boot_id() and owner.alive):
        return record
    return replace(record, state=State.FAILED, reason="its process ended without saying so")


def _boot_id() -> str:
    return text(Path("/proc/sys/kernel/random/boot_id"))  # empty where nothing was ever run: no Linux


def load_session(path: Path, *, sample_columns: list[str] | None = None) -> Session:
    """Everything that a folder holds; ``sample_columns`` spares memory when there are many samples.

    A part that a crash cut short is left out with a warning. Raises FormatError for a ``session.json`` that
    is missing, broken, or of a format version unknown here.
    """
    record = as_it_ended(read_record(path))
    samples, broken_samples = read_parts(path / "samples", SAMPLES, sample_columns)
    telemetry, broken_telemetry = read_parts(path / "telemetry", TELEMETRY)
    events, broken_events = read_events(path)
    own = {field.name: getattr(record, field.name) for field in fields(record)}
    own["warnings"] = (*record.warnings, *broken_samples, *broken_telemetry, *broken_events)
    return Session(
        **own, path=path, samples=samples, baseline=read_baseline(path), telemetry=telemetry, events=events
    )


def read_baseline(path: Path) -> pa.Table:
    """The rows of ``baseline.parquet``; an empty table when there is none yet."""
    file = path / "baseline.parquet"
    try:
        return read_file(file, BASELINE)
    except FileNotFoundError:
        return BASELINE.empty_table()
    except BROKEN as error:  # cut, damaged, or of other columns
        raise FormatError(
            f"{file}: not readable as Parquet; restore it from a copy, or remove it to read the session"
            " without fio's figures"
        ) from error


def list_sessions(home: Path) -> list[SessionSummary]:
    """All sessions under ``home``, oldest first; a broken one is listed as failed, with the reason.

    PermissionError where this user may not look.
    """
    sessions = home / "sessions"
    entries = sessions.iterdir() if sessions.is_dir() else ()  # glob would find nothing where it may not look
    folders = [path for path in entries if not path.name.startswith(".") and path.is_dir()]
    return sorted((_summary(path) for path in folders), key=lambda one: (one.started_at or 0.0, one.id))


def find_session(home: Path, name: str) -> Path:
    """The folder of a session given by id, by the start of its id, by path, or as ``latest``.

    The latest is the last that was measured, or simulated, to its end, also when a check then failed it: a
    gate must not pass on the one before. One that ended early, by a typo perhaps, has nothing to report.

    Raises PlanError when there is none, or more than one, that fits.
    """
    if not name:
        raise PlanError("session '': an empty name; is a variable of your shell not set?")
    own = home / "sessions" / name
    # a folder called so where one happens to be may be anybody's; ./latest names it
    for path in (own,) if name == "latest" else (own, Path(name)):
        if _holds_session(path):
            return path
    sessions = list_sessions(home)
    if name == "latest":
        fitting = _latest(sessions)
    else:
        fitting = [session for session in sessions if session.id.startswith(name)]
    if not fitting and name == "latest":
        raise PlanError(
            f"session 'latest': none in {home / 'sessions'} is complete; run a plan, or name one of its ids"
        )
    if not fitting:
        raise PlanError(
            f"session {name!r}: not found in {home / 'sessions'}; 'esrally-ebs sessions' lists them"
        )
    if len(fitting) > 1:
        ids = ", ".join(session.id for session in fitting[:3])
        raise PlanError(
            f"session {name!r}: {len(fitting)} sessions start so ({ids} ...); give more of the id"
        )
    return fitting[0].path


def _latest(sessions: Sequence[SessionSummary]) -> list[SessionSummary]:
    """The last that was measured, if there is one.

    PermissionError where it may be one that this user may not look into: a folder that changed since.
    """
    measured, closed = [], []
    for session in sessions:
        try:
            measured += [session] if _is_measured(session) else []
        except PermissionError as error:
            closed.append((session.path.stat().st_mtime, error))
    began_s = (measured[-1].started_at if measured else None) or 0.0
    for changed_s, refusal in closed:
        if changed_s > began_s:
            raise refusal
    return measured[-1:]


def _is_measured(session: SessionSummary) -> bool:
    return session.state is State.COMPLETE or (session.path / "report.json").is_file()


def _holds_session(path: Path) -> bool:
    try:
        return (path / "session.json").is_file()
    except PermissionError:
        return True  # who reads it is told of the right that is missing
    except OSError:  # longer than any name of a file
        return False


def read_record(path: Path) -> SessionRecord:
    """What ``session.json`` of a folder holds. Raises FormatError that says why it is of no use here."""
    source = path / "session.json"
    try:
        with open_file(source, _MAX_RECORD_BYTES) as file:
            document = parse_sealed(file.read().decode(), str(source))
    except FileNotFoundError as error:
        raise FormatError(
            f"{source}: missing; this is not a session folder, or it was cut at its start"
        ) from error
    except OSError as error:
        raise FormatError(f"{source}: {error.strerror}; read it as its owner or as root") from error
    except ValueError as error:
        raise FormatError(f"{source}: not readable as JSON ({error}); was it edited by hand?") from error
    return parse_record(document, str(source))


def read_events(path: Path) -> tuple[tuple[Event, ...], tuple[str, ...]]:
    """The events of a session folder, and a warning for each line that is none."""
    try:
        with open_file(path / "events.jsonl", _MAX_EVENTS_BYTES) as file:
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return (), ()
    except FormatError as error:
        return (), (f"{str(error).removeprefix(f'{path}/')}; its events are left out",)
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
    more = len(broken) - _MAX_BROKEN_LINES
    unnamed = (f"events.jsonl: {more} more",) if more > 0 else ()
    return tuple(events), (*broken[:_MAX_BROKEN_LINES], *unnamed)


def _summary(path: Path) -> SessionSummary:
    try:
        record = as_it_ended(read_record(path))
    except FormatError as error:
        return SessionSummary(id=path.name, path=path, reason=str(error))
    return SessionSummary(
        id=record.id,
        path=path,
        kind=record.kind,
        state=record.state,
        reason=record.reason,
        started_at=record.started_at,
        ended_at=record.ended_at,
        plan=record.plan.name,
        arms=record.arm_names,
        emulated=record.emulated,
    )
