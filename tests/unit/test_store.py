"""The session folder: what is stored is read back, by anyone, at any moment, also after a kill."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esrally_ebs.errors import FormatError, PlanError, SetupError
from esrally_ebs.model import (
    BaselineRow,
    Check,
    Event,
    Kind,
    Phase,
    Sample,
    State,
    TelemetryPoint,
    Volume,
    VolumeSpec,
)
from esrally_ebs.store import PartWriter, SessionFolder, find_session, list_sessions, load_session
from esrally_ebs.store.encoding import SAMPLES, baseline_of, dump_event, parse_event, samples_of, telemetry_of
from esrally_ebs.store.parts import compact, read_parts, writer_for

GP2 = Volume(
    spec=VolumeSpec(name="gp2", type="gp2", size_bytes=100 * 1024**3),
    kind=Kind.EMULATED,
    mount=Path("/mnt/gp2"),
    control=Path("/run/x.sock"),
)
SAMPLE = Sample(
    session="s",
    arm="gp2",
    round=1,
    task="range_field_big_range",
    operation="search",
    phase=Phase.MEASURE,
    iteration=1,
    client=0,
    started_s=1.5,
    service_time_s=0.02,
    latency_s=0.021,
    processing_time_s=0.022,
    ops=1.0,
    success=True,
    hits=7,
    took_s=None,
    resident_before=0.001,
)
ROW = BaselineRow(
    arm="gp2",
    round=0,
    job="seq",
    op="read",
    bs_bytes=16384,
    numjobs=2,
    iodepth=1,
    iops=1353.0,
    bandwidth_bytes_per_s=22e6,
    mean_s=4e-4,
    p50_s=4.2e-4,
    p90_s=5e-4,
    p99_s=7e-4,
    p999_s=9e-4,
)

names = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
finite = st.floats(allow_nan=False, allow_infinity=False)
samples = st.builds(
    Sample,
    **{name: names for name in ("session", "arm", "task", "operation")},
    **{name: st.integers(0, 2**31 - 1) for name in ("round", "iteration", "client")},
    **{name: finite for name in ("started_s", "service_time_s", "latency_s", "processing_time_s", "ops")},
    phase=st.sampled_from(Phase),
    success=st.booleans(),
    hits=st.none() | st.integers(0, 2**62),
    took_s=st.none() | finite,
    resident_before=st.none() | finite,
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | names, lambda inner: st.lists(inner, max_size=3)
)
events = st.builds(
    Event,
    at_s=finite,
    kind=names,
    arm=st.none() | names,
    fields=st.dictionaries(
        names.filter(lambda key: key not in {"at_s", "kind", "arm"}), json_values, max_size=4
    ),
)


@pytest.fixture
def folder(tmp_path: Path) -> SessionFolder:
    return SessionFolder.create(tmp_path, "a-1", kind="race", plan={"name": "p", "mount": Path("/mnt")})


@given(st.lists(st.lists(samples, max_size=5), max_size=5))
@settings(max_examples=30, deadline=None)
def test_stored_samples_are_read_back_in_order_before_and_after_a_merge(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[Sample]]
) -> None:
    folder = tmp_path_factory.mktemp("samples")
    with writer_for(folder, "samples") as writer:
        for batch in batches:
            writer.add(batch)
            writer.flush()
    expected = tuple(sample for batch in batches for sample in batch)
    assert samples_of(read_parts(folder, SAMPLES)[0]) == expected
    compact(folder, SAMPLES)
    assert samples_of(read_parts(folder, SAMPLES)[0]) == expected
    assert len(list(folder.iterdir())) == (1 if expected else 0)


@given(events)
def test_an_event_is_read_back_from_its_line(event: Event) -> None:
    line = dump_event(event)
    assert "\n" not in line
    assert parse_event(line, "here") == event


def test_a_session_is_read_back_whole(folder: SessionFolder, tmp_path: Path) -> None:
    point = TelemetryPoint(arm="gp2", device="loop0", at_s=2.0, metric="reads", value=3.0, unit="1/s")
    folder.update(arms=[GP2], environment={"kernel": "6.1"}, dataset={"documents": 10})
    folder.add_check(Check(name="segments", ok=False, value="1", text="not yet"))
    folder.add_check(Check(name="segments", ok=True, value="2", text="same"))
    folder.add_warning("noisy")
    folder.add_warning("noisy")
    folder.event(Event(at_s=1.0, kind="drop", arm="gp2", fields={"text": "a\u2028b"}))
    folder.rows_baseline([ROW])
    assert folder.write_baseline(0, "gp2", "seq", '{"fio": 1}\n').read_text() == '{"fio": 1}\n'
    with folder.part_writer("samples") as writer, folder.part_writer("telemetry") as telemetry:
        writer.add([SAMPLE])
        telemetry.add([point])
    folder.finish(State.COMPLETE)

    session = load_session(folder.path)
    assert (session.id, session.kind, session.state, session.reason) == ("a-1", "race", State.COMPLETE, "")
    assert session.plan == {"name": "p", "mount": "/mnt"}
    assert session.arms == (GP2,)
    assert session.emulated
    assert session.environment == {"kernel": "6.1"}
    assert session.dataset == {"documents": 10}
    assert session.checks == (Check(name="segments", ok=True, value="2", text="same"),)
    assert session.warnings == ("noisy",)
    assert [(event.kind, event.fields) for event in session.events] == [("drop", {"text": "a\u2028b"})]
    assert samples_of(session.samples) == (SAMPLE,)
    assert baseline_of(session.baseline) == (ROW,)
    assert telemetry_of(session.telemetry) == (point,)
    assert [found.id for found in list_sessions(tmp_path)] == ["a-1"]


def test_a_baseline_row_that_is_measured_again_replaces_the_first(folder: SessionFolder) -> None:
    folder.rows_baseline([ROW, replace(ROW, op="write")])
    folder.rows_baseline([replace(ROW, iops=1.0)])
    assert {row.op: row.iops for row in baseline_of(load_session(folder.path).baseline)} == {
        "read": 1.0,
        "write": ROW.iops,
    }


def test_a_merge_that_crashed_before_it_removed_the_parts_shows_no_row_twice(tmp_path: Path) -> None:
    writer = writer_for(tmp_path, "samples")
    for iteration in (1, 2):
        writer.add([replace(SAMPLE, iteration=iteration)])
        writer.flush()
    parts = {path.name: path.read_bytes() for path in tmp_path.glob("part-*")}
    compact(tmp_path, SAMPLES)
    for name, data in parts.items():
        (tmp_path / name).write_bytes(data)
    writer.add([replace(SAMPLE, iteration=3)])
    writer.close()
    assert read_parts(tmp_path, SAMPLES)[0]["iteration"].to_pylist() == [1, 2, 3]
    compact(tmp_path, SAMPLES)
    assert read_parts(tmp_path, SAMPLES)[0]["iteration"].to_pylist() == [1, 2, 3]
    assert len(list(tmp_path.iterdir())) == 1


def test_half_written_files_are_left_out_and_a_broken_part_is_named(folder: SessionFolder) -> None:
    with folder.part_writer("samples") as writer:
        writer.add([SAMPLE])
    whole = next((folder.path / "samples").glob("part-*"))
    (folder.path / "samples" / ".part-9.parquet.ab.tmp").write_bytes(whole.read_bytes()[:50])
    (folder.path / "samples" / "part-9.parquet").write_bytes(whole.read_bytes()[:50])
    with (folder.path / "events.jsonl").open("w") as events_file:
        events_file.write('{"at_s": 1.0, "kind": "drop", "arm": null}\n{"at_s": 2.0, "ki')
    session = load_session(folder.path)
    assert session.samples.num_rows == 1
    assert len(session.events) == 1
    assert [warning.split(":")[0] for warning in session.warnings] == [
        "samples/part-9.parquet",
        "events.jsonl",
    ]


def test_a_disk_that_is_full_gives_one_line_and_loses_no_row(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    folder = tmp_path / "samples"
    writer = writer_for(folder, "samples")
    writer.add([SAMPLE])
    folder.rename(tmp_path / "away")  # every write fails now, as on a disk that went away
    with pytest.raises(SetupError, match="cannot be written"):
        writer.flush()
    (tmp_path / "away").rename(folder)
    writer.close()
    assert read_parts(folder, SAMPLES)[0].num_rows == 1
    events_file = tmp_path / "events.jsonl"
    events_file.symlink_to(full)
    with pytest.raises(SetupError, match=r"disk is full; free some space"):
        SessionFolder(tmp_path).event(Event(at_s=1.0, kind="drop"))


def test_a_write_that_fails_in_the_background_is_raised_by_the_next_add_and_loses_no_row(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "samples"
    folder.mkdir()
    writer = PartWriter(folder, SAMPLES, flush_every_s=0.01)
    folder.rename(tmp_path / "away")
    added, raised = 0, False
    until = time.monotonic() + 10
    while not raised and time.monotonic() < until:
        added += 1
        try:
            writer.add([SAMPLE])
        except SetupError:
            raised = True
        time.sleep(0.005)
    (tmp_path / "away").rename(folder)
    writer.close()
    assert raised
    assert read_parts(folder, SAMPLES)[0].num_rows == added


def test_a_folder_that_is_gone_gives_one_line(folder: SessionFolder) -> None:
    gone = SessionFolder(folder.path / "gone")
    for write in (
        lambda: gone.update(dataset={}),
        lambda: gone.part_writer("samples"),
        lambda: gone.event(Event(at_s=0.0, kind="drop")),
        lambda: gone.write_file("race.json", "{}"),
    ):
        with pytest.raises(SetupError, match=r"gone.*: cannot be written: No such file"):
            write()


def test_an_event_field_may_not_take_the_name_of_a_column(folder: SessionFolder) -> None:
    with pytest.raises(FormatError, match="'arm' has the name of a column"):
        folder.event(Event(at_s=0.0, kind="drop", fields={"arm": "gp2"}))


def test_another_process_takes_a_session_over_by_adopting_it(folder: SessionFolder) -> None:
    path = folder.path / "session.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "owner": {**document["owner"], "boot_id": "another boot"}}))
    assert load_session(folder.path).state is State.FAILED
    folder.adopt()
    assert load_session(folder.path).state is State.RUNNING


def test_events_so_far_can_be_asked_for(folder: SessionFolder) -> None:
    assert folder.events() == ()
    folder.event(Event(at_s=1.0, kind="fault", fields={"text": "x"}))
    assert [event.fields["text"] for event in folder.events()] == ["x"]


def test_another_process_may_write_at_the_same_time(folder: SessionFolder) -> None:
    code = f"""
        from pathlib import Path
        from esrally_ebs.model import Event
        from esrally_ebs.store import SessionFolder
        folder = SessionFolder(Path({str(folder.path)!r}))
        for number in range(50):
            folder.event(Event(at_s=number, kind="child", fields={{"text": "x" * 500}}))
            folder.add_warning(f"child {{number % 5}}")
    """
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)])
    for number in range(50):
        folder.event(Event(at_s=number, kind="parent", fields={"text": "y" * 500}))
        folder.add_warning(f"parent {number % 5}")
    assert child.wait(timeout=20) == 0
    session = load_session(folder.path)
    assert sum(event.kind == "child" for event in session.events) == 50
    assert sum(event.kind == "parent" for event in session.events) == 50
    assert len(session.warnings) == 10


def test_a_killed_session_is_listed_as_failed_and_loses_less_than_five_seconds(tmp_path: Path) -> None:
    code = f"""
        import sys, time
        from pathlib import Path
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from dataclasses import replace
        from esrally_ebs.store import SessionFolder
        from test_store import SAMPLE
        folder = SessionFolder.create(Path({str(tmp_path)!r}), "killed", kind="race", plan={{}})
        writer = folder.part_writer("samples")
        while True:
            writer.add([replace(SAMPLE, started_s=time.time())])
            print("row", flush=True)
            time.sleep(0.01)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        running = list_sessions(tmp_path)
        time.sleep(2.5)
        killed_at = time.time()
        os.kill(child.pid, signal.SIGKILL)
    assert [(found.id, found.state) for found in running] == [("killed", State.RUNNING)]
    found = list_sessions(tmp_path)[0]
    assert (found.state, found.reason) == (State.FAILED, "its process ended without saying so")
    session = load_session(found.path)
    assert session.state is State.FAILED
    last = max(session.samples["started_s"].to_pylist())
    assert killed_at - last < 5.0


