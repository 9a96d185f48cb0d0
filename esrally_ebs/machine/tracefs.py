"""The kernel's tracefs: an instance with tracepoints, a filter and a buffer, removed after use.

An instance has a buffer and switches apart from all others, so nothing is seen of, or done to, whatever else
is traced on the machine.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from esrally_ebs.errors import FormatError, SetupError
from esrally_ebs.machine.mounts import mounts
from esrally_ebs.machine.processes import is_root
from esrally_ebs.units import MIB

Column = npt.NDArray[np.int64]
_HEAD_WORDS = 4  # of a page, 32 bits each: its time, then its length and flags
_USED = (1 << 20) - 1  # of the length; what is above says that events were lost
_PADDING, _TIME_EXTEND, _TIME_STAMP = 29, 30, 31
_DELTA_BITS, _TYPE_BITS = 27, 5
_FIELD = re.compile(r"field:(?P<name>[^;]+);\s*offset:(?P<offset>\d+);\s*size:(?P<size>\d+);")

MOUNT_IT = "mount -t tracefs nodev /sys/kernel/tracing"
REQUEST_EVENTS = ("block/block_rq_issue", "block/block_rq_complete")
THREAD_EVENTS = ("sched/sched_switch", "sched/sched_waking", "sched/sched_process_fork")
_LOST = re.compile(r"^(?:overrun|dropped events): (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class EventFormat:
    """One kind of event, as ``events/.../format`` describes it."""

    id: int
    fields: Mapping[str, tuple[int, int]]  # offset and size in bytes, by name


def parse_format(text: str) -> EventFormat:
    """Raises FormatError for text of another form."""
    number = re.search(r"^ID: (\d+)$", text, re.MULTILINE)
    fields = {
        match["name"].split("[")[0].split()[-1]: (int(match["offset"]), int(match["size"]))
        for match in _FIELD.finditer(text)
    }
    if number is None or not fields:
        raise FormatError("a tracepoint's format is not as this release knows it; report it with 'uname -r'")
    return EventFormat(int(number[1]), fields)


@dataclass(frozen=True, slots=True)
class TracedEvents:
    """Events of some pages, in the order of no clock: what ``columns`` gives is in the same order."""

    at_ns: Column  # by the clock of the buffer
    _data: Column  # byte at which each one's data begin
    _pages: npt.NDArray[np.uint8]  # all of them, one after the other

    def number(self, offset: int, size: int) -> Column:
        """The unsigned number at this place of each event."""
        value = np.zeros(len(self._data), np.int64)
        for byte in range(size):
            value |= self._pages[self._data + offset + byte].astype(np.int64) << (8 * byte)
        return value

    def of(self, kind: EventFormat) -> "TracedEvents":
        mine = self.number(*kind.fields["common_type"]) == kind.id
        return TracedEvents(self.at_ns[mine], self._data[mine], self._pages)


def events_of(pages: bytes, page_bytes: int) -> TracedEvents:
    """The events of whole pages.

    A page has its time, how many bytes of it are used, and then events: each has a head of four bytes (5 bits
    of type or length, 27 of the nanoseconds since the event before) and its data. Where an event begins
    follows from the one before it, but pages do not depend on one another: the first events of all pages are
    taken at once, then the second ones, and so on.
    """
    words = np.frombuffer(pages, "<u4").reshape(-1, page_bytes // 4)
    rows = np.arange(len(words))
    now_ns = words[:, 0].astype(np.int64) | words[:, 1].astype(np.int64) << 32
    end = np.minimum(_HEAD_WORDS + (words[:, 2] & _USED).astype(np.int64) // 4, words.shape[1])
    place = np.full(len(words), _HEAD_WORDS)
    times: list[Column] = []
    data: list[Column] = []
    while len(rows := rows[place[rows] + 1 < end[rows]]):
        head, next_word = words[rows, place[rows]], words[rows, place[rows] + 1].astype(np.int64)
        kind = (head & ((1 << _TYPE_BITS) - 1)).astype(np.int64)
        delta_ns = (head >> _TYPE_BITS).astype(np.int64)
        long_ns = delta_ns + (next_word << _DELTA_BITS)
        now_ns[rows] += np.where(kind == _TIME_EXTEND, long_ns, np.where(kind >= _PADDING, 0, delta_ns))
        now_ns[rows] = np.where(kind == _TIME_STAMP, long_ns, now_ns[rows])
        is_event = kind < _PADDING
        begin = place[rows] + np.where(kind == 0, 2, 1)
        times.append(now_ns[rows][is_event])
        data.append((rows * words.shape[1] + begin)[is_event] * 4)
        # the length is in the head, or, of long events and padding, in the word after it
        by_word = np.maximum(next_word // 4, 1)
        length = np.where((kind == 0) | (kind == _PADDING), by_word, np.where(is_event, kind, 1))
        place[rows] += np.where((kind == _PADDING) & (delta_ns == 0), words.shape[1], 1 + length)
    none = np.zeros(0, np.int64)
    whole = np.frombuffer(pages, np.uint8)
    return TracedEvents(np.concatenate([none, *times]), np.concatenate([none, *data]), whole)


def tracefs() -> Path | None:
    """Where tracefs is mounted; None where it is not."""
    return next((mount.mount_point for mount in mounts() if mount.filesystem == "tracefs"), None)


def missing_for_tracing(root: Path | None) -> str:
    """Why requests of disks cannot be traced and what to do, in one line; empty when they can be."""
    if root is None:
        return f"tracefs is not mounted; run {MOUNT_IT}, as root"
    if not os.access(root / "instances", os.W_OK):
        return f"{root}: may not be used; run it as root, outside of containers"
    gone = [name for name in REQUEST_EVENTS if not (root / "events" / name).is_dir()]
    return (
        f"this kernel has no tracepoint {gone[0]}; it needs one with CONFIG_BLK_DEV_IO_TRACE" if gone else ""
    )


def has_thread_events(root: Path | None) -> bool:
    """Whether the kernel says when threads begin, fall asleep and are woken."""
    return root is not None and all((root / "events" / name).is_dir() for name in THREAD_EVENTS)


def require_tracing() -> Path:
    """Where tracefs is. Raises SetupError, with what to do, where requests of disks cannot be traced."""
    root = tracefs()
    problem = missing_for_tracing(root)
    if root is None or problem:
        raise SetupError(f"tracing: {problem}")
    return root


@dataclass(frozen=True, slots=True)
class TracingInstance:
    """``instances/NAME`` of tracefs."""

    path: Path

    @classmethod
    def create(
        cls, name: str, events: Mapping[str, str], *, buffer_bytes: int, threads: Sequence[int] = ()
    ) -> "TracingInstance":
        """Trace events from now on, each with its filter; the size of the buffer is in bytes per processor.

        With ``threads``: of these and of those that they start, alone. Filters may be empty. Times
        are of CLOCK_MONOTONIC. Raises SetupError, and leaves nothing, where the machine cannot.
        """
        instance = cls(require_tracing() / "instances" / name)
        try:
            instance.path.mkdir()
            instance._write("trace_clock", "mono")
            instance._write("buffer_size_kb", str(max(1, buffer_bytes // 1024)))
            if threads:
                instance._write("options/event-fork", "1")
                instance._write("set_event_pid", " ".join(map(str, threads)))
            for event, chosen in events.items():
                instance._write(f"events/{event}/filter", chosen or "0")  # 0: none
            for event in events:
                instance._write(f"events/{event}/enable", "1")
        except OSError as error:
            instance.remove()
            raise SetupError(
                f"{error.filename or instance.path}: {error.strerror}; a trace needs"
                f" {buffer_bytes // MIB} MiB of memory a processor, and a kernel that is not locked down"
            ) from error
        return instance

    def _write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text)

    def format(self, event: str) -> EventFormat:
        """The fields of an event's data."""
        return parse_format((self.path / "events" / event / "format").read_text())

    @property
    def page_bytes(self) -> int:
        """Of the buffer; what it is read by."""
        with suppress(OSError):  # kernels before 6.8 have pages alone
            return int((self.path / "buffer_subbuf_size_kb").read_text()) * 1024
        return os.sysconf("SC_PAGESIZE")

    def lost(self) -> int:
        """Events that the buffer had no room for so far."""
        stats = (path.read_text() for path in self.path.glob("per_cpu/cpu*/stats"))
        return sum(int(count) for text in stats for count in _LOST.findall(text))

    def stop(self) -> None:
        """Trace nothing more; what is in the buffer stays there."""
        self._write("tracing_on", "0")

    def remove(self) -> None:
        with suppress(FileNotFoundError):
            self.path.rmdir()


