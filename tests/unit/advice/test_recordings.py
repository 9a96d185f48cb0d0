"""From a session's trace and samples to its requests, what each computes and which I/Os it waits for."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import recorded_requests
from hypothesis import given
from hypothesis import strategies as st
from recorded_requests import (
    BLOCK,
    COMPUTE_S,
    GP3,
    IOS,
    PATH_S,
    REQUESTS,
    recorded,
    recording,
    recording_of_cache,
)
from sample_rows import table

from esrally_ebs.advice.dependencies import thread_of
from esrally_ebs.advice.prediction import Predictor, footprint_bytes, in_memory
from esrally_ebs.advice.recording import Recording, recording_of
from esrally_ebs.catalog.limits import Service
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.errors import MeasurementError
from esrally_ebs.model import Event, Kind, VolumeSpec
from esrally_ebs.store.encoding import TRACE
from esrally_ebs.store.session import Session
from esrally_ebs.units import GIB, KIB
from esrally_ebs.volumes.virtual.replay import replay

Breaking = Callable[[Session, np.random.Generator], pa.Table]


def test_a_gp2_of_aws_is_one_that_is_sold() -> None:
    made = recorded()
    spec = VolumeSpec(name="a", type="gp2", size_bytes=500 * GIB, iops=1500)  # as AWS tells
    (arm,) = made.arms
    of = recording(replace(made, arms=(replace(arm, spec=spec, kind=Kind.EBS),)))
    assert Predictor(of, thread_of(of)).check.spec == replace(spec, iops=None)


def test_a_missing_page_is_waited_for_and_what_is_between_is_computed() -> None:
    thread = thread_of(recording(recorded()))
    assert len(thread.needed) == REQUESTS * IOS
    assert thread.compute_s == pytest.approx(np.full(REQUESTS * (IOS + 1), COMPUTE_S), abs=1e-6)


def test_what_the_path_takes_is_not_computed_and_not_there_where_nothing_is_waited_for() -> None:
    """Half a millisecond is computed on each of three parts that are read ahead, the path takes 0.1.

    On a faster volume, and of what is in memory, the path was left in what is computed: 10 % of a stream.
    """
    of = one_request([0, 2.0, 2.5, 4.5], [1.9, 3.9, 4.4, 6.4], [0, 1, 2, 3], ends_ms=5.0)
    thread = thread_of(of)
    assert 1e3 * thread.compute_s == pytest.approx([0, 0, 0.5, 0.5, 0.5])
    assert thread.needed.tolist() == [0, 1, 2]
    assert 1e3 * thread.after_s == pytest.approx([0.1, 0.6, 0.6])
    in_memory_s = replay(thread._replace(path_s=np.full(5, np.inf)), model_for(GP3)).latency_s
    assert 1e3 * in_memory_s == pytest.approx([1.5])


def one_request(
    at_ms: list[float], done_ms: list[float], blocks: list[int], *, ends_ms: float, block: int = BLOCK
) -> Recording:
    """Of these times and places, from 0."""
    count = len(blocks)
    ios = {
        "at_s": np.array(at_ms) / 1e3,
        "done_s": np.array(done_ms) / 1e3,
        "offset": np.array(blocks) * block,
    }
    ios |= {"write": np.zeros(count, int), "ahead": np.full(count, -1), "bytes": np.full(count, block)}
    return replace(
        recording_of_cache(),
        task=np.array(["t"]),
        round=np.array([1]),
        began_s=np.array([0.0]),
        latency_s=np.array([ends_ms / 1e3]),
        pause_s=np.zeros(1),
        cold=np.array([True]),
        ios={**ios, "path_s": np.full(count, PATH_S)},
        first=np.array([0, count]),
    )


def needed(
    at_ms: list[float], done_ms: list[float], blocks: list[int], *, block: int = BLOCK
) -> list[tuple[int, int]]:
    """(event, I/O that it needs) of a request that ends at 6.5 ms, by times and places."""
    thread = thread_of(one_request(at_ms, done_ms, blocks, ends_ms=6.5, block=block))
    events = np.repeat(np.arange(len(blocks) + 1), np.diff(thread.first_needed))
    return list(zip(events.tolist(), thread.needed.tolist(), strict=True))


def test_readahead_that_nothing_continues_is_not_waited_for() -> None:
    """The second I/O continues the first; the request goes on long before and after it is done."""
    assert needed([1, 1.1, 5], [2, 2.2, 6], [0, 1, 9]) == [(2, 0), (3, 2)]


def test_readahead_is_not_waited_for_before_what_continues_it_is_read() -> None:
    """The second I/O is done shortly before the third comes, by chance: the fourth continues it, later."""
    assert needed([1, 2.1, 3.6, 5], [2, 3.4, 4.6, 5.5], [0, 1, 9, 2]) == [(1, 0), (3, 2), (4, 1)]


def test_single_pages_that_continue_one_another_are_each_waited_for() -> None:
    """With a readahead of 4 KiB or MADV_RANDOM nothing is read ahead; such waits counted as computing."""
    times: tuple[list[float], list[float], list[int]] = ([1, 2.3, 3.6], [2, 3.3, 4.6], [0, 1, 2])
    assert needed(*times, block=4 * KIB) == [(1, 0), (2, 1), (3, 2)]
    assert needed(*times, block=8 * KIB) == [(1, 0), (3, 1)]


def test_single_pages_that_the_kernel_marks_as_read_ahead_are_waited_for_too() -> None:
    """It marks all that the page cache reads, with MADV_RANDOM, too."""
    of = one_request([1, 2.3, 3.6], [2, 3.3, 4.6], [0, 1, 2], ends_ms=6.5, block=4 * KIB)
    thread = thread_of(replace(of, ios=of.ios | {"ahead": np.ones(3, int)}))
    events = np.repeat(np.arange(4), np.diff(thread.first_needed))
    assert list(zip(events, thread.needed, strict=True)) == [(1, 0), (2, 1), (3, 2)]


def seen() -> Recording:
    """One request whose thread slept for its first I/O, and later for one that was read ahead; not for two.

    It needs 0.05 and 0.1 ms to be woken.
    """
    nan = np.nan
    at_s, done_s = np.array([1, 2.1, 3.1, 3.2]) / 1e3, np.array([2, 5.1, 4.9, 3.9]) / 1e3
    ios = {"at_s": at_s, "done_s": done_s, "offset": np.array([0, 9, 5, 7]) * BLOCK}
    ios |= {
        "path_s": np.zeros(4),
        "bytes": np.full(4, BLOCK),
        "write": np.zeros(4, int),
        "ahead": np.ones(4, int),
    }
    ios |= {"thread": np.full(4, 7.0), "waiter": np.array([7, 7, nan, nan])}
    ios |= {"slept_s": np.array([1.1, 4.2, nan, nan]) / 1e3, "woken_s": np.array([2.05, 5.2, nan, nan]) / 1e3}
    one = recording_of_cache()
    columns = {"began_s": np.zeros(1), "latency_s": np.array([0.0061]), "round": np.ones(1)}
    return replace(
        one, **columns, task=np.array(["t"]), cold=np.array([True]), ios=ios, first=np.array([0, 4])
    )


def test_ios_that_come_the_later_the_longer_the_one_before_takes_are_each_waited_for() -> None:
    """As by direct I/O. They were taken to be read ahead, and their waits for computing, alike on any volume.

    Those that come in their time whatever the one before takes are read ahead.
    """
    in_order = recording(recorded([place * BLOCK for place in range(IOS)]))
    anywhere = thread_of(recording(recorded()))
    thread = thread_of(in_order)
    assert thread.needed.tolist() == anywhere.needed.tolist()
    assert thread.first_needed.tolist() == anywhere.first_needed.tolist()
    assert thread.compute_s == pytest.approx(anywhere.compute_s)
    took_s = in_order.ios["done_s"] - in_order.ios["at_s"]
    at_s = np.repeat(in_order.began_s, IOS) + np.tile(np.arange(IOS) * 5e-3, REQUESTS)
    ahead = {"at_s": at_s, "done_s": at_s + took_s}
    in_time = replace(in_order, latency_s=np.full(REQUESTS, 0.2), ios=in_order.ios | ahead)
    thread = thread_of(in_time)
    events = np.repeat(np.arange(len(thread.size)), np.diff(thread.first_needed))
    assert set((events - thread.needed)[1:28].tolist()) == {2}  # by the I/O after the one that continues it


def test_what_a_thread_was_seen_to_sleep_for_is_what_it_waits_for() -> None:
    """The page that was read ahead is needed 1 ms into computing; others by the first event after them."""
    thread = thread_of(seen())
    events = np.repeat(np.arange(5), np.diff(thread.first_needed))
    assert list(zip(events, thread.needed, strict=True)) == [(1, 0), (4, 1), (4, 2), (4, 3)]
    assert 1e3 * thread.compute_s == pytest.approx([1, 0.15, 1, 0.1, 1.9])
    assert 1e3 * thread.after_s == pytest.approx([0.1, 1.0, 0.975, 1.275])
    fast = replace(model_for(GP3), limits=(), read=Service(base_us=0.0, per_kib_us=0.0, sigma=0.0))
    assert replay(thread, fast).latency_s == pytest.approx([4.15e-3])


def test_a_thread_that_takes_over_waits_for_the_last_read_of_the_one_before() -> None:
    """As one that fetches what another has found: only the end of the request waited for that read."""
    of = one_request([1, 3, 5], [2, 4, 6], [0, 5, 9], ends_ms=7)
    threads = np.array([7.0, 7.0, 8.0])
    ios = {
        "thread": threads,
        "waiter": threads,
        "slept_s": of.ios["at_s"] + 1e-5,
        "woken_s": of.ios["done_s"],
    }
    thread = thread_of(replace(of, ios=of.ios | ios))
    events = np.repeat(np.arange(4), np.diff(thread.first_needed))
    assert list(zip(events, thread.needed, strict=True)) == [(1, 0), (2, 1), (3, 2)]


def test_the_pause_before_a_request_is_without_those_of_other_arms() -> None:
    made = recorded()
    others = [{**one, "arm": "b", "started_s": one["started_s"] + 0.2} for one in made.samples.to_pylist()]
    others = [{**one, "service_time_s": 0.5} for one in others]
    both = pa.concat_tables([made.samples, pa.Table.from_pylist(others, schema=made.samples.schema)])
    assert recording(made).pause_s == pytest.approx([0.0, *[1.0] * (REQUESTS - 1)])
    assert recording(replace(made, samples=both)).pause_s == pytest.approx([0.0, *[0.25] * (REQUESTS - 1)])


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


def logged(offsets: list[int] | None = None) -> Session:
    """What a query log knows of the requests, and the kernel's tracepoints of their I/Os."""
    made = recorded(offsets, wakes_s=0.0)
    rows = made.samples.to_pylist()
    for one in rows:
        ended_ms = np.floor(1e3 * (one["started_s"] + one["service_time_s"]))
        took_ms = np.floor(1e3 * one["service_time_s"])
        one.update(started_s=(ended_ms - took_ms) / 1e3, service_time_s=took_ms / 1e3)
    trace = made.telemetry.drop_columns("path_s")
    trace = trace.append_column(TRACE.field("path_s"), pa.array([0.0] * trace.num_rows))
    note = Event(at_s=0.0, kind="trace", arm="a", fields={"ios": trace.num_rows, "lost": 0, "missed": 0})
    return replace(
        made, kind="trace", samples=table(*rows), telemetry=trace.select(TRACE.names), events=(note,)
    )


