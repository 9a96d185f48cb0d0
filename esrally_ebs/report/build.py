"""A loaded session to the one report model; decides what a report has, and in which order."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from esrally_ebs.model import Check, Event
from esrally_ebs.report import (
    aws,
    baseline,
    causes,
    coldstarts,
    conditions,
    costs,
    figures,
    search,
    verdict,
)
from esrally_ebs.report.model import Report, Table
from esrally_ebs.report.moments import moments, moments_table
from esrally_ebs.stats.coldstart import cold_starts
from esrally_ebs.stats.comparable import all_checks, is_cold
from esrally_ebs.store.session import Session


def build(session: Session) -> Report:
    """Everything there is to say about a session, from its folder alone."""
    arms = [arm.spec.name for arm in session.arms]
    checks = all_checks(session)
    findings = search.find(session, checks=checks)
    scopes = [findings]
    if is_cold(session) and session.plan.get("cache", {}).get("drop_every", 1) != 1:
        # Only the first request after a drop is cold; those after it find what it read.
        scopes.append(search.find(session, "first", checks=checks))
    tables: list[Table | None] = [conditions.arms_table(session.arms)]
    for scope in scopes:
        tables += search.percentile_tables(scope, arms)
    starts = cold_starts(session.samples) if len(scopes) > 1 else ()
    tables.append(coldstarts.table(starts, arms))
    tables += search.single_tables(session, findings, arms)
    explained = causes.explain(session, findings)
    tables += causes.tables(findings, explained)
    priced = costs.costs(session)
    tables.append(costs.table(session, findings, priced))
    tables += baseline.tables(session.baseline, arms)
    tables += aws.tables(session)
    tables += conditions.tables(session)
    befell = moments(session)
    tables.append(moments_table(befell, arms))
    return Report(
        session=session.id,
        kind=session.kind,
        state=session.state,
        reason=session.reason,
        plan=str(session.plan.get("name", "")),
        started_at=session.started_at,
        ended_at=session.ended_at,
        verdict=verdict.sentence(session, findings, checks),
        reasons=causes.reasons(session, findings, explained),
        labels=verdict.labels(session),
        tables=tuple(table for table in tables if table is not None),
        checks=checks,
        warnings=(
            *session.warnings,
            *_faults(session.events),
            *_unknown(findings, checks),
            *causes.warnings(findings, explained),
            *_doubts(scopes),
        ),
        figures=replace(
            figures.figures(session, findings),
            moments=befell,
            cold_starts=coldstarts.figures(starts),
            tradeoffs=costs.tradeoffs(findings, priced),
        ),
        raw=tuple(_raw(session)),
    )


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
        if event.kind in ("fault", "not-cold", "telemetry-dead"):
            where = f" on {event.arm}" if event.arm else ""
            yield f"{event.kind}{where}: {event.fields.get('text') or event.fields.get('task', '')}"


def _unknown(findings: search.Findings, checks: Sequence[Check]) -> Iterable[str]:
    if findings.comparisons and not any(check.name == "hits" for check in checks):
        yield "hit counts were not recorded, so whether the arms found the same documents is not known"


def _doubts(scopes: Sequence[search.Findings]) -> Iterable[str]:
    """Each doubt once, with the tasks that it is about."""
    tasks: dict[str, list[str]] = {}
    for findings in scopes:
        prefix = "first requests: " if findings.scope == "first" else ""
        for comparison in findings.comparisons:
            for doubt in comparison.warnings:
                tasks.setdefault(prefix + doubt, []).append(comparison.task)
        for summary in findings.summaries:
            if summary.failed and findings.scope == "all":
                text = f"{summary.failed} requests failed on {summary.arm} and are left out"
                tasks.setdefault(text, []).append(summary.task)
    compared = len({c.task for findings in scopes for c in findings.comparisons})
    for text, about in tasks.items():
        distinct = list(dict.fromkeys(about))
        yield text if len(distinct) == compared > 1 else f"{', '.join(distinct)}: {text}"
