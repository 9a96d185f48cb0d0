"""In race control: does for load hosts' runners what only the machine with the volumes can.

Listens at the address by which load hosts reach it, like Rally's actors there, and answers whoever has the
race's token, which load hosts get with Rally's configuration.
"""

import asyncio
import hmac
import json
import secrets
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from ipaddress import ip_address
from typing import Any

from pydantic import TypeAdapter

import esrally_ebs
from esrally_ebs.errors import EbsError, PlanError, SetupError
from esrally_ebs.model import Block, Request
from esrally_ebs.node.eviction import Drop
from esrally_ebs.plan import Plan
from esrally_ebs.rally import activation, open_loop, runners
from esrally_ebs.rally.coordinator_client import Coordinator, keep_alive
from esrally_ebs.rally.recovery import RECOVERY
from esrally_ebs.rally.sample_recorder import DrivenSession
from esrally_ebs.session.asking import Answering, error_named, line_of, refusal
from esrally_ebs.session.keeper import MAX_REQUEST_BYTES
from esrally_ebs.store import SessionFolder
from esrally_ebs.store.context import LOST, Context

_SLOW_S = 10.0  # for a new connection to present its token
_MAX_SILENT = 64  # connections without a token yet; a load host's comes within milliseconds
_DAEMONS_PORT = 1900
_NO_LINE = (ValueError, LookupError, TypeError, RecursionError)  # raised by reading JSON that is not ours


def address_towards(hosts: Sequence[str]) -> str:
    """This machine's address for all these hosts.

    Raises SetupError if they need several, or if a host has no Rally daemon that answers.
    """
    addresses = set()
    for host in hosts:
        try:
            with socket.create_connection((host, _DAEMONS_PORT), timeout=_SLOW_S) as probe:
                addresses.add(probe.getsockname()[0])
        except (OSError, UnicodeError) as error:  # UnicodeError: not a host name
            why = (isinstance(error, OSError) and error.strerror) or str(error)
            raise SetupError(
                f"load driver host {host}: Rally's daemon does not answer there ({why}); run 'esrallyd start'"
            ) from error
    if loopback := [address for address in addresses if ip_address(address).is_loopback]:
        raise SetupError(
            f"load driver hosts {', '.join(hosts)}: {loopback[0]} is this machine, which makes the load "
            "without --load-driver-hosts; name others by their own addresses"
        )
    if len(addresses) > 1:
        raise SetupError(
            f"load driver hosts {', '.join(hosts)}: reach this machine by {' and '.join(sorted(addresses))}; "
            "name hosts of one network"
        )
    return str(addresses.pop())


def require_able_elsewhere(plan: Plan, schedule: Iterable[Any], remedy: str) -> None:
    """Raise PlanError for requests that need more of the machine with the volumes than can be asked of it."""
    tasks = [task for element in schedule for task in element]
    why = ""
    if plan.cache.mode == "steady":
        why = "cache.mode steady reads counters of volumes"
    elif any(task.operation.type == RECOVERY for task in tasks):
        why = "work with shards is timed beside the nodes"
    elif plan.design.knee is not None or any(task.schedule == open_loop.NAME for task in tasks):
        why = "a rate of requests, or the search for the highest, has one clock"
    elif plan.trace == "perturb":
        why = "slower reads are set beside each request"
    if why:
        raise PlanError(f"plan {plan.name}: {why}, so the load is made where the volumes are; {remedy}")


class CoordinatorSteps:
    """Steps that load hosts may ask for, one method each."""

    def context(self) -> Context:
        return activation.current()

    def now(self) -> float:
        """This machine's clock: seconds since the epoch."""
        return time.time()

    def make_cold(self, block: Block) -> Drop:
        """Make an arm cold, and record the drop."""
        search = runners.Search(runners.OnArm(None), None, Request(block=block, number=1), {})
        drop = search.make_cold()
        search.record(drop)
        return drop

    def between(self, block: Block) -> None:
        """Do the work of a block between requests: fio, bringing an arm back, restarting nodes."""
        runners.do_between(block)

    def is_over(self, round_: int) -> bool:
        return DrivenSession(activation.current).is_over(round_)

    def fault(self, arm: str, kind: str, text: str) -> dict[str, str] | None:
        """Record a fault of an arm and return it; ``kind`` is the error's class if it is one of ours."""
        fault = runners.fault_of(arm, (error_named(kind) or OSError)(text))
        answer: dict[str, str] | None = refusal(fault)["error"] if fault else None
        return answer


