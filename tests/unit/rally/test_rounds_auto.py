"""``rounds: auto``: which rounds are wanted; and around Rally's driver and worker, driven as Rally does."""

import logging
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from esrally import metrics
from esrally import track as rally_track
from esrally.driver import driver
from small_plan import small_plan

from esrally_ebs.analysis.sequential import InterimResult
from esrally_ebs.model import Event
from esrally_ebs.plan import Plan, parse_plan
from esrally_ebs.rally import patches
from esrally_ebs.rally.sample_recorder import DrivenSession, StopRule
from esrally_ebs.rally.schedule import block_of, expand
from esrally_ebs.rally.settings import plan_for
from esrally_ebs.store import SessionFolder
from esrally_ebs.store.context import Arm, Context

PLAN = """
name = "x"
arm = [{name = "a", type = "gp3"}, {name = "b", type = "gp3"}]
[race]
warmup_iterations = 1
[design]
rounds = "auto"
max_rounds = 14
[[baseline]]
name = "j"
rw = "randread"
bs = "4k"
repeat = true
"""

SEARCH = rally_track.Task("t", rally_track.Operation("t", "search", params={}), iterations=1)


class Race:
    """Rally's driver and its one worker without processes; ``run`` goes from join point to join point."""

    def __init__(self, folder: SessionFolder, run: Path, plan: Plan, ratio: float, fails: bool) -> None:
        self.enough = run / "enough-rounds"
        self.ratio = ratio
        self.fails = fails
        self.executed: list[str] = []
        self.told_in_time: list[bool] = []  # whether the file was there when workers heard of the next task
        arms = tuple(Arm(name=arm.name, cluster="default", members=()) for arm in plan.arm)
        context = Context(session="s", folder=folder.path, run=run, plan=plan, arms=arms)
        patches.install(patches.DRIVING, DrivenSession(lambda: context))
        allocator = driver.Allocator(expand([SEARCH], plan))
        self.driver = driver.Driver.__new__(driver.Driver)
        self.driver.tasks_per_join_point = allocator.tasks_per_joinpoint
        self.driver.raw_samples, self.driver.most_recent_sample_per_client = [], {}
        # test mode: no second of waiting
        self.driver.config = SimpleNamespace(opts=lambda *keys: True, add=lambda *keys: None)
        self.driver.metrics_store = SimpleNamespace(to_externalizable=lambda clear: None)
        self.driver.driver_actor = SimpleNamespace(on_task_finished=self._next_task_is_told)
        self.driver.workers, self.driver.current_step = [], -1
        self.worker = driver.Worker.__new__(driver.Worker)
        self.worker.worker_id, self.worker.next_task_index = 0, 0
        self.worker.logger = logging.getLogger(__name__)
        self.worker.client_allocations = driver.ClientAllocations()
        self.worker.client_allocations.add(0, allocator.allocations[0])

    def run(self) -> list[str]:
        """The names of the tasks that were executed, in order."""
        while self.driver.current_step < len(self.driver.tasks_per_join_point):
            allocations = self.worker.current_tasks_and_advance()
            while not allocations:  # as Worker.drive does
                allocations = self.worker.current_tasks_and_advance()
            if self.worker.at_joinpoint():
                self.driver.current_step += 1
                if self.driver.current_step < len(self.driver.tasks_per_join_point):
                    self.driver.move_to_next_task({})
            else:
                self._execute(allocations[0].task.task)
        return self.executed

    def _execute(self, task: rally_track.Task) -> None:
        self.executed.append(task.name)
        block = block_of(task)
        assert block is not None
        ratio = self.ratio if block.arm == "b" else 1.0
        if not block.round:
            ratio *= 1e-6  # warm-ups and fio: far from anything that is measured
        success = not (self.fails and block.arm == "b")
        times = (1.0, 1.01, 0.99, 1.0)
        self.driver.update_samples([sample(task, ratio * time, success=success) for time in times])

    def _next_task_is_told(self, *_: object) -> None:
        self.told_in_time.append(self.enough.exists())


