"""SVG drawings: forests of changes, curves over an axis, and timelines with a panel per arm on one clock.

All plots are ``WIDTH`` units wide and scale with the page; colours are CSS classes, so that light, dark and
print share one drawing. Each has a name and a description for those who do not see it.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from esrally_ebs.report.model import (
    Curve,
    Figures,
    Forest,
    Moment,
    Plot,
    RelativeChange,
    Span,
    Timeline,
    Turn,
)

WIDTH = 480
LEFT, RIGHT = 44, 12  # room for labels of the vertical axis, and for half of the last label
AXIS = 44  # an axis with its names and a line of words below
TICKS = 6
_COLOURS = 4  # number of colours, of dashes and of shapes
_TOP, _FOOT = 44, 236  # of a plot's field, below a legend of one row
_LEGEND_ROW = 16
_LETTER = 6.6  # width of a letter
_THIN_FROM = 400  # points from which a line is drawn thin
_GAP = 3  # missing steps that interrupt a line
_HEADROOM, _TOO_FAR = 1.3, 3.0  # above the rounds' values; fio's beyond this many times are cut off
_PANEL, _SPAN_NAMES = 84, 18
_MARK = 7.0  # width of an event's mark
_STRIP = 6  # height of the strip of tasks on top of a panel
TINTS = 8  # of tasks


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps ``low`` to ``high`` onto positions ``start`` to ``end``; ``log``: logarithmically."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """Position of a value, clipped to the ends; nan is at the start."""
        inside = self.low if math.isnan(value) else min(max(value, self.low), self.high)
        low, high, inside = (
            (map(math.log10, (self.low, self.high, inside))) if self.log else (self.low, self.high, inside)
        )
        return self.start + (inside - low) / (high - low) * (self.end - self.start)

    def ticks(self, most: int) -> list[float]:
        """About ``most`` round values at most within the range; on a logarithmic scale, powers of ten."""
        if self.log:
            powers = range(round(math.log10(self.low)), round(math.log10(self.high)) + 1)
            return [10.0**power for power in powers]
        step = _round_step((self.high - self.low) / max(1, most))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]

    def text(self, value: float) -> str:
        """A value's label, at most six letters wide."""
        most = 10 * value if self.log else self.high
        for name, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
            if most >= 10 * size:
                return f"{number(value / size)}{name}" if value else "0"
        return number(value)


def scale(values: Iterable[float], start: float, end: float) -> Scale:
    """A scale for all values with a margin; never empty."""
    finite = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    is_range = high - low > 1e-9 * max(abs(low), abs(high))  # else rounding is all that there is to see
    room = (high - low) * 0.04 if is_range else max(abs(high), 1.0) * 0.5
    return Scale(low - room if low < 0 or low > room else 0.0, high + room, start, end)


def _log_scale(values: Iterable[float], start: float, end: float) -> Scale:
    """A scale of whole powers of ten around all values."""
    powers = [math.log10(value) for value in values if math.isfinite(value) and value > 0] or [0.0]
    low, high = math.floor(min(powers)), math.ceil(max(powers))
    return Scale(10.0**low, 10.0 ** max(high, low + 1), start, end, log=True)


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))


