"""``rounds: auto`` wrapped around Rally's own driver and worker: a schedule is driven as Rally drives it."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from esrally import metrics
from esrally import track as rally_track
from esrally.driver import driver
from small_plan import small_plan

from esrally_ebs.model import Event
from esrally_ebs.plan import Plan, parse_plan
from esrally_ebs.rally import patches
from esrally_ebs.rally.sample_recorder import DrivenSession
from esrally_ebs.rally.schedule import block_of, expand
from esrally_ebs.store import SessionFolder
from esrally_ebs.store.context import Context

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
        context = Context(session="s", folder=folder.path, run=run, plan=plan, arms=())
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
