"""All requests that a disk serves, from the kernel's tracepoints: a mount to tables of I/Os.

A request's issue and completion are events with disk and sector, on any processor. They show whole requests,
as the disk gets them: after readahead, merging and the scheduler. The scheduler's events show which thread
slept for which request: a thread that waits for a disk sleeps uninterruptibly (state D), and is woken by the
completion of its request: the I/O done right before.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.machine.disks import RequestQueue, request_queues, stack_of
from esrally_ebs.machine.kernel_trees import Roots
from esrally_ebs.machine.mounts import mount_holding, pids_using
from esrally_ebs.machine.processes import threads_of
from esrally_ebs.machine.procfs import SECTOR_BYTES
from esrally_ebs.machine.tracefs import (
    REQUEST_EVENTS,
    THREAD_EVENTS,
    BufferReader,
    Column,
    EventFormat,
    TracedEvents,
    TracingInstance,
    events_of,
    has_thread_events,
    remove_instance,
    tracefs,
)
from esrally_ebs.model import short_name
from esrally_ebs.store.encoding import TRACE

ASLEEP = "prev_state & 2"  # in sched_switch: TASK_UNINTERRUPTIBLE
MAX_PROCESSES = 16  # using a mount; with more, the node cannot be guessed
_WOKEN_WITHIN_S = 400e-6  # after its I/O's completion; a longer sleep was not for that I/O
_SWITCH, _WAKING, _FORK = THREAD_EVENTS
_COLUMNS = ("waiter", "slept_s", "woken_s")

MAX_IOS = 2**23  # end a recording: 0.5 GiB of memory for its reader
_BUFFER_BYTES = 8 * 2**20  # per processor: three seconds at 20,000 I/Os per second, if all are its own
_THREADS_BUFFER_BYTES = 4 * 2**20  # per processor: 100,000 wake-ups between two readings
_READ_EVERY_S = 0.5
_IOS_A_PART = 2**17
_GIVEN_UP_S = 60.0  # an issue that is older than this at a completion is ignored
_MINOR_BITS = 20  # of the kernel's device number
_ISSUE, _COMPLETE = REQUEST_EVENTS
_RWBS = 5  # letters that describe a request; the fifth is the last that may mean readahead
_Rows = Mapping[str, Column]


def threads_at(path: Path, pid: int | None) -> tuple[list[int], str]:
    """Threads of the process, or of processes using ``path``'s file system; and a line on what is wrong with
    them, or why there are none.

    Raises PlanError for a process that does not exist.
    """
    inferred = "what requests wait for will be inferred"
    if not has_thread_events(tracefs()):
        return [], f"this kernel has no tracepoints of its scheduler: {inferred}"
    pids = [one for one in pids_using(path) if one != os.getpid()]
    if pid is not None:
        if not (threads := threads_of(pid)):
            raise PlanError(f"--pid {pid}: there is no such process; name the node's")
        if pid in pids:
            return threads, ""
        return threads, (
            f"process {pid} uses nothing of {path}: where it is not the node, {inferred}; of a node in a"
            " container give the number outside of it"
        )
    if not pids:
        return [], f"no process uses {path}: {inferred}; name the node's with --pid"
    if len(pids) > MAX_PROCESSES:
        return [], f"{len(pids)} processes use {path}: {inferred}; name the node's with --pid"
    return [thread for one in pids for thread in threads_of(one)], ""


class IoWaits:
    """Sleeps of watched threads, from events that come in pieces, one processor after another."""

    def __init__(self, formats: Mapping[str, EventFormat], threads: Iterable[int], epoch_s: float) -> None:
        """``epoch_s``: what to add to the events' clock to get epoch seconds."""
        self._formats = formats
        self._epoch_s = epoch_s
        self._watched = set(threads)  # and threads that they have started since
        self._asleep = np.zeros((0, 2), np.int64)  # thread, begin
        self._sleeps = [np.zeros((0, 3), np.int64)]  # thread, begin, end

    @property
    def sleeps(self) -> int:
        """Number of sleeps held until ``put_into``."""
        return sum(map(len, self._sleeps))

    def add(self, events: TracedEvents) -> None:
        """Turn events of watched threads into sleeps; remembers threads that are still asleep.

        The kernel also reports threads that a watched one follows on a processor, or wakes.
        """
        fork = self._formats[_FORK]
        self._watched.update(events.of(fork).number(*fork.fields["child_pid"]).tolist())
        slept, woken = events.of(self._formats[_SWITCH]), events.of(self._formats[_WAKING])
        thread = np.concatenate(
            [
                self._asleep[:, 0],
                slept.number(*self._formats[_SWITCH].fields["prev_pid"]),
                woken.number(*self._formats[_WAKING].fields["pid"]),
            ]
        )
        at_ns = np.concatenate([self._asleep[:, 1], slept.at_ns, woken.at_ns])
        is_waking = np.repeat([0, 1], [len(thread) - len(woken.at_ns), len(woken.at_ns)])
        watched = np.flatnonzero(np.isin(thread, list(self._watched)))
        order = watched[np.lexsort((at_ns[watched], thread[watched]))]
        thread, at_ns, is_waking = thread[order], at_ns[order], is_waking[order]
        same = thread[1:] == thread[:-1]
        ends = np.flatnonzero(same & (is_waking[:-1] == 0) & (is_waking[1:] == 1))
        self._sleeps.append(np.column_stack([thread[ends], at_ns[ends], at_ns[ends + 1]]))
        last = np.append(~same, True)[: len(thread)] & (is_waking == 0)
        self._asleep = np.column_stack([thread[last], at_ns[last]])

    def put_into(self, ios: pa.Table) -> pa.Table:
        """A table of ``TRACE`` with the first thread that slept for each I/O; forgets the sleeps."""
        sleeps, self._sleeps = np.concatenate(self._sleeps), self._sleeps[:1]
        sleeps = sleeps[np.argsort(sleeps[:, 2])[::-1]]  # of several for one I/O, the first is written last
        slept_s, woken_s = (sleeps[:, place] / 1e9 + self._epoch_s for place in (1, 2))
        done_s = ios["done_s"].to_numpy()
        order = np.argsort(done_s)
        place = np.searchsorted(done_s[order], woken_s, "right") - 1
        done_before_s = done_s[order][place] if len(order) else np.full(len(place), -np.inf)
        is_waited_for = (place >= 0) & (done_before_s >= np.maximum(slept_s, woken_s - _WOKEN_WITHIN_S))
        values: list[Column] = [np.full(ios.num_rows, np.nan) for _ in _COLUMNS]
        for column, value in zip(values, (sleeps[:, 0], slept_s, woken_s), strict=True):
            column[order[place[is_waited_for]]] = value[is_waited_for]
        for name, column in zip(_COLUMNS, values, strict=True):
            made = pa.array(column, from_pandas=True).cast(TRACE.field(name).type)
            ios = ios.set_column(ios.schema.get_field_index(name), TRACE.field(name), made)
        return ios


