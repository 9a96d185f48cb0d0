"""Rally runners: every operation on the arm that its task names, cold searches, and fio as a task."""

import asyncio
import http.client
import time
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

import elasticsearch
from esrally.driver import runner

from esrally_ebs import caches, diagnosis
from esrally_ebs.context import INDEX, Arm
from esrally_ebs.errors import EbsError, MeasurementError, SetupError
from esrally_ebs.measure import measure_baseline
from esrally_ebs.model import Event, Phase
from esrally_ebs.rally import activation
from esrally_ebs.rally.observation import Pace, observe
from esrally_ebs.rally.pace import turns
from esrally_ebs.rally.schedule import FIO, META, SEARCH_TYPES
from esrally_ebs.store import SessionFolder
from esrally_ebs.system import SYSTEM_CLOCK
from esrally_ebs.volumes import wait_refilled

_CLEAR_TIMEOUT_S = 30.0


class OnArm(runner.Runner):  # type: ignore[misc]
    """A Rally runner on the cluster of the task's arm.

    The wrapped runner is kept as ``inner``, not ``delegate``: Rally looks through a delegate and would not
    see that this one wants all clusters.
    """

    multi_cluster = True

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    @property
    def completed(self) -> Any:
        return self.inner.completed

    @property
    def percent_completed(self) -> Any:
        return self.inner.percent_completed

    async def __aenter__(self) -> "OnArm":
        await self.inner.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> Any:
        return await self.inner.__aexit__(*exc)

    async def __call__(self, es: Any, params: dict[str, Any]) -> Any:
        ours = params.get(META)
        if ours is None:  # plain Rally: the user's own nodes, nothing of ours
            return await self.inner({"default": es["default"]}, params)
        client = es[ours["cluster"]]
        try:
            extra = await self.before(client, ours)
            with turns.request():
                async with self.observed(ours):
                    result = _as_dict(await self.inner({"default": client}, params))
        except (EbsError, OSError, elasticsearch.TransportError, elasticsearch.ApiError) as error:
            _raise_cause(ours["arm"], error)
            raise
        return {**result, **extra, "cluster": ours["cluster"]}

    async def before(self, client: Any, ours: dict[str, Any]) -> dict[str, Any]:
        """What must be so before the request; returns fields for its sample."""
        return {"iteration": ours["request"]}

    def observed(self, ours: dict[str, Any]) -> AbstractAsyncContextManager[None]:
        """What surrounds the request and is no part of its time."""
        return nullcontext()

    def __str__(self) -> str:
        return f"{self.inner} on the arm of its task"


class ColdSearch(OnArm):
    """A search whose index is not in the page cache when it starts, and proven not to be."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._pace = Pace()

    async def before(self, client: Any, ours: dict[str, Any]) -> dict[str, Any]:
        """Every ``drop_every`` requests: refill buckets, clear Elasticsearch's caches, evict, verify."""
        context = activation.current()
        request = ours["request"]
        if request == 1:
            await _open_connection(client)
        if context.plan.cache.mode == "warm" or ours["phase"] == Phase.WARMUP:
            return {"iteration": request}
        every = context.plan.cache.drop_every
        iteration = (request - 1) % every + 1 if every else request
        if iteration > 1:
            return {"iteration": iteration}
        arm = context.arm(ours["arm"])
        folder = SessionFolder(context.folder)
        # Waiting comes first: between eviction and request nothing may pass that could read pages back.
        waited_s = await asyncio.to_thread(wait_refilled, arm.volume, clock=SYSTEM_CLOCK)
        try:
            drop = _make_cold(arm, context.plan.cache.max_resident)
        except MeasurementError:
            folder.event(
                Event(at_s=time.time(), kind="not-cold", arm=arm.name, fields={"task": ours["task"]})
            )
            raise
        folder.event(
            Event(
                at_s=time.time(),
                kind="drop",
                arm=arm.name,
                fields={
                    "task": ours["task"],
                    "round": ours["round"],
                    "before": drop.before,
                    "after": drop.after,
                    "attempts": drop.attempts,
                    "seconds": drop.seconds,
                    "refill_s": waited_s,
                },
            )
        )
        return {"iteration": 1, "resident_before": drop.after}

    def observed(self, ours: dict[str, Any]) -> AbstractAsyncContextManager[None]:
        """What the request does to its arm's volume, into the record."""
        context = activation.current()
        is_cold = context.plan.cache.mode == "cold"
        if ours["phase"] == Phase.WARMUP or not self._pace.is_due(every=is_cold):
            return nullcontext()
        return observe(context.arm(ours["arm"]).volume, SessionFolder(context.folder), ours)


