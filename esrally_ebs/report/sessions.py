"""Two sessions side by side, as a report: what must agree first, then times and what changed."""

from collections.abc import Mapping, Sequence

from esrally_ebs.model import Check, State
from esrally_ebs.report import search
from esrally_ebs.report.model import NOTHING, Cell, Column, Report, Row, Table, Value
from esrally_ebs.report.search import Findings, percent_change
from esrally_ebs.report.text import utc
from esrally_ebs.report.verdict import arm_names, labels
from esrally_ebs.stats import PERCENTILES, Comparison, Summary
from esrally_ebs.stats.sessions import check_sessions, shared_arms, told_differences
from esrally_ebs.store.session import Session

_SHORT = 8  # characters of an id that tell two sessions apart
KIND = "compare"

Pair = tuple[Session, Session]


def compare_sessions(first: Session, second: Session) -> Report:
    """What changed from ``first`` to ``second``; no times when a check forbids the comparison."""
    checks = check_sessions(first, second)
    pair = first, second
    tables = [_sessions_table(pair)]
    if comparable(checks):
        findings = search.find(first), search.find(second)
        tables += _tables(pair, findings)
    return Report(
        session=f"{second.id} against {first.id}",
        kind=KIND,
        state=State.COMPLETE,
        reason="",
        plan=" and ".join(dict.fromkeys(str(one.plan.get("name", "")) for one in pair)),
        started_at=first.started_at,
        ended_at=second.ended_at,
        verdict=_sentence(pair, checks),
        labels=tuple(dict.fromkeys(label for one in pair for label in labels(one))),
        tables=tuple(tables),
        checks=checks,
        warnings=told_differences(first, second),
    )


def comparable(checks: Sequence[Check]) -> bool:
    """Whether no check forbids the comparison."""
    return all(check.ok for check in checks)


def _sentence(pair: Pair, checks: Sequence[Check]) -> str:
    broken = [f"{check.name}: {check.text}" for check in checks if not check.ok]
    if broken:
        return f"Not comparable: {'; '.join(broken)}."
    first, second = (one.id[:_SHORT] for one in pair)
    names = arm_names(pair[0]) | arm_names(pair[1])
    arms = ", ".join(names[arm] for arm in shared_arms(*pair))
    return f"{second} against {first}: service times on {arms}, and what changed."


def _sessions_table(pair: Pair) -> Table:
    titles = ("id", "started", "state", "plan", "arms")
    rows = []
    for name, one in zip(("first", "second"), pair, strict=True):
        facts: Mapping[str, Value] = {
            "id": one.id,
            "started": utc(one.started_at),
            "state": one.state.value,
            "plan": str(one.plan.get("name", "")),
            "arms": ", ".join(arm_names(one).values()),
        }
        cells = tuple(Cell(text=str(value) or "-", facts={key: value}) for key, value in facts.items())
        rows.append(Row(item=name, cells=cells))
    return Table(
        key="sessions",
        title="Sessions",
        item_title="session",
        columns=tuple(Column(title=title, subject=title, left=True) for title in titles),
        rows=tuple(rows),
    )


def _tables(pair: Pair, findings: tuple[Findings, Findings]) -> list[Table]:
    arms = shared_arms(*pair)
    tables = [_percentile_table(position, arms, findings) for position in range(len(PERCENTILES))]
    between = _between_arms(arms, findings)
    return tables if between is None else [*tables, between]


def _percentile_table(position: int, arms: Sequence[str], findings: tuple[Findings, Findings]) -> Table:
    percentile = PERCENTILES[position]
    first, second = ({(s.task, s.arm): s for s in one.summaries if _is_repeated(one, s)} for one in findings)
    columns = []
    for arm in arms:
        columns += [Column(title=f"{arm} {which}", subject=f"{arm} {which}") for which in ("first", "second")]
        columns.append(Column(title="change", subject=f"{arm} change"))
    rows = []
    for task in dict.fromkeys(task for task, _ in first if task in {other for other, _ in second}):
        cells = [
            cell
            for arm in arms
            for cell in _cells(percentile, first.get((task, arm)), second.get((task, arm)))
        ]
        rows.append(Row(item=task, cells=tuple(cells)))
    note = (
        "One session each: what differs from session to session cannot be seen within one, so a change has "
        "no interval and no verdict. Two sessions of one plan on the same volumes show how much is chance."
    )
    return Table(
        key=f"service_time_p{percentile}",
        title=f"Service time, {percentile}th percentile",
        item_title="task",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=(note,) if position == 0 else (),
    )


def _is_repeated(findings: Findings, summary: Summary) -> bool:
    return any(round_ > 0 for round_ in findings.blocks[summary.task, summary.arm])


def _cells(percentile: int, first: Summary | None, second: Summary | None) -> tuple[Cell, Cell, Cell]:
    a, b = _time(percentile, first), _time(percentile, second)
    before, after = (cell.facts.get(f"p{percentile}_s") for cell in (a, b))
    if not isinstance(before, float) or not isinstance(after, float) or not before:
        return a, b, NOTHING
    facts: dict[str, Value] = {"difference_s": after - before, "ratio": after / before}
    text = f"{(after - before) * 1e3:+.2f} ms  {(after / before - 1) * 100:+.1f} %"
    return a, b, Cell(text=text, facts=facts)


def _time(percentile: int, summary: Summary | None) -> Cell:
    if summary is None:
        return NOTHING
    value = float({50: summary.p50_s, 90: summary.p90_s, 99: summary.p99_s}[percentile])
    facts: dict[str, Value] = {f"p{percentile}_s": value, "requests": summary.requests}
    return Cell(text=f"{value * 1e3:.2f} ms", facts=facts)


def _between_arms(arms: Sequence[str], findings: tuple[Findings, Findings]) -> Table | None:
    """The difference between arms in each session: in it, what changes from session to session cancels."""
    first, second = ({(c.task, c.a, c.b): c for c in one.comparisons} for one in findings)
    shared = [key for key in first if key in second and key[1] in arms and key[2] in arms]
    if not shared:
        return None
    pairs = list(dict.fromkeys((a, b) for _, a, b in shared))
    columns = [
        Column(title=f"{b} against {a}, {which}", subject=f"{b} against {a} {which}")
        for a, b in pairs
        for which in ("first", "second")
    ]
    rows = []
    for task in dict.fromkeys(task for task, _, _ in shared):
        cells = [_difference(side.get((task, a, b))) for a, b in pairs for side in (first, second)]
        rows.append(Row(item=task, cells=tuple(cells)))
    return Table(
        key="between_arms_p50",
        title="Difference between arms in each session, 50th percentile",
        item_title="task",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=("Intervals are those of each session by itself, at its plan's confidence.",),
    )


def _difference(found: Comparison | None) -> Cell:
    if found is None:
        return NOTHING
    ratio = found.percentiles[0].ratio
    facts: dict[str, Value] = {
        "ratio": ratio.value,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
        "verdict": found.verdict.value,
    }
    return Cell(text=f"{percent_change(ratio)}  {found.verdict}", facts=facts)
