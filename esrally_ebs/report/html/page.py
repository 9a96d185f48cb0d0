"""Renders the page: the verdict, its reasons, then every table, check and warning."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from itertools import takewhile
from pathlib import Path

from esrally_ebs.report.formats import head_lines
from esrally_ebs.report.html.plots import TINTS, forest, plot, sheet, tasks, timeline
from esrally_ebs.report.model import Cell, Figures, Plot, Report, Row, Table, Timeline
from esrally_ebs.units import printable

# Comments of the style sheet are left out of the page.
CSS = re.sub(r"/\*.*?\*/\s*", "", Path(__file__).with_name("style.css").read_text(), flags=re.DOTALL).strip()
# Blocks all requests, even if a name in the session contains markup.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_RAW = ("report.txt", "report.md", "report.csv", "report.json")
_HOLDS = {
    "samples/": "every request",
    "telemetry/": "every second of the devices",
    "baseline/": "fio's own output",
}

Section = tuple[str, str, Iterable[str]]  # anchor, heading, content


def render_html(report: Report) -> str:
    """The report as one HTML document; loads no scripts, fonts or anything else."""
    sections = [(anchor, title, "\n".join(content)) for anchor, title, content in _sections(report)]
    shown = [section for section in sections if section[2]]
    body = "\n".join(
        f'<section aria-labelledby="{anchor}">\n<h2 id="{anchor}">{title}</h2>\n{content}\n</section>'
        for anchor, title, content in shown
    )
    links = "".join(f'<li><a href="#{anchor}">{title}</a></li>' for anchor, title, _ in shown)
    broken = ' class="invalid"' if any(check.forbids for check in report.checks) else ""
    return printable(f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{escape(report.title)}</title>
<link rel="icon" href="data:,">
<style>
{CSS}
</style>
</head>
<body{broken}>
<a class="skip" href="#main">Skip to the results</a>
<header>
{_head(report)}
</header>
<nav aria-label="Contents"><ul>{links}</ul></nav>
<main id="main">
{body}
</main>
<footer>Made by esrally_ebs from the session's folder; this file loads nothing and opens offline.</footer>
</body>
</html>
""")


def _head(report: Report) -> str:
    good = sum(check.ok for check in report.checks)
    counts = [f'<a href="#checks">{good} of {len(report.checks)} checks ok</a>'] if report.checks else []
    if report.warnings:
        number = len(report.warnings)
        counts.append(f'<a href="#warnings">{number} warning{"" if number == 1 else "s"}</a>')
    labels = "".join(f"<li>{escape(label)}</li>" for label in report.labels)
    details = "".join(f"<li>{escape(detail)}</li>" for detail in report.details)
    about = "".join(f"{escape(line)}. " for line in report.about)
    answers = "".join(f"<dt>{title}</dt><dd>{escape(text)}</dd>" for title, text in head_lines(report))
    return "\n".join(
        (
            f"<h1>{escape(report.title)}</h1>",
            f'<p class="verdict">{escape(report.verdict)}</p>',
            f'<ul class="details">{details}</ul>' if details else "",
            f'<dl class="answers">{answers}</dl>' if answers else "",
            f'<ul class="labels">{labels}</ul>' if labels else "",
            f'<p class="about">{about}{", ".join(counts)}</p>',
        )
    )


# Keys of the tables in each section; tables named nowhere go to the session's.
_ARMS, _COST = r"arms$|sessions$", r"cost"
_TIMES = (
    r"all_sessions|(first_)?service_time|(first_)?together|latency|volumes$|apart$|writes$|indexing$|"
    r"recovery$|once$|alone$|between_arms"
)
_CAUSES, _COLD, _FIO, _EVENTS = r"io$|processors$|expected$|marks$", r"cold_start", r"fio_", r"events$"
_CONDITIONS = r"coldness$|credits$|load$|load_hosts$|exceeded$|cloudwatch$|aws$"
_KNEE = r"knee"
_NAMED = "|".join((_ARMS, _KNEE, _TIMES, _COST, _CAUSES, _COLD, _FIO, _EVENTS, _CONDITIONS))


