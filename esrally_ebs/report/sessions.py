"""Recorded sessions side by side, as a report: what must agree first, then times and how they went."""

from collections.abc import Mapping, Sequence

from esrally_ebs.errors import PlanError
from esrally_ebs.model import Check, State
from esrally_ebs.report import search
from esrally_ebs.report.cells import change_cell, time_cell
from esrally_ebs.report.model import (
    NOTHING,
    Cell,
    Column,
    Curve,
    Figures,
    Report,
    Row,
    Table,
    Trend,
    Value,
    quantity,
)
from esrally_ebs.report.search import Findings
from esrally_ebs.report.text import utc
from esrally_ebs.report.verdict import arm_names, labels
from esrally_ebs.stats import PERCENTILES, Summary
from esrally_ebs.stats.sessions import check_sessions, shared_arms, told_differences
from esrally_ebs.store.session import Session

_SHORT = 8  # characters of an id, at least, that name a session
KIND = "compare"


def compare_sessions(sessions: Sequence[Session]) -> Report:
    """What changed from the oldest session to the newest; no times when a check forbids the comparison.

    Raises PlanError for fewer than two sessions, or one that is named twice.
    """
    ordered = sorted(sessions, key=lambda session: session.started_at)
    names = _names(ordered)
    checks = _checks(ordered, names)
    arms = _arms(ordered)
    tables = [_sessions_table(ordered, names)]
    trends: tuple[Trend, ...] = ()
    if comparable(checks):
        findings = {name: search.find(one) for name, one in zip(names, ordered, strict=True)}
        tables += _tables(findings, arms)
        trends = tuple(_trends(findings, arms))
    return Report(
        session=f"{names[-1]} against {names[0]}" if len(names) == 2 else f"{names[0]} to {names[-1]}",
        kind=KIND,
        state=State.COMPLETE,
        reason="",
        plan=" and ".join(dict.fromkeys(str(one.plan.get("name", "")) for one in ordered)),
        started_at=ordered[0].started_at,
        ended_at=ordered[-1].ended_at,
        verdict=_sentence(ordered, names, arms, checks),
        labels=tuple(dict.fromkeys(label for one in ordered for label in labels(one))),
        tables=tuple(tables),
        checks=checks,
        warnings=tuple(_warnings(ordered, names)),
        figures=Figures(trends=trends),
    )


def comparable(checks: Sequence[Check]) -> bool:
    """Whether no check forbids the comparison."""
    return all(check.ok for check in checks)


def _names(sessions: Sequence[Session]) -> list[str]:
    """The shortest starts of the ids that tell them apart."""
    ids = [one.id for one in sessions]
    if len(ids) < 2:
        raise PlanError("compare: one session; name two or more")
    twice = [one for one in ids if ids.count(one) > 1]
    if twice:
        raise PlanError(f"compare: {twice[0]} is named twice; name different sessions")
    longest = max(len(one) for one in ids)
    length = next(
        n for n in range(min(_SHORT, longest), longest + 1) if len({i[:n] for i in ids}) == len(ids)
    )
    return [one[:length] for one in ids]


def _checks(sessions: Sequence[Session], names: Sequence[str]) -> tuple[Check, ...]:
    """Every session is held against the oldest; of many, each check stands once and names what failed."""
    by_pair = [check_sessions(sessions[0], other) for other in sessions[1:]]
    if len(by_pair) == 1:
        return by_pair[0]
    found = []
    for group in zip(*by_pair, strict=True):
        failed = [(name, check) for name, check in zip(names[1:], group, strict=True) if not check.ok]
        of = _OWN.get(group[0].name)
        if of is None:
            texts = [f"second = {name}: {check.text}" for name, check in failed]
        else:  # about one session by itself, and so said once of the oldest
            texts = [f"{names[0] if of == 0 else name}: {check.text}" for name, check in failed]
        text = "; ".join(dict.fromkeys(texts)) or f"holds for all {len(sessions)}"
        found.append(Check(name=group[0].name, ok=not failed, value=str(len(group)), text=text))
    return tuple(found)


_OWN = {"first session": 0, "second session": 1}  # names of checks that look at one session of a pair


def _arms(sessions: Sequence[Session]) -> list[str]:
    """The arms that all sessions have, in the order of the oldest."""
    shared = [set(shared_arms(sessions[0], other)) for other in sessions[1:]]
    names = [arm.spec.name for arm in sessions[0].arms]
    return [name for name in names if all(name in known for known in shared)]


def _sentence(
    sessions: Sequence[Session], names: Sequence[str], arms: Sequence[str], checks: Sequence[Check]
) -> str:
    broken = [f"{check.name}: {check.text}" for check in checks if not check.ok]
    if broken:
        return f"Not comparable: {'; '.join(broken)}."
    called = {name: text for one in sessions for name, text in arm_names(one).items()}
    about = ", ".join(called[arm] for arm in arms)
    if len(names) == 2:
        return f"{names[1]} against {names[0]}: service times on {about}, and what changed."
    return (
        f"{len(names)} sessions from {names[0]} to {names[-1]}: service times on {about}, and how they went."
    )


