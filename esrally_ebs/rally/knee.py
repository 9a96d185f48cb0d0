"""The steps of a search for the knee: their rates are decided in Rally's driver, and kept to by its workers.

Rally's schedule has a task for each step that there may be. Which rate it has is known only when it begins:
the driver leaves it in a file before the workers hear of the task. All clients of a worker take the next
request from one list, whoever is free; of many clients with a schedule each, one that waits for a slow
answer would hold up its own requests while others idle. Which worker a request is for is drawn, the same in
all of them.
"""

import json
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

import numpy as np
from esrally import metrics
from esrally.driver import scheduler

from esrally_ebs.analysis.knee import KneeSearch, NextStep, Purpose, StepResult, observe
from esrally_ebs.model import Block
from esrally_ebs.plan import Plan
from esrally_ebs.rally import open_loop
from esrally_ebs.store.context import STEP
from esrally_ebs.units import format_rate

NAME = "ebs-steps"
CLIENTS = 32  # more than a node of few processors answers at once; what waits, waits here instead of there
_LEAD_S = 2.0  # at least, for the connections of all clients, one after the other
_MIN_CLIENTS = 4
_LAG_BOUNDS = 5  # times the bound, and a second: a step whose requests are sent so late has run away


def apply(clone: Any, block: Block, plan: Plan) -> None:
    """Have a block keep to the rate of its step, whatever that will be."""
    clone.clients = max(clone.clients, CLIENTS)
    clone.warmup_iterations, clone.iterations = 1, None  # the request that opens a client's connection
    clone.schedule = NAME
    open_loop.lift_rate(clone)
    clone.operation.params |= {
        "cycle": True,
        open_loop.OPEN: (block, f"{plan.design.seed} {block.round}", _lag_s(plan)),
    }


def _lag_s(plan: Plan) -> float:
    """How late a request may be sent, in a step that has not run away."""
    assert plan.design.bound is not None
    return _LAG_BOUNDS * plan.design.bound.seconds + 1


def _connecting(step: NextStep, clients: int, lag_s: float) -> tuple[int, float]:
    """How many of the clients connect before a step, and for how long, s.

    Each does by a query. No more do than the step can need, and no faster than it asks: else slow queries
    would queue up before it begins.
    """
    if not step.rate:
        return 1, _LEAD_S
    most = 2 * step.rate * lag_s  # in flight, in a step that has not run away
    needed = min(clients, max(_MIN_CLIENTS, math.ceil(most)))
    return needed, max(_LEAD_S, min(needed / step.rate, 2 * lag_s))


class StepSchedule(scheduler.Scheduler):  # type: ignore[misc]
    """When one client sends its requests."""

    parameter_source: Any = None  # Rally sets it after ``__init__``

    def __init__(self, task: Any) -> None:
        self._task = task
        self._arrivals: _Arrivals | None = None
        self._began_s = self._begins_s = 0.0  # this client; the step, after that

    def next(self, current: float) -> float:
        """When the next request is due, s since this client began; StopIteration after the last."""
        client = self.parameter_source.client
        if self._arrivals is None:
            self._arrivals = _arrivals_of(self._task.name, *self._task.operation.params[open_loop.OPEN])
            lead_s, connects_s = self._arrivals.join(client, self._task.clients)
            self._began_s = time.perf_counter()
            first_s = open_loop.first_start(self._task.name, self._began_s)
            self._begins_s = first_s + lead_s + open_loop.LEAD_S - self._began_s
            return connects_s
        now_s = time.perf_counter() - self._began_s - self._begins_s
        return self._begins_s + self._arrivals.next(client, now_s)


