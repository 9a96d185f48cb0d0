"""The three plots of a report, each a function from its data to an SVG drawing."""

from collections.abc import Iterator, Sequence

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
    path,
    scale,
    steps,
    tag,
)
from esrally_ebs.report.model import Change, Curve, Distribution, Forest, Span, Timeline

_ROW, _AXIS = 38, 44  # heights
_LONGEST = 58  # characters of an item's name that fit on its line
_WORDS = 162  # room right of a forest for values and verdicts
_TICKS = 6
_GAP = 3  # steps without a value that part a line
_SHARES = (0.5, 0.9, 0.99)
_PANEL, _SPAN_NAMES = 84, 18
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
    drawn += _axis(
        x, bottom, [f"{value * 100:+.3g} %" if value else "0" for value in x.ticks(_TICKS)], x.ticks(_TICKS)
    )
    drawn.append(label(10, bottom + 36, f"\u2190 {data.arm} faster", class_="quiet"))
    drawn.append(
        label(WIDTH - _WORDS, bottom + 36, f"{data.arm} slower \u2192", anchor="end", class_="quiet")
    )
    said = "; ".join(f"{c.item} {_change_text(c)}" for c in data.changes)
    return figure(data.title, said, bottom + _AXIS, drawn)


def _forest_ground(x: Scale, bottom: float, margin: float | None) -> Iterator[str]:
    if margin:
        yield box(x.at(-margin), 0, x.at(margin) - x.at(-margin), bottom, "margin")
    for value in x.ticks(_TICKS):
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


def _axis(x: Scale, bottom: float, names: Sequence[str], values: Sequence[float]) -> Iterator[str]:
    yield line(x.start, bottom, x.end, bottom, "axis")
    for value, name in zip(values, names, strict=True):
        yield line(x.at(value), bottom, x.at(value), bottom + 4, "axis")
        place = x.at(value)
        anchor = "end" if place > WIDTH - 20 else "start" if place < 20 else "middle"
        yield label(place, bottom + 18, name, anchor=anchor)


def distribution(data: Distribution, arms: Sequence[str]) -> str:
    """The share of requests that took at most so long, a stepped line per arm."""
    x = scale([value * 1e3 for curve in data.curves for value in curve.x], LEFT, WIDTH - RIGHT)
    y = Scale(0, 1, 226, 30)
    drawn = []
    for share in (0.0, 0.25, *_SHARES[:2], 1.0):
        drawn.append(line(LEFT, y.at(share), WIDTH - RIGHT, y.at(share), "grid"))
        drawn.append(label(LEFT - 6, y.at(share) + 4, f"{share:.0%}".replace("%", " %"), anchor="end"))
    ticks = x.ticks(_TICKS)
    drawn += _axis(x, 226, [number(value) for value in ticks], ticks)
    drawn.append(label(WIDTH - RIGHT, 264, "service time, ms", anchor="end", class_="quiet"))
    for curve in data.curves:
        points = [(x.at(t * 1e3), y.at(s)) for t, s in zip(curve.x, curve.y, strict=True)]
        start = (points[0][0], y.at(0))
        drawn.append(steps([start, *points], f"curve arm{arms.index(curve.arm) % 4}"))
    drawn += _legend([curve.arm for curve in data.curves], arms)
    said = "; ".join(_curve_text(curve) for curve in data.curves)
    return figure(f"Distribution of service times: {data.task}", said, 270, drawn)


def _curve_text(curve: Curve) -> str:
    points = list(zip(curve.x, curve.y, strict=True))
    reached = [next((x for x, y in points if y >= share - 1e-9), curve.x[-1]) for share in _SHARES]
    values = zip(_SHARES, reached, strict=True)
    return f"{curve.arm} {', '.join(f'p{share * 100:.0f} {value * 1e3:.2f} ms' for share, value in values)}"


