"""Renders a report as text for a terminal, as Markdown, and as CSV and JSON in base units."""

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from esrally_ebs.model import Check
from esrally_ebs.report.model import Cell, Column, Plot, Report, Row, Table, Value, plain_text
from esrally_ebs.store.encoding import dump
from esrally_ebs.units import one_line, printable

WIDTH = 140
BETTER = "*"
_CSV_HEADER = ("table", "item", "subject", "metric", "value", "better")
_BAR_POINTS = 48  # plots with more points are left to the page
_BAR_WIDTH = 50
_EIGHTHS = " ▏▎▍▌▋▊▉"
_NAME_WIDTH = 24  # of a longer name, or of words, so much stands on one line where room is short
_GAP = 3  # between two columns
# What Markdown would take for code, stress, a cell's end, a link, a heading, a quotation or a character
_MARKUP = re.compile(r"[\\`*|]|](?=[(\[:])|~(?=~)|^[#>]|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])")
_FORMULA = re.compile(r"\s*[=+@\uff1d\uff0b\uff20\uff0d-](?![\d.,]*( %)?$)", re.DOTALL)  # no signed number


def render_text(report: Report, *, colour: bool = False, width: int = WIDTH) -> str:
    """The report as text; ``colour`` adds terminal colours to marks that the text also has."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        color_system="standard" if colour else None,
        force_terminal=colour,
        highlight=False,
        emoji=False,
        legacy_windows=False,
    )
    console.print(_line(report.title, style="dim"))
    console.print(_line(report.verdict, style="bold"))
    for detail in report.details:
        console.print(_line(f"  {detail}"))
    for title, text in head_lines(report):
        console.print(_line(f"{title}: {text}"))
    for label in report.labels:
        console.print(_line(label, style="yellow"))
    for about in report.about:
        console.print(_line(about, style="dim"))
    for table in report.tables:
        console.print()
        _print_table(console, table)
    for plot in report.figures.others:
        console.print(Text(printable(_bars(plot))), end="")
    _print_checks(console, report)
    _print_warnings(console, report)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    # rich adds an empty line below every table; between two tables one is enough
    kept = [line for line, before in zip(lines, ["", *lines], strict=False) if line or before]
    return "\n".join(kept).rstrip() + "\n"


def _line(text: str, style: str = "") -> Text:
    return Text(one_line(text), style=style)


def head_lines(report: Report) -> list[tuple[str, str]]:
    """Titles and lines for why, what held arms back, what they cost and what to do next, if known."""
    lines = [("Why", reason) for reason in report.reasons]
    lines += [("Limits", sentence) for sentence in report.bottlenecks]
    return lines + [
        (title, text) for title, text in (("Costs", report.cost), ("Next", report.next_step)) if text
    ]


def _print_table(console: Console, table: Table) -> None:
    console.print(_line(table.title, style="bold"))
    for places in _parts(table, console.width):
        rich = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
        rich.add_column(_line(table.item_title), overflow="fold")
        for column in (table.columns[place] for place in places):
            rich.add_column(_line(column.title), justify="left" if column.left else "right", overflow="fold")
        for row in table.rows:
            name = "" if row.continues else row.item
            rich.add_row(_line(name), *(_cell(row.cells[place]) for place in places))
        console.print(rich)
    marked = any(cell.better for row in table.rows for cell in row.cells)
    for note in ((f"{BETTER} better",) if marked else ()) + table.notes:
        console.print(_line(f"  {note}", style="dim"))


def _parts(table: Table, width: int) -> Iterator[list[int]]:
    """Places of the columns that stand beside one another: all, or as many at a time as there is room for.

    Those of one subject stay together; those without any say what a row is of, so each part has them.
    """
    every = range(len(table.columns))
    needed = [
        _needed_width(column, [row.cells[at] for row in table.rows])
        for at, column in enumerate(table.columns)
    ]
    name = max((len(row.item) for row in table.rows), default=0)
    of_row = [at for at in every if not table.columns[at].subject]
    room = width - min(name, _NAME_WIDTH) - sum(needed[at] for at in of_row)
    part: list[int] = []
    others = (at for at in every if at not in of_row)
    for _, group in groupby(others, key=lambda at: table.columns[at].subject):
        own = list(group)
        if part and sum(needed[at] for at in (*part, *own)) > room:
            yield [*of_row, *part]
            part = []
        part += own
    yield [*of_row, *part]


def _needed_width(column: Column, cells: Iterable[Cell]) -> int:
    """In which no value of a column is broken, but between a difference and its interval."""
    widths = [len(part) for cell in cells for part in _cell(cell).plain.split("  ")]
    most = max(widths, default=0)
    words = max(map(len, column.title.split()), default=0)
    return _GAP + max(min(most, _NAME_WIDTH) if column.left else most, words)


def _cell(cell: Cell) -> Text:
    return _line(f"{cell.text} {BETTER}", "bold green") if cell.better else _line(cell.text)


def _bars(plot: Plot) -> str:
    """A plot as horizontal bars; "" if it has many points or a logarithmic axis."""
    points = [(curve.name, x, y) for curve in plot.curves for x, y in zip(curve.x, curve.y, strict=True)]
    if not points or len(points) > _BAR_POINTS or plot.log_x or plot.log_y:
        return ""
    highest = max(y for _, _, y in points)
    names = [plot.places[int(x)] if plot.places else plain_text(x) for _, x, _ in points]
    width = max(map(len, names))
    lines, last = ["", f"{plot.title} ({plot.up} by {plot.across})"], plot.curves[0].name
    if len(plot.curves) > 1:
        lines.append(last)
    for name, (curve, _, y) in zip(names, points, strict=True):
        if curve != last:
            lines.append(curve)
        last = curve
        eighths = round(max(0.0, y / highest if highest > 0 else 0.0) * _BAR_WIDTH * 8)
        bar = "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
        lines.append(f"{name:>{width}} {bar} {plain_text(y)}")
    return "\n".join(lines) + "\n"


def _print_checks(console: Console, report: Report) -> None:
    if report.checks:
        console.print(Text("\nChecks", style="bold"))
    for check in report.checks:
        style = "green" if check.ok else "bold red" if check.forbids else "yellow"
        console.print(Text(f"  {check.mark:<5} ", style=style) + _line(f"{check.name}: {check.text}"))


def _print_warnings(console: Console, report: Report) -> None:
    if report.warnings:
        console.print(Text("\nWarnings", style="bold"))
    for warning in report.warnings:
        console.print(_line(f"  {warning}", style="yellow"))


def render_markdown(report: Report) -> str:
    """The report as GitHub-flavoured Markdown, for a runbook or an issue."""
    return "\n".join(_markdown_lines(report)) + "\n"


def _markdown_lines(report: Report) -> Iterator[str]:
    yield from (f"# {_escaped(report.title)}", "", f"**{_escaped(report.verdict)}**", "")
    yield from (f"- {_escaped(detail)}" for detail in report.details)
    yield from (f"- {title}: {_escaped(text)}" for title, text in head_lines(report))
    yield from (f"- {_escaped(line)}" for line in (*report.labels, *report.about))
    for table in report.tables:
        yield ""
        yield from _markdown_table(table)
    if report.checks:
        yield from ("", "## Checks", "", "| check | | |", "|---|---|---|")
        for check in report.checks:
            mark = "ok" if check.ok else f"**{check.mark}**"
            yield f"| {_escaped(check.name)} | {mark} | {_escaped(check.text)} |"
    if report.warnings:
        yield from ("", "## Warnings", "")
        yield from (f"- {_escaped(warning)}" for warning in report.warnings)


def _markdown_table(table: Table) -> Iterator[str]:
    yield from (f"## {_escaped(table.title)}", "")
    titles = (table.item_title, *(column.title for column in table.columns))
    yield f"| {' | '.join(map(_escaped, titles))} |"
    yield "|---|" + "".join("---|" if column.left else "---:|" for column in table.columns)
    for row in table.rows:
        item = "" if row.continues else row.item
        yield f"| {_escaped(item)} | {' | '.join(_markdown_cell(cell) for cell in row.cells)} |"
    for note in table.notes:
        yield from ("", _escaped(note))


def _markdown_cell(cell: Cell) -> str:
    return f"**{_escaped(cell.text)}** (better)" if cell.better else _escaped(cell.text)


def _escaped(text: str) -> str:
    return _MARKUP.sub(r"\\\g<0>", one_line(text)).replace("<", "&lt;")


def render_csv(report: Report) -> str:
    """One line per value, after lines that apply to all: verdict, labels, checks and warnings."""
    return csv_text(_csv_rows(report))


def csv_text(rows: Iterable[Iterable[Value]]) -> str:
    """Rows as CSV, with an apostrophe before text that a spreadsheet would run as a formula."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(map(_csv_value, row) for row in rows)
    return out.getvalue()


