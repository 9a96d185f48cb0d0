"""A gate's decisions as JUnit XML, by the schema of Ant's reports, the strictest in use."""

import re
from datetime import UTC, datetime
from xml.etree import ElementTree

from esrally_ebs.errors import MeasurementError
from esrally_ebs.report.gate import found_text, reason, render_gate
from esrally_ebs.stats.gate import Gate, Outcome
from esrally_ebs.store.session import Session

# XML 1.0 has no place for these, escaped or not
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(session: Session, gate: Gate) -> str:
    """One test case per task and limit: a broken limit is a failure, an undecided one an error."""
    suite = _suite(session, tests=len(gate.decisions))
    counts = {outcome: [d.outcome for d in gate.decisions].count(outcome) for outcome in Outcome}
    suite.set("failures", str(counts[Outcome.FAIL]))
    suite.set("errors", str(counts[Outcome.INCONCLUSIVE]))
    _property(suite, "reason", reason(session, gate))
    for decision in gate.decisions:
        name = f"p{decision.limit.percentile} {decision.task}"
        case = _case(suite, f"{gate.b} against {gate.a}", name)
        if decision.outcome is Outcome.FAIL:
            _told(case, "failure", "slower", found_text(decision))
        elif decision.outcome is Outcome.INCONCLUSIVE:
            _told(case, "error", "inconclusive", f"{found_text(decision)}: {decision.why}")
    return _xml(suite, out=render_gate(session, gate))


def render_junit_refused(session: Session | None, error: MeasurementError) -> str:
    """One test case that holds why a session (None: one that cannot be read) could not be judged."""
    suite = _suite(session, tests=1)
    suite.set("failures", "0")
    suite.set("errors", "1")
    _told(_case(suite, "session", "comparable"), "error", "invalid", str(error))
    return _xml(suite, out="")


def _suite(session: Session | None, *, tests: int) -> ElementTree.Element:
    started = 0.0 if session is None else session.started_at
    ended = None if session is None else session.ended_at
    suite = ElementTree.Element(
        "testsuite",
        name="esrally-ebs gate",
        package="esrally-ebs",
        id="0",
        # the schema wants no time zone; it is UTC
        timestamp=datetime.fromtimestamp(started, UTC).strftime("%Y-%m-%dT%H:%M:%S"),
        hostname=_token(str(session.environment.get("host") or "")) if session else "localhost",
        time=f"{max(0.0, (ended or started) - started):.3f}",
        tests=str(tests),
    )
    ElementTree.SubElement(suite, "properties")
    if session is not None:
        _property(suite, "session", session.id)
        _property(suite, "plan", str(session.plan.get("name", "")))
        _property(suite, "emulated", str(session.emulated).lower())
    return suite


def _property(suite: ElementTree.Element, name: str, value: str) -> None:
    ElementTree.SubElement(suite[0], "property", name=name, value=_legal(value))


def _case(suite: ElementTree.Element, group: str, name: str) -> ElementTree.Element:
    # decisions are made together, from what is recorded: none takes time of its own
    names = {"classname": _token(f"esrally-ebs.{group}"), "name": _token(name), "time": "0"}
    return ElementTree.SubElement(suite, "testcase", names)


def _told(case: ElementTree.Element, kind: str, type_: str, message: str) -> None:
    ElementTree.SubElement(case, kind, type=type_, message=_legal(message))


def _legal(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)


def _token(text: str) -> str:
    """A name as the schema has it: legal, not empty, single spaces."""
    return " ".join(_legal(text).split()) or "localhost"


def _xml(suite: ElementTree.Element, *, out: str) -> str:
    for name, text in (("system-out", out), ("system-err", "")):
        ElementTree.SubElement(suite, name).text = _legal(text)
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(suites, encoding="unicode")}\n'
