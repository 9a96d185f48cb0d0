"""A report of recorded sessions side by side: what must agree, then times and how they changed."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from esrally_ebs.analysis.comparable import all_checks
from esrally_ebs.analysis.compare import Verdict
from esrally_ebs.analysis.findings import Findings, find
from esrally_ebs.analysis.pooling import MIN_SESSIONS, PooledRatio, pool
from esrally_ebs.analysis.sessions import (
    allowed_differences,
    check_sessions,
    question_differences,
    shared_arms,
)
from esrally_ebs.analysis.summary import PERCENTILES, Scope, Summary
from esrally_ebs.analysis.volumes import by_type
from esrally_ebs.errors import MeasurementError, PlanError
from esrally_ebs.model import Check, State
from esrally_ebs.report import baseline
from esrally_ebs.report.build import utc
from esrally_ebs.report.cells import (
    arm_names,
    change_cell,
    percent_change,
    ratio_cell,
    time_cell,
    verdict_facts,
)
from esrally_ebs.report.head import SCOPE, contrary, labels, not_proven, though
from esrally_ebs.report.model import (
    NOTHING,
    Cell,
    Column,
    Curve,
    Figures,
    Plot,
    Report,
    Row,
    Table,
    Value,
    quantity,
    table_of,
    titled,
    word,
)
from esrally_ebs.report.search import TOGETHER
from esrally_ebs.store.session import Session
from esrally_ebs.units import format_share

_SHORT = 8  # least characters of an id that name a session
KIND = "compare"


def compare_sessions(sessions: Sequence[Session]) -> Report:
    """What changed from the oldest session to the newest; no times if a check forbids the comparison.

    Raises PlanError for fewer than two sessions or a repeated one; MeasurementError if some were simulated
    and others measured, or one searched for a knee or changed a volume.
    """
    ordered = sorted(sessions, key=lambda session: session.started_at)
    names = _names(ordered)
    _require_comparable_kinds(ordered, names)
    checks = _checks(ordered, names)
    typed = [by_type(one) for one in ordered]
    arms = _arms(typed)
    by_scope = _findings_by_scope(names, typed) if comparable(checks) else {}
    findings = by_scope.get("all", {})
    pooled = {scope: _pooled(ordered, list(of.values())) for scope, of in by_scope.items()}
    tables = [_sessions_table(ordered, names)]
    tables += [_pooled_table(of, scope, ordered[0]) for scope, of in pooled.items() if of]
    tables += [table for of in by_scope.values() for table in _tables(of, arms)]
    tables += _fio_tables(ordered, names, _arms(ordered)) if by_scope else ()
    claims = [claim for scope, of in pooled.items() for claim in _claims(typed, of, scope)]
    between = f"{names[-1]} against {names[0]}" if len(names) == 2 else f"{names[0]} to {names[-1]}"
    plan = " and ".join(dict.fromkeys(one.plan.name for one in ordered))
    state = f"all {State.COMPLETE}" if by_scope else "not compared"
    return Report(
        kind=KIND,
        title=f"{plan or KIND}: sessions {between}",
        about=(f"Sessions {between}, plan {plan}, {state}",),
        facts={
            "session": between,
            "kind": KIND,
            "state": State.COMPLETE.value,
            "reason": "",
            "plan": plan,
            "started_at": ordered[0].started_at,
            "ended_at": ordered[-1].ended_at,
        },
        verdict=" ".join((_sentence(typed, names, arms, checks), *claims)),
        details=(
            *_undecided(ordered, names, list(findings.values()), pooled.get("all", ())),
            *_different(ordered, names),
            *_accepted(ordered, names),
        ),
        labels=_labels(typed, pooled.get("all", ())),
        tables=tuple(tables),
        checks=checks,
        figures=Figures(trends=tuple(_trends(findings, arms)) if findings else ()),
    )


def _findings_by_scope(names: Sequence[str], sessions: Sequence[Session]) -> dict[Scope, dict[str, Findings]]:
    """Each session's comparisons with the oldest session's reference, if it has that arm; by scope."""
    reference = sessions[0].plan.design.reference_first(sessions[0].arm_names)[:1]
    scopes: tuple[Scope, ...] = ("all", "latency")
    return {
        scope: {
            name: find(one, scope, against=next((arm for arm in reference if arm in one.arm_names), None))
            for name, one in zip(names, sessions, strict=True)
        }
        for scope in scopes
        if scope == "all" or all(one.plan.has_latency for one in sessions)
    }


def _require_comparable_kinds(sessions: Sequence[Session], names: Sequence[str]) -> None:
    simulated = [name for name, one in zip(names, sessions, strict=True) if one.kind == "simulate"]
    if simulated and len(simulated) < len(names):
        raise MeasurementError(
            f"compare: {', '.join(simulated)}: simulated in virtual time, nothing was measured; compare with"
            " simulated sessions alone"
        )
    for name, one in zip(names, sessions, strict=True):
        if one.plan.design.knee is not None:
            raise MeasurementError(
                f"compare: {name}: looked for a knee, so each arm was asked at rates of its own; see"
                f" 'esrally-ebs report {name}' for the rates that its arms keep"
            )
        if one.plan.modify is not None:
            raise MeasurementError(
                f"compare: {name}: changed the volume of {one.plan.modify.arm} between passes of fio, which"
                " therefore have no common median; see modification.txt in its folder"
            )


def comparable(checks: Sequence[Check]) -> bool:
    """Whether no check forbids the comparison."""
    return all(check.ok for check in checks)


def _names(sessions: Sequence[Session]) -> list[str]:
    """The shortest unique prefixes of the ids."""
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
    """Compares every session with the oldest; with many, each check appears once and names what failed."""
    by_pair = [check_sessions(sessions[0], other) for other in sessions[1:]]
    if len(by_pair) == 1:
        return by_pair[0]
    merged = []
    for group in zip(*by_pair, strict=True):
        failed = [(name, check) for name, check in zip(names[1:], group, strict=True) if not check.ok]
        of = _OWN.get(group[0].name)
        if of is None:
            texts = [f"second = {name}: {check.text}" for name, check in failed]
        else:  # about a single session, so added once for the oldest
            texts = [f"{names[0] if of == 0 else name}: {check.text}" for name, check in failed]
        text = "; ".join(dict.fromkeys(texts)) or f"holds for all {len(sessions)}"
        merged.append(Check(name=group[0].name, ok=not failed, value=str(len(group)), text=text))
    return tuple(merged)


_OWN = {"first session": 0, "second session": 1}  # checks of one session of a pair, by name


def _labels(sessions: Sequence[Session], pooled: Sequence[PooledRatio]) -> tuple[str, ...]:
    """Labels that apply to all sessions; the scope of one session's verdict is not that of a pooled one."""
    every = dict.fromkeys(label for one in sessions for label in labels(one))
    of_one = "scope of one session: " if pooled else SCOPE
    return tuple(label.replace(SCOPE, of_one) for label in every)


