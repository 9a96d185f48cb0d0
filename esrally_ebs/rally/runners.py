"""Rally runners: every operation on its task's arm, cold searches, and fio as a task."""

import asyncio
import copy
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import elasticsearch
from esrally.driver import runner
from esrally.track import OperationType

from esrally_ebs.analysis.steady import MissRate
from esrally_ebs.errors import EbsError, MeasurementError, PlanError, SetupError
from esrally_ebs.machine.procfs import parse_memory_stat
from esrally_ebs.model import Block, Phase, Request, Work
from esrally_ebs.node import api
from esrally_ebs.node.eviction import Drop, make_cold
from esrally_ebs.rally import activation
from esrally_ebs.rally.coordinator_client import Connection, CoordinatorClient
from esrally_ebs.rally.indexing import require_green
from esrally_ebs.rally.patches.worker import turns
from esrally_ebs.rally.recovery import RECOVERY, Recovery
from esrally_ebs.rally.request_source import BLOCK, DETAILS, NAMES_INDEX, SentRequests, names_index
from esrally_ebs.rally.schedule import BRING_BACK, FIO, SEARCH_TAG, START
from esrally_ebs.rally.settings import naming
from esrally_ebs.session import diagnosis, protocol
from esrally_ebs.session.hosts import hosts_of
from esrally_ebs.session.keeper import read_page, root_steps
from esrally_ebs.session.measure import measure_baseline
from esrally_ebs.store import SessionFolder
from esrally_ebs.store.context import Arm, Context
from esrally_ebs.telemetry.observation import ObservationInterval, device_counters, observe
from esrally_ebs.units import number_of
from esrally_ebs.volumes.emulated.control import change


class OnArm(runner.Runner):  # type: ignore[misc]
    """A Rally runner on the cluster of the task's arm; for a search, with all that precedes it.

    The wrapped runner is ``inner``, not ``delegate``: Rally looks through a delegate, and would not see that
    this one wants all clusters.
    """

    multi_cluster = True

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner
        self.intervals: defaultdict[str, ObservationInterval] = defaultdict(ObservationInterval)  # by arm
        self.misses: tuple[Block, MissRate] | None = None  # of the block that repeats until misses are steady
        self._block: Block | None = None  # the last block of indexing that began
        self._unused: Any = None  # the wrapped runner before its first block

    @property
    def completed(self) -> Any:
        if self.misses is not None and self.misses[1].is_over:
            return True
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
        request: Request | None = params.get(BLOCK)
        if request is None:  # plain Rally with the user's own nodes: do nothing of ours
            return await self.inner(es, params)
        block = request.block
        try:
            if block.work is Work.SEARCH:
                kind = SearchElsewhere if activation.coordinator() else Search
                search = kind(self, es[block.cluster], request, params)
                result = await protocol.search(request, search.context.plan.cache, search)
            else:
                await self._begin(block)
                await self._require_green(block, params)
                with turns.request():
                    async with observed(self, block):
                        result = _as_dict(await self.inner({"default": es[block.cluster]}, params))
                result = {**result, "iteration": request.number}
        except (EbsError, OSError, elasticsearch.TransportError, elasticsearch.ApiError) as error:
            remote = activation.coordinator()
            if fault := (remote.fault if remote else fault_of)(block.arm, error):
                raise fault from error
            if type(error) is elasticsearch.ConnectionError or isinstance(error, OSError):
                raise
            # Rally keeps the same result, but without the arm
            result = {"weight": 0, "success": False, "error-description": str(error)}
        remote = activation.coordinator()
        stamp = await remote.stamp() if remote else {}
        return {**result, "arm": block.arm, "cluster": block.cluster, **stamp}

    async def _begin(self, block: Block) -> None:
        """Reset a runner that reports completion (wait-for-transform), lest it report it for the next arm."""
        if block == self._block or getattr(self.inner, "completed", None) is None:
            return
        before = self.inner
        if self._block is None:
            self._unused = copy.deepcopy(before)
        self._block, self.inner = block, copy.deepcopy(self._unused)
        await before.__aexit__(None, None, None)
        await self.inner.__aenter__()

    async def _require_green(self, block: Block, params: dict[str, Any]) -> None:
        """Raise PlanError where an arm that indexes by itself would be waited for without an end."""
        waits = params.get("retry-until-success") and activation.coordinator() is None
        if waits and isinstance(runner.unwrap(self.inner), runner.ClusterHealth):
            node = activation.current().arm(block.arm).nodes[0]
            await asyncio.to_thread(require_green, block.task, params, node)

    def __str__(self) -> str:
        return f"{self.inner} on the arm of its task"


