"""What every report shows, whatever its format: a verdict, tables of cells, checks and warnings.

A cell has its text for people and its facts (base units) for programs, so that all formats say the same.
Figures are data too: formats that can draw do, the others leave them out.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from esrally_ebs.model import Check

Value = str | int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One value: ``facts`` maps metrics, named with their units (``p50_s``), to values in base units."""

    text: str
    facts: Mapping[str, Value]
    better: bool = False  # better than the others, proven or (fio) simply by value


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column; several may have the same subject (an arm, or ``gp3 against gp2``)."""

    title: str
    subject: str
    left: bool = False  # left-aligned: text instead of numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An item (a task, a fio job, an arm), and a cell per column."""

    item: str
    cells: tuple[Cell, ...]
    continues: bool = False  # the item of the row above, which people are not shown again
    key: str = ""  # the table's key in CSV and JSON, if not the table's own

    @property
    def values(self) -> list[Value]:
        """The item, then the first fact of each cell."""
        return [self.item, *(next(iter(cell.facts.values()), None) for cell in self.cells)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of one kind of values; ``key`` names it in CSV and JSON."""

    key: str
    title: str
    item_title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RelativeChange:
    """One line of a forest plot: a change as a fraction (0.1 = 10 % more), with its interval."""

    item: str
    value: float
    low: float | None = None
    high: float | None = None
    verdict: str = ""
    margin: float | None = None  # smaller changes count as none; None where nothing can be equivalent


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """How one thing differs from another, item by item."""

    title: str
    less: str  # meaning of a change to the left of 0, in two words
    more: str
    changes: tuple[RelativeChange, ...]
    compact: bool = False  # many items without intervals, in short lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Points in drawing order; ``name`` (an arm) selects the colour."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    style: Literal["line", "steps", "marks", "link"] = "line"  # "link": a thin grey line without a name
    hover: tuple[str, ...] = ()  # texts for marks on the points, one each
    summary: str = ""  # what the curve shows, for people who cannot see it
    arm: str = ""  # the node's arm, if ``name`` is a node


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Curves over one horizontal axis; the axes' titles name the units."""

    title: str
    across: str
    up: str
    curves: tuple[Curve, ...]
    heading: str = ""  # above the drawing, if others of its kind are beside it
    log_x: bool = False
    log_y: bool = False
    from_zero: bool = False  # for the horizontal axis; a vertical one starts at 0 unless logarithmic
    places: tuple[str, ...] = ()  # labels for 0, 1, ... on the horizontal axis
    grid: tuple[float, ...] = ()  # labelled values of the vertical axis, instead of round ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A part of the session, in seconds from its start."""

    name: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """When one task was measured on one arm: (start, end) per round, in seconds from the session's start."""

    arm: str
    task: str
    times: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One metric over the session: values in ``unit`` by seconds from its start."""

    title: str
    unit: str
    step_s: float  # seconds that one point is the mean of
    curves: tuple[Curve, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """An event of one arm (or of all: ""), in seconds from the session's start."""

    arm: str
    kind: str  # limiter, credits, gc, fault, not-cold, telemetry
    text: str
    start_s: float
    end_s: float  # same as start_s for instants


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All figures of a session, of several, or of a study."""

    searches: tuple[Forest, ...] = ()
    baselines: tuple[Forest, ...] = ()  # of fio
    distributions: tuple[Plot, ...] = ()
    cold_starts: tuple[Plot, ...] = ()
    tradeoffs: tuple[Plot, ...] = ()
    trends: tuple[Plot, ...] = ()
    others: tuple[Plot, ...] = ()
    timelines: tuple[Timeline, ...] = ()
    spans: tuple[Span, ...] = ()
    turns: tuple[Turn, ...] = ()
    moments: tuple[Moment, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A whole report: of a session, of several, or of a study."""

    kind: str
    title: str
    about: tuple[str, ...]  # session, end state, time
    facts: Mapping[str, Value]  # ``about`` for programs
    verdict: str  # one short sentence
    details: tuple[str, ...] = ()  # for two arms, how tasks differ; for more, a line per arm, best first
    reasons: tuple[str, ...] = ()  # why: a sentence per shared reason, only if the data show it
    bottlenecks: tuple[str, ...] = ()  # the limit that held each arm back, and the price of raising it
    cost: str = ""  # monthly, of each arm
    next_step: str = ""  # what to do now
    labels: tuple[str, ...]  # shown in every output: emulated, cache: warm ...
    tables: tuple[Table, ...]
    checks: tuple[Check, ...] = ()
    warnings: tuple[str, ...] = ()
    figures: Figures = field(default_factory=Figures)
    # Files in the session's folder, and folders (with a slash), by name; none for several sessions.
    raw: tuple[str, ...] = ()


NOTHING = Cell(text="-", facts={})


def titled(*titles: str, left: bool = False) -> tuple[Column, ...]:
    """A column for each title, with the title as subject."""
    return tuple(Column(title=title, subject=title, left=left) for title in titles)


def word(metric: str, text: str | None) -> Cell:
    """A cell of one word; ``-`` when there is none."""
    return Cell(text=text or "-", facts={metric: text})


def quantity(metric: str, value: float | None, text: str) -> Cell:
    """A cell of one number; ``-`` when there is none."""
    return NOTHING if value is None else Cell(text=text, facts={metric: value})


def milliseconds(metric: str, seconds: float | None) -> Cell:
    """A cell of a time, shown in ms; ``-`` when there is none."""
    return quantity(metric, seconds, f"{(seconds or 0.0) * 1e3:.2f} ms")


def curve_through(
    name: str, points: Iterable[tuple[float, float]], style: Literal["line", "marks"] = "line"
) -> Curve:
    listed = list(points)
    return Curve(name=name, x=tuple(x for x, _ in listed), y=tuple(y for _, y in listed), style=style)


def table_of(
    key: str,
    title: str,
    item_title: str,
    rows: Mapping[str, Mapping[str, Cell]],
    *notes: str,
    left: bool = False,
) -> Table:
    """A table of rows by their items; each row has the same cells, by their columns' titles."""
    return Table(
        key=key,
        title=title,
        item_title=item_title,
        columns=titled(*next(iter(rows.values()), ()), left=left),
        rows=tuple(Row(item=item, cells=tuple(cells.values())) for item, cells in rows.items()),
        notes=notes,
    )


def plain_table(
    key: str, title: str, titles: Sequence[str], rows: Iterable[Sequence[Value]], *notes: str
) -> Table:
    """A table of plain values, the first of each row being its item; words are left-aligned."""
    item_title, *names = titles
    columns = [Column(title=name, subject=name, left=True) for name in names]
    made = []
    for item, *values in rows:
        cells = [Cell(text=plain_text(of), facts={name: of}) for name, of in zip(names, values, strict=True)]
        columns = [replace(c, left=c.left and _is_word(of)) for c, of in zip(columns, values, strict=True)]
        made.append(Row(item=plain_text(item), cells=tuple(cells)))
    return Table(
        key=key, title=title, item_title=item_title, columns=tuple(columns), rows=tuple(made), notes=notes
    )


_NUMBER = re.compile(r"(about )?[+-]?[\d,.]+( to [\d,.]+)?( %)?")


def _is_word(value: Value) -> bool:
    """Whether text is no number in text form, such as ``+1.4 %``."""
    return value is None or (isinstance(value, str) and not _NUMBER.fullmatch(value))


def plain_text(value: Value) -> str:
    """A value as text: four significant digits, thousands separated."""
    if value is None or isinstance(value, str):
        return "-" if value is None else value
    if math.isfinite(value) and (value == int(value) or abs(value) >= 1000):
        return f"{value:,.0f}"
    return f"{value:.4g}"


def plain_range(low: float, high: float) -> str:
    """Two values as text; one where they are the same."""
    return plain_text(low) if low == high else f"{plain_text(low)} to {plain_text(high)}"
