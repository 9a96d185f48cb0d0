"""Records a node that we did not start: the I/Os of its mount, read-only, and requests by its query log.

mount, for some seconds  ---> session folder of kind ``trace`` <--- query log
or another tool's trace  -/

What reads the mount's tracepoints is root's; the rest is the user's who called.
"""

import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from esrally_ebs.aws.identity import identify
from esrally_ebs.errors import MeasurementError, PlanError, SetupError
from esrally_ebs.machine.caller import Caller, caller
from esrally_ebs.machine.kernel_trees import Roots
from esrally_ebs.machine.mounts import describe, unmounted
from esrally_ebs.machine.procfs import SECTOR_BYTES
from esrally_ebs.machine.resources import home
from esrally_ebs.machine.tracefs import require_tracing
from esrally_ebs.model import Kind, Phase, Sample, State, TimedRequest, Volume, VolumeSpec
from esrally_ebs.plan import Plan
from esrally_ebs.plan.tables import CachePlan
from esrally_ebs.session import reaper
from esrally_ebs.session.asking import Say, refusal, result_of
from esrally_ebs.session.clean import take_down
from esrally_ebs.session.manual import attached
from esrally_ebs.store import SessionFolder, running
from esrally_ebs.store.session import Session
from esrally_ebs.telemetry import block_trace
from esrally_ebs.telemetry.block_trace import threads_at
from esrally_ebs.units import GIB, number_of
from esrally_ebs.volumes.emulated.control import read_state

KIND = "trace"
ARM = "mount"
_ROUNDS = 10  # parts of the recording, by time, resampled like the rounds of a race
_END = b"end"
_PATIENCE_S = 60.0  # for the recorder to end and remove what it made
_LEAST_S = 1.0  # shortest recording that can show use second by second
_MAX_CORES = 0.1  # processors that recording may use before a warning
Logs = Callable[[], tuple[Sequence[TimedRequest], Sequence[str]]]  # called when the recording is over
_During = tuple[float, float]  # begin and end of recording; another tool's trace: first and last I/O


def volume_at(path: Path, today: VolumeSpec) -> Volume:
    """The volume of ``path``: an attached arm in its current state, or else as ``today`` describes it."""
    volume = describe(today, path.resolve(), identify(path.resolve(), Roots()).kind)
    arm = next((arm for arm in attached() if arm.device and arm.device == volume.device), volume)
    state = read_state(arm.control) if arm.control else None
    if state is None or state.credits is None or not state.credits_capacity:
        return arm
    share = min(max(state.credits / state.credits_capacity, 0.0), 1.0)
    return replace(arm, spec=replace(arm.spec, credits=share))


def size_of(path: Path, roots: Roots | None = None) -> str:
    """Size of a mount's disks together, in whole GiB: ``"500GiB"``. Raises SetupError if it has none."""
    disks = {queue.name for queue in block_trace.queues_of(path)[0]}
    sectors = sum(int(((roots or Roots()).sys / "block" / name / "size").read_text()) for name in disks)
    return f"{max(1, round(sectors * SECTOR_BYTES / GIB))}GiB"


