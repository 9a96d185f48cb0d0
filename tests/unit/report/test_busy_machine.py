"""What a busy machine, or its host, does to times: a marked round on one arm, else a failed check, a warning.

Emulated volumes that took longer than their models, and processor time that the host kept.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import golden_session
import pytest

from esrally_ebs.analysis.comparable import all_checks
from esrally_ebs.analysis.gate import parse_limit
from esrally_ebs.analysis.marks import marked_blocks
from esrally_ebs.cli import main
from esrally_ebs.model import Check, Event, State
from esrally_ebs.report import RENDERERS, build
from esrally_ebs.report.gate import judge_session, render_gate, render_junit
from esrally_ebs.report.model import Table
from esrally_ebs.store import SessionFolder, load_session

BIG = "range_field_big_range"
LATE, STOLEN = "later than its model", "processors stolen"  # columns
READS = 100
TARGET_S = 0.05  # of all reads of a request
JOB_S = 0.5  # of all reads of a job, which does nothing else


def observed(event: Event, *, late: float, came: int = READS, target_s: float = TARGET_S) -> Event:
    """The same request with reads that took so much longer than they were to, as a share."""
    begin = {"device.reads": 7.0, "device.read_s": 3.0, "device.writes": 0.0, "device.write_s": 0.0}
    begin |= {"emulator.reads": 9.0, "emulator.writes": 2.0}
    begin |= {"emulator.target_s.read": 4.0, "emulator.target_s.write": 0.1}
    grown = {"device.reads": READS, "device.read_s": target_s * (1 + late)}
    grown |= {"emulator.reads": came, "emulator.target_s.read": target_s}
    end = {name: value + grown.get(name, 0.0) for name, value in begin.items()}
    return replace(event, fields={**event.fields, "begin": begin, "end": end})


def session(home: Path, change: Callable[[Event], Event], **plan: object) -> Path:
    path = golden_session.make(home, golden_session.samples(), **plan)
    for event in golden_session.observed():
        SessionFolder(path).event(change(event))
    return path


def column_of(title: str, path: Path) -> list[str]:
    """Texts of a column of the load table; none where it has no such column."""
    report = build(load_session(path))
    table: Table = next(table for table in report.tables if table.key == "load")
    titles = [column.title for column in table.columns]
    return [row.cells[titles.index(title)].text for row in table.rows] if title in titles else []


def lateness(path: Path) -> list[Check]:
    return [check for check in all_checks(load_session(path)) if check.name == "lateness"]


def is_in_one(event: Event) -> bool:
    return (event.arm, event.fields["task"], event.fields["round"]) == ("gp2", BIG, 2)


@pytest.mark.parametrize(
    ("gp2", "gp3", "target_s", "mark", "text"),
    [
        (0.11, 0.11, TARGET_S, "ok", "emulated volumes kept the times of their models (15% longer allowed)"),
        (0.5, 0.4, TARGET_S, "FAILED", "took longer than their models (50% on gp2, 40% on gp3; 15% allowed)"),
        (0.151, -0.02, TARGET_S, "FAILED", "took longer than their models (15.1% on gp2; 15% allowed)"),
        (0.5, -0.02, TARGET_S, "FAILED", "took longer than their models (50% on gp2; 15% allowed)"),
        (4.0, 4.0, 20e-6, "ok", "emulated volumes were late by less than 1% of the requests' time"),
    ],
)
def test_how_late_volumes_are_on_all_arms_is_a_check_and_marks_no_round(
    tmp_path: Path, gp2: float, gp3: float, target_s: float, mark: str, text: str
) -> None:
    late = {"gp2": gp2, "gp3": gp3}
    path = session(tmp_path, lambda event: observed(event, late=late[str(event.arm)], target_s=target_s))

    assert column_of(LATE, path) == [f"{share:+.0%}" for share in late.values()]
    if gp3 > 0:
        marked = marked_blocks(load_session(path))
        assert not any(cause.kind == "late" for own in marked.values() for cause in own)
    (check,) = lateness(path)
    assert (check.mark, check.value) == (mark, f"gp2 {gp2:+.0%}, gp3 {gp3:+.0%}")
    assert text in check.text


def late(event: Event) -> Event:
    return observed(event, late=0.18 if event.arm == "gp2" else 0.23)


def test_volumes_are_late_though_a_request_of_each_block_could_not_be_observed_whole(tmp_path: Path) -> None:
    blocks = set[tuple[object, ...]]()

    def unanswered(event: Event) -> Event:
        made = late(event)
        block = (event.arm, event.fields["task"], event.fields["round"])
        if block not in blocks:
            blocks.add(block)
            end = {name: value for name, value in made.fields["end"].items() if "emulator" not in name}
            made = replace(made, fields={**made.fields, "end": end})
        return made

    (check,) = lateness(session(tmp_path, unanswered))
    assert (check.mark, check.value) == ("FAILED", "gp2 +18%, gp3 +23%")


def beside_writes(home: Path, *, waited_s: float, flushes: int = 0, per_io_s: float = 0.01) -> Path:
    """Blocks of ten requests, each in the last tenth of a second in which writes go on beside it.

    A read takes half as long again as it was to; of two I/Os one begins before a request and ends in it.
    """
    path = golden_session.make(home, golden_session.samples())
    folder = SessionFolder(path)
    blocks: dict[tuple[str | None, str, int], float] = {}
    for event in golden_session.observed():
        key = event.arm, event.fields["task"], event.fields["round"]
        blocks.setdefault(key, event.fields["started_s"])
    for (arm, task, round_), begins_s in blocks.items():
        folder.event(Event(at_s=golden_session.START, kind="brought-back", arm=arm, fields={"task": task}))
        for number in range(10):
            ios, wanted_s = 1000.0 * number, 1000.0 * number * per_io_s
            begin = {"device.reads": ios, "device.writes": ios, "device.write_s": 3 * wanted_s}
            begin |= {"device.read_s": 1.5 * wanted_s, "emulator.reads": ios, "emulator.writes": ios}
            begin |= {"emulator.target_s.read": wanted_s, "emulator.target_s.write": wanted_s}
            begin |= {"emulator.waited_s.throughput": waited_s * number}
            end = {**begin, "device.reads": ios + 10, "device.read_s": 1.5 * wanted_s + 900 * per_io_s}
            end |= {"device.writes": ios + 10 + flushes, "emulator.reads": ios + 10}
            end |= {"emulator.writes": ios + 10, "emulator.target_s.read": wanted_s + 10 * per_io_s}
            at_s = begins_s + 0.1 + number
            fields = {"task": task, "round": round_, "requests": 1, "started_s": at_s - 0.1}
            folder.event(Event(at_s=at_s, kind="io", arm=arm, fields={**fields, "begin": begin, "end": end}))
    return path


@pytest.mark.parametrize(
    ("waited_s", "marks"),
    [(0.0, ["FAILED"]), (9.0, ["FAILED"]), (11.0, [])],
    ids=["by nothing", "less than half", "most of the time"],
)
def test_volumes_beside_writes_are_late_where_no_limit_decides_how_long_these_take(
    tmp_path: Path, waited_s: float, marks: list[str]
) -> None:
    path = beside_writes(tmp_path, waited_s=waited_s)
    assert [check.mark for check in lateness(path)] == marks
    assert column_of(LATE, path) == (["+130%", "+130%"] if marks else [])  # as the check counts it


@pytest.mark.parametrize(("per_io_s", "mark"), [(1e-6, "FAILED"), (1e-8, "ok")])
def test_beside_writes_it_is_of_the_requests_time_what_volumes_were_late(
    tmp_path: Path, per_io_s: float, mark: str
) -> None:
    # of the blocks' time, most of which no request has, either is less than 1 %
    (check,) = lateness(beside_writes(tmp_path, waited_s=0.0, per_io_s=per_io_s))
    assert check.mark == mark


def test_beside_writes_counters_go_from_the_first_request_of_a_block_to_its_last(tmp_path: Path) -> None:
    # around single requests reads took ninety times as long; to the kernel, flushes are writes
    (check,) = lateness(beside_writes(tmp_path, waited_s=0.0, flushes=500))
    assert check.value == "gp2 +60%, gp3 +60%"


@pytest.mark.parametrize("form", RENDERERS)
def test_every_format_says_that_late_volumes_forbid_to_compare(tmp_path: Path, form: str) -> None:
    text = RENDERERS[form](build(load_session(session(tmp_path, late))))

    assert "Not comparable: emulated volumes took longer than their models (18% on gp2, 23% on gp3;" in text
    if form == "html":
        assert "7 of 8 checks ok" in text


def test_a_gate_answers_4_for_late_volumes_and_junit_says_why(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    SessionFolder(session(home, late)).finish(State.COMPLETE, ended_at=golden_session.START + 600)

    junit = home / "gate.xml"
    assert main(["gate", "golden", "--max-slowdown", "p50=50%", "--junit", str(junit)]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert "18% on gp2, 23% on gp3" in line
    assert 'errors="1"' in junit.read_text()
    assert "18% on gp2, 23% on gp3" in junit.read_text()


def test_late_volumes_that_the_plan_accepts_are_compared_and_marked_so(tmp_path: Path) -> None:
    path = session(tmp_path, late, accept=("lateness",))

    (check,) = lateness(path)
    assert check.mark == "accepted"
    assert not build(load_session(path)).verdict.startswith("Not comparable")
    SessionFolder(path).finish(State.COMPLETE, ended_at=golden_session.START + 600)
    session_ = load_session(path)
    judged = judge_session(session_, [parse_limit("p50=50%")])
    assert "accepted: emulated volumes took longer than their models (18% on gp2, 23% on gp3;" in render_gate(
        session_, judged
    )
    assert "accepted: emulated volumes" in render_junit(session_, judged)


def test_a_round_in_which_one_arm_was_late_is_marked(tmp_path: Path) -> None:
    path = session(tmp_path, lambda event: observed(event, late=0.6 if is_in_one(event) else 0.02))

    marked = marked_blocks(load_session(path))
    (cause,) = [cause for cause in marked["gp2", BIG, 2] if cause.kind == "late"]
    assert cause.share == pytest.approx(0.6)
    assert cause.text == "its emulated volume took 60% longer than its model"
    assert [key for key, own in marked.items() if any(c.kind == "late" for c in own)] == [("gp2", BIG, 2)]


def test_times_of_other_io_than_the_kernel_s_are_not_compared(tmp_path: Path) -> None:
    """A striped arm's parts count pieces of what the kernel asked of the whole."""
    path = session(tmp_path, lambda event: observed(event, late=2.0, came=2 * READS))

    assert column_of(LATE, path) == []
    assert lateness(path) == []
    assert not any(c.kind == "late" for own in marked_blocks(load_session(path)).values() for c in own)


