"""Every error of the pack: one root, one kind per party that must act, and the exit code of each.

A message is one line with what, where and the next step.
"""

from typing import ClassVar


class EbsError(Exception):
    """Root of all errors that the pack raises on purpose; ``exit_code`` is the command's."""

    exit_code: ClassVar[int] = 3


class PlanError(EbsError):
    """The user must change a plan, a track parameter or an option."""

    exit_code = 2


class SetupError(EbsError):
    """The machine cannot do it as it is: a tool, a right, a mount or a service is missing."""

    exit_code = 3


class CommandError(SetupError):
    """A tool that we started failed; the message holds the command, its code and its last lines."""


class MeasurementError(EbsError):
    """The measurement is invalid: not cold, not comparable, or incomplete."""

    exit_code = 4


class FormatError(MeasurementError):
    """Foreign output or a stored file does not have the form it must have."""