class Fio:
    """One fio job of the plan on one arm, as a Rally task: visible, in the results, and ended by Ctrl-C."""

    multi_cluster = True

    async def __aenter__(self) -> "Fio":
        return self

    async def __aexit__(self, *exc: object) -> bool:
        return False

    async def __call__(self, es: Any, params: dict[str, Any]) -> dict[str, Any]:
        ours = params[META]
        context = activation.current()
        arm = context.arm(ours["arm"])
        job = next(job for job in context.plan.baseline if job.name == ours["task"])
        es["default"].on_request_start()
        try:
            await asyncio.to_thread(measure_baseline, context, arm, job, ours["round"])
        except EbsError as error:
            _record_fault(error, arm.name)
            raise
        finally:
            es["default"].on_request_end()
        return {"weight": 1, "unit": "ops", "cluster": ours["cluster"], "fio": job.name}

    def __str__(self) -> str:
        return "fio baseline"


def register(registry: Any) -> None:
    """Wrap Rally's runners for the operations that the track uses, and add ours."""
    for operation in _OPERATIONS:
        wrap = ColdSearch if operation in SEARCH_TYPES else OnArm
        registry.register_runner(operation, wrap(runner.runner_for(operation)), async_runner=True)
    registry.register_runner(FIO, Fio(), async_runner=True)


_OPERATIONS = (
    "search",
    "paginated-search",
    "bulk",
    "create-index",
    "delete-index",
    "refresh",
    "force-merge",
    "cluster-health",
    "index-stats",
    "node-stats",
    "put-settings",
    "raw-request",
)


def _as_dict(result: Any) -> dict[str, Any]:
    if isinstance(result, dict):
        return result
    if isinstance(result, tuple):
        return {"weight": result[0], "unit": result[1]}
    return {"weight": 1, "unit": "ops"}


async def _open_connection(client: Any) -> None:
    """Connect before the first request of a task, so that no sample pays for the handshake."""
    holder = client.new_request_context().ctx_holder
    _, token = holder.init_request_context()
    try:
        await client.info()
    finally:
        # restored by hand: leaving the manager would hand this request's times to the measured one
        holder.restore_context(token)


def _make_cold(arm: Arm, max_resident: float) -> caches.Drop:
    node = arm.node
    if node is None:
        raise SetupError(f"arm {arm.name}: has no node; a cold search needs one")
    return caches.make_cold(node, node.data_dir, max_resident=max_resident, clear=lambda: _clear_caches(arm))


def _clear_caches(arm: Arm) -> None:
    """POST _cache/clear, not through Rally's client, which would count it into the search's service time."""
    node = arm.node
    assert node is not None
    connection = http.client.HTTPConnection(node.host, node.port, timeout=_CLEAR_TIMEOUT_S)
    try:
        connection.request("POST", f"/{INDEX}/_cache/clear")
        response = connection.getresponse()
        response.read()
    except (OSError, http.client.HTTPException) as error:
        raise SetupError(
            f"arm {arm.name}: Elasticsearch at {node.host}:{node.port} does not answer: {error}; see its log"
        ) from error
    finally:
        connection.close()
    if response.status >= 400:
        raise SetupError(
            f"arm {arm.name}: POST {INDEX}/_cache/clear: HTTP {response.status}; see the node's log"
        )


def _raise_cause(arm_name: str, error: Exception) -> None:
    fault = diagnosis.explain(error, activation.current().arm(arm_name))
    if fault is not None:
        _record_fault(fault, arm_name)
        raise fault from error


def _record_fault(error: EbsError, arm: str) -> None:
    """So that race control can report this error, in its own words and with its own exit code."""
    SessionFolder(activation.current().folder).event(
        Event(
            at_s=time.time(), kind="fault", arm=arm, fields={"text": str(error), "exit_code": error.exit_code}
        )
    )
