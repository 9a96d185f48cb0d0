"""On a load host: asks the machine with the volumes for what a request needs of it.

A load host has no volumes, nodes or session folder. Its runners ask race control's ``CoordinatorService``:
one JSON line each way over TCP, at the address where the service listens. Each answer has the coordinator's
own time, so the delay of the network is known for every request.
"""

import asyncio
import json
import os
import socket
import threading
import time
from asyncio.trsock import TransportSocket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from typing import Any, NamedTuple

import psutil
from pydantic import TypeAdapter

import esrally_ebs
from esrally_ebs.errors import EbsError, SetupError
from esrally_ebs.machine.processes import compare_clocks
from esrally_ebs.model import Block
from esrally_ebs.node.eviction import Drop
from esrally_ebs.session.asking import error_of, line_of
from esrally_ebs.store.context import Context

_CLOCK_S = 30.0  # seconds between two comparisons of the clocks
_CONNECT_S = 10.0
_LEAVE_S = 10.0  # for a worker whose coordinator has hung up; in an orderly end Rally ends it
# s, s, times; ms for unacknowledged data, for which no keepalive is sent
_NOTICED = {
    socket.TCP_KEEPIDLE: 5,
    socket.TCP_KEEPINTVL: 5,
    socket.TCP_KEEPCNT: 3,
    socket.TCP_USER_TIMEOUT: 20_000,
}


