"""The requests of a block: which of a log or a track, when they are due, and Rally's source of them.

All arms of a round get the same requests; each round gets others, except in plans that compare slower reads
with usual ones.
"""

import copy
import marshal
import os
import random
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from esrally.track import params as rally_params
from numpy.random import bit_generator

from esrally_ebs.errors import PlanError
from esrally_ebs.model import Block, Phase, Request, Work
from esrally_ebs.plan import Plan
from esrally_ebs.rally import knee, open_loop
from esrally_ebs.session import protocol
from esrally_ebs.workload.corpus import vectors
from esrally_ebs.workload.queries import replay

BLOCK = "ebs"  # key of a task's Block in its operation's parameters, and in race.json
NAMES_INDEX = "its body names an index, which has another name on each arm"
WARM_UPS = "ebs-warm-ups"  # key: number of each client's first requests, which are not observed
_TURNS = "ebs-turns"  # key: blocks whose requests alternate, and the seed of their order
_CHANCE = "ebs-chance"  # key: seed for the track's own parameter sources, the same on all arms
_INNER = "ebs-inner"  # key: type, parameter source and name of the operation in Rally
PARAM_SOURCE = "ebs-on-arm"
_ATOMS = frozenset((int, float, str, bool, type(None)))  # types of what is not copied
DETAILS = "detailed-results"  # Rally's key: whether hits and took are read from a search's answer


def operation_of(task: Any, name: str, block: Block, blocks: tuple[Block, ...], plan: Plan) -> Any:
    """The task's operation as one of ours: for one arm, or alternating between ``blocks``."""
    operation = copy.copy(task.operation)
    operation.params = {
        **operation.params,
        BLOCK: block,
        _TURNS: (blocks, f"{plan.design.seed} {name}", plan.design.order == "fixed"),
        _CHANCE: f"{plan.design.seed} {block.task} {0 if _same_again(plan) else block.round}",
        _INNER: operation.params.get(_INNER) or (_source_of(operation, name),),
    }
    operation.param_source = PARAM_SOURCE
    return operation


def of_several(searches: Sequence[Any]) -> dict[str, Any]:
    """Parameters of an operation that sends these searches in turn."""
    return {_INNER: tuple(_source_of(task.operation, task.name) for task in searches)}


def _source_of(operation: Any, name: str) -> tuple[Any, ...]:
    """An operation's type, parameter source, name and parameters, which make its requests."""
    return operation.type, operation.param_source, name, operation.params


def choose(clone: Any, task: Any, block: Block, plan: Plan, *, is_beside: bool) -> None:
    """Choose the requests of a block of searches, and when they are due.

    Searches beside writes warm up at their rate: this gives the writes, which end with them, enough time.
    """
    source = task.operation.param_source
    if source == vectors.PARAM_SOURCE:  # points in the documents' clusters
        clone.operation.params.setdefault("seed", plan.dataset.seed)
    if block.task == protocol.QUERIES:
        knee.apply(clone, block, plan)
        if source in (replay.PARAM_SOURCE, vectors.PARAM_SOURCE):
            _begin_elsewhere(clone, block, plan)
    else:
        _choose_of_task(clone, task, block, plan, is_beside=is_beside)


def _choose_of_task(clone: Any, task: Any, block: Block, plan: Plan, *, is_beside: bool) -> None:
    measures = block.phase is Phase.MEASURE
    is_log = task.operation.param_source == replay.PARAM_SOURCE
    is_template = is_log and "template" in task.operation.params
    if measures and task.operation.param_source == vectors.PARAM_SOURCE:
        _begin_elsewhere(clone, block, plan)
    if measures and is_template and plan.race and not _same_again(plan):
        # other requests in each round, the same on all arms; Rally counts iterations per client
        clone.operation.params["first"] = (block.round - 1) * plan.race.iterations * task.clients
    if open_loop.is_open(task, plan):
        if measures:
            open_loop.apply(clone, block, plan)
        else:
            open_loop.lift(clone, keeps_rate=is_beside)
    elif is_log and not is_template:
        if not measures:
            clone.operation.params["cycle"] = True
        elif task.iterations is None:
            open_loop.take_piece(clone, block, plan)


def _begin_elsewhere(clone: Any, block: Block, plan: Plan) -> None:
    """Make a round ask what no other round or warm-up asked, whose pages may be in memory."""
    if not _same_again(plan):
        place = random.Random(f"{plan.design.seed} {block.task} {block.round}")
        clone.operation.params["first"] = place.getrandbits(32)


