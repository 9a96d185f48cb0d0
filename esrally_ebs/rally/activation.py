"""Installs the pack in Rally's other processes, by an object in their configuration.

Rally starts each actor by fork or spawn and sends it the configuration. Forked actors inherit what race
control installed, spawned ones do not; the object works for both.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from esrally_ebs.rally import patches
from esrally_ebs.rally.coordinator_client import Coordinator, CoordinatorClient
from esrally_ebs.rally.sample_recorder import DrivenSession, line_writer
from esrally_ebs.store.context import Context, load_context

ACTIVATION = "ebs.activation"  # of section "driver", which Rally sends to all its processes

_installed: dict[str, Any] = {}


class Activation:
    """Carried in Rally's configuration; has the path of the session's context file, or who to ask instead."""

    def __init__(
        self, context_path: Path, is_quiet: bool = True, coordinator: Coordinator | None = None
    ) -> None:
        self.context_path = context_path
        self.is_quiet = is_quiet
        self.coordinator = coordinator

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unpickled, (str(self.context_path), self.is_quiet, self.coordinator))


def _unpickled(path: str, is_quiet: bool, coordinator: Coordinator | None) -> Activation:
    is_elsewhere = coordinator is not None and not coordinator.is_here
    if coordinator is not None and is_elsewhere and _installed.get("of") != coordinator:
        _installed.update(of=coordinator, coordinator=CoordinatorClient(coordinator))
    install(Path(path), line_writer(is_quiet))
    return Activation(Path(path), is_quiet, coordinator)


def install(context_path: Path, write: Callable[[str], None] = lambda line: None) -> None:
    """Replace in this process, once, what a session needs replaced; ``write`` gets a line at each stage."""
    if _installed.get("path") == context_path:
        return
    _installed["path"] = context_path
    patches.install((patches.FAILURE, *patches.WAITS))
    patches.install(patches.DRIVING, DrivenSession(current, write, coordinator))


def coordinator() -> CoordinatorClient | None:
    """Client for steps that only the machine with the volumes can do; None on that machine."""
    client: CoordinatorClient | None = _installed.get("coordinator")
    return client


def current() -> Context:
    """The current context of this process's session; restarted nodes have other pids."""
    if remote := coordinator():
        return remote.context
    path = _installed["path"]
    with suppress(OSError):  # already taken down: the rest is done with the last known context
        version = path, path.stat().st_mtime_ns
        if _installed.get("version") != version:
            _installed.update(context=load_context(path), version=version)
    if "context" not in _installed:
        _installed["context"] = load_context(path)
    context: Context = _installed["context"]
    return context
