"""In Rally's driver, and where its workers take the next task: the samples' way out, and the last round."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from esrally import config

from esrally_ebs.rally.schedule import round_of


class Driving(Protocol):
    """What takes part in driving a session."""

    def add_samples(self, samples: Sequence[Any]) -> None:
        """Samples of Rally that have arrived."""

    def telemetry_device(self) -> Any:
        """What Rally starts and stops with the benchmark."""

    def begin_tasks(self, tasks: Sequence[Any], left: int) -> None:
        """These of Rally's tasks are next; ``left`` join points remain."""

    def is_over(self, round_: int) -> bool:
        """Whether this round is not needed any more."""

    def attend(self) -> None:
        """A worker is about to work."""

    def require_load(self) -> None:
        """Raise SetupError once a worker elsewhere is gone."""


def update_samples(original: Any, session: Driving) -> Callable[..., None]:
    """Rally keeps its samples, and the session gets them too."""

    def update(self: Any, samples: list[Any]) -> None:
        original(self, samples)
        session.add_samples(samples)

    return update


def prepare_telemetry(original: Any, session: Driving) -> Callable[..., None]:
    """One more telemetry device."""

    def prepare(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.telemetry.devices.append(session.telemetry_device())

    return prepare


def move_to_next_task(original: Any, session: Driving) -> Callable[..., None]:
    """Decides about the next round before the workers hear of its first task, and starts tasks at once.

    Rally rests a second before each task, so that hosts with other clocks start together; we have one. Its
    own test mode does not rest, and it is asked for while the driver decides when the next task starts.
    """

    def move(self: Any, workers: Any) -> None:
        steps = self.tasks_per_join_point
        session.begin_tasks(list(steps[self.current_step]), len(steps) - self.current_step)
        scope, key = config.Scope.benchmark, ("track", "test.mode.enabled")
        test_mode = self.config.opts(*key)
        self.config.add(scope, *key, True)
        try:
            original(self, workers)
        finally:
            self.config.add(scope, *key, test_mode)

    return move


def current_tasks_and_advance(original: Any, session: Driving) -> Callable[..., Any]:
    """Passes over tasks of rounds that are over, as Rally's worker passes over places that hold no task."""

    def advance(self: Any) -> Any:
        session.attend()
        allocations = original(self)
        if self.at_joinpoint():
            return allocations
        rounds = [round_of(allocation.task.task) for allocation in allocations]
        return [] if rounds and min(rounds) > 0 and session.is_over(min(rounds)) else allocations

    return advance


def update_progress_message(original: Any, session: Driving) -> Callable[..., None]:
    """Once a second: Rally itself would wait for a load host that is gone."""

    def update(self: Any, task_finished: bool = False) -> None:
        session.require_load()
        original(self, task_finished=task_finished)

    return update
