"""The page: verdict first, then what it rests on, then every table, check and warning."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape

from esrally_ebs.report.html.curves import cold_start, tradeoff, trend
from esrally_ebs.report.html.plots import distribution, forest
from esrally_ebs.report.html.style import CSS
from esrally_ebs.report.html.timelines import TINTS, tasks, timeline
from esrally_ebs.report.model import Cell, Figures, Report, Table
from esrally_ebs.report.text import called, state_line

# No request can leave the page even if a name in the session were to hold markup.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_RAW = ("report.txt", "report.md", "report.csv", "report.json")
_HOLDS = {
    "samples/": "every request",
    "telemetry/": "every second of the devices",
    "baseline/": "fio's own output",
}

Section = tuple[str, str, Iterable[str]]  # anchor, heading, content


def render_html(report: Report) -> str:
    """The report as one HTML document without scripts, fonts or anything else from outside."""
    sections = [(anchor, title, "\n".join(content)) for anchor, title, content in _sections(report)]
    shown = [section for section in sections if section[2]]
    body = "\n".join(
        f'<section aria-labelledby="{anchor}">\n<h2 id="{anchor}">{title}</h2>\n{content}\n</section>'
        for anchor, title, content in shown
    )
    links = "".join(f'<li><a href="#{anchor}">{title}</a></li>' for anchor, title, _ in shown)
    broken = ' class="invalid"' if any(check.forbids for check in report.checks) else ""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{escape(_title(report))}</title>
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
"""


def _title(report: Report) -> str:
    id_ = report.session if report.kind == "compare" else report.session[:8]
    return f"{report.plan or report.kind}: {called(report)} {id_}"


def _head(report: Report) -> str:
    good = sum(check.ok for check in report.checks)
    counts = [f'<a href="#checks">{good} of {len(report.checks)} checks ok</a>'] if report.checks else []
    if report.warnings:
        number = len(report.warnings)
        counts.append(f'<a href="#warnings">{number} warning{"" if number == 1 else "s"}</a>')
    labels = "".join(f"<li>{escape(label)}</li>" for label in report.labels)
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in report.reasons)
    return "\n".join(
        (
            f"<h1>{escape(_title(report))}</h1>",
            f'<p class="verdict">{escape(report.verdict)}</p>',
            f'<ul class="reasons">{reasons}</ul>' if reasons else "",
            f'<ul class="labels">{labels}</ul>' if labels else "",
            f'<p class="about">{called(report).capitalize()} {escape(report.session)}, '
            f"{escape(state_line(report))}. {', '.join(counts)}</p>",
        )
    )


# What a section shows, by the keys of its tables; what no section names is told with the session.
_ARMS, _COST = r"arms$|sessions$", r"cost"
_TIMES = r"(first_)?service_time|(first_)?together|once$|alone$|between_arms"
_CAUSES, _COLD, _FIO, _EVENTS = r"io$|expected$|marks$", r"cold_start", r"fio_", r"events$"
_CONDITIONS = r"coldness$|credits$|load$|exceeded$|cloudwatch$|aws$"
_NAMED = "|".join((_ARMS, _TIMES, _COST, _CAUSES, _COLD, _FIO, _EVENTS, _CONDITIONS))


def _sections(report: Report) -> Iterator[Section]:
    figures = report.figures
    arms = _arms(report)
    yield "arms", "What is compared", _tables(report, _ARMS)
    searched, baselined = (
        any((f.margin is None) is of_fio for f in figures.forests) for of_fio in (False, True)
    )
    compared = "Search beside fio" if searched else "Differences in fio"
    yield "differences", compared if baselined else "Differences", _forests(report, searched, baselined)
    yield "times", "Service times", _tables(report, _TIMES)
    yield "trends", "Trends", _plots(((d.task, trend(d, arms)) for d in figures.trends), note=_TRENDS)
    yield "causes", "Why", _tables(report, _CAUSES)
    trades = ((d.title, tradeoff(d, arms)) for d in figures.tradeoffs)
    yield "cost", "Cost against time", (*_tables(report, _COST), *_plots(trades, note=_TRADEOFFS))
    spread = ((d.task, distribution(d, arms)) for d in figures.distributions)
    yield "distributions", "Distributions by task", _plots(spread, note=_DISTRIBUTIONS)
    starts = ((d.task, cold_start(d, arms)) for d in figures.cold_starts)
    yield "cold", "Cold starts", (*_plots(starts, note=_COLD_STARTS), *_tables(report, _COLD))
    yield "telemetry", "Over time", (*_timelines(report, arms), *_tables(report, _EVENTS))
    yield "fio", "fio", _tables(report, _FIO)
    yield "conditions", "Conditions", _tables(report, _CONDITIONS)
    yield "checks", "Checks", _checks(report)
    yield "warnings", "Warnings", _warnings(report)
    yield "session", "Session and environment", _tables(report, rf"(?!{_NAMED})")
    yield "raw", "Raw data", _raw(report)


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
    curves = [curve for spread in figures.distributions for curve in spread.curves]
    curves += [curve for series in figures.timelines for curve in series.curves]
    curves += [curve for start in figures.cold_starts for curve in start.curves]
    curves += [curve for drawn in figures.trends for curve in drawn.curves]
    known = [row.item for table in report.tables if table.key == "arms" for row in table.rows]
    priced = [arm for plot in figures.tradeoffs for arm in plot.arms]
    return list(dict.fromkeys((*known, *(curve.arm for curve in curves), *priced)))


