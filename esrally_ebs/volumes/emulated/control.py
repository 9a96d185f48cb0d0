"""Reads and changes the state of a running volume: one line of JSON each way on the volume's unix socket.

``ControlPoint`` is the daemon's end, polled by the loop that also serves I/O; all others use ``read_state``
and ``change``.
"""

import json
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from esrally_ebs.errors import SetupError

SOCKET_NAME, TRACE_NAME = "control", "trace"  # in the directory of the volume
_TIMEOUT_S = 5.0
_LINE_BYTES = 65536
_MAX_CLIENTS = 64  # connections at a time; select(2), which waits for I/O too, takes 1,024 descriptors
_ERROR_SIGNS = 500  # of a reply, which may quote the request
_COUNTS = ("reads", "writes", "read_bytes", "written_bytes", "in_flight", "errors")


@dataclass(frozen=True, slots=True, kw_only=True)
class LimiterState:
    """Levels of a volume's limiters, and totals since it was attached."""

    levels: Mapping[str, float]  # tokens by limit ("iops", "throughput", "credits"), negative while in debt
    capacities: Mapping[str, float]  # operations or bytes
    credits: float | None  # burst credits left; None for a volume without
    credits_capacity: float | None
    seconds_until_full: float  # for the IOPS and throughput buckets; not credits, which take hours
    waited_s: Mapping[str, float]  # by limit: seconds that I/Os waited for it, added up over all I/Os
    reads: int
    writes: int
    read_bytes: int
    written_bytes: int
    target_s: Mapping[str, float]  # "read", "write": how long I/Os should have taken, added up
    in_flight: int  # replies being held
    unlimited: bool
    time_scale: float  # how many times as fast as real ones buckets empty and fill
    errors: int  # I/Os that the backing file refused

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_state(control: Path) -> LimiterState:
    """State of the volume with this control socket. Raises SetupError if its daemon does not answer.

    A directory stands for striped volumes: all sockets below it.
    """
    return _ask(control, {"command": "state"})


def change(control: Path, **settings: bool | float | Sequence[Any] | None) -> LimiterState:
    """Change a running volume; returns its new state.

    ``unlimited`` (bool): no limits and no latency, for loading data. ``refill`` or ``drain`` (True): fill or
    empty the volume's IOPS and throughput buckets; ``drain_instance`` (True): empty those of its instance,
    for all its volumes. ``credits`` (0 to 1): fraction of the burst bucket. ``time_scale`` (1 or more):
    divides every bucket's capacity and keeps how full it is; rates and latencies stay, so bursts and
    recoveries are that much shorter.

    ``fixed_latency_s`` (least, most): service times from ``spread_over``, restarted, one per I/O in order of
    arrival, and no limits; None ends it. ``read_latency``: factor on the volume's own service time of reads;
    1.0 ends it. ``overhead``: the path's own time, subtracted from every wait: for an I/O alone and for one
    beside others, of reads and of writes, in seconds and seconds per byte. ``trace`` (bool): whether to keep
    every I/O for ``save_trace``, except while unlimited. Raises SetupError if the daemon refuses or does not
    answer.
    """
    return _ask(control, {"command": "set", **settings})


@contextmanager
def unlimited(control: Path | None) -> Iterator[None]:
    """No limits or latency during the block, and full buckets after it; None for volumes not emulated."""
    if control is None:
        yield
        return
    change(control, unlimited=True)
    try:
        yield
    finally:
        change(control, unlimited=False, refill=True)


def sockets_of(control: Path) -> list[Path]:
    """Sockets of a volume: one, or one for each striped volume."""
    return sorted(control.glob(f"*/{SOCKET_NAME}")) if control.is_dir() else [control]


def save_trace(control: Path) -> list[Path]:
    """Have a volume write its trace; returns the files, one for each striped volume."""
    _ask(control, {"command": "save trace"})
    return [socket.with_name(TRACE_NAME) for socket in sockets_of(control)]