def number(value: float) -> str:
    """An axis label: up to three significant digits, no exponent, no trailing zeros."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.10f}".rstrip("0").rstrip(".") if rounded else "0"


def tag(name: str, text: str = "", *, title: str = "", **attributes: str | float) -> str:
    """One element: in names ``_`` becomes ``-``, a trailing one goes (``class_``); numbers get one digit.

    ``title`` is the text shown when the pointer rests on the element.
    """
    parts = [
        f'{key.rstrip("_").replace("_", "-")}="{escape(_value(value))}"' for key, value in attributes.items()
    ]
    hover = f"<title>{escape(title)}</title>" if title else ""
    return f"<{' '.join([name, *parts])}>{hover}{escape(text)}</{name}>"


def _value(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def box(x: float, y: float, width: float, height: float, class_: str) -> str:
    return tag("rect", x=x, y=y, width=max(width, 0.5), height=height, class_=class_)


def label(x: float, y: float, text: str, *, anchor: str = "start", class_: str = "") -> str:
    """Text with its base line at ``y``."""
    return tag("text", text, x=x, y=y, text_anchor=anchor, **({"class_": class_} if class_ else {}))


def path(points: Sequence[tuple[float, float]], class_: str, title: str = "") -> str:
    return tag("path", d="M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points), class_=class_, title=title)


def figure(title: str, description: str, height: float, content: Iterable[str]) -> str:
    """A drawing with a name and a description for people who cannot see it."""
    name = escape(f"{title}. {description}", quote=True)
    return (
        f'<svg role="img" aria-label="{name}" viewBox="0 0 {WIDTH} {height:.0f}">'
        f"<title>{escape(title)}</title>{''.join(content)}</svg>"
    )


def axis(x: Scale, bottom: float, names: Sequence[str], values: Sequence[float]) -> Iterator[str]:
    """A horizontal axis with a name per value, in two rows if there is not enough room."""
    rows = 2 if sum(len(name) + 2 for name in names) * _LETTER > x.end - x.start else 1
    yield line(x.start, bottom, x.end, bottom, "axis")
    for place, (value, name) in enumerate(zip(values, names, strict=True)):
        left, half = x.at(value), len(name) * _LETTER / 2
        yield line(left, bottom, left, bottom + 4, "axis")
        anchor = "end" if left + half > WIDTH else "start" if left < half else "middle"
        yield label(left, bottom + 18 + 14 * (place % rows), name, anchor=anchor)


def rungs(y: Scale, values: Iterable[float], text: Callable[[float], str]) -> Iterator[str]:
    """Horizontal lines at values of a vertical axis, with labels on the left."""
    for value in values:
        yield line(LEFT, y.at(value), WIDTH - RIGHT, y.at(value), "grid" if value else "axis")
        yield label(LEFT - 6, y.at(value) + 4, text(value), anchor="end")


def colour_of(name: str, arms: Sequence[str]) -> str:
    """The CSS class for an arm's colour and dashes."""
    return f"arm{arms.index(name) % _COLOURS}"


