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

from esrally_ebs.errors import SetupError
from esrally_ebs.machine.mounts import mounts
from esrally_ebs.machine.processes import is_root
from esrally_ebs.machine.ring_buffer import EventFormat, parse_format

MOUNT_IT = "mount -t tracefs nodev /sys/kernel/tracing"
REQUEST_EVENTS = ("block/block_rq_issue", "block/block_rq_complete")
THREAD_EVENTS = ("sched/sched_switch", "sched/sched_waking")
_LOST = re.compile(r"^(?:overrun|dropped events): (\d+)$", re.MULTILINE)


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
    """Whether the kernel says when threads fall asleep and are woken."""
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
                f"{error.filename or instance.path}: {error.strerror}; is another trace of this name running?"
                " 'esrally-ebs clean' removes what a killed one left"
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

    def threads(self) -> list[int]:
        """Those that are traced now, where not all are."""
        return [int(word) for word in (self.path / "set_event_pid").read_text().split() if word.isdigit()]

    def lost(self) -> int:
        """Events that the buffer had no room for so far."""
        stats = (path.read_text() for path in self.path.glob("per_cpu/cpu*/stats"))
        return sum(int(count) for text in stats for count in _LOST.findall(text))

    def stop(self) -> None:
        """Trace nothing more; what is in the buffer stays there."""
        self._write("tracing_on", "0")

    def remove(self) -> None:
        """Remove it, if it is there."""
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
