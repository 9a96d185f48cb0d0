"""How a race runs and ends: against our nodes; our errors in one line, our exit code, our last line.

Rally's actors turn every error into text, and its main process exits with 64 for all of them. That process
never loads the track, so the message object itself brings the exit code, or where the report is: it takes
effect where it is unpickled.
"""

import atexit
import re
import sys
import traceback
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from esrally import actor, exceptions, metrics, racecontrol
from esrally.track import loader

from esrally_ebs.errors import EbsError, PlanError, SetupError, near
from esrally_ebs.rally import any_track
from esrally_ebs.units import printable

if TYPE_CHECKING:
    from esrally_ebs.rally.processor import RaceEnd

RALLYS_ERROR = 64  # Rally's exit code for every error
# Where a message of Rally's goes on with lines of the track, or with a file that is gone by then.
_LONG = re.compile(r"Lines containing the error|The (?:complete track|track file)\b")
_SHOWN = 400  # characters of a message
_TRACEBACK = "Traceback (most recent call last)"

_EXITING = "exiting"  # as the status of Rally's own driver is then


class RaceFailure(actor.BenchmarkFailure):  # type: ignore[misc]
    """A failed race with a message for the user and the exit code of its cause.

    Stands in for every ``BenchmarkFailure``: Rally's own cannot be pickled where its name is replaced.
    """

    def __init__(self, message: str, exit_code: int = RALLYS_ERROR, cause: object = None) -> None:
        super().__init__(printable(message), cause)  # Rally's console obeys what a track or a host says
        self.exit_code = exit_code

    def __reduce__(self) -> tuple[Any, ...]:
        return (_arrive, (self.message, self.exit_code, self.cause))


class _ExitsWith:
    """Stands in for ``sys`` inside ``esrally.rally``, whose exit code for errors is fixed."""

    def __init__(self, code: int) -> None:
        self._code = code

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)

    def exit(self, status: str | int | None = None) -> None:
        """``sys.exit`` with our code in place of Rally's general one."""
        sys.exit(self._code if status == RALLYS_ERROR else status)


def _arrive(message: str, exit_code: int, cause: object) -> RaceFailure:
    rally = sys.modules.get("esrally.rally")
    if rally is not None and exit_code != RALLYS_ERROR:
        rally.sys = _ExitsWith(exit_code)  # type: ignore[attr-defined]
    return RaceFailure(message, exit_code, cause)


def failure_of(error: BaseException | None, text: str, cause: object = None) -> RaceFailure:
    """The failure message for an error that an actor is handling now; ``text`` is Rally's own rendering."""
    refused, cause_of = None, error
    while cause_of is not None:
        if isinstance(cause_of, EbsError):
            return RaceFailure(str(cause_of), cause_of.exit_code)
        if isinstance(cause_of, OSError) and cause_of.strerror:
            refused = cause_of
        cause_of = cause_of.__cause__ or cause_of.__context__
    if error is None or _TRACEBACK not in str(text):  # some of Rally hand the error itself
        return RaceFailure(text, RALLYS_ERROR, cause)
    if refused is not None:
        where = refused.filename or "what Rally reads or writes"
        what = f"{where}: {refused.strerror}; see that it can be, and has room, and race again"
        return RaceFailure(what, SetupError.exit_code)
    place = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__} in {Path(place.filename).name}:{place.lineno}: {error}"
    return RaceFailure(
        f"{' '.join(what.split())[:_SHOWN]}; Rally's log has the traceback", RALLYS_ERROR, cause
    )


def benchmark_failure(_: Any, message: str, cause: object = None) -> RaceFailure:
    """``actor.BenchmarkFailure``, which every actor makes of the error that it is handling."""
    return failure_of(sys.exc_info()[1], message, cause)


def unused_parameters(original: Any, self: Any) -> list[str]:
    """Raises PlanError for a parameter that a track of ours lacks, before Rally prints some twenty lines."""
    names: list[str] = original(self)
    known = self.sorted_track_defined_params
    if names and {"plan", "volumes"} <= set(known):
        _fail_in_one_line()
        name = min(names)
        raise PlanError(
            f"track parameter {name}: the track has none of that name; it has"
            f" {', '.join(known)}{near(name, known)}"
        )
    return names


def read_track(original: Any, self: Any, *arguments: Any) -> Any:
    """Raises PlanError for a track's syntax or a file that it lacks in a race of ours, not Rally's stack."""
    try:
        return original(self, *arguments)
    except exceptions.SystemSetupError as error:  # Jinja's, and to Rally a track that does not exist
        if not any_track.parameters() or not isinstance(error.__context__, OSError):
            raise
        _fail_in_one_line()
        lacks = f"{arguments[1]}: includes {error.__context__}, which is not there; mend the track"
        raise PlanError(lacks) from None
    except (loader.TrackSyntaxError, OSError) as error:
        if not any_track.parameters():
            raise
        _fail_in_one_line()
        if isinstance(error, OSError):
            raise PlanError(
                f"{error.filename or arguments[0]}: {error.strerror or error}; mend the track"
            ) from None
        text = _LONG.split(str(error.message))[0].rstrip(". ")
        cause = f": {error.cause}" if error.cause else ""
        raise PlanError(" ".join(f"{text}{cause}".split())[:_SHOWN]) from None


