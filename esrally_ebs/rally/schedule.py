"""A challenge's schedule -> the session's: the blocks of ``session.protocol`` as tasks of Rally.

Pure: tracks in, tracks out. Every process that loads the track computes the same schedule.
"""

import copy
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import groupby, takewhile
from typing import Any
from urllib.parse import unquote

from esrally import track as rally_track
from esrally.driver import scheduler

from esrally_ebs.analysis import steady
from esrally_ebs.errors import PlanError
from esrally_ebs.model import Block, Phase, Work
from esrally_ebs.plan import Plan
from esrally_ebs.rally import open_loop, recovery, request_source
from esrally_ebs.rally.request_source import BLOCK
from esrally_ebs.rally.settings import updated
from esrally_ebs.session import protocol
from esrally_ebs.session.root_steps import MAX_LENT
from esrally_ebs.workload.queries import replay

SEARCH_BESIDE = "ebs-beside"  # key of the name of a search that writes run beside, and of its clients
_AROUND = ("sleep", "open-point-in-time", "close-point-in-time")  # in a composite operation, beside searches
_ASYNCHRONOUS = ("submit-async-search", "get-async-search", "delete-async-search")
_OF_AN_INDEX = ("search", "paginated-search", "scroll-search", "composite-agg")  # which is a parameter
SEARCH_TYPES = (*_OF_AN_INDEX, "sql", "esql", "esql-profile", "field-caps")
_WRITE = "bulk"
# of raw requests
_READING = re.compile(
    r"(?:^|/)_(search|msearch|count|knn_search|sql|query|eql/search|field_caps|mget|mvt|terms_enum|rank_eval"
    r"|explain|termvectors)\b"
)
_OF_A_DOCUMENT = re.compile(r"/_(doc|source)/")  # by its id; reads with GET alone
# parameters that say what is asked
_QUERY = ("body", "query", "queries", "requests", "request-params", "path", "pages", "results-per-page")
FIO = "fio-baseline"
BRING_BACK = "bring-back"
START = "start-nodes"
NAMES_INDEX = "its body names an index, which has another name on each arm"
_BY_NAME = "disk-usage-stats"  # the device of Rally's telemetry that fails where an index is called otherwise
SEARCH_TAG = "search"  # of a task that searches, where nothing else tells


