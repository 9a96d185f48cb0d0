"""How the pack gets into Rally's other processes: an object in their configuration installs it.

Rally starts each actor by fork or spawn and sends it the configuration. Fork would inherit what race control
installed, spawn would not; the object works in both.
"""

import os
from pathlib import Path
from typing import Any

from esrally_ebs.context import Context, load_context
from esrally_ebs.rally import failure, pace, rounds, taps

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
    pace.quicken()
    failure.speak_plainly()
    taps.install(context_path)
    rounds.install(current)


def current() -> Context:
    """The session that this process takes part in."""
    cached = _installed.get("context")
    if cached is None or _installed.get("pid") != os.getpid():
        cached = load_context(_installed["path"])
        _installed.update(context=cached, pid=os.getpid())
    return cached
