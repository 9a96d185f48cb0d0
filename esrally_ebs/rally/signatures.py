"""The parts of Rally that the pack leans on and that are not public, checked before they are used."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from esrally import client, mechanic, racecontrol, rally, telemetry, version
from esrally.driver import driver, runner
from esrally.track import loader, params

from esrally_ebs.errors import SetupError
from esrally_ebs.model import Check
from esrally_ebs.rally import failure

SUPPORTED = ("2.12", "2.13")

# What we call or replace -> the parameters that it must have, in this order.
_NEEDED: tuple[tuple[str, Callable[[], Any], tuple[str, ...]], ...] = (
    (
        "mechanic.StartEngine",
        lambda: mechanic.StartEngine.__init__,
        ("self", "cfg", "open_metrics_context", "sources", "distribution", "external", "docker"),
    ),
    (
        "racecontrol.BenchmarkActor.receiveMsg_Setup",
        lambda: racecontrol.BenchmarkActor.receiveMsg_Setup,
        ("self", "msg", "sender"),
    ),
    (
        "racecontrol.BenchmarkActor.receiveMsg_BenchmarkFailure",
        lambda: racecontrol.BenchmarkActor.receiveMsg_BenchmarkFailure,
        ("self", "msg", "sender"),
    ),
    (
        "racecontrol.BenchmarkCoordinator.on_benchmark_complete",
        lambda: racecontrol.BenchmarkCoordinator.on_benchmark_complete,
        ("self", "new_metrics"),
    ),
    ("actor.BenchmarkFailure", lambda: failure.rallys_failure.__init__, ("self", "message", "cause")),
    ("driver.Driver.update_samples", lambda: driver.Driver.update_samples, ("self", "samples")),
    ("driver.Driver.prepare_telemetry", lambda: driver.Driver.prepare_telemetry, ("self", "es", "enable")),
    (
        "driver.Driver.move_to_next_task",
        lambda: driver.Driver.move_to_next_task,
        ("self", "workers_curr_step"),
    ),
    ("driver.Driver.close", lambda: driver.Driver.close, ("self",)),
    ("driver.TaskExecutionActor", lambda: driver.TaskExecutionActor.__init__, ("self",)),
    ("driver.Worker.send_samples", lambda: driver.Worker.send_samples, ("self",)),
    (
        "driver.Worker.current_tasks_and_advance",
        lambda: driver.Worker.current_tasks_and_advance,
        ("self",),
    ),
    ("driver.Worker.at_joinpoint", lambda: driver.Worker.at_joinpoint, ("self",)),
    ("driver.Worker.WAKEUP_INTERVAL_SECONDS", lambda: driver.Worker.WAKEUP_INTERVAL_SECONDS, ()),
    ("telemetry.TelemetryDevice", lambda: telemetry.TelemetryDevice.__init__, ("self",)),
    ("client.RequestContextHolder", lambda: client.RequestContextHolder.new_request_context, ("self",)),
    ("runner.runner_for", lambda: runner.runner_for, ("operation_type",)),
    ("runner.parse", lambda: runner.parse, ("text", "props", "lists", "objects")),
    (
        "params.param_source_for_operation",
        lambda: params.param_source_for_operation,
        ("op_type", "track", "params", "task_name"),
    ),
    (
        "loader.TrackProcessorRegistry",
        lambda: loader.TrackProcessorRegistry.register_track_processor,
        ("self", "processor"),
    ),
    ("rally.main", lambda: rally.main, ()),
)


def check_signatures() -> list[Check]:
    """One check per part of Rally that we lean on, and one for its version."""
    found = version.__version__
    checks = [
        Check(
            name="rally version",
            ok=found.startswith(tuple(f"{minor}." for minor in SUPPORTED)),
            value=found,
            text=f"tested with {' and '.join(SUPPORTED)}; pip install 'esrally>=2.12,<2.14'",
        )
    ]
    return checks + [_check(name, get, wanted) for name, get, wanted in _NEEDED]


def _check(name: str, get: Callable[[], Any], wanted: tuple[str, ...]) -> Check:
    try:
        part = get()
    except AttributeError:
        return Check(name=name, ok=False, value="missing", text=_MEND)
    found = tuple(inspect.signature(part).parameters) if callable(part) else ()
    return Check(name=name, ok=found[: len(wanted)] == wanted, value=", ".join(found), text=_MEND)


_MEND = "this Rally differs from the tested ones; pip install 'esrally>=2.12,<2.14'"


@functools.cache  # once per process and its forks: from then on Rally may hold our own replacements
def require_signatures() -> None:
    """Raise SetupError that names what differs when this Rally is not one that we can extend."""
    broken = [check for check in check_signatures() if not check.ok]
    if broken:
        names = ", ".join(f"{check.name} ({check.value})" for check in broken)
        raise SetupError(f"Rally: unsupported: {names}; {broken[0].text}")
