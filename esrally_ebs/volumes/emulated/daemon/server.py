"""One emulated volume at work: FUSE requests in, replies out when they are due.

One thread. A request's data are moved when it is taken (writes) or due (reads), so no read is ever torn and a
read sees every write that arrived before it; only the replies wait, in a heap, so all requests are in flight
at once. Every acknowledged write is in the backing file; nothing is synced to its disk, as a volume does not
outlive the machine.
"""

import heapq
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
from esrally_ebs.volumes.emulated.daemon.channel import Channel
from esrally_ebs.volumes.emulated.daemon.trace import TraceRing
from esrally_ebs.volumes.emulated.daemon.wakefulness import Wakefulness

_BATCH = 64  # requests taken before pending replies are looked at again
_AWAKE_S = 1.0  # how long after the last request the processors are kept from sleeping
_SOON_S = 5e-6  # a reply due this soon is sent now, as one more look at the clock takes as long
# Waking up takes a sleeper 10 to 40 us, more on an idle machine than on a busy one. So this thread wakes up
# so much earlier that nine times in ten it is in time, and then watches the clock: the time of a reply no
# longer depends on what else runs. With more in flight it hardly sleeps, and watching would cost too much.
MAX_SPINNING_IN_FLIGHT = 4
_LEAD_STEP_S = 2e-6
MAX_LEAD_S = 100e-6
_LATE_SHARE = 0.1
# While the limiters are in debt for longer than this, requests are left with the kernel for this long and
# then taken together, which saves a wake-up for each. They are due at the same time either way: as long as
# debt remains, an I/O taken later has just that much less of it to wait out.
_REST_S = 250e-6
_READ, _WRITE = int(fuse.Opcode.READ), int(fuse.Opcode.WRITE)
_TRANSFERS = (_READ, _WRITE)
_FOREVER = float("inf")

# due, order, unique, offset, size, write, errno; and for the trace: when it came, limited_s, path_s
_Reply = tuple[float, int, int, int, int, bool, int, float, float, float]


class Server:
    """One volume: its channel, its limiter, the requests in flight."""

    def __init__(self, admission: Admission, backing: int, device: int) -> None:
        """Serve ``backing`` on the FUSE connection ``device`` (both file descriptors); starts unlimited."""
        self._channel = Channel(backing, device)
        self._admission = admission
        self._pending: list[_Reply] = []
        self._order = 0
        self._trace: TraceRing | None = None
        self._resting_until = 0.0  # requests are not taken before then; 0.0: as they come
        self._lead_s = 40e-6
        self._stopping = False
        self._control = ControlPoint(self._answer_control)
        self._wakefulness = Wakefulness()
        self._wakeup, self._signalled = socket.socketpair()

    def serve(self) -> None:
        """Until SIGTERM or until the file is unmounted."""
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
        """Until a reader is ready, or until it is time to watch the clock; the ready ones."""
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
        """Move the lead towards the one with which ``_LATE_SHARE`` of the replies are late."""
        step_s = _LEAD_STEP_S * ((1.0 - _LATE_SHARE) if late_s > 0.0 else -_LATE_SHARE)
        self._lead_s = min(MAX_LEAD_S, max(0.0, self._lead_s + step_s))

    def _others(self) -> list[int]:
        """What to wait for besides the device."""
        return [self._wakeup.fileno(), *self._control.descriptors()]

    def _attend(self, ready: list[int]) -> None:
        """Everything but I/O."""
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
        """Answer all that is due; when the next is."""
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
        """Take what waits, but no longer than until a reply is due."""
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
        """Take one READ or WRITE: store its data, decide when it is due, hold it; the time it came."""
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
        """Requests that need no fields, or no answer."""
        match opcode:
            case fuse.Opcode.FORGET | fuse.Opcode.BATCH_FORGET:
                pass
            case fuse.Opcode.INTERRUPT:
                self._hasten(fuse.interrupted(self._channel.request))
            # All writes that were answered are in the backing file already.
            case fuse.Opcode.FSYNC | fuse.Opcode.FLUSH | fuse.Opcode.RELEASE | fuse.Opcode.ACCESS:
                self._channel.send(fuse.reply(unique))
            case fuse.Opcode.DESTROY:
                self._channel.send(fuse.reply(unique))
                self._stopping = True
            case _:
                self._channel.send(fuse.refusal(unique))

    def _hasten(self, unique: int) -> None:
        """The caller was interrupted: answer its request at once, as what was asked for is done anyway."""
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
