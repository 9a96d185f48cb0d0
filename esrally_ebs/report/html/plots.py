"""Plots of results: changes with their intervals, and distributions; each from its data to an SVG drawing."""

from collections.abc import Iterator, Sequence

from esrally_ebs.report.html.axes import AXIS, TICKS, axis, legend, style_of
from esrally_ebs.report.html.svg import (
    LEFT,
    RIGHT,
    WIDTH,
    Scale,
    box,
    figure,
    label,
    line,
    number,
    scale,
    steps,
    tag,
)
from esrally_ebs.report.model import Change, Curve, Distribution, Forest

_ROW = 38  # height of an item of a forest
_LONGEST = 58  # characters of an item's name that fit on its line
_WORDS = 162  # room right of a forest for values and verdicts
_SHARES = (0.5, 0.9, 0.99)
_SIGNS = {"faster": "\u25bc", "slower": "\u25b2", "equivalent": "=", "inconclusive": "?"}


def forest(data: Forest) -> str:
    """A line per item: its change, its interval, and its verdict as a shape and as a word."""
    ends = [end for c in data.changes for end in (c.low, c.high, c.value) if end is not None]
    margin = data.margin or 0.0
    x = scale([0.0, margin, -margin, *ends], 10, WIDTH - _WORDS)
    bottom = _ROW * len(data.changes) + 6
    drawn = [*_forest_ground(x, bottom, data.margin)]
    for place, change in enumerate(data.changes):
        drawn += _forest_row(x, place * _ROW, change)
    drawn += axis(
        x, bottom, [f"{value * 100:+.3g} %" if value else "0" for value in x.ticks(TICKS)], x.ticks(TICKS)
    )
    drawn.append(label(10, bottom + 36, f"\u2190 {data.arm} faster", class_="quiet"))
    drawn.append(
        label(WIDTH - _WORDS, bottom + 36, f"{data.arm} slower \u2192", anchor="end", class_="quiet")
    )
    said = "; ".join(f"{c.item} {_change_text(c)}" for c in data.changes)
    return figure(data.title, said, bottom + AXIS, drawn)


def _forest_ground(x: Scale, bottom: float, margin: float | None) -> Iterator[str]:
    if margin:
        yield box(x.at(-margin), 0, x.at(margin) - x.at(-margin), bottom, "margin")
    for value in x.ticks(TICKS):
        yield line(x.at(value), 0, x.at(value), bottom, "grid")
    yield line(x.at(0), 0, x.at(0), bottom, "zero")


def _forest_row(x: Scale, top: float, change: Change) -> Iterator[str]:
    y = top + 27
    name = change.item if len(change.item) <= _LONGEST else f"{change.item[: _LONGEST - 1]}\u2026"
    sign = f" {_SIGNS[change.verdict]} {change.verdict}" if change.verdict in _SIGNS else ""
    yield label(10, top + 15, name, class_="name")
    yield label(WIDTH - _WORDS + 12, y + 4, f"{change.value * 100:+.1f} %{sign}", class_="name")
    kind = change.verdict or "none"
    if change.low is not None and change.high is not None:
        yield line(x.at(change.low), y, x.at(change.high), y, f"interval {kind}")
        for end in (change.low, change.high):
            yield line(x.at(end), y - 4, x.at(end), y + 4, f"interval {kind}")
    yield _shape(x.at(change.value), y, kind)


def _shape(x: float, y: float, kind: str) -> str:
    if kind in ("faster", "slower"):
        tip = 5 if kind == "faster" else -5
        points = f"{x - 5.5:.1f},{y - tip:.1f} {x + 5.5:.1f},{y - tip:.1f} {x:.1f},{y + tip:.1f}"
        return tag("polygon", points=points, class_=f"mark {kind}")
    if kind == "equivalent":
        return tag("rect", x=x - 4.5, y=y - 4.5, width=9, height=9, class_=f"mark {kind}")
    return tag("circle", cx=x, cy=y, r=4.5, class_=f"mark {kind}")


def _change_text(change: Change) -> str:
    text = f"{change.value * 100:+.1f} %"
    if change.low is not None and change.high is not None:
        text += f" [{change.low * 100:+.1f}, {change.high * 100:+.1f}]"
    return f"{text} {change.verdict}".strip()


def distribution(data: Distribution, arms: Sequence[str]) -> str:
    """The share of requests that took at most so long, a stepped line per arm."""
    x = scale([value * 1e3 for curve in data.curves for value in curve.x], LEFT, WIDTH - RIGHT)
    y = Scale(0, 1, 226, 30)
    drawn = []
    for share in (0.0, 0.25, *_SHARES[:2], 1.0):
        drawn.append(line(LEFT, y.at(share), WIDTH - RIGHT, y.at(share), "grid"))
        drawn.append(label(LEFT - 6, y.at(share) + 4, f"{share:.0%}".replace("%", " %"), anchor="end"))
    ticks = x.ticks(TICKS)
    drawn += axis(x, 226, [number(value) for value in ticks], ticks)
    drawn.append(label(WIDTH - RIGHT, 264, "service time, ms", anchor="end", class_="quiet"))
    for curve in data.curves:
        points = [(x.at(t * 1e3), y.at(s)) for t, s in zip(curve.x, curve.y, strict=True)]
        start = (points[0][0], y.at(0))
        drawn.append(steps([start, *points], f"curve {style_of(curve.arm, arms)}"))
    drawn += legend([curve.arm for curve in data.curves], arms)
    said = "; ".join(_curve_text(curve) for curve in data.curves)
    return figure(f"Distribution of service times: {data.task}", said, 270, drawn)


def _curve_text(curve: Curve) -> str:
    points = list(zip(curve.x, curve.y, strict=True))
    reached = [next((x for x, y in points if y >= share - 1e-9), curve.x[-1]) for share in _SHARES]
    values = zip(_SHARES, reached, strict=True)
    return f"{curve.arm} {', '.join(f'p{share * 100:.0f} {value * 1e3:.2f} ms' for share, value in values)}"
