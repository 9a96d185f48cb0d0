"""Processor time that the host kept: a marked round when it befell one arm, a warning when everywhere."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import golden_session
import pytest

from esrally_ebs.analysis.marks import marked_blocks
from esrally_ebs.model import Event
from esrally_ebs.report import build
from esrally_ebs.report.model import Report, Table
from esrally_ebs.store import SessionFolder, load_session

BIG = "range_field_big_range"


def with_steal(event: Event, stolen_s: float) -> Event:
    """The same request on processors that were busy for 0.1 s, and stolen for so long beside that."""
    begin = {**event.fields["begin"], "processor.busy_s": 50.0, "processor.stolen_s": 7.0}
    end = {**event.fields["end"], "processor.busy_s": 50.1, "processor.stolen_s": 7.0 + stolen_s}
    return replace(event, fields={**event.fields, "begin": begin, "end": end})


def session(home: Path, stolen_s: Callable[[Event], float]) -> Path:
    path = golden_session.make(home, golden_session.samples())
    for event in golden_session.observed():
        SessionFolder(path).event(with_steal(event, stolen_s(event)))
    return path


def load_table(report: Report) -> Table:
    return next(table for table in report.tables if table.key == "load")


def warnings(report: Report) -> list[str]:
    return [warning for warning in report.warnings if "steal" in warning]


def test_steal_in_one_block_marks_it_with_its_share(tmp_path: Path) -> None:
    def in_one(event: Event) -> float:
        is_it = (event.arm, event.fields["task"], event.fields["round"]) == ("gp2", BIG, 2)
        return 0.025 if is_it else 0.0

    marked = marked_blocks(load_session(session(tmp_path, in_one)))

    (cause,) = [cause for cause in marked["gp2", BIG, 2] if cause.kind == "stolen"]
    assert cause.share == pytest.approx(0.2)
    assert cause.text == "the host kept 20% of the processor time from this machine"
    assert not any(cause.kind == "stolen" for key, own in marked.items() if key[2] != 2 for cause in own)


def test_steal_everywhere_marks_no_round_but_is_warned_of(tmp_path: Path) -> None:
    loaded = load_session(session(tmp_path, lambda event: 0.1))

    report = build(loaded)

    assert not any(cause.kind == "stolen" for own in marked_blocks(loaded).values() for cause in own)
    (warning,) = warnings(report)
    assert warning.startswith("the host kept 50% of the processor time that this machine asked for (steal)")
    column = [column.title for column in load_table(report).columns].index("processors stolen")
    assert [row.cells[column].text for row in load_table(report).rows] == ["50.0%", "50.0%"]


def test_a_machine_that_kept_its_processors_says_so_without_a_warning(tmp_path: Path) -> None:
    report = build(load_session(session(tmp_path, lambda event: 0.001)))

    assert warnings(report) == []
    assert load_table(report).rows[0].cells[-1].text == "1.0%"


def test_a_session_that_did_not_record_it_has_no_such_column(tmp_path: Path) -> None:
    path = golden_session.make(tmp_path, golden_session.samples())
    for event in golden_session.observed():
        SessionFolder(path).event(event)

    report = build(load_session(path))

    assert "processors stolen" not in [column.title for column in load_table(report).columns]
    assert warnings(report) == []