class MountRecorder:
    """A root process that records I/Os of the mount of a path, once asked to.

    Called by sudo, this process continues as the user: it writes the session's folder and reads logs. ``pid``
    is the node's process; None: all users of the mount. Raises SetupError if the machine cannot.
    """

    def __init__(self, path: Path, today: VolumeSpec, *, seconds: float, pid: int | None) -> None:
        self._path, self._seconds = path, seconds
        self._queues, notes = block_trace.queues_of(path)
        require_tracing()
        self._threads, unwatched = threads_at(path, pid)
        self._notes = (*notes, unwatched) if unwatched else notes
        self._volume, self._session = volume_at(path, today), str(uuid.uuid4())
        disks = {queue.name for queue in self._queues}
        if len(disks) > self._volume.spec.stripes:
            self._notes += (
                f"{len(disks)} disks are taken for one volume: each has limits and a price of its own, so a"
                " setting is at its limits later than is said here, and costs more",
            )
        user = caller()
        self._pipe, teller = Pipe()
        self._child = os.fork()
        if self._child == 0:
            self._pipe.close()
            self._record(teller, user)
        teller.close()
        if user is not None:
            user.go_on_here()

    def record(self, *, logs: Logs | None, output: Path | None, say: Say) -> Path:
        """Record; returns the session's folder. Nothing else stays on the machine, whatever happens.

        ``logs`` gives requests and notes on them. Raises the recording process's error.
        """
        processor_s = time.process_time()
        with self._ended(), _folder(self._volume, self._session, output) as (folder, arm):
            for note in self._notes:
                folder.add_warning(note)
            self._pipe.send_bytes(os.fsencode(folder.path))
            names = ", ".join(queue.name for queue in self._queues)
            what = f"the requests of {names} for {self._seconds:g} s"
            numbers = iter(range(block_trace.MAX_IOS))
            with _calling_when_interrupted(self._end):
                say(f"recording {what}; Ctrl-C ends it and keeps them")
                while isinstance(part := self._next(), pa.Table):
                    folder.write_trace(arm, part, next(numbers))
            summary, problems = result_of(part)
            cores = (summary.processor_s + time.process_time() - processor_s) / summary.seconds
            say(
                f"{number_of(summary.ios, 'I/O')} in {summary.seconds:.1f} s,"
                f" {number_of(summary.lost, 'event')} lost,"
                f" {number_of(summary.in_flight, 'request')} in flight at the end;"
                f" recording took {cores:.3f} of a processor"
            )
            if self._threads:
                watched = f"{number_of(len(self._threads), 'thread')} watched"
                say(f"{watched}; {number_of(summary.waited_for, 'I/O')} had one asleep for them")
            if cores > _MAX_CORES:
                folder.add_warning(
                    f"recording took {cores:.2f} of a processor, which requests may have missed"
                )
            for warning in filter(None, (*_of_missing(summary), *problems, unmounted(self._volume))):
                folder.add_warning(warning)
            if not summary.ios or summary.seconds < _LEAST_S:
                short = "it was recorded for" if summary.ios else "nothing was read or written in"
                raise MeasurementError(
                    f"--mount {self._path}: {short} {summary.seconds:.1f} s; record for longer"
                )
            during_s = summary.began_s, summary.began_s + summary.seconds
            _note(folder, arm, summary.ios, during_s, summary.lost, summary.lost_waits)
            _add_requests(folder, self._session, arm, during_s, logs)
        return folder.path

    def _end(self) -> None:
        with suppress(OSError):  # it has already ended
            self._pipe.send_bytes(_END)

    def _next(self) -> Any:  # noqa: ANN401 - I/Os, or how it ended
        try:
            return self._pipe.recv()
        except EOFError as error:
            raise SetupError("trace: the process that records was killed; record again") from error

    @contextmanager
    def _ended(self) -> Iterator[None]:
        """After the block, end the recording process and wait for it."""
        try:
            yield
        finally:
            self._end()
            with suppress(OSError, EOFError):
                while self._pipe.poll(_PATIENCE_S):
                    self._pipe.recv_bytes()
            self._pipe.close()  # a stuck recorder ends with it
            os.waitpid(self._child, 0)

    def _record(self, teller: Connection, user: Caller | None) -> NoReturn:
        """Once told the session's folder, record; send I/Os and the result, then exit."""
        ended = threading.Event()
        try:
            os.setpgid(0, 0)  # Ctrl-C must not end it: it is told to end
            if (first := teller.recv_bytes()) == _END:
                os._exit(0)  # the session's folder could not be made
            folder = Path(os.fsdecode(first))
            running.begin(self._session)
            try:
                reaper.start(self._session, folder, [os.getpid()], user.uid if user else 0)()
                threading.Thread(target=_obey, args=(teller, ended), daemon=True).start()
                summary = block_trace.record(
                    self._session,
                    self._queues,
                    self._volume.spec.name,
                    seconds=self._seconds,
                    keep=teller.send,
                    threads=self._threads,
                    ended=ended,
                )
            finally:
                problems = take_down(self._session)
            teller.send({"result": (summary, problems)})
        except Exception as error:  # noqa: BLE001 - whatever it is, who waits for it hears of it
            teller.send(refusal(error))
        finally:
            os._exit(0)