def is_rally_process(original: Any, process: Any) -> bool:
    """Whether it runs: what has ended is listed until its parent asks for it, in many containers for ever."""
    return process.status() != psutil.STATUS_ZOMBIE and bool(original(process))


def _fail_in_one_line() -> None:
    """Only in race control, while it loads a track: Rally's main process needs the class as it is."""
    from esrally_ebs.rally import patches

    patches.install([patches.FAILURE])


class RaceSuccess(racecontrol.Success):  # type: ignore[misc]
    """A race that went through; its last line is where the report is."""

    def __init__(self, last_line: str) -> None:
        self.last_line = last_line

    def __reduce__(self) -> tuple[Any, ...]:
        return (_arrive_well, (self.last_line,))


def _arrive_well(last_line: str) -> RaceSuccess:
    atexit.register(sys.stdout.write, last_line)  # after all that Rally itself says
    return RaceSuccess(last_line)


def start_engine(original: Any, race: "RaceEnd", cfg: Any, context: Any, *_: Any) -> Any:
    """The message that would have Rally start nodes says that the user has."""
    return original(cfg, context, False, False, True, False)


def on_benchmark_complete(original: Any, race: "RaceEnd", self: Any, new_metrics: Any) -> None:
    """Completes the session of a race that neither failed nor was cancelled."""
    race.load_may_go()
    original(self, new_metrics)
    if not self.cancelled and not self.error:
        race.complete()


def calculate_results(original: Any, race: "RaceEnd", store: Any, of: Any) -> Any:
    """Rally's summary, which asks its store some twenty times for each of a race's hundreds of tasks."""
    return original(_ByTask(store) if type(store) is metrics.InMemoryMetricsStore else store, of)


class _ByTask(metrics.InMemoryMetricsStore):  # type: ignore[misc]
    """What a store has in memory; where a task is named, Rally's own methods see that task's alone."""

    def __init__(self, store: Any) -> None:
        self._all = self.docs = store.docs
        self._of_task: defaultdict[str | None, list[Any]] = defaultdict(list)
        for doc in self._all:
            self._of_task[doc.get("task")].append(doc)

    def _look_at(self, task: str | None) -> None:
        self.docs = self._all if task is None else self._of_task.get(task, [])

    def _get(self, name: str, task: str | None, *more: Any) -> Any:
        self._look_at(task)
        return super()._get(name, task, *more)

    def get_error_rate(self, task: str, *types: Any, **more: Any) -> Any:
        """Rally's, of the task's metrics."""
        self._look_at(task)
        return super().get_error_rate(task, *types, **more)

    def get_one(
        self, name: str, sample_type: Any = None, node_name: Any = None, task: str | None = None, **more: Any
    ) -> Any:
        """Rally's, of the task's metrics where it is asked about one."""
        self._look_at(task)
        return super().get_one(name, sample_type, node_name, task, **more)


def receive_failure(original: Any, race: "RaceEnd", self: Any, msg: Any, sender: Any) -> None:
    """Reports the first fault of the session in place of what Rally heard of, which is kept beside it."""
    fault = race.first_fault()
    race.why = race.why or " ".join(str(msg.message).split())[:_SHOWN]  # the rest follows from the first
    original(self, RaceFailure(*fault) if fault else msg, sender)


def receive_child_exit(original: None, race: "RaceEnd", self: Any, msg: Any, sender: Any) -> None:
    """Fails the race when a process dies that Rally would wait for without an end."""
    parts = {"driver": self.main_driver, "mechanic": self.mechanic}
    died = [name for name, address in parts.items() if address and address == msg.childAddress]
    if died and self.status != _EXITING:
        error = SetupError(f"Rally's {died[0]} was killed; all was taken down, start the race again")
        race.fail(error)
        self.receiveMsg_BenchmarkFailure(RaceFailure(str(error), error.exit_code), sender)


def receive_exit(original: None, race: "RaceEnd", self: Any, msg: Any, sender: Any) -> None:
    """Ends the session."""
    self.status = _EXITING
    race.end(bool(self.coordinator and self.coordinator.cancelled))


def success(original: Any, race: "RaceEnd") -> RaceSuccess:
    """``racecontrol.Success``, which race control sends to Rally's command."""
    return RaceSuccess(race.last_line())