def _arms(sessions: Sequence[Session]) -> list[str]:
    """Arms that all sessions have, in the oldest's order."""
    shared = [set(shared_arms(sessions[0], other)) for other in sessions[1:]]
    return [name for name in sessions[0].arm_names if all(name in known for known in shared)]


def _sentence(
    sessions: Sequence[Session], names: Sequence[str], arms: Sequence[str], checks: Sequence[Check]
) -> str:
    broken = [f"{check.name}: {check.text}" for check in checks if not check.ok]
    if broken:
        return f"Not comparable: {'; '.join(broken)}."
    called = {name: text for one in sessions for name, text in arm_names(one).items()}
    about = ", ".join(called[arm] for arm in arms)
    what = "service times" if any(one.samples.num_rows for one in sessions) else "fio"
    if len(names) == 2:
        return f"{names[1]} against {names[0]}: {what} on {about}, and what changed."
    return f"{len(names)} sessions from {names[0]} to {names[-1]}: {what} on {about}, and how they went."


def _different(sessions: Sequence[Session], names: Sequence[str]) -> Iterator[str]:
    """Allowed differences, a line for each session that differs from the oldest."""
    for name, other in zip(names[1:], sessions[1:], strict=True):
        differences = allowed_differences(sessions[0], other)
        if differences:
            yield f"Differs, {names[0]} the first and {name} the second: {'; '.join(differences)}."


