"""JUnit XML of a gate: what CI servers read, and what their schemas demand."""

import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from session_in_memory import session
from small_plan import small_plan

from esrally_ebs.analysis.gate import GateLimit
from esrally_ebs.cli import main
from esrally_ebs.errors import MeasurementError
from esrally_ebs.model import State
from esrally_ebs.report.gate import judge_session, render_gate, render_junit, render_junit_refused
from esrally_ebs.store import SessionFolder

P50 = GateLimit(percentile=50, slowdown=0.05)

# What JUnit.xsd (Windy Road, the schema of Ant's reports) demands of each element that we write.
REQUIRED = {
    "testsuites": set(),
    "testsuite": {"name", "package", "id", "timestamp", "hostname", "tests", "failures", "errors", "time"},
    "properties": set(),
    "property": {"name", "value"},
    "testcase": {"name", "classname", "time"},
    "failure": {"type", "message"},
    "error": {"type", "message"},
    "system-out": set(),
    "system-err": set(),
}
TOKENS = {"testsuite": ("name", "package", "hostname"), "testcase": ("name", "classname")}


def check_schema(text: str) -> ElementTree.Element:
    """The suite of a document that keeps to the schema: attributes, their types, order of elements."""
    root = ElementTree.fromstring(text)
    assert root.tag == "testsuites"
    (suite,) = root
    for element in root.iter():
        assert set(element.keys()) == REQUIRED[element.tag]
        for name in TOKENS.get(element.tag, ()):
            value = str(element.get(name))
            assert value == " ".join(value.split()) != ""
    order = [element.tag for element in suite]
    cases = order.count("testcase")
    assert order == ["properties", *["testcase"] * cases, "system-out", "system-err"]
    assert all(len(case) <= 1 for case in suite.iter("testcase"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", str(suite.get("timestamp")))
    assert Decimal(str(suite.get("time"))) >= 0
    assert int(str(suite.get("tests"))) == cases
    for kind in ("failure", "error"):
        assert int(str(suite.get(f"{kind}s"))) == len(list(suite.iter(kind)))
    return suite


def test_junit_counts_what_failed_and_what_was_not_decided() -> None:
    recorded = session(1.2)
    judged = judge_session(recorded, [P50, GateLimit(percentile=99, slowdown=0.1)])
    suite = check_schema(render_junit(recorded, judged))
    assert [suite.get(key) for key in ("tests", "failures", "errors")] == ["2", "1", "1"]
    properties = {each.get("name"): each.get("value") for each in suite.iter("property")}
    assert properties["emulated"] == "true"
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert "limit +5 %" in str(failure.get("message"))
    error = suite.find("testcase/error")
    assert error is not None
    assert error.get("type") == "inconclusive"


def test_two_limits_of_one_percentile_are_two_cases_and_the_same_one_twice_is_one() -> None:
    recorded = session(1.2)
    judged = judge_session(recorded, [P50, GateLimit(percentile=50, slowdown=0.3), P50])
    suite = check_schema(render_junit(recorded, judged))
    assert [case.get("name") for case in suite.iter("testcase")] == ["p50 t +5 %", "p50 t +30 %"]
    assert "1 of 2 limits is broken" in render_gate(recorded, judged)


def test_junit_of_a_refused_session_holds_why() -> None:
    text = render_junit_refused(session(), MeasurementError('hits differ: <3> & "4"'))
    error = check_schema(text).find("testcase/error")
    assert error is not None
    assert error.get("message") == 'hits differ: <3> & "4"'


def test_a_gate_that_passes_says_so_and_has_no_failure() -> None:
    recorded = session(1.0)
    suite = check_schema(render_junit(recorded, judge_session(recorded, [P50])))
    assert [suite.get(key) for key in ("failures", "errors")] == ["0", "0"]
    assert str(suite.findtext("system-out")).startswith("gate passed: b (emulated) against a (emulated)")


SLOWER = session(1.2)
JUDGED = judge_session(SLOWER, [P50])  # no name is judged


@given(st.text())
def test_whatever_a_session_is_called_the_document_keeps_to_the_schema(name: str) -> None:
    recorded = replace(SLOWER, id=name, environment={"host": name})
    check_schema(render_junit(recorded, JUDGED))
    check_schema(render_junit_refused(recorded, MeasurementError(name)))


def test_the_time_of_the_suite_is_that_of_the_session() -> None:
    suite = check_schema(render_junit_refused(session(started_at=90061.0, ended_at=90361.5), ERROR))
    assert (suite.get("timestamp"), suite.get("time")) == ("1970-01-02T01:01:01", "300.500")


ERROR = MeasurementError("hits differ")


def test_a_session_that_cannot_be_read_still_gives_ci_a_document(home: Path) -> None:
    folder = SessionFolder.create(home, "s", kind="race", plan=small_plan())
    folder.finish(State.COMPLETE)
    (folder.path / "session.json").write_text("{")
    junit = home / "gate.xml"
    assert main(["gate", "s", "--max-slowdown", "p50=5%", "--junit", str(junit)]) == 4
    error = check_schema(junit.read_text()).find("testcase/error")
    assert error is not None
    assert "not readable as JSON" in str(error.get("message"))


def test_a_document_that_cannot_be_written_is_one_line(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    SessionFolder.create(home, "s", kind="race", plan=small_plan()).finish(State.FAILED, "no disk")
    assert main(["gate", "s", "--max-slowdown", "p50=5%", "--junit", str(home / "no" / "gate.xml")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "gate.xml: there is no folder" in error
