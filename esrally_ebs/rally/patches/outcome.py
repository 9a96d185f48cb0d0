"""How a race runs and ends: against our nodes; with our errors in one line, our exit code, our last line.

Rally's actors turn every error into text, and its main process exits with 64 for all. That process never
loads the track, so the message itself carries the exit code, or the report's place: it acts when it is
unpickled.
"""

import atexit
import re
import sys
import tempfile
import traceback
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import psutil
from esrally import actor, exceptions, metrics, racecontrol

from esrally_ebs.errors import EbsError, PlanError, SetupError, near
from esrally_ebs.rally import any_track
from esrally_ebs.units import printable

if TYPE_CHECKING:
    from esrally_ebs.rally.processor import RaceEnd

RALLYS_ERROR = 64  # Rally's exit code for every error
# Points where Rally's messages continue with lines of the track, or with a file that no longer exists.
_LONG = re.compile(r"Lines containing the error|The (?:complete track|track file)\b|Schema path:")
_SHOWN = 400  # characters of a message that are shown
_TRACEBACK = "Traceback (most recent call last)"

# Rally's errors about text of another encoding or form than it expects.
_OF_TEXT = (ValueError, LookupError, TypeError, AttributeError)

_EXITING = "exiting"  # the status of Rally's own driver then


class RaceFailure(actor.BenchmarkFailure):  # type: ignore[misc]
    """A failed race, with a message for the user and its cause's exit code.

    Replaces every ``BenchmarkFailure``: Rally's own cannot be pickled once its name is replaced.
    """

    def __init__(self, message: str, exit_code: int = RALLYS_ERROR, cause: object = None) -> None:
        super().__init__(printable(message), cause)  # Rally's console obeys escapes of tracks and hosts
        self.exit_code = exit_code

    def __reduce__(self) -> tuple[Any, ...]:
        return (_arrive, (self.message, self.exit_code, self.cause))


class _ExitsWith:
    """Stands in for ``sys`` in ``esrally.rally``, which has a fixed exit code for errors."""

    def __init__(self, code: int) -> None:
        self._code = code

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)

    def exit(self, status: str | int | None = None) -> None:
        """``sys.exit`` with our code instead of Rally's general one."""
        sys.exit(self._code if status == RALLYS_ERROR else status)


def _arrive(message: str, exit_code: int, cause: object) -> RaceFailure:
    rally = sys.modules.get("esrally.rally")
    if rally is not None and exit_code != RALLYS_ERROR:
        rally.sys = _ExitsWith(exit_code)  # type: ignore[attr-defined]
    return RaceFailure(message, exit_code, cause)


def failure_of(error: BaseException | None, text: str, cause: object = None) -> RaceFailure:
    """Failure message for the error that an actor is handling; ``text`` is Rally's own version."""
    refused, cause_of = None, error
    while cause_of is not None:
        if isinstance(cause_of, EbsError):
            return RaceFailure(str(cause_of), cause_of.exit_code)
        if isinstance(cause_of, OSError) and cause_of.strerror:
            refused = cause_of
        cause_of = cause_of.__cause__ or cause_of.__context__
    if error is None or _TRACEBACK not in str(text):  # some of Rally's callers pass the error itself
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
    """``actor.BenchmarkFailure``, which every actor makes from the error that it handles."""
    return failure_of(sys.exc_info()[1], message, cause)


def unused_parameters(original: Any, self: Any) -> list[str]:
    """In our races, raise PlanError for parameters that the track lacks, which is twenty lines of Rally's."""
    names: list[str] = original(self)
    known = self.sorted_track_defined_params
    if names and (any_track.parameters() or {"plan", "volumes"} <= set(known)):
        _fail_in_one_line()
        name = min(names)
        raise PlanError(
            f"track parameter {name}: the track has none of that name; it has"
            f" {', '.join(known) or 'none at all'}{near(name, known)}"
        )
    return names


def read_track(original: Any, self: Any, *arguments: Any) -> Any:
    """Raise PlanError for what Rally cannot read of a track that has our line or that we race: one line."""
    if not any_track.parameters() and not _has_our_line(Path(arguments[2])):
        return original(self, *arguments)
    _fail_in_one_line()  # also where the track's dependencies cannot be installed, which follows
    try:
        with _temporary_files_removed():
            return original(self, *arguments)
    except (exceptions.RallyError, jinja2.TemplateError, OSError, *_OF_TEXT) as error:
        lacks = isinstance(error, exceptions.SystemSetupError)  # Rally's "track does not exist"
        if lacks and not isinstance(error.__context__, OSError):
            raise
        if lacks:
            text = f"{arguments[1]}: includes {error.__context__}, which is not there; mend the track"
        elif isinstance(error, OSError):
            text = f"{error.filename or arguments[0]}: {error.strerror or error}; mend the track"
        elif isinstance(error, _OF_TEXT):
            text = f"{arguments[1]}, or a file beside it: {type(error).__name__}: {error}; mend the track"
        elif isinstance(error, jinja2.TemplateError):
            text = f"{_template_of(error)}: {error.message}; mend the track"
        else:
            cause = f": {error.cause}" if error.cause else ""
            text = f"{_LONG.split(str(error.message))[0].rstrip('. ')}{cause}"
        raise PlanError(" ".join(text.split())[:_SHOWN]) from None


