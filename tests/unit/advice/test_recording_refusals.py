"""Refused recordings: of another clock, device or volume, or with holes; and what only looks like one."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from recorded_requests import BLOCK, GP3, IOS, REQUESTS, logged, recorded, recording
from sample_rows import table

from esrally_ebs.advice.dependencies import thread_of
from esrally_ebs.advice.prediction import Predictor
from esrally_ebs.advice.recording import recording_of
from esrally_ebs.errors import MeasurementError
from esrally_ebs.model import Event
from esrally_ebs.store.encoding import TRACE
from esrally_ebs.store.session import Session

Breaking = Callable[[Session, np.random.Generator], pa.Table]


def moved(trace: pa.Table, seconds: float) -> pa.Table:
    for name in ("at_s", "done_s"):
        place = trace.column_names.index(name)
        trace = trace.set_column(place, TRACE.field(name), pc.add(trace[name], seconds))
    return trace


def read_ahead(trace: pa.Table, seconds: float, offset: int | None = None) -> pa.Table:
    """The trace with one more read, of so many seconds, as each request ends; right behind its last one."""
    ios = trace.to_pylist()
    ahead = [
        {
            **one,
            "offset": one["offset"] + BLOCK if offset is None else offset,
            "at_s": one["done_s"] + 1e-5,
            "done_s": one["done_s"] + seconds,
        }
        for one in ios[IOS - 1 :: IOS]
    ]
    return pa.Table.from_pylist(ios + ahead, schema=TRACE)


@pytest.mark.parametrize("shift_s", [-1.1, -0.02, -0.008, 0.008, 0.02, 1.1])
def test_a_trace_of_another_clock_is_refused(shift_s: float) -> None:
    made = recorded()
    with pytest.raises(MeasurementError, match="in time"):
        recording_of(made, moved(made.telemetry, shift_s), "a")


def test_what_is_still_read_ahead_as_a_request_ends_is_no_other_clock() -> None:
    """On st1 41 % of requests end before that is done, on a fast gp3 6 %: whole recordings were refused."""
    made = recorded()
    both = read_ahead(made.telemetry, 0.002)
    assert len(recording_of(made, both, "a").ios["at_s"]) == REQUESTS * (IOS + 1)
    elsewhere = read_ahead(made.telemetry, 0.002, offset=0)
    with pytest.raises(MeasurementError, match="in time"):
        recording_of(made, elsewhere, "a")


def third_removed(made: Session, draw: np.random.Generator) -> pa.Table:
    return made.telemetry.filter(pa.array(draw.random(made.telemetry.num_rows) > 1 / 3))


def stretch_removed(made: Session, draw: np.random.Generator) -> pa.Table:
    rows = made.telemetry.num_rows
    begin = draw.integers(0, rows - rows // 3)
    return pa.concat_tables([made.telemetry.slice(0, begin), made.telemetry.slice(begin + rows // 3)])


def short_stretches_removed(made: Session, draw: np.random.Generator) -> pa.Table:
    """A third of the requests, by chance, without their I/Os."""
    lacking = draw.permutation(REQUESTS) < REQUESTS // 3
    return made.telemetry.filter(pa.array(np.repeat(~lacking, IOS)))


def clock_shifted(made: Session, draw: np.random.Generator) -> pa.Table:
    return moved(made.telemetry, draw.choice([-1, 1]) * np.exp(draw.uniform(np.log(0.008), np.log(3600))))


def other_device(made: Session, draw: np.random.Generator) -> pa.Table:
    """Another arm's I/Os: as many, while that arm had its turn."""
    length_s = pc.max(made.telemetry["done_s"]).as_py() - pc.min(made.telemetry["at_s"]).as_py()
    return moved(made.telemetry, length_s * draw.uniform(0.2, 0.8))


@pytest.mark.parametrize("broken", [third_removed, stretch_removed, clock_shifted, other_device])
@pytest.mark.parametrize("noted", [True, False], ids=["noted", "not noted"])
def test_a_broken_trace_is_refused_in_20_of_20(broken: Breaking, *, noted: bool) -> None:
    """Also one whose number of I/Os nobody noted: the volume counted reads during requests."""
    made = recorded()
    trace = Event(at_s=0.0, kind="trace", arm="a", fields={"ios": made.telemetry.num_rows, "lost": 0})
    made = replace(made, events=(*counted(made), *([trace] if noted else [])))
    assert recording_of(made, made.telemetry, "a").requests == REQUESTS
    for seed in range(20):
        with pytest.raises(MeasurementError):
            recording_of(made, broken(made, np.random.default_rng(seed)), "a")


