"""A loaded session to the one report model; decides which tables a report has, and in which order."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from esrally_ebs.analysis.beside import compare_rates, writes
from esrally_ebs.analysis.comparable import all_checks, cut_round, is_cold, whole_rounds
from esrally_ebs.analysis.findings import Findings, find
from esrally_ebs.analysis.summary import cold_starts
from esrally_ebs.analysis.volumes import by_type, marked_by_type
from esrally_ebs.model import Check, Event, State
from esrally_ebs.report import (
    aws,
    baseline,
    beside,
    bottleneck,
    causes,
    conditions,
    costs,
    figures,
    head,
    search,
)
from esrally_ebs.report.cells import number_of
from esrally_ebs.report.knee import knees_of
from esrally_ebs.report.model import Report, Table
from esrally_ebs.report.next_step import next_step
from esrally_ebs.report.recoveries import recovery_table
from esrally_ebs.store.session import Session


def build(session: Session, *, against: str | None = None) -> Report:
    """Everything there is to say about a session, from its folder alone; ``against`` as in ``find``."""
    checks = all_checks(session)
    recorded, volumes = session, whole_rounds(session)
    session = by_type(volumes, against)
    findings = find(session, against=against, checks=checks)
    arms, of_volumes = ([arm.spec.name for arm in each.arms] for each in (session, volumes))
    scopes = [findings]
    if is_cold(session) and session.plan.cache.drop_every != 1:
        # Only the first request after a drop is cold; those after it find what it read.
        scopes.append(find(session, "first", against=against, checks=checks))
    by_volume = findings if volumes is session else find(volumes, checks=checks)
    waits = [find(session, "latency", against=against, checks=checks)] if session.plan.has_latency else []
    knees = knees_of(session)
    starts = cold_starts(session.samples) if len(scopes) > 1 else ()
    explained = causes.explain(session, findings, marked_by_type(recorded, against))
    shared = causes.shared_reasons(session, findings, explained)
    profiles = explained.profiles
    held_back = knees.held_back(profiles) if knees else bottleneck.held_back(session, profiles)
    priced = costs.costs(session)
    written = writes(session)
    rates = compare_rates(written, findings)
    moments = conditions.moments(recorded)
    tables: list[Table | None] = [
        conditions.arms_table(volumes.arms, session.plan.node.count),
        *(knees.tables() if knees else ()),
        *(search.percentile_table(scope, arms) for scope in (*scopes, *waits)),
        *([] if volumes is session else [search.volumes_table(by_volume, of_volumes)]),
        search.cold_start_table(starts, arms),
        beside.rates_table(written, rates, findings, arms),
        *beside.tables(volumes, written if volumes is session else writes(volumes), of_volumes),
        *search.single_tables(volumes, by_volume, of_volumes),
        recovery_table(session, explained.profiles),
        *causes.tables(findings, explained),
        costs.table(session, findings, priced),
        *baseline.tables(volumes),
        *aws.tables(volumes),
        *conditions.tables(recorded),
        conditions.moments_table(moments, of_volumes),
    ]
    plan = session.plan.name
    return Report(
        kind=session.kind,
        title=f"{plan or session.kind}: session {session.id[:8]}",
        about=(f"Session {session.id}, plan {plan}, {_ended(session)}",),
        facts={
            "session": session.id,
            "kind": session.kind,
            "state": session.state.value,
            "reason": session.reason,
            "plan": plan,
            "started_at": session.started_at,
            "ended_at": session.ended_at,
        },
        verdict=head.verdict(session, findings, checks, knees, *waits),
        details=(
            *head.details(session, findings),
            *(f"Latency: {line}" for each in waits for line in head.details(session, each)),
            *beside.details(session, written, rates, findings),
        ),
        reasons=causes.reasons(findings, shared),
        bottlenecks=bottleneck.bottleneck_lines(session, held_back),
        cost=head.cost(priced, next(iter(findings.arms), "")),
        next_step=beside.next_step(rates)
        or next_step(session, findings, checks, shared, priced, held_back, *waits),
        labels=head.labels(session),
        tables=tuple(table for table in tables if table is not None and table.rows),
        checks=checks,
        warnings=(
            *session.warnings,
            *_faults(session.events),
            *_cut(recorded),
            *(tuple(beside.warnings(written, rates)) or _unknown(session, findings, checks)),
            *(knees.warnings() if knees else ()),
            *causes.warnings(findings, explained),
            *_doubts([*scopes, *waits]),
        ),
        figures=replace(
            figures.figures(recorded, findings),
            moments=moments,
            cold_starts=search.cold_start_plots(starts),
            tradeoffs=costs.tradeoffs(findings, priced),
            others=knees.plots() if knees else (),
        ),
        raw=tuple(_raw(session)),
    )


def utc(epoch_s: float) -> str:
    """A time that reads the same on every machine."""
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _ended(session: Session) -> str:
    """State, start and length."""
    length = (
        ""
        if session.ended_at is None
        else f", {max(0.0, session.ended_at - session.started_at) / 60:.1f} min"
    )
    why = f" ({session.reason})" if session.reason and session.state is not State.COMPLETE else ""
    return f"{session.state}{why}, started {utc(session.started_at)}{length}"


def _raw(session: Session) -> Iterator[str]:
    yield "session.json"
    if session.events:
        yield "events.jsonl"
    for folder, rows in (
        ("samples/", session.samples),
        ("telemetry/", session.telemetry),
        ("baseline/", session.baseline),
    ):
        if rows.num_rows:
            yield folder


def _faults(events: Iterable[Event]) -> Iterable[str]:
    for event in events:
        if event.kind in ("fault", "not-cold", "not-steady", "telemetry-dead"):
            where = f" on {event.arm}" if event.arm else ""
            yield f"{event.kind}{where}: {event.fields.get('text') or event.fields.get('task', '')}"


def _cut(session: Session) -> Iterable[str]:
    if (cut := cut_round(session)) is not None:
        yield f"the session ended within round {cut}, which is left out"


def _unknown(session: Session, findings: Findings, checks: Sequence[Check]) -> Iterable[str]:
    # of a first round that was cut they are not checked, though there are some
    is_recorded = session.samples["hits"].null_count < session.samples.num_rows
    if findings.comparisons and not is_recorded and not any(check.name == "hits" for check in checks):
        yield "hit counts were not recorded, so whether the arms found the same documents is not known"


def _doubts(scopes: Sequence[Findings]) -> Iterable[str]:
    """Each doubt once, with the tasks that it is about."""
    tasks: dict[str, list[str]] = {}
    for findings in scopes:
        prefix = {"first": "first requests: ", "latency": "latency: "}.get(findings.scope, "")
        for comparison in findings.comparisons:
            for doubt in comparison.warnings:
                tasks.setdefault(prefix + doubt, []).append(comparison.task)
        for summary in findings.summaries:
            if summary.failed and findings.scope == "all":
                text = f"{number_of(summary.failed, 'failed request')} of {summary.arm} left out"
                tasks.setdefault(text, []).append(summary.task)
    compared = len({c.task for findings in scopes for c in findings.comparisons})
    for text, about in tasks.items():
        distinct = list(dict.fromkeys(about))
        yield text if len(distinct) == compared > 1 else f"{', '.join(distinct)}: {text}"
