"""What is stored is read back as it was: samples, events, a whole session."""

from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_plan import small_plan
from stored import GP2, ROW, SAMPLE

from esrally_ebs.model import Check, Event, Phase, Sample, State, TelemetryPoint
from esrally_ebs.store import PartWriter, SessionFolder, list_sessions, load_session
from esrally_ebs.store.encoding import MAX_TIME, SAMPLES, baseline_of, dump_event, parse_event
from esrally_ebs.store.parts import compact, read_parts

names = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
finite = st.floats(allow_nan=False, allow_infinity=False)
samples = st.builds(
    Sample,
    **{name: names for name in ("session", "arm", "task", "operation")},
    **{name: st.integers(0, 2**31 - 1) for name in ("round", "iteration", "client")},
    started_s=st.floats(0, MAX_TIME, exclude_max=True),
    **{name: finite for name in ("service_time_s", "latency_s", "processing_time_s", "ops")},
    phase=st.sampled_from(Phase),
    success=st.booleans(),
    hits=st.none() | st.integers(0, 2**62),
    took_s=st.none() | finite,
    resident_before=st.none() | finite,
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | finite | names,
    lambda inner: st.lists(inner, max_size=3),
)
events = st.builds(
    Event,
    at_s=st.floats(0, MAX_TIME, exclude_max=True),
    kind=names,
    arm=st.none() | names,
    fields=st.dictionaries(
        names.filter(lambda key: key not in {"at_s", "kind", "arm"}), json_values, max_size=4
    ),
)


def as_samples(table: pa.Table) -> tuple[Sample, ...]:
    return tuple(Sample(**{**row, "phase": Phase(row["phase"])}) for row in table.to_pylist())


@given(st.lists(st.lists(samples, max_size=3), max_size=4))
@settings(max_examples=30, deadline=None)
def test_stored_samples_are_read_back_in_order_before_and_after_a_merge(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[Sample]]
) -> None:
    folder = tmp_path_factory.mktemp("samples")
    with PartWriter(folder, SAMPLES) as writer:
        for batch in batches:
            writer.add(batch)
            writer.flush()
    expected = tuple(sample for batch in batches for sample in batch)
    assert as_samples(read_parts(folder, SAMPLES)[0]) == expected
    compact(folder, SAMPLES)
    assert as_samples(read_parts(folder, SAMPLES)[0]) == expected
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
    assert session.plan == small_plan()
    assert session.arms == (GP2,)
    assert session.emulated
    assert session.environment == {"kernel": "6.1"}
    assert session.dataset == {"documents": 10}
    assert session.checks == (Check(name="segments", ok=True, value="2", text="same"),)
    assert session.warnings == ("noisy",)
    assert [(event.kind, event.fields) for event in session.events] == [("drop", {"text": "a\u2028b"})]
    assert as_samples(session.samples) == (SAMPLE,)
    assert baseline_of(session.baseline) == (ROW,)
    assert session.telemetry.to_pylist() == [asdict(point)]
    assert [summary.id for summary in list_sessions(tmp_path)] == ["a-1"]


def test_each_table_of_a_session_is_merged_into_one_file(folder: SessionFolder) -> None:
    folder.compact()  # of no table yet
    point = TelemetryPoint(arm="gp2", device="", at_s=2.0, metric="reads", value=3.0, unit="")
    for kind, row in (("samples", SAMPLE), ("telemetry", point)):
        for _ in range(2):  # as of two processes
            with folder.part_writer(kind) as writer:
                writer.add([row])
    folder.compact()
    assert [len(list((folder.path / kind).iterdir())) for kind in ("samples", "telemetry")] == [1, 1]
    session = load_session(folder.path)
    assert (session.samples.num_rows, session.telemetry.num_rows) == (2, 2)


def test_sample_files_have_the_columns_of_the_design_in_order(folder: SessionFolder) -> None:
    with folder.part_writer("samples") as writer:
        writer.add([SAMPLE])
    part = next((folder.path / "samples").glob("*.parquet"))
    assert ", ".join(pq.read_schema(part).names) == (
        "session, arm, round, task, operation, phase, iteration, client, started_s, service_time_s, "
        "latency_s, processing_time_s, ops, success, hits, took_s, resident_before"
    )