def counted(made: Session, reads: int = IOS) -> list[Event]:
    """The volume's counters around each request."""
    events = []
    for one in made.samples.to_pylist():
        fields = {"task": one["task"], "round": one["round"], "requests": 1, "started_s": one["started_s"]}
        fields |= {"begin": {"emulator.reads": 100}, "end": {"emulator.reads": 100 + reads}}
        at_s = one["started_s"] + one["service_time_s"]
        events.append(Event(at_s=at_s, kind="io", arm="a", fields=fields))
    return events


@pytest.mark.parametrize("broken", [third_removed, stretch_removed, short_stretches_removed])
def test_a_trace_without_count_that_lacks_a_third_of_a_logs_ios_is_refused_in_20_of_20(
    broken: Breaking,
) -> None:
    """Another tool's: what its requests waited for I/Os that are missing was predicted as computing."""
    made = logged()

    def check(ios: pa.Table) -> None:
        note = Event(at_s=0.0, kind="trace", arm="a", fields={"ios": ios.num_rows, "lost": 0, "missed": 0})
        of = recording_of(replace(made, events=(note,)), ios, "a")
        Predictor(of, thread_of(of)).require_right()

    check(made.telemetry)
    for seed in range(20):
        with pytest.raises(MeasurementError):
            check(broken(made, np.random.default_rng(seed)))


def test_requests_that_overlap_are_refused() -> None:
    made = recorded()
    twice = pa.concat_tables([made.samples, made.samples])
    with pytest.raises(MeasurementError, match="overlap"):
        recording(replace(made, samples=twice))


def test_a_session_with_writes_beside_its_searches_is_refused() -> None:
    made = recorded()
    rows = [{**row, "phase": "beside"} for row in made.samples.to_pylist()[:1]]
    both = pa.concat_tables([made.samples, pa.Table.from_pylist(rows, schema=made.samples.schema)])
    with pytest.raises(
        MeasurementError, match="documents were added beside its searches, so I/Os of both can"
    ):
        recording(replace(made, samples=both))


def test_requests_that_caches_answered_are_no_trace_that_is_missing_or_of_another_clock() -> None:
    made = recorded()
    noted = replace(made, events=(Event(at_s=1.0, kind="trace", arm="a", fields={"ios": 0}),))
    writes = pa.array(["write"] * made.telemetry.num_rows).cast(TRACE.field("op").type)
    written = made.telemetry.set_column(TRACE.names.index("op"), TRACE.field("op"), writes)
    warmed_up = moved(made.telemetry, -3600)  # the warm-up is in the trace, too
    for session in (
        replace(noted, telemetry=made.telemetry[:0]),
        replace(made, telemetry=written),
        replace(made, telemetry=warmed_up, events=tuple(counted(made, reads=0))),
    ):
        with pytest.raises(MeasurementError, match=r"'a' read nothing, so .*; record with cold"):
            recording(session)


def test_a_session_without_a_trace_is_refused() -> None:
    made = recorded()
    with pytest.raises(MeasurementError, match="trace = true"):
        recording_of(made, TRACE.empty_table(), "a")


@pytest.mark.parametrize("shift_s", [-0.5, -0.02, -0.008, -0.004, 0.004, 0.008, 0.02, 0.5])
def test_a_trace_of_another_clock_than_the_logs_is_refused(shift_s: float) -> None:
    """Requests of a log are stretched to their I/Os, so none was ever in flight at their ends."""
    made = logged()
    with pytest.raises(MeasurementError, match="do not fit its requests in time"):
        recording_of(made, moved(made.telemetry, shift_s), "a")


@pytest.mark.parametrize("shift_s", [-0.008, -0.004, 0.004, 0.008])
def test_a_trace_of_another_clock_than_the_logs_is_refused_where_all_is_read_ahead(shift_s: float) -> None:
    """But for the first read: none of those that tell was in flight at the ends of requests."""
    made = logged([place * BLOCK for place in range(IOS)])
    assert recording(made).requests == REQUESTS
    with pytest.raises(MeasurementError, match="do not fit its requests in time"):
        recording_of(made, moved(made.telemetry, shift_s), "a")