def _csv_rows(report: Report) -> Iterator[tuple[Value, ...]]:
    yield _CSV_HEADER
    session = report.facts["session"]
    lines = [("state", report.facts["state"]), ("verdict", report.verdict)]
    lines += [(name, of) for name in ("confidence", "margin") if (of := report.facts.get(name)) is not None]
    lines += [("detail", detail) for detail in report.details]
    lines += [("reason", reason) for reason in report.reasons]
    lines += [("bottleneck", sentence) for sentence in report.bottlenecks]
    lines += [(name, text) for name, text in (("cost", report.cost), ("next", report.next_step)) if text]
    lines += [("label", label) for label in report.labels]
    yield from (("session", session, "", metric, text, "") for metric, text in lines)
    for check in report.checks:
        yield "check", check.name, "", "ok", str(check.ok).lower(), ""
        yield "check", check.name, "", "mark", check.mark, ""
        yield "check", check.name, "", "text", check.text, ""
    yield from (("session", session, "", "warning", warning, "") for warning in report.warnings)
    for key, rows in _by_key(report):
        for row, columns in rows:
            for column, cell in zip(columns, row.cells, strict=True):
                for metric, value in cell.facts.items():
                    yield key, row.item, column.subject, metric, value, "better" if cell.better else ""


def _csv_value(value: Value) -> str:
    if isinstance(value, str):
        return f"'{one_line(value)}" if _FORMULA.match(value) else one_line(value)
    return "" if value is None else f"{value:.9g}" if isinstance(value, float) else str(value)


