"""Published figures beside ours: from the JSON beside a study's plan to a Study and its report.

Figures are kept as printed. If the article printed a wrong unit, the data also have the intended one, so that
both the printed and the corrected figure can be shown.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from esrally_ebs.catalog.cost import PriceList
from esrally_ebs.errors import FormatError
from esrally_ebs.plan import Plan
from esrally_ebs.report import render_html, render_markdown, render_svg, render_text
from esrally_ebs.report.formats import csv_text
from esrally_ebs.report.model import (
    Figures,
    Forest,
    Plot,
    RelativeChange,
    Report,
    Table,
    plain_range,
    plain_table,
    plain_text,
)
from esrally_ebs.store import Session
from esrally_ebs.store.encoding import dump
from esrally_ebs.studies.devices import DeviceRunner
from esrally_ebs.studies.runs import VirtualRunner

UNITS: Mapping[str, float] = {  # to base units: seconds, bytes, operations; rates per second
    "": 1.0,
    "IOPS": 1.0,
    "I/Os": 1.0,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "MB/s": 1e6,
    "GB/s": 1e9,
    "MiB/s": 1024.0**2,
    "GiB/s": 1024.0**3,
    "Mbit/s": 1e6 / 8,
    "KiB/s / 1000": 1024e3,  # the article of 2021 prints fio's KiB/s like this, as MB/s
    "GB": 1e9,
    "GiB": 1024.0**3,
    "USD": 1.0,
}

_TITLES = ("figure", "unit", "published", "corrected", "ours", "error", "allowed", "is")


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureKind:
    key: str
    title: str
    unit: str  # as printed
    meant: str  # intended unit; the same if the article is right
    tolerance: float  # relative


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One printed figure: a number, or a range from ``low`` to ``high``."""

    arm: str
    job: str
    kind: FigureKind
    low: float
    high: float
    about: bool = False  # the article says "about", or it was read off a graph
    given: bool = False  # an input of the model or load: shown, but not a test
    outside: str = ""  # why the model does not cover it
    correction: str = ""  # the article's mistake here
    corrected: float | None = None  # in the printed unit, if more than the unit is wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """An article's published results for a plan's jobs."""

    name: str
    title: str
    source: str
    figures: tuple[Published, ...]
    corrections: tuple[str, ...]
    notes: tuple[str, ...]
    not_covered: tuple[str, ...]
    knife_edges: Mapping[str, str] = field(
        default_factory=dict
    )  # "arm job" or "arm job kind": why it may differ
    settings: Mapping[str, Any] = field(default_factory=dict)  # specific to this study

    def corrected(self) -> tuple[str, ...]:
        """All mistakes of the article, with what is right."""
        of_figures = [figure.correction for figure in self.figures if figure.correction]
        return tuple(dict.fromkeys([*self.corrections, *of_figures]))


