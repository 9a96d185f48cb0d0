"""Plots of one value against another: cold starts, cost against time, and trends over sessions."""

import math
from collections.abc import Iterator, Sequence

from esrally_ebs.report.html.axes import AXIS, TICKS, axis, legend, rungs, style_of
from esrally_ebs.report.html.svg import (
    LEFT,
    RIGHT,
    WIDTH,
    Scale,
    figure,
    label,
    number,
    path,
    scale,
    tag,
)
from esrally_ebs.report.model import ColdStart, Curve, Tradeoff, Trend

_TOP, _FOOT = 34, 226
_ROOM = 22  # between the ends of the axis and the first and last of a few places
_SHAPES = 4


def cold_start(data: ColdStart, arms: Sequence[str]) -> str:
    """Service time by number of the request since the drop, a line per arm."""
    most = max((x for curve in data.curves for x in curve.x), default=1.0)
    x = Scale(0, max(most, 1.0), LEFT, WIDTH - RIGHT)
    y = _from_zero(data.curves)
    drawn = [*rungs(y, 5), *_lines(data.curves, x, y, arms)]
    ticks = [tick for tick in x.ticks(TICKS) if tick == int(tick)]
    drawn += axis(x, _FOOT, [number(value) for value in ticks], ticks)
    drawn.append(_below("request since the caches were dropped; service time, ms"))
    drawn += legend([curve.arm for curve in data.curves], arms)
    said = "; ".join(
        f"{curve.arm} from {curve.y[0] * 1e3:.2f} ms to {curve.y[-1] * 1e3:.2f} ms" for curve in data.curves
    )
    return figure(f"Cold start: {data.task}", said, _FOOT + AXIS, drawn)


def tradeoff(data: Tradeoff, arms: Sequence[str]) -> str:
    """What an arm costs against how long it takes: a thin line per task from arm to arm."""
    x = scale([0.0, *(value for _, curve in data.lines for value in curve.x)], LEFT, WIDTH - RIGHT - 8)
    y = _from_zero([curve for _, curve in data.lines])
    drawn = [*rungs(y, 5)]
    for task, curve in data.lines:
        points = _points(curve, x, y)
        drawn.append(tag("path", d=_through(points), class_="thin even", title=task))
        for arm, (left, up), value in zip(data.arms, points, curve.y, strict=True):
            said = f"{task} on {arm}: {value * 1e3:.2f} ms"
            drawn.append(_dot(left, up, arms.index(arm), said))
    ticks = x.ticks(TICKS)
    drawn += axis(x, _FOOT, [number(value) for value in ticks], ticks)
    drawn.append(_below("US dollars a month; service time, ms"))
    drawn += _dots([arm for arm in arms if arm in data.arms], arms)
    said = "; ".join(
        f"{task}: " + ", ".join(f"{arm} {y * 1e3:.2f} ms" for arm, y in zip(data.arms, curve.y, strict=True))
        for task, curve in data.lines
    )
    return figure(data.title, said, _FOOT + AXIS, drawn)


def trend(data: Trend, arms: Sequence[str]) -> str:
    """One task over sessions, a line per arm with a mark per session."""
    last = max(1, len(data.sessions) - 1)
    x = Scale(0, last, LEFT + _ROOM, WIDTH - RIGHT - _ROOM)
    y = _from_zero(data.curves)
    drawn = [*rungs(y, 5), *_lines(data.curves, x, y, arms)]
    for curve in data.curves:
        for place, (left, up) in zip(curve.x, _points(curve, x, y), strict=True):
            drawn.append(_dot(left, up, arms.index(curve.arm), f"{curve.arm}, {data.sessions[int(place)]}"))
    named = named_places(len(data.sessions))
    drawn += axis(x, _FOOT, [data.sessions[place] for place in named], [float(place) for place in named])
    drawn.append(_below("session; service time, ms"))
    drawn += legend([curve.arm for curve in data.curves], arms)
    said = "; ".join(
        f"{curve.arm} {', '.join(f'{value * 1e3:.2f} ms' for value in curve.y)}" for curve in data.curves
    )
    return figure(f"Trend: {data.task}", said, _FOOT + AXIS, drawn)


def named_places(count: int) -> list[int]:
    """At most five of ``count`` places, so that their names have room; first and last are among them."""
    step = max(1, -(-(count - 1) // 4))
    return [*range(0, count - step, step), count - 1] if count > 1 else [0]


def _from_zero(curves: Sequence[Curve]) -> Scale:
    finite = (value for curve in curves for value in curve.y if math.isfinite(value))
    highest = max(finite, default=0.0) * 1e3
    return Scale(0, highest * 1.05 or 1.0, _FOOT, _TOP)


def _lines(curves: Sequence[Curve], x: Scale, y: Scale, arms: Sequence[str]) -> Iterator[str]:
    for curve in curves:
        yield path(_points(curve, x, y), f"curve {style_of(curve.arm, arms)}")


def _points(curve: Curve, x: Scale, y: Scale) -> list[tuple[float, float]]:
    return [(x.at(left), y.at(up * 1e3)) for left, up in zip(curve.x, curve.y, strict=True)]


def _through(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _dots(shown: Sequence[str], arms: Sequence[str]) -> Iterator[str]:
    left = float(LEFT)
    for arm in shown:
        yield _dot(left + 5, 13, arms.index(arm), arm)
        yield label(left + 16, 18, arm, class_="name")
        left += 40 + 7 * len(arm)


def _dot(x: float, y: float, place: int, said: str) -> str:
    """A mark whose shape tells arms apart as its colour does."""
    shape, class_ = place % _SHAPES, f"dot arm{place % _SHAPES}"
    if shape == 0:
        return tag("circle", cx=x, cy=y, r=4, class_=class_, title=said)
    if shape == 1:
        return tag("rect", x=x - 3.6, y=y - 3.6, width=7.2, height=7.2, class_=class_, title=said)
    tip = -5.0 if shape == 2 else 5.0
    corners = f"{x - 4.6:.1f},{y - tip * 0.8:.1f} {x + 4.6:.1f},{y - tip * 0.8:.1f} {x:.1f},{y + tip:.1f}"
    return tag("polygon", points=corners, class_=class_, title=said)


def _below(text: str) -> str:
    return label(WIDTH - RIGHT, _FOOT + 36, text, anchor="end", class_="quiet")