def _sections(report: Report) -> Iterator[Section]:
    if report.kind == "study":
        yield from _study_sections(report)
        return
    figures = report.figures
    arms = _arms(report)
    compared = "Search beside fio" if figures.searches else "Differences in fio"
    yield "arms", "What is compared", _tables(report, _ARMS)
    yield "knee", "Latency against rate", (*_plots(figures.others, arms), *_tables(report, _KNEE))
    yield "differences", compared if figures.baselines else "Differences", _forests(figures)
    yield "times", "Service times", _tables(report, _TIMES)
    yield "trends", "Trends", _plots(figures.trends, arms, _TRENDS)
    yield "causes", "Why", _tables(report, _CAUSES)
    trades = _plots(figures.tradeoffs, arms, _TRADEOFFS)
    yield "cost", "Cost against time", (*_tables(report, _COST), *trades)
    spread = _plots(figures.distributions, arms, _DISTRIBUTIONS)
    yield "distributions", "Distributions by task", spread
    starts = _plots(figures.cold_starts, arms, _COLD_STARTS)
    yield "cold", "Cold starts", (*starts, *_tables(report, _COLD))
    yield "telemetry", "Over time", (*_timelines(report, arms), *_tables(report, _EVENTS))
    yield "fio", "fio", _tables(report, _FIO)
    yield "conditions", "Conditions", _tables(report, _CONDITIONS)
    yield "checks", "Checks", _checks(report)
    items = "".join(f"<li>{escape(warning)}</li>" for warning in report.warnings)
    yield "warnings", "Warnings", [f"<ul>{items}</ul>"] if items else []
    yield "session", "Session and environment", _tables(report, rf"(?!{_NAMED})")
    yield "raw", "Raw data", _raw(report)


def _study_sections(report: Report) -> Iterator[Section]:
    figures = report.figures
    yield "plots", "Plots", _plots(figures.others)
    yield "figures", "Figures", (*_tables(report, "figures$"), *_forests(figures))
    yield "tables", "What this study adds", _tables(report, "(?!figures$)")


def render_svg(report: Report) -> str:
    """Only the plots of a study, one below the other, as one SVG drawing."""
    figures = report.figures
    drawings = [(data.title, plot(data)) for data in figures.others]
    drawings += [(data.title, forest(data)) for data in figures.searches]
    return printable(sheet(report.title, drawings, CSS))


_SEARCHED = (
    "A mark is the change of the 50th percentile, a bar its interval for the task by itself; the shaded band "
    "is what counts as equivalent. Verdicts hold for all tasks together."
)
_BASELINED = "fio ran once before the rounds: its marks have no bar."
_DISTRIBUTIONS = (
    "Share of measured requests that took at most so long; all rounds together. Above 300 requests a curve "
    "is drawn through 208 of its quantiles, densest in the slowest per cent; tables rest on all requests."
)
_COLD_STARTS = "Median service time of the requests that came so many after the caches were dropped."
_TRADEOFFS = "A mark per arm and task, joined by task: to the left is cheaper, below is faster."
_TRENDS = "One mark per session, from the oldest to the newest."


def _arms(report: Report) -> list[str]:
    figures = report.figures
    drawn: Sequence[Plot | Timeline] = (*figures.distributions, *figures.timelines, *figures.cold_starts)
    drawn = (*drawn, *figures.trends, *figures.tradeoffs)
    curves = [curve for data in drawn for curve in data.curves]
    known = [row.item for table in report.tables if table.key == "arms" for row in table.rows]
    return list(dict.fromkeys((*known, *(curve.name for curve in curves if curve.style != "link"))))


def _forests(figures: Figures) -> Iterator[str]:
    notes = ((_SEARCHED, figures.searches[:1]), (_BASELINED, figures.baselines))
    note = " ".join(text for text, forests in notes if any(not f.compact for f in forests))
    drawn = [(data.title, forest(data)) for data in (*figures.searches, *figures.baselines)]
    return _drawings(drawn, note)


def _timelines(report: Report, arms: Sequence[str]) -> Iterator[str]:
    figures = report.figures
    drawn = [(t.title, timeline(t, figures, arms)) for t in figures.timelines]
    yield from _drawings(drawn, " ".join(_explained(figures)))
    if figures.timelines and figures.turns:
        items = "".join(
            f'<li><span class="swatch tint{place % TINTS}"></span>{escape(task)}</li>'
            for place, task in enumerate(tasks(figures.turns))
        )
        yield f'<ul class="tasks" aria-label="Tints of tasks">{items}</ul>'


