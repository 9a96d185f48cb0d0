"""A study's result as text, Markdown, JSON and CSV: one row per published figure, then its tables."""

import csv
import io
import json
from collections.abc import Callable, Mapping

from esrally_ebs.published.bars import bars
from esrally_ebs.published.figures import Figure, Status, summary
from esrally_ebs.published.result import Result, Table, shown

_COLUMNS = ("arm", "job", "figure", "unit", "published", "corrected", "ours", "error", "allowed", "")


def text(result: Result) -> str:
    """For the terminal: aligned columns, and plots as bars."""
    parts = [_heading(result), _aligned(figure_table(result)), "\n".join(words(result))]
    parts += [_aligned(table) for table in result.tables]
    parts += [drawn for plot in result.plots if (drawn := bars(plot))]
    return "\n\n".join(part for part in parts if part) + "\n"


def markdown(result: Result) -> str:
    """For a document."""
    study = result.study
    parts = [f"# {study.title}", f"Published: {study.source}  \nOurs: {result.how}"]
    parts += [_piped(figure_table(result)), "\n".join(f"- {line}" for line in words(result))]
    parts += [_piped(table) for table in result.tables]
    return "\n\n".join(part for part in parts if part) + "\n"


def as_json(result: Result) -> str:
    """For programs: everything, numbers as numbers."""
    study = result.study
    document = {
        "study": study.name,
        "title": study.title,
        "source": study.source,
        "how": result.how,
        "figures": [_record(figure) for figure in result.figures],
        "summary": summary(study, result.figures),
        "corrections": list(study.corrected()),
        "notes": list(study.notes),
        "not_covered": list(study.not_covered),
        "remarks": list(result.remarks),
        "tables": [
            {
                "title": t.title,
                "columns": list(t.columns),
                "rows": [list(row) for row in t.rows],
                "note": t.note,
            }
            for t in result.tables
        ],
        "plots": [
            {
                "title": plot.title,
                "across": plot.across,
                "up": plot.up,
                "series": [{"name": s.name, "points": [list(p) for p in s.points]} for s in plot.series],
            }
            for plot in result.plots
        ],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def as_csv(result: Result) -> str:
    """For a spreadsheet: the figures alone, a row each."""
    records = [_record(figure) for figure in result.figures]
    file = io.StringIO()
    writer = csv.DictWriter(file, fieldnames=["study", *(records[0] if records else ())], lineterminator="\n")
    writer.writeheader()
    writer.writerows({"study": result.study.name, **record} for record in records)
    return file.getvalue()


RENDERERS: Mapping[str, Callable[[Result], str]] = {
    "text": text,
    "markdown": markdown,
    "json": as_json,
    "csv": as_csv,
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


def _heading(result: Result) -> str:
    study = result.study
    return "\n".join([study.title, f"Published: {study.source}", f"Ours: {result.how}"])


def words(result: Result) -> list[str]:
    """What must be said beside the figures: misses, corrections, what is not covered, findings."""
    study = result.study
    return [
        *summary(study, result.figures),
        *(f"Corrected: {line}" for line in study.corrected()),
        *study.notes,
        *(f"Not covered: {line}" for line in study.not_covered),
        *result.remarks,
    ]


def figure_table(result: Result) -> Table:
    """Every published figure beside ours."""
    rows = [_figure_row(figure) for figure in result.figures]
    return Table(title="", columns=_COLUMNS, rows=rows)


def _figure_row(figure: Figure) -> list[str]:
    published = figure.published
    corrected = _span(figure.low, figure.high) if figure.is_corrected else ""
    ours = shown(figure.ours)
    error = "" if figure.error is None else f"{figure.error * 100:+.1f} %"
    allowed = f"{published.kind.tolerance * 100:.0f} %"
    if figure.status not in (Status.OK, Status.MISS):
        allowed = ""
    printed = ("about " if published.about else "") + _span(published.low, published.high)
    names = [published.arm, published.job, published.kind.title, published.kind.unit]
    return [*names, printed, corrected, ours, error, allowed, figure.status.value]


def _span(low: float, high: float) -> str:
    return shown(low) if low == high else f"{shown(low)} to {shown(high)}"


def _aligned(table: Table) -> str:
    if not table.rows:
        return table.title
    rows = [list(table.columns), *([shown(cell) for cell in row] for row in table.rows)]
    used = [i for i in range(len(table.columns)) if any(row[i] for row in rows[1:])]
    widths = {i: max(len(row[i]) for row in rows) for i in used}
    left = {i for i in used if all(isinstance(row[i], str) for row in table.rows) and not _numeric(table, i)}
    lines = [
        "  ".join(row[i].ljust(widths[i]) if i in left else row[i].rjust(widths[i]) for i in used).rstrip()
        for row in rows
    ]
    return "\n".join(([table.title] if table.title else []) + lines + ([table.note] if table.note else []))


def _numeric(table: Table, column: int) -> bool:
    """A column of figures that were made text, such as ``+1.4 %``."""
    cells = [cell for row in table.rows if isinstance(cell := row[column], str) and cell not in ("", "-")]
    return bool(cells) and all(any(c.isdigit() for c in cell) and _leads(cell) for cell in cells)


def _leads(cell: str) -> bool:
    return cell.removeprefix("about ").lstrip("+-")[:1].isdigit()


def _piped(table: Table) -> str:
    lines = [f"## {table.title}", ""] if table.title else []
    lines.append("| " + " | ".join(table.columns) + " |")
    lines.append("|" + "---|" * len(table.columns))
    lines += ["| " + " | ".join(shown(cell).replace("|", "\\|") for cell in row) + " |" for row in table.rows]
    return "\n".join([*lines, *(["", table.note] if table.note else [])])
