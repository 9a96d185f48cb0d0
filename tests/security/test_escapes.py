"""What a session of somebody else's says is shown, in every format, and obeyed by none that shows it."""

import csv
import html
import io
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import golden_session
import pyarrow as pa
import pytest
import session_in_memory
from small_plan import small_plan

from esrally_ebs import report
from esrally_ebs.analysis.gate import GateLimit
from esrally_ebs.cli import main
from esrally_ebs.model import Check, Event
from esrally_ebs.plan import Plan
from esrally_ebs.report.gate import judge_session, render_gate, render_junit
from esrally_ebs.store.session import Session

PAYLOADS = (
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x1b]52;c;cm0gLXJmIC8=\x07",
    "\x1b[2J\x1b[H",
    "\x9b31mC1",
    "\x07\x08\x0b\x0c\x7f",
    "a\x00b",
    "over\rwritten",
    "two\nlines",
    "\u202eright to left\u2066",
    "\u200fmarks\u061c\u200e",
    "\ud800 alone",
    "\ufffe\uffff",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "]]></system-out><evil/>",
    "&lt;b&gt;&amp;",
    "[click](https://evil.example)",
    "![seen](https://evil.example/x.png)",
    "a | b | c \\| d",
    "`code` **bold** ~~gone~~",
    "# heading",
    "__strong__ of _name_",
    '=HYPERLINK("https://evil.example")',
    "@SUM(1+1)*cmd|'/C calc'!A0",
    "\uff1dHYPERLINK(1)",
)
Place = Callable[[Session, str], Session]


def stored(text: str) -> str:
    """As a Parquet file can hold it: without half characters."""
    return text.encode(errors="replace").decode()


def arm(session: Session, text: str) -> Session:
    text = stored(text)
    first, second = session.arms
    samples = session.samples.to_pylist()
    rows = [{**row, "arm": text if row["arm"] == "a" else row["arm"]} for row in samples]
    arms = (replace(first, spec=replace(first.spec, name=text)), second)
    return replace(session, arms=arms, samples=pa.Table.from_pylist(rows, schema=session.samples.schema))


def task(session: Session, text: str) -> Session:
    rows = [{**row, "task": stored(text)} for row in session.samples.to_pylist()]
    return replace(session, samples=pa.Table.from_pylist(rows, schema=session.samples.schema))


def of_arm(**changes: Callable[[str], Any]) -> Place:
    def place(session: Session, text: str) -> Session:
        new = {key: value(text) for key, value in changes.items()}
        return replace(session, arms=tuple(replace(one, **new) for one in session.arms))

    return place


def of_session(**changes: Callable[[str], Any]) -> Place:
    return lambda session, text: replace(session, **{key: value(text) for key, value in changes.items()})


def type_(session: Session, text: str) -> Session:
    return replace(
        session, arms=tuple(replace(one, spec=replace(one.spec, type=text)) for one in session.arms)
    )


def _in_region(text: str) -> Plan:
    plan = small_plan(race={}, cost={"region": "us-east-1"})
    assert plan.cost is not None
    return plan.model_copy(update={"cost": plan.cost.model_copy(update={"region": text})})