def divide(schedule: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """What makes the indices (it may have ``parallel`` elements), and the searches that follow.

    Raises PlanError for tasks that arms cannot be compared by.
    """
    building = before_searches(schedule)
    begins = len(building)
    after = [element for element in schedule[begins:] if not element.nested]
    after = [task for task in after if not is_search(task) and not _is_untold(task)]
    if after:
        listed = ", ".join(f"{task.name} ({task.operation.type})" for task in after)
        later = [task for element in schedule[schedule.index(after[0]) :] for task in element]
        without = "; searches after it are then asked without it" if any(map(is_search, later)) else ""
        raise PlanError(
            f"task {listed}: after a search, where every round would do it again on each arm; put it before "
            f"the searches or leave it out: --exclude-tasks={','.join(task.name for task in after)}{without}"
        )
    for element in schedule[begins:]:
        if element.nested:
            _require_writes_beside(element)
    return building, list(schedule[begins:])


def before_searches(schedule: Sequence[Any]) -> list[Any]:
    """What makes the indices: all before the first element that has a search."""
    return list(takewhile(lambda element: not any(map(is_search, element)), schedule))


def before_tasks(schedule: Sequence[Any], names: Set[str]) -> list[Any]:
    """What makes the indices of searches of these names: all before the first of them, but for searches.

    Not what runs beside searches: that is undone before others. Tasks of which nothing tells whether they
    search count as ``divide`` has it: as searches where they follow one.
    """
    before = list(takewhile(lambda element: names.isdisjoint(task.name for task in element), schedule))
    building = before_searches(before)
    later = [element for element in before[len(building) :] if not any(map(is_search, element))]
    return building + [element for element in later if not all(map(_is_untold, element))]


def may_index(building: Iterable[Any]) -> bool:
    """Whether any of these tasks adds documents, or is one of which nothing tells."""
    tasks = [task for element in building for task in element]
    return any(task.operation.type == _WRITE or _is_untold(task) for task in tasks)


def is_search(task: Any) -> bool:
    operation = task.operation
    if SEARCH_TAG in task.tags and _may_search(task):
        return True
    if operation.type == "composite":
        asked = [_asks(part.get("operation-type"), part) for part in _parts(operation.params)]
        return any(asked) and None not in asked
    return operation.type == recovery.RECOVERY or bool(_asks(operation.type, operation.params))


def _asks(kind: Any, params: Mapping[str, Any]) -> bool | None:
    """Whether an operation searches; None when it may change something."""
    if kind in _AROUND:
        return False
    method, path = str(params.get("method", "GET")).upper(), str(params.get("path"))
    asks = (method in ("GET", "POST") and _READING.search(path)) or (
        method == "GET" and _OF_A_DOCUMENT.search(path)
    )
    return True if kind in SEARCH_TYPES or (kind == "raw-request" and asks) else None


def _parts(params: Mapping[str, Any]) -> list[Any]:
    """The operations of a composite one, however deep in its streams."""
    parts = params.get("requests", params.get("stream", ()))
    return [each for part in parts for each in (_parts(part) if "stream" in part else [part])]


def _require_writes_beside(element: Any) -> None:
    """Raise PlanError unless a ``parallel`` element has searches, and bulk tasks beside them."""
    names = ",".join(task.name for task in element)
    others = [task for task in element if not is_search(task)]
    if not others and len(list(element)) > 1:
        raise PlanError(
            f"tasks {names}: run in parallel, so that how long a search takes depends on what the others "
            f"do just then, on each volume something else; leave some out with --exclude-tasks={names}"
        )
    for task in others:
        if task.operation.type != _WRITE:
            raise PlanError(
                f"task {task.name} ({task.operation.type}): runs beside others, where only searches and bulk "
                f"tasks can be repeated on each arm; leave it out with --exclude-tasks={task.name}"
                f"{_tag_of([task])}"
            )
    if others and len(others) == len(list(element)):
        raise PlanError(
            f"tasks {names}: index after a search, where every round would do it again on each arm; put them "
            f"before the searches, or searches beside them, or leave them out: --exclude-tasks={names}"
        )


def loads(schedule: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """By what each task is called: its clients unless it is one; where it has a rate, that and its schedule.

    And a hash of the query, where the track writes it down. Raises Rally's error for a rate that is none.
    """
    measured = [task for element in schedule for task in element if is_search(task) or not element.nested]
    tasks = {task.name: task for task in measured}
    for writes in _writes_of(schedule).values():
        tasks |= writes
    return {name: _load(task) for name, task in tasks.items()}


def _load(task: Any) -> dict[str, Any]:
    load = {} if task.clients == 1 else {"clients": task.clients}
    if asked := {key: task.operation.params[key] for key in _QUERY if task.operation.params.get(key)}:
        text = json.dumps(asked, sort_keys=True, default=str)
        load["query"] = hashlib.sha256(text.encode()).hexdigest()[:12]
    if scheduler.run_unthrottled(task):
        return load
    rate = task.target_throughput
    if rate is not None:
        load["target-throughput"] = f"{rate.value:g} {rate.unit}"
    load["schedule"] = task.schedule or scheduler.DeterministicScheduler.name
    if "speed" in task.params:
        load["speed"] = task.params["speed"]
    return load


def has_writes(searches: Sequence[Any]) -> bool:
    """Whether any of these elements has bulk tasks beside its searches."""
    return bool(_writes_of(searches))


def _is_untold(task: Any) -> bool:
    """Whether nothing tells if a task searches: Rally has no such operation, or has its requests made."""
    operation = task.operation
    if operation.type == "composite":
        return not _parts(operation.params)
    if operation.type == "raw-request":
        return "path" not in operation.params
    return operation.type not in {kind.to_hyphenated_string() for kind in rally_track.OperationType}


def _may_search(task: Any) -> bool:
    """Whether a task searches if it says so: an untold one, and one that leaves its answers in the node."""
    parts = _parts(task.operation.params) if task.operation.type == "composite" else ()
    others = [part for part in parts if part.get("operation-type") not in _ASYNCHRONOUS]
    asked = [_asks(part.get("operation-type"), part) for part in others]
    return _is_untold(task) or (bool(parts) and None not in asked)


def untold(building: Sequence[Any]) -> list[Any]:
    """Tasks that may be searches, after all that is known to make the indices."""
    tasks = [task for element in building for task in element]
    return list(takewhile(_may_search, reversed(tasks)))[::-1]


def _tag_of(tasks: Iterable[Any]) -> str:
    """What to do with those of the tasks of which nothing tells whether they search; empty without any."""
    names = ",".join(task.name for task in tasks if _may_search(task))
    return f', or tag what searches of {names} as such, "tags": "{SEARCH_TAG}"' if names else ""


def expand(schedule: Sequence[Any], plan: Plan) -> list[Any]:
    """The tasks of a whole session from the (already filtered) tasks of a challenge.

    Searches are repeated in rounds; what makes their indices is left out, for the arms get copies. Searches
    of a ``parallel`` element take turns, each with all of its bulk tasks beside it. Without searches, all
    tasks run once per arm. Raises PlanError for tasks that cannot be ordered so.
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
    beside = _writes_of(searches)
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
    """Raise PlanError where Rally could not tell two tasks apart: by its name each keeps to its schedule."""
    for name, count in Counter(task.name for element in elements for task in element).items():
        if count > 1:
            raise PlanError(
                f"task {name}: {count} would be called so, as names of tasks and arms are put together; give "
                "arms other names"
            )


def _require_plain(building: Sequence[Any], plan: Plan) -> None:
    """Raise PlanError for tasks before any search that cannot be compared themselves."""
    for element in (element for element in building if element.nested):
        names = ",".join(task.name for task in element)
        raise PlanError(
            f"tasks {names}: run in parallel, and indexing can only be compared task by task; leave them out "
            f"with --exclude-tasks={names}{_tag_of(element)}"
        )
    if plan.design.starts > 1:
        raise PlanError("design.starts: is of searches, and the challenge has none; set it to 1")
    for key in ("data", "snapshot"):
        if getattr(plan.dataset, key):
            raise PlanError(
                f"dataset.{key}: is searched, and the challenge only indexes, into empty nodes; leave it "
                "out, or choose a challenge that searches"
            )


def _writes_of(searches: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """By search of a ``parallel`` element: its bulk tasks, by what each is called beside that search."""
    return {
        task.name: {f"{write.name}-beside-{task.name}": write for write in element if not is_search(write)}
        for element in searches
        for task in element
        if is_search(task) and not all(map(is_search, element))
    }


def _require_warm(beside: Iterable[str], plan: Plan) -> None:
    """Raise PlanError where documents cannot be added beside these searches."""
    why, way = {
        "cold": ("an eviction before each request would hold both up", "cache to warm"),
        "steady": ("each block begins with nothing of the index in the page cache", "cache to warm"),
    }.get(plan.cache.mode, ("", ""))
    if plan.node.count > 1:
        why, way = "shards on several nodes are not brought back to the same bytes", "node.count = 1"
    for task in beside if why else ():
        raise PlanError(f"task {task}: documents are added beside it, and {why}; set {way}")


def _beside(element: Any, write: Any) -> Any:
    """A search and the bulk tasks that end with it."""
    search = next(iter(element))
    for task in (search, write):
        task.operation.params[SEARCH_BESIDE] = search.name, search.clients
    if element.nested:
        element.tasks.append(write)
        return element
    element.completes_parent = True
    return rally_track.Parallel([element, write])


def _in_turn(searches: Sequence[Any], beside: Iterable[str], plan: Plan) -> dict[str, Any]:
    """In search of a knee, one task that asks all of these; raises PlanError for what no one task can ask."""
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
    """What blocks have in common whose requests take turns; fio takes none."""
    return block if block.work is Work.FIO else replace(block, arm="", cluster="")


def settled(
    plan: Plan, track: Any, building: Sequence[Any], searches: Sequence[Any], telemetry: Iterable[str] = ()
) -> Plan:
    """The plan with ``design.nodes`` decided: "auto" is one node wherever one can serve all arms in pairs.

    ``telemetry`` are Rally's devices that the user asks for.
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
        and plan.cache.mode == "cold"  # else requests may be due at a rate, which pairs would hold back
        and plan.node.count == 1
        and not plan.host
        # indices that somebody else made may be such as cannot be made again for each arm
        and not (plan.dataset.data or plan.dataset.snapshot)
        and not (track.data_streams or track.composable_templates)
        and not why
    )
    return updated(plan, "design", nodes="one" if is_one else "per-arm")


def _why_no_pairs(schedule: Sequence[Any], indices: int) -> str:
    """What one node with so many indices cannot serve to all arms in pairs; empty where it can."""
    if indices > MAX_LENT:
        return f"{indices} indices of all arms are more than the {MAX_LENT} that one node can have"
    if has_writes(schedule):
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


def names_index(body: object) -> bool:
    """Whether a search asks for documents of an index by its name: to filter, to boost, to look terms up."""
    if isinstance(body, Mapping):
        named = not {"_index", "indices_boost"}.isdisjoint(body) or {"index", "id"} <= body.keys()
        return named or any(map(names_index, body.values()))
    if isinstance(body, str):  # of a query_string
        return "_index:" in body
    return isinstance(body, list) and any(map(names_index, body))


def block_of(task: Any) -> Block | None:
    """What a task of Rally measures; None for a task that is not ours."""
    block: Block | None = task.operation.params.get(BLOCK)
    return block


def round_of(task: Any) -> int:
    """The round that a task is a part of; 0 of what comes before the first, and of fio's passes."""
    block = block_of(task)
    return block.round if block and block.work is not Work.FIO else 0


def _task(blocks: tuple[Block, ...], task: Any, plan: Plan, *, is_beside: bool, is_brought_back: bool) -> Any:
    """A task of one arm; or of several, whose requests take turns."""
    clone = _clone(blocks, task, plan)
    block, operation = block_of(clone), clone.operation
    assert block is not None
    if block.work is Work.SEARCH and plan.race:
        measures = block.phase is Phase.MEASURE
        # code that one node has compiled serves all arms, so they share its warm-up
        pairs = plan.race.iterations if measures else -(-_warm_up(task, plan) // len(blocks))
        count = pairs * len(blocks)
        # Rally makes at least one request after a task's warm-up; ours all count as warm-up
        clone.warmup_iterations, clone.iterations = (0, count) if measures else (count - 1, 1)
        clone.warmup_time_period = clone.time_period = clone.ramp_up_time_period = None  # counts decide
        # Hits and took, read after the service time; hits of an index that grows say nothing.
        operation.params[request_source.DETAILS] = not is_beside
        request_source.choose(clone, task, block, plan, is_beside=is_beside)
        if is_brought_back and measures:
            # no page of the bytes that it was brought back to is in the page cache
            clone.warmup_iterations += plan.race.warmup_iterations
            if not is_beside:  # else its block is looked at whole
                operation.params[request_source.WARM_UPS] = clone.warmup_iterations
    return clone


def _warm_up(task: Any, plan: Plan) -> int:
    """How many requests each client warms up with: of a whole log, as many for each of its templates."""
    assert plan.race is not None
    if plan.cache.mode == "steady":
        return steady.MAX_WINDOWS * plan.race.warmup_iterations  # at most: see runners.OnArm
    share: float = max(1.0, task.operation.params.get(replay.TEMPLATES, 1) / task.clients)
    return math.ceil(share * plan.race.warmup_iterations)


def _write(block: Block, task: Any, plan: Plan) -> Any:
    """A bulk task beside a search: as long as that lasts, from the first document again after the last."""
    clone = _clone((block,), task, plan)
    scheduler.run_unthrottled(clone)  # raises Rally's error for a rate that is none, before anything starts
    open_loop.apply_beside(clone, block, plan)
    clone.warmup_iterations = clone.iterations = None
    clone.warmup_time_period = clone.time_period = clone.ramp_up_time_period = None
    clone.operation.params["looped"] = True
    return clone


def _clone(blocks: tuple[Block, ...], task: Any, plan: Plan) -> Any:
    """The track's task as one of ours."""
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
    """What is done between Rally's requests: a job of fio, bringing an arm back, or other starts of nodes."""
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
    """How names of tasks end that each start of the nodes has."""
    return f"-{block.start}" if block.start > 1 else ""


def _meta_data(block: Block) -> dict[str, Any]:
    """For race.json and Rally's metrics store, which take nothing but JSON."""
    fields = {"arm": block.arm, "cluster": block.cluster, "round": block.round, "task": block.task}
    return {BLOCK: {**fields, "phase": block.phase.value}}
