"""``rounds: auto``: looks at what was measured after some of the rounds, and ends them when it is enough."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from esrally.metrics import SampleType

from esrally_ebs.analysis.sequential import InterimResult, look, looks
from esrally_ebs.analysis.summary import Blocks
from esrally_ebs.model import Block
from esrally_ebs.plan import Plan


class StopRule:
    """The times of each round, and whether another one is wanted."""

    def __init__(
        self,
        plan: Plan,
        *,
        record: Callable[[InterimResult, str], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """``record`` is given each look, and why it is the last ("" when it is not)."""
        self._plan = plan
        self._record = record
        self._now = now
        self._times: dict[tuple[str, str], dict[int, list[tuple[float, float]]]] = {}
        self._round = 0
        self._began_s = 0.0

    def add(self, task: str, arm: str, round_: int, service_time_s: float, latency_s: float) -> None:
        """One successful request."""
        self._times.setdefault((task, arm), {}).setdefault(round_, []).append((service_time_s, latency_s))

    def take(self, sample: Any, arm: str, block: Block) -> None:
        """A sample of Rally's; warm-up and failures do not count."""
        if sample.sample_type is not SampleType.Warmup and sample.request_meta_data.get("success", True):
            self.add(block.task, arm, block.round, sample.service_time, sample.latency)

    def describe(self, arm: str) -> str:
        """Nothing: every round is like the one before."""
        return ""

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
        result = look(
            [self._blocks(place) for place in (0, 1)],
            design.reference_first(arm.name for arm in self._plan.arm),
            margin=design.margin,
            confidence=design.confidence,
            most=design.most_rounds,
        )
        why = "every task is decided" if result.decides else "the time budget is spent" if spent else ""
        self._record(result, why)
        return not why

    def _blocks(self, place: int) -> Blocks:
        """Service times (0), or latencies (1): the same of a task whose requests were not due at a time."""
        return {
            key: {round_: np.array([times[place] for times in rows]) for round_, rows in by_round.items()}
            for key, by_round in self._times.items()
        }
