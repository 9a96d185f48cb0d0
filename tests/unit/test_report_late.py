"""Emulated volumes that took longer than their models: a marked round on one arm, a warning when on all."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import golden_session
import pytest

from esrally_ebs.causes import marked_blocks
from esrally_ebs.model import Event
from esrally_ebs.report import build
from esrally_ebs.report.model import Table
from esrally_ebs.store import SessionFolder, load_session

BIG = "range_field_big_range"
READS = 100
TARGET_S = 0.05  # of all reads of a request


def observed(event: Event, *, late: float, came: int = READS) -> Event:
    """The same request with reads that took so much longer than they were to, as a share."""
    begin = {"device.reads": 7.0, "device.read_s": 3.0, "device.writes": 0.0, "device.write_s": 0.0}
    begin |= {"emulator.reads": 9.0, "emulator.writes": 2.0}
    begin |= {"emulator.target_s.read": 4.0, "emulator.target_s.write": 0.1}
    grown = {"device.reads": READS, "device.read_s": TARGET_S * (1 + late)}
    grown |= {"emulator.reads": came, "emulator.target_s.read": TARGET_S}
    end = {name: value + grown.get(name, 0.0) for name, value in begin.items()}
    return replace(event, fields={**event.fields, "begin": begin, "end": end})


def session(home: Path, change: Callable[[Event], Event]) -> Path:
    path = golden_session.make(home, golden_session.samples())
    for event in golden_session.observed():
        SessionFolder(path).event(change(event))
    return path


def late_column(path: Path) -> list[str]:
    """Texts of the load table's column; none where it has no such column."""
    report = build(load_session(path))
    table: Table = next(table for table in report.tables if table.key == "load")
    titles = [column.title for column in table.columns]
    if "later than its model" not in titles:
        return []
    return [row.cells[titles.index("later than its model")].text for row in table.rows]


def warnings(path: Path) -> list[str]:
    return [warning for warning in build(load_session(path)).warnings if "than their models" in warning]


def test_volumes_that_keep_their_times_are_told_without_a_warning(tmp_path: Path) -> None:
    path = session(tmp_path, lambda event: observed(event, late=0.11))

    assert late_column(path) == ["+11%", "+11%"]
    assert warnings(path) == []


def test_volumes_that_are_late_on_all_arms_mark_no_round_and_are_warned_of(tmp_path: Path) -> None:
    path = session(tmp_path, lambda event: observed(event, late=0.5 if event.arm == "gp2" else 0.4))

    marked = marked_blocks(load_session(path))
    assert not any(cause.kind == "late" for own in marked.values() for cause in own)
    (warning,) = warnings(path)
    assert warning.startswith("emulated volumes took longer than their models (50% on gp2, 40% on gp3): ")


def test_only_the_arms_that_were_late_are_named_in_the_warning(tmp_path: Path) -> None:
    path = session(tmp_path, lambda event: observed(event, late=0.5 if event.arm == "gp2" else -0.02))

    (warning,) = warnings(path)
    assert warning.startswith("emulated volumes took longer than their models (50% on gp2): ")


def test_a_round_in_which_one_arm_was_late_is_marked(tmp_path: Path) -> None:
    def in_one(event: Event) -> Event:
        is_it = (event.arm, event.fields["task"], event.fields["round"]) == ("gp2", BIG, 2)
        return observed(event, late=0.6 if is_it else 0.02)

    path = session(tmp_path, in_one)

    marked = marked_blocks(load_session(path))
    (cause,) = [cause for cause in marked["gp2", BIG, 2] if cause.kind == "late"]
    assert cause.share == pytest.approx(0.6)
    assert cause.text == "its emulated volume took 60% longer than its model"
    assert [key for key, own in marked.items() if any(c.kind == "late" for c in own)] == [("gp2", BIG, 2)]


def test_times_of_other_io_than_the_kernel_s_are_not_compared(tmp_path: Path) -> None:
    """A striped arm's parts count pieces of what the kernel asked of the whole."""
    path = session(tmp_path, lambda event: observed(event, late=2.0, came=2 * READS))

    assert late_column(path) == []
    assert warnings(path) == []
    assert not any(c.kind == "late" for own in marked_blocks(load_session(path)).values() for c in own)


def test_a_volume_that_was_not_asked_is_not_late(tmp_path: Path) -> None:
    def idle(event: Event) -> Event:
        asked = observed(event, late=0.0)
        return replace(asked, fields={**asked.fields, "end": asked.fields["begin"]})

    assert late_column(session(tmp_path, idle)) == []