def remove_instance(name: str) -> None:
    """Remove an instance of this name, if there is one. Raises SetupError while somebody else reads it."""
    root = tracefs()
    if root is None:
        return
    try:
        TracingInstance(root / "instances" / name).remove()
    except OSError as error:
        if isinstance(error, PermissionError) and not is_root():
            return  # such a user has made none
        raise SetupError(
            f"{error.filename}: {error.strerror}; end what reads it, and run 'esrally-ebs clean' again"
        ) from error


@dataclass(frozen=True, slots=True)
class BufferReader:
    """Takes what is in an instance's buffer, a processor's after the other's."""

    descriptors: Sequence[int]
    page_bytes: int

    @classmethod
    def open(cls, instance: TracingInstance) -> "BufferReader":
        """Of all processors."""
        paths = sorted(instance.path.glob("per_cpu/cpu*/trace_pipe_raw"))
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        return cls([os.open(path, flags) for path in paths], instance.page_bytes)

    def pages(self) -> Iterator[bytes]:
        """Each page that is there now; also one that is still written to, as far as it is."""
        for descriptor in self.descriptors:
            with suppress(BlockingIOError):
                while page := os.read(descriptor, self.page_bytes):
                    yield page.ljust(self.page_bytes, b"\0")

    def close(self) -> None:
        """An instance can only be removed when nobody reads it."""
        for descriptor in self.descriptors:
            os.close(descriptor)