def _accepted(sessions: Sequence[Session], names: Sequence[str]) -> Iterator[str]:
    """Failed checks that were accepted, a line for each session with any."""
    for name, one in zip(names, sessions, strict=True):
        if accepted := [f"{check.name}: {check.text}" for check in all_checks(one) if check.accepted]:
            yield f"Accepted in {name}: {'; '.join(accepted)}."


def _sessions_table(sessions: Sequence[Session], names: Sequence[str]) -> Table:
    rows = {}
    for name, one in zip(names, sessions, strict=True):
        arms = ", ".join(arm_names(one).values())
        facts = {"id": one.id, "started": utc(one.started_at), "state": one.state.value}
        facts |= {"plan": one.plan.name, "arms": arms}
        rows[name] = {title: word(title, fact) for title, fact in facts.items()}
    return table_of("sessions", "Sessions", "session", rows, left=True)


def _pooled(sessions: Sequence[Session], findings: Sequence[Findings]) -> tuple[PooledRatio, ...]:
    """One verdict from all sessions, if they ask the same about the same volumes."""
    if any(question_differences(sessions[0], one) for one in sessions[1:]):
        return ()
    design = sessions[0].plan.design
    return pool(findings, margin=design.margin, confidence=design.confidence)


def _of_whole(pooled: Sequence[PooledRatio]) -> dict[str, PooledRatio]:
    """By arm, the pooled ratio over all tasks or over the only task."""
    of_arms = {b: [one for one in pooled if one.b == b] for b in dict.fromkeys(one.b for one in pooled)}
    return {b: own[-1] for b, own in of_arms.items() if own[-1].task is None or len(own) == 1}


def _undecided(
    sessions: Sequence[Session],
    names: Sequence[str],
    findings: Sequence[Findings],
    pooled: Sequence[PooledRatio],
) -> Iterator[str]:
    """Why there is no pooled verdict, if enough sessions compare arms."""
    pairs = findings[0].pairs if findings else []
    left = [b for _, b in pairs if b not in _of_whole(pooled)]
    if len(sessions) < MIN_SESSIONS or not left:
        return
    for name, other in zip(names[1:], sessions[1:], strict=True):
        if different := question_differences(sessions[0], other):
            yield (
                f"No verdict of all sessions: {names[0]} asks about other volumes, caches or another plan "
                f"than {name}: {'; '.join(different)}."
            )
            return
    same_tasks = all(set(one.tasks) == set(findings[0].tasks) for one in findings)
    why = "not each of them has an interval for every task" if same_tasks else "they have different tasks"
    yield f"No verdict of all sessions on {', '.join(left)}: {why}."


_CLAIMS = {
    Verdict.FASTER: "is faster than",
    Verdict.SLOWER: "is slower than",
    Verdict.EQUIVALENT: "is as fast as",
    Verdict.INCONCLUSIVE: "is not proven to differ from",
}


def _claims(sessions: Sequence[Session], pooled: Sequence[PooledRatio], scope: Scope) -> Iterator[str]:
    """One sentence per arm: what all sessions together show, over all tasks or the only task."""
    called = arm_names(sessions[0])
    over = "By latency over all sessions" if scope == "latency" else "Over all sessions"
    others, design = {one.b for one in pooled}, sessions[0].plan.design
    tasks = [one for one in pooled if one.task is not None]
    for b, whole in _of_whole(pooled).items():
        on = f" on {whole.task}" if whole.task else ""
        claim = f"{called[b]} {_CLAIMS[whole.verdict]} {called[whole.a]}{on}"
        if whole.verdict is Verdict.EQUIVALENT:
            claim += f" within {design.margin * 100:.3g} %{though(whole, design.confidence)}"
        why = not_proven(whole.verdict, whole.ratio, len(others), tasks=1 if whole.task else 2)
        why = f" ({why})" if why else contrary(tasks, whole)
        yield f"{over} {claim}, {percent_change(whole.ratio)}{why}."