def _ask(control: Path, request: Mapping[str, Any]) -> LimiterState:
    if control.is_dir():
        sockets = sockets_of(control)
        if not sockets:
            raise SetupError(f"{control}: no volume is attached there; run 'esrally-ebs volumes list'")
        return together({socket.parent.name: _ask(socket, request) for socket in sockets})
    try:
        answer = json.loads(_exchange(control, json.dumps(request).encode() + b"\n"))
    except (OSError, ValueError) as error:
        raise SetupError(
            f"{control}: the volume's daemon does not answer ({error}); run 'esrally-ebs clean', or 'volumes"
            " down PLAN' where it was attached by hand, and attach again"
        ) from error
    if "error" in answer:
        raise SetupError(f"{control}: the volume refuses {dict(request)}: {answer['error']}")
    try:
        return LimiterState(**answer)
    except TypeError as error:  # it outlives an upgrade of the pack
        raise SetupError(
            f"{control}: the volume's daemon is of another release of the pack; detach the volume ('volumes"
            " down PLAN', or 'clean'), and attach it again"
        ) from error


def together(states: Mapping[str, LimiterState]) -> LimiterState:
    """State of striped volumes as of one volume; limits as ``2-iops``."""
    parts = list(states.values())
    return LimiterState(
        levels=_named(states, "levels"),
        capacities=_named(states, "capacities"),
        credits=_sum_of(part.credits for part in parts),
        credits_capacity=_sum_of(part.credits_capacity for part in parts),
        seconds_until_full=max(part.seconds_until_full for part in parts),
        waited_s=_named(states, "waited_s"),
        target_s={op: sum(part.target_s[op] for part in parts) for op in parts[0].target_s},
        **{name: sum(getattr(part, name) for part in parts) for name in _COUNTS},
        unlimited=all(part.unlimited for part in parts),
        time_scale=parts[0].time_scale,
    )


def _named(states: Mapping[str, LimiterState], field: str) -> dict[str, float]:
    return {
        f"{volume}-{limit}": value
        for volume, state in states.items()
        for limit, value in getattr(state, field).items()
    }


def _sum_of(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _exchange(control: Path, line: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as client, _short_path(control) as path:
        client.settimeout(_TIMEOUT_S)
        client.connect(path)
        client.sendall(line)
        with client.makefile("rb") as answers:
            received = answers.readline()
    if not received.endswith(b"\n"):
        raise ConnectionResetError("connection closed")
    return received


@contextmanager
def _short_path(path: Path) -> Iterator[str]:
    """A name for the path that fits into a socket address's 108 bytes."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


class ControlPoint:
    """The daemon's end: never blocks; one or more request lines per connection."""

    def __init__(self, answer: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
        """Listen on SOCKET_NAME in the current directory; ``answer`` turns a request into a reply."""
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.setblocking(False)
        self._listener.bind(SOCKET_NAME)
        self._listener.listen(16)
        self._clients: dict[int, tuple[socket.socket, bytes]] = {}

    def descriptors(self) -> list[int]:
        """Descriptors to wait for."""
        return [self._listener.fileno(), *self._clients]

    def handle(self, descriptor: int) -> None:
        """Serve one descriptor that is ready."""
        if descriptor == self._listener.fileno():
            self._accept()
        elif descriptor in self._clients:
            self._receive(descriptor)

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:  # the client has disconnected
            return
        if len(self._clients) == _MAX_CLIENTS:
            client.close()
            return
        client.setblocking(False)
        self._clients[client.fileno()] = (client, b"")

    def _receive(self, descriptor: int) -> None:
        client, before = self._clients[descriptor]
        try:
            part = client.recv(_LINE_BYTES)
            *lines, rest = (before + part).split(b"\n")
            for line in lines:
                client.send(json.dumps(self._reply(line)).encode() + b"\n")
        except BlockingIOError:
            return
        except OSError:
            part = b""
        if not part or len(rest) > _LINE_BYTES:
            del self._clients[descriptor]
            client.close()
            return
        self._clients[descriptor] = (client, rest)

    def _reply(self, line: bytes) -> Mapping[str, Any]:
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise ValueError("a request is a JSON object")
            return self._answer(request)
        except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
            return {"error": f"{type(error).__name__}: {error}"[:_ERROR_SIGNS]}
