"""A challenge's schedule -> the session's: baselines, warm-up, counterbalanced rounds, baselines again.

Pure: tracks in, tracks out. Every process that loads the track computes the same schedule.
"""

import copy
import random
from collections.abc import Sequence
from typing import Any

from esrally import track as rally_track

from esrally_ebs.errors import PlanError
from esrally_ebs.model import Phase
from esrally_ebs.plan import Plan

META = "ebs"  # key in a task's meta data and an operation's parameters that holds our own fields
SEARCH_TYPES = ("search", "paginated-search")
FIO = "fio-baseline"
PARAM_SOURCE = "ebs-on-arm"


def clusters(names: Sequence[str]) -> dict[str, str]:
    """Arm name to Rally's cluster name; Rally demands that one cluster is called "default"."""
    if "default" in names[1:]:
        raise PlanError(
            "arm name 'default': only the first arm may have it; Rally gives that name to its first cluster"
        )
    return {name: name if position else "default" for position, name in enumerate(names)}


def round_orders(arms: Sequence[str], rounds: int, *, seed: int, fixed: bool = False) -> list[list[str]]:
    """The order of the arms in each round.

    Counterbalanced: in every pair of rounds the second is the first backwards, so that a drift over the pair
    hits all arms alike; which order a pair starts with is drawn from ``seed``.
    """
    if fixed:
        return [list(arms) for _ in range(rounds)]
    draw = random.Random(seed)
    orders: list[list[str]] = []
    while len(orders) < rounds:
        order = list(arms)
        draw.shuffle(order)
        orders += [order, order[::-1]]
    return orders[:rounds]


def expand(schedule: Sequence[Any], plan: Plan) -> list[Any]:
    """The tasks of a whole session from the (already filtered) tasks of a challenge.

    Searches are repeated in rounds; all other tasks (indexing) run once per arm before them.
    """
    if any(task.nested for task in schedule):
        raise PlanError(
            "the challenge has a 'parallel' element; arms can only be compared task by task: remove it"
        )
    arms = [arm.name for arm in plan.arm]
    cluster_of = clusters(arms)
    first_search = next((i for i, task in enumerate(schedule) if _is_search(task)), len(schedule))
    late = [task.name for task in schedule[first_search:] if not _is_search(task)]
    if late:
        raise PlanError(f"task {late[0]}: stands after a search; put all indexing before the searches")
    searches = schedule[first_search:]
    tasks = [_fio(plan, arm, job, cluster_of, 0) for job in plan.baseline for arm in arms]
    tasks += [
        _clone(task, task.name, arm, cluster_of, 0, Phase.MEASURE)
        for arm in arms
        for task in schedule[:first_search]
    ]
    tasks += _warmups(searches, plan, arms, cluster_of)
    tasks += _rounds(searches, plan, arms, cluster_of)
    tasks += [_fio(plan, arm, job, cluster_of, 1) for job in plan.baseline for arm in arms if job.repeat]
    return tasks


def _is_search(task: Any) -> bool:
    return task.operation.type in SEARCH_TYPES


def _warmups(searches: Sequence[Any], plan: Plan, arms: list[str], cluster_of: dict[str, str]) -> list[Any]:
    count = plan.race.warmup_iterations if plan.race else 0
    if not count:
        return []
    tasks = []
    # Arm by arm within each query, so that no arm's JIT rests longer than another's before the first round.
    for task in searches:
        for arm in arms:
            clone = _clone(task, task.name, arm, cluster_of, 0, Phase.WARMUP)
            # Rally makes at least one request after a task's warm-up; ours all count as warm-up
            clone.warmup_iterations, clone.iterations = count - 1, 1
            tasks.append(clone)
    return tasks


def _rounds(searches: Sequence[Any], plan: Plan, arms: list[str], cluster_of: dict[str, str]) -> list[Any]:
    tasks = []
    fixed = plan.design.order == "fixed"
    orders = round_orders(arms, plan.design.most_rounds, seed=plan.design.seed, fixed=fixed)
    for number, order in enumerate(orders, start=1):
        for task in searches:
            for arm in order:
                clone = _clone(task, task.name, arm, cluster_of, number, Phase.MEASURE)
                clone.warmup_iterations = 0
                if plan.race is not None:
                    clone.iterations = plan.race.iterations
                tasks.append(clone)
    return tasks


def _clone(task: Any, name: str, arm: str, cluster_of: dict[str, str], round_: int, phase: Phase) -> Any:
    suffix = "warmup" if phase is Phase.WARMUP else f"r{round_}" if round_ else ""
    clone = copy.copy(task)
    clone.name = "-".join(part for part in (name, arm, suffix) if part)
    clone.params = dict(task.params)
    clone.tags = list(task.tags)
    ours = {"arm": arm, "cluster": cluster_of[arm], "round": round_, "task": name, "phase": phase.value}
    clone.meta_data = {**task.meta_data, META: ours}
    operation = copy.copy(task.operation)
    source = operation.param_source
    operation.params = {
        **operation.params,
        **(
            {"detailed-results": True} if _is_search(task) else {}
        ),  # hits and took, read after the service time
        META: {**ours, "inner_type": operation.type, "inner_source": source, "rally_task": clone.name},
    }
    operation.param_source = PARAM_SOURCE
    clone.operation = operation
    return clone


def _fio(plan: Plan, arm: str, job: Any, cluster_of: dict[str, str], round_: int) -> Any:
    ours = {
        "arm": arm,
        "cluster": cluster_of[arm],
        "round": round_,
        "task": job.name,
        "phase": Phase.MEASURE.value,
    }
    operation = rally_track.Operation(
        f"fio-{job.name}", FIO, params={META: ours, "include-in-reporting": False}, param_source=None
    )
    suffix = "-end" if round_ else ""
    return rally_track.Task(f"fio-{job.name}-{arm}{suffix}", operation, meta_data={META: ours})
