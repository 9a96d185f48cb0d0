"""What every report shows, whatever its format: a verdict, tables of cells, checks and warnings.

A cell has its text for people and its facts (base units) for programs, so that all formats say the same.
Figures are data too: formats that can draw do, the others leave them out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from esrally_ebs.model import Check, State

Value = str | int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One value: ``facts`` maps a metric, named with its unit (``p50_s``), to a value in base units."""

    text: str
    facts: Mapping[str, Value]
    better: bool = False  # better than its neighbours, beyond doubt or (fio) simply by its value


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column; several may speak of one subject (an arm, or ``gp3 against gp2``)."""

    title: str
    subject: str
    left: bool = False  # text rather than numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What is measured (a task, a fio job, an arm), and a cell per column."""

    item: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of one kind of value; ``key`` names it in CSV and JSON."""

    key: str
    title: str
    item_title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One line of a forest plot: a time as a fraction of change (0.1 = 10 % slower), with its interval."""

    item: str
    value: float
    low: float | None
    high: float | None
    verdict: str  # empty where none is given


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """How times of one arm changed against another, item by item."""

    title: str
    arm: str  # whose times are slower to the right
    changes: tuple[Change, ...]
    margin: float | None  # a fraction; None where nothing is called equivalent


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Points of one arm, in the order in which they are joined."""

    arm: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """One task: the share of requests (y, 0 to 1) that took at most x seconds."""

    task: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdStart:
    """One task: service time (s) by number of the request since the caches were dropped."""

    task: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tradeoff:
    """What each arm costs a month (x, US dollars) against a service time (y, s), one line per task."""

    title: str
    arms: tuple[str, ...]
    lines: tuple[tuple[str, Curve], ...]  # task, and its points in the order of ``arms``


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """One task over sessions: a value (s) per session and arm, or a change with its interval."""

    task: str
    sessions: tuple[str, ...]  # names of the places on the horizontal axis
    curves: tuple[Curve, ...]  # x is the place of the session, from 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A part of the session, in seconds since its start."""

    name: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """When one task was measured on one arm: (start, end) per round, in seconds since the session began."""

    arm: str
    task: str
    times: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One metric over the session: seconds since its start against values in ``unit``."""

    title: str
    unit: str
    step_s: float  # how many seconds one point is the mean of
    curves: tuple[Curve, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Something that befell one arm (or all: ""), in seconds since the session's start."""

    arm: str
    kind: str  # limiter, credits, gc, fault, not-cold, telemetry
    text: str
    start_s: float
    end_s: float  # as start_s for what has no length


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All that can be drawn of a session."""

    forests: tuple[Forest, ...] = ()
    distributions: tuple[Distribution, ...] = ()
    cold_starts: tuple[ColdStart, ...] = ()
    tradeoffs: tuple[Tradeoff, ...] = ()
    trends: tuple[Trend, ...] = ()
    timelines: tuple[Timeline, ...] = ()
    spans: tuple[Span, ...] = ()
    turns: tuple[Turn, ...] = ()
    moments: tuple[Moment, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A whole report."""

    session: str
    kind: str
    state: State
    reason: str
    plan: str
    started_at: float  # seconds since the epoch
    ended_at: float | None
    verdict: str  # one sentence
    reasons: tuple[str, ...] = ()  # why, one sentence per task, only where the data say so
    labels: tuple[str, ...]  # what must be said in every output: emulated, cache: warm ...
    tables: tuple[Table, ...]
    checks: tuple[Check, ...]
    warnings: tuple[str, ...]
    figures: Figures = field(default_factory=Figures)
    # What the session's folder holds, by name: files, and folders with a slash; none for several sessions.
    raw: tuple[str, ...] = ()


NOTHING = Cell(text="-", facts={})


def quantity(metric: str, value: float | None, text: str, *, better: bool = False) -> Cell:
    """A cell of one number; ``-`` when there is none."""
    return NOTHING if value is None else Cell(text=text, facts={metric: value}, better=better)
