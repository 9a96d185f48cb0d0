"""A report for a runbook or an issue."""

from collections.abc import Iterator

from esrally_ebs.report.model import Cell, Report, Table
from esrally_ebs.report.text import called, state_line


def render_markdown(report: Report) -> str:
    """The report as GitHub-flavoured Markdown."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"# {report.plan or report.kind}"
    yield ""
    yield f"**{_escape(report.verdict)}**"
    yield ""
    if report.reasons:
        yield from (f"- why: {_escape(reason)}" for reason in report.reasons)
    yield from (f"- {label}" for label in report.labels)
    yield f"- {called(report)} `{report.session}`, {_escape(state_line(report))}"
    for table in report.tables:
        yield ""
        yield from _table(table)
    if report.checks:
        yield from ("", "## Checks", "", "| check | | |", "|---|---|---|")
        for check in report.checks:
            mark = "ok" if check.ok else f"**{check.mark}**"
            yield f"| {check.name} | {mark} | {_escape(check.text)} |"
    if report.warnings:
        yield from ("", "## Warnings", "")
        yield from (f"- {_escape(warning)}" for warning in report.warnings)


def _table(table: Table) -> Iterator[str]:
    yield f"## {table.title}"
    yield ""
    titles = (table.item_title, *(_escape(column.title) for column in table.columns))
    yield f"| {' | '.join(titles)} |"
    yield "|---|" + "".join("---|" if column.left else "---:|" for column in table.columns)
    for row in table.rows:
        yield f"| {_escape(row.item)} | {' | '.join(_cell(cell) for cell in row.cells)} |"
    for note in table.notes:
        yield ""
        yield f"{_escape(note)}"


def _cell(cell: Cell) -> str:
    return f"**{_escape(cell.text)}** (better)" if cell.better else _escape(cell.text)


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