def keep_alive(connection: socket.socket | TransportSocket) -> None:
    """Have the kernel notice within 20 s that the other end has lost power or network."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _NOTICED.items():
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


class Coordinator(NamedTuple):
    """Address of the service, and the token that it requires."""

    host: str
    port: int
    token: str

    @property
    def is_here(self) -> bool:
        """Whether this process is on the coordinator itself."""
        addresses = (each.address for card in psutil.net_if_addrs().values() for each in card)
        return self.host in addresses


class Connection:
    """One line each way, after token and version have been checked."""

    def __init__(self, coordinator: Coordinator) -> None:
        address = coordinator.host, coordinator.port
        self._socket = socket.create_connection(address, timeout=_CONNECT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self._socket.makefile("rb")
        self.ask({"token": coordinator.token, "version": esrally_ebs.__version__})
        self._socket.settimeout(None)  # no timeout: fio and refilling buckets may take long
        keep_alive(self._socket)

    def ask(self, request: dict[str, Any]) -> tuple[dict[str, Any], float]:
        """The answer, and the network's delay (s). Raises the coordinator's errors, and OSError."""
        began_s = time.perf_counter()
        self._socket.sendall(line_of(request))
        line = self.file.readline()
        elapsed_s = time.perf_counter() - began_s
        if not line:
            raise ConnectionResetError("it hung up")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise error_of(answer["error"])
        return answer, max(0.0, elapsed_s - answer["seconds"])

    def wait(self) -> None:
        """Wait until the coordinator hangs up or is gone."""
        with suppress(OSError):
            self.file.read(1)

    def close(self) -> None:
        self.file.close()
        self._socket.close()


class CoordinatorClient:
    """Asks the coordinator; opens new connections in each process that uses it."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._idle: list[Connection] = []
        self._pid = os.getpid()
        self._compared_s = float("-inf")
        self._epoch_s = 0.0
        self._way_s = 0.0  # network's delay since the last request
        self._attends = False

    @cached_property
    def context(self) -> Context:
        """The session's context; changes by restarted nodes concern only the coordinator."""
        return _CONTEXT.validate_python(self._ask("context"))

    def attend(self) -> None:
        """Let the coordinator notice when this process is gone; end this process after the coordinator."""
        if self._attends:
            return
        connection = self._connection()  # used for nothing else
        self._way_of(connection, _request("attend"))
        self._attends = True
        threading.Thread(target=_end_with, args=(connection,), daemon=True).start()

    def make_cold(self, block: Block) -> tuple[Drop, Connection]:
        """Fill the arm's buckets, make it cold, record that, and observe its volumes from then on.

        One question for all: the request follows the answer, and ``observed`` uses its connection, so nothing
        is kept of a request that is never made. Raises MeasurementError if the arm does not get cold.
        """
        answer, connection = self._send("make_cold", block=block)
        return _DROP.validate_python(answer), connection

    @asynccontextmanager
    async def observed(self, block: Block, connection: Connection | None = None) -> AsyncIterator[None]:
        """Have the arm's volumes observed during the block, and the network's delay recorded.

        Asks in threads, so that this process's other clients continue.
        """
        if connection is None:
            connection = (await asyncio.to_thread(self._send, "observe", block=block))[1]
        before_s, self._way_s = self._way_s, 0.0
        try:
            yield
            await asyncio.to_thread(self._way_of, connection, {"way_s": before_s})
        except BaseException:
            connection.close()  # then the coordinator keeps nothing of the failed request
            raise
        self._idle.append(connection)

    def between(self, block: Block) -> None:
        self._ask("between", block=block)

    def is_over(self, round_: int) -> bool:
        """Whether the rounds ended before this one."""
        return bool(self._ask("is_over", round_=round_))

    def fault(self, arm: str, error: Exception) -> EbsError | None:
        """Record an error on an arm; returns the one to raise instead, None if nothing of ours is broken."""
        kind = type(error).__name__ if isinstance(error, EbsError) else ""
        answer = self._ask("fault", arm=arm, kind=kind, text=str(error))
        return None if answer is None else error_of(answer)

    async def stamp(self) -> dict[str, float]:
        """For samples: when this machine's ``time.perf_counter()`` was 0, by the coordinator's clock."""
        if not self._epoch_s:  # the first comparison blocks all clients
            self._compare_clocks()
        elif time.monotonic() - self._compared_s > _CLOCK_S:
            self._compared_s = time.monotonic()  # set first, so that only one client compares
            await asyncio.to_thread(self._compare_clocks)
        return {"epoch_s": self._epoch_s}

    def close(self) -> None:
        """Close idle connections; later requests connect again."""
        while self._idle:
            self._idle.pop().close()

    def _compare_clocks(self) -> None:
        self._compared_s = time.monotonic()
        uncertainty_s, self._epoch_s, offset_s = compare_clocks(lambda: float(self._ask("now")))
        self._ask("clock", offset_s=offset_s, uncertainty_s=uncertainty_s)

    def _way_of(self, connection: Connection, request: dict[str, Any]) -> Any:
        """The result; adds the network's delay to that of the next request."""
        try:
            answer, way_s = connection.ask(request)
        except OSError as error:
            connection.close()
            raise self._lost(error) from error
        self._way_s += way_s
        return answer["result"]

    def _ask(self, operation: str, **arguments: Any) -> Any:
        answer, connection = self._send(operation, **arguments)
        self._idle.append(connection)
        return answer

    def _send(self, operation: str, **arguments: Any) -> tuple[Any, Connection]:
        """The result, and the connection that it came by."""
        connection = self._connection()
        try:
            return self._way_of(connection, _request(operation, **arguments)), connection
        except EbsError:
            if not connection.file.closed:
                self._idle.append(connection)
            raise

    def _connection(self) -> Connection:
        if self._pid != os.getpid():  # forked: the connections are the parent's
            self._pid, self._idle = os.getpid(), []
        with suppress(IndexError):
            return self._idle.pop()
        try:
            return Connection(self._coordinator)
        except OSError as error:
            raise self._lost(error) from error

    def _lost(self, error: OSError) -> SetupError:
        host, port, _ = self._coordinator
        why = error.strerror or str(error)
        return SetupError(f"coordinator {host}:{port}: not reached from this load host ({why}); race again")


def _end_with(connection: Connection) -> None:
    """End this process soon after the coordinator's, as nobody else might."""
    connection.wait()
    time.sleep(_LEAVE_S)
    os._exit(SetupError.exit_code)


def _request(operation: str, **arguments: Any) -> dict[str, Any]:
    return {"operation": operation, "arguments": arguments}


_CONTEXT = TypeAdapter(Context)
_DROP = TypeAdapter(Drop)
