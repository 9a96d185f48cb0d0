"""Telemetry over the session: a panel per arm on one clock, with rounds, tasks and events on it."""

from collections.abc import Iterator, Sequence

from esrally_ebs.report.html.plots import (
    AXIS,
    LEFT,
    RIGHT,
    TICKS,
    WIDTH,
    Scale,
    axis,
    box,
    colour_of,
    figure,
    label,
    number,
    path,
    rungs,
    tag,
)
from esrally_ebs.report.model import Curve, Figures, Moment, Span, Timeline, Turn

_GAP = 3  # steps without a value that part a line
_HEADROOM, _TOO_FAR = 1.3, 3.0  # above what the rounds reach; from how many times as much fio is cut off
_PANEL, _SPAN_NAMES = 84, 18
_MARK = 7.0  # width of the mark of an event
_STRIP = 6  # height of the strip of tasks at the top of a panel
TINTS = 8  # of tasks


def timeline(data: Timeline, figures: Figures, arms: Sequence[str]) -> str:
    """One metric and what went on: fio, warm-up and rounds shaded, tasks in a strip, events as marks."""
    spans = figures.spans
    ends = [at for curve in data.curves for at in curve.x] + [span.end_s for span in spans]
    x = Scale(0, max([1.0, *ends]) / 60, LEFT, WIDTH - RIGHT)
    highest, beyond = _heights(data, spans)
    bottom = _SPAN_NAMES + _PANEL * len(data.curves)
    drawn = [*_shades(x, spans, bottom)]
    for place, curve in enumerate(data.curves):
        foot = _SPAN_NAMES + _PANEL * (place + 1)
        head = foot - _PANEL
        y = Scale(0, highest * 1.05 or 1.0, foot, head + 22)
        drawn += rungs(y, y.ticks(3), number)
        arm = curve.arm or curve.name
        drawn += _strip(x, head + 2, [turn for turn in figures.turns if turn.arm == arm], figures)
        for part in _unbroken(curve, data.step_s):
            points = [(x.at(at / 60), y.at(value)) for at, value in part]
            drawn.append(path(points, f"thin {colour_of(curve.name, arms)}"))
        drawn += _marks(x, head + 12, [m for m in figures.moments if m.arm in (arm, "")])
        drawn.append(label(LEFT + 4, head + 21, curve.name, class_="name on"))
    ticks = x.ticks(TICKS)
    drawn += axis(x, bottom, [number(value) for value in ticks], ticks)
    drawn.append(label(WIDTH - RIGHT, bottom + 36, "minutes since the start", anchor="end", class_="quiet"))
    drawn.append(label(LEFT, bottom + 36, f"{data.unit}, {_step(data.step_s)}", class_="quiet"))
    if beyond:
        where = (
            "where fio goes beyond" if any(span.name == "fio" for span in spans) else "outside of the rounds"
        )
        cut = f"cut off {where}: it reaches {number(beyond)}"
        drawn.append(label(LEFT, bottom + AXIS + 10, cut, class_="quiet"))
    spoken = "; ".join(
        f"{curve.name} from {number(min(curve.y))} to {number(max(curve.y))} {data.unit}"
        for curve in data.curves
    )
    return figure(f"{data.title} over the session", spoken, bottom + AXIS + (18 if beyond else 0), drawn)


def _heights(data: Timeline, spans: Sequence[Span]) -> tuple[float, float]:
    """The highest value that fits on the scale, and the highest of all where that one does not fit (else 0).

    fio's jobs with deep queues may lie so far above a search that it could not be seen beside them.
    """
    rounds = [span for span in spans if _is_round(span)]
    points = [(at, value) for curve in data.curves for at, value in zip(curve.x, curve.y, strict=True)]
    highest = max([0.0, *(value for _, value in points)])
    within = [v for at, v in points if any(span.start_s <= at <= span.end_s for span in rounds)]
    searched = max(within, default=0.0) * _HEADROOM
    return (searched, highest) if 0 < searched * _TOO_FAR < highest else (highest, 0.0)


def tasks(turns: Sequence[Turn]) -> list[str]:
    """The tasks that were measured, in order; a task's place is its tint."""
    return list(dict.fromkeys(turn.task for turn in turns))


def _strip(x: Scale, top: float, turns: Sequence[Turn], figures: Figures) -> Iterator[str]:
    """When each task was measured: one path per task, however many rounds there are."""
    known = tasks(figures.turns)
    for turn in turns:
        moves = []
        for start, end in turn.times:
            left, right = x.at(start / 60), x.at(end / 60)
            width = max(right - left, 0.4)
            moves.append(f"M{left:.1f} {top:.1f}h{width:.1f}v{_STRIP}h-{width:.1f}z")
        tint = known.index(turn.task) % TINTS
        yield tag("path", d="".join(moves), class_=f"task tint{tint}", title=turn.task)


def _marks(x: Scale, top: float, moments: Sequence[Moment]) -> Iterator[str]:
    """A small triangle where something befell the arm; of several that would cover one another, the first."""
    free = -1.0
    for moment in sorted(moments, key=lambda moment: moment.start_s):
        middle = x.at(moment.start_s / 60)
        if middle < free:
            continue
        free = middle + _MARK
        points = f"{middle - 3.5:.1f},{top:.1f} {middle + 3.5:.1f},{top:.1f} {middle:.1f},{top + 6:.1f}"
        yield tag("polygon", points=points, class_="moment", title=f"{moment.kind}: {moment.text}")


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


def _shades(x: Scale, spans: Sequence[Span], bottom: float) -> Iterator[str]:
    for place, span in enumerate(spans):
        left, right = x.at(span.start_s / 60), x.at(span.end_s / 60)
        shade = "fio" if span.name == "fio" else "round" if place % 2 else "round other"
        yield box(left, _SPAN_NAMES, right - left, bottom - _SPAN_NAMES, f"span {shade}")
    named: list[tuple[float, float]] = []
    for span in sorted(spans, key=_is_round, reverse=True):  # where room is short, rounds have their number
        name = span.name.removeprefix("round ")
        half = 4.2 * len(name)
        middle = (x.at(span.start_s / 60) + x.at(span.end_s / 60)) / 2
        middle = min(max(middle, LEFT + half), WIDTH - RIGHT - half)
        if all(middle - half > end or middle + half < start for start, end in named):
            yield label(middle, 12, name, anchor="middle", class_="quiet")
            named.append((middle - half, middle + half))


def _is_round(span: Span) -> bool:
    return span.name.startswith("round ")
