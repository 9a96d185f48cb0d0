"""A challenge's schedule -> the session's: the blocks of ``session.protocol`` as tasks of Rally.

Pure: tracks in, tracks out. Every process that loads the track computes the same schedule.
"""

import copy
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from esrally import track as rally_track
from esrally.track import params as rally_params

from esrally_ebs.analysis import steady
from esrally_ebs.errors import PlanError
from esrally_ebs.model import Block, Phase, Request, Work
from esrally_ebs.plan import Plan
from esrally_ebs.rally import open_loop
from esrally_ebs.session import protocol
from esrally_ebs.workload.queries import replay

BLOCK = "ebs"  # key of a task's Block in its operation's parameters, and of what race.json says of it
_TURNS = "ebs-turns"  # key of the blocks whose requests take turns, and of how their order is drawn
_INNER = "ebs-inner"  # key of type, parameter source and name that Rally knows the operation by
SEARCH_TYPES = ("search", "paginated-search", "scroll-search", "composite-agg", "sql", "esql", "field-caps")
_OF_AN_INDEX = (
    "search",
    "paginated-search",
    "scroll-search",
    "composite-agg",
)  # it is one of their parameters
_READING = re.compile(r"_(search|msearch|count|knn_search|sql|query|eql/search)\b")  # paths of raw requests
FIO = "fio-baseline"
PARAM_SOURCE = "ebs-on-arm"


