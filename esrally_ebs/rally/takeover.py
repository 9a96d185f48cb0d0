"""In Rally's race control: make Rally race against our nodes, and take everything down when it ends.

Rally has no plug-in point for this. One name is replaced (``mechanic.StartEngine``), one handler added
(``ActorExitRequest``), two wrapped; signatures.py checks that they are what we think they are.
"""

import contextlib
import functools
import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import psutil
from esrally import config, mechanic, racecontrol
from esrally.utils import opts, process

from esrally_ebs.context import Arm
from esrally_ebs.rally import failure
from esrally_ebs.rally.activation import Activation

_CLIENT_TIMEOUT_S = 60


def use_nodes(cfg: Any, arms: Sequence[Arm], activation: Activation) -> None:
    """Point Rally at the arms' nodes as if the user had started them (``benchmark-only``)."""
    addresses = {arm.cluster: [f"{arm.node.host}:{arm.node.port}"] for arm in arms if arm.node is not None}
    hosts = opts.TargetHosts(json.dumps(addresses))
    given = cfg.opts("client", "options").all_client_options.get("default", {})
    options = {cluster: {"timeout": _CLIENT_TIMEOUT_S, **given} for cluster in addresses}
    first = arms[0].node
    scope = config.Scope.benchmark  # outranks the command line's own scope
    cfg.add(scope, "client", "hosts", hosts)
    cfg.add(scope, "client", "options", opts.ClientOptions(json.dumps(options), target_hosts=hosts))
    cfg.add(scope, "race", "pipeline", "benchmark-only")
    cfg.add(scope, "mechanic", "car.names", ["external"])
    cfg.add(scope, "mechanic", "distribution.version", first.version if first else "")
    cfg.add(scope, "mechanic", "distribution.flavor", "default")
    cfg.add(scope, "driver", "ebs.activation", activation)
    _start_no_engine()


def _start_no_engine() -> None:
    original = mechanic.StartEngine

    def start_engine(
        cfg: Any,
        context: Any,
        sources: Any,
        distribution: Any,
        external: Any,
        docker: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        return original(cfg, context, False, False, True, False, *args, **kwargs)

    mechanic.StartEngine = start_engine


def watch_the_end(
    *,
    complete: Callable[[], None],
    ended: Callable[[bool], None],
    first_fault: Callable[[], tuple[str, int] | None],
) -> None:
    """Have race control call us at the race's end.

    Args:
        complete: after Rally's own summary of a race that went through; may raise.
        ended: when the actor exits, however the race ended; True when the user cancelled it. Perhaps twice.
        first_fault: text and exit code of the error that one of our runners recorded first, if any.
    """
    coordinator, control = racecontrol.BenchmarkCoordinator, racecontrol.BenchmarkActor
    original_complete = coordinator.on_benchmark_complete
    original_failure = control.receiveMsg_BenchmarkFailure

    @functools.wraps(original_complete)
    def on_benchmark_complete(self: Any, new_metrics: Any) -> None:
        original_complete(self, new_metrics)
        if not self.cancelled and not self.error:
            complete()

    @functools.wraps(original_failure)
    def receive_failure(self: Any, msg: Any, sender: Any) -> None:
        fault = first_fault()
        original_failure(self, failure.RaceFailure(*fault) if fault else msg, sender)

    def receive_exit(self: Any, msg: Any, sender: Any) -> None:
        ended(bool(self.coordinator and self.coordinator.cancelled))

    coordinator.on_benchmark_complete = on_benchmark_complete
    control.receiveMsg_BenchmarkFailure = receive_failure
    control.receiveMsg_ActorExitRequest = receive_exit


def main_process() -> int | None:
    """Pid of the ``esrally`` command that started this race; None when it runs on another machine.

    The actor system leaves the command's process tree and session, so the command is no ancestor of race
    control. Rally lets only one race at a time run on a machine.
    """
    found = []
    for candidate in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            # an actor that was just forked still has the command's name
            if process.is_rally_process(candidate) and os.getsid(candidate.pid) != os.getsid(0):
                found.append((candidate.create_time(), candidate.pid))
    return min(found)[1] if found else None
