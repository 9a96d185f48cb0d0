"""Rally's own waits, cut to what a schedule of many short blocks can bear.

Rally looks for the end of a task every 5 s and rests a second before the next. But each look takes the
interpreter lock of the process that makes the requests, and samples that are handed over with it are pickled
there, sent, and received by a driver that then runs beside requests and node: at four of these a second one
request in a hundred is slower by milliseconds, and that is the 99th percentile of a warm query. So a look
comes after a quarter of the time that the task has taken so far, and samples stay until they must go.

Under spawn Rally has read two of the intervals before we can change them: then races take longer, no more.
"""

import functools
import time
from typing import Any

from esrally import config
from esrally.driver import driver

_SHORTEST_S = 0.25
_LONGEST_S = 2.5  # samples that were not handed over are lost with the process: at most 5 s of them may be
_SHARE = 0.25


def quicken() -> None:
    """Replace the waits in this process."""
    _look_in_proportion()
    _wake_preparation()
    _start_tasks_at_once()


def _look_in_proportion() -> None:
    """Wrap the worker's method; what it has at the end of its task is handed over as before."""
    driver.Worker.WAKEUP_INTERVAL_SECONDS = _SHORTEST_S
    original = driver.Worker.send_samples

    @functools.wraps(original)
    def send_samples(self: Any) -> Any:
        self.wakeup_interval = _SHORTEST_S
        if self.executor_future is not None and not self.executor_future.done():
            now = time.perf_counter()
            begun = self.sampler.start_timestamp
            self.wakeup_interval = min(_LONGEST_S, max(_SHORTEST_S, _SHARE * (now - begun)))
            handed_over = getattr(self.sampler, "handed_over", begun)
            if now + self.wakeup_interval - handed_over <= _LONGEST_S:  # the next look is early enough
                return None
            self.sampler.handed_over = now
        return original(self)

    driver.Worker.send_samples = send_samples


def _wake_preparation() -> None:
    original = driver.TaskExecutionActor.__init__

    @functools.wraps(original)
    def initialise(self: Any) -> None:
        original(self)
        self.wakeup_interval = _SHORTEST_S

    driver.TaskExecutionActor.__init__ = initialise


def _start_tasks_at_once() -> None:
    """Rally rests a second before each task, so that hosts with other clocks start together; we have one.

    Its own test mode does not rest, and it is asked for while the driver decides when the next task starts.
    """
    original = driver.Driver.move_to_next_task

    @functools.wraps(original)
    def move_to_next_task(self: Any, workers: Any) -> None:
        scope, key = config.Scope.benchmark, ("track", "test.mode.enabled")
        asked = self.config.opts(*key)
        self.config.add(scope, *key, True)
        try:
            original(self, workers)
        finally:
            self.config.add(scope, *key, asked)

    driver.Driver.move_to_next_task = move_to_next_task
