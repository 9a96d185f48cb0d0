"""Numbers of events, whoever wrote them: None, rather than an error, for what is none."""

import math

from esrally_ebs.model import Event


def has_time(event: Event) -> bool:
    """Whether it is known when it was."""
    return _number(event.at_s) is not None


def number_of(event: Event, field: str) -> float | None:
    """A field of an event, if it is a finite number."""
    return _number(event.fields.get(field))


def _number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None  # type: ignore[arg-type]