def require_requests(track: Any, schedule: Iterable[Any]) -> None:
    """Raise PlanError if an imported log lacks requests that these tasks ask for."""
    for task in (task for element in schedule for task in element):
        params = task.operation.params
        if all(source != replay.PARAM_SOURCE for _, source, *_ in params.get(_INNER, ())):
            continue
        log = replay.Replay(track, {"piece": params["piece"]} if "piece" in params else {})
        warms = task.clients * (task.warmup_iterations - (open_loop.OPEN in params))
        if "piece" in params and len(log) <= warms:
            raise PlanError(
                f"task {params[BLOCK].task}: each round has {len(log)} requests of the log, and {warms} are "
                "to warm up after its arm is brought back; set fewer rounds or warmup_iterations"
            )


def _same_again(plan: Plan) -> bool:
    """Whether all rounds ask the same: slower reads are compared with usual ones."""
    return plan.cache.mode == "warm" or plan.trace == "perturb"


class RequestSource:
    """Rally's own parameter source, plus a Request in ``params["ebs"]``.

    Rally's sources keep only known keys, so this one adds its own to their results.
    """

    def __init__(
        self,
        track: Any,
        params: dict[str, Any],
        *,
        inner: Any = None,
        client: int = 0,
        clients: int = 1,
        **_: Any,
    ) -> None:
        self.client = client
        self._clients = clients
        self._track = track
        self._params = params
        blocks, seed, fixed = params[_TURNS]
        self._orders = protocol.orders(blocks, seed=seed, fixed=fixed)
        self._turns: list[Block] = []  # left of this pair
        self._pairs = 0
        self._request: dict[str, Any] = {}
        is_search = params[BLOCK].work is Work.SEARCH
        # tracks' own sources pass on what they know; without this key no hits are compared
        self._details = {key: params[key] for key in (DETAILS,) if is_search and key in params}
        if inner is None:
            _seed(params[_CHANCE])
            with _no_entropy():
                inner = _inner(track, params)
        self.inner = inner
        self._chance = _chance()  # seed of writes

    def partition(self, index: int, total: int) -> "RequestSource":
        """The part for one client, which counts its own requests."""
        _seed(f"{self._params[_CHANCE]} {index}")  # other workers have other clients
        with _no_entropy():
            inner = self.inner.partition(index, total)
        return RequestSource(self._track, self._params, inner=inner, client=index, clients=total)

    @property
    def infinite(self) -> bool:
        """Whether Rally decides when it ends; writes beside a search end with the search."""
        return not self._is_beside and bool(self.inner.infinite)

    def params(self) -> dict[str, Any]:
        """The next request, the same for each arm of a pair."""
        if not self._turns:
            self._turns = next(self._orders)
            self._pairs += 1
            # a connecting request precedes the schedule, and uses no part of a log's piece
            leads = self._pairs == 1 and open_loop.OPEN in self._params and "piece" in self._params
            with _no_entropy():
                self._request = self._next(copy.copy(self.inner) if leads else self.inner)
        block = self._turns.pop(0)
        # Rally's runners change their parameters: a paginated search leaves its last position in the body
        request = _copied(self._request) if block.work is Work.SEARCH else self._request
        is_observed = self._pairs > self._params.get(WARM_UPS, 0)
        own = Request(block=block, number=self._pairs, is_observed=is_observed)
        return {**request, **self._details, BLOCK: own}

    def _next(self, source: Any) -> Any:
        if not self._is_beside:
            return source.params()
        others = _chance()  # of a search in this process; arms would interrupt it at different points
        _resume(self._chance)
        try:
            return self._write()
        finally:
            self._chance = _chance()
            _resume(others)

    def _write(self) -> Any:
        with suppress(StopIteration):
            return self.inner.params()
        # a track's own source does not know that it must start over
        self.inner = _inner(self._track, self._params).partition(self.client, self._clients)
        return self.inner.params()

    @property
    def _is_beside(self) -> bool:
        return bool(self._params[BLOCK].phase is Phase.BESIDE)

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # not set yet while unpickling
            raise AttributeError(name)
        return getattr(self.inner, name)


def _copied(part: Any) -> Any:
    """A deep copy, of a vector in a twentieth of the time: other clients of this process wait meanwhile."""
    if type(part) is dict:
        return {key: _copied(value) for key, value in part.items()}
    if type(part) is list:
        return part.copy() if _ATOMS.issuperset(map(type, part)) else [_copied(each) for each in part]
    return copy.deepcopy(part)


def _seed(text: str) -> None:
    """Seed the generators that a track's own parameter source may draw from, or seed itself."""
    random.seed(text)
    np.random.seed(random.Random(text).getrandbits(32))


