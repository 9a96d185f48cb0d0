"""Builds the report model from a loaded session: which tables a report has, and in which order."""

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
from esrally_ebs.report.knee import knees_of
from esrally_ebs.report.model import Figures, Report, Table
from esrally_ebs.report.next_step import next_step
from esrally_ebs.report.recoveries import recovery_table
from esrally_ebs.store.session import Session
from esrally_ebs.units import number_of


def build(session: Session, *, against: str | None = None) -> Report:
    """The report of a session, from its folder alone; ``against`` as in ``find``."""
    return _Analysis(session, against).report()


class _Analysis:
    """Everything analysed for a report, of which its parts are made."""

    def __init__(self, recorded: Session, against: str | None) -> None:
        self._recorded, self._volumes = recorded, whole_rounds(recorded)
        self._session = session = by_type(self._volumes, against)
        self._checks = checks = all_checks(recorded)
        self._findings = findings = find(session, against=against, checks=checks)
        self._scopes = [findings]
        if is_cold(session) and session.plan.cache.drop_every != 1:
            # Only the first request after a drop is cold; later ones find what it read.
            self._scopes.append(find(session, "first", against=against, checks=checks))
        is_by_volume = self._volumes is session
        self._by_volume = findings if is_by_volume else find(self._volumes, checks=checks)
        has_latency = session.plan.has_latency
        self._waits = [find(session, "latency", against=against, checks=checks)] if has_latency else []
        self._knees = knees_of(session, against)
        self._starts = cold_starts(session.samples) if len(self._scopes) > 1 else ()
        self._explained = causes.explain(session, findings, marked_by_type(recorded, against))
        self._priced = costs.costs(session)
        self._written = writes(session)
        self._rates = compare_rates(self._written, findings)
        self._moments = conditions.moments(recorded)

    def report(self) -> Report:
        session, findings, knees = self._session, self._findings, self._knees
        plan, profiles, compares = session.plan.name, self._explained.profiles, bool(findings.comparisons)
        shared = causes.shared_reasons(session, findings, self._explained)
        held_back = knees.held_back(profiles) if knees else bottleneck.held_back(session, profiles)
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
                # of intervals and verdicts
                "confidence": knees.confidence if knees else findings.confidence if compares else None,
                "margin": findings.margin if knees or compares else None,
            },
            verdict=head.verdict(session, findings, self._checks, knees, *self._waits),
            details=(
                *head.details(session, findings),
                *(f"Latency: {line}" for each in self._waits for line in head.details(session, each)),
                *beside.details(session, self._written, self._rates, findings),
            ),
            reasons=causes.reasons(findings, shared),
            bottlenecks=bottleneck.bottleneck_lines(session, held_back),
            cost=head.cost(self._priced, next(iter(findings.arms), "")),
            next_step=beside.next_step(self._rates)
            or next_step(session, findings, self._checks, shared, self._priced, held_back, *self._waits),
            labels=head.labels(session),
            tables=tuple(table for table in self._tables() if table is not None and table.rows),
            checks=self._checks,
            warnings=tuple(self._warnings()),
            figures=self._figures(),
            raw=tuple(_raw(session)),
        )

    def _tables(self) -> Iterator[Table | None]:
        session, volumes, findings, explained = self._session, self._volumes, self._findings, self._explained
        arms, of_volumes = session.arm_names, volumes.arm_names
        written = self._written if volumes is session else writes(volumes)
        yield conditions.arms_table(volumes.arms, session.plan.node.count)
        yield from self._knees.tables() if self._knees else ()
        yield from (search.percentile_table(scope, arms) for scope in (*self._scopes, *self._waits))
        if volumes is not session:
            yield search.volumes_table(self._by_volume, of_volumes)
        yield search.cold_start_table(self._starts, arms)
        yield beside.rates_table(self._written, self._rates, findings, arms)
        yield from beside.tables(volumes, written, of_volumes)
        yield from search.single_tables(volumes, self._by_volume, of_volumes)
        yield recovery_table(session, explained.profiles)
        yield from causes.tables(findings, explained)
        yield costs.table(session, findings, self._priced)
        yield from baseline.tables(volumes)
        yield from aws.tables(volumes)
        yield from conditions.tables(self._recorded)
        yield conditions.moments_table(self._moments, of_volumes)

    def _warnings(self) -> Iterator[str]:
        session, findings = self._session, self._findings
        of_writes = tuple(beside.warnings(self._written, self._rates))
        yield from session.warnings
        yield from faults(session.events)
        yield from _cut(self._recorded)
        yield from of_writes or _unknown(session, findings, self._checks)
        yield from self._knees.warnings() if self._knees else ()
        for waits in self._waits:
            yield from search.warnings(findings, waits)
        yield from causes.warnings(findings, self._explained)
        yield from _doubts([*self._scopes, *self._waits])

    def _figures(self) -> Figures:
        return replace(
            figures.figures(self._recorded, self._findings),
            moments=self._moments,
            cold_starts=search.cold_start_plots(self._starts),
            tradeoffs=costs.tradeoffs(self._findings, self._priced),
            others=self._knees.plots() if self._knees else (),
        )


def utc(epoch_s: float) -> str:
    """A time in UTC, the same on every machine."""
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _ended(session: Session) -> str:
    """The session's state, start and duration."""
    lasted_s = max(0.0, (session.ended_at or 0.0) - session.started_at)
    length = "" if session.ended_at is None else f", {lasted_s / 60:.1f} min"
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


def faults(events: Iterable[Event]) -> Iterable[str]:
    """What went wrong and ended nothing: a line each, once if several of Rally's processes say the same."""
    kinds = ("fault", "not-cold", "not-steady", "requests-differ", "telemetry-dead")
    lines: dict[str, None] = {}
    for event in (event for event in events if event.kind in kinds):
        where = f" on {event.arm}" if event.arm else ""
        lines[f"{event.kind}{where}: {event.fields.get('text') or event.fields.get('task', '')}"] = None
    return lines


def _cut(session: Session) -> Iterable[str]:
    if (cut := cut_round(session)) is not None:
        ended = "is still" if session.state is State.RUNNING else "ended"
        yield f"the session {ended} within round {cut}, which is left out"


def _unknown(session: Session, findings: Findings, checks: Sequence[Check]) -> Iterable[str]:
    # hits of an incomplete first round are not checked, though they are recorded
    is_recorded = session.samples["hits"].null_count < session.samples.num_rows
    if findings.comparisons and not is_recorded and not any(check.name == "hits" for check in checks):
        yield "hit counts were not recorded, so whether the arms found the same documents is not known"


def _doubts(scopes: Sequence[Findings]) -> Iterable[str]:
    """Each warning once, with the tasks that it is about."""
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
