"""A report for programs: tidy CSV and JSON, values in base units."""

import csv
import io
import json
import math
from typing import Any

from esrally_ebs.model import Check
from esrally_ebs.report.model import Report, Table, Value

_HEADER = ("table", "item", "subject", "metric", "value", "better")


def render_csv(report: Report) -> str:
    """One line per value; first what must be known of all of them: verdict, labels, checks and warnings."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_HEADER)
    writer.writerow(("session", report.session, "", "state", report.state.value, ""))
    writer.writerow(("session", report.session, "", "verdict", report.verdict, ""))
    writer.writerows(("session", report.session, "", "reason", reason, "") for reason in report.reasons)
    writer.writerows(("session", report.session, "", "label", label, "") for label in report.labels)
    for check in report.checks:
        writer.writerow(("check", check.name, "", "ok", str(check.ok).lower(), ""))
        writer.writerow(("check", check.name, "", "text", check.text, ""))
    writer.writerows(("session", report.session, "", "warning", warning, "") for warning in report.warnings)
    for table in report.tables:
        for row in table.rows:
            for column, cell in zip(table.columns, row.cells, strict=True):
                for metric, value in cell.facts.items():
                    better = "better" if cell.better else ""
                    writer.writerow((table.key, row.item, column.subject, metric, _text(value), better))
    return out.getvalue()


def _text(value: Value) -> str:
    return "" if value is None else f"{value:.9g}" if isinstance(value, float) else str(value)


def render_json(report: Report) -> str:
    """One object; ``tables.<key>.<item>.<subject>.<metric>`` leads to each value."""
    document = {
        "session": report.session,
        "kind": report.kind,
        "state": report.state.value,
        "reason": report.reason,
        "plan": report.plan,
        "started_at": report.started_at,
        "ended_at": report.ended_at,
        "verdict": report.verdict,
        "reasons": list(report.reasons),
        "labels": list(report.labels),
        "checks": [
            {"name": check.name, "ok": check.ok, "value": check.value, "text": check.text} | _outcome(check)
            for check in report.checks
        ],
        "warnings": list(report.warnings),
        "tables": {table.key: _items(table) for table in report.tables},
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _outcome(check: Check) -> dict[str, Any]:
    if check.ok:
        return {}
    return {"severity": check.severity.value, "mend": check.mend, "accepted": check.accepted}


def _items(table: Table) -> dict[str, Any]:
    items: dict[str, Any] = {}
    for row in table.rows:
        subjects: dict[str, dict[str, Value]] = {}
        for column, cell in zip(table.columns, row.cells, strict=True):
            facts = {metric: _rounded(value) for metric, value in cell.facts.items()}
            if cell.better:
                facts["better"] = True
            subjects.setdefault(column.subject, {}).update(facts)
        items[row.item] = {subject: facts for subject, facts in subjects.items() if facts}
    return items


def _rounded(value: Value) -> Value:
    if not isinstance(value, float):
        return value
    # Nine digits: more than any clock gives, and the same on every machine.
    return float(f"{value:.9g}") if math.isfinite(value) else None
