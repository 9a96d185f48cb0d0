"""A loaded session to documents for a search engine; pure. Field names are Rally's where Rally has the field.

One document per session, per verdict, per task and arm, per row of fio, per second and arm of telemetry, and
per drop of the caches. Each has its kind (``record``) and its session (``race-id``). Also a Kibana dashboard,
as saved objects (NDJSON) for Kibana 8 and later: each panel is a Vega-Lite drawing (``panels.json``) with its
own query, so the query can be sent to any Elasticsearch; verdicts are a table, which is a saved search.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from esrally_ebs.analysis.comparable import all_checks, whole_rounds
from esrally_ebs.analysis.compare import Comparison, Overall
from esrally_ebs.analysis.findings import Findings, find
from esrally_ebs.analysis.summary import PERCENTILES
from esrally_ebs.analysis.volumes import by_type
from esrally_ebs.model import Kind
from esrally_ebs.report import build
from esrally_ebs.report.cells import estimate_facts, verdict_facts
from esrally_ebs.report.search import TOGETHER
from esrally_ebs.store.encoding import baseline_of, plain
from esrally_ebs.store.session import Session

Fields = Mapping[str, Any]

_DATA_VIEW = "rally-ebs"
_VERDICTS = "rally-ebs-verdicts"
_COLUMNS = ("plan", "task", "arm", "against", "verdict", "p50_ratio", "p50_ratio_low", "p50_ratio_high")
_WIDTH, _HEIGHT = 24, 15  # of a panel, in Kibana's grid of 48 columns
_NO_QUERY = {"query": {"query": "", "language": "kuery"}, "filter": []}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Document:
    """One document and its id; the same session always gives the same ids."""

    id: str
    fields: Fields


def documents(session: Session, environment: str) -> Iterator[Document]:
    """All documents of a session; ``environment`` is Rally's ``env.name``."""
    common = _common(session, environment)
    findings = find(by_type(whole_rounds(session)), checks=all_checks(session))
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


def _verdicts(session: Session, findings: Findings) -> _Keyed:
    yield from _verdicts_of("", findings)
    compared = by_type(whole_rounds(session))
    if compared.plan.has_latency:
        yield from _verdicts_of("latency of ", find(compared, "latency", checks=all_checks(session)))


def _verdicts_of(what: str, findings: Findings) -> _Keyed:
    for comparison in findings.comparisons:
        task, word = f"{what}{comparison.task}", findings.word(comparison)
        fields = _verdict(findings, comparison, task, word, decided=comparison.p_different is not None)
        yield f"{task}:{comparison.b}:{comparison.a}", fields | _changes(comparison)
    for overall in findings.overall:
        task = f"{what}{TOGETHER}"
        fields = _verdict(findings, overall, task, overall.verdict.value, decided=True)
        yield f"{task}:{overall.b}:{overall.a}", fields | estimate_facts("p50_ratio", overall.ratio)


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
        changes |= estimate_facts(f"p{of.percentile}_ratio", of.ratio)
        changes |= estimate_facts(f"p{of.percentile}_difference_s", of.difference_s)
    return changes


def _service_times(session: Session, findings: Findings) -> _Keyed:
    for summary in findings.summaries:
        fields = {
            "task": summary.task,
            "rounds": summary.rounds,
            "requests": summary.requests,
            "failed": summary.failed,
        }
        for percentile in PERCENTILES:
            fields |= estimate_facts(f"p{percentile}_s", summary.percentile(percentile))
        yield f"{summary.task}:{summary.arm}", fields | _arm(by_type(session), summary.arm)


def _arm(session: Session, name: str) -> dict[str, Any]:
    """An arm's name and properties, so that each document can be understood alone."""
    volume = next((arm for arm in session.arms if arm.spec.name == name), None)
    if volume is None:
        return {"arm": name}
    kind = {"volume-type": volume.spec.type, "volume-kind": volume.kind}
    return {"arm": name, **kind, "emulated": volume.kind is Kind.EMULATED}


def _baselines(session: Session, _: Findings) -> _Keyed:
    for row in baseline_of(session.baseline):
        yield f"{row.round}:{row.arm}:{row.job}:{row.op}", plain(row) | _arm(session, row.arm)


def _telemetry(session: Session, _: Findings) -> _Keyed:
    """One document per arm and moment, with values by metric name.

    CloudWatch's values have a document per volume: volumes of a stripe have metrics of the same names.
    """
    table = session.telemetry
    names = [table[name].cast(pa.string()).to_pylist() for name in ("arm", "device", "metric")]
    values: dict[tuple[str, str, float], dict[str, float]] = {}
    rows = zip(*names, table["at_s"].to_pylist(), table["value"].to_pylist(), strict=True)
    for arm, device, metric, at_s, value in rows:
        of = device if metric.startswith("cloudwatch.") else ""
        values.setdefault((arm, of, at_s), {})[metric.replace(".", "_")] = value
    for (arm, of, at_s), read in values.items():
        whose = _arm(session, session.nodes.get(arm, arm))
        more = ({} if whose["arm"] == arm else {"node": arm}) | ({"device": of} if of else {})
        fields = {"@timestamp": _millis(at_s), **whose, **more, "telemetry": read}
        yield ":".join(filter(None, (arm, of, f"{at_s:.3f}"))), fields


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