@contextmanager
def _temporary_files_removed() -> Iterator[None]:
    """Remove the file that Rally renders a track to and leaves in each process; 'render-track' makes one."""
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        try:
            yield
        finally:
            tempfile.tempdir = before


def _has_our_line(folder: Path) -> bool:
    """Whether the code of a track, which is not loaded yet, asks for the pack."""
    code = folder / "track.py"
    return code.is_file() and "esrally_ebs" in code.read_text(errors="replace")


def _template_of(error: BaseException) -> str:
    """What Rally calls the file beside the track in which Jinja stopped."""
    names = [frame.f_locals.get("description") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return str(next(filter(None, reversed(names)), "a template"))


def is_rally_process(original: Any, process: Any) -> bool:
    """Whether a process is running: ended ones are listed until reaped, in many containers for ever."""
    return process.status() != psutil.STATUS_ZOMBIE and bool(original(process))


def _fail_in_one_line() -> None:
    """Only in race control, while it loads a track: Rally's main process needs the original class."""
    from esrally_ebs.rally import patches

    patches.install([patches.FAILURE])


class RaceSuccess(racecontrol.Success):  # type: ignore[misc]
    """A completed race; its last line says where the report is."""

    def __init__(self, last_line: str) -> None:
        self.last_line = last_line

    def __reduce__(self) -> tuple[Any, ...]:
        return (_arrive_well, (self.last_line,))


def _arrive_well(last_line: str) -> RaceSuccess:
    atexit.register(sys.stdout.write, last_line)  # after all of Rally's own output
    return RaceSuccess(last_line)


def start_engine(original: Any, race: "RaceEnd", cfg: Any, context: Any, *_: Any) -> Any:
    """Replace the message that would make Rally start nodes by one that says that the user has."""
    return original(cfg, context, False, False, True, False)


def on_benchmark_complete(original: Any, race: "RaceEnd", self: Any, new_metrics: Any) -> None:
    """Complete the session of a race that neither failed nor was cancelled."""
    race.load_may_go()
    original(self, new_metrics)
    if not self.cancelled and not self.error:
        race.complete()


def calculate_results(original: Any, race: "RaceEnd", store: Any, of: Any) -> Any:
    """Rally's summary, faster: it asks its store some twenty times for each of hundreds of tasks."""
    return original(_ByTask(store) if type(store) is metrics.InMemoryMetricsStore else store, of)


class _ByTask(metrics.InMemoryMetricsStore):  # type: ignore[misc]
    """An in-memory store, divided by task: Rally's own methods then search one task only."""

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
        """Rally's, restricted to the task's metrics."""
        self._look_at(task)
        return super().get_error_rate(task, *types, **more)

    def get_one(
        self, name: str, sample_type: Any = None, node_name: Any = None, task: str | None = None, **more: Any
    ) -> Any:
        """Rally's, restricted to the task's metrics if a task is given."""
        self._look_at(task)
        return super().get_one(name, sample_type, node_name, task, **more)


def receive_failure(original: Any, race: "RaceEnd", self: Any, msg: Any, sender: Any) -> None:
    """Report the session's first fault instead of the error that Rally heard of, which is kept as well."""
    fault = race.first_fault()
    race.why = race.why or " ".join(str(msg.message).split())[:_SHOWN]  # later ones follow from the first
    original(self, RaceFailure(*fault) if fault else msg, sender)


def receive_child_exit(original: None, race: "RaceEnd", self: Any, msg: Any, sender: Any) -> None:
    """Fail the race when a process dies that Rally would wait for for ever."""
    parts = {"driver": self.main_driver, "mechanic": self.mechanic}
    died = [name for name, address in parts.items() if address and address == msg.childAddress]
    if died and self.status != _EXITING:
        error = SetupError(f"Rally's {died[0]} was killed; all was taken down, start the race again")
        race.fail(error)
        self.receiveMsg_BenchmarkFailure(RaceFailure(str(error), error.exit_code), sender)


def receive_exit(original: None, race: "RaceEnd", self: Any, msg: Any, sender: Any) -> None:
    """End the session."""
    self.status = _EXITING
    race.end(bool(self.coordinator and self.coordinator.cancelled))


def success(original: Any, race: "RaceEnd") -> RaceSuccess:
    """``racecontrol.Success``, which race control sends to Rally's command."""
    return RaceSuccess(race.last_line())