def closer(made: Session, seconds: float) -> Session:
    """Its requests come so much sooner after one another."""
    samples, ios = made.samples.to_pylist(), made.telemetry.to_pylist()
    for number, one in enumerate(samples):
        one["started_s"] -= number * seconds
    for number, io in enumerate(ios):
        io |= {name: io[name] - number // IOS * seconds for name in ("at_s", "done_s")}
    return replace(made, samples=table(*samples), telemetry=pa.Table.from_pylist(ios, schema=TRACE))


def test_a_log_of_requests_right_after_one_another_fits_its_trace() -> None:
    """Closer than a log is exact: a read of the next is in flight a millisecond after the one before."""
    of = recording(closer(logged(), 0.998))
    assert np.diff(of.first).sum() == pytest.approx(IOS * REQUESTS, abs=IOS)


def test_readahead_of_the_request_before_is_no_other_clock_than_the_logs() -> None:
    """As on st1: it takes longer than the time between two requests."""
    made = closer(logged(), 0.99)
    both = read_ahead(made.telemetry, 0.012)
    note = replace(made.events[0], fields={**made.events[0].fields, "ios": both.num_rows})
    assert recording(replace(made, telemetry=both, events=(note,))).requests == REQUESTS


def test_the_few_reads_of_another_device_are_not_those_of_the_requests_of_a_log() -> None:
    """They are seldom in flight, and half of them come while a request is served, as by chance."""
    made = closer(logged(), 0.98)
    assert recording(made).requests == REQUESTS
    plain, of = made.telemetry.to_pylist()[0], np.array(made.telemetry["at_s"])
    for seed in range(20):
        at_s = np.sort(np.random.default_rng(seed).uniform(of[0], of[-1], 60)).tolist()
        rows = [{**plain, "at_s": at, "done_s": at + 4.5e-4} for at in at_s]
        note = replace(made.events[0], fields={**made.events[0].fields, "ios": len(rows)})
        other = replace(made, telemetry=pa.Table.from_pylist(rows, schema=TRACE), events=(note,))
        with pytest.raises(MeasurementError, match="do not fit its requests in time"):
            recording(other)


def test_a_log_whose_trace_lacks_a_stretch_is_refused() -> None:
    """Of another tool, that did not count it: those requests were taken to compute for all of their time."""
    made = logged()
    hole = np.isin(np.arange(made.telemetry.num_rows) // IOS, range(16, 32), invert=True)
    ios = made.telemetry.filter(pa.array(hole))
    note = replace(made.events[0], fields={**made.events[0].fields, "ios": ios.num_rows})
    with pytest.raises(MeasurementError, match="16 requests of arm 'a' one after the other have no I/O"):
        recording(replace(made, telemetry=ios, events=(note,)))
    from_cache = np.arange(made.telemetry.num_rows) // IOS < 30  # all later ones are
    ios = made.telemetry.filter(pa.array(from_cache))
    note = replace(made.events[0], fields={**made.events[0].fields, "ios": ios.num_rows})
    assert recording(replace(made, telemetry=ios, events=(note,))).requests == REQUESTS


@pytest.mark.parametrize("later", [range(32, REQUESTS), range(16)])
def test_a_clock_that_was_set_while_requests_were_logged_is_no_memory(later: range) -> None:
    """Their I/Os came half a second before or after them, so they seemed to compute alone."""
    made = logged()
    are_apart = pa.array(np.isin(np.arange(made.telemetry.num_rows) // IOS, later))
    parts = made.telemetry.filter(are_apart), made.telemetry.filter(pc.invert(are_apart))
    ios = pa.concat_tables([moved(parts[0], 0.5), parts[1]]).sort_by("at_s")
    said = rf"{len(later)} requests of arm 'a' .* have no I/O, others have; was a clock set"
    with pytest.raises(MeasurementError, match=said):
        recording(replace(made, telemetry=ios))


def test_what_a_volume_reads_long_after_the_log_ended_is_of_no_request() -> None:
    """The last ones were answered from memory; a minute later somebody else reads as much as they would."""
    made = logged()
    are_last = pa.array(np.arange(made.telemetry.num_rows) // IOS >= REQUESTS - 12)
    parts = made.telemetry.filter(pc.invert(are_last)), moved(made.telemetry.filter(are_last), 60.0)
    assert recording(replace(made, telemetry=pa.concat_tables(parts))).requests == REQUESTS


def test_a_volume_that_is_another_than_was_said_is_refused() -> None:
    made = logged()
    local = replace(GP3, type="instance-store", iops=200_000, throughput_bytes_per_s=None)
    other = replace(made, arms=(replace(made.arms[0], spec=local),))
    with pytest.raises(MeasurementError, match=r"take \+0\.\d\d ms from those of instance-store"):
        recording(other)


def test_a_recording_that_lost_events_is_refused() -> None:
    made = logged()
    fields = {**made.events[0].fields, "missed": 7}
    with pytest.raises(MeasurementError, match=r"7 events .* record it again"):
        recording(replace(made, events=(replace(made.events[0], fields=fields),)))


def test_a_trace_without_completions_predicts_no_requests() -> None:
    made = logged()
    place = TRACE.names.index("done_s")
    nothing = pa.nulls(made.telemetry.num_rows, pa.float64())
    trace = made.telemetry.set_column(place, TRACE.field(place), nothing)
    with pytest.raises(MeasurementError, match="usage"):
        recording(replace(made, telemetry=trace))
