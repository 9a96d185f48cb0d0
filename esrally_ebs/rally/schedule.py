"""Turns a challenge's schedule into the session's: the blocks of ``session.protocol`` as Rally tasks.

Pure: tracks in, tracks out. Every process that loads the track computes the same schedule.
"""

import copy
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import compress, groupby, takewhile
from typing import Any
from urllib.parse import unquote

from esrally import track as rally_track
from esrally.driver import scheduler

from esrally_ebs.analysis import steady
from esrally_ebs.errors import PlanError
from esrally_ebs.model import Block, Phase, Work
from esrally_ebs.plan import Plan
from esrally_ebs.rally import knee, open_loop, recovery, request_source
from esrally_ebs.rally.request_source import BLOCK, NAMES_INDEX, names_index
from esrally_ebs.rally.settings import naming, updated
from esrally_ebs.session import protocol
from esrally_ebs.session.root_steps import MAX_LENT
from esrally_ebs.workload.queries import replay

SEARCH_BESIDE = "ebs-beside"  # key: name and clients of the search that writes run beside
_IDLE = ("sleep", "cluster-health", "index-stats", "node-stats", "transform-stats", "refresh")
_AROUND = ("sleep", "open-point-in-time", "close-point-in-time")  # in a composite operation, beside searches
_ASYNCHRONOUS = ("submit-async-search", "get-async-search", "delete-async-search")
PAGED = ("paginated-search", "scroll-search", "composite-agg")
_OF_AN_INDEX = ("search", *PAGED)  # the index is a parameter
SEARCHES = (*_OF_AN_INDEX, "sql", "esql", "esql-profile", "field-caps")
_READING = re.compile(  # paths of raw requests
    r"(?:^|/)_(search|msearch|count|knn_search|sql|query|eql/search|field_caps|mget|mvt|terms_enum|rank_eval"
    r"|explain|termvectors|rollup_search|graph/explore)\b"
)
# type and path
_ADDS = re.compile(r"^(bulk|restore-snapshot) |/_(bulk|doc|create|update|reindex|restore|mount)\b")
_OF_A_DOCUMENT = re.compile(r"/_(doc|source)/")  # a document by its id; reads only with GET
FIO, BRING_BACK, START = "fio-baseline", "bring-back", "start-nodes"
OURS = {open_loop.NAME, open_loop.DRAWN, knee.NAME, request_source.PARAM_SOURCE, FIO, BRING_BACK, START}
_BY_NAME = "disk-usage-stats"  # Rally's telemetry device that fails for renamed indices
SEARCH_TAG = "search"  # tag of a task that searches, if nothing else tells