def render_dashboard() -> str:
    """All saved objects, one JSON object per line; import them under Stack Management, Saved Objects."""
    return "".join(f"{json.dumps(saved, sort_keys=True)}\n" for saved in _objects())


def panels() -> dict[str, Json]:
    """Vega-Lite drawings by panel name, in the dashboard's order."""
    listed = json.loads(Path(__file__).with_name("panels.json").read_text())
    return {name: _panel(**panel) for name, panel in listed.items()}


def _panel(title: str, size: int, only: list[Json], **drawing: Any) -> Json:  # noqa: ANN401 - Vega-Lite's
    """A drawing of at most ``size`` documents: ``only`` those, within what the dashboard shows."""
    clauses = {kind: [f"%dashboard_context-{kind}_clause%"] for kind in ("must", "filter", "must_not")}
    shown: Json = {"range": {"@timestamp": {"%timefilter%": True}}}
    query = {**clauses, "must": [*clauses["must"], *only, shown]}
    body = {"size": size, "sort": [{"@timestamp": "asc"}], "query": {"bool": query}}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "autosize": {"type": "fit", "contains": "padding"},
        "title": title,
        "data": {"url": {"index": "rally-ebs-*", "body": body}, "format": {"property": "hits.hits"}},
        **drawing,
    }


def _objects() -> Iterator[Json]:
    fields = {"title": "rally-ebs-*", "name": "Volumes under Elasticsearch", "timeFieldName": "@timestamp"}
    yield _object("index-pattern", _DATA_VIEW, fields, ())
    yield _object("search", _VERDICTS, _verdicts_panel(), (_reference("index-pattern", _DATA_VIEW, _SOURCE),))
    drawn = panels()
    for name, spec in drawn.items():
        yield _object("visualization", f"rally-ebs-{name}", _drawing(spec), ())
    yield _dashboard(list(drawn))


_SOURCE = "kibanaSavedObjectMeta.searchSourceJSON.index"


def _verdicts_panel() -> Json:
    source = {
        "query": {"query": "record : verdict", "language": "kuery"},
        "filter": [],
        "indexRefName": _SOURCE,
    }
    return {
        "title": "Volumes: verdicts",
        "columns": list(_COLUMNS),
        "sort": [["@timestamp", "desc"]],
        "kibanaSavedObjectMeta": {"searchSourceJSON": json.dumps(source)},
    }


def _drawing(spec: Json) -> Json:
    title = f"Volumes: {spec['title']}"
    state = {"title": title, "type": "vega", "params": {"spec": json.dumps(spec, indent=2)}, "aggs": []}
    return {
        "title": title,
        "visState": json.dumps(state),
        "uiStateJSON": "{}",
        "kibanaSavedObjectMeta": {"searchSourceJSON": json.dumps(_NO_QUERY)},
    }


def _dashboard(names: list[str]) -> Json:
    shown = [("search", _VERDICTS), *(("visualization", f"rally-ebs-{name}") for name in names)]
    placed, references = [], []
    for place, (kind, id_) in enumerate(shown):
        wide = kind == "search"
        at = {"x": 0 if wide or place % 2 else _WIDTH, "y": (place + 1) // 2 * _HEIGHT}
        grid = {**at, "w": 2 * _WIDTH if wide else _WIDTH, "h": _HEIGHT, "i": str(place)}
        name = f"panel_{place}"
        placed.append(
            {"type": kind, "gridData": grid, "panelIndex": str(place), "embeddableConfig": {}}
            | {"panelRefName": name}
        )
        references.append(_reference(kind, id_, f"{place}:{name}"))
    fields = {
        "title": "Volumes under Elasticsearch",
        "description": "Sessions of esrally_ebs: verdicts, times over sessions, fio, coldness, devices",
        "panelsJSON": json.dumps(placed),
        "optionsJSON": json.dumps({"useMargins": True, "hidePanelTitles": False}),
        "timeRestore": True,
        "timeFrom": "now-90d",
        "timeTo": "now",
        "kibanaSavedObjectMeta": {"searchSourceJSON": json.dumps(_NO_QUERY)},
    }
    return _object("dashboard", "rally-ebs", fields, tuple(references))


def _object(kind: str, id_: str, attributes: Json, references: tuple[Json, ...]) -> Json:
    return {"type": kind, "id": id_, "attributes": attributes, "references": list(references)}


def _reference(kind: str, id_: str, name: str) -> Json:
    return {"type": kind, "id": id_, "name": name}