def queues_of(path: Path) -> tuple[tuple[RequestQueue, ...], tuple[str, ...]]:
    """Disks that serve the requests of ``path``'s mount, and notes on them.

    Raises SetupError if the mount has none, such as NFS or an overlay.
    """
    if not path.exists():
        raise SetupError(f"--mount {path}: there is no such place; name a directory on the file system")
    roots = Roots()
    mount = mount_holding(path)
    queues, stack = request_queues(mount, roots), stack_of(mount, roots)
    if not queues:
        raise SetupError(
            f"--mount {path}: {mount.filesystem} on {mount.source} has no disk whose requests the kernel"
            " reports; 'esrally-ebs volumes list' shows the mounts that have one"
        )
    notes = []
    names = ", ".join(queue.name for queue in queues)
    if not all(queue.is_mount for queue in queues):
        notes.append(
            f"{stack.device} ({', '.join(stack.layers)}) has no requests of its own: those of {names} are"
            " recorded, with places on them, whoever sends them"
        )
    if stack.beneath:
        below = ", ".join(sorted(stack.beneath))
        notes.append(f"{names} is a loop device: what reaches {below} below it is not recorded")
    return queues, tuple(notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    ios: int
    began_s: float  # epoch seconds; all requests from then on were seen
    seconds: float
    lost: int  # events lost for want of room in the buffer
    in_flight: int  # requests not completed at the end
    processor_s: float  # of this process, for reading and passing them on
    waited_for: int = 0  # I/Os that a watched thread slept for
    lost_waits: int = 0  # events of watched threads lost for want of room


def instance_name(session: str) -> str:
    return f"esrally-ebs-{short_name(session)}"


def remove_trace(session: str) -> None:
    """Remove whatever a recording left in the kernel."""
    for name in (_threads_name(session), instance_name(session)):
        remove_instance(name)


def _threads_name(session: str) -> str:
    return f"{instance_name(session)}-threads"


def record(
    session: str,
    queues: Sequence[RequestQueue],
    arm: str,
    *,
    seconds: float,
    keep: Callable[[pa.Table], None],
    threads: Sequence[int],
    ended: Event,
) -> TraceSummary:
    """Record for some seconds, until ``ended``, or up to ``MAX_IOS``; ``keep`` gets tables of ``TRACE``.

    With ``threads``, also records which I/Os these, and threads that they start, slept for. Memory use is
    bounded. Raises SetupError if the machine cannot; nothing stays in the kernel.
    """
    processor_s, ios, waited_for = time.process_time(), 0, 0
    with ExitStack() as stack:
        waits, epoch_s = None, _epoch_s()  # common to both: waits are matched within microseconds
        if threads:
            watched = stack.enter_context(_threads(session, threads))
            waits = IoWaits(watched.formats, threads, epoch_s)
        traced = stack.enter_context(_requests(session, queues))
        began_s = time.monotonic()
        matcher = IoMatcher(traced.formats, queues, epoch_s)
        tables: list[pa.Table] = []
        stopping = False
        while not stopping:
            is_ended = ended.wait(max(0.0, min(_READ_EVERY_S, began_s + seconds - time.monotonic())))
            stopping = is_ended or time.monotonic() >= began_s + seconds or ios >= MAX_IOS
            if stopping:
                ended_s = time.monotonic()
                traced.instance.stop()
            tables.append(matcher.add(traced.read(), arm))
            ios += tables[-1].num_rows
            if waits is not None:  # read second: a waiting thread is woken after its I/O
                waits.add(watched.read())
            rows = sum(table.num_rows for table in tables)
            if stopping or max(rows, 0 if waits is None else waits.sleeps) >= _IOS_A_PART:
                whole = pa.concat_tables(tables).unify_dictionaries()
                whole = whole if waits is None else waits.put_into(whole)
                waited_for += rows - whole["waiter"].null_count
                keep(whole)
                tables = []
        lost, lost_waits = traced.instance.lost(), watched.instance.lost() if threads else 0
    return TraceSummary(
        ios=ios,
        began_s=epoch_s + began_s,
        seconds=ended_s - began_s,
        lost=lost,
        lost_waits=lost_waits,
        in_flight=matcher.in_flight,
        processor_s=time.process_time() - processor_s,
        waited_for=waited_for,
    )


@dataclass(frozen=True, slots=True)
class _Traced:
    instance: TracingInstance
    reader: BufferReader
    formats: Mapping[str, EventFormat]

    def read(self) -> TracedEvents:
        """Events since the last call."""
        return events_of(b"".join(self.reader.pages()), self.reader.page_bytes)


@contextmanager
def _tracing(
    name: str, events: Mapping[str, str], buffer_bytes: int, threads: Sequence[int] = ()
) -> Iterator[_Traced]:
    instance = TracingInstance.create(name, events, buffer_bytes=buffer_bytes, threads=threads)
    try:
        with closing(BufferReader.open(instance)) as reader:
            yield _Traced(instance, reader, {event: instance.format(event) for event in events})
    finally:
        instance.remove()


def _requests(session: str, queues: Sequence[RequestQueue]) -> AbstractContextManager[_Traced]:
    chosen = " || ".join(_filter(queue) for queue in queues)
    return _tracing(instance_name(session), dict.fromkeys(REQUEST_EVENTS, chosen), _BUFFER_BYTES)


def _threads(session: str, threads: Sequence[int]) -> AbstractContextManager[_Traced]:
    chosen = {_SWITCH: ASLEEP, _WAKING: "", _FORK: ""}
    return _tracing(_threads_name(session), chosen, _THREADS_BUFFER_BYTES, threads=threads)


def _filter(queue: RequestQueue) -> str:
    text = f"dev == {_kernel_number(queue)}"
    own = f"({text} && sector >= {queue.first_sector} && sector < {queue.end_sector})"
    return own if queue.is_part else text


def _kernel_number(queue: RequestQueue) -> int:
    major, minor = map(int, queue.number.split(":"))
    return major << _MINOR_BITS | minor


def _epoch_s() -> float:
    """What to add to CLOCK_MONOTONIC to get epoch seconds."""
    return time.time() - time.monotonic()


class IoMatcher:
    """Makes I/Os from events that come in pieces, one processor after another."""

    def __init__(
        self, formats: Mapping[str, EventFormat], queues: Sequence[RequestQueue], epoch_s: float
    ) -> None:
        """``epoch_s``: what to add to the events' clock to get epoch seconds."""
        self._formats = formats
        # of one disk's partitions the first: places in others are beyond its end
        by_place = sorted(queues, key=lambda queue: queue.first_sector, reverse=True)
        self._queues = {_kernel_number(queue): queue for queue in by_place}
        self._epoch_s = epoch_s
        none = np.zeros(0, np.int64)
        names = ("dev", "sector", "at_ns", "bytes", "thread", "write", "ahead", "is_issue")
        self._pending: _Rows = dict.fromkeys(names, none)

    @property
    def in_flight(self) -> int:
        return int(self._pending["is_issue"].sum())

    def add(self, events: TracedEvents, arm: str) -> pa.Table:
        """I/Os completed by these events, as a table of ``TRACE``."""
        parts = [self._pending, *(self._rows(events, event) for event in REQUEST_EVENTS)]
        mixed = {name: np.concatenate([part[name] for part in parts]) for name in self._pending}
        rows = _take(mixed, np.lexsort((mixed["at_ns"], mixed["sector"], mixed["dev"])))
        begun, done = _pairs(rows)
        left = rows["at_ns"] > rows["at_ns"].max(initial=0) - _GIVEN_UP_S * 1e9
        left[begun] = left[done] = False
        self._pending = _take(rows, left)
        by_time = np.argsort(rows["at_ns"][begun])
        return self._table(_take(rows, begun[by_time]), rows["at_ns"][done[by_time]], arm)

    def _rows(self, events: TracedEvents, event: str) -> _Rows:
        """Only reads and writes: a flush has no place, and a discard moves no data."""
        kind = self._formats[event]
        own = events.of(kind)
        offset, _ = kind.fields["rwbs"]
        letters = np.array([own.number(offset + place, 1) for place in range(_RWBS)])
        letters *= np.logical_and.accumulate(letters != 0)  # letters after the end are left over from earlier
        op = np.where(letters[0] == ord("F"), letters[1], letters[0])  # F: a flush precedes it
        size = kind.fields.get("bytes")
        rows = {
            "dev": own.number(*kind.fields["dev"]),
            "sector": own.number(*kind.fields["sector"]),
            "at_ns": own.at_ns,
            "bytes": np.zeros_like(op) if size is None else own.number(*size),
            "thread": own.number(*kind.fields["common_pid"]),
            "write": (op == ord("W")).astype(np.int64),
            "ahead": (letters[1:] == ord("A")).any(axis=0).astype(np.int64),
            "is_issue": np.full(len(op), int(event == _ISSUE)),
        }
        return _take(rows, (op == ord("R")) | (op == ord("W")))

    def _table(self, issued: _Rows, done_ns: Column, arm: str) -> pa.Table:
        count = len(done_ns)
        numbers = list(self._queues)
        place = np.searchsorted(np.sort(numbers), issued["dev"])
        queues = [self._queues[number] for number in sorted(numbers)]
        first = np.array([queue.first_sector for queue in queues])[place]
        columns = {
            "arm": _words(np.zeros(count, np.int32), [arm]),
            "device": _words(place, [queue.name for queue in queues]),
            "at_s": issued["at_ns"] / 1e9 + self._epoch_s,
            "done_s": done_ns / 1e9 + self._epoch_s,
            "offset": (issued["sector"] - first) * SECTOR_BYTES,
            "bytes": issued["bytes"],
            "op": _words(issued["write"], ["read", "write"]),
            "queue_s": pa.nulls(count),  # waits for limits cannot be seen from here
            "path_s": np.zeros(count),
            "ahead": issued["ahead"].astype(bool),
            "thread": issued["thread"],
            **dict.fromkeys(("waiter", "slept_s", "woken_s"), pa.nulls(count)),
        }
        return pa.table(columns).select(TRACE.names).cast(TRACE)


def _words(codes: Column, words: Sequence[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(words))


def _take(rows: _Rows, which: npt.NDArray[np.generic]) -> _Rows:
    return {name: column[which] for name, column in rows.items()}


def _pairs(rows: _Rows) -> tuple[Column, Column]:
    """Indices of each request's issue and completion, in rows by disk, sector and time.

    A completion belongs to the last issue before it; simultaneous requests of one sector are nested.
    """
    begun, done = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    left = np.arange(len(rows["at_ns"]))
    while True:
        before, after = left[:-1], left[1:]
        is_pair = (rows["is_issue"][before] == 1) & (rows["is_issue"][after] == 0)
        for name in ("dev", "sector"):
            is_pair &= rows[name][before] == rows[name][after]
        if not is_pair.any():
            return np.concatenate(begun), np.concatenate(done)
        begun.append(before[is_pair])
        done.append(after[is_pair])
        gone = np.zeros(len(left), bool)
        gone[:-1] |= is_pair
        gone[1:] |= is_pair
        left = left[~gone]