def _turned(place: int) -> int:
    """Index of an arm's dashes or shape: differs where colours repeat, so that 16 arms can be told apart."""
    return (place + place // _COLOURS) % _COLOURS


def plot(data: Plot, arms: Sequence[str] = ()) -> str:
    """Curves over one axis; ``arms`` decide the colours, by default the curves' own order."""
    named = list(dict.fromkeys([*arms, *(curve.name for curve in data.curves)]))
    legend, top = _legend(data.curves, named)
    x, y = _across(data), _upward(data, top)
    drawn = [*rungs(y, data.grid or y.ticks(5), y.text)]
    drawn += axis(x, _FOOT, *_names(data, x))
    for curve in data.curves:
        drawn += _drawn(curve, x, y, named.index(curve.name))
    drawn.append(label(0, 12, data.up, class_="quiet"))
    if not data.places:  # place names need no title
        drawn.append(label(WIDTH - RIGHT, _FOOT + 36, data.across, anchor="end", class_="quiet"))
    drawn += legend
    spoken = "; ".join(curve.summary or _ends(curve) for curve in data.curves if curve.style != "link")
    return figure(data.title, f"{data.up} by {data.across}: {spoken}", _FOOT + AXIS, drawn)


def _across(data: Plot) -> Scale:
    values = [value for curve in data.curves for value in curve.x]
    if data.log_x:
        return _log_scale(values, LEFT, WIDTH - RIGHT)
    if data.places:  # leaves half a place on either side
        return Scale(-0.5, len(data.places) - 0.5, LEFT, WIDTH - RIGHT)
    return scale([0.0, *values] if data.from_zero else values, LEFT, WIDTH - RIGHT)


def _upward(data: Plot, top: float) -> Scale:
    values = [value for curve in data.curves for value in curve.y]
    if data.log_y:
        return _log_scale(values, _FOOT, top)
    if data.grid:
        return Scale(data.grid[0], data.grid[-1], _FOOT, top)
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(0.0, *finite), max(finite) * 1.05
    return Scale(low, high if high > low else low + 1, _FOOT, top)


def _names(data: Plot, x: Scale) -> tuple[list[str], list[float]]:
    """Labels of the horizontal axis, and their values."""
    if not data.places:
        ticks = x.ticks(TICKS)
        return [x.text(value) for value in ticks], ticks
    width = sum(len(name) + 2 for name in data.places) * _LETTER
    fit = width <= 2 * (x.end - x.start)
    shown = list(range(len(data.places))) if fit else named_places(len(data.places))
    return [data.places[place] for place in shown], [float(place) for place in shown]


def named_places(count: int) -> list[int]:
    """At most five of ``count`` places to name, including first and last, so that the names have room."""
    step = max(1, -(-(count - 1) // 4))
    return [*range(0, count - step, step), count - 1] if count > 1 else [0]


def _drawn(curve: Curve, x: Scale, y: Scale, place: int) -> Iterator[str]:
    points = [(x.at(left), y.at(up)) for left, up in zip(curve.x, curve.y, strict=True)]
    if curve.style == "link":
        yield path(points, "thin even", title=curve.name)
        return
    colour = f"arm{place % _COLOURS} dash{_turned(place)}"
    if curve.style == "steps" and points:
        moves = "".join(f"H{right:.1f}V{up:.1f}" for right, up in points)
        yield tag("path", d=f"M{points[0][0]:.1f} {_FOOT}{moves}", class_=f"curve {colour}")
    elif curve.style == "line" and len(points) > 1:
        yield path(points, f"{'thin' if len(points) > _THIN_FROM else 'curve'} {colour}")
    if curve.style == "marks" or curve.hover or len(points) == 1:
        for at, text in zip(points, curve.hover or [""] * len(points), strict=True):
            yield _dot(*at, place, text)


def _ends(curve: Curve) -> str:
    if not curve.y:
        return curve.name
    return f"{curve.name} from {number(curve.y[0])} to {number(curve.y[-1])}"


def _legend(curves: Sequence[Curve], arms: Sequence[str]) -> tuple[list[str], float]:
    """Legend of all names, in as many rows as needed, and where the field below begins."""
    drawn, left, y = list[str](), float(LEFT), 28.0
    for name, style in dict.fromkeys((curve.name, curve.style) for curve in curves if curve.style != "link"):
        place, width = arms.index(name), 34 + 7 * len(name)
        if left > LEFT and left + width > WIDTH:
            left, y = float(LEFT), y + _LEGEND_ROW
        if style == "marks":
            drawn.append(_dot(left + 14, y, place, name))
        else:
            classes = f"curve arm{place % _COLOURS} dash{_turned(place)}"
            drawn.append(path([(left, y), (left + 28, y)], classes))
        drawn.append(label(left + 34, y + 4, name, class_="name"))
        left += width + 22
    return drawn, y - 28 + _TOP


def _dot(x: float, y: float, place: int, text: str) -> str:
    """A mark; its shape identifies the arm, as its colour does."""
    shape, class_ = _turned(place), f"dot arm{place % _COLOURS}"
    if shape == 0:
        return tag("circle", cx=x, cy=y, r=4, class_=class_, title=text)
    if shape == 1:
        return tag("rect", x=x - 3.6, y=y - 3.6, width=7.2, height=7.2, class_=class_, title=text)
    tip = -5.0 if shape == 2 else 5.0
    corners = f"{x - 4.6:.1f},{y - tip * 0.8:.1f} {x + 4.6:.1f},{y - tip * 0.8:.1f} {x:.1f},{y + tip:.1f}"
    return tag("polygon", points=corners, class_=class_, title=text)


_ROW, _COMPACT_ROW = 40, 18  # height of a forest's item
_NAME_LETTERS, _COMPACT_LETTERS = 66, 34  # letters of an item's name that fit on its line
_COMPACT_LEFT = 222
_WORDS, _COMPACT_WORDS = 162, 96  # room right of a forest for values and verdicts
_SIGNS = {"faster": "\u25bc", "slower": "\u25b2", "equivalent": "=", "inconclusive": "?"}


def forest(data: Forest) -> str:
    """A line per item: change, interval, the band that counts as none, verdict as shape and word."""
    ends = [end for c in data.changes for end in (c.low, c.high, c.value) if end is not None]
    ends += [end for change in data.changes for end in _band(change.margin or 0)]
    words, row = (_COMPACT_WORDS, _COMPACT_ROW) if data.compact else (_WORDS, _ROW)
    x = scale([0.0, *ends], _COMPACT_LEFT if data.compact else 10, WIDTH - words)
    bottom = row * len(data.changes) + 6
    drawn: list[str] = []
    for place, change in enumerate(data.changes):
        drawn += _forest_row(x, place * row, change, compact=data.compact)
    ticks = x.ticks(3 if data.compact else TICKS)
    drawn += axis(x, bottom, [_signed(value) for value in ticks], ticks)
    drawn.append(label(x.start, bottom + 36, f"\u2190 {data.less}", class_="quiet"))
    drawn.append(label(x.end, bottom + 36, f"{data.more} \u2192", anchor="end", class_="quiet"))
    spoken = "; ".join(f"{c.item} {_change_text(c)}" for c in data.changes)
    return figure(data.title, spoken, bottom + AXIS, drawn)


def _signed(change: float) -> str:
    """A change at the axis, in per cent."""
    return f"{'+' if change > 0 else ''}{number(change * 100)} %" if change else "0"


def _forest_row(x: Scale, top: float, change: RelativeChange, *, compact: bool) -> Iterator[str]:
    """The item's name and, beside it, a band with the axis's lines, the interval and its mark."""
    band, height = (top, _COMPACT_ROW) if compact else (top + 19, _ROW - 19)
    y = band + height / 2
    if change.margin:
        left, right = map(x.at, _band(change.margin))
        yield box(left, band, right - left, height, "margin")
    for value in x.ticks(3 if compact else TICKS):
        yield line(x.at(value), band, x.at(value), band + height, "grid" if value else "zero")
    letters = _COMPACT_LETTERS if compact else _NAME_LETTERS
    name = change.item if len(change.item) <= letters else f"{change.item[: letters - 1]}\u2026"
    yield label(0 if compact else 10, y + 4 if compact else top + 14, name, class_="name")
    word = f" {_SIGNS.get(change.verdict, '')} {change.verdict}".replace("  ", " ") if change.verdict else ""
    yield label(x.end + 12, y + 4, f"{change.value * 100:+z,.1f} %{word}", class_="name")
    kind = change.verdict or "none"
    if change.low is not None and change.high is not None:
        yield line(x.at(change.low), y, x.at(change.high), y, f"interval {kind}")
        for end in (change.low, change.high):
            yield line(x.at(end), y - 4, x.at(end), y + 4, f"interval {kind}")
    yield _shape(x.at(change.value), y, kind)


def _band(margin: float) -> tuple[float, float]:
    """Changes that count as none: from the inverse of a ratio to the ratio."""
    return 1 / (1 + margin) - 1, margin


def _shape(x: float, y: float, kind: str) -> str:
    if kind in ("faster", "slower"):
        tip = 5 if kind == "faster" else -5
        points = f"{x - 5.5:.1f},{y - tip:.1f} {x + 5.5:.1f},{y - tip:.1f} {x:.1f},{y + tip:.1f}"
        return tag("polygon", points=points, class_=f"mark {kind}")
    if kind == "equivalent":
        return tag("rect", x=x - 4.5, y=y - 4.5, width=9, height=9, class_=f"mark {kind}")
    return tag("circle", cx=x, cy=y, r=4.5, class_=f"mark {kind}")


def _change_text(change: RelativeChange) -> str:
    text = f"{change.value * 100:+z,.1f} %"
    if change.low is not None and change.high is not None:
        text += f" [{change.low * 100:+z,.1f}, {change.high * 100:+z,.1f}]"
    return f"{text} {change.verdict}".strip()


def sheet(title: str, drawings: Iterable[tuple[str, str]], css: str) -> str:
    """Drawings with their titles, one below the other, in one self-contained SVG."""
    parts, top = [], 0.0
    for name, drawing in drawings:
        height = float(drawing.split('viewBox="0 0 ', 1)[1].split('"', 1)[0].split()[1])
        size = f'<svg y="{top + 24:.0f}" width="{WIDTH}" height="{height:.0f}" '
        parts += [label(0, top + 14, name, class_="name on"), drawing.replace("<svg ", size, 1)]
        top += height + 48
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top:.0f}">'
    return f"{head}<title>{escape(title)}</title><style>{css}</style>{''.join(parts)}</svg>\n"


def timeline(data: Timeline, figures: Figures, arms: Sequence[str]) -> str:
    """One metric over time, with fio, warm-up and rounds shaded, tasks in a strip, events as marks."""
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
    """Top of the scale, and the highest value if that is cut off (else 0).

    fio's jobs with deep queues may be so far above a search that the search would be invisible.
    """
    rounds = [span for span in spans if _is_round(span)]
    points = [(at, value) for curve in data.curves for at, value in zip(curve.x, curve.y, strict=True)]
    highest = max([0.0, *(value for _, value in points)])
    within = [v for at, v in points if any(span.start_s <= at <= span.end_s for span in rounds)]
    searched = max(within, default=0.0) * _HEADROOM
    return (searched, highest) if 0 < searched * _TOO_FAR < highest else (highest, 0.0)


def tasks(turns: Sequence[Turn]) -> list[str]:
    """Measured tasks in order; a task's index selects its tint."""
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
    """A small triangle for each event of an arm; of overlapping ones, only the first."""
    free = -1.0
    for moment in sorted(moments, key=lambda moment: moment.start_s):
        middle = x.at(moment.start_s / 60)
        if middle < free:
            continue
        free = middle + _MARK
        points = f"{middle - 3.5:.1f},{top:.1f} {middle + 3.5:.1f},{top:.1f} {middle:.1f},{top + 6:.1f}"
        yield tag("polygon", points=points, class_="moment", title=f"{moment.kind}: {moment.text}")


def _unbroken(curve: Curve, step_s: float) -> list[list[tuple[float, float]]]:
    """A curve's points, split where nothing was recorded for more than a few steps."""
    parts: list[list[tuple[float, float]]] = []
    for point in zip(curve.x, curve.y, strict=True):
        if not parts or point[0] - parts[-1][-1][0] > _GAP * step_s:
            parts.append([])
        parts[-1].append(point)
    # With its line cap, a line between equal points shows a single point.
    return [part if len(part) > 1 else part * 2 for part in parts]


def _step(step_s: float) -> str:
    return "once a second" if step_s < 1.5 else f"means of {step_s:.0f} s"


def _shades(x: Scale, spans: Sequence[Span], bottom: float) -> Iterator[str]:
    for place, span in enumerate(spans):
        left, right = x.at(span.start_s / 60), x.at(span.end_s / 60)
        shade = "fio" if span.name == "fio" else "round" if place % 2 else "round other"
        yield box(left, _SPAN_NAMES, right - left, bottom - _SPAN_NAMES, f"span {shade}")
    named: list[tuple[float, float]] = []
    for span in sorted(spans, key=_is_round, reverse=True):  # if room is short, rounds keep their numbers
        name = span.name.removeprefix("round ")
        half = 4.2 * len(name)
        middle = (x.at(span.start_s / 60) + x.at(span.end_s / 60)) / 2
        middle = min(max(middle, LEFT + half), WIDTH - RIGHT - half)
        if all(middle - half > end or middle + half < start for start, end in named):
            yield label(middle, 12, name, anchor="middle", class_="quiet")
            named.append((middle - half, middle + half))


def _is_round(span: Span) -> bool:
    return span.name.startswith("round ")
