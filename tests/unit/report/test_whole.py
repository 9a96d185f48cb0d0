"""What a report has besides its tables of tasks: all tasks together, events, and where the raw data are."""

from pathlib import Path

import pytest
from golden_session import ARMS, START, make, record, samples, telemetry

from esrally_ebs import report
from esrally_ebs.model import Event, State, TelemetryPoint
from esrally_ebs.report.model import Report, Table
from esrally_ebs.store import SessionFolder, load_session


def built(path: Path) -> Report:
    return report.build(load_session(path))


def table(made: Report, key: str) -> Table:
    return next(table for table in made.tables if table.key == key)


@pytest.fixture
def without_fio(tmp_path: Path) -> Path:
    """Rounds, and telemetry whose reads took ten times as long before them."""
    path = make(tmp_path, samples())
    slow = TelemetryPoint(
        arm="gp2", device="loop0", at_s=START - 5, metric="device.read_await_s", value=4e-3, unit="s"
    )
    with SessionFolder(path).part_writer("telemetry") as writer:
        writer.add([slow, *telemetry()])
    SessionFolder(path).finish(State.COMPLETE, ended_at=START + 600)
    return path


def test_all_tasks_together_are_values_of_their_own_and_a_line_of_the_forest(tmp_path: Path) -> None:
    made = built(record(tmp_path))
    row = table(made, "service_time").rows[-1]
    assert (row.item, row.key) == ("all tasks together", "together_p50")
    *_, change, word = row.cells
    assert change.facts["ratio"] == pytest.approx((1.1 * 1.0 * 1.04) ** (1 / 3), rel=0.01)
    assert word.facts["verdict"] == "slower"
    assert made.verdict == (
        f"gp3 (emulated) is {word.text} than gp2 (emulated): {change.text} "
        "(50th percentile of 3 tasks, cold caches)."
    )
    last = made.figures.searches[0].changes[-1]
    assert (last.item, last.verdict) == ("all tasks together", "slower")
    assert last.value == pytest.approx(float(change.facts["ratio"] or 0) - 1)


def test_one_task_is_not_told_again_as_all_together(tmp_path: Path) -> None:
    made = built(make(tmp_path, [s for s in samples() if s.task == "range_field_big_range"]))
    assert not [row for row in table(made, "service_time").rows if row.key == "together_p50"]
    assert [change.item for change in made.figures.searches[0].changes] == ["range_field_big_range"]


def test_events_are_counted_by_arm_with_how_long_and_when_first(tmp_path: Path) -> None:
    path = make(tmp_path, samples())
    folder = SessionFolder(path)
    for at, seconds in ((60.0, 0.2), (120.0, 0.3), (180.0, 0.01)):  # the last is too short to be seen
        pause = {"text": "Pause Full", "seconds": seconds}
        folder.event(Event(at_s=START + at, kind="gc", arm="gp3", fields=pause))
    folder.event(Event(at_s=START + 30, kind="telemetry-dead", fields={"text": "no longer written"}))
    events = table(built(path), "events")
    assert [column.title for column in events.columns] == [*ARMS, "no arm of its own"]
    cells = {row.item: [cell.text for cell in row.cells] for row in events.rows}
    assert cells == {
        "telemetry: no longer written": ["-", "-", "once at 0.5 min"],
        "gc: Pause Full": ["-", "2 times, first at 1.0 min, 500 ms in all", "-"],
    }


def test_nothing_is_said_of_fio_where_fio_did_not_run(without_fio: Path) -> None:
    page = report.render_html(built(without_fio))
    main = page.split("<main")[1]
    assert "fio" not in main
    assert ">Differences</h2>" in main
    assert "cut off outside of the rounds: it reaches 4" in main


def test_the_page_links_to_what_the_folder_holds_and_to_nothing_else(
    tmp_path: Path, without_fio: Path
) -> None:
    assert built(without_fio).raw == ("session.json", "samples/", "telemetry/")
    assert 'href="baseline/"' not in report.render_html(built(without_fio))
    whole = built(record(tmp_path / "whole"))
    assert whole.raw == ("session.json", "events.jsonl", "samples/", "telemetry/", "baseline/")
    page = report.render_html(whole)
    assert all(f'href="{name}"' in page for name in whole.raw)


def test_what_a_start_of_nodes_takes_from_telemetry_is_no_event(tmp_path: Path) -> None:
    path = make(tmp_path, samples())
    folder = SessionFolder(path)
    for at in (40.0, 55.0, 70.0):  # before, during and after
        folder.event(Event(at_s=START + at, kind="telemetry-cut", arm="gp2", fields={"text": "no cgroup"}))
    stage = {"name": "start nodes, 2 of 3", "seconds": 10.0}
    folder.event(Event(at_s=START + 60, kind="stage", fields=stage))
    rows = {row.item: [cell.text for cell in row.cells] for row in table(built(path), "events").rows}
    assert rows["telemetry: no cgroup"][0].startswith("2 times")