class CoordinatorService:
    """Answers load hosts at one address until this process ends."""

    def __init__(self, address: str) -> None:
        self._listener = socket.create_server((address, 0))
        self.coordinator = Coordinator(address, self._listener.getsockname()[1], secrets.token_hex(32))
        names = ("context", "now", "make_cold", "between", "is_over", "fault")
        self._steps = Answering(CoordinatorSteps(), names)
        self._is_over = False
        self._silent: dict[asyncio.StreamWriter, None] = {}  # connections that have not presented a token yet

    def start(self) -> None:
        """Listen in a thread."""
        threading.Thread(target=asyncio.run, args=(self._serve(),), daemon=True).start()

    def end(self) -> None:
        """End of the race: let load hosts go."""
        self._is_over = True

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, sock=self._listener, limit=MAX_REQUEST_BYTES)
        await server.serve_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(OSError, asyncio.TimeoutError, *_NO_LINE):
            hello = json.loads(await self._hello(reader, writer))
            if hmac.compare_digest(str(hello["token"]).encode(), self.coordinator.token.encode()):
                await self._converse(str(hello["version"]), reader, writer)

    async def _hello(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        """The first line of a connection; if too many are silent, the oldest is closed."""
        self._silent[writer] = None
        if len(self._silent) > _MAX_SILENT:
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            oldest.close()
        try:
            return await asyncio.wait_for(reader.readline(), _SLOW_S)
        finally:
            self._silent.pop(writer, None)

    async def _converse(
        self, version: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if version != esrally_ebs.__version__:
            why = f"has esrally_ebs {version}, the coordinator {esrally_ebs.__version__}; install that one"
            _send(writer, refusal(SetupError(f"load host {_peer(writer)}: {why}")))
            return
        _send(writer, {"result": None, "seconds": 0.0})
        while line := await reader.readline():
            began_s = time.perf_counter()
            request = json.loads(line)
            operation, arguments = request["operation"], request["arguments"]
            try:
                answer = {"result": await self._perform(operation, arguments, _peer(writer))}
            except Exception as error:  # noqa: BLE001 - whatever it is, the load host hears of it
                _send(writer, {**refusal(error), "seconds": time.perf_counter() - began_s})
                continue
            if operation in ("make_cold", "observe"):
                try:
                    await self._observe(
                        _BLOCK.validate_python(arguments["block"]), answer, began_s, reader, writer
                    )
                except EbsError as error:
                    _send(writer, refusal(error))
                continue
            _send(writer, {**answer, "seconds": time.perf_counter() - began_s})
            if operation == "attend":
                await self._miss(reader, writer)

    async def _miss(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Wait until a load host's worker is gone; before the race's end, that ends the race."""
        keep_alive(writer.get_extra_info("socket"))
        with suppress(OSError):
            await reader.read(1)
        context = activation.current()
        if self._is_over or (context.notes / LOST).exists():
            return
        error = SetupError(
            f"load host {_peer(writer)}: its worker has died or its network is gone; see Rally's log there, "
            "and race again"
        )
        SessionFolder(context.folder).note("fault", text=str(error), exit_code=error.exit_code)
        (context.notes / LOST).write_text(str(error))  # read by Rally's driver

    async def _perform(self, operation: str, arguments: dict[str, Any], peer: str) -> Any:
        if operation in ("attend", "observe"):  # their work comes after, or goes on around, the answer
            return None
        if operation == "clock":
            offset_s, uncertainty_s = float(arguments["offset_s"]), float(arguments["uncertainty_s"])
            folder = SessionFolder(activation.current().folder)
            folder.note("clock", load_host=peer, offset_s=offset_s, uncertainty_s=uncertainty_s)
            return None
        if operation == "now":  # no thread: it does not block
            return self._steps.perform(operation, arguments)
        return await asyncio.to_thread(self._steps.perform, operation, arguments)

    async def _observe(
        self,
        block: Block,
        answer: dict[str, Any],
        began_s: float,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Observe an arm's volumes from this answer until the load host reports that its request ended."""
        async with runners.observed_here(block) as more:
            _send(writer, {**answer, "seconds": time.perf_counter() - began_s})
            line = await reader.readline()
            if not line:
                raise ConnectionResetError("its request failed")  # so nothing of it is kept
            began_s = time.perf_counter()
            more.update(way_s=float(json.loads(line)["way_s"]), load_host=_peer(writer))
        _send(writer, {"result": None, "seconds": time.perf_counter() - began_s})


def _peer(writer: asyncio.StreamWriter) -> str:
    return str(writer.get_extra_info("peername")[0])


def _send(writer: asyncio.StreamWriter, answer: dict[str, Any]) -> None:
    writer.write(line_of(answer))


_BLOCK = TypeAdapter(Block)
