"""Reads session folders: one completely, all as a list, or one by a name as typed."""

import os
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import pyarrow as pa

from esrally_ebs.errors import FormatError, PlanError
from esrally_ebs.machine.kernel_trees import text
from esrally_ebs.machine.processes import Process, pid_namespace
from esrally_ebs.model import Event, State
from esrally_ebs.store.encoding import BASELINE, SAMPLES, TELEMETRY, parse_event, parse_sealed
from esrally_ebs.store.files import open_file
from esrally_ebs.store.parts import BROKEN, read_file, read_parts
from esrally_ebs.store.session import EDITED, Owner, Session, SessionRecord, SessionSummary, parse_record

_MAX_RECORD_BYTES = 2**26
_MAX_EVENTS_BYTES = 2**31
_MAX_BROKEN_LINES = 5  # of events.jsonl, named one by one
_ENDED = "its process ended without saying so"
_UNSEEN = "whether it runs still is seen outside of this container: 'esrally-ebs sessions' there says it"


def this_process() -> Owner:
    """This process, as owner of what it makes."""
    process = Process.of(os.getpid())
    return Owner(os.getpid(), process.start_ticks if process else 0, _boot_id(), pid_namespace())


def as_it_ended(record: SessionRecord) -> SessionRecord:
    """The record; a running session whose process is dead counts as failed."""
    if record.state is not State.RUNNING:
        return record
    owner = Process(record.owner.pid, record.owner.start_ticks)
    is_alive = record.owner.boot_id == _boot_id() and owner.alive_in(record.owner.pid_namespace)
    if is_alive is None:
        return replace(record, reason=_UNSEEN)
    return record if is_alive else replace(record, state=State.FAILED, reason=_ENDED)


def _boot_id() -> str:
    return text(Path("/proc/sys/kernel/random/boot_id"))  # "" without Linux, where nothing was run


def load_session(path: Path, *, sample_columns: list[str] | None = None) -> Session:
    """Everything in a folder; ``sample_columns`` saves memory if there are many samples.

    Leaves out truncated parts, with a warning. Raises FormatError if ``session.json`` is missing, broken, or
    of an unknown format version.
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
    """Rows of ``baseline.parquet``; empty if it does not exist."""
    file = path / "baseline.parquet"
    try:
        return read_file(file, BASELINE)
    except FileNotFoundError:
        return BASELINE.empty_table()
    except BROKEN as error:  # truncated, damaged, or with other columns
        raise FormatError(
            f"{file}: not readable as Parquet; restore it from a copy, or remove it to read the session"
            " without fio's figures"
        ) from error


def list_sessions(home: Path) -> list[SessionSummary]:
    """All sessions under ``home``, oldest first; broken ones are listed as failed, with the reason.

    Raises PermissionError if this user may not look.
    """
    sessions = home / "sessions"
    entries = sessions.iterdir() if sessions.is_dir() else ()  # glob would find nothing where it may not look
    folders = [path for path in entries if not path.name.startswith(".") and path.is_dir()]
    return sorted((_summary(path) for path in folders), key=lambda one: (one.started_at or 0.0, one.id))


def find_session(home: Path, name: str) -> Path:
    """A session's folder by id, prefix of an id, path, or ``latest``.

    The latest is the last one measured or simulated to its end, even if a check then failed it: a gate must
    not pass on the one before. Sessions that ended early, perhaps by a typo, have nothing to report.

    Raises PlanError if none matches, or more than one.
    """
    if not name:
        raise PlanError("session '': an empty name; is a variable of your shell not set?")
    own = home / "sessions" / name
    # a local folder called "latest" may be anybody's; ./latest names it
    for path in (own,) if name == "latest" else (own, Path(name)):
        if _holds_session(path):
            return path
    sessions = list_sessions(home)
    if name == "latest":
        fitting = _latest(sessions)
    else:
        fitting = [session for session in sessions if session.id.startswith(name)]
    if not fitting:
        raise PlanError(f"session {name!r}: {_why_not_found(home / 'sessions', name)}")
    if len(fitting) > 1:
        ids = ", ".join(session.id for session in fitting[:3])
        raise PlanError(
            f"session {name!r}: {len(fitting)} sessions start so ({ids} ...); give more of the id"
        )
    return fitting[0].path


def _why_not_found(sessions: Path, name: str) -> str:
    if name == "latest":
        return f"none in {sessions} is complete; run a plan, or name one of its ids"
    if os.path.lexists(name):
        return "is no folder with a session.json; 'esrally-ebs sessions' lists the sessions"
    return f"not found in {sessions}; 'esrally-ebs sessions' lists them"


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
        return True  # reading then reports the missing right
    except OSError:  # longer than any file name
        return False


def read_record(path: Path) -> SessionRecord:
    """Contents of ``session.json``. Raises FormatError with the reason if it is unusable here."""
    source = path / "session.json"
    try:
        with open_file(source, _MAX_RECORD_BYTES) as file:
            document = parse_sealed(file.read().decode(), str(source))
    except FileNotFoundError as error:
        raise FormatError(
            f"{source}: missing; no session's folder, or cut at its start; 'esrally-ebs sessions' lists them"
        ) from error
    except OSError as error:
        raise FormatError(f"{source}: {error.strerror}; read it as its owner or as root") from error
    except ValueError as error:
        raise FormatError(f"{source}: not readable as JSON ({error}); {EDITED}") from error
    return parse_record(document, str(source))


def read_events(path: Path) -> tuple[tuple[Event, ...], tuple[str, ...]]:
    """A session folder's events, and a warning for each invalid line."""
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
