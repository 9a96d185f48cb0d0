"""Every error of the pack: one root, one class per party that must act, and the exit code of each.

A message is one line with what, where and the next step.
"""

from collections.abc import Iterable
from typing import ClassVar


class EbsError(Exception):
    """Root of all errors that the pack raises on purpose; ``exit_code`` is the command's."""

    exit_code: ClassVar[int] = 3

    def __str__(self) -> str:
        """The message on one line, also when a value quoted in it has several."""
        return " ".join(super().__str__().splitlines())


class PlanError(EbsError):
    """The user must change a plan, a track parameter or an option; ``key`` is the arm's key, if known."""

    exit_code = 2

    def __init__(self, text: str, *, key: str = "") -> None:
        super().__init__(text)
        self.key = key


def near(word: str, known: Iterable[str]) -> str:
    """ "; did you mean ...?" with the known name closest to ``word``, to end a message; "" if none is."""
    from difflib import get_close_matches  # imported late: the daemon of an emulated volume starts without it

    names = get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
    return f"; did you mean {str(names[0])!r}?" if names else ""  # str(): a name may be an enum's


class SetupError(EbsError):
    """This machine cannot do it as it is: a tool, a right, a mount or a service is missing."""

    exit_code = 3


class CommandError(SetupError):
    """A tool that we started failed; the message holds the command, its code and its last lines."""


class MeasurementError(EbsError):
    """The measurement is invalid: not cold, not comparable, or incomplete."""

    exit_code = 4


class FormatError(MeasurementError):
    """Foreign output or a stored file does not have the form it must have."""
