"""Changes in Rally's driver and workers: how samples leave, the last round, no other work beside a request.

Rally checks for the end of a task every 5 s, and rests a second before the next. But each check takes the
interpreter lock of the process that makes requests, and samples handed over with it are pickled there: 6 ms
for a thousand, during which one to five warm requests take 10 ms longer each, as the lock is kept for 5 ms at
a time. Then the driver makes rows of them, which takes a processor for another 8 ms. So a check sleeps until
the task ends or samples must go, and the next request waits until they are written; requests with a due time
do not wait, as they would be late. The garbage collector no longer scans everything imported, which stopped a
request of each race for 80 to 110 ms. And an answer is parsed only as far as hits and took, not to its end,
which takes 160 us and more for ten hits and makes the next request some 2 % slower.

Under spawn Rally has read two of the intervals before we can change them: then races only take longer.
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

# Samples that were not handed over are lost with the process: at most 5 s of them, including unwritten ones.
# An actor's message, to end for instance, may wait as long.
_LOOK_S = 2.0
BETWEEN_LOOKS_S = 0.01  # how long a check waits is decided in ``send_samples``
_DIGESTION_S = 10e-6  # for the driver to read and write a sample: 8 us here
_PREPARATION_S = 0.25
_HEAD_BYTES = 512  # start of an answer; a search's own fields come before its hits, in about 150 bytes
_PATIENCE_S = 1.0  # clients that leave no gaps must not hold samples back for longer


class _Turns:
    """Lets requests and the handing over of samples take turns."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests = 0  # in flight, all in one event loop

    @contextmanager
    def request(self) -> Iterator[None]:
        """Wait for the lock, blocking the event loop, only if no other request is in flight."""
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
        """Wait for a gap between requests, with a limit; yields whether requests are held back now."""
        is_ours = self._lock.acquire(timeout=_PATIENCE_S)
        try:
            yield is_ours
        finally:
            if is_ours:
                self._lock.release()


turns = _Turns()


def send_samples(original: Any, self: Any) -> Any:
    """Sleep until the task ends; what is left then is handed over as before."""
    self.wakeup_interval = BETWEEN_LOOKS_S
    if self.executor_future is not None:
        wait([self.executor_future], _LOOK_S)
    with turns.hand_over() as is_between:
        samples = original(self)
        if is_between:
            # Rally sets latency to the service time for requests without a due time
            time.sleep(sum(one.latency == one.service_time for one in samples or ()) * _DIGESTION_S)
        return samples


def drive(original: Any, self: Any) -> None:
    """Exempt everything that exists when the first task starts from garbage collection."""
    _freeze_imports()
    original(self)


@cache
def _freeze_imports() -> None:
    """Once per process: gc.get_freeze_count() takes 16 ms, as it goes through everything frozen."""
    gc.collect()
    gc.freeze()


def task_execution_actor(original: Any, self: Any) -> None:
    """``TaskExecutionActor.__init__``: checks more often whether the track is prepared."""
    original(self)
    self.wakeup_interval = _PREPARATION_S


def parse(
    original: Any, text: BytesIO, props: list[str], lists: Any = None, objects: Any = None
) -> dict[str, Any]:
    """Search an answer's head for properties first: Rally's parser reads all that it gets."""
    if lists is None and objects is None:
        head = text.getvalue()[:_HEAD_BYTES]
        # cut at a comma, as a truncated number would be another number
        values: dict[str, Any] = original(BytesIO(head[: head.rfind(b",") + 1]), props)
        if len(values) == len(props):
            return values
    return original(text, props, lists, objects)  # type: ignore[no-any-return]


def update_samples(original: Any, session: "DrivenSession", self: Any, samples: list[Any]) -> None:
    """Rally keeps its samples, and the session gets them, too."""
    original(self, samples)
    session.add_samples(samples)


def prepare_telemetry(
    original: Any, session: "DrivenSession", self: Any, *arguments: Any, **more: Any
) -> None:
    """Add a telemetry device."""
    original(self, *arguments, **more)
    self.telemetry.devices.append(session.telemetry_device())


def move_to_next_task(original: Any, session: "DrivenSession", self: Any, workers: Any) -> None:
    """Decide about the next round before workers hear of its first task, and start tasks at once.

    Rally rests a second before each task so that hosts with other clocks start together; we have one. Its own
    test mode does not rest, so test mode is pretended while the driver decides when the next task starts.
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
    """Skip tasks of rounds that are over, as Rally's worker skips places without a task."""
    session.attend()
    allocations = original(self)
    if self.at_joinpoint():
        return allocations
    rounds = [round_of(allocation.task.task) for allocation in allocations]
    return [] if rounds and min(rounds) > 0 and session.is_over(min(rounds)) else allocations


class SearchEnd:
    """Replaces the event by which a search ends what runs beside it; set by the last of its clients.

    Rally sets its own in each process when the first client there is done, and waits for no other process.
    Here a client that is done adds a line to a file, which all processes of the machine read.
    """

    def __init__(self, event: threading.Event, path: Path, search: str, clients: int) -> None:
        self._event, self._path, self._search, self._clients = event, path, search, clients

    def set(self) -> None:
        """Note that a client of the search is done."""
        with self._path.open("a") as file:
            file.write(f"{self._search!r}\n")

    def is_set(self) -> bool:
        """Whether all clients are done, or Rally ends the task."""
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
    """``AsyncExecutor.__init__``: writes beside a search continue until the last of its clients is done."""
    search, clients = task.operation.params.get(SEARCH_BESIDE, ("", 0))
    if search and (notes := session.notes):
        complete = SearchEnd(complete, notes / ENDED, search, clients)
    original(self, client_id, task, schedule, es, sampler, cancel, complete, *more)


def update_progress_message(
    original: Any, session: "DrivenSession", self: Any, task_finished: bool = False
) -> None:
    """Also check, once a second, for lost load hosts: Rally itself would wait for them."""
    session.require_load()
    original(self, task_finished=task_finished)
