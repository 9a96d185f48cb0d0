"""The token buckets of esrally_ebs.volumes.emulated.law.buckets, with time as a number."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esrally_ebs.catalog.limits import Accounting, Limit, per_second
from esrally_ebs.volumes.emulated.law.buckets import Limiter, pieces

KIB, MIB, TIB = 1024, 1024**2, 1024**4
SSD = Accounting(max_io_bytes=256 * KIB)
HDD = Accounting(max_io_bytes=MIB, merge_over_bytes=32 * KIB)

Trace = list[tuple[float, int]]  # seconds since the I/O before, bytes

rates = st.integers(100, 20_000)
arrivals = st.lists(
    st.tuples(st.floats(0, 0.05), st.sampled_from([4 * KIB, 16 * KIB, 256 * KIB, MIB])),
    min_size=1,
    max_size=200,
)


def _served(limiter: Limiter, trace: Trace) -> list[tuple[float, int]]:
    """When each I/O of (gap to the one before, bytes) passes the limiter, and its bytes."""
    now, served = 0.0, []
    for gap, size in trace:
        now += gap
        served.append((now + limiter.charge(0, size, now), size))
    return served


@given(rate=rates, trace=arrivals)
def test_no_more_passes_than_rate_times_time_and_one_full_bucket(rate: int, trace: Trace) -> None:
    limiter = Limiter((per_second("iops", "operations", rate),), SSD, 0.0)
    operations = 0
    for at_s, size in _served(limiter, trace):
        operations += max(1, size // (256 * KIB))
        assert operations <= rate * at_s + rate + 1e-6


@given(rate=rates, trace=arrivals)
def test_bytes_are_bounded_as_operations_are(rate: int, trace: Trace) -> None:
    throughput = rate * 16 * KIB
    limiter = Limiter((per_second("throughput", "bytes", throughput),), SSD, 0.0)
    passed = 0
    for at_s, size in _served(limiter, trace):
        passed += size
        assert passed <= throughput * at_s + throughput + 1


@given(iops=rates, throughput=st.integers(MIB, 1000 * MIB), trace=arrivals)
def test_what_arrives_first_passes_first(iops: int, throughput: int, trace: Trace) -> None:
    limits = (per_second("iops", "operations", iops), per_second("throughput", "bytes", throughput))
    times = [at_s for at_s, _ in _served(Limiter(limits, SSD, 0.0), trace)]
    assert all(later >= earlier - 1e-9 for earlier, later in pairwise(times))


@given(rate=rates, factor=st.sampled_from([2, 5, 10]), trace=arrivals)
def test_a_faster_clock_with_faster_rates_gives_the_same_run(rate: int, factor: int, trace: Trace) -> None:
    def run(scale: int) -> list[float]:
        limit = Limit(name="iops", counts="operations", rate=rate * scale, capacity=rate)
        scaled = [(gap / scale, size) for gap, size in trace]
        return [at_s * scale for at_s, _ in _served(Limiter((limit,), SSD, 0.0), scaled)]

    assert run(factor) == pytest.approx(run(1), abs=1e-6)


@given(rate=rates, trace=arrivals)
def test_an_idle_bucket_makes_no_one_wait(rate: int, trace: Trace) -> None:
    limiter = Limiter((per_second("iops", "operations", rate),), SSD, 0.0)
    last = max(at_s for at_s, _ in _served(limiter, trace))
    # A full second after the last I/O has passed, one second's worth of tokens is there again.
    assert limiter.charge(0, 4 * KIB, last + 1.0) == 0.0
    assert limiter.buckets["iops"].level == pytest.approx(rate - 1)


def test_two_fio_jobs_of_128_mib_take_one_second_and_sixteen_take_fifteen() -> None:
    # The published gp2 rows: 128 MiB/s; 256 MiB in all give 1024 IOPS of 256 KiB, 2048 MiB give 546.
    for total_mib, seconds in ((256, 1.0), (2048, 15.0)):
        limiter = Limiter((per_second("throughput", "bytes", 128 * MIB),), SSD, 0.0)
        waits = [limiter.charge(0, 256 * KIB, 0.0) for _ in range(total_mib * 4)]
        assert waits[-1] == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("size", "operations"), [(512, 1), (16 * KIB, 1), (256 * KIB, 1), (257 * KIB, 2), (MIB, 4)]
)
def test_an_io_counts_once_per_started_256_kib(size: int, operations: int) -> None:
    limiter = Limiter((per_second("iops", "operations", 3000),), SSD, 0.0)
    limiter.charge(0, size, 0.0)
    assert limiter.levels(0.0) == {"iops": 3000 - operations}


def test_small_or_scattered_ios_cost_an_hdd_a_whole_mebibyte() -> None:
    limiter = Limiter((per_second("throughput", "bytes", 500 * MIB),), HDD, 0.0)
    limiter.charge(0, 64 * KIB, 0.0)  # nothing came before it: 1 MiB
    limiter.charge(64 * KIB, 64 * KIB, 0.0)  # goes on where that ended: one I/O with it, nothing more
    limiter.charge(128 * KIB, 16 * KIB, 0.0)  # goes on, but is too small to be merged: 1 MiB
    limiter.charge(TIB, 64 * KIB, 0.0)  # elsewhere: 1 MiB
    assert limiter.levels(0.0)["throughput"] == 500 * MIB - 3 * MIB


@pytest.mark.parametrize("requests", [1, 2, 8])
def test_an_io_of_an_hdd_costs_alike_in_how_many_requests_ever_it_comes(requests: int) -> None:
    """The kernel splits an I/O of 1 MiB whose memory lies scattered: 128 pages to a request."""
    limiter = Limiter((per_second("throughput", "bytes", 500 * MIB),), HDD, 0.0)
    size = MIB // requests
    for start in (8 * MIB, 4 * MIB):
        for i in range(requests):
            limiter.charge(start + i * size, size, 0.0)
    limiter.charge(5 * MIB, MIB // 2, 0.0)  # what goes on after that pays for itself
    assert limiter.levels(0.0)["throughput"] == 500 * MIB - 2.5 * MIB


def _gp2(credits: int) -> Limiter:
    burst = per_second("iops", "operations", 3000)
    return Limiter((burst, Limit(name="credits", counts="operations", rate=300, capacity=credits)), SSD, 0.0)


def test_gp2_bursts_until_its_credits_end_and_then_keeps_its_baseline() -> None:
    limiter = _gp2(24_000)
    at_s, passed = 0.0, []
    while at_s < 20:  # one I/O after the other, each sent when the one before has passed
        at_s += limiter.charge(0, 4 * KIB, at_s)
        passed.append(at_s)
    # 24,000 credits that fill by 300 a second, spent at 3000 a second after a first bucketful of 3000:
    # 3000 + 3000 t = 24,000 + 300 t gives t = 7.78 s and 26,333 I/Os; from there 300 a second.
    assert sum(1 for t in passed if t <= 7.5) == pytest.approx(3000 + 3000 * 7.5, rel=0.01)
    assert sum(1 for t in passed if 10 < t <= 20) == pytest.approx(3000, rel=0.01)


def test_credits_are_set_as_a_fraction_and_other_buckets_stay() -> None:
    limiter = _gp2(5_400_000)
    limiter.set_credits(0.5, 0.0)
    assert limiter.levels(0.0) == {"iops": 3000, "credits": 2_700_000}
    limiter.drain(0.0)
    assert limiter.levels(0.0) == {"iops": 0, "credits": 2_700_000}
    limiter.refill(0.0)
    assert limiter.levels(0.0) == {"iops": 3000, "credits": 2_700_000}


def test_an_empty_bucket_is_full_after_one_second_whatever_its_credits() -> None:
    limiter = _gp2(5_400_000)
    limiter.set_credits(0.0, 0.0)
    limiter.drain(0.0)
    assert limiter.seconds_until_full(0.0) == pytest.approx(1.0)
    assert limiter.seconds_until_full(1.0) == 0.0


def test_waiting_is_charged_to_the_limit_that_caused_it() -> None:
    limits = (per_second("iops", "operations", 100), per_second("throughput", "bytes", MIB))
    limiter = Limiter(limits, SSD, 0.0)
    waits = [limiter.charge(0, 256 * KIB, 0.0) for _ in range(6)]
    # 1 MiB is saved up: four I/Os pass; the fifth waits 0.25 s and the sixth 0.5 s, all for throughput.
    assert waits == pytest.approx([0, 0, 0, 0, 0.25, 0.5])
    assert limiter.buckets["throughput"].waited_s == pytest.approx(0.75)
    assert limiter.buckets["iops"].waited_s == 0


def test_a_clock_that_steps_back_gives_no_tokens() -> None:
    limiter = Limiter((per_second("iops", "operations", 100),), SSD, 10.0)
    limiter.drain(10.0)
    assert limiter.levels(9.0) == {"iops": 0}


def test_reads_and_writes_may_cost_different_tokens() -> None:
    # EFS meters a third of what is read: 300 MiB of reads fit where 100 MiB of writes do.
    metered = Limit(name="throughput", counts="bytes", rate=100 * MIB, capacity=100 * MIB, reads=1 / 3)
    for write, mib in ((False, 300), (True, 100)):
        limiter = Limiter((metered,), Accounting(max_io_bytes=MIB), 0.0)
        waits = [limiter.charge(0, MIB, 0.0, write=write) for _ in range(mib + 1)]
        assert max(waits[:-1]) == pytest.approx(0, abs=1e-9)
        assert waits[-1] > 0


def test_a_limit_on_one_direction_never_holds_back_the_other() -> None:
    writes = Limit(name="write-iops", counts="operations", rate=10, capacity=10, reads=0)
    limiter = Limiter((writes,), SSD, 0.0)
    assert [limiter.charge(0, 4 * KIB, 0.0, write=True) for _ in range(20)][-1] == pytest.approx(1.0)
    assert limiter.charge(0, 4 * KIB, 0.0, write=False) == 0.0


def test_a_small_request_is_metered_as_the_least_there_is() -> None:
    limit = per_second("throughput", "bytes", MIB)
    limiter = Limiter((limit,), Accounting(max_io_bytes=MIB, least_bytes=4 * KIB), 0.0)
    limiter.charge(0, 512, 0.0)
    assert limiter.levels(0.0) == {"throughput": MIB - 4 * KIB}


def test_striped_volumes_pass_as_much_as_all_of_them_do() -> None:
    def passed(stripes: int, at_s: float) -> int:
        limit = per_second("iops", "operations", 3000)
        limiter = Limiter((limit,), SSD, 0.0, stripes=stripes, chunk_bytes=256 * KIB)
        # one I/O per chunk: every volume gets every third of them
        return sum(1 for n in range(40_000) if limiter.charge(n * 256 * KIB, 4 * KIB, 0.0) <= at_s)

    assert passed(1, 1.0) == 6000  # a full bucket and one second
    assert passed(3, 1.0) == 18_000


def test_parts_of_a_striped_io_that_wait_at_once_are_counted_once() -> None:
    limits = per_second("iops", "operations", 100), per_second("throughput", "bytes", 10 * MIB)
    limiter = Limiter(limits, SSD, 0.0, stripes=2, chunk_bytes=64 * KIB)
    waits = [limiter.charge(n * 96 * KIB, 128 * KIB, n * 0.001) for n in range(500)]
    assert sum(bucket.waited_s for bucket in limiter.buckets.values()) == pytest.approx(sum(waits))


def test_the_instance_holds_back_what_its_volumes_would_let_through() -> None:
    volume = per_second("throughput", "bytes", 500 * MIB)
    instance = per_second("instance-throughput", "bytes", 100 * MIB)
    limiter = Limiter((volume,), SSD, 0.0, shared=(instance,))
    waits = [limiter.charge(0, 256 * KIB, 0.0) for _ in range(1200)]  # 300 MiB
    assert waits[-1] == pytest.approx(2.0)  # (300 - 100) / 100
    assert limiter.buckets["instance-throughput"].waited_s == pytest.approx(sum(waits))
    assert limiter.buckets["throughput"].waited_s == 0


@given(
    offset=st.integers(0, 8 * MIB),
    size=st.integers(1, 4 * MIB),
    stripes=st.integers(1, 8),
    chunk=st.sampled_from([64 * KIB, 512 * KIB]),
)
def test_pieces_of_a_striped_io_are_all_of_it_and_each_in_one_chunk(
    offset: int, size: int, stripes: int, chunk: int
) -> None:
    parts = list(pieces(offset, size, stripes, chunk))
    assert sum(length for _, _, length in parts) == size
    assert all(start // chunk == (start + length - 1) // chunk for _, start, length in parts)
    assert all(0 <= volume < stripes for volume, _, _ in parts)
    # back to where they came from: the chunk's number is its volume and its place on it
    starts = [(start // chunk * stripes + volume) * chunk + start % chunk for volume, start, _ in parts]
    assert starts == [offset + sum(length for _, _, length in parts[:n]) for n in range(len(parts))]


@given(rate=rates, trace=arrivals)
def test_an_io_waits_only_as_long_as_a_bucket_is_in_debt(rate: int, trace: Trace) -> None:
    limiter = Limiter((per_second("iops", "operations", rate),), SSD, 0.0)
    now = 0.0
    for gap, size in trace:  # work conserving: no wait without debt, and never longer than the debt
        now += gap
        wait = limiter.charge(0, size, now)
        assert wait == pytest.approx(max(0.0, -limiter.buckets["iops"].level / rate))