def _explained(figures: Figures) -> Iterator[str]:
    """Explains the marks that this session's timelines have, and no others."""
    yield "One panel per arm, on one clock and one scale."
    spans = {span.name if span.name in ("fio", "warm") else "round" for span in figures.spans}
    names = {"fio": "fio", "warm": "warm-up", "round": "the rounds by number"}
    shaded = [name for kind, name in names.items() if kind in spans]
    if shaded:
        yield f"Shaded: {', then '.join(shaded)}."
    if figures.turns:
        yield (
            "In each round every arm has its turn, so an arm rests while another is measured. The strip "
            "above a line has the task that was measured by its tint."
        )
    if figures.moments:
        yield "A triangle marks an event; the table of events has them all."


def _plots(plots: Sequence[Plot], arms: Sequence[str] = (), note: str = "") -> Iterator[str]:
    return _drawings([(data.heading or data.title, plot(data, arms)) for data in plots], note)


def _drawings(drawings: Sequence[tuple[str, str]], note: str) -> Iterator[str]:
    drawn = [f"<figure><h3>{_name(title)}</h3>\n{drawing}</figure>" for title, drawing in drawings]
    if drawn:
        yield f'<p class="note">{escape(note)}</p>' if note else ""
        yield f'<div class="plots">\n{"".join(drawn)}\n</div>'


def _tables(report: Report, keys: str) -> Iterator[str]:
    matches: Callable[[str], object] = re.compile(keys).match
    for table in report.tables:
        if matches(table.key):
            yield from _table(table)


def _table(table: Table) -> Iterator[str]:
    name = f"table-{escape(table.key, quote=True)}"
    head = "".join(_column(column.title, left=column.left) for column in table.columns)
    yield f'<h3 id="{name}">{escape(table.title)}</h3>'
    # A scrolling region must be reachable by keyboard.
    yield f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{name}"><table>'
    yield f'<thead><tr><th scope="col">{escape(table.item_title)}</th>{head}</tr></thead><tbody>'
    for place, row in enumerate(table.rows):
        cells = "".join(
            _cell(cell, left=column.left) for column, cell in zip(table.columns, row.cells, strict=True)
        )
        lower = list(takewhile(lambda row: row.continues, table.rows[place + 1 :]))
        yield f"<tr>{cells}</tr>" if row.continues else f"<tr>{_heading(row, len(lower))}{cells}</tr>"
    yield "</tbody></table></div>"
    for note in table.notes:
        yield f'<p class="note">{escape(note)}</p>'


def _heading(row: Row, lower: int) -> str:
    """A row's item, as the heading of its row and of the ``lower`` rows below."""
    span = f' scope="rowgroup" rowspan="{lower + 1}"' if lower else ' scope="row"'
    return f"<th{span}>{_name(row.item)}</th>"


def _name(item: str) -> str:
    """A name that may break after underscores, not inside words."""
    return escape(item).replace("_", "_<wbr>")


def _column(title: str, *, left: bool) -> str:
    return f'<th scope="col"{_left(left)}>{escape(title)}</th>'


def _cell(cell: Cell, *, left: bool) -> str:
    better = ' <span class="better">better</span>' if cell.better else ""
    return f"<td{_left(left)}>{escape(cell.text)}{better}</td>"


def _left(left: bool) -> str:
    return ' class="left"' if left else ""


def _checks(report: Report) -> Iterator[str]:
    if not report.checks:
        return
    yield '<div class="scroll" role="region" tabindex="0" aria-label="Table of checks"><table>'
    titles = "".join(_column(title, left=True) for title in ("check", "result", "what it says"))
    yield f"<thead><tr>{titles}</tr></thead><tbody>"
    for check in report.checks:
        kind, sign = ("failed", "\u2717") if check.forbids else ("noted", "!")
        if check.ok:
            kind, sign = "ok", "\u2713"
        yield f'<tr><th scope="row">{_name(check.name)}</th>'
        yield f'<td class="left"><span class="{kind}">{sign} {check.mark}</span></td>'
        yield f'<td class="left">{escape(check.text)}</td></tr>'
    yield "</tbody></table></div>"


def _raw(report: Report) -> Iterator[str]:
    if not report.raw:  # a report of several folders, or one written elsewhere
        return
    links = ", ".join(_link(name) for name in (*_RAW, *(n for n in report.raw if n not in _HOLDS)))
    holds = ", ".join(f"{what} in {_link(name)}" for name, what in _HOLDS.items() if name in report.raw)
    yield f"<p>In the session's folder, beside this file: {links}{'; ' if holds else ''}{holds}.</p>"


def _link(name: str) -> str:
    return f'<a href="{name}">{name}</a>'