@contextmanager
def _calling_when_interrupted(end: Callable[[], None]) -> Iterator[None]:
    """During the block, the first Ctrl-C or SIGTERM calls ``end``; a second one acts as before the block."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def as_before() -> None:
        for number, handler in before.items():
            if signal.getsignal(number) is ended:  # else another signal ends this process
                signal.signal(number, handler)

    def ended(*_: object) -> None:
        as_before()
        end()

    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, ended)
    try:
        yield
    finally:
        as_before()


def _obey(teller: Connection, ended: threading.Event) -> None:
    """End the recording when told to; if the other process is gone, leave cleanup to the reaper."""
    with suppress(EOFError, OSError):
        while teller.recv_bytes() == _END:
            ended.set()  # an event, not an exception: some C code drops exceptions raised in it
    os._exit(1)


def record_trace(
    ios: pa.Table, source: Path, today: VolumeSpec, *, lost: int, logs: Logs | None, output: Path | None
) -> Path:
    """Save another tool's trace, a table of ``TRACE``, as a recording; returns the session's folder.

    ``lost`` is that tool's own count of lost events.
    """
    volume, session = Volume(spec=today, kind=Kind.DIRECTORY, mount=source.resolve()), str(uuid.uuid4())
    with _folder(volume, session, output) as (folder, arm):
        folder.write_trace(arm, ios.set_column(0, ios.schema.field("arm"), _same(arm, ios.num_rows)))
        during_s = pc.min(ios["at_s"]).as_py(), pc.max(ios["at_s"]).as_py()
        _note(folder, arm, ios.num_rows, during_s, lost)
        for note in foreign_notes(lost):
            folder.add_warning(note)
        _add_requests(folder, session, arm, during_s, logs)
    return folder.path


@contextmanager
def _folder(volume: Volume, session: str, output: Path | None) -> Iterator[tuple[SessionFolder, str]]:
    """A session's folder and its arm; marked complete if the block ends well."""
    plan = Plan(name=KIND, arm=(volume.spec,), cache=CachePlan(mode="warm"))
    folder = SessionFolder.create(home(), session, kind=KIND, plan=plan, path=output)
    with folder.failing_with():
        folder.update(arms=[volume])
        yield folder, volume.spec.name
    folder.finish(State.COMPLETE)


def _of_missing(summary: block_trace.TraceSummary) -> Iterator[str]:
    if summary.ios >= block_trace.MAX_IOS:
        yield (
            f"The recording ended after {summary.seconds:.0f} s, with as many I/Os as it may have"
            f" ({summary.ios:,}): what came later, requests of a log too, is not in it"
        )
    if summary.lost:
        yield f"{summary.lost:,} events were lost: the machine was too busy to read them in time"
    if summary.lost_waits:
        yield f"{summary.lost_waits:,} events of threads were lost: what requests wait for will be inferred"


def foreign_notes(lost: int) -> tuple[str, ...]:
    """Notes on another tool's trace, which reports that many lost events."""
    untold = (
        "A trace in which whole I/Os are missing, and whose tool does not say so, looks like any other:"
        " requests seem to compute meanwhile, so slower volumes to do, and limits to be reached less often"
    )
    return (f"{lost:,} events were lost, as the trace itself says", untold) if lost else (untold,)


def _note(
    folder: SessionFolder, arm: str, ios: int, during_s: _During, missed: int, missed_waits: int = 0
) -> None:
    fields = {"ios": ios, "during_s": during_s, "lost": 0, "missed": missed, "missed_waits": missed_waits}
    folder.note("trace", arm=arm, **fields)


def recorded_during_s(session: Session) -> list[float]:
    """When a recording began and ended, in seconds since the epoch; empty if its session does not say."""
    notes = (event for event in session.events if event.kind == "trace")
    return [time_s for note in notes for time_s in note.numbers("during_s")]


def _same(word: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([word]))


def _add_requests(
    folder: SessionFolder, session: str, arm: str, during_s: _During, logs: Logs | None
) -> None:
    """Add requests of query logs that came during the recording, as samples; also those without an I/O."""
    if logs is None:
        return
    requests, notes = logs()
    first_s, last_s = during_s
    during = [one for one in requests if one.began_s >= first_s and one.began_s + one.took_s <= last_s]
    if not during:
        span = f"{requests[0].began_s:.0f} to {requests[-1].began_s:.0f}"
        raise PlanError(
            f"--log: no request of it came while I/Os were recorded (its times: {span}, of the trace:"
            f" {first_s:.0f} to {last_s:.0f}); give the log of that time, and --began where a trace's"
            " clock is not the time of day"
        )
    for note in notes:
        folder.add_warning(f"--log: {note}")
    length_s = max(last_s - first_s, 1e-6) / _ROUNDS
    with folder.part_writer("samples") as writer:
        writer.add(_sample(session, arm, one, 1 + int((one.began_s - first_s) / length_s)) for one in during)


def _sample(session: str, arm: str, request: TimedRequest, round_: int) -> Sample:
    return Sample(
        session=session,
        arm=arm,
        round=min(round_, _ROUNDS),
        task=request.template,
        operation=request.template,
        phase=Phase.MEASURE,
        iteration=1,
        client=0,
        started_s=request.began_s,
        service_time_s=request.took_s,
        latency_s=request.took_s,
        processing_time_s=request.took_s,
        ops=1.0,
        success=True,
        hits=request.hits,
        took_s=request.took_s,
        resident_before=None,
    )
