"""From a session's trace and samples to its requests, what each computes and which I/Os it waits for."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
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
    logged,
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
from esrally_ebs.model import Event, Kind, VolumeSpec
from esrally_ebs.store.encoding import TRACE
from esrally_ebs.units import GIB, KIB
from esrally_ebs.volumes.virtual.replay import replay


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


def test_a_thread_computes_while_another_sleeps() -> None:
    """As of two shards: its computing meanwhile was left out, so faster volumes were predicted too fast."""
    of = one_request([1, 2.5, 5], [2, 4.5, 6], [0, 5, 9], ends_ms=7)
    threads = np.array([7.0, 8.0, 7.0])
    ios = {"thread": threads, "waiter": threads, "slept_s": of.ios["at_s"], "woken_s": of.ios["done_s"]}
    thread = thread_of(replace(of, ios=of.ios | ios))
    events = np.repeat(np.arange(4), np.diff(thread.first_needed))
    assert list(zip(events, thread.needed, strict=True)) == [(2, 0), (2, 1), (3, 2)]
    assert 1e3 * thread.after_s == pytest.approx([3, 0.5, 1])


def test_the_pause_before_a_request_is_without_those_of_other_arms() -> None:
    made = recorded()
    others = [{**one, "arm": "b", "started_s": one["started_s"] + 0.2} for one in made.samples.to_pylist()]
    others = [{**one, "service_time_s": 0.5} for one in others]
    both = pa.concat_tables([made.samples, pa.Table.from_pylist(others, schema=made.samples.schema)])
    assert recording(made).pause_s == pytest.approx([0.0, *[1.0] * (REQUESTS - 1)])
    assert recording(replace(made, samples=both)).pause_s == pytest.approx([0.0, *[0.25] * (REQUESTS - 1)])


def test_requests_of_a_log_get_their_ios_though_it_knows_milliseconds() -> None:
    of, exact = recording(logged()), recording(recorded(wakes_s=0.0))
    assert np.diff(of.first).tolist() == [IOS] * REQUESTS
    assert of.latency_s == pytest.approx(exact.latency_s, abs=1.6e-3)
    assert of.slower_s == pytest.approx(-PATH_S, abs=30e-6)  # what is recorded here is done that much sooner
    Predictor(of, thread_of(of)).require_right()


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


def test_requests_count_from_when_each_of_several_devices_kept_all_ios() -> None:
    """One device of a stripe had no room for early I/Os: its waits of 12 requests became computing."""
    made, first = recorded(), REQUESTS // 4
    names = np.where(np.arange(REQUESTS * IOS) % 2, "a-2", "a-1")
    names_column = pa.array(names).cast(TRACE.field("device").type)
    trace = made.telemetry.set_column(TRACE.names.index("device"), TRACE.field("device"), names_column)
    kept = trace.filter(pa.array((names == "a-1") | (np.arange(len(names)) >= first * IOS)))
    note = {"ios": kept.num_rows, "lost": trace.num_rows - kept.num_rows}
    made = replace(made, events=(Event(at_s=0.0, kind="trace", arm="a", fields=note),))
    of = recording_of(made, kept, "a")
    assert np.diff(of.first).tolist() == [IOS] * of.requests
    assert of.requests + of.earlier == REQUESTS
    assert of.requests == REQUESTS - first - 1  # the first I/O that is kept is one of request 12
