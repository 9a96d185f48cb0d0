"""The event loop of one emulated volume: takes FUSE requests, and replies when they are due.

One thread. It moves a write's data when it takes the request, and a read's data when the reply is due: so no
read is torn, and a read sees every write that arrived before it. Only replies wait, in a heap, so all
requests are in flight at once. Every acknowledged write is in the backing file; nothing is synced to the
file's disk, as a volume does not outlive the machine.
"""

import contextlib
import ctypes
import errno
import heapq
import mmap
import os
import select
import signal
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from esrally_ebs.volumes.emulated.control import TRACE_NAME, ControlPoint
from esrally_ebs.volumes.emulated.daemon import fuse
from esrally_ebs.volumes.emulated.daemon.admission import Admission
from esrally_ebs.volumes.emulated.daemon.trace import TraceRing

_libc = ctypes.CDLL(None, use_errno=True)

_BATCH = 64  # requests taken before checking for due replies
_AWAKE_S = 1.0  # after the last request, how long processors are kept awake
_SOON_S = 5e-6  # a reply due this soon is sent now: checking the clock again takes as long
# Waking up takes a sleeper 10 to 40 us, more on an idle machine than on a busy one. So this thread wakes up
# so much earlier that nine times in ten it is in time, and then watches the clock: the time of a reply no
# longer depends on what else runs. With more in flight it hardly sleeps, and watching would cost too much.
MAX_SPINNING_IN_FLIGHT = 4
_LEAD_STEP_S = 2e-6
MAX_LEAD_S = 100e-6
_LATE_SHARE = 0.1
# While the limiters' debt is longer than this, requests wait in the kernel for this long and are then taken
# together, which saves a wake-up each. They are due at the same time either way: with debt left, an I/O that
# is taken later has that much less of it to wait for.
_REST_S = 250e-6
_READ, _WRITE = int(fuse.Opcode.READ), int(fuse.Opcode.WRITE)
_TRANSFERS = (_READ, _WRITE)
_FOREVER = float("inf")

# due, order, unique, offset, size, write, errno; for the trace: arrival, limited_s, path_s
_Reply = tuple[float, int, int, int, int, bool, int, float, float, float]


class Channel:
    """Moves a volume's data between a FUSE connection and a backing file (both are file descriptors).

    By pread and pwrite, not a mapping: a full backing store is an error in the reply, never SIGBUS. Each
    request needs as few system calls and copies as possible: one to receive it, one for its data, one to
    answer it.
    """

    def __init__(self, backing: int, device: int) -> None:
        """Takes over the buffers, not the descriptors."""
        self.device = device
        self.size = os.fstat(backing).st_size
        self.errors = 0  # I/Os that the backing file refused
        self._backing = backing
        self.request = _buffer(fuse.WRITE_DATA_AT, fuse.REQUEST_BYTES)
        self._into_request = (self.request,)
        self._reply = _buffer(fuse.REPLY.size, fuse.REPLY.size + fuse.MAX_IO_BYTES)

    def receive(self) -> bool | None:
        """Read one request into ``request``; False if none waits, None if it has been withdrawn.

        Raises OSError (ENODEV) once the file is unmounted.
        """
        try:
            os.readv(self.device, self._into_request)
        except BlockingIOError:
            return False
        except FileNotFoundError:
            return None
        return True

    def store(self, offset: int, size: int) -> int:
        """Write the request's data to the backing file; returns 0 or an errno."""
        done = 0
        try:
            while done < size:
                data = self.request[fuse.WRITE_DATA_AT + done : fuse.WRITE_DATA_AT + size]
                done += os.pwrite(self._backing, data, offset + done)
        except OSError as error:
            self.errors += 1
            return error.errno or errno.EIO
        return 0

    def answer_read(self, unique: int, offset: int, size: int) -> None:
        """Reply with the file's current bytes."""
        head = fuse.REPLY.size
        try:
            length = os.preadv(self._backing, (self._reply[head : head + size],), offset)
        except OSError as error:
            self.errors += 1
            self.send(fuse.reply(unique, error=error.errno or errno.EIO))
            return
        fuse.REPLY.pack_into(self._reply, 0, head + length, 0, unique)
        self.send(self._reply[: head + length])

    def answer_write(self, unique: int, size: int, error: int) -> None:
        """Reply that ``size`` bytes were written, or with a positive errno."""
        if error:
            self.send(fuse.reply(unique, error=error))
        else:
            self.send(fuse.WRITTEN.pack(fuse.WRITTEN.size, 0, unique, size, 0))

    def send(self, message: bytes | memoryview) -> None:
        """Write a whole reply; does nothing if its request has been withdrawn."""
        try:
            os.write(self.device, message)
        except FileNotFoundError:
            return

    def punch(self) -> int:
        """Discard or zero a range; both make a hole in the backing file. Returns 0 or an errno."""
        offset, length, mode = fuse.fallocate_fields(self.request)
        if not mode & (fuse.FALLOC_PUNCH_HOLE | fuse.FALLOC_ZERO_RANGE):
            return errno.EOPNOTSUPP
        hole = fuse.FALLOC_PUNCH_HOLE | fuse.FALLOC_KEEP_SIZE
        at, many = ctypes.c_int64(offset), ctypes.c_int64(length)
        return ctypes.get_errno() if _libc.fallocate(self._backing, hole, at, many) else 0