def divide(schedule: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Elements that build the indices (perhaps ``parallel`` ones), and the searches that follow.

    Leaves out idle tasks after a search. Raises PlanError for tasks by which arms cannot be compared.
    """
    building = before_searches(schedule)
    searches = [each for each in map(_without_idle, schedule[len(building) :]) if not is_idle(each)]
    after = [each for each in searches if not (each.nested or is_search(each) or _is_untold(each))]
    if after:
        listed = ", ".join(f"{task.name} ({task.operation.type})" for task in after)
        rest = schedule[schedule.index(after[0]) :]
        later = [task.name for element in rest for task in element if is_search(task)]
        only = naming(later, "--include-tasks")
        with_it = f"; searches after it are then asked without it; alone, after it: {only}"
        raise PlanError(
            f"task {listed}: after a search, where every round would do it again on each arm; put it before "
            f"the searches or leave it out: {naming(task.name for task in after)}"
            f"{bool(later) * with_it}{_tag_of(after)}"
        )
    for element in (each for each in searches if each.nested):
        _require_writes_beside(element)
    return building, searches


def _without_idle(element: Any) -> Any:
    """A ``parallel`` element without its idle tasks; where some write, a refresh is none."""
    if not element.nested:
        return element
    writes = any(task.operation.type == "bulk" for task in element)
    counts = [not is_idle([task]) or (writes and task.operation.type == "refresh") for task in element]
    return rally_track.Parallel(list(compress(element, counts)))


def before_searches(schedule: Sequence[Any]) -> list[Any]:
    """What makes the indices: all before the first element that has a search."""
    return list(takewhile(lambda element: not any(map(is_search, element)), schedule))


def before_tasks(schedule: Sequence[Any], names: Set[str]) -> list[Any]:
    """Elements that build the indices for searches of these names: all before the first one, except searches.

    Leaves out what runs beside searches, as that is undone. Tasks of which nothing tells whether they search
    count as in ``divide``: as searches, if they follow one.
    """
    before = list(takewhile(lambda element: names.isdisjoint(task.name for task in element), schedule))
    building = before_searches(before)
    later = [element for element in before[len(building) :] if not any(map(is_search, element))]
    return building + [element for element in later if not all(map(_is_untold, element))]


def may_index(building: Iterable[Any]) -> bool:
    """Whether any of these tasks adds documents, or might."""
    tasks = [task for element in building for task in element]
    return any(_is_untold(task) or _adds(task.operation.type, task.operation.params) for task in tasks)


def _adds(kind: Any, params: Mapping[str, Any]) -> bool:
    if kind == "composite":
        return any(_adds(part.get("operation-type"), part) for part in _parts(params))
    deletes = str(params.get("method")).upper() == "DELETE"
    return not deletes and bool(_ADDS.search(f"{kind} {params.get('path')}"))


def is_search(task: Any) -> bool:
    operation = task.operation
    if SEARCH_TAG in task.tags and _may_search(task):
        return True
    if operation.type == "composite":
        asked = [_asks(part.get("operation-type"), part) for part in _parts(operation.params)]
        return any(asked) and None not in asked
    return operation.type == recovery.RECOVERY or bool(_asks(operation.type, operation.params))


def _asks(kind: Any, params: Mapping[str, Any]) -> bool | None:
    """Whether an operation searches; None if it may change something."""
    if kind in _AROUND:
        return False
    method, path = str(params.get("method", "GET")).upper(), str(params.get("path"))
    asks = (method in ("GET", "POST") and _READING.search(path)) or (
        method == "GET" and _OF_A_DOCUMENT.search(path)
    )
    return True if kind in SEARCHES or (kind == "raw-request" and asks) else None


def _parts(params: Mapping[str, Any]) -> list[Any]:
    """All operations in a composite one, at any depth of its streams."""
    parts = params.get("requests", params.get("stream", ()))
    return [each for part in parts for each in (_parts(part) if "stream" in part else [part])]


def _require_writes_beside(element: Any) -> None:
    """Raise PlanError unless a ``parallel`` element has searches, perhaps with bulk tasks beside them."""
    others = [task for task in element if not is_search(task)]
    for task in (task for task in others if task.operation.type != "bulk"):
        raise PlanError(
            f"task {task.name} ({task.operation.type}): runs beside others, where only searches and bulk "
            f"tasks can be repeated on each arm; leave it out with {naming([task.name])}{_tag_of([task])}"
        )
    if others == list(element):
        names = [task.name for task in element]
        raise PlanError(
            f"tasks {','.join(names)}: index after a search, which every round would repeat on each arm; "
            f"put them before the searches, or searches beside them, or leave them out: {naming(names)}"
        )


def loads(schedule: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Load of each task by its name."""
    measured = [task for element in schedule for task in element if is_search(task) or not element.nested]
    tasks = {task.name: task for task in measured}
    for writes in writes_of(schedule).values():
        tasks |= writes
    return {name: open_loop.load_of(task) for name, task in tasks.items()}


def is_idle(tasks: Iterable[Any]) -> bool:
    """Whether none of these tasks is a search, or changes what one meets."""
    for task in tasks:
        params, is_raw = task.operation.params, task.operation.type == "raw-request" and not is_search(task)
        reads = is_raw and "path" in params and str(params.get("method", "GET")).upper() in ("GET", "HEAD")
        if task.operation.type not in _IDLE and not reads:
            return False
    return True


def _is_untold(task: Any) -> bool:
    """Whether nothing tells if a task searches: an operation unknown to Rally, or requests made by code."""
    operation = task.operation
    if operation.type == "composite":
        return not _parts(operation.params)
    if operation.type == "raw-request":
        return "path" not in operation.params
    return operation.type not in {kind.to_hyphenated_string() for kind in rally_track.OperationType}


def _may_search(task: Any) -> bool:
    """Whether a task that claims to search may: nothing tells, or it leaves its results in the node."""
    parts = _parts(task.operation.params) if task.operation.type == "composite" else ()
    others = [part for part in parts if part.get("operation-type") not in _ASYNCHRONOUS]
    asked = [_asks(part.get("operation-type"), part) for part in others]
    return _is_untold(task) or (bool(parts) and None not in asked)


def untold(building: Sequence[Any]) -> list[Any]:
    """Tasks that may be searches, after all that surely build the indices."""
    tasks = [task for element in building for task in element]
    return list(takewhile(_may_search, reversed(tasks)))[::-1]


def _tag_of(tasks: Iterable[Any]) -> str:
    """Advice for those tasks of which nothing tells whether they search; "" without any."""
    names = ",".join(task.name for task in tasks if _may_search(task))
    return f', or tag what searches of {names} as such, "tags": "{SEARCH_TAG}"' if names else ""


def expand(schedule: Sequence[Any], plan: Plan) -> list[Any]:
    """All tasks of a session, from the (already filtered) tasks of a challenge.

    Searches are repeated in rounds; tasks that build their indices are left out, as arms get copies. Searches
    of a ``parallel`` element take turns, each with all of the element's bulk tasks beside it. Without
    searches, all tasks run once per arm. Raises PlanError for tasks that cannot be arranged so.
    """
    building, searches = divide(schedule)
    if "default" in [arm.name for arm in plan.arm[1:]]:
        raise PlanError(
            "arm name 'default': only the first arm may have it; Rally gives that name to its first cluster"
        )
    if not searches:
        _require_plain(building, plan)
    indexing = [] if searches else building
    searching = [task for element in searches for task in element if is_search(task) or not element.nested]
    recovery.require_able(searching, plan)
    beside = writes_of(searches)
    _require_warm(beside, plan)
    tasks = {task.name: task for task in (*indexing, *searching)}
    for writes in beside.values():
        tasks |= writes
    tasks |= _in_turn(searching, beside, plan)
    blocks = protocol.blocks(
        plan, indexing=[task.name for task in indexing], searches=[task.name for task in searching]
    )
    if plan.design.nodes == "one":
        together = [tuple(group) for _, group in groupby(blocks, key=_without_arm)]
    else:
        together = [(block,) for block in protocol.with_writes(blocks, beside)]
    elements: list[Any] = []
    for group in together:
        work, task = group[0].work, tasks.get(group[0].task)
        if work in (Work.FIO, Work.BRING_BACK, Work.START):
            elements.append(_between_requests(group[0]))
        elif group[0].phase is Phase.BESIDE:
            elements[-1] = _beside(elements[-1], _write(group[0], task, plan))
        else:
            is_beside = group[0].task in beside
            elements.append(_task(group, task, plan, is_beside=is_beside, is_brought_back=bool(beside)))
    _require_own_names(elements)
    return elements


def _require_own_names(elements: Iterable[Any]) -> None:
    """Raise PlanError for repeated task names: Rally looks up a task's schedule by its name."""
    for name, count in Counter(task.name for element in elements for task in element).items():
        if count > 1:
            raise PlanError(
                f"task {name}: {count} would be called so, as names of tasks and arms are put together; give "
                "arms other names"
            )


def _require_plain(building: Sequence[Any], plan: Plan) -> None:
    """Raise PlanError for tasks before any search that cannot be compared themselves."""
    for element in (element for element in building if element.nested):
        names = [task.name for task in element]
        raise PlanError(
            f"tasks {','.join(names)}: run in parallel, and indexing can only be compared task by task; leave"
            f" them out with {naming(names)}{_tag_of(element)}"
        )
    if plan.design.starts > 1:
        raise PlanError("design.starts: is of searches, and the challenge has none; set it to 1")
    for key in ("data", "snapshot"):
        if getattr(plan.dataset, key):
            raise PlanError(
                f"dataset.{key}: is searched, and the challenge only indexes, into empty nodes; leave it "
                "out, or choose a challenge that searches"
            )


def writes_of(searches: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Bulk tasks beside each search of a ``parallel`` element, by their names beside that search."""
    return {
        task.name: {f"{write.name}-beside-{task.name}": write for write in element if not is_search(write)}
        for element in searches
        for task in element
        if is_search(task) and not all(map(is_search, element))
    }


def _require_warm(beside: Iterable[str], plan: Plan) -> None:
    """Raise PlanError if documents cannot be added beside these searches."""
    why, way = {
        "cold": ("an eviction before each request would hold both up", "cache to warm"),
        "steady": ("each block begins with nothing of the index in the page cache", "cache to warm"),
    }.get(plan.cache.mode, ("", ""))
    if plan.node.count > 1:
        why, way = "shards on several nodes are not brought back to the same bytes", "node.count = 1"
    for task in beside if why else ():
        raise PlanError(f"task {task}: documents are added beside it, and {why}; set {way}")


def _beside(element: Any, write: Any) -> Any:
    """A parallel element of a search and the bulk tasks that end with it."""
    search = next(iter(element))
    for task in (search, write):
        task.operation.params[SEARCH_BESIDE] = search.name, search.clients
    if element.nested:
        element.tasks.append(write)
        return element
    element.completes_parent = True
    return rally_track.Parallel([element, write])


def _in_turn(searches: Sequence[Any], beside: Iterable[str], plan: Plan) -> dict[str, Any]:
    """For a search for the knee: one task that sends all these searches. PlanError if one task cannot."""
    if plan.design.knee is None:
        return {}
    for name in beside:
        raise PlanError(f"task {name}: documents are added beside it, which no step does; choose with --task")
    if not searches:
        raise PlanError("design.knee: is a rate of queries, and the challenge has none; choose one that has")
    first = searches[0]
    for task in searches:
        if task.operation.type != first.operation.type:
            raise PlanError(
                f"tasks {first.name} ({first.operation.type}) and {task.name} ({task.operation.type}): are "
                "not asked by one and the same step; choose with --task"
            )
    together = copy.copy(first)
    together.clients = max(task.clients for task in searches)
    together.operation = copy.copy(first.operation)
    together.operation.params = request_source.of_several(searches)
    return {protocol.QUERIES: together}


def _without_arm(block: Block) -> Block:
    """The block without arm and cluster, common to blocks whose requests alternate; fio's never do."""
    return block if block.work is Work.FIO else replace(block, arm="", cluster="")


def settled(
    plan: Plan, track: Any, building: Sequence[Any], searches: Sequence[Any], telemetry: Iterable[str] = ()
) -> Plan:
    """The plan with ``design.nodes`` decided: for "auto", one node if it can serve all arms in pairs.

    ``telemetry`` are the Rally devices that the user requests.
    """
    why = _why_no_pairs(searches or building, len(track.indices) * len(plan.arm))
    if _BY_NAME in telemetry:
        why = why or f"--telemetry {_BY_NAME}: asks for indices by name, which have another one on each arm"
    if plan.design.nodes == "one":
        if why:
            raise PlanError(f'{why}; set design.nodes = "per-arm"')
        return plan
    is_one = (
        plan.design.nodes == "auto"
        and len(plan.arm) > 1
        and bool(searches)
        and plan.cache.mode == "cold"  # else requests may have due times, which pairs would delay
        and plan.node.count == 1
        and not plan.host
        # existing indices might not be reproducible for each arm
        and not (plan.dataset.data or plan.dataset.snapshot)
        and not (track.data_streams or track.composable_templates)
        and not why
    )
    return updated(plan, "design", nodes="one" if is_one else "per-arm")


def _why_no_pairs(schedule: Sequence[Any], indices: int) -> str:
    """Why one node with so many indices cannot serve all arms in pairs; "" if it can."""
    if indices > MAX_LENT:
        return f"{indices} indices of all arms are more than the {MAX_LENT} that one node can have"
    if writes_of(schedule):
        return "documents are added beside searches, which one node would do to all arms"
    for task in (task for element in schedule for task in element):
        if task.clients != 1:
            return f"task {task.name}: {task.clients} clients would ask several arms at once"
        if task.operation.type not in _OF_AN_INDEX:
            return f"task {task.name}: {task.operation.type} has no index that could be another on each arm"
        if "<" in unquote(str(task.operation.params.get("index"))):
            return f"task {task.name}: its index is date maths, which no arm's name can be put to"
        if names_index(task.operation.params.get("body")):
            return f"task {task.name}: {NAMES_INDEX}"
    return ""


def block_of(task: Any) -> Block | None:
    """The block that a Rally task measures; None for tasks that are not ours."""
    block: Block | None = task.operation.params.get(BLOCK)
    return block


def round_of(task: Any) -> int:
    """The round of a task; 0 before the first round, and for fio's passes."""
    block = block_of(task)
    return block.round if block and block.work is not Work.FIO else 0


def _task(blocks: tuple[Block, ...], task: Any, plan: Plan, *, is_beside: bool, is_brought_back: bool) -> Any:
    """A task of one arm, or of several whose requests alternate."""
    clone = _clone(blocks, task, plan)
    block, operation = block_of(clone), clone.operation
    assert block is not None
    if block.work is Work.SEARCH and plan.race:
        measures = block.phase is Phase.MEASURE
        # arms share the warm-up of one node, whose compiled code serves all of them
        pairs = plan.race.iterations if measures else -(-_warm_up(task, plan) // len(blocks))
        count = pairs * len(blocks)
        # Rally makes at least one request after a task's warm-up; all of ours count as warm-up
        clone.warmup_iterations, clone.iterations = (0, count) if measures else (count - 1, 1)
        clone.warmup_time_period = clone.time_period = clone.ramp_up_time_period = None  # only counts decide
        # Read hits and took, after the service time; hits of a growing index tell nothing.
        operation.params[request_source.DETAILS] = not is_beside
        request_source.choose(clone, task, block, plan, is_beside=is_beside)
        if is_brought_back and measures:
            # the files that it was brought back to are not in the page cache
            clone.warmup_iterations += plan.race.warmup_iterations
            if not is_beside:  # else its block is observed as a whole
                operation.params[request_source.WARM_UPS] = clone.warmup_iterations
    return clone


def _warm_up(task: Any, plan: Plan) -> int:
    """Number of warm-up requests per client; for a whole log, as many for each of its templates."""
    assert plan.race is not None
    if plan.cache.mode == "steady":
        return steady.MAX_WINDOWS * plan.race.warmup_iterations  # at most: see runners.OnArm
    share: float = max(1.0, task.operation.params.get(replay.TEMPLATES, 1) / task.clients)
    return math.ceil(share * plan.race.warmup_iterations)


def _write(block: Block, task: Any, plan: Plan) -> Any:
    """A bulk task beside a search: runs as long as the search, repeating the documents."""
    clone = _clone((block,), task, plan)
    scheduler.run_unthrottled(clone)  # before anything starts: raises Rally's error for an invalid rate
    open_loop.apply_beside(clone, block, plan)
    clone.warmup_iterations = clone.iterations = None
    clone.warmup_time_period = clone.time_period = clone.ramp_up_time_period = None
    clone.operation.params["looped"] = True
    return clone


def _clone(blocks: tuple[Block, ...], task: Any, plan: Plan) -> Any:
    """A copy of the track's task as one of ours."""
    block = replace(blocks[0], arm="+".join(block.arm for block in blocks))
    clone = copy.copy(task)
    clone.name = block.task if len(blocks) > 1 else f"{block.task}-{block.arm}"
    warms = block.phase is Phase.WARMUP or (block.phase is Phase.BESIDE and not block.round)
    clone.name += f"-warmup{_of_start(block)}" if warms else f"-r{block.round}" if block.round else ""
    clone.completes_parent = clone.any_completes_parent = False
    if clone.time_period is None and clone.warmup_time_period:
        clone.warmup_time_period = 0  # else of the same documents fewer count on the faster arm
    clone.params = dict(task.params)
    clone.tags = list(task.tags)
    clone.meta_data = {**task.meta_data, **_meta_data(block)}
    clone.operation = request_source.operation_of(task, clone.name, block, blocks, plan)
    return clone


def _between_requests(block: Block) -> Any:
    """A task between Rally's requests: a fio job, bringing an arm back, or restarting nodes."""
    params = {BLOCK: block, "include-in-reporting": False}
    whose = f"-{block.arm}"
    if block.work is Work.FIO:
        kind, name = FIO, f"fio-{block.task}"
        suffix = f"-end{'' if block.round == 1 else block.round}" if block.round else ""
    elif block.work is Work.START:
        kind, name, whose, suffix = START, START, "", _of_start(block)
    else:
        kind, name = BRING_BACK, f"{BRING_BACK}-{block.task}"
        suffix = f"-r{block.round}" if block.round else f"-warmup{_of_start(block)}"
    operation = rally_track.Operation(name, kind, params=params, param_source=None)
    return rally_track.Task(f"{name}{whose}{suffix}", operation, meta_data=_meta_data(block))


def _of_start(block: Block) -> str:
    """Suffix for names of tasks that each start of the nodes has."""
    return f"-{block.start}" if block.start > 1 else ""


def _meta_data(block: Block) -> dict[str, Any]:
    """For race.json and Rally's metrics store, which accept only JSON."""
    fields = {"arm": block.arm, "cluster": block.cluster, "round": block.round, "task": block.task}
    return {BLOCK: {**fields, "phase": block.phase.value}}