def _warnings(sessions: Sequence[Session], names: Sequence[str]) -> list[str]:
    """What differs and may; of many sessions, each against the oldest."""
    many = len(sessions) > 2
    return [
        f"{name} as the second: {text}" if many else text
        for name, other in zip(names[1:], sessions[1:], strict=True)
        for text in told_differences(sessions[0], other)
    ]


def _sessions_table(sessions: Sequence[Session], names: Sequence[str]) -> Table:
    titles = ("id", "started", "state", "plan", "arms")
    rows = []
    for name, one in zip(names, sessions, strict=True):
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


_Of = Mapping[str, Findings]  # name of a session, from the oldest, to what its statistics say


def _tables(findings: _Of, arms: Sequence[str]) -> list[Table]:
    tables = [
        _percentile_table(percentile, arm, findings, noted=(percentile, arm) == (PERCENTILES[0], arms[0]))
        for percentile in PERCENTILES
        for arm in arms
    ]
    return [*tables, *_between_arms(arms, findings)]


def _summaries(findings: Findings, arm: str) -> dict[str, Summary]:
    """Task to summary of what was measured in rounds on an arm."""
    return {
        s.task: s
        for s in findings.summaries
        if s.arm == arm and any(round_ > 0 for round_ in findings.blocks[s.task, s.arm])
    }


def _shared_tasks(summaries: Sequence[Mapping[str, Summary]]) -> list[str]:
    return [task for task in summaries[0] if all(task in one for one in summaries)]


_CHANCE = (
    "What differs from session to session cannot be seen within one, so a change has no interval and no "
    "verdict. Sessions of one plan on the same volumes show how much is chance."
)


def _percentile_table(percentile: int, arm: str, findings: _Of, *, noted: bool) -> Table:
    by_session = [_summaries(one, arm) for one in findings.values()]
    columns = [Column(title=name, subject=name) for name in findings]
    columns.append(Column(title="change", subject="change"))
    if len(findings) > 2:
        columns.append(Column(title="spread", subject="spread"))
    rows = []
    for task in _shared_tasks(by_session):
        held = [one[task] for one in by_session]
        cells = [time_cell(summary, percentile) for summary in held]
        values = [summary.percentile(percentile).value for summary in held]
        rows.append(Row(item=task, cells=(*cells, _change(values), *_spread(values))))
    return Table(
        key=f"service_time_p{percentile}_{arm}",
        title=f"Service time on {arm}, {percentile}th percentile",
        item_title="task",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=("From the oldest session to the newest.", _CHANCE) if noted else (),
    )


def _change(values: Sequence[float]) -> Cell:
    """From the oldest session to the newest."""
    before, after = values[0], values[-1]
    if not before:
        return NOTHING
    facts: dict[str, Value] = {"difference_s": after - before, "ratio": after / before}
    text = f"{(after - before) * 1e3:+.2f} ms  {(after / before - 1) * 100:+.1f} %"
    return Cell(text=text, facts=facts)


def _spread(values: Sequence[float]) -> tuple[Cell, ...]:
    """Of more than two sessions: how far the slowest lies above the fastest."""
    if len(values) < 3:
        return ()
    spread = max(values) / min(values) - 1 if min(values) > 0 else None
    return (quantity("spread", spread, f"{(spread or 0) * 100:.1f} %"),)


def _between_arms(arms: Sequence[str], findings: _Of) -> list[Table]:
    """The difference between arms in each session: in it, what changes from session to session cancels."""
    by_session = {
        name: {(c.task, c.a, c.b): c for c in one.comparisons if c.a in arms and c.b in arms}
        for name, one in findings.items()
    }
    pairs = dict.fromkeys((a, b) for held in by_session.values() for _, a, b in held)
    tables = []
    for a, b in pairs:
        tasks = dict.fromkeys(t for held in by_session.values() for t, x, y in held if (x, y) == (a, b))
        rows = [
            Row(item=task, cells=tuple(change_cell(held.get((task, a, b))) for held in by_session.values()))
            for task in tasks
        ]
        tables.append(
            Table(
                key=f"between_arms_p50_{b}_{a}",
                title=f"{b} against {a} in each session, 50th percentile",
                item_title="task",
                columns=tuple(Column(title=name, subject=name) for name in by_session),
                rows=tuple(rows),
                notes=("Intervals are those of each session by itself, at its plan's confidence.",),
            )
        )
    return tables


def _trends(findings: _Of, arms: Sequence[str]) -> list[Trend]:
    """The 50th percentile of each task that all sessions have, session by session."""
    by_arm = {arm: [_summaries(one, arm) for one in findings.values()] for arm in arms}
    tasks = dict.fromkeys(task for held in by_arm.values() for task in _shared_tasks(held))
    return [
        Trend(
            task=task,
            sessions=tuple(findings),
            curves=tuple(
                Curve(
                    arm=arm,
                    x=tuple(float(place) for place in range(len(held))),
                    y=tuple(one[task].p50_s for one in held),
                )
                for arm, held in by_arm.items()
                if all(task in one for one in held)
            ),
        )
        for task in tasks
    ]