class _Arrivals:
    """When requests of one step are due in this process, s since the step began."""

    def __init__(self, step: NextStep | None, seed: str, lag_s: float) -> None:
        self._step = step
        self._seed = seed
        self._lag_s = lag_s
        self._all = 1  # clients of all processes that take part
        self._clients: set[int] = set()  # of this process; all have joined before the first asks for more
        self._due: list[float] | None = None  # that are left, the next one last

    def join(self, client: int, clients: int) -> tuple[float, float]:
        """A client of this process; how long all take to connect, and after how long it does, both in s.

        StopIteration for clients that are not needed, and when there is no step.
        """
        if self._step is None:
            raise StopIteration
        needed, lead_s = _connecting(self._step, clients, self._lag_s)
        self._all = needed
        if client >= needed:
            raise StopIteration
        self._clients.add(client)
        return lead_s, lead_s * client / needed

    def next(self, client: int, now_s: float) -> float:
        """The next that is due, whoever asks; StopIteration after the last, or when the step ran away."""
        assert self._step is not None
        if self._step.purpose is Purpose.ALONE:
            if client or now_s > self._step.seconds:
                raise StopIteration
            return max(now_s, 0.0)
        if self._due is None:
            self._due = self._drawn()
        if not self._due or now_s - self._due[-1] > self._lag_s:
            self._due = []
            raise StopIteration
        return self._due.pop()

    def _drawn(self) -> list[float]:
        """Poisson arrivals, given how many there are: by chance there would be more on one arm.

        The same numbers are drawn for all arms and workers; each worker has those of its clients.
        """
        assert self._step is not None
        draw = random.Random(self._seed)
        count = max(1, round(self._step.rate * self._step.seconds))
        drawn = [(draw.random() * self._step.seconds, draw.randrange(self._all)) for _ in range(count)]
        return sorted((due_s for due_s, client in drawn if client in self._clients), reverse=True)


@cache
def _arrivals_of(task: str, block: Block, seed: str, lag_s: float) -> _Arrivals:
    """One for all clients of this process that take part in the task."""
    from esrally_ebs.rally import activation  # which imports this module

    steps = json.loads((activation.current().notes / STEP).read_text())
    fields = steps.get(block.arm)
    step = None if fields is None else NextStep(**{**fields, "purpose": Purpose(fields["purpose"])})
    return _Arrivals(step, seed, lag_s)


class StepRule:
    """In the driver: what each step's requests were, and the step that follows on each arm."""

    def __init__(
        self,
        plan: Plan,
        *,
        publish: Callable[[str], object],
        record: Callable[[str, int, NextStep], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """``publish`` is given the steps of a round as JSON, ``record`` each with its arm and round."""
        self._lag_s = _lag_s(plan)
        self._search = KneeSearch.of(plan.design)
        self._publish = publish
        self._record = record
        self._now = now
        self._budget_s = plan.design.budget or self._search.usual_s * len(plan.arm)
        self._began_s = 0.0
        self._round = 0
        self._steps: dict[str, list[StepResult]] = {arm.name: [] for arm in plan.arm}
        self._next: dict[str, NextStep] = {}
        self._rows: dict[str, list[tuple[float, float, float]]] = {}

    def take(self, sample: Any, arm: str, block: Block) -> None:
        """A sample of Rally's; what opened a connection is none."""
        if sample.sample_type is metrics.SampleType.Warmup:
            return
        due_s = sample.request_start + sample.service_time - sample.latency
        is_good = sample.request_meta_data.get("success", True)
        latency_s = sample.latency if is_good else float("inf")
        self._rows.setdefault(arm, []).append((due_s, latency_s, sample.service_time))

    def begins(self, round_: int) -> bool:
        """A step of this round is next; whether there is one on any arm."""
        if round_ <= self._round:
            return True
        self._round = round_
        self._began_s = self._began_s or self._now()
        for arm, step in self._next.items():
            alone = next(iter(self._steps[arm]), None)
            self._steps[arm].append(_observed(step, self._rows.get(arm, ()), self._search, alone))
        self._rows.clear()
        chosen = {arm: self._search.next(steps) for arm, steps in self._steps.items()}
        spent_s = self._now() - self._began_s
        wanted_s = sum(
            step.seconds + _connecting(step, CLIENTS, self._lag_s)[1] + open_loop.LEAD_S
            for step in chosen.values()
            if step
        )
        if spent_s + wanted_s > self._budget_s:
            return False
        self._next = {arm: step for arm, step in chosen.items() if step is not None}
        for arm, step in self._next.items():
            self._record(arm, round_, step)
        self._publish(json.dumps({arm: asdict(step) for arm, step in self._next.items()}))
        return bool(self._next)

    def describe(self, arm: str) -> str:
        """The step of this arm that is next, for people; empty when there is none."""
        step = self._next.get(arm)
        if step is None:
            return ""
        return f"{arm}: {format_rate(step.rate)} queries/s" if step.rate else f"{arm}: one query at a time"


def _observed(
    step: NextStep,
    rows: Sequence[tuple[float, float, float]],
    search: KneeSearch,
    alone: StepResult | None,
) -> StepResult:
    due_s, latency_s, service_s = np.array(rows, dtype=float).reshape(-1, 3).T
    return observe(step, due_s, latency_s, service_s, search.bound, alone)