def _pooled_table(pooled: Sequence[PooledRatio], scope: Scope, session: Session) -> Table:
    pairs = dict.fromkeys((one.a, one.b) for one in pooled)
    of = {(one.task, one.b): one for one in pooled}
    columns: list[Column] = []
    for a, b in pairs:
        subject = f"{b} against {a}"
        columns += [
            Column(title=f"{subject} [{format_share(session.plan.design.confidence)}]", subject=subject),
            Column(title=f"{b} is", subject=subject, left=True),
            Column(title="between sessions", subject=subject),
        ]
    return Table(
        key=f"{_KEYS[scope]}all_sessions_p50",
        title=f"All {pooled[0].sessions} sessions together, 50th percentile{_OF[scope]}",
        item_title="task",
        columns=tuple(columns),
        rows=tuple(
            Row(
                item=task or TOGETHER,
                cells=tuple(cell for _, b in pairs for cell in _pooled_cells(of.get((task, b)), session)),
            )
            for task in dict.fromkeys(one.task for one in pooled)
        ),
        notes=(
            "The session is a random effect: this holds for what each session drew anew (the start of a "
            "node, the volumes that it made). 'Between sessions' is how much ratios differ beyond what "
            "each session allows for, a standard deviation. Verdicts hold for all tasks together; a task "
            "has one only where all together are decided.",
        ),
    )


def _pooled_cells(one: PooledRatio | None, session: Session) -> tuple[Cell, ...]:
    if one is None:
        return NOTHING, NOTHING, NOTHING
    facts = verdict_facts(one.verdict.value, one) | {"sessions": one.sessions}
    design = session.plan.design
    facts |= {"confidence": design.confidence, "margin": design.margin}
    verdict = Cell(text=one.verdict.value, facts=facts)
    return ratio_cell(one.ratio), verdict, quantity("between_sessions", one.between, f"{one.between:.1%}")


_Of = Mapping[str, Findings]  # session name, oldest first, to its findings
_KEYS: Mapping[Scope, str] = {"all": "", "latency": "latency_"}
_OF: Mapping[Scope, str] = {"all": "", "latency": " of latency"}


def _scope(findings: _Of) -> Scope:
    return next(iter(findings.values())).scope


def _tables(findings: _Of, arms: Sequence[str]) -> list[Table]:
    if not any(one.summaries for one in findings.values()):
        return []
    tables = [
        _percentile_table(percentile, arm, findings, noted=(percentile, arm) == (PERCENTILES[0], arms[0]))
        for percentile in PERCENTILES
        for arm in arms
    ]
    return [*tables, *_between_arms(arms, findings)]


_FIO_CHANGE = (
    "From the oldest session to the newest, of each the median of its passes. A change has no interval:"
    " sessions of one plan on the same volumes show how much is chance."
)


def _fio_tables(sessions: Sequence[Session], names: Sequence[str], arms: Sequence[str]) -> Iterator[Table]:
    """For sessions of fio alone, a table per arm with each job's results in all of them."""
    if any(one.samples.num_rows for one in sessions):
        return
    for arm in arms:
        by_session = [baseline.medians(one.baseline, arm) for one in sessions]
        shared = [item for item in by_session[0] if all(item in one for one in by_session)]
        rows = []
        for item in shared:
            values, cells = zip(*(one[item] for one in by_session), strict=True)
            ratio = values[-1] / values[0] if values[0] else None
            change = quantity("ratio", ratio, f"{((ratio or 0) - 1) * 100:+z,.1f} %")
            rows.append(Row(item=item, cells=(*cells, change, *_spread(values))))
        yield Table(
            key=f"fio_{arm}",
            title=f"fio on {arm}",
            item_title="job",
            columns=titled(*names, "change", *_spread_title(names)),
            rows=tuple(rows),
            notes=(_FIO_CHANGE,) if arm == arms[0] else (),
        )