@contextmanager
def _no_entropy() -> Iterator[None]:
    """Lets a source draw from what all arms draw alike, also where it asks the kernel for chance.

    As ``random.Random()`` does for its seed, and ``uuid``, ``secrets`` and ``random.SystemRandom`` always.
    """

    def drawn(seed: Any) -> Any:
        return random.getrandbits(32) if seed is None else seed

    of_object, of_module, of_numpy = random.Random.seed, random.seed, np.random.seed
    replaced: tuple[tuple[Any, str, Any], ...] = (
        (random.Random, "seed", lambda self, a=None, version=2: of_object(self, drawn(a), version)),
        (random, "seed", lambda a=None, version=2: of_module(drawn(a), version)),
        (np.random, "seed", lambda seed=None: of_numpy(drawn(seed))),
        (bit_generator, "randbits", random.getrandbits),  # of default_rng() and RandomState()
        (os, "urandom", random.randbytes),
        (random, "_urandom", random.randbytes),  # of SystemRandom, which secrets uses
    )
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in replaced]
    for owner, name, own in replaced:
        setattr(owner, name, own)
    try:
        yield
    finally:
        for owner, name, original in before:
            setattr(owner, name, original)


def _chance() -> tuple[Any, Any]:
    return random.getstate(), np.random.get_state()


def _resume(chance: tuple[Any, Any]) -> None:
    random.setstate(chance[0])
    np.random.set_state(chance[1])


def names_index(body: object) -> bool:
    """Whether a search uses an index's name: in a filter, a boost, or a terms lookup."""
    if isinstance(body, Mapping):
        named = not {"_index", "indices_boost"}.isdisjoint(body) or {"index", "id"} <= body.keys()
        return named or any(map(names_index, body.values()))
    if isinstance(body, str):  # a query_string's
        return "_index:" in body
    return isinstance(body, list) and any(map(names_index, body))


class SentRequests:
    """Checksums of what this process's clients send in a task of a round: all arms must get the same.

    In any order, since clients take turns differently on each arm.
    """

    def __init__(self) -> None:
        self._of = "", 0  # task and round
        self._sums: dict[str, tuple[int, int]] = {}  # by arm: number of requests, and sum of checksums
        self._warned: set[str] = set()

    def add(self, block: Block, params: Mapping[str, Any]) -> str:
        """Add a request; returns a warning once an arm sent as many in this round as another, but others.

        At most one for each task. What cannot be compared, such as a date, counts as the same.
        """
        if self._of != (block.task, block.round):
            self._of, self._sums = (block.task, block.round), {}
        checksum = 0
        with suppress(ValueError):
            own = {key: value for key, value in params.items() if key != BLOCK}
            checksum = zlib.crc32(marshal.dumps(own, 2))  # later versions tell equal objects apart
        number, sum_ = self._sums.get(block.arm, (0, 0))
        self._sums[block.arm] = number + 1, sum_ + checksum
        # if this arm goes on and sends more than they, it differs in any case
        others = {each for arm, each in self._sums.items() if arm != block.arm and each[0] == number + 1}
        if others <= {self._sums[block.arm]} or block.task in self._warned:
            return ""
        self._warned.add(block.task)
        return (
            f"{block.task}: arms were sent different requests, first in round {block.round}; let its "
            "parameter source keep what it counts or draws from in itself, not in its module, and ask "
            "no clock"
        )


class _InTurn:
    """Parameter sources of several searches: one request of each in turn."""

    infinite = False  # steps decide when it ends

    def __init__(self, sources: Sequence[Any], client: int = 0) -> None:
        self._sources = sources
        self._next = client

    def partition(self, index: int, total: int) -> "_InTurn":
        """The part for one client; each client begins with another search."""
        return _InTurn([source.partition(index, total) for source in self._sources], index)

    def params(self) -> Any:
        source = self._sources[self._next % len(self._sources)]
        self._next += 1
        return source.params()


def _inner(track: Any, params: dict[str, Any]) -> Any:
    # not our own keys: tracks' own sources would send them on
    own = {key: value for key, value in params.items() if not key.startswith(BLOCK)}
    sources = []
    for type_, source, name, of_track in params[_INNER]:
        merged = {**of_track, **own}
        if params[BLOCK].task == protocol.QUERIES and "first" in own:
            # else a client's searches would ask for one point each in turn, whose pages the first has read
            merged["first"] = random.Random(f"{own['first']} {name}").getrandbits(32)
        if merged.get(DETAILS) is False:
            merged.pop("assertions", None)  # Rally would refuse assertions about hits then
        if source:
            sources.append(rally_params.param_source_for_name(source, track, merged))
        else:
            sources.append(rally_params.param_source_for_operation(type_, track, merged, name))
    return _InTurn(sources) if params[BLOCK].task == protocol.QUERIES else sources[0]