class Search:
    """The steps of one real search."""

    __slots__ = ("client", "context", "params", "request_", "runner")

    def __init__(self, runner_: OnArm, client: Any, request: Request, params: dict[str, Any]) -> None:
        self.runner, self.client, self.request_, self.params = runner_, client, request, params
        self.context = activation.current()
        for write in _writes(params):  # made by the track's own code, else no search
            raise PlanError(
                f"task {request.block.task}: its parameter source makes {write}, which every round would do "
                f"again on each arm; put it before the searches, without the tag {SEARCH_TAG!r}, or leave it "
                f"out: {naming([request.block.task])}"
            )
        # pairs of one node are made only once; each step of a knee search has its own rate
        is_own = request.block.round and request.block.task != protocol.QUERIES and not self.arm.suffix
        if is_own and not activation.coordinator() and (warning := _sent.add(request.block, params)):
            SessionFolder(self.context.folder).note("requests-differ", text=warning)
        if "index" in params:
            self.params = {**params, "index": self.arm.named(params["index"] or "")}
        if self.arm.suffix and names_index(params.get("body")):  # of a log, or of the track's own code
            raise PlanError(f'task {request.block.task}: {NAMES_INDEX}; set design.nodes = "per-arm"')
        if self.arm.preference:
            self.params = _routed(self.params, self.arm.preference)

    @property
    def arm(self) -> Arm:
        return self.context.arm(self.request_.block.arm)

    async def connect(self) -> None:
        with self._uncounted():
            await self.client.info()

    async def prepare(self) -> None:
        """Set up the initial state of work with shards."""
        if isinstance(self.runner.inner, Recovery):
            with self._uncounted():
                lose = partial(root_steps(self.context).lose_node, self.arm.name)
                plan = self.context.plan
                self.params = await self.runner.inner.prepare(self.client, self.params, self.arm, plan, lose)
                self.context = activation.current()  # a lost node is another process now

    @contextmanager
    def _uncounted(self) -> Iterator[None]:
        """Do not count requests of the block as part of Rally's request."""
        holder = self.client.new_request_context().ctx_holder
        _, token = holder.init_request_context()
        try:
            yield
        finally:
            # restored by hand: leaving the manager would add this request's times to the measured one
            holder.restore_context(token)

    def make_cold(self) -> Drop:
        """Make all indices of the arm cold, with full buckets; records an event if they do not get cold."""
        nodes = self.arm.nodes
        if not nodes:
            raise SetupError(f"arm {self.arm.name}: has no node; a cold search needs one")
        most = self.context.plan.cache.max_resident
        # not through Rally's client, which would count it as service time
        indices = f"/{self.arm.named('_all')}/_cache/clear?expand_wildcards=open,hidden"
        clear = partial(api.post, nodes[0].port, indices)
        try:
            root = root_steps(self.context)
            return make_cold(nodes, max_resident=most, clear=clear, evict=lambda node: root.evict(node.arm))
        except MeasurementError:
            self._note("not-cold", task=self.request_.block.task)
            raise

    def record(self, drop: Drop) -> None:
        block = self.request_.block
        self._note("drop", task=block.task, round=block.round, **asdict(drop))

    async def request(self) -> dict[str, Any]:
        """Run Rally's runner while no samples are handed over; observe the volumes if it is their turn."""
        self._require_nodes()
        misses = self._misses()
        try:
            with turns.request(), self._perturbed():
                async with self._observed():
                    result = _as_dict(await self.runner.inner({"default": self.client}, self.params))
        except elasticsearch.ApiError:  # a query that no node can answer also ends a window
            self._answered(misses)
            raise
        self._answered(misses)
        if not self.params.get(DETAILS, True):
            result.pop("hits", None)  # Rally counts pages in any case
        if moved := result.pop("recovery", None):
            self._note("recovery", task=self.request_.block.task, round=self.request_.block.round, **moved)
        return result

    def _observed(self) -> AbstractAsyncContextManager[object]:
        if not self.request_.is_observed:
            return nullcontext()
        return observed(self.runner, self.request_.block)

    def _require_nodes(self) -> None:
        if not self.context.hosts_at:  # else their host checks them when it reads counters
            diagnosis.require_nodes(self.arm)

    @contextmanager
    def _perturbed(self) -> Iterator[None]:
        """Set reads' latency to the plan's factor for this round, during the block."""
        times = self.context.plan.read_latency_of(self.request_.block.round)
        if times == 1.0:
            yield
            return
        self._slow_reads(times)
        try:
            yield
        finally:
            self._slow_reads(1.0)

    def _slow_reads(self, times: float) -> None:
        for volume in self.arm.volumes:
            assert volume.control is not None  # plans that perturb have emulated arms only
            change(volume.control, read_latency=times)

    def _misses(self) -> MissRate | None:
        """Miss rates of a warm-up that repeats until they are steady; None for other blocks."""
        block, plan = self.request_.block, self.context.plan
        if plan.cache.mode != "steady" or block.phase is not Phase.WARMUP or plan.race is None:
            self.runner.misses = None
            return None
        if self.runner.misses is None or self.runner.misses[0] != block:
            window = plan.race.warmup_iterations
            self.runner.misses = block, MissRate(window, self._read_bytes(), self._cached_bytes())
        return self.runner.misses[1]

    def _answered(self, misses: MissRate | None) -> None:
        if misses is not None and not misses.is_over:
            self._count(misses)

    def _count(self, misses: MissRate) -> None:
        misses.requests += 1
        if not misses.ends_window:
            return
        misses.add(self._read_bytes(), self._cached_bytes())
        if misses.is_over:
            task, requests = self.request_.block.task, misses.requests
            kind, word = ("steady", "") if misses.is_steady else ("not-steady", "not ")
            text = f"{task}: misses were {word}steady after {number_of(requests, 'request')}"
            if word and misses.is_filling:
                text += ", the page cache was still filling; raise warmup_iterations, or lower page_cache"
            self._note(kind, task=task, text=text, requests=requests, read_bytes=misses.windows)

    def _read_bytes(self) -> float:
        """Bytes read by the arm's volumes so far. Raises SetupError if one has no device that counts."""
        counted = [device_counters(volume) for volume in self.arm.volumes]
        if not all(counted):
            raise SetupError(
                f"arm {self.arm.name}: has no device whose reads say when misses are steady; take warm"
            )
        return sum(each["device.read_bytes"] for each in counted)

    def _cached_bytes(self) -> float:
        """Bytes of the page cache in the arm's nodes; 0 if not counted."""
        files = [node.memory_cgroup / "memory.stat" for node in self.arm.nodes if node.memory_cgroup]
        return float(sum(parse_memory_stat(file.read_text(), str(file)).cache_bytes for file in files))

    def _note(self, kind: str, **fields: Any) -> None:
        SessionFolder(self.context.folder).note(kind, arm=self.arm.name, **fields)


