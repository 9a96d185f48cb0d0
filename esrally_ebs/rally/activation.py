"""How the pack gets into Rally's other processes: an object in their configuration installs it.

Rally starts each actor by fork or spawn and sends it the configuration. Fork would inherit what race control
installed, spawn would not; the object works in both.
"""

import functools
import os
from pathlib import Path
from typing import Any

from esrally import config
from esrally.driver import driver

from esrally_ebs.context import Context, load_context
from esrally_ebs.rally import failure, taps

# Rally's worker looks for the end of its task every 5 s, which would rule a schedule of many short blocks; so
# do its preparing actors, once for each track processor. Under spawn they have read the value before we can
# lower it: then races take longer, and nothing else.
_WAKEUP_S = 0.25

_installed: dict[str, Any] = {}


class Activation:
    """Carried in Rally's configuration; names the context file of the session."""

    def __init__(self, context_path: Path) -> None:
        self.context_path = context_path

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unpickled, (str(self.context_path),))


def _unpickled(path: str) -> Activation:
    install(Path(path))
    return Activation(Path(path))


def install(context_path: Path) -> None:
    """Install taps and plain failures in this process, once."""
    if _installed.get("path") == context_path:
        return
    _installed["path"] = context_path
    driver.Worker.WAKEUP_INTERVAL_SECONDS = _WAKEUP_S
    _wake_preparation()
    _start_tasks_at_once()
    failure.speak_plainly()
    taps.install(context_path)


def _wake_preparation() -> None:
    original = driver.TaskExecutionActor.__init__

    @functools.wraps(original)
    def initialise(self: Any) -> None:
        original(self)
        self.wakeup_interval = _WAKEUP_S

    driver.TaskExecutionActor.__init__ = initialise


def _start_tasks_at_once() -> None:
    """Rally rests a second before each task, so that load hosts with other clocks start together; we have one.

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


def current() -> Context:
    """The session that this process takes part in."""
    cached = _installed.get("context")
    if cached is None or _installed.get("pid") != os.getpid():
        cached = load_context(_installed["path"])
        _installed.update(context=cached, pid=os.getpid())
    return cached
