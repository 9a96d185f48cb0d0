"""In Rally's driver and workers: the samples' way out, the last round, and no other work beside a request.

Rally looks for the end of a task every 5 s and rests a second before the next. But each look takes the
interpreter lock of the process that makes the requests, and samples that are handed over with it are pickled
there: 6 ms for a thousand, during which a warm request or five take 10 ms longer each, for whoever has the
lock keeps it for 5 ms. Then the driver reads them and makes rows of them, which takes a processor for another
8 ms. So a look sleeps until the task ends or samples must go, and the next request waits until they are
written; one that is due at a time does not, as it would be late. Nor does the garbage collector look through
all that was imported any more, which stopped a request of each race for 80 to 110 ms. And an answer is read
as far as hits and took go, not to its end, which takes 160 us and more for ten hits and makes the next
request some 2 % slower.

Under spawn Rally has read two of the intervals before we can change them: then races take longer, no more.
"""

import gc
import threading
import time
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esrally import config

from esrally_ebs.rally.schedule import SEARCH_BESIDE, round_of
from esrally_ebs.store.context import ENDED

if TYPE_CHECKING:
    from esrally_ebs.rally.sample_recorder import DrivenSession

# Samples that were not handed over are lost with the process: at most 5 s of them may be, with those that are
# not written yet. As long an actor's message, to end for instance, may wait.
_LOOK_S = 2.0
BETWEEN_LOOKS_S = 0.01  # what a look waits for is decided in ``send_samples``
_DIGESTION_S = 10e-6  # a sample, to be read and written by the driver: 8 us here
_PREPARATION_S = 0.25
_HEAD_BYTES = 512  # of an answer; what a search says of itself stands before its hits, in about 150 bytes
_PATIENCE_S = 1.0  # clients that leave no gap between their requests may not hold samples back for longer


class _Turns:
    """Requests and the handing over of samples, one after the other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests = 0  # in flight, all of one event loop

    @contextmanager
    def request(self) -> Iterator[None]:
        """Waits, with its event loop, only while no other request is in flight that this could slow."""
        if self._requests == 0:
            self._lock.acquire()
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1
            if self._requests == 0:
                self._lock.release()

    @contextmanager
    def hand_over(self) -> Iterator[bool]:
        """Waits for a gap between requests, but not for ever; whether it holds them back now."""
        is_ours = self._lock.acquire(timeout=_PATIENCE_S)
        try:
            yield is_ours
        finally:
            if is_ours:
                self._lock.release()


turns = _Turns()


def send_samples(original: Any, self: Any) -> Any:
    """Sleeps until the task ends; what there is at its end is handed over as before."""
    self.wakeup_interval = BETWEEN_LOOKS_S
    if self.executor_future is not None:
        wait([self.executor_future], _LOOK_S)
    with turns.hand_over() as is_between:
        samples = original(self)
        if is_between:
            # Rally gives those that were not due at a time their service time as latency
            time.sleep(sum(one.latency == one.service_time for one in samples or ()) * _DIGESTION_S)
        return samples


def drive(original: Any, self: Any) -> None:
    """What is there when the first task starts is never looked through again by the garbage collector."""
    _freeze_imports()
    original(self)


@cache
def _freeze_imports() -> None:
    """Once in a process: to ask gc.get_freeze_count() takes 16 ms, for it goes through all that is frozen."""
    gc.collect()
    gc.freeze()


def task_execution_actor(original: Any, self: Any) -> None:
    """``TaskExecutionActor.__init__``: looks more often whether the track is prepared."""
    original(self)
    self.wakeup_interval = _PREPARATION_S


def parse(
    original: Any, text: BytesIO, props: list[str], lists: Any = None, objects: Any = None
) -> dict[str, Any]:
    """Looks for properties of an answer in its head first: Rally's parser takes all that it is given."""
    if lists is None and objects is None:
        head = text.getvalue()[:_HEAD_BYTES]
        # up to a comma, for a number that is cut short would be another number
        values: dict[str, Any] = original(BytesIO(head[: head.rfind(b",") + 1]), props)
        if len(values) == len(props):
            return values
    return original(text, props, lists, objects)  # type: ignore[no-any-return]


def update_samples(original: Any, session: "DrivenSession", self: Any, samples: list[Any]) -> None:
    """Rally keeps its samples, and the session gets them too."""
    original(self, samples)
    session.add_samples(samples)


def prepare_telemetry(
    original: Any, session: "DrivenSession", self: Any, *arguments: Any, **more: Any
) -> None:
    """One more telemetry device."""
    original(self, *arguments, **more)
    self.telemetry.devices.append(session.telemetry_device())


def move_to_next_task(original: Any, session: "DrivenSession", self: Any, workers: Any) -> None:
    """Decides about the next round before the workers hear of its first task, and starts tasks at once.

    Rally rests a second before each task, so that hosts with other clocks start together; we have one. Its
    own test mode does not rest, and it is asked for while the driver decides when the next task starts.
    """
    steps = self.tasks_per_join_point
    session.begin_tasks(list(steps[self.current_step]), len(steps) - self.current_step)
    scope, key = config.Scope.benchmark, ("track", "test.mode.enabled")
    test_mode = self.config.opts(*key)
    self.config.add(scope, *key, True)
    try:
        original(self, workers)
    finally:
        self.config.add(scope, *key, test_mode)


def current_tasks_and_advance(original: Any, session: "DrivenSession", self: Any) -> Any:
    """Passes over tasks of rounds that are over, as Rally's worker passes over places that hold no task."""
    session.attend()
    allocations = original(self)
    if self.at_joinpoint():
        return allocations
    rounds = [round_of(allocation.task.task) for allocation in allocations]
    return [] if rounds and min(rounds) > 0 and session.is_over(min(rounds)) else allocations


class SearchEnd:
    """In place of the event by which a search ends what runs beside it: set by the last of its clients.

    Rally sets its own in a process as soon as the first client there is done, and waits for no other process.
    A client that is done adds a line to a file, which all processes of the machine look at.
    """

    def __init__(self, event: threading.Event, path: Path, search: str, clients: int) -> None:
        self._event, self._path, self._search, self._clients = event, path, search, clients

    def set(self) -> None:
        """A client of the search is done."""
        with self._path.open("a") as file:
            file.write(f"{self._search!r}\n")

    def is_set(self) -> bool:
        """Whether all of them are, or Rally ends the task."""
        ended = self._path.read_text().splitlines() if self._path.exists() else []
        return ended.count(repr(self._search)) >= self._clients or self._event.is_set()


def executor(
    original: Any,
    session: "DrivenSession",
    self: Any,
    client_id: int,
    task: Any,
    schedule: Any,
    es: Any,
    sampler: Any,
    cancel: Any,
    complete: Any,
    *more: Any,
) -> None:
    """``AsyncExecutor.__init__``: writes beside a search go on until the last of its clients is done."""
    search, clients = task.operation.params.get(SEARCH_BESIDE, ("", 0))
    if search and (notes := session.notes):
        complete = SearchEnd(complete, notes / ENDED, search, clients)
    original(self, client_id, task, schedule, es, sampler, cancel, complete, *more)


def update_progress_message(
    original: Any, session: "DrivenSession", self: Any, task_finished: bool = False
) -> None:
    """Once a second: Rally itself would wait for a load host that is gone."""
    session.require_load()
    original(self, task_finished=task_finished)
