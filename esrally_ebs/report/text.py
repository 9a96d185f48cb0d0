"""A report for a terminal, or for a file that people read."""

import io
from datetime import UTC, datetime

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

from esrally_ebs.model import State
from esrally_ebs.report.model import Cell, Report, Table

WIDTH = 140
BETTER = "*"


def render_text(report: Report, *, colour: bool = False, width: int = WIDTH) -> str:
    """The report as text; ``colour`` adds terminal colours to marks that are also there as text."""
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
    console.print(Text(report.verdict, style="bold"))
    for reason in report.reasons:
        console.print(Text(f"Why: {reason}"))
    for label in report.labels:
        console.print(Text(label, style="yellow"))
    about = f"{called(report).capitalize()} {report.session}, plan {report.plan}, {state_line(report)}"
    console.print(Text(about, style="dim"))
    for table in report.tables:
        console.print()
        _print_table(console, table)
    _print_checks(console, report)
    _print_warnings(console, report)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    # rich puts an empty line below every table; one between two is enough
    kept = [line for line, before in zip(lines, ["", *lines], strict=False) if line or before]
    return "\n".join(kept).rstrip() + "\n"


def called(report: Report) -> str:
    """Whether it is about one session or about several."""
    return "sessions" if report.kind == "compare" else "session"


def state_line(report: Report) -> str:
    """State and time in UTC: the same on every machine."""
    if report.kind == "compare":  # of several sessions, each with a time of its own
        return f"all {report.state}" if all(c.ok for c in report.checks) else "not compared"
    started = utc(report.started_at)
    length = "" if report.ended_at is None else f", {(report.ended_at - report.started_at) / 60:.1f} min"
    why = f" ({report.reason})" if report.reason and report.state is not State.COMPLETE else ""
    return f"{report.state}{why}, started {started}{length}"


def utc(epoch_s: float) -> str:
    """A time that reads the same on every machine."""
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _print_table(console: Console, table: Table) -> None:
    console.print(Text(table.title, style="bold"))
    rich = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    rich.add_column(table.item_title, overflow="fold")
    for column in table.columns:
        rich.add_column(escape(column.title), justify="left" if column.left else "right", overflow="fold")
    for row in table.rows:
        rich.add_row(Text(row.item), *(_cell(cell) for cell in row.cells))
    console.print(rich)
    marked = any(cell.better for row in table.rows for cell in row.cells)
    for note in ((f"{BETTER} better",) if marked else ()) + table.notes:
        console.print(Text(f"  {note}", style="dim"))


def _cell(cell: Cell) -> Text:
    return Text(f"{cell.text} {BETTER}", style="bold green") if cell.better else Text(cell.text)


def _print_checks(console: Console, report: Report) -> None:
    if report.checks:
        console.print(Text("\nChecks", style="bold"))
    for check in report.checks:
        style = "green" if check.ok else "bold red" if check.forbids else "yellow"
        console.print(Text(f"  {check.mark:<5} ", style=style) + Text(f"{check.name}: {check.text}"))


def _print_warnings(console: Console, report: Report) -> None:
    if report.warnings:
        console.print(Text("\nWarnings", style="bold"))
    for warning in report.warnings:
        console.print(Text(f"  {warning}", style="yellow"))