PLACES: Mapping[str, Place] = {
    "arm": arm,
    "task": task,
    "type": type_,
    "plan": of_session(plan=lambda text: small_plan(race={}).model_copy(update={"name": text})),
    "reason": of_session(reason=str),
    "check": of_session(checks=lambda text: (Check(name=text, ok=False, value=text, text=text),)),
    "warning": of_session(warnings=lambda text: (text,)),
    "environment": of_session(environment=lambda text: dict.fromkeys(("kernel", "host", "cpu"), text)),
    "id": of_session(id=str),
    "fault": of_session(events=lambda text: (Event(at_s=0.5, kind="fault", arm="a", fields={"text": text}),)),
    "region": of_session(plan=lambda text: _in_region(text)),
    "device": of_arm(device=str, filesystem=str),
    "mount": of_arm(mount=Path),
}
CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
@pytest.mark.parametrize("places", [("arm",), ("task",), tuple(PLACES)[2:]], ids=lambda places: places[0])
def test_no_format_obeys_what_stands_in_a_session(places: tuple[str, ...], payload: str) -> None:
    session = session_in_memory.session(1.2)
    for place in places:
        session = PLACES[place](session, payload)
    built = report.build(session)
    for form, render in report.RENDERERS.items():
        text = render(built)
        assert not CONTROLS.search(text), (form, payload)
        CHECKS[form](text)
    coloured = report.render_text(built, colour=True)
    assert not CONTROLS.search(re.sub(r"\x1b\[[\d;]*m", "", coloured).replace("\u202e", "!")), payload
    assert "\x1b[31mred" not in coloured
    judged = judge_session(replace(session, checks=()), [GateLimit(percentile=50, slowdown=0.05)])
    lines = render_gate(session, judged)
    assert not CONTROLS.search(lines)
    assert len(lines.splitlines()) == 2 + ("fault" in places)  # which is said below the limits
    ElementTree.fromstring(render_junit(session, judged))  # which refuses what is no XML


def is_plain(text: str) -> None:
    """A reader of lines sees none that a text had made."""
    assert "lines" not in (line.strip() for line in text.splitlines())


def is_markdown_of_ours(text: str) -> None:
    columns = 0  # of the table that a line belongs to
    for line in text.splitlines():
        bare = re.sub(r"\\.", "", line)
        assert not re.search(r"<[a-z/!]|\]\(|`|~~|\*\*bold|\b_|_\b", bare), line
        assert not re.search(r"&(?!lt;)\w+;", bare), line
        assert not re.match(r"#+ heading", line)
        cells = bare.count("|")
        assert not columns or cells in (0, columns), line
        columns = cells


def is_csv_of_ours(text: str) -> None:
    rows = list(csv.reader(io.StringIO(text)))
    assert {len(row) for row in rows} == {6}
    assert not [cell for row in rows for cell in row if re.match(r"\s*[=@\uff1d]|[+-].*[A-Za-z(]", cell)]


def is_json(text: str) -> None:
    assert json.loads(text)["verdict"]


def is_page_of_ours(text: str) -> None:
    body = text.split("</style>")[1]
    tags = set(re.findall(r"<([a-z!?][a-z0-9-]*)", body, re.IGNORECASE))
    assert not tags & {"script", "img", "iframe", "evil", "b"}
    for attributes in re.findall(r"<[a-z][^>]*>", body):
        bare = html.unescape(re.sub(r'"[^"]*"', "", attributes))
        assert not re.search(r"\son[a-z]+\s*=|javascript:", bare), attributes


CHECKS: Mapping[str, Callable[[str], None]] = {
    "text": is_plain,
    "markdown": is_markdown_of_ours,
    "csv": is_csv_of_ours,
    "json": is_json,
    "html": is_page_of_ours,
}


def test_no_command_hands_an_escape_to_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ESRALLY_EBS_HOME", str(tmp_path))
    path = golden_session.record(tmp_path)
    record = json.loads((path / "session.json").read_text())
    evil = "\x1b]0;title\x07\nforged: line"
    record |= {"reason": evil, "id": "golden" + evil, "warnings": [evil]}
    record["checks"] = [{"name": evil, "ok": False, "value": evil, "text": evil, "severity": "error"}]
    del record["crc32"]
    (path / "session.json").write_text(json.dumps(record))
    (path.parent / f"x{evil.replace('/', '')}").mkdir()
    commands = (
        ["sessions"],
        ["sessions", "--ids"],
        ["report", "golden"],
        ["gate", "golden", "--max-slowdown", "p50=5%"],
    )
    for command in (
        *commands,
        ["report", evil],
        ["gate", "golden", "--max-slowdown", evil],
        ["run", "p", "--set", evil],
    ):
        main(command)
        printed = capsys.readouterr()
        assert "\x1b" not in printed.out + printed.err
        assert "\nforged" not in printed.out + printed.err
        assert printed.err.count("\n") <= 1
