"""One emulated volume at work: FUSE requests in, replies out when they are due.

One thread. A request's data are moved when it arrives (writes) or is due (reads), so no read is ever torn
and a read sees every write that arrived before it; only the replies wait, in a heap, so all requests are in
flight at once. Every acknowledged write is in the backing file; nothing is synced to its disk, as a volume
does not outlive the machine. Data go through pread and pwrite, not a mapping: a full backing store is an
error in the reply, never SIGBUS.
"""

import ctypes
import errno
import heapq
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from esrally_ebs.emulator import fuse
from esrally_ebs.emulator.catalog import Model
from esrally_ebs.emulator.control import ControlPoint, LimiterState
from esrally_ebs.emulator.latency import Latency
from esrally_ebs.emulator.limits import CREDITS, Limiter
from esrally_ebs.emulator.wakefulness import Wakefulness

_BATCH = 64  # requests taken before held replies are looked at again
_AWAKE_S = 1.0  # how long after the last request the processors are kept from sleeping
_READ, _WRITE = int(fuse.Opcode.READ), int(fuse.Opcode.WRITE)
_TRANSFERS = (_READ, _WRITE)
_FOREVER = float("inf")
_libc = ctypes.CDLL(None, use_errno=True)

_Held = tuple[float, int, int, int, int, bool, int]  # due, order, unique, offset, size, write, errno