def parse_study(text: str, source: str) -> Study:
    """Parse a study's data from JSON. Raises FormatError, naming ``source``, if they are incomplete."""
    try:
        data = json.loads(text)
        kinds = {key: _kind(key, entry) for key, entry in data["kinds"].items()}
        return Study(
            name=source.removesuffix(".json"),
            title=data["title"],
            source=data["source"],
            figures=tuple(_figures(data["figures"], kinds)),
            corrections=tuple(data["corrections"]),
            notes=tuple(data["notes"]),
            not_covered=tuple(data["not_covered"]),
            knife_edges=data.get("knife_edges", {}),
            settings=data.get("settings", {}),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(
            f"{source}: not the data of a study: {error!r}; install esrally_ebs again"
        ) from error


def _kind(key: str, entry: Mapping[str, Any]) -> FigureKind:
    unit = entry.get("unit", "")
    meant = entry.get("meant", unit)
    for name in (unit, meant):
        if name not in UNITS:  # checked now, not when the figure is shown
            raise KeyError(f"unit {name}")
    return FigureKind(key=key, title=entry["title"], unit=unit, meant=meant, tolerance=entry["tolerance"])


def _figures(groups: Sequence[Mapping[str, Any]], kinds: Mapping[str, FigureKind]) -> Iterator[Published]:
    for group in groups:
        for key, value in group["values"].items():
            printed, more = (value["value"], value) if isinstance(value, dict) else (value, {})
            low, high = printed if isinstance(printed, list) else [printed] * 2
            yield Published(
                arm=group.get("arm", ""),
                job=group.get("job", ""),
                kind=kinds[key],
                low=float(low),
                high=float(high),
                **{name: of for name, of in more.items() if name != "value"},
            )


Observed = Mapping[tuple[str, str, str], float]  # by arm, job and kind of figure, in base units


def relative_error(ours: float, low: float, high: float) -> float:
    """0 within a range, else relative to its nearer end; infinite relative to 0."""
    nearest = min(max(ours, low), high)
    return ours / nearest - 1 if nearest else math.inf


class Status(StrEnum):
    """Result of comparing one figure."""

    OK = "ok"
    MISS = "MISS"
    OUTSIDE = "not covered"  # by the model, with a reason
    GIVEN = "given"  # the figure is an input of the model or the load
    MISSING = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One published figure and ours; ``low``, ``high`` and ``ours`` are in the printed unit."""

    published: Published
    low: float  # corrected
    high: float
    ours: float | None

    @property
    def error(self) -> float | None:
        """Our relative error against the corrected figure; 0 within a range, else from its nearer end."""
        return None if self.ours is None else relative_error(self.ours, self.low, self.high)

    @property
    def status(self) -> Status:
        if self.error is None:
            return Status.MISSING
        if self.published.given:
            return Status.GIVEN
        if self.published.outside:
            return Status.OUTSIDE
        return Status.OK if abs(self.error) <= self.published.kind.tolerance else Status.MISS

    @property
    def is_judged(self) -> bool:
        """Whether it is within tolerance or not, as no reason leaves it out."""
        return self.status in (Status.OK, Status.MISS)

    @property
    def is_corrected(self) -> bool:
        """Whether the article printed something wrong."""
        return not math.isclose(self.low, self.published.low, rel_tol=1e-9)


def compare(study: Study, observed: Observed) -> tuple[Figure, ...]:
    return tuple(_figure(published, observed) for published in study.figures)


def _figure(published: Published, observed: Observed) -> Figure:
    kind = published.kind
    # 137.98 printed as MB/s but meant as thousand KiB/s is 141.29 MB/s.
    scale = UNITS[kind.meant] / UNITS[kind.unit]
    low, high = published.low * scale, published.high * scale
    if published.corrected is not None:
        low = high = published.corrected
    ours = observed.get((published.arm, published.job, kind.key))
    return Figure(
        published=published, low=low, high=high, ours=None if ours is None else ours / UNITS[kind.unit]
    )


def summary(study: Study, figures: Sequence[Figure]) -> list[str]:
    """Number of figures within tolerance, and for all others the reason, if known."""
    counted = [figure for figure in figures if figure.is_judged]
    missed = [figure for figure in counted if figure.status is Status.MISS]
    lines = [f"{len(counted) - len(missed)} of {len(counted)} published figures are within tolerance."]
    lines += _by_reason("Outside", [(figure, _why(study, figure)) for figure in missed])
    outside = [figure for figure in figures if figure.status is Status.OUTSIDE]
    lines += _by_reason("Not covered", [(figure, figure.published.outside) for figure in outside])
    return lines


def _by_reason(heading: str, figures: Sequence[tuple[Figure, str]]) -> list[str]:
    """A line for each reason, with its figures."""
    named: dict[str, list[str]] = {}
    for figure, reason in figures:
        named.setdefault(reason, []).append(f"{name_of(figure)} {_error(figure)}".rstrip())
    return [f"{heading}: {'; '.join(those)}" + (f": {why}" if why else "") for why, those in named.items()]


def name_of(figure: Figure) -> str:
    """A figure's arm, job and kind in words."""
    published = figure.published
    return " ".join(filter(None, (published.arm, published.job, published.kind.title)))


def _why(study: Study, figure: Figure) -> str:
    row = f"{figure.published.arm} {figure.published.job}"
    return study.knife_edges.get(f"{row} {figure.published.kind.key}", study.knife_edges.get(row, ""))


def _error(figure: Figure) -> str:
    return "" if figure.error is None else f"{figure.error * 100:+z.1f} %"


Runner = VirtualRunner | DeviceRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    study: Study
    plan: Plan
    runner: Runner
    prices: PriceList
    session: Session | None = None  # a recorded race to show beside the published one


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Our own figures, and everything specific to this study."""

    observed: Observed
    conclusion: str = ""  # one sentence, from our own figures
    tables: Sequence[Table] = ()
    plots: Sequence[Plot] = ()
    remarks: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    study: Study
    how: str  # one line: how our figures were made, and on what
    figures: Sequence[Figure]
    parts: Parts


def report_of(result: Result) -> Report:
    """The study as a report: how many figures hold, each beside ours, and its specific tables."""
    study, parts = result.study, result.parts
    counts, *lines = summary(study, result.figures)
    misses = [line for line in lines if line.startswith("Outside")]
    return Report(
        kind="study",
        title=study.title,
        about=(f"Published: {study.source}", f"Ours: {result.how}"),
        facts={"session": study.name, "kind": "study", "state": "complete"},
        verdict=f"{parts.conclusion} {counts}".strip(),
        details=tuple(misses),
        labels=(),
        tables=(_figure_table(result, [line for line in lines if line not in misses]), *parts.tables),
        figures=Figures(others=tuple(plot for plot in parts.plots if plot.curves), searches=_errors(result)),
    )


def _figure_table(result: Result, uncovered: list[str]) -> Table:
    """All published figures with ours, then notes on them; without empty columns."""
    study = result.study
    rows = [_figure_row(figure) for figure in result.figures]
    used = [place for place in range(len(_TITLES)) if any(row[place] for row in rows)]
    notes = [
        *uncovered,
        *(f"Corrected: {line}" for line in study.corrected()),
        *study.notes,
        *(f"Not covered: {line}" for line in study.not_covered),
        *result.parts.remarks,
    ]
    titles = [_TITLES[place] for place in used]
    title = "Every published figure beside ours"
    return plain_table("figures", title, titles, [[row[place] for place in used] for row in rows], *notes)


def _figure_row(figure: Figure) -> tuple[str, ...]:
    published = figure.published
    return (
        name_of(figure),
        published.kind.unit,
        ("about " if published.about else "") + plain_range(published.low, published.high),
        plain_range(figure.low, figure.high) if figure.is_corrected else "",
        plain_text(figure.ours),
        _error(figure),
        f"{published.kind.tolerance * 100:.0f} %" if figure.is_judged else "",
        figure.status.value,
    )


def _errors(result: Result) -> tuple[Forest, ...]:
    changes = tuple(
        RelativeChange(
            item=name_of(figure),
            value=figure.error,
            verdict="MISS" if figure.status is Status.MISS else "",
            margin=figure.published.kind.tolerance,
        )
        for figure in result.figures
        if figure.is_judged and figure.error is not None
    )
    if not changes:
        return ()
    title = "Ours against the published figure; shaded: allowed"
    return (Forest(title=title, less="lower", more="higher", changes=changes, compact=True),)


def _json(result: Result) -> str:
    """Everything, for programs."""
    study, parts = result.study, result.parts
    document = {
        "study": study.name,
        "title": study.title,
        "source": study.source,
        "how": result.how,
        "figures": [_record(figure) for figure in result.figures],
        "summary": summary(study, result.figures),
        "corrections": study.corrected(),
        "notes": study.notes,
        "not_covered": study.not_covered,
        "remarks": parts.remarks,
        "tables": [_table(table) for table in parts.tables],
        "plots": [_plot(plot) for plot in parts.plots],
    }
    return dump(document, indent=1) + "\n"


def _plot(plot: Plot) -> dict[str, Any]:
    series = [{"name": one.name, "points": list(zip(one.x, one.y, strict=True))} for one in plot.curves]
    return {"title": plot.title, "across": plot.across, "up": plot.up, "series": series}


def _table(table: Table) -> dict[str, Any]:
    return {
        "title": table.title,
        "columns": [table.item_title, *(column.title for column in table.columns)],
        "rows": [row.values for row in table.rows],
        "note": " ".join(table.notes),
    }


def _csv(result: Result) -> str:
    """Only the figures, a row each, for spreadsheets."""
    records = [_record(figure) for figure in result.figures]
    names = ("study", *(records[0] if records else ()))
    return csv_text([names, *((result.study.name, *record.values()) for record in records)])


RENDERERS: Mapping[str, Callable[[Result], str]] = {
    "text": lambda result: render_text(report_of(result)),
    "markdown": lambda result: render_markdown(report_of(result)),
    "json": _json,
    "csv": _csv,
    "html": lambda result: render_html(report_of(result)),
    "svg": lambda result: render_svg(report_of(result)),
}


def _record(figure: Figure) -> dict[str, str | float | None]:
    published, kind = figure.published, figure.published.kind
    what = {"arm": published.arm, "job": published.job, "figure": kind.key, "unit": kind.unit}
    ends = {"published_low": published.low, "published_high": published.high}
    ends |= {"corrected_low": figure.low, "corrected_high": figure.high}
    ours = {"ours": figure.ours, "error": figure.error, "tolerance": kind.tolerance}
    return {**what, **ends, **ours, "status": figure.status.value, "note": published.outside}
