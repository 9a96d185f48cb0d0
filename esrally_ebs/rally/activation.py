"""How the pack gets into Rally's other processes: an object in their configuration installs it.

Rally starts each actor by fork or spawn and sends it the configuration. Fork would inherit what race control
installed, spawn would not; the object works in both.
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
    """Carried in Rally's configuration; names the context file of the session, or who else knows of it."""

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
    """Replace in this process what a session needs replaced, once; ``write`` gets a line at each stage."""
    if _installed.get("path") == context_path:
        return
    _installed["path"] = context_path
    patches.install((patches.FAILURE, *patches.WAITS))
    patches.install(patches.DRIVING, DrivenSession(current, write, coordinator))


def coordinator() -> CoordinatorClient | None:
    """Who does for this process what only the machine with the volumes can; None on that machine."""
    client: CoordinatorClient | None = _installed.get("coordinator")
    return client


def current() -> Context:
    """The session that this process takes part in, as it is: nodes that were started anew have other pids."""
    if remote := coordinator():
        return remote.context
    path = _installed["path"]
    with suppress(OSError):  # taken down meanwhile: what is left to do is done with what is known
        version = path, path.stat().st_mtime_ns
        if _installed.get("version") != version:
            _installed.update(context=load_context(path), version=version)
    if "context" not in _installed:
        _installed["context"] = load_context(path)
    context: Context = _installed["context"]
    return context
