"""``rounds: auto`` in Rally's driver: which rounds are wanted, and what is said of it."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from esrally_ebs.analysis.sequential import InterimResult
from esrally_ebs.plan import Plan, parse_plan
from esrally_ebs.rally.sample_recorder import StopRule
from esrally_ebs.rally.settings import plan_for

PLAN = """
name = "x"
arm = [{name = "a", type = "gp3"}, {name = "b", type = "gp3"}]
[race]
[design]
rounds = "auto"
max_rounds = 14
"""


@dataclass
class Session:
    """A rule with a clock that the test moves; ``run`` measures rounds until none is wanted."""

    plan: Plan
    ratio: float
    noise: float = 0.02
    queued_s: float = 0.0  # in the load generator, on average
    seconds_a_round: float = 10.0
    off: float = 0.0  # what the times of an arm may be off by
    results: list[tuple[InterimResult, str]] = field(default_factory=list)
    now: float = 0.0

    def run(self) -> int:
        """How many rounds were measured."""
        rule = StopRule(
            self.plan,
            record=lambda *words: self.results.append(words),
            off=lambda: {("t", arm): self.off for arm in "ab"},
            now=lambda: self.now,
        )
        draw = np.random.default_rng(1)
        for number in range(1, self.plan.design.most_rounds + 1):
            if not rule.begins(number):
                return number - 1
            for arm, scale in (("a", 1.0), ("b", self.ratio)):
                for time in scale * np.exp(draw.normal(0, self.noise, 4)):
                    rule.add("t", arm, number, float(time), float(time) + self.queued_s * draw.exponential())
            self.now += self.seconds_a_round
        return self.plan.design.most_rounds


def test_a_clear_difference_ends_the_rounds_at_the_first_look() -> None:
    session = Session(parse_plan(PLAN, "x"), ratio=1.5)
    assert session.run() == 6
    ((result, why),) = session.results
    assert (result.rounds, result.undecided, why) == (6, (), "every task is decided")


def test_what_is_no_verdict_in_the_report_ends_no_rounds() -> None:
    assert Session(parse_plan(PLAN, "x"), ratio=1.5, off=0.3).run() == 14


def test_what_cannot_be_decided_takes_all_rounds_and_every_look() -> None:
    session = Session(parse_plan(PLAN, "x"), ratio=1.04, noise=0.5)
    assert session.run() == 14
    # the look after the last round is the report
    assert [(result.rounds, why) for result, why in session.results] == [(6, ""), (9, "")]


def test_a_task_whose_latency_is_undecided_goes_on_though_its_service_time_is_decided() -> None:
    session = Session(parse_plan(PLAN, "x", {"cache.mode": "warm"}), ratio=1.5, queued_s=20.0)
    assert session.run() == 14
    assert session.results[0][0].undecided == ("t",)


@pytest.mark.parametrize("changes", [{}, {"cache.mode": "warm", "design.nodes": "one"}])
def test_latency_that_no_report_has_keeps_no_session_going(changes: dict[str, str]) -> None:
    assert Session(parse_plan(PLAN, "x", changes), ratio=1.5, queued_s=20.0).run() == 6


def test_no_round_is_begun_that_would_end_after_the_budget() -> None:
    plan = parse_plan(PLAN + 'budget = "95s"\n', "x")
    session = Session(plan, ratio=1.04, noise=0.5)
    # ten seconds each: after nine, the tenth would end at 100 s
    assert session.run() == 9
    assert session.results[-1][1] == "the time budget is spent"


def test_tasks_before_the_rounds_and_of_a_round_that_goes_on_are_wanted() -> None:
    rule = StopRule(parse_plan(PLAN, "x"), record=lambda *words: None)
    assert all(rule.begins(number) for number in (0, 0, 1, 1, 2, 1))


def test_a_race_asks_for_it_by_track_parameters() -> None:
    plan = plan_for({"plan": "smoke", "rounds": "auto", "max_rounds": 20, "budget": "10m"})
    assert plan.design.is_auto
    assert (plan.design.most_rounds, plan.design.budget) == (20, 600)
    assert plan_for({"plan": "smoke", "rounds": 3}).design.most_rounds == 3