def _buffer(head: int, size: int) -> memoryview:
    """A buffer of ``size`` bytes of data, page-aligned after ``head`` bytes: else copies take two parts."""
    start = -head % mmap.PAGESIZE
    return memoryview(mmap.mmap(-1, start + size))[start:]


class Wakefulness:
    """Keeps the processors out of sleep states while there is I/O.

    Waking a sleeping (virtual) processor takes 20 to 50 us, several times per I/O, but nothing if other work
    keeps it awake: a volume's latency would depend on what else runs. The kernel drops the request when this
    process ends. Source: Documentation/power/pm_qos_interface.
    """

    _DEVICE = Path("/dev/cpu_dma_latency")

    def __init__(self) -> None:
        """Not open yet; stays closed if the kernel has no such device."""
        self.descriptor: int | None = None

    def hold(self) -> None:
        """Ask for a wake-up latency of 0 us."""
        with contextlib.suppress(OSError):
            self.descriptor = os.open(self._DEVICE, os.O_WRONLY | os.O_CLOEXEC)
            os.write(self.descriptor, (0).to_bytes(4, "little"))

    def drop(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


class Server:
    """One volume: its channel, its limiter, the requests in flight."""

    def __init__(self, admission: Admission, backing: int, device: int) -> None:
        """Serve ``backing`` on the FUSE connection ``device`` (both file descriptors); unlimited at first."""
        self._channel = Channel(backing, device)
        self._admission = admission
        self._pending: list[_Reply] = []
        self._order = 0
        self._trace: TraceRing | None = None
        self._resting_until = 0.0  # no requests are taken before then; 0.0: as they come
        self._lead_s = 40e-6
        self._stopping = False
        self._control = ControlPoint(self._answer_control)
        self._wakefulness = Wakefulness()
        self._wakeup, self._signalled = socket.socketpair()

    def serve(self) -> None:
        """Run until SIGTERM, or until the file is unmounted."""
        self._watch_signals()
        device = self._channel.device
        others = self._others()
        while not self._stopping:
            due = self._release(time.monotonic())
            if self._resting_until:
                readers, wake_at = others, min(due, self._resting_until)
            else:
                readers, wake_at = [device, *others], due
            ready = self._sleep(readers, wake_at)
            if device in ready or 0.0 < self._resting_until <= time.monotonic():
                self._take_requests()
            if len(ready) > (device in ready):
                self._attend(ready)
                others = self._others()
            elif not ready and wake_at == _FOREVER:
                self._wakefulness.drop()
        self._release(_FOREVER)

    def _sleep(self, readers: list[int], wake_at: float) -> list[int]:
        """Sleep until a reader is ready, or it is time to watch the clock; returns the ready readers."""
        if wake_at == _FOREVER:
            timeout = None if self._wakefulness.descriptor is None else _AWAKE_S
            return select.select(readers, (), (), timeout)[0]
        lead_s = (
            self._lead_s if len(self._pending) <= MAX_SPINNING_IN_FLIGHT and not self._resting_until else 0.0
        )
        seconds = wake_at - lead_s - time.monotonic()
        if seconds <= 0.0:
            return select.select(readers, (), (), 0.0)[0]
        ready = select.select(readers, (), (), seconds)[0]
        if lead_s and not ready:
            self._learn_lead(time.monotonic() - wake_at)
        return ready

    def _learn_lead(self, late_s: float) -> None:
        """Adjust the lead so that ``_LATE_SHARE`` of the replies are late."""
        step_s = _LEAD_STEP_S * ((1.0 - _LATE_SHARE) if late_s > 0.0 else -_LATE_SHARE)
        self._lead_s = min(MAX_LEAD_S, max(0.0, self._lead_s + step_s))

    def _others(self) -> list[int]:
        """Descriptors to wait for besides the device."""
        return [self._wakeup.fileno(), *self._control.descriptors()]

    def _attend(self, ready: list[int]) -> None:
        for descriptor in ready:
            if descriptor == self._wakeup.fileno():
                self._stopping = True
            elif descriptor != self._channel.device:
                self._control.handle(descriptor)

    def _watch_signals(self) -> None:
        # A handler alone would not end select (PEP 475); the byte that Python writes here does.
        self._wakeup.setblocking(False)
        self._signalled.setblocking(False)
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.set_wakeup_fd(self._signalled.fileno())

    def _release(self, now: float) -> float:
        """Answer everything due; returns when the next reply is."""
        pending = self._pending
        while pending:
            due, _, unique, offset, size, write, error, came_s, limited_s, path_s = pending[0]
            if due > now + _SOON_S:
                return due
            heapq.heappop(pending)
            self._answer(unique, offset, size, write, error)
            if now != _FOREVER:
                now = time.monotonic()
            if self._trace is not None:
                self._trace.add(came_s, max(came_s, due), limited_s, path_s, offset, size, write)
        return _FOREVER

    def _answer(self, unique: int, offset: int, size: int, write: bool, error: int) -> None:
        if write:
            self._channel.answer_write(unique, size, error)
        else:
            self._channel.answer_read(unique, offset, size)

    def _take_requests(self) -> None:
        """Take waiting requests, until a reply is due."""
        self._resting_until = 0.0
        channel, pending = self._channel, self._pending
        for _ in range(_BATCH):
            try:
                received = channel.receive()
            except OSError:  # ENODEV: unmounted
                self._stopping = True
                return
            if received is None:
                continue
            if not received:
                return
            opcode, unique, offset, size = fuse.REQUEST.unpack_from(channel.request)
            if opcode in _TRANSFERS:
                now = self._accept(opcode == _WRITE, unique, offset, size)
            else:
                self._answer_other(opcode, unique)
                now = time.monotonic()
            if pending and pending[0][0] <= now:
                return

    def _accept(self, write: bool, unique: int, offset: int, size: int) -> float:
        """Take one READ or WRITE: store its data, schedule and hold its reply; returns when it arrived."""
        now = time.monotonic()
        admission = self._admission
        admission.count(size, write=write)
        error = self._channel.store(offset, size) if write else 0
        if admission.unlimited:
            self._answer(unique, offset, size, write, error)
            return now
        if self._wakefulness.descriptor is None:
            self._wakefulness.hold()
        limited_s, due, path_s = admission.schedule(
            offset, size, now, write=write, in_flight=len(self._pending)
        )
        if limited_s > _REST_S:
            self._resting_until = now + _REST_S
        self._order += 1
        reply = (due, self._order, unique, offset, size, write, error, now, limited_s, path_s)
        heapq.heappush(self._pending, reply)
        return now

    def _answer_other(self, opcode: int, unique: int) -> None:
        match opcode:
            case fuse.Opcode.INIT:
                self._channel.send(fuse.reply(unique, fuse.init_payload(self._channel.request)))
            case fuse.Opcode.GETATTR | fuse.Opcode.SETATTR:
                self._channel.send(fuse.reply(unique, fuse.attributes_payload(self._channel.size)))
            case fuse.Opcode.OPEN:
                self._channel.send(fuse.reply(unique, fuse.open_payload()))
            case fuse.Opcode.STATFS:
                self._channel.send(fuse.reply(unique, fuse.statfs_payload(self._channel.size)))
            case fuse.Opcode.FALLOCATE:
                self._channel.send(fuse.reply(unique, error=self._channel.punch()))
            case _:
                self._answer_plain(opcode, unique)

    def _answer_plain(self, opcode: int, unique: int) -> None:
        """Answer requests without fields; some get no answer."""
        match opcode:
            case fuse.Opcode.FORGET | fuse.Opcode.BATCH_FORGET:
                pass
            case fuse.Opcode.INTERRUPT:
                self._hasten(fuse.interrupted(self._channel.request))
            # All answered writes are in the backing file already.
            case fuse.Opcode.FSYNC | fuse.Opcode.FLUSH | fuse.Opcode.RELEASE | fuse.Opcode.ACCESS:
                self._channel.send(fuse.reply(unique))
            case fuse.Opcode.DESTROY:
                self._channel.send(fuse.reply(unique))
                self._stopping = True
            case _:  # the kernel handles the error
                self._channel.send(fuse.reply(unique, error=errno.ENOSYS))

    def _hasten(self, unique: int) -> None:
        """The caller was interrupted: answer its request at once, as its I/O is done anyway."""
        for index, pending in enumerate(self._pending):
            if pending[2] == unique:
                self._pending[index] = (0.0, *pending[1:])
                heapq.heapify(self._pending)
                return

    def _answer_control(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        settings = {key: value for key, value in request.items() if key not in ("command", "trace")}
        now = time.monotonic()
        match request.get("command"):
            case "set":
                if "trace" in request:
                    self._trace = TraceRing() if request["trace"] else None
                self._admission.change(settings, now)
                if self._admission.unlimited:
                    self._release(_FOREVER)
            case "state":
                pass
            case "save trace":
                self._save_trace()
            case unknown:
                raise ValueError(f"no command {unknown!r}; there are state, set and save trace")
        state = self._admission.state(now, in_flight=len(self._pending), errors=self._channel.errors)
        return state.to_json()

    def _save_trace(self) -> None:
        if self._trace is None:
            raise ValueError("no trace is kept; set trace first")
        try:
            self._trace.save(Path(TRACE_NAME))
        except OSError as error:
            raise ValueError(f"the trace cannot be written: {error.strerror}") from error
