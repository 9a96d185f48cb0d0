"""Runs the steps of a search for the knee: Rally's driver decides their rates, and its workers keep to them.

Rally's schedule has a task for each possible step. A step's rate is known only when it begins: the driver
leaves it in a file before workers hear of the task. A worker's clients take requests from one common list,
whoever is free: if each had its own schedule, a client waiting for a slow answer would hold up its own
requests while others idle. Which worker gets a request is drawn, identically in all of them.
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
CLIENTS = 32  # more than a small node answers at once; excess requests wait here instead of there
_LEAD_S = 2.0  # least time for all clients to connect, one after another
_MIN_CLIENTS = 4
_LAG_BOUNDS = 5  # times the bound, plus a second: a step whose requests are sent this late has run away


def apply(clone: Any, block: Block, plan: Plan) -> None:
    """Make a block keep to its step's rate, which is not known yet."""
    clone.clients = max(clone.clients, CLIENTS)
    clone.warmup_iterations, clone.iterations = 1, None  # the warm-up request opens a client's connection
    clone.schedule = NAME
    open_loop.lift_rate(clone)
    clone.operation.params |= {
        "cycle": True,
        open_loop.OPEN: (block, f"{plan.design.seed} {block.round}", _lag_s(plan)),
    }


def _lag_s(plan: Plan) -> float:
    """Most seconds by which a request may be sent late in a step that has not run away."""
    assert plan.design.bound is not None
    return _LAG_BOUNDS * plan.design.bound.seconds + 1


def _connecting(step: NextStep, clients: int, lag_s: float) -> tuple[int, float]:
    """Number of clients that connect before a step, and the seconds that they take.

    Each connects by a query. No more connect than the step can need, and no faster than its rate: else slow
    queries would queue up before the step begins.
    """
    if not step.rate:
        return 1, _LEAD_S
    most = 2 * step.rate * lag_s  # most in flight in a step that has not run away
    needed = min(clients, max(_MIN_CLIENTS, math.ceil(most)))
    return needed, max(_LEAD_S, min(needed / step.rate, 2 * lag_s))


class StepSchedule(scheduler.Scheduler):  # type: ignore[misc]
    """Times at which one client sends its requests."""

    parameter_source: Any = None  # Rally sets it after ``__init__``

    def __init__(self, task: Any) -> None:
        self._task = task
        self._arrivals: _Arrivals | None = None
        self._began_s = self._begins_s = 0.0  # of this client; of the step, relative to that

    def next(self, current: float) -> float:
        """When the next request is due, in seconds since this client began. StopIteration after the last."""
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
    """Times at which requests of one step are due in this process, in seconds since the step began."""

    def __init__(self, step: NextStep | None, seed: str, lag_s: float) -> None:
        self._step = step
        self._seed = seed
        self._lag_s = lag_s
        self._all = 1  # clients in all processes that take part
        self._clients: set[int] = set()  # of this process; all join before the first asks for a request
        self._due: list[float] | None = None  # remaining times, the next one last

    def join(self, client: int, clients: int) -> tuple[float, float]:
        """Add a client of this process; returns how long all take to connect, and when this one does (s).

        Raises StopIteration for clients that are not needed, and if there is no step.
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
        """The next due time, for any client. StopIteration after the last, or once the step has run away."""
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
        """Times of Poisson arrivals, conditional on their number: else one arm might get more by chance.

        All arms and workers draw the same numbers; each worker keeps those of its clients.
        """
        assert self._step is not None
        draw = random.Random(self._seed)
        seconds, count = self._step.seconds, self._step.due
        drawn = [(draw.random() * seconds, draw.randrange(self._all)) for _ in range(count)]
        return sorted((due_s for due_s, client in drawn if client in self._clients), reverse=True)


@cache
def _arrivals_of(task: str, block: Block, seed: str, lag_s: float) -> _Arrivals:
    """The arrivals shared by all clients of this process in the task."""
    from esrally_ebs.rally import activation  # imported here: it imports this module

    steps = json.loads((activation.current().notes / STEP).read_text())
    fields = steps.get(block.arm)
    step = None if fields is None else NextStep(**{**fields, "purpose": Purpose(fields["purpose"])})
    return _Arrivals(step, seed, lag_s)


class StepRule:
    """In the driver: collects the requests of each step, and decides each arm's next step."""

    def __init__(
        self,
        plan: Plan,
        *,
        publish: Callable[[str], object],
        record: Callable[[str, int, NextStep], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """``publish`` gets a round's steps as JSON; ``record`` gets each step with its arm and round."""
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
        """Add one of Rally's samples; ignores requests that opened a connection."""
        if sample.sample_type is metrics.SampleType.Warmup:
            return
        due_s = sample.request_start + sample.service_time - sample.latency
        is_good = sample.request_meta_data.get("success", True)
        latency_s = sample.latency if is_good else float("inf")
        self._rows.setdefault(arm, []).append((due_s, latency_s, sample.service_time))

    def begins(self, round_: int) -> bool:
        """A task of this round is about to begin; returns whether there is a step for any arm."""
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
        """This arm's next step, for people; "" if there is none."""
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