def render_json(report: Report) -> str:
    """One JSON object; ``tables.<key>.<item>.<subject>.<metric>`` is the path of each value."""
    document = {
        **report.facts,
        "verdict": report.verdict,
        "details": report.details,
        "reasons": report.reasons,
        "bottlenecks": report.bottlenecks,
        "cost": report.cost,
        "next": report.next_step,
        "labels": report.labels,
        "checks": [_check(check) for check in report.checks],
        "warnings": report.warnings,
        "tables": {key: _items(rows) for key, rows in _by_key(report)},
    }
    return printable(dump(document, indent=2)) + "\n"


_Rows = list[tuple[Row, tuple[Column, ...]]]


def _by_key(report: Report) -> Iterable[tuple[str, _Rows]]:
    """Rows with their columns, by their table's key in CSV and JSON.

    If several rows have one item, such as a task beside writes, the item includes the first cell.
    """
    rows: dict[str, _Rows] = {}
    for table in report.tables:
        keys = dict.fromkeys(row.key or table.key for row in table.rows) or {table.key: None}
        for key in keys:
            own = [row for row in table.rows if (row.key or table.key) == key]
            if len({row.item for row in own}) < len(own):
                own = [replace(row, item=f"{row.item} {row.cells[0].text}") for row in own]
            rows.setdefault(key, []).extend((row, table.columns) for row in own)
    return rows.items()


def _check(check: Check) -> dict[str, Any]:
    always = {"name": check.name, "ok": check.ok, "value": check.value, "text": check.text}
    if check.ok:
        return always
    return always | {"severity": check.severity, "mend": check.mend, "accepted": check.accepted}


def _items(rows: _Rows) -> dict[str, Any]:
    items: dict[str, Any] = {}
    for row, columns in rows:
        subjects: dict[str, dict[str, Value]] = {}
        for column, cell in zip(columns, row.cells, strict=True):
            facts = {metric: _rounded(value) for metric, value in cell.facts.items()}
            if cell.better:
                facts["better"] = True
            subjects.setdefault(one_line(column.subject), {}).update(facts)
        items[one_line(row.item)] = {subject: facts for subject, facts in subjects.items() if facts}
    return items


def _rounded(value: Value) -> Value:
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    return float(f"{value:.9g}")  # more digits than any clock has; the same on every machine