def divide(schedule: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """What makes the indices (it may have ``parallel`` elements), and the searches that follow.

    Raises PlanError for tasks that arms cannot be compared by.
    """
    begins = next((number for number, element in enumerate(schedule) if _searches(element)), len(schedule))
    for element in schedule[begins:]:
        names = ",".join(task.name for task in element)
        if element.nested:
            raise PlanError(
                f"tasks {names}: run in parallel, so that how long a search takes depends on what the others "
                f"do just then, on each volume something else; leave some out with --exclude-tasks={names}"
            )
        if not _searches(element) and not _is_of_the_track(element):
            raise PlanError(
                f"task {names} ({element.operation.type}): stands after a search, where every round would do "
                f"it again on each arm; put it before the searches or leave it out: --exclude-tasks={names}"
            )
    return list(schedule[:begins]), list(schedule[begins:])


def _searches(element: Any) -> bool:
    return any(
        task.operation.type in SEARCH_TYPES
        or (task.operation.type == "raw-request" and _READING.search(str(task.operation.params.get("path"))))
        for task in element
    )


def _is_of_the_track(task: Any) -> bool:
    """Whether Rally has no such operation: a runner of the track's own, of which a search may be made."""
    return task.operation.type not in {kind.to_hyphenated_string() for kind in rally_track.OperationType}


def expand(schedule: Sequence[Any], plan: Plan) -> list[Any]:
    """The tasks of a whole session from the (already filtered) tasks of a challenge.

    Searches are repeated in rounds; what makes their indices is left out, for the arms get copies. Without
    searches, all tasks run once per arm. Raises PlanError for tasks that cannot be ordered so.
    """
    building, searches = divide(schedule)
    if "default" in [arm.name for arm in plan.arm[1:]]:
        raise PlanError(
            "arm name 'default': only the first arm may have it; Rally gives that name to its first cluster"
        )
    if not searches and any(element.nested for element in building):
        raise PlanError(
            "the challenge has a 'parallel' element; indexing can only be compared task by task: remove it"
        )
    indexing = [] if searches else building
    tasks = {task.name: task for task in (*indexing, *searches)}
    blocks = protocol.blocks(
        plan, indexing=[task.name for task in indexing], searches=[task.name for task in searches]
    )
    if plan.design.nodes == "one":
        together = [tuple(group) for _, group in groupby(blocks, key=_without_arm)]
    else:
        together = [(block,) for block in blocks]
    return [
        _fio(group[0]) if group[0].work is Work.FIO else _task(group, tasks[group[0].task], plan)
        for group in together
    ]


def _without_arm(block: Block) -> Block:
    """What blocks have in common whose requests take turns; fio takes none."""
    return block if block.work is Work.FIO else replace(block, arm="", cluster="")


def require_pairs(schedule: Sequence[Any]) -> None:
    """Raise PlanError for a task that one node cannot serve to all arms in pairs of requests."""
    for task in schedule:
        why = "" if task.clients == 1 else f"{task.clients} clients would ask several arms at once"
        if task.operation.type not in _OF_AN_INDEX:
            why = f"{task.operation.type} has no index that could be another on each arm"
        if why:
            raise PlanError(f'task {task.name}: {why}; set design.nodes = "per-arm"')


def block_of(task: Any) -> Block | None:
    """What a task of Rally measures; None for a task that is not ours."""
    block: Block | None = task.operation.params.get(BLOCK)
    return block


def round_of(task: Any) -> int:
    """The round of a measured search; 0 of everything else."""
    block = block_of(task)
    return block.round if block and block.work is Work.SEARCH else 0


def _task(blocks: tuple[Block, ...], task: Any, plan: Plan) -> Any:
    """A task of one arm; or of several, whose requests take turns."""
    block = replace(blocks[0], arm="+".join(block.arm for block in blocks))
    clone = copy.copy(task)
    phase = "-warmup" if block.phase is Phase.WARMUP else f"-r{block.round}" if block.round else ""
    clone.name = f"{block.task}{phase}" if len(blocks) > 1 else f"{block.task}-{block.arm}{phase}"
    clone.params = dict(task.params)
    clone.tags = list(task.tags)
    clone.meta_data = {**task.meta_data, **_meta_data(block)}
    if block.work is Work.SEARCH and plan.race:
        measures = block.phase is Phase.MEASURE
        windows = steady.MAX_WINDOWS if plan.cache.mode == "steady" else 1  # at most: see runners.OnArm
        # code that one node has compiled serves all arms, so they share its warm-up
        pairs = plan.race.iterations if measures else -(-windows * plan.race.warmup_iterations // len(blocks))
        count = pairs * len(blocks)
        # Rally makes at least one request after a task's warm-up; ours all count as warm-up
        clone.warmup_iterations, clone.iterations = (0, count) if measures else (count - 1, 1)
        clone.warmup_time_period = clone.time_period = clone.ramp_up_time_period = None  # counts decide
    seed = f"{plan.design.seed} {clone.name}"
    operation = clone.operation = copy.copy(task.operation)
    operation.params = {
        **operation.params,
        BLOCK: block,
        _TURNS: (blocks, seed, plan.design.order == "fixed"),
        _INNER: (operation.type, operation.param_source, clone.name),
    }
    if block.work is Work.SEARCH:
        operation.params["detailed-results"] = True  # hits and took, read after the service time
        _choose_requests(clone, task, block, plan)
    operation.param_source = PARAM_SOURCE
    return clone


def _choose_requests(clone: Any, task: Any, block: Block, plan: Plan) -> None:
    """Which requests a block asks, and when they are due."""
    measures = block.phase is Phase.MEASURE
    if open_loop.is_open(task, plan):
        if measures:
            open_loop.apply(clone, block, plan)
        else:
            open_loop.lift(clone)
    elif _asks_whole_log(task):
        if measures:
            open_loop.take_piece(clone, block, plan)
        else:
            clone.operation.params["cycle"] = True


def _asks_whole_log(task: Any) -> bool:
    """Whether an imported log decides how many requests there are."""
    is_log = task.operation.param_source == replay.PARAM_SOURCE and "template" not in task.operation.params
    return is_log and task.iterations is None


def _fio(block: Block) -> Any:
    params = {BLOCK: block, "include-in-reporting": False}
    operation = rally_track.Operation(f"fio-{block.task}", FIO, params=params, param_source=None)
    suffix = f"-end{'' if block.round == 1 else block.round}" if block.round else ""
    return rally_track.Task(f"fio-{block.task}-{block.arm}{suffix}", operation, meta_data=_meta_data(block))


def _meta_data(block: Block) -> dict[str, Any]:
    """For race.json and Rally's metrics store, which take nothing but JSON."""
    fields = {"arm": block.arm, "cluster": block.cluster, "round": block.round, "task": block.task}
    return {BLOCK: {**fields, "phase": block.phase.value}}


class RequestSource:
    """Rally's own parameter source, with the Request in ``params["ebs"]``.

    Rally's sources keep only the keys that they know, so this one adds its own to what they give.
    """

    def __init__(
        self, track: Any, params: dict[str, Any], *, inner: Any = None, client: int = 0, **_: Any
    ) -> None:
        self.client = client
        self._track = track
        self._params = params
        blocks, seed, fixed = params[_TURNS]
        self._orders = protocol.orders(blocks, seed=seed, fixed=fixed)
        self._turns: list[Block] = []  # that are left of this pair
        self._pairs = 0
        self._request: dict[str, Any] = {}
        self.inner = inner if inner is not None else _inner(track, params)

    def partition(self, index: int, total: int) -> "RequestSource":
        """The part of one client; it counts its own requests."""
        inner = self.inner.partition(index, total)
        return RequestSource(self._track, self._params, inner=inner, client=index)

    def params(self) -> dict[str, Any]:
        """The next request: the same for each arm of a pair."""
        if not self._turns:
            self._turns = next(self._orders)
            self._pairs += 1
            # what opens a connection comes before the schedule, and takes nothing from it
            leads = self._pairs == 1 and open_loop.OPEN in self._params
            self._request = (copy.copy(self.inner) if leads else self.inner).params()
        block = self._turns.pop(0)
        # a runner may change what it is given
        request = copy.deepcopy(self._request) if self._turns else self._request
        return {**request, BLOCK: Request(block=block, number=self._pairs)}

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # not yet set while unpickling
            raise AttributeError(name)
        return getattr(self.inner, name)


def _inner(track: Any, params: dict[str, Any]) -> Any:
    type_, source, name = params[_INNER]
    if source:
        return rally_params.param_source_for_name(source, track, params)
    return rally_params.param_source_for_operation(type_, track, params, name)