def test_requests_of_a_log_get_their_ios_though_it_knows_milliseconds() -> None:
    of, exact = recording(logged()), recording(recorded(wakes_s=0.0))
    assert np.diff(of.first).tolist() == [IOS] * REQUESTS
    assert of.latency_s == pytest.approx(exact.latency_s, abs=1.6e-3)
    assert of.slower_s == pytest.approx(-PATH_S, abs=30e-6)  # what is recorded here is done that much sooner
    made = Predictor(of, thread_of(of))
    made.require_right()
    assert made.slower_s == of.slower_s


def test_a_thread_goes_on_as_soon_on_a_volume_that_is_faster_than_its_type(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By 100 us: what it did in less than the half of them it seemed not to have waited for."""
    monkeypatch.setattr(recorded_requests, "COMPUTE_S", 4e-5)
    of = recording(logged())
    thread = thread_of(of)
    assert of.slower_s == pytest.approx(-PATH_S, abs=30e-6)
    assert np.diff(thread.first_needed).tolist() == [0, *[1] * IOS] * REQUESTS
    assert thread.compute_s[thread.size > 0].max() < 1e-3


def test_a_request_before_the_first_io_does_not_last_until_it() -> None:
    made = logged()
    first, *others = made.samples.to_pylist()
    early = {**first, "started_s": first["started_s"] - 5.0, "service_time_s": 0.003}
    of = recording(replace(made, samples=table(early, first, *others)))
    assert np.diff(of.first).tolist() == [0, *[IOS] * REQUESTS]
    assert of.latency_s[0] == pytest.approx(0.0035, abs=1e-6)


def test_requests_of_one_millisecond_are_predicted_though_none_is_left_for_one() -> None:
    """A log has three after one another in it: the one in the middle seems to take no time at all."""
    made = logged()
    rows = made.samples.to_pylist()
    quick = [
        {**row, "started_s": row["started_s"] + 0.5, "service_time_s": 0.0, "task": task}
        for row in rows
        for task in ("first", "middle", "last")
    ]
    of = recording(replace(made, samples=table(*rows, *quick)))
    assert of.latency_s[of.task == "middle"] == pytest.approx(0.0)
    predictor = Predictor(of, thread_of(of))
    predictor.require_right()
    assert {one.task: one.computing for one in predictor.patterns}["middle"] == 0.0


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


def test_what_few_reads_or_not_all_sleeps_tell_is_not_taken_for_what_requests_wait_for() -> None:
    """Where the wrong process was watched, or events of threads were lost, it is inferred."""
    made = logged()
    trace, count = made.telemetry, made.telemetry.num_rows

    def waits_seen(waited: int, thread: int = 1, **fields: int) -> bool:
        values = {"waiter": 7, "slept_s": trace["at_s"][0].as_py(), "woken_s": trace["done_s"][0].as_py()}
        told = trace
        columns = {name: [value] * waited + [None] * (count - waited) for name, value in values.items()}
        columns |= {"thread": [thread] * count, "ahead": [True] * count}
        for name, column in columns.items():
            field = TRACE.field(name)
            told = told.set_column(TRACE.names.index(name), field, pa.array(column, field.type))
        note = replace(made.events[0], fields={**made.events[0].fields, **fields})
        return recording(replace(made, telemetry=told, events=(note,))).waits_seen

    assert waits_seen(count)
    assert not waits_seen(1)
    assert waits_seen(1, thread=7)  # who sleeps for some was watched, and has read the others ahead
    assert not waits_seen(count, missed_waits=3)


def test_a_trace_without_completions_predicts_no_requests() -> None:
    made = logged()
    place = TRACE.names.index("done_s")
    nothing = pa.nulls(made.telemetry.num_rows, pa.float64())
    trace = made.telemetry.set_column(place, TRACE.field(place), nothing)
    with pytest.raises(MeasurementError, match="usage"):
        recording(replace(made, telemetry=trace))


def test_a_cache_of_all_that_is_read_leaves_the_first_requests_reads_alone() -> None:
    of = recording(recorded())
    assert footprint_bytes(of) == IOS * BLOCK
    hits = in_memory(of, IOS * BLOCK).reshape(REQUESTS, IOS)
    assert not hits[0].any()
    assert hits[1:].all()
    assert not in_memory(of, (IOS - 1) * BLOCK).any()  # in turns, each comes when it has just gone


def test_a_page_that_was_never_read_is_in_no_cache() -> None:
    """Pages were looked up by four: of single ones, as with a readahead of 4 KiB, three of four were hits."""
    of = recording(recorded())
    count = REQUESTS * IOS
    pages = {"offset": np.arange(count) * 4 * KIB, "bytes": np.full(count, 4 * KIB)}
    of = replace(of, ios=of.ios | pages)
    assert footprint_bytes(of) == count * 4 * KIB
    assert not in_memory(of, GIB).any()


def test_what_is_at_one_place_of_two_devices_is_not_the_same() -> None:
    """Volumes that btrfs stripes have a device each: half of what cold requests read was taken for a hit."""
    made = recorded([(place // 2 * 2 + 1) * BLOCK for place in range(IOS)])
    names = pa.array(["a-1", "a-2"] * (REQUESTS * IOS // 2)).cast(TRACE.field("device").type)
    trace = made.telemetry.set_column(TRACE.names.index("device"), TRACE.field("device"), names)
    of = recording(replace(made, telemetry=trace))
    assert footprint_bytes(of) == IOS * BLOCK
    assert not in_memory(of, IOS * BLOCK)[:IOS].any()


@given(st.lists(st.integers(0, 40), min_size=1, max_size=200), st.integers(1, 30))
def test_a_larger_cache_answers_no_fewer_reads(pages: list[int], cache: int) -> None:
    count = len(pages)
    ios = {"at_s": np.arange(count) * 1.0, "offset": np.array(pages) * BLOCK, "write": np.zeros(count, int)}
    of = replace(recording_of_cache(), ios={**ios, "bytes": np.full(count, BLOCK)})
    smaller, larger = in_memory(of, cache * BLOCK), in_memory(of, (cache + 1) * BLOCK)
    assert not np.any(smaller & ~larger)
    assert in_memory(of, 41 * BLOCK).sum() == count - len(set(pages))
