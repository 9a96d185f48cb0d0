"""Asking a running volume for its state and changing it: one JSON line each way on the volume's unix socket.

``ControlPoint`` is the daemon's end, polled by the loop that also serves the I/O; ``read_state`` and
``change`` are everyone else's end.
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
_ERROR_SIGNS = 500  # of a reply: what was asked may be quoted in it, however long
_COUNTS = ("reads", "writes", "read_bytes", "written_bytes", "in_flight", "errors")


@dataclass(frozen=True, slots=True, kw_only=True)
class LimiterState:
    """What a volume's limiters hold now and what they have let through since the volume was attached."""

    levels: Mapping[str, float]  # tokens by limit ("iops", "throughput", "credits"), negative while in debt
    capacities: Mapping[str, float]  # operations or bytes
    credits: float | None  # burst credits left; None for a volume without
    credits_capacity: float | None
    seconds_until_full: float  # of the IOPS and throughput buckets; credits take hours and are not waited for
    waited_s: Mapping[str, float]  # by limit: seconds that I/Os waited because of it, all I/Os added up
    reads: int
    writes: int
    read_bytes: int
    written_bytes: int
    target_s: Mapping[str, float]  # "read", "write": how long I/Os were meant to take, all added up
    in_flight: int  # replies that are held
    unlimited: bool
    time_scale: float  # how many times as fast as real ones the buckets empty and fill
    errors: int  # I/Os that the backing store refused

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_state(control: Path) -> LimiterState:
    """The state of the volume with this control socket; SetupError when its daemon does not answer.

    A directory stands for volumes that are striped into one: the sockets of all of them below it.
    """
    return _ask(control, {"command": "state"})


def change(control: Path, **settings: bool | float | Sequence[Any] | None) -> LimiterState:
    """Change a running volume and return its state then.

    ``unlimited`` (bool): no limits and no latency, for loading data. ``refill`` or ``drain`` (True): fill or
    empty the volume's IOPS and throughput buckets; ``drain_instance`` (True): empty those of its instance,
    for all volumes there. ``credits`` (0 to 1): fraction of the burst bucket. ``time_scale`` (1 or more):
    every bucket holds so many times less, how full it is stays; rates and latencies stay, so bursts and
    recoveries take so many times less.
    ``fixed_latency_s`` (least, most): service times of ``spread_over`` these, from its first on, one for each
    I/O in the order in which they come, and no limits; None to end it. ``read_latency``: how many times as
    long as the volume's own the service times of reads are, 1.0 to end it. ``overhead``: what the path itself
    costs, taken off every wait: of an I/O alone and of one beside others, of reads and of writes, seconds and
    seconds per byte. ``trace`` (bool): keep, or no longer keep, every I/O for ``save_trace`` but those of an
    unlimited volume. Raises SetupError when the daemon refuses or does not answer.
    """
    return _ask(control, {"command": "set", **settings})


@contextmanager
def unlimited(control: Path | None) -> Iterator[None]:
    """No limits and no latency within the block, and full buckets after it; None: a volume not emulated."""
    if control is None:
        yield
        return
    change(control, unlimited=True)
    try:
        yield
    finally:
        change(control, unlimited=False, refill=True)


def sockets_of(control: Path) -> list[Path]:
    """The sockets of a volume: one, or that of each volume that is striped into it."""
    return sorted(control.glob(f"*/{SOCKET_NAME}")) if control.is_dir() else [control]


def save_trace(control: Path) -> list[Path]:
    """Have a volume write the trace that it keeps, and say where: a file for each that is striped into it."""
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
    return LimiterState(**answer)


def together(states: Mapping[str, LimiterState]) -> LimiterState:
    """The state of volumes that are striped into one, as if it were one volume's; limits as ``2-iops``."""
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
    """A name of the path that fits the 108 bytes of a socket address."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


class ControlPoint:
    """The daemon's end: never blocks, one request line per connection or many."""

    def __init__(self, answer: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
        """Listen on SOCKET_NAME in the current directory; ``answer`` turns a request into a reply."""
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.setblocking(False)
        self._listener.bind(SOCKET_NAME)
        self._listener.listen(16)
        self._clients: dict[int, tuple[socket.socket, bytes]] = {}

    def descriptors(self) -> list[int]:
        """What to wait for."""
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
        except OSError:  # the client has gone again
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