class SearchElsewhere(Search):
    """The steps of one search on a load host, which asks the coordinator about the arm."""

    __slots__ = ("connection",)

    def __init__(self, runner_: OnArm, client: Any, request: Request, params: dict[str, Any]) -> None:
        super().__init__(runner_, client, request, params)
        self.connection: Connection | None = None  # connection over which the request is already observed

    def make_cold(self) -> Drop:
        """Also recorded there at once: nothing comes between it and the request."""
        drop, self.connection = _coordinator().make_cold(self.request_.block)
        return drop

    def _observed(self) -> AbstractAsyncContextManager[object]:
        if self.connection is None:
            return super()._observed()
        return _coordinator().observed(self.request_.block, self.connection)

    def record(self, drop: Drop) -> None:
        pass

    def _require_nodes(self) -> None:
        pass


def _coordinator() -> CoordinatorClient:
    remote = activation.coordinator()
    assert remote is not None, "only a process of a load host comes here"
    return remote


def observed(runner_: OnArm, block: Block) -> AbstractAsyncContextManager[object]:
    """Observe the arm's volume during a request in a round: every cold one, others now and then."""
    if not block.round:
        return nullcontext()
    context = activation.current()
    if not runner_.intervals[block.arm].is_over(every=context.plan.cache.mode == "cold"):
        return nullcontext()
    if remote := activation.coordinator():
        return remote.observed(block)
    return observed_here(block)


