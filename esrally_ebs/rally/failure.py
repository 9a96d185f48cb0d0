"""Our errors on their way to Rally's main process: one line instead of a traceback, and our exit code.

Rally's actors turn every error into text, and its main process exits with 64 for all of them. That process
never loads the track, so the message object brings the exit code itself: it takes effect where it is
unpickled.
"""

import sys
from typing import Any

from esrally import actor

from esrally_ebs.errors import EbsError

RALLYS_ERROR = 64  # Rally's exit code for every error
rallys_failure = actor.BenchmarkFailure


class RaceFailure(rallys_failure):  # type: ignore[misc, valid-type]
    """A failed race with a message for the user and the exit code of its cause.

    Stands in for every ``BenchmarkFailure``: Rally's own cannot be pickled where its name is replaced.
    """

    def __init__(self, message: str, exit_code: int = RALLYS_ERROR, cause: object = None) -> None:
        super().__init__(message, cause)
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
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, EbsError):
            return RaceFailure(str(seen), seen.exit_code)
        seen = seen.__cause__ or seen.__context__
    return RaceFailure(text, RALLYS_ERROR, cause)


def speak_plainly() -> None:
    """Let the actor of this process report our errors in one line (idempotent)."""

    def failure(message: str, cause: object = None) -> RaceFailure:
        return failure_of(sys.exc_info()[1], message, cause)

    actor.BenchmarkFailure = failure
