"""A study's result as a report, and as JSON and CSV of its own: a row per published figure."""

from collections.abc import Callable, Mapping
from typing import Any

from esrally_ebs.report import render_html, render_markdown, render_svg, render_text
from esrally_ebs.report.formats import csv_text
from esrally_ebs.report.model import Figures, Forest, RelativeChange, Report, Table, plain_table, plain_text
from esrally_ebs.store.encoding import dump
from esrally_ebs.studies.published import Figure, Result, Status, name_of, summary

_TITLES = ("figure", "unit", "published", "corrected", "ours", "error", "allowed", "is")


def report_of(result: Result) -> Report:
    """The study as a report: how many figures hold, each beside ours, and what only this study shows."""
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
    """Every published figure beside ours, then what must be known of them; no column without a value."""
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
    counts = figure.status in (Status.OK, Status.MISS)
    return (
        name_of(figure),
        published.kind.unit,
        ("about " if published.about else "") + _span(published.low, published.high),
        _span(figure.low, figure.high) if figure.is_corrected else "",
        plain_text(figure.ours),
        "" if figure.error is None else f"{figure.error * 100:+.1f} %",
        f"{published.kind.tolerance * 100:.0f} %" if counts else "",
        figure.status.value,
    )


def _span(low: float, high: float) -> str:
    return plain_text(low) if low == high else f"{plain_text(low)} to {plain_text(high)}"


def _errors(result: Result) -> tuple[Forest, ...]:
    changes = tuple(
        RelativeChange(
            item=name_of(figure),
            value=figure.error,
            verdict="MISS" if figure.status is Status.MISS else "",
            margin=figure.published.kind.tolerance,
        )
        for figure in result.figures
        if figure.error is not None and figure.status in (Status.OK, Status.MISS)
    )
    if not changes:
        return ()
    title = "Ours against the published figure; shaded: allowed"
    return (Forest(title=title, less="lower", more="higher", changes=changes, compact=True),)


def _json(result: Result) -> str:
    """For programs: everything, numbers as numbers."""
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
        "plots": [
            {
                "title": plot.title,
                "across": plot.across,
                "up": plot.up,
                "series": [
                    {"name": curve.name, "points": list(zip(curve.x, curve.y, strict=True))}
                    for curve in plot.curves
                ],
            }
            for plot in parts.plots
        ],
    }
    return dump(document, indent=1) + "\n"


def _table(table: Table) -> dict[str, Any]:
    return {
        "title": table.title,
        "columns": [table.item_title, *(column.title for column in table.columns)],
        "rows": [row.values for row in table.rows],
        "note": " ".join(table.notes),
    }


def _csv(result: Result) -> str:
    """For a spreadsheet: the figures alone, a row each."""
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
    published = figure.published
    return {
        "arm": published.arm,
        "job": published.job,
        "figure": published.kind.key,
        "unit": published.kind.unit,
        "published_low": published.low,
        "published_high": published.high,
        "corrected_low": figure.low,
        "corrected_high": figure.high,
        "ours": figure.ours,
        "error": figure.error,
        "tolerance": published.kind.tolerance,
        "status": figure.status.value,
        "note": published.outside,
    }
