"""Every name of Rally that the pack replaces, in one table, and every one that it leans on besides.

Rally has no plug-in point for any of it. Twenty-two names are replaced: fifteen in all of Rally's
processes, seven in race control alone. Each is wrapped once, whatever is installed how often, and each is
checked by ``require_signatures`` before the first is replaced, and by ``esrally-ebs doctor``. One
more, ``sys`` in Rally's own command, is replaced where a failure arrives (``outcome.py``); before
Rally is loaded, ``local_actors.py`` chooses its system of actors and notes which is race control, and
``any_track.py`` has tracks register the pack.
"""

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from esrally import actor, client, mechanic, metrics, racecontrol, rally, telemetry, version
from esrally.driver import driver, runner
from esrally.track import loader, params
from esrally.utils import process

from esrally_ebs.errors import SetupError
from esrally_ebs.model import Check
from esrally_ebs.rally.patches import outcome, worker

SUPPORTED = ("2.12", "2.13")
_MEND = "this Rally differs from the tested ones; pip install 'esrally>=2.12,<2.14'"


@dataclass(frozen=True, slots=True)
class Patch:
    """A replaced name of Rally."""

    owner: Any  # the module or class with the name
    name: str
    parameters: tuple[str, ...] | None  # parameters that it must begin with; None: Rally has no such name
    why: str
    stands_in: Any  # called with the original, ``install``'s further arguments, and the call's; or a value


_UNPATCHED: dict[tuple[Any, str], Any] = {}  # Rally's own objects under replaced names

# In processes that make requests and collect samples.
DRIVING = (
    Patch(
        driver.Driver,
        "update_samples",
        ("self", "samples"),
        "each sample into the session folder; rounds: auto counts on them",
        worker.update_samples,
    ),
    Patch(
        driver.Driver,
        "prepare_telemetry",
        ("self", "es", "enable"),
        "devices, page cache and limiters once a second, as long as the benchmark runs",
        worker.prepare_telemetry,
    ),
    Patch(
        driver.Driver,
        "move_to_next_task",
        ("self", "workers_curr_step"),
        "no second of rest before each task; rounds: auto ends the rounds here",
        worker.move_to_next_task,
    ),
    Patch(
        driver.Worker,
        "current_tasks_and_advance",
        ("self",),
        "rounds: auto passes over rounds that are not needed",
        worker.current_tasks_and_advance,
    ),
    Patch(
        driver.AsyncExecutor,
        "__init__",
        ("self", "client_id", "task", "schedule", "es", "sampler", "cancel", "complete"),
        "writes beside several clients of a search end with the last of them, not with the first",
        worker.executor,
    ),
    Patch(
        driver.Driver,
        "update_progress_message",
        ("self", "task_finished"),
        "a load host that is gone ends the race: Rally would wait for it",
        worker.update_progress_message,
    ),
)
# The same for every session.
WAITS = (
    Patch(
        driver.Worker,
        "WAKEUP_INTERVAL_SECONDS",
        (),
        "a worker notices the end of a task at once, not after up to 5 s",
        worker.BETWEEN_LOOKS_S,
    ),
    Patch(
        driver.Worker,
        "send_samples",
        ("self",),
        "looks at a task seldom, and hands samples over between requests",
        worker.send_samples,
    ),
    Patch(
        driver.Worker,
        "drive",
        ("self",),
        "no request waits while the garbage collector looks through all that was imported",
        worker.drive,
    ),
    Patch(
        driver.TaskExecutionActor,
        "__init__",
        ("self",),
        "race control learns within 0.25 s, not 5 s, that the track is prepared",
        worker.task_execution_actor,
    ),
    Patch(
        runner,
        "parse",
        ("text", "props", "lists", "objects"),
        "reads hits and took from the head of an answer: a whole one delays the next request",
        worker.parse,
    ),
)
FAILURE = Patch(
    actor,
    "BenchmarkFailure",
    ("message", "cause"),
    "an error of ours is one line, with our exit code",
    outcome.benchmark_failure,
)
# When race control loads the track, before the pack is registered.
LOADING = (
    Patch(
        loader.CompleteTrackParams,
        "unused_user_defined_track_params",
        ("self",),
        "a track parameter that our track does not have is one line",
        outcome.unused_parameters,
    ),
    Patch(
        loader.TrackFileReader,
        "read",
        ("self", "track_name", "track_spec_file", "mapping_dir"),
        "what is wrong with the syntax of a track is one line",
        outcome.read_track,
    ),
    Patch(
        process,
        "is_rally_process",
        ("p",),
        "an earlier race that has ended, and that nobody has waited for, is no race",
        outcome.is_rally_process,
    ),
)
RACE_CONTROL = (
    Patch(
        mechanic,
        "StartEngine",
        ("cfg", "open_metrics_context", "sources", "distribution", "external", "docker"),
        "Rally starts no nodes: it races against ours",
        outcome.start_engine,
    ),
    Patch(
        racecontrol.BenchmarkCoordinator,
        "on_benchmark_complete",
        ("self", "new_metrics"),
        "the session is completed and reported after Rally's own summary",
        outcome.on_benchmark_complete,
    ),
    Patch(
        metrics,
        "calculate_results",
        ("store", "race"),
        "Rally's summary looks for a task's metrics among that task's, not some twenty times among all",
        outcome.calculate_results,
    ),
    Patch(racecontrol, "Success", (), "the last line says where the report is", outcome.success),
    Patch(
        racecontrol.BenchmarkActor,
        "receiveMsg_BenchmarkFailure",
        ("self", "msg", "sender"),
        "what failed first is reported, not what followed from it",
        outcome.receive_failure,
    ),
    Patch(
        racecontrol.BenchmarkActor,
        "receiveMsg_ChildActorExited",  # Thespian calls it by its name
        None,
        "a race whose driver was killed fails, and does not wait for it",
        outcome.receive_child_exit,
    ),
    Patch(
        racecontrol.BenchmarkActor,
        "receiveMsg_ActorExitRequest",  # Thespian calls it by its name
        None,
        "however the race ends, the session is taken down",
        outcome.receive_exit,
    ),
)
TABLE = (*DRIVING, *WAITS, FAILURE, *LOADING, *RACE_CONTROL)

