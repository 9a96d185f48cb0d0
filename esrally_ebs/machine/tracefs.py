"""The kernel's tracefs: an instance with tracepoints, filters and a buffer, removed after use.

An instance's buffer and switches are separate: it neither sees nor affects other tracing on the machine.
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
_HEAD_WORDS = 4  # of a page, 32 bits each: time, then length and flags
_USED = (1 << 20) - 1  # of the length; bits above it say that events were lost
_PADDING, _TIME_EXTEND, _TIME_STAMP = 29, 30, 31
_DELTA_BITS, _TYPE_BITS = 27, 5
_FIELD = re.compile(r"field:(?P<name>[^;]+);\s*offset:(?P<offset>\d+);\s*size:(?P<size>\d+);")

MOUNT_IT = "mount -t tracefs nodev /sys/kernel/tracing"
REQUEST_EVENTS = ("block/block_rq_issue", "block/block_rq_complete")
THREAD_EVENTS = ("sched/sched_switch", "sched/sched_waking", "sched/sched_process_fork")
_LOST = re.compile(r"^(?:overrun|dropped events): (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class EventFormat:
    """One kind of event, from its ``events/.../format``."""

    id: int
    fields: Mapping[str, tuple[int, int]]  # offset and size in bytes, by name


def parse_format(text: str) -> EventFormat:
    """Parse a format. Raises FormatError for other text."""
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
    """Events of some pages, not ordered by time; ``columns`` has the same order."""

    at_ns: Column  # by the clock of the buffer
    _data: Column  # offset of each event's data
    _pages: npt.NDArray[np.uint8]  # all pages, one after another

    def number(self, offset: int, size: int) -> Column:
        """The unsigned number at this place in each event."""
        value = np.zeros(len(self._data), np.int64)
        for byte in range(size):
            value |= self._pages[self._data + offset + byte].astype(np.int64) << (8 * byte)
        return value

    def of(self, kind: EventFormat) -> "TracedEvents":
        mine = self.number(*kind.fields["common_type"]) == kind.id
        return TracedEvents(self.at_ns[mine], self._data[mine], self._pages)


def events_of(pages: bytes, page_bytes: int) -> TracedEvents:
    """Events of whole pages.

    A page has its time, the number of bytes in use, and events: each has a head of four bytes (5 bits of type
    or length, 27 of nanoseconds since the event before) and its data. An event's place depends on the one
    before it, but pages are independent: so the first events of all pages are parsed at once, then the second
    ones, and so on.
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
        # the length is in the head; for long events and padding, in the word after it
        by_word = np.maximum(next_word // 4, 1)
        length = np.where((kind == 0) | (kind == _PADDING), by_word, np.where(is_event, kind, 1))
        place[rows] += np.where((kind == _PADDING) & (delta_ns == 0), words.shape[1], 1 + length)
    none = np.zeros(0, np.int64)
    whole = np.frombuffer(pages, np.uint8)
    return TracedEvents(np.concatenate([none, *times]), np.concatenate([none, *data]), whole)


def tracefs() -> Path | None:
    """Where tracefs is mounted; None if it is not."""
    return next((mount.mount_point for mount in mounts() if mount.filesystem == "tracefs"), None)


def missing_for_tracing(root: Path | None) -> str:
    """Why disk requests cannot be traced, and what to do, in one line; "" if they can."""
    if root is None:
        return f"tracefs is not mounted; run {MOUNT_IT}, as root"
    if not os.access(root / "instances", os.W_OK):
        return f"{root}: may not be used; run it as root, outside of containers"
    gone = [name for name in REQUEST_EVENTS if not (root / "events" / name).is_dir()]
    return (
        f"this kernel has no tracepoint {gone[0]}; it needs one with CONFIG_BLK_DEV_IO_TRACE" if gone else ""
    )


def has_thread_events(root: Path | None) -> bool:
    """Whether the kernel reports when threads start, fall asleep and are woken."""
    return root is not None and all((root / "events" / name).is_dir() for name in THREAD_EVENTS)


def require_tracing() -> Path:
    """Where tracefs is. Raises SetupError, with the next step, if disk requests cannot be traced."""
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
        """Start tracing events, each with its filter; the buffer's size is in bytes per processor.

        With ``threads``, only of these and of threads that they start. Filters may be empty. Times are of
        CLOCK_MONOTONIC. Raises SetupError, leaving nothing, if the machine cannot.
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
                instance._write(f"events/{event}/filter", chosen or "0")  # 0: no filter
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
        """Fields of an event's data."""
        return parse_format((self.path / "events" / event / "format").read_text())

    @property
    def page_bytes(self) -> int:
        """Size of the buffer's pages, the unit of reading."""
        with suppress(OSError):  # kernels before 6.8 always use pages of memory
            return int((self.path / "buffer_subbuf_size_kb").read_text()) * 1024
        return os.sysconf("SC_PAGESIZE")

    def lost(self) -> int:
        """Events lost so far for want of room in the buffer."""
        stats = (path.read_text() for path in self.path.glob("per_cpu/cpu*/stats"))
        return sum(int(count) for text in stats for count in _LOST.findall(text))

    def stop(self) -> None:
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
            return  # without access, this user has made none
        raise SetupError(
            f"{error.filename}: {error.strerror}; end what reads it, and run 'esrally-ebs clean' again"
        ) from error


@dataclass(frozen=True, slots=True)
class BufferReader:
    """Reads an instance's buffer, one processor after another."""

    descriptors: Sequence[int]
    page_bytes: int

    @classmethod
    def open(cls, instance: TracingInstance) -> "BufferReader":
        paths = sorted(instance.path.glob("per_cpu/cpu*/trace_pipe_raw"))
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        return cls([os.open(path, flags) for path in paths], instance.page_bytes)

    def pages(self) -> Iterator[bytes]:
        """Pages available now, including the filled part of one still being written."""
        for descriptor in self.descriptors:
            with suppress(BlockingIOError):
                while page := os.read(descriptor, self.page_bytes):
                    yield page.ljust(self.page_bytes, b"\0")

    def close(self) -> None:
        """Close: an instance can only be removed when nobody reads it."""
        for descriptor in self.descriptors:
            os.close(descriptor)