def test_an_unknown_format_version_is_refused_by_its_number(folder: SessionFolder) -> None:
    path = folder.path / "session.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    with pytest.raises(FormatError, match=r"format version 99 .* reads 1"):
        load_session(folder.path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": 1, "id": 3, "state": "odd"}'])
def test_a_folder_with_a_broken_head_is_listed_as_failed_with_the_reason(tmp_path: Path, text: str) -> None:
    (tmp_path / "sessions" / "broken").mkdir(parents=True)
    (tmp_path / "sessions" / "broken" / "session.json").write_text(text)
    found = list_sessions(tmp_path)
    assert [(one.id, one.state) for one in found] == [("broken", State.FAILED)]
    assert "session.json" in found[0].reason
    with pytest.raises(FormatError):
        load_session(found[0].path)


def test_a_session_is_found_by_id_start_path_or_as_the_latest(tmp_path: Path) -> None:
    for number, name in enumerate(("abc-1", "abd-2")):
        SessionFolder.create(tmp_path, name, kind="race", plan={}, started_at=float(number))
    first, second = tmp_path / "sessions" / "abc-1", tmp_path / "sessions" / "abd-2"
    assert find_session(tmp_path, "abc-1") == first
    assert find_session(tmp_path, "abc") == first
    assert find_session(tmp_path, str(first)) == first
    assert find_session(tmp_path, "latest") == second
    with pytest.raises(PlanError, match="2 sessions start so"):
        find_session(tmp_path, "ab")
    with pytest.raises(PlanError, match="not found"):
        find_session(tmp_path, "zz")


def test_a_session_is_created_once_and_its_identity_stays(folder: SessionFolder) -> None:
    with pytest.raises(SetupError, match="exists already"):
        SessionFolder.create(folder.path.parent.parent, "a-1", kind="race", plan={})
    with pytest.raises(FormatError, match="'id'"):
        folder.update(id="other")


def test_how_a_session_first_ended_stays(folder: SessionFolder) -> None:
    folder.finish(State.CANCELLED, "Ctrl-C")
    folder.finish(State.COMPLETE)
    session = load_session(folder.path)
    assert (session.state, session.reason) == (State.CANCELLED, "Ctrl-C")


def test_sample_files_have_the_columns_of_the_design_in_order(folder: SessionFolder) -> None:
    with folder.part_writer("samples") as writer:
        writer.add([SAMPLE])
    part = next((folder.path / "samples").glob("*.parquet"))
    assert ", ".join(pq.read_schema(part).names) == (
        "session, arm, round, task, operation, phase, iteration, client, started_s, service_time_s, "
        "latency_s, processing_time_s, ops, success, hits, took_s, resident_before"
    )