def _legend(shown: Sequence[str], arms: Sequence[str]) -> Iterator[str]:
    left = float(LEFT)
    for arm in shown:
        yield path([(left, 14), (left + 28, 14)], f"curve arm{arms.index(arm) % 4}")
        yield label(left + 34, 18, arm, class_="name")
        left += 56 + 7 * len(arm)


def timeline(data: Timeline, spans: Sequence[Span], arms: Sequence[str]) -> str:
    """A panel per arm on one clock and one scale, with the parts of the session shaded."""
    ends = [at for curve in data.curves for at in curve.x] + [span.end_s for span in spans]
    x = Scale(0, max([1.0, *ends]) / 60, LEFT, WIDTH - RIGHT)
    highest = max([0.0, *(value for curve in data.curves for value in curve.y)])
    bottom = _SPAN_NAMES + _PANEL * len(data.curves)
    drawn = [*_shades(x, spans, bottom)]
    for place, curve in enumerate(data.curves):
        foot = _SPAN_NAMES + _PANEL * (place + 1)
        y = Scale(0, highest * 1.05 or 1.0, foot, foot - _PANEL + 18)
        drawn += _panel_axis(y)
        for part in _unbroken(curve, data.step_s):
            points = [(x.at(at / 60), y.at(value)) for at, value in part]
            drawn.append(path(points, f"thin arm{arms.index(curve.arm) % 4}"))
        drawn.append(label(LEFT + 4, foot - _PANEL + 15, curve.arm, class_="name on"))
    ticks = x.ticks(_TICKS)
    drawn += _axis(x, bottom, [number(value) for value in ticks], ticks)
    drawn.append(label(WIDTH - RIGHT, bottom + 36, "minutes since the start", anchor="end", class_="quiet"))
    drawn.append(label(LEFT, bottom + 36, f"{data.unit}, {_step(data.step_s)}", class_="quiet"))
    said = "; ".join(
        f"{curve.arm} from {number(min(curve.y))} to {number(max(curve.y))} {data.unit}"
        for curve in data.curves
    )
    return figure(f"{data.title} over the session", said, bottom + _AXIS, drawn)


def _unbroken(curve: Curve, step_s: float) -> list[list[tuple[float, float]]]:
    """The points of a curve, parted where nothing was recorded for longer than a few steps."""
    parts: list[list[tuple[float, float]]] = []
    for point in zip(curve.x, curve.y, strict=True):
        if not parts or point[0] - parts[-1][-1][0] > _GAP * step_s:
            parts.append([])
        parts[-1].append(point)
    # A line cap makes a point of its own visible.
    return [part if len(part) > 1 else part * 2 for part in parts]


def _step(step_s: float) -> str:
    return "once a second" if step_s < 1.5 else f"means of {step_s:.0f} s"


def _panel_axis(y: Scale) -> Iterator[str]:
    for value in y.ticks(3):
        yield line(LEFT, y.at(value), WIDTH - RIGHT, y.at(value), "grid" if value else "axis")
        yield label(LEFT - 6, y.at(value) + 4, number(value), anchor="end")


def _shades(x: Scale, spans: Sequence[Span], bottom: float) -> Iterator[str]:
    for place, span in enumerate(spans):
        left, right = x.at(span.start_s / 60), x.at(span.end_s / 60)
        shade = "fio" if span.name == "fio" else "round" if place % 2 else "round other"
        yield box(left, _SPAN_NAMES, right - left, bottom - _SPAN_NAMES, f"span {shade}")
    taken: list[tuple[float, float]] = []
    for span in sorted(spans, key=_is_round, reverse=True):  # where room is short, rounds have their number
        name = span.name.removeprefix("round ")
        half = 4.2 * len(name)
        middle = (x.at(span.start_s / 60) + x.at(span.end_s / 60)) / 2
        middle = min(max(middle, LEFT + half), WIDTH - RIGHT - half)
        if all(middle - half > end or middle + half < start for start, end in taken):
            yield label(middle, 12, name, anchor="middle", class_="quiet")
            taken.append((middle - half, middle + half))


def _is_round(span: Span) -> bool:
    return span.name.startswith("round ")
