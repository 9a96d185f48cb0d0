"""Text with units to base units (bytes, seconds) and back; nothing else in the pack parses units."""

import re
from collections.abc import Callable
from math import isfinite
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from esrally_ebs.errors import PlanError

KIB = 1024
MIB = 1024**2
GIB = 1024**3
TIB = 1024**4
MAX_BYTES = 2**63 - 1  # the most that a file, a kernel and fio can count
MAX_SECONDS = 366 * 24 * 3600  # most for any duration in a plan

_BYTES = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _BYTES |= {_letter: 1024**_power, f"{_letter}ib": 1024**_power, f"{_letter}b": 1000**_power}
_SIZE = "a size; write for example '100GiB' or '128m'"
_MOST_BARE = 100_000  # a larger number without a unit is meant as bytes
_MOST_DIGITS = 4  # after the point, of a percentage
_SECONDS = {"": 1.0, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_QUANTITY = re.compile(r"\s*([0-9][0-9_]*(?:\.[0-9]+)?)\s*([a-z]*)\s*\Z", re.IGNORECASE)


def parse_bytes(text: str | int, *, what: str = "size", kind: str = _SIZE) -> int:
    """``"128m"``, ``"100 GiB"``, ``"1.5GB"`` or a number to bytes; k, m, g, t are binary as in fio.

    Raises PlanError, naming ``what`` and the ``kind`` that is wanted, for any other text.
    """
    if isinstance(text, int):
        return text
    match = _QUANTITY.match(text)
    if match is None or match[2].lower() not in _BYTES:
        raise PlanError(f"{what}: {text!r} is not {kind}")
    size = float(match[1].replace("_", "")) * _BYTES[match[2].lower()]
    if size >= MAX_BYTES:
        raise PlanError(f"{what}: more than {MAX_BYTES:,} bytes; write for example '100GiB' or '128m'")
    return round(size)


def parse_rate(text: str | int, *, what: str = "throughput") -> int:
    """``"128MiB/s"`` (the ``/s`` may be missing) or a number to bytes per second."""
    written = text.removesuffix("/s") if isinstance(text, str) else text
    return parse_bytes(written, what=what, kind="a rate; write for example '250MiB/s'")


def whole_units(given: str, count: int, unit: int) -> int:
    """Bytes in whole GiB or MiB/s. Raises PlanError, which names what was ``given``, for any other number."""
    if count < unit or count % unit:
        name = "GiB" if unit == GIB else "MiB/s"
        is_bare = given.endswith(f" {count}") and count < _MOST_BARE  # without a unit, which is bytes
        example = max(1, count if is_bare else round(count / unit))
        raise PlanError(f"{given} is no whole {name}, which AWS counts in; write for example {example}{name}")
    return count // unit


def parse_seconds(text: str | float, *, what: str = "time") -> float:
    """``"5s"``, ``"280us"``, ``"2h"`` or a number to seconds."""
    if isinstance(text, int | float):
        return float(text)
    match = _QUANTITY.match(text)
    if match is None or match[2].lower() not in _SECONDS:
        raise PlanError(f"{what}: {text!r} is not a time; write for example '5s' or '300ms'")
    seconds = float(match[1].replace("_", "")) * _SECONDS[match[2].lower()]
    if not isfinite(seconds):
        raise PlanError(f"{what}: more seconds than a number can hold; write for example '5s' or '300ms'")
    return seconds


def _written(parse: Callable[[str], float]) -> BeforeValidator:
    """A validator for keys that may be a number, or text that ``parse`` reads."""

    def read(value: Any) -> Any:  # noqa: ANN401 - pydantic hands over whatever TOML had
        if isinstance(value, bool):  # bool is an int in Python
            value = str(value).lower()
        try:
            return parse(value) if isinstance(value, str) else value
        except PlanError as error:
            raise ValueError(str(error).split(": ", 1)[1]) from error  # pydantic names the key itself

    return BeforeValidator(read)


# The quantities of a plan, as pydantic validates them.
Bytes = Annotated[int, _written(parse_bytes), Field(le=MAX_BYTES)]
Rate = Annotated[int, _written(parse_rate), Field(le=MAX_BYTES)]  # bytes per second
Seconds = Annotated[float, _written(parse_seconds), Field(allow_inf_nan=False, le=MAX_SECONDS)]


def format_bytes(count: float) -> str:
    """Bytes with the largest binary unit that keeps at least one whole: ``"1.5 GiB"``."""
    for size, unit in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(count) >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"


def format_seconds(seconds: float) -> str:
    """Seconds with three significant digits in the most readable unit: ``"418 us"``, ``"28.3 ms"``."""
    for scale, unit in ((1e6, "us"), (1e3, "ms")):
        if abs(seconds) * scale < 999.5:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds:.3g} s" if abs(seconds) < 999.5 else f"{seconds:.0f} s"


def format_rate(a_second: float) -> str:
    """A rate with three significant digits, or all digits before the point: ``"28.3"``, ``"1,240"``."""
    return f"{a_second:.3g}" if abs(a_second) < 999.5 else f"{a_second:,.0f}"


def format_share(share: float) -> str:
    """A margin or confidence as a percentage with all its digits: ``"95%"``, ``"99.5%"``, ``"2.5%"``."""
    return f"{share * 100:.4g}%"


def digits_beside(share: float, bound: float, least: int = 0) -> int:
    """How many digits after the point tell a percentage from ``bound``; ``least`` if it is the same."""
    enough = (n for n in range(least, _MOST_DIGITS + 1) if f"{share:z.{n}%}" != f"{bound:z.{n}%}")
    return next(enough, least)


def format_beside(share: float, bound: float, *, least: int = 0) -> str:
    """A share as a percentage, with as many digits as tell it from ``bound``: ``"15.2%"``."""
    return f"{share:.{digits_beside(share, bound, least)}%}"


def number_of(count: int, noun: str) -> str:
    """``1 round``, ``1,200 rounds``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


# Terminal escapes, characters that change a text's direction or end its line, and those no file may hold
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def printable(text: str) -> str:
    """The text with control characters, except tab and newline, escaped as in ``\\u001b``.

    Then terminals do not obey them, and JSON and XML may hold them.
    """
    return _CONTROLS.sub(lambda control: f"\\u{ord(control[0]):04x}", text)


def one_line(text: str) -> str:
    """The text with a space for each newline and other control characters escaped (but tab)."""
    return printable(text).replace("\n", " ")