def _forests(report: Report, searched: bool, baselined: bool) -> Iterator[str]:
    said = [text for text, is_so in ((_SEARCHED, searched), (_BASELINED, baselined)) if is_so]
    return _plots(((data.title, forest(data)) for data in report.figures.forests), note=" ".join(said))


def _timelines(report: Report, arms: Sequence[str]) -> Iterator[str]:
    figures = report.figures
    drawn = ((t.title, timeline(t, figures, arms)) for t in figures.timelines)
    yield from _plots(drawn, note=" ".join(_explained(figures)))
    if figures.timelines and figures.turns:
        items = "".join(
            f'<li><span class="swatch tint{place % TINTS}"></span>{escape(task)}</li>'
            for place, task in enumerate(tasks(figures.turns))
        )
        yield f'<ul class="tasks" aria-label="Tints of tasks">{items}</ul>'


def _explained(figures: Figures) -> Iterator[str]:
    """What the timelines of this session have on them, and nothing else."""
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


def _plots(plots: Iterable[tuple[str, str]], note: str = "") -> Iterator[str]:
    drawn = [f"<figure><h3>{_name(title)}</h3>\n{plot}</figure>" for title, plot in plots]
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
    # A region that scrolls must be reachable by keyboard.
    yield f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{name}"><table>'
    yield f'<thead><tr><th scope="col">{escape(table.item_title)}</th>{head}</tr></thead><tbody>'
    for row in table.rows:
        cells = "".join(
            _cell(cell, left=column.left) for column, cell in zip(table.columns, row.cells, strict=True)
        )
        yield f'<tr><th scope="row">{_name(row.item)}</th>{cells}</tr>'
    yield "</tbody></table></div>"
    for note in table.notes:
        yield f'<p class="note">{escape(note)}</p>'


def _name(item: str) -> str:
    """A name that breaks after its underscores where room is short, not in the middle of a word."""
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
    titles = "".join(_column(title, left=True) for title in ("check", "result", "what was found"))
    yield f"<thead><tr>{titles}</tr></thead><tbody>"
    for check in report.checks:
        kind, sign = ("failed", "\u2717") if check.forbids else ("noted", "!")
        if check.ok:
            kind, sign = "ok", "\u2713"
        yield f'<tr><th scope="row">{_name(check.name)}</th>'
        yield f'<td class="left"><span class="{kind}">{sign} {check.mark}</span></td>'
        yield f'<td class="left">{escape(check.text)}</td></tr>'
    yield "</tbody></table></div>"


def _warnings(report: Report) -> Iterator[str]:
    if report.warnings:
        yield f"<ul>{''.join(f'<li>{escape(warning)}</li>' for warning in report.warnings)}</ul>"


def _raw(report: Report) -> Iterator[str]:
    if not report.raw:  # of several folders, and not written into any
        return
    links = ", ".join(_link(name) for name in (*_RAW, *(n for n in report.raw if n not in _HOLDS)))
    held = ", ".join(f"{what} in {_link(name)}" for name, what in _HOLDS.items() if name in report.raw)
    yield f"<p>In the session's folder, beside this file: {links}{'; ' if held else ''}{held}.</p>"


def _link(name: str) -> str:
    return f'<a href="{name}">{name}</a>'
