"""Pieces of SVG as text: escaped elements, linear scales with round ticks, figures that can be read aloud.

All plots are ``WIDTH`` units wide and scale with the page; colours are CSS classes, so that light, dark and
print share one drawing.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 480
LEFT, RIGHT = 44, 12  # room for labels of the vertical axis, and for half a label at the end


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from ``low`` to ``high`` onto positions from ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Where a value lies; one outside of the range at its end, and what is no number at its start."""
        inside = self.low if math.isnan(value) else min(max(value, self.low), self.high)
        return self.start + (inside - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, most: int) -> list[float]:
        """At most about ``most`` round values within the range."""
        step = _round_step((self.high - self.low) / max(1, most))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def scale(values: Iterable[float], start: float, end: float, *, pad: float = 0.04) -> Scale:
    """A scale that holds all values, with a little room, and is never empty."""
    held = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(held), max(held)
    room = (high - low) * pad or max(abs(high), 1.0) * 0.5
    return Scale(low - room if low < 0 or low > room else 0.0, high + room, start, end)


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))


def number(value: float) -> str:
    """A label of an axis: up to three significant digits, no exponent, no trailing zeros."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.10f}".rstrip("0").rstrip(".") if rounded else "0"


def tag(name: str, text: str = "", *, title: str = "", **attributes: str | float) -> str:
    """One element; ``_`` in names becomes ``-``, a trailing one goes (``class_``); numbers get one digit.

    ``title`` is what a pointer that rests on the element is told.
    """
    parts = [
        f'{key.rstrip("_").replace("_", "-")}="{escape(_value(value))}"' for key, value in attributes.items()
    ]
    told = f"<title>{escape(title)}</title>" if title else ""
    return f"<{' '.join([name, *parts])}>{told}{escape(text)}</{name}>"


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    """A straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def box(x: float, y: float, width: float, height: float, class_: str) -> str:
    """A rectangle."""
    return tag("rect", x=x, y=y, width=max(width, 0.5), height=height, class_=class_)


def label(x: float, y: float, text: str, *, anchor: str = "start", class_: str = "") -> str:
    """A text whose base line is at ``y``."""
    return tag("text", text, x=x, y=y, text_anchor=anchor, **({"class_": class_} if class_ else {}))


def path(points: Sequence[tuple[float, float]], class_: str) -> str:
    """A line through points."""
    return tag("path", d="M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points), class_=class_)


def steps(points: Sequence[tuple[float, float]], class_: str) -> str:
    """A line that first goes across, then up, as a cumulative share does."""
    (x, y), *rest = points
    moves = "".join(f"H{right:.1f}V{up:.1f}" for right, up in rest)
    return tag("path", d=f"M{x:.1f} {y:.1f}{moves}", class_=class_)


def figure(title: str, description: str, height: float, content: Iterable[str]) -> str:
    """A whole drawing with a name and a description for those who do not see it."""
    name = escape(f"{title}. {description}", quote=True)
    return (
        f'<svg role="img" aria-label="{name}" viewBox="0 0 {WIDTH} {height:.0f}">'
        f"<title>{escape(title)}</title>{''.join(content)}</svg>"
    )


def _value(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