class Server:
    """One volume: its backing file, its limiter, the requests in flight."""

    def __init__(self, settings: Mapping[str, Any], backing: int, device: int) -> None:
        """Serve ``backing`` on the FUSE connection ``device`` (both file descriptors); starts unlimited."""
        model = Model.from_json(settings["model"])
        now = time.monotonic()
        self._backing = backing
        self._device = device
        self._size = os.fstat(backing).st_size
        self._limiter = Limiter(model.limits, model.accounting, now)
        self._limiter.set_credits(settings["credits"], now)
        self._latency = Latency(model.read, model.write, settings["seed"])
        self._buffer = bytearray(fuse.REQUEST_BYTES)
        self._view = memoryview(self._buffer)
        self._held: list[_Held] = []
        self._order = 0
        self._counts = [0, 0]  # reads, writes
        self._bytes = [0, 0]
        self._errors = 0
        self._unlimited = True
        self._fixed_s: float | None = None
        self._overhead_s = [0.0, 0.0]  # of reads, of writes: what kernel and wake-ups add by themselves
        self._stopping = False
        self._control = ControlPoint(self._answer_control)
        self._wakefulness = Wakefulness()
        self._wakeup, self._signalled = socket.socketpair()

    def serve(self) -> None:
        """Until SIGTERM or until the file is unmounted."""
        self._watch_signals()
        device = self._device
        readers = self._readers()
        while not self._stopping:
            wait_s = self._release(time.monotonic())
            if wait_s is None and self._wakefulness.descriptor is not None:
                wait_s = _AWAKE_S
            ready = select.select(readers, (), (), wait_s)[0]
            if device in ready:
                self._take_requests()
            if len(ready) > (device in ready):
                self._attend(ready)
                readers = self._readers()
            elif not ready and not self._held:
                self._wakefulness.drop()
        self._release(_FOREVER)

    def _readers(self) -> list[int]:
        return [self._device, self._wakeup.fileno(), *self._control.descriptors()]

    def _attend(self, ready: list[int]) -> None:
        """Everything but I/O."""
        for descriptor in ready:
            if descriptor == self._wakeup.fileno():
                self._stopping = True
            elif descriptor != self._device:
                self._control.handle(descriptor)

    def _watch_signals(self) -> None:
        # A handler alone would not end select (PEP 475); the byte that Python writes here does.
        self._wakeup.setblocking(False)
        self._signalled.setblocking(False)
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.set_wakeup_fd(self._signalled.fileno())

    def _release(self, now: float) -> float | None:
        """Answer all that is due; seconds until the next is, None when nothing is held."""
        held = self._held
        while held and held[0][0] <= now:
            _, _, unique, offset, size, write, error = heapq.heappop(held)
            self._answer(unique, offset, size, write, error)
            if now != _FOREVER:
                now = time.monotonic()
        return max(0.0, held[0][0] - now) if held else None

    def _take_requests(self) -> None:
        buffers = (self._buffer,)
        for _ in range(_BATCH):
            try:
                os.readv(self._device, buffers)
            except BlockingIOError:
                return
            except FileNotFoundError:  # the request was withdrawn while we read it
                continue
            except OSError:  # ENODEV: unmounted
                self._stopping = True
                return
            _, opcode, unique, *_ = fuse.REQUEST.unpack_from(self._buffer)
            if opcode in _TRANSFERS:
                self._admit(opcode == _WRITE, unique)
            else:
                self._answer_other(opcode, unique)
            if self._held and self._held[0][0] <= time.monotonic():
                return

    def _admit(self, write: bool, unique: int) -> None:
        """Take one READ or WRITE: store its data, decide when it is due, hold it."""
        now = time.monotonic()
        if self._wakefulness.descriptor is None and not self._unlimited:
            self._wakefulness.hold()
        _, offset, size, _ = fuse.TRANSFER.unpack_from(self._buffer, fuse.HEADER_BYTES)
        self._counts[write] += 1
        self._bytes[write] += size
        error = self._store(offset, size) if write else 0
        if self._unlimited:
            self._answer(unique, offset, size, write, error)
            return
        if self._fixed_s is None:
            wait = self._limiter.admit(offset, size, now) + self._latency.seconds(size, write=write)
        else:
            wait = self._fixed_s
        self._order += 1
        due = now + wait - self._overhead_s[write]
        heapq.heappush(self._held, (due, self._order, unique, offset, size, write, error))

    def _store(self, offset: int, size: int) -> int:
        """Write the request's data to the backing file; 0 or the errno of what went wrong."""
        done = 0
        try:
            while done < size:
                data = self._view[fuse.WRITE_DATA_AT + done : fuse.WRITE_DATA_AT + size]
                done += os.pwrite(self._backing, data, offset + done)
        except OSError as error:
            self._errors += 1
            return error.errno or errno.EIO
        return 0

    def _answer(self, unique: int, offset: int, size: int, write: bool, error: int) -> None:
        if error:
            self._send(fuse.reply(unique, error=error))
        elif write:
            self._send(fuse.WRITTEN.pack(fuse.WRITTEN.size, 0, unique, size, 0))
        else:
            self._answer_read(unique, offset, size)

    def _answer_read(self, unique: int, offset: int, size: int) -> None:
        data = self._view[:size]
        try:
            got = os.preadv(self._backing, (data,), offset)
        except OSError as error:
            self._errors += 1
            self._send(fuse.reply(unique, error=error.errno or errno.EIO))
            return
        header = fuse.REPLY.pack(fuse.REPLY.size + got, 0, unique)
        try:
            os.writev(self._device, (header, data[:got]))
        except FileNotFoundError:  # the request was withdrawn meanwhile
            return

    def _send(self, message: bytes) -> None:
        try:
            os.write(self._device, message)
        except FileNotFoundError:  # the request was withdrawn meanwhile
            return

    def _answer_other(self, opcode: int, unique: int) -> None:
        match opcode:
            case fuse.Opcode.INIT:
                self._send(fuse.reply(unique, fuse.init_payload(self._buffer)))
            case fuse.Opcode.GETATTR | fuse.Opcode.SETATTR:
                self._send(fuse.reply(unique, fuse.attributes_payload(self._size)))
            case fuse.Opcode.OPEN:
                self._send(fuse.reply(unique, fuse.open_payload()))
            case fuse.Opcode.STATFS:
                self._send(fuse.reply(unique, fuse.statfs_payload(self._size)))
            case fuse.Opcode.FALLOCATE:
                self._send(fuse.reply(unique, error=self._punch()))
            case _:
                self._answer_plain(opcode, unique)

    def _answer_plain(self, opcode: int, unique: int) -> None:
        """Requests that need no fields, or no answer."""
        match opcode:
            case fuse.Opcode.FORGET | fuse.Opcode.BATCH_FORGET:
                pass
            case fuse.Opcode.INTERRUPT:
                self._hasten(fuse.interrupted(self._buffer))
            # All writes that were answered are in the backing file already.
            case fuse.Opcode.FSYNC | fuse.Opcode.FLUSH | fuse.Opcode.RELEASE | fuse.Opcode.ACCESS:
                self._send(fuse.reply(unique))
            case fuse.Opcode.DESTROY:
                self._send(fuse.reply(unique))
                self._stopping = True
            case _:
                self._send(fuse.refusal(unique))

    def _punch(self) -> int:
        """Discard, or zero, a range; both leave a hole in the backing file. 0 or an errno."""
        offset, length, mode = fuse.fallocate_fields(self._buffer)
        if not mode & (fuse.FALLOC_PUNCH_HOLE | fuse.FALLOC_ZERO_RANGE):
            return errno.EOPNOTSUPP
        hole = fuse.FALLOC_PUNCH_HOLE | fuse.FALLOC_KEEP_SIZE
        at, many = ctypes.c_int64(offset), ctypes.c_int64(length)
        return ctypes.get_errno() if _libc.fallocate(self._backing, hole, at, many) else 0

    def _hasten(self, unique: int) -> None:
        """The caller was interrupted: answer its request at once, as what was asked for is done anyway."""
        for index, held in enumerate(self._held):
            if held[2] == unique:
                self._held[index] = (0.0, *held[1:])
                heapq.heapify(self._held)
                return

    def _answer_control(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        if request["command"] == "set":
            self._change({key: value for key, value in request.items() if key != "command"})
        elif request["command"] != "state":
            raise ValueError(f"no command {request['command']!r}; there are state and set")
        return self._state().to_json()

    def _change(self, settings: Mapping[str, Any]) -> None:
        now = time.monotonic()
        changes: Mapping[str, Callable[[Any], object]] = {
            "unlimited": self._set_unlimited,
            "refill": lambda on: self._limiter.refill(now) if on else None,
            "drain": lambda on: self._limiter.drain(now) if on else None,
            "credits": lambda fraction: self._limiter.set_credits(min(1.0, max(0.0, float(fraction))), now),
            "fixed_latency_s": self._set_fixed,
            "overhead_read_s": lambda seconds: self._set_overhead(0, float(seconds)),
            "overhead_write_s": lambda seconds: self._set_overhead(1, float(seconds)),
        }
        unknown = sorted(settings.keys() - changes.keys())
        if unknown:
            raise ValueError(f"no setting {unknown[0]!r}; there are {', '.join(changes)}")
        for key, value in settings.items():
            changes[key](value)

    def _set_unlimited(self, on: bool) -> None:
        self._unlimited = on
        if on:
            self._release(_FOREVER)

    def _set_fixed(self, seconds: float | None) -> None:
        self._fixed_s = None if seconds is None else float(seconds)

    def _set_overhead(self, which: int, seconds: float) -> None:
        self._overhead_s[which] = seconds

    def _state(self) -> LimiterState:
        now = time.monotonic()
        levels = self._limiter.levels(now)
        capacities = {name: bucket.limit.capacity for name, bucket in self._limiter.buckets.items()}
        return LimiterState(
            levels=levels,
            capacities=capacities,
            credits=levels.get(CREDITS),
            credits_capacity=capacities.get(CREDITS),
            seconds_until_full=self._limiter.seconds_until_full(now),
            waited_s={name: bucket.waited_s for name, bucket in self._limiter.buckets.items()},
            reads=self._counts[0],
            writes=self._counts[1],
            read_bytes=self._bytes[0],
            written_bytes=self._bytes[1],
            in_flight=len(self._held),
            unlimited=self._unlimited,
            errors=self._errors,
        )