def test_a_volume_that_was_not_asked_is_not_late(tmp_path: Path) -> None:
    def idle(event: Event) -> Event:
        busy = observed(event, late=0.0)
        return replace(busy, fields={**busy.fields, "end": busy.fields["begin"]})

    assert column_of(LATE, session(tmp_path, idle)) == []


def fio_alone(home: Path, lateness_: dict[str, float], *, waited_s: float = 0.0) -> Path:
    """A complete session of one job, in six passes; both arms are alike but for how late they were."""
    path = golden_session.make(home, [], race=None)
    folder = SessionFolder(path)
    for name, share in lateness_.items():
        fields = {"task": "seq-rw-16k-x2", "round": 0, "requests": 1, "started_s": golden_session.START}
        event = Event(at_s=golden_session.START + 1, kind="fio", arm=name, fields=fields)
        event = observed(event, late=share, target_s=JOB_S)
        event.fields["begin"]["emulator.waited_s.iops"] = 0.0
        event.fields["end"]["emulator.waited_s.iops"] = waited_s
        folder.event(event)
        folder.rows_baseline([golden_session.fio(name, pass_, "read", 1000.0 + pass_) for pass_ in range(6)])
    folder.finish(State.COMPLETE, ended_at=golden_session.START + 600)
    return path