def sample(task: rally_track.Task, service_time_s: float, *, success: bool) -> Any:  # noqa: ANN401
    no = dict.fromkeys(("absolute_time", "request_start", "task_start", "processing_time"), 0.0)
    no |= dict.fromkeys(
        ("throughput", "total_ops", "total_ops_unit", "time_period", "percent_completed"), 0.0
    )
    return driver.Sample(
        client_id=0,
        task=task,
        sample_type=metrics.SampleType.Normal,
        request_meta_data={"success": success},
        service_time=service_time_s,
        latency=service_time_s,
        **no,
    )


def race(
    tmp_path: Path, *, ratio: float = 1.5, fails: bool = False, **overrides: object
) -> tuple[Race, SessionFolder]:
    plan = parse_plan(PLAN, "x.toml", {f"design.{key}": value for key, value in overrides.items()})
    folder = SessionFolder.create(tmp_path, "s", kind="race", plan=small_plan())
    run = tmp_path / "run"
    run.mkdir()
    return Race(folder, run, plan, ratio, fails), folder


def round_names(numbers: range) -> set[str]:
    return {f"t-{arm}-r{number}" for arm in "ab" for number in numbers}


def looks(folder: SessionFolder) -> list[Event]:
    return [event for event in folder.events() if event.kind == "look"]


@pytest.mark.usefixtures("rally")
def test_rounds_after_a_decision_are_passed_over_and_all_else_is_executed(tmp_path: Path) -> None:
    made, folder = race(tmp_path)
    executed = made.run()

    assert {name for name in executed if "-r" in name} == round_names(range(1, 7))
    others = [name for name in executed if "-r" not in name]
    assert [name for name in others if "warmup" in name] == ["t-a-warmup", "t-b-warmup"]
    assert len(others) == 6  # and the fio job on both arms, at the start and again at the end
    assert made.enough.read_text() == "6"
    (fields,) = (event.fields for event in looks(folder))
    assert (fields["rounds"], fields["tasks"], fields["ends"]) == (6, 1, "every task is decided")


@pytest.mark.usefixtures("rally")
def test_workers_find_that_it_is_enough_when_they_hear_of_the_next_task(tmp_path: Path) -> None:
    made, _ = race(tmp_path)
    made.run()

    # two fio jobs, two warm-ups and six rounds of two tasks were told without it
    assert made.told_in_time.index(True) == 2 + 2 + 6 * 2
    assert all(made.told_in_time[16:])


@pytest.mark.usefixtures("rally")
def test_a_worker_executes_the_last_round_also_when_it_hears_early_that_it_is_the_last(
    tmp_path: Path,
) -> None:
    made, _ = race(tmp_path)
    made.enough.write_text("3")

    assert {name for name in made.run() if "-r" in name} == round_names(range(1, 4))


@pytest.mark.usefixtures("rally")
def test_requests_that_failed_are_not_compared(tmp_path: Path) -> None:
    made, folder = race(tmp_path, fails=True)
    made.run()

    assert [event.fields["tasks"] for event in looks(folder)][:1] == [0]  # nothing of b is left
    assert len(made.driver.raw_samples) == len(made.executed) * 4  # Rally has got them all the same


@pytest.mark.usefixtures("rally")
def test_what_belongs_to_no_round_is_rallys_alone(tmp_path: Path) -> None:
    made, _ = race(tmp_path)
    made.driver.update_samples([sample(SEARCH, 1.0, success=True)])

    assert len(made.driver.raw_samples) == 1


@pytest.mark.usefixtures("rally")
def test_a_number_of_rounds_is_raced_to_its_end(tmp_path: Path) -> None:
    made, folder = race(tmp_path, rounds=9)
    executed = made.run()

    assert {name for name in executed if "-r" in name} == round_names(range(1, 10))
    assert not made.enough.exists()
    assert looks(folder) == []


# The rule by itself


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
    session = Session(parse_plan(PLAN, "x", {"design.budget": "95s"}), ratio=1.04, noise=0.5)
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
