"""A study as one self-contained page, or its plots as one drawing: SVG by hand, no script, no network."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from esrally_ebs.published.figures import Figure, Status, name_of
from esrally_ebs.published.formats import figure_table, words
from esrally_ebs.published.result import Cell, Plot, Result, Series, Table, shown
from esrally_ebs.report.html import svg
from esrally_ebs.report.html.style import CSS

_TOP, _FOOT = 34, 226  # of a plot's field
_HEIGHT = 268
_COLOURS = 4
_TICKS = 6
_ROW = 18  # of a figure in the plot of errors
_LETTERS = 32  # of its name


def page(result: Result) -> str:
    """The whole study as HTML."""
    study = result.study
    title = escape(study.title)
    lines = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{CSS}</style></head>',
        f"<body><main><h1>{title}</h1>",
        f'<p class="about">Published: {escape(study.source)}<br>Ours: {escape(result.how)}</p>',
        '<div class="plots">',
        *(f"<figure>{drawn}</figure>" for drawn in _drawings(result)),
        "</div>",
        _html_table(figure_table(result)),
        "<ul>",
        *(f"<li>{escape(line)}</li>" for line in words(result)),
        "</ul>",
        *(_html_table(table) for table in result.tables),
        "</main></body></html>",
    ]
    return "\n".join(lines) + "\n"


def drawing(result: Result) -> str:
    """The plots alone, below one another."""
    return _stacked(result.study.title, _drawings(result))


def sheet(title: str, plots: Sequence[Plot]) -> str:
    """Plots that belong to no study, below one another."""
    return _stacked(title, map(_plot, plots))


def _stacked(title: str, drawings: Iterable[str]) -> str:
    drawn, top = [], 0.0
    for plot in drawings:
        height = float(plot.split('viewBox="0 0 ', 1)[1].split('"', 1)[0].split()[1])
        drawn.append(
            plot.replace("<svg ", f'<svg y="{top:.0f}" width="{svg.WIDTH}" height="{height:.0f}" ', 1)
        )
        top += height + 24
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {svg.WIDTH} {top:.0f}">'
    return f"{head}<title>{escape(title)}</title><style>{CSS}</style>{''.join(drawn)}</svg>\n"


def _drawings(result: Result) -> Iterator[str]:
    yield from (_plot(plot) for plot in result.plots if any(series.points for series in plot.series))
    compared = [f for f in result.figures if f.status in (Status.OK, Status.MISS)]
    if compared:
        yield _errors(compared)


def _plot(plot: Plot) -> str:
    points = [point for series in plot.series for point in series.points]
    x = _across(plot, [x for x, _ in points])
    y = _upward(plot, [up for _, up in points])
    drawn = list(_rungs(plot, y))
    drawn += _axis(x, plot)
    for i, series in enumerate(plot.series):
        drawn += _drawn_series(plot, series, i, x, y)
    drawn += _legend(plot.series)
    drawn.append(svg.label(0, 12, plot.up))
    said = f"{plot.up} by {plot.across}; " + "; ".join(_said(series) for series in plot.series)
    return svg.figure(
        plot.title, said, _HEIGHT + 18, [svg.label(0, _HEIGHT + 12, plot.title, class_="name"), *drawn]
    )


def _across(plot: Plot, values: Sequence[float]) -> svg.Scale:
    if plot.names:  # half a place free on both sides
        return svg.Scale(-0.5, len(plot.names) - 0.5, svg.LEFT, svg.WIDTH - svg.RIGHT)
    low, high = min(values), max(values)
    if plot.spread:  # whole powers of ten at both ends
        low, high = math.floor(_decades(low)), math.ceil(_decades(high))
    return svg.Scale(low, high if high > low else low + 1, svg.LEFT, svg.WIDTH - svg.RIGHT)


def _upward(plot: Plot, values: Sequence[float]) -> svg.Scale:
    heights = [_height(plot, value) for value in values]
    low = math.floor(min(heights)) if plot.logarithmic else min(0.0, *heights)
    high = math.ceil(max(heights)) if plot.logarithmic else max(heights) * 1.05
    return svg.Scale(low, high if high > low else low + 1, _FOOT, _TOP)


def _height(plot: Plot, value: float) -> float:
    return _decades(value) if plot.logarithmic else value


def _power(decades: float) -> str:
    """A power of ten that is never wider than four letters."""
    for name, size in (("G", 9), ("M", 6), ("k", 3)):
        if decades >= size:
            return f"{svg.number(10 ** (decades - size))}{name}"
    return svg.number(10**decades)


def _short(value: float, most: float) -> str:
    """A label of an axis that goes up to ``most``, never wider than six letters."""
    for name, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if most >= 10 * size:
            return f"{svg.number(value / size)}{name}" if value else "0"
    return svg.number(value)


def _decades(value: float) -> float:
    return math.log10(max(value, 1e-12))


def _rungs(plot: Plot, y: svg.Scale) -> Iterator[str]:
    for value in y.ticks(5):
        if plot.logarithmic and value != int(value):
            continue
        text = _power(value) if plot.logarithmic else _short(value, y.high)
        yield svg.line(svg.LEFT, y.at(value), svg.WIDTH - svg.RIGHT, y.at(value), "grid")
        yield svg.label(svg.LEFT - 6, y.at(value) + 4, text, anchor="end")


def _axis(x: svg.Scale, plot: Plot) -> Iterator[str]:
    yield svg.line(x.start, _FOOT, x.end, _FOOT, "axis")
    places = [float(place) for place in range(len(plot.names))] or x.ticks(_TICKS)
    if plot.spread:
        places = [value for value in places if value == int(value)]
    named = plot.names or [_power(value) if plot.spread else svg.number(value) for value in places]
    for number, (value, name) in enumerate(zip(places, named, strict=True)):
        yield svg.line(x.at(value), _FOOT, x.at(value), _FOOT + 4, "axis")
        lower = 14 * (number % 2) if plot.names and len(plot.names) > _TICKS // 2 else 0
        # a number at the very edge would be cut in the middle
        anchor = "end" if not plot.names and x.at(value) >= svg.WIDTH - svg.RIGHT else "middle"
        yield svg.label(x.at(value), _FOOT + 18 + lower, name, anchor=anchor)
    if not plot.names:
        yield svg.label(x.end, _FOOT + 34, plot.across, anchor="end")


def _drawn_series(plot: Plot, series: Series, number: int, x: svg.Scale, y: svg.Scale) -> Iterator[str]:
    places = [
        (x.at(_decades(across) if plot.spread else across), y.at(_height(plot, up)))
        for across, up in series.points
    ]
    colour = f"arm{number % _COLOURS}"
    if not series.marks and len(places) > 1:
        yield svg.path(places, f"{'thin' if len(places) > _MANY else 'curve'} {colour}")
    if series.marks or len(places) == 1:
        for left, up in places:
            yield svg.tag("circle", cx=left, cy=up, r=3.5, class_=f"dot {colour}")


_MANY = 400  # points; a thin line shows them better


def _legend(series: Sequence[Series]) -> Iterator[str]:
    left = float(svg.LEFT)
    for number, one in enumerate(series):
        colour = f"arm{number % _COLOURS}"
        if one.marks:
            yield svg.tag("circle", cx=left + 10, cy=22, r=3.5, class_=f"dot {colour}")
        else:
            yield svg.path([(left, 22), (left + 20, 22)], f"curve {colour}")
        yield svg.label(left + 25, 26, one.name, class_="name")
        left += 40 + 7 * len(one.name)


def _said(series: Series) -> str:
    ups = [up for _, up in series.points]
    return (
        f"{series.name}: {len(ups)} points from {shown(min(ups))} to {shown(max(ups))}"
        if ups
        else series.name
    )


def _errors(figures: Sequence[Figure]) -> str:
    """The error of every figure on a line of its own, with what is allowed."""
    widest = max(max(abs(f.error or 0.0), f.published.kind.tolerance) for f in figures)
    half = min(max(widest, 0.05), 0.6) * 100
    x = svg.Scale(-half, half, 210, svg.WIDTH - svg.RIGHT)
    foot = 30 + _ROW * len(figures)
    drawn = [svg.line(x.at(0), 20, x.at(0), foot, "zero")]
    for value in x.ticks(_TICKS):
        drawn.append(svg.line(x.at(value), 20, x.at(value), foot, "grid"))
        drawn.append(svg.label(x.at(value), foot + 16, svg.number(value), anchor="middle"))
    for row, figure in enumerate(figures):
        drawn += _error_row(figure, 20 + _ROW * (row + 0.75), x)
    drawn.append(
        svg.label(0, 12, "Ours against the published figure, per cent; shaded: allowed", class_="name")
    )
    held = sum(figure.status is Status.OK for figure in figures)
    return svg.figure("Errors", f"{held} of {len(figures)} within tolerance", foot + 24, drawn)


def _error_row(figure: Figure, middle: float, x: svg.Scale) -> Iterator[str]:
    allowed = figure.published.kind.tolerance * 100
    error = (figure.error or 0.0) * 100
    state = "ok" if figure.status is Status.OK else "slower"
    yield svg.box(x.at(-allowed), middle - 6, x.at(allowed) - x.at(-allowed), 12, "margin")
    name = name_of(figure)
    yield svg.label(0, middle + 4, name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…")
    yield svg.tag("circle", cx=x.at(error), cy=middle, r=4, class_=f"mark {state}")


def _html_table(table: Table) -> str:
    columns = [(title, [row[i] for row in table.rows]) for i, title in enumerate(table.columns)]
    head = "".join(f"<th{_class(*cells)}>{escape(title)}</th>" for title, cells in columns)
    body = "".join("<tr>" + "".join(map(_html_cell, row)) + "</tr>" for row in table.rows)
    heading = f"<h2>{escape(table.title)}</h2>" if table.title else ""
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    shell = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'{heading}<div class="scroll">{shell}</div>{note}'


def _html_cell(cell: Cell) -> str:
    return f"<td{_class(cell)}>{escape(shown(cell))}</td>"


_QUANTITY = re.compile(r"(about )?[+-]?[\d,.]+( to [\d,.]+)?( %)?")


def _class(*cells: Cell) -> str:
    """Words stand on the left, and so does the title of a column of words."""
    words_alone = [isinstance(cell, str) and not _QUANTITY.fullmatch(cell) for cell in cells if cell]
    return ' class="left"' if words_alone and all(words_alone) else ""
