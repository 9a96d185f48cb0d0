"""A loaded session to documents for a search engine: pure. Rally's words for what Rally has words for.

One document per session, per verdict, per task and arm, per row of fio, per second and arm of telemetry, and
per drop of the caches. Each says of itself what it is (``record``) and what it belongs to (``race-id``).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from esrally_ebs.analysis.comparable import all_checks
from esrally_ebs.analysis.compare import Comparison, Overall
from esrally_ebs.analysis.findings import Findings, find
from esrally_ebs.analysis.rounds import Estimate
from esrally_ebs.analysis.summary import PERCENTILES
from esrally_ebs.analysis.volumes import by_type
from esrally_ebs.model import Kind
from esrally_ebs.report import build
from esrally_ebs.report.cells import verdict_facts
from esrally_ebs.report.search import TOGETHER
from esrally_ebs.store.encoding import baseline_of, plain
from esrally_ebs.store.session import Session

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Document:
    """What is stored under one id; the same session always gives the same ids."""

    id: str
    fields: Fields


def documents(session: Session, environment: str) -> Iterator[Document]:
    """All documents of a session; ``environment`` is what Rally calls its ``env.name``."""
    common = _common(session, environment)
    findings = find(by_type(session), checks=all_checks(session))
    for record, of in RECORDS.items():
        for key, fields in of(session, findings):
            yield Document(
                id=f"{session.id}:{record}:{key}", fields=plain({**common, "record": record, **fields})
            )


def _common(session: Session, environment: str) -> dict[str, Any]:
    race = session.plan.race
    return {
        "race-id": session.id,
        "race-timestamp": datetime.fromtimestamp(session.started_at, UTC).strftime("%Y%m%dT%H%M%SZ"),
        "@timestamp": _millis(session.started_at),
        "environment": environment,
        "track": race and race.track,
        "challenge": race and race.challenge,
        "plan": session.plan.name,
        "host": session.environment.get("host"),
        "emulated": session.emulated,
    }


def _millis(at_s: float) -> int:
    return round(at_s * 1000)


_Keyed = Iterator[tuple[str, Fields]]


def _sessions(session: Session, _: Findings) -> _Keyed:
    built = build(session)
    yield (
        "whole",
        {
            "kind": session.kind,
            "state": session.state,
            "reason": session.reason,
            "ended_at": None if session.ended_at is None else _millis(session.ended_at),
            "sentence": built.verdict,
            "labels": built.labels,
            "warnings": built.warnings,
            "failed_checks": [check.name for check in built.checks if not check.ok],
            "arms": session.arm_names,
            "documents": session.dataset.get("documents"),
            "dataset_bytes": session.dataset.get("bytes"),
        },
    )


def _verdicts(_: Session, findings: Findings) -> _Keyed:
    for comparison in findings.comparisons:
        word, decided = findings.word(comparison), comparison.p_different is not None
        fields = _verdict(findings, comparison, comparison.task, word, decided=decided)
        yield f"{comparison.task}:{comparison.b}:{comparison.a}", fields | _changes(comparison)
    for overall in findings.overall:
        fields = _verdict(findings, overall, TOGETHER, overall.verdict.value, decided=True)
        yield f"{TOGETHER}:{overall.b}:{overall.a}", fields | _estimate("p50_ratio", overall.ratio)


def _verdict(
    findings: Findings, of: Comparison | Overall, task: str, word: str, *, decided: bool
) -> dict[str, Any]:
    return {
        "task": task,
        "arm": of.b,
        "against": of.a,
        "rounds": of.rounds,
        "starts": 1 if findings.volumes > 1 else of.starts,
        "volumes": findings.volumes,
        **verdict_facts(word, of),
        "decided": decided,
        "margin": findings.margin,
        "confidence": findings.confidence,
    }


def _changes(comparison: Comparison) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for of in comparison.percentiles:
        changes |= _estimate(f"p{of.percentile}_ratio", of.ratio)
        changes |= _estimate(f"p{of.percentile}_difference_s", of.difference_s)
    return changes


def _estimate(name: str, estimate: Estimate) -> dict[str, float | None]:
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def _service_times(session: Session, findings: Findings) -> _Keyed:
    for summary in findings.summaries:
        fields = {
            "task": summary.task,
            "rounds": summary.rounds,
            "requests": summary.requests,
            "failed": summary.failed,
        }
        for percentile in PERCENTILES:
            fields |= _estimate(f"p{percentile}_s", summary.percentile(percentile))
        yield f"{summary.task}:{summary.arm}", fields | _arm(by_type(session), summary.arm)


def _arm(session: Session, name: str) -> dict[str, Any]:
    """An arm by name with what it is: a document must not need a second one to be understood."""
    volume = next((arm for arm in session.arms if arm.spec.name == name), None)
    if volume is None:
        return {"arm": name}
    kind = {"volume-type": volume.spec.type, "volume-kind": volume.kind}
    return {"arm": name, **kind, "emulated": volume.kind is Kind.EMULATED}


def _baselines(session: Session, _: Findings) -> _Keyed:
    for row in baseline_of(session.baseline):
        yield f"{row.round}:{row.arm}:{row.job}:{row.op}", plain(row) | _arm(session, row.arm)


def _telemetry(session: Session, _: Findings) -> _Keyed:
    """One document for all that was read of an arm at one moment, values by the metric's name."""
    table = session.telemetry.select(["arm", "at_s", "metric", "value"])
    names = {name: table[name].cast(pa.string()).to_pylist() for name in ("arm", "metric")}
    values: dict[tuple[str, float], dict[str, float]] = {}
    rows = zip(
        names["arm"], table["at_s"].to_pylist(), names["metric"], table["value"].to_pylist(), strict=True
    )
    for arm, at_s, metric, value in rows:
        values.setdefault((arm, at_s), {})[metric.replace(".", "_")] = value
    for (arm, at_s), read in values.items():
        whose = _arm(session, session.nodes.get(arm, arm))
        node = {} if whose["arm"] == arm else {"node": arm}
        yield f"{arm}:{at_s:.3f}", {"@timestamp": _millis(at_s), **whose, **node, "telemetry": read}


def _residency(session: Session, _: Findings) -> _Keyed:
    drops = [event for event in session.events if event.kind == "drop"]
    for number, event in enumerate(drops):
        fields = {key: event.fields.get(key) for key in ("task", "round", "attempts", "seconds", "refill_s")}
        resident = {
            "resident_before": event.fields.get("before"),
            "resident_after": event.fields.get("after"),
        }
        at = {"@timestamp": _millis(event.at_s)}
        yield f"{number}", at | fields | resident | _arm(session, event.arm or "")


RECORDS: Mapping[str, Callable[[Session, Findings], _Keyed]] = {
    "session": _sessions,
    "verdict": _verdicts,
    "service-time": _service_times,
    "baseline": _baselines,
    "residency": _residency,
    "telemetry": _telemetry,
}