def observed_here(block: Block) -> AbstractAsyncContextManager[dict[str, Any]]:
    """Observe an arm's volumes, through its data host if there is one."""
    context = activation.current()
    members, folder = context.arm(block.arm).members, SessionFolder(context.folder)
    hosts = hosts_of(context)
    if not hosts:  # hosts check this themselves
        diagnosis.require_nodes(context.arm(block.arm))
    counters = partial(hosts.counters, block.arm) if hosts else None
    return observe(members, folder, block, read_page=read_page(), counters=counters)


class BetweenRequests:
    """Work on an arm as a Rally task: visible, in the results, and ended by Ctrl-C."""

    multi_cluster = True

    async def __aenter__(self) -> "BetweenRequests":
        return self

    async def __aexit__(self, *exc: object) -> bool:
        return False

    async def __call__(self, es: Any, params: dict[str, Any]) -> dict[str, Any]:
        block: Block = params[BLOCK]
        remote = activation.coordinator()
        es["default"].on_request_start()
        try:
            await asyncio.to_thread(remote.between if remote else do_between, block)
        finally:
            es["default"].on_request_end()
        return {"weight": 1, "unit": "ops", "cluster": block.cluster, block.work.value: block.task}

    def __str__(self) -> str:
        return "what is done between requests"


def do_between(block: Block) -> None:
    """Do the work of a block without requests."""
    context = activation.current()
    arm = context.arm(block.arm)
    try:
        _BETWEEN[block.work](context, arm, block)
    except EbsError as error:
        _record_fault(error, arm.name)
        raise


def _fio_baseline(context: Context, arm: Arm, block: Block) -> None:
    job = next(job for job in context.plan.baseline if job.name == block.task)
    if hosts := hosts_of(context):
        hosts.measure(arm.name, job, block.round)
    else:
        measure_baseline(context, arm, job, block.round)


def _bring_back(context: Context, arm: Arm, block: Block) -> None:
    facts = asdict(root_steps(context).bring_back(arm.volume.spec.name))
    facts |= {"task": block.task, "round": block.round, "writes": block.writes}
    SessionFolder(context.folder).note("brought-back", arm=arm.name, **facts)


def _start_nodes(context: Context, arm: Arm, block: Block) -> None:
    began_s = time.monotonic()
    root_steps(context).restart_nodes()
    name = f"start nodes, {block.start} of {context.plan.design.starts}"
    SessionFolder(context.folder).note("stage", name=name, seconds=time.monotonic() - began_s)