# Names that are called, not replaced -> parameters that they must begin with.
_CALLED: tuple[tuple[Any, str, tuple[str, ...]], ...] = (
    (racecontrol.BenchmarkActor, "receiveMsg_Setup", ("self", "msg", "sender")),
    (metrics.InMemoryMetricsStore, "_get", ("self", "name", "task")),
    (metrics.InMemoryMetricsStore, "get_error_rate", ("self", "task")),
    (metrics.InMemoryMetricsStore, "get_one", ("self", "name", "sample_type", "node_name", "task")),
    (driver.Driver, "close", ("self",)),
    (driver.Worker, "at_joinpoint", ("self",)),
    (telemetry.TelemetryDevice, "__init__", ("self",)),
    (client.RequestContextHolder, "new_request_context", ("self",)),
    (runner, "runner_for", ("operation_type",)),
    (params, "param_source_for_operation", ("op_type", "track", "params", "task_name")),
    (loader.TrackProcessorRegistry, "register_track_processor", ("self", "processor")),
    (loader, "TrackSyntaxError", ("message", "cause")),
    (loader.TrackPluginReader, "load", ("self",)),
    (loader.TrackPluginReader, "can_load", ("self",)),
    (loader, "load_track_plugins", ("cfg", "track_name", "register_runner", "register_scheduler")),
    (loader, "set_absolute_data_path", ("cfg", "t")),
    (driver, "AsyncIoAdapter", ("cfg", "track", "task_allocations", "sampler", "cancel", "complete")),
    (rally, "main", ()),
    (rally, "sys", ()),
)


def install(patches: Iterable[Patch], *arguments: Any) -> None:
    """Replace names in this process; a second call replaces the replacement and never wraps it.

    ``arguments`` are passed to what stands in, after the original.
    """
    for patch in patches:
        original = unpatched(patch.owner, patch.name)
        _UNPATCHED[patch.owner, patch.name] = original
        is_called = callable(patch.stands_in)
        made = _with_first(patch.stands_in, original, *arguments) if is_called else patch.stands_in
        if is_called and inspect.isfunction(original):
            functools.update_wrapper(made, original)
        setattr(patch.owner, patch.name, made)


def _with_first(stands_in: Callable[..., Any], *first: Any) -> Callable[..., Any]:
    def replacement(*arguments: Any, **more: Any) -> Any:  # no partial: it would not bind as a method
        return stands_in(*first, *arguments, **more)

    return replacement


def unpatched(owner: Any, name: str) -> Any:
    """Rally's own object of that name; None if there is none."""
    return _UNPATCHED.get((owner, name), getattr(owner, name, None))


def check_signatures() -> list[Check]:
    """A check for each part of Rally that we replace or rely on, and one for its version."""
    number = version.__version__
    checks = [
        Check(
            name="rally version",
            ok=number.startswith(tuple(f"{minor}." for minor in SUPPORTED)),
            value=number,
            text=f"tested with {' and '.join(SUPPORTED)}; pip install 'esrally>=2.12,<2.14'",
        )
    ]
    replaced = ((patch.owner, patch.name, patch.parameters) for patch in TABLE)
    return checks + [_check(*part) for part in (*replaced, *_CALLED)]


def _check(owner: Any, name: str, wanted: tuple[str, ...] | None) -> Check:
    part = unpatched(owner, name)
    parameters = tuple(inspect.signature(part).parameters) if callable(part) else ()
    is_ok = part is None if wanted is None else part is not None and parameters[: len(wanted)] == wanted
    words = [owner.__module__, owner.__name__] if inspect.isclass(owner) else [owner.__name__]
    words[0] = words[0].rpartition(".")[2]
    return Check(
        name=".".join([*words, name]),
        ok=is_ok,
        value="missing" if part is None else ", ".join(parameters),
        text=_MEND,
    )


@functools.cache
def require_signatures() -> None:
    """Raise SetupError, naming the differences, if this Rally cannot be extended."""
    broken = [check for check in check_signatures() if not check.ok]
    if broken:
        names = ", ".join(f"{check.name} ({check.value})" for check in broken)
        raise SetupError(f"Rally: unsupported: {names}; {broken[0].text}")