def _summaries(findings: Findings, arm: str) -> dict[str, Summary]:
    """Summaries of an arm's measurements in rounds, by task."""
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
    is_latency = _scope(findings) == "latency"
    rows = []
    for task in _shared_tasks(by_session):
        summaries = [one[task] for one in by_session]
        cells = [time_cell(summary, percentile) for summary in summaries]
        values = [summary.percentile(percentile).value for summary in summaries]
        rows.append(Row(item=task, cells=(*cells, _change(values), *_spread(values))))
    return Table(
        key=f"{'latency' if is_latency else 'service_time'}_p{percentile}_{arm}",
        title=f"{'Latency' if is_latency else 'Service time'} on {arm}, {percentile}th percentile",
        item_title="task",
        columns=titled(*findings, "change", *_spread_title(findings)),
        rows=tuple(rows),
        notes=("From the oldest session to the newest.", _CHANCE) if noted else (),
    )


def _change(values: Sequence[float]) -> Cell:
    """Change from the oldest session to the newest."""
    before, after = values[0], values[-1]
    if not before:
        return NOTHING
    facts: dict[str, Value] = {"difference_s": after - before, "ratio": after / before}
    text = f"{(after - before) * 1e3:+z,.2f} ms  {(after / before - 1) * 100:+z,.1f} %"
    return Cell(text=text, facts=facts)


def _spread_title(sessions: Collection[object]) -> tuple[str, ...]:
    return ("spread",) if len(sessions) > 2 else ()


def _spread(values: Sequence[float]) -> tuple[Cell, ...]:
    """For more than two sessions: how much slower the slowest is than the fastest."""
    if len(values) < 3:
        return ()
    spread = max(values) / min(values) - 1 if min(values) > 0 else None
    return (quantity("spread", spread, f"{(spread or 0) * 100:.1f} %"),)


def _between_arms(arms: Sequence[str], findings: _Of) -> list[Table]:
    """Differences between arms in each session, in which changes from session to session cancel."""
    by_session = {
        name: {(c.task, c.a, c.b): c for c in one.comparisons if c.a in arms and c.b in arms}
        for name, one in findings.items()
    }
    pairs = dict.fromkeys((a, b) for of_pair in by_session.values() for _, a, b in of_pair)
    tables = []
    for a, b in pairs:
        tasks = dict.fromkeys(t for of_pair in by_session.values() for t, x, y in of_pair if (x, y) == (a, b))
        rows = {
            task: {name: change_cell(of_pair.get((task, a, b))) for name, of_pair in by_session.items()}
            for task in tasks
        }
        key = f"{_KEYS[_scope(findings)]}between_arms_p50_{b}_{a}"
        title = f"{b} against {a} in each session, 50th percentile{_OF[_scope(findings)]}"
        note = "Intervals are those of each session by itself, with the confidence of its report."
        tables.append(table_of(key, title, "task", rows, note))
    return tables


def _trends(findings: _Of, arms: Sequence[str]) -> Iterator[Plot]:
    """50th percentile of each task that all sessions have, by session."""
    by_arm = {arm: [_summaries(one, arm) for one in findings.values()] for arm in arms}
    tasks = dict.fromkeys(task for summaries in by_arm.values() for task in _shared_tasks(summaries))
    for task in tasks:
        curves = [
            Curve(
                name=arm,
                x=tuple(float(place) for place in range(len(summaries))),
                y=tuple(of_session[task].p50_s * 1e3 for of_session in summaries),
                hover=tuple(f"{arm}, {name}" for name in findings),
                summary=f"{arm} {', '.join(f'{one[task].p50_s * 1e3:.2f} ms' for one in summaries)}",
            )
            for arm, summaries in by_arm.items()
            if all(task in of_session for of_session in summaries)
        ]
        yield Plot(
            title=f"Trend: {task}",
            heading=task,
            across="session",
            up="service time, ms",
            curves=tuple(curves),
            places=tuple(findings),
        )
