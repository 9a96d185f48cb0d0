"""What every report shows, whatever its format: a verdict, tables of cells, checks and warnings.

A cell has its text for people and its facts (base units) for programs, so that all formats say the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass

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
    labels: tuple[str, ...]  # what must be said in every output: emulated, cache: warm ...
    tables: tuple[Table, ...]
    checks: tuple[Check, ...]
    warnings: tuple[str, ...]


NOTHING = Cell(text="-", facts={})


def quantity(metric: str, value: float | None, text: str, *, better: bool = False) -> Cell:
    """A cell of one number; ``-`` when there is none."""
    return NOTHING if value is None else Cell(text=text, facts={metric: value}, better=better)