def register(registry: Any) -> None:
    """Wrap all of Rally's runners, and those that the track registers later, and add ours."""
    rallys = registry.runner_registry

    def register_on_arm(operation: Any, inner: Any, **settings: Any) -> None:
        rallys(operation, inner, **settings)
        name = operation.to_hyphenated_string() if isinstance(operation, OperationType) else operation
        rallys(name, OnArm(runner.runner_for(name)), async_runner=True)

    for operation in list(vars(runner)["__RUNNERS"]):
        rallys(operation, OnArm(runner.runner_for(operation)), async_runner=True)
    rallys(RECOVERY, OnArm(Recovery()), async_runner=True)
    for operation in (FIO, START, BRING_BACK):
        rallys(operation, BetweenRequests(), async_runner=True)
    registry.runner_registry = register_on_arm


def _writes(params: Any) -> Iterator[str]:
    """Raw requests among these, also of a composite operation, that change something, as "PUT /path"."""
    if not isinstance(params, dict):  # an own runner's
        return
    for key in _STREAMS:
        if isinstance(params.get(key), list):
            for part in params[key]:
                yield from _writes(part)
    method, path = str(params.get("method", "GET")).upper(), str(params.get("path", ""))
    ends = method == "DELETE" and _OF_A_SEARCH.search(path)
    if path and not ends and (method in ("PUT", "DELETE") or (method == "POST" and _WRITING.search(path))):
        yield f"{method} {path.partition('?')[0]}"


def _routed(params: Any, preference: str) -> Any:
    """The request with its arm's preference: its own might select other copies of shards on another arm."""
    if not isinstance(params, dict):  # an own runner's
        return params
    for key in _STREAMS:
        if isinstance(params.get(key), list):
            return {**params, key: [_routed(part, preference) for part in params[key]]}
    path, has_query, query = str(params.get("path", "")).partition("?")
    asks = "index" in params and params.get("operation-type") != "field-caps"  # which takes no preference
    if "with-point-in-time-from" in params or not (asks or _TAKES_PREFERENCE.search(path)):
        return params
    own = parse_qsl(query, keep_blank_values=True) if has_query else params.get("request-params")
    given = dict(own or {})
    only = _SHARDS.match(str(given.get("preference", "")))  # selects shards, not copies
    given["preference"] = f"{only[0]}|{preference}" if only else preference
    if has_query:  # Rally would add a second question mark to the path
        return {**params, "path": f"{path}?{urlencode(given, quote_via=quote)}"}
    return {**params, "request-params": given}


def _as_dict(result: Any) -> dict[str, Any]:
    if isinstance(result, dict):
        return result
    if isinstance(result, tuple):
        return {"weight": result[0], "unit": result[1]}
    return {"weight": 1, "unit": "ops"}


def fault_of(arm: str, error: Exception) -> EbsError | None:
    """Record an error; returns the error to raise instead, or None if nothing of ours is broken."""
    fault = diagnosis.explain(error, root_steps(activation.current()).cause(arm))
    if fault is not None:
        _record_fault(fault, arm)
    return fault


def _record_fault(error: EbsError, arm: str) -> None:
    """Record it, so that race control can report this error with its own words and exit code."""
    folder = SessionFolder(activation.current().folder)
    folder.note("fault", arm=arm, text=str(error), exit_code=error.exit_code)


_sent = SentRequests()
_STREAMS = ("requests", "stream")  # keys of a composite operation's parts
_OF_A_SEARCH = re.compile(r"/_(search/scroll|pit|async_search|(query|sql)/async|eql/search)\b")
_WRITING = re.compile(
    r"/_(doc|create|update|bulk|(update|delete)_by_query|reindex|refresh|flush|forcemerge|aliases|rollover|open"
    r"|close|scripts)(/|\?|$)"
)  # path of a POST
_TAKES_PREFERENCE = re.compile(
    r"/_((search|count|termvectors)$|(doc|source|explain|termvectors)/)"
)  # path of a raw request
_SHARDS = re.compile(r"_shards:[^|]*")  # part of a preference
_BETWEEN: dict[Work, Callable[[Context, Arm, Block], None]] = {
    Work.FIO: _fio_baseline,
    Work.START: _start_nodes,
    Work.BRING_BACK: _bring_back,
}
