"""``rounds: auto``: looks at what was measured after some of the rounds, and ends them when it is enough.

Rally's schedule holds the most rounds that the plan allows. Its driver, which gets all samples, looks between
two tasks; its workers then pass over the tasks of the rounds that are not needed, as they pass over places in
their lists that hold no task.
"""

import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from esrally.driver import driver

from esrally_ebs.context import Context
from esrally_ebs.model import Event
from esrally_ebs.plan import Plan
from esrally_ebs.rally.schedule import META, SEARCH_TYPES
from esrally_ebs.stats.sequential import Look, look, looks
from esrally_ebs.store import SessionFolder

_ENOUGH = "enough-rounds"  # a file of the run directory; it holds the number of the last round


class Watch:
    """In the driver: the service times of each round, and whether another one is wanted."""

    def __init__(
        self, plan: Plan, *, say: Callable[[Look, str], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        """``say`` hears of each look, and why it is the last ("" when it is not)."""
        self._plan = plan
        self._say = say
        self._now = now
        self._times: dict[tuple[str, str], dict[int, list[float]]] = {}
        self._round = 0
        self._began_s = 0.0

    def measured(self, task: str, arm: str, round_: int, service_time_s: float) -> None:
        """One successful request."""
        self._times.setdefault((task, arm), {}).setdefault(round_, []).append(service_time_s)

    def begins(self, round_: int) -> bool:
        """A task of this round is next; whether it is wanted."""
        if round_ <= self._round:
            return True
        ended, self._round = self._round, round_
        if not ended:
            self._began_s = self._now()
            return True
        used_s = self._now() - self._began_s
        budget_s = self._plan.design.budget
        spent = budget_s is not None and used_s + used_s / ended > budget_s
        if not spent and ended not in looks(self._plan.design.most_rounds):
            return True
        return self._look(spent)

    def _look(self, spent: bool) -> bool:
        design = self._plan.design
        found = look(
            {key: {r: np.array(t) for r, t in by_round.items()} for key, by_round in self._times.items()},
            [arm.name for arm in self._plan.arm],
            margin=design.margin,
            confidence=design.confidence,
            most=design.most_rounds,
        )
        why = "every task is decided" if found.decides else "the time budget is spent" if spent else ""
        self._say(found, why)
        return not why


def install(current: Callable[[], Context]) -> None:
    """Wrap two methods of Rally's driver and one of its worker; they act when rounds are ``auto``.

    ``current`` gives the session that this process takes part in.
    """
    watches: list[Watch] = []  # made in the process that drives

    def watch() -> Watch | None:
        context = current()
        if context.plan.design.is_auto and not watches:
            watches.append(Watch(context.plan, say=functools.partial(_record, context)))
        return watches[0] if watches else None

    _collect(watch)
    _look_between_tasks(watch, lambda: current().run / _ENOUGH)
    _pass_over(lambda: current().run / _ENOUGH)


def _record(context: Context, found: Look, why: str) -> None:
    fields = {
        "rounds": found.rounds,
        "confidence": found.confidence,
        "tasks": found.tasks,
        "undecided": list(found.undecided),
        "ends": why,
    }
    SessionFolder(context.folder).event(Event(at_s=time.time(), kind="look", fields=fields))


def _collect(watch: Callable[[], Watch | None]) -> None:
    original = driver.Driver.update_samples

    @functools.wraps(original)
    def update_samples(self: Any, samples: list[Any]) -> None:
        original(self, samples)
        watching = watch()
        for sample in samples if watching else ():
            if watching and _round_of(sample.task) and sample.request_meta_data.get("success", True):
                ours = sample.task.meta_data[META]
                watching.measured(ours["task"], ours["arm"], ours["round"], sample.service_time)

    driver.Driver.update_samples = update_samples


def _look_between_tasks(watch: Callable[[], Watch | None], enough: Callable[[], Path]) -> None:
    original = driver.Driver.move_to_next_task

    @functools.wraps(original)
    def move_to_next_task(self: Any, workers_curr_step: Any) -> None:
        # Before the workers hear of the next task, so that they find the file when they do.
        watching = watch()
        if watching and not enough().exists():
            round_ = max(map(_round_of, self.tasks_per_join_point[self.current_step]), default=0)
            if not watching.begins(round_):
                enough().write_text(str(round_ - 1))
        original(self, workers_curr_step)

    driver.Driver.move_to_next_task = move_to_next_task


def _pass_over(enough: Callable[[], Path]) -> None:
    original = driver.Worker.current_tasks_and_advance

    @functools.wraps(original)
    def current_tasks_and_advance(self: Any) -> Any:
        allocations = original(self)
        if self.at_joinpoint() or not _is_needless(allocations, enough()):
            return allocations
        return []

    driver.Worker.current_tasks_and_advance = current_tasks_and_advance


def _is_needless(allocations: Sequence[Any], enough: Path) -> bool:
    rounds = [_round_of(allocation.task.task) for allocation in allocations]
    return bool(rounds) and min(rounds) > 0 and enough.exists() and min(rounds) > int(enough.read_text())


def _round_of(task: Any) -> int:
    """The round of a measured search; 0 of everything else."""
    ours = (task.meta_data or {}).get(META, {})
    return int(ours["round"]) if ours and task.operation.type in SEARCH_TYPES else 0