def test_fio_jobs_on_late_volumes_are_not_comparable_either(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = fio_alone(home, {"gp2": 0.18, "gp3": 0.05})

    assert build(load_session(path)).verdict.startswith("Not comparable: emulated volumes took longer")
    junit = home / "gate.xml"
    assert main(["gate", "golden", "--max-slowdown", "p50=50%", "--junit", str(junit)]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert "(18% on gp2; 15% allowed)" in line
    assert 'errors="1"' in junit.read_text()


def test_fio_jobs_on_volumes_that_were_in_time_are_gated(home: Path) -> None:
    path = fio_alone(home, {"gp2": 0.02, "gp3": 0.05})

    assert [check.mark for check in lateness(path)] == ["ok"]
    assert main(["gate", "golden", "--max-slowdown", "p50=50%"]) == 0


def test_where_there_are_requests_the_fio_jobs_beside_them_do_not_count(tmp_path: Path) -> None:
    path = session(tmp_path, lambda event: observed(event, late=0.05))
    for event in golden_session.observed():
        SessionFolder(path).event(replace(observed(event, late=0.5), kind="fio"))

    assert [check.mark for check in lateness(path)] == ["ok"]


def test_jobs_that_a_limit_held_back_do_not_tell_how_late_volumes_were(tmp_path: Path) -> None:
    """A limit decides what they take: 16 in flight at 3,000 a second take 5.3 ms, wherever they wait."""
    path = fio_alone(tmp_path, {"gp2": 0.3, "gp3": 0.3}, waited_s=0.8 * JOB_S)

    assert lateness(path) == []


def with_steal(event: Event, stolen_s: float) -> Event:
    """The same request on processors that were busy for 0.1 s, and stolen for so long beside that."""
    begin = {**event.fields["begin"], "processor.busy_s": 50.0, "processor.stolen_s": 7.0}
    end = {**event.fields["end"], "processor.busy_s": 50.1, "processor.stolen_s": 7.0 + stolen_s}
    return replace(event, fields={**event.fields, "begin": begin, "end": end})


def steal_warnings(path: Path) -> list[str]:
    return [warning for warning in build(load_session(path)).warnings if "steal" in warning]


def test_steal_in_one_block_marks_it_with_its_share(tmp_path: Path) -> None:
    path = session(tmp_path, lambda event: with_steal(event, 0.025 if is_in_one(event) else 0.0))

    marked = marked_blocks(load_session(path))
    (cause,) = [cause for cause in marked["gp2", BIG, 2] if cause.kind == "stolen"]
    assert cause.share == pytest.approx(0.2)
    assert cause.text == "the host kept 20% of the processor time from this machine"
    assert not any(cause.kind == "stolen" for key, own in marked.items() if key[2] != 2 for cause in own)


def test_steal_everywhere_marks_no_round_but_is_warned_of(tmp_path: Path) -> None:
    path = session(tmp_path, lambda event: with_steal(event, 0.1))

    marked = marked_blocks(load_session(path))
    assert not any(cause.kind == "stolen" for own in marked.values() for cause in own)
    (warning,) = steal_warnings(path)
    assert warning.startswith("the host kept 50% of the processor time that this machine asked for (steal)")
    assert column_of(STOLEN, path) == ["50.0%", "50.0%"]


def test_a_machine_that_kept_its_processors_says_so_without_a_warning(tmp_path: Path) -> None:
    path = session(tmp_path, lambda event: with_steal(event, 0.001))

    assert steal_warnings(path) == []
    assert column_of(STOLEN, path)[0] == "1.0%"


def test_a_session_that_did_not_record_it_has_no_such_column(tmp_path: Path) -> None:
    path = session(tmp_path, lambda event: event)

    assert column_of(STOLEN, path) == []
    assert steal_warnings(path) == []
