"""The difference predicted from fio, and when it, or a limiter, is given as the reason."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from sample_rows import row, table
from small_plan import small_plan
from stored import ROW

from esrally_ebs.analysis.profile import Profile, Window, singles
from esrally_ebs.analysis.reasons import (
    Explanation,
    FioPrediction,
    FioReadTimes,
    fio_read_times,
    own_parts,
    predict,
    sentence,
    why,
)
from esrally_ebs.analysis.rounds import Estimate
from esrally_ebs.store import SessionFolder, load_session

KIB = 1024
US = 1e-6
# Student's t for 4 rounds (3 degrees of freedom) and the normal quantile at 95 %
T_3, Z = 3.182446, 1.959964


def profile(
    reads: float = 4.0,
    size: float = 12 * KIB,
    depth: float = 0.5,
    waited_s: Mapping[str, float] | None = None,
) -> Profile:
    """Ten requests of 10 ms, each with so many reads that took 0.25 ms."""
    requests, seconds = 10, 0.1
    io_s = 0.25e-3 * reads * requests
    grown = {
        "device.reads": reads * requests,
        "device.read_bytes": reads * size * requests,
        "device.read_s": io_s,
        "device.write_s": 0.0,
        "device.weighted_s": depth * seconds,
    }
    grown |= {f"emulator.waited_s.{limit}": s * requests for limit, s in (waited_s or {}).items()}
    return Profile(requests=requests, seconds=seconds, grown=grown)


def line(base_us: float, per_kib_us: float) -> dict[int, float]:
    return {kib * KIB: (base_us + per_kib_us * kib) * US for kib in (4, 16)}


def twice(by_size: Mapping[int, float]) -> FioReadTimes:
    """fio at the session's start and end, with the same result."""
    return {0: by_size, 1: by_size}


def between(
    a: Profile, b: Profile, fio_a: FioReadTimes, fio_b: FioReadTimes, rounds: int = 4
) -> FioPrediction | None:
    of_a, of_b = ({round_: one for round_ in range(1, rounds + 1)} for one in (a, b))
    return predict(of_a, of_b, fio_a, fio_b, confidence=0.95)


def test_a_query_should_differ_by_its_reads_times_what_one_differs_in_fio() -> None:
    # at 12 KiB: 300 + 12 = 312 us on a, 220 + 12 = 232 us on b
    predicted = between(profile(), profile(), twice(line(300, 1)), twice(line(220, 1)))

    assert predicted is not None
    assert predicted.difference_s.value == pytest.approx(4 * (232 - 312) * US)
    assert predicted.per_read_s == pytest.approx(-80 * US)
    assert (predicted.reads, predicted.io_bytes) == (4.0, 12 * KIB)
    # rounds and runs alike: nothing is uncertain
    value = pytest.approx(predicted.difference_s.value)
    assert (predicted.difference_s.low, predicted.difference_s.high) == (value, value)


def test_reads_at_once_are_waited_for_together() -> None:
    predicted = between(profile(depth=2.0), profile(depth=2.0), twice(line(300, 1)), twice(line(220, 1)))

    assert predicted is not None
    assert predicted.difference_s.value == pytest.approx(4 * -80 * US / 2)


def test_the_interval_has_the_spread_of_rounds_and_that_of_fios_runs() -> None:
    # b reads 3, 5, 3, 5 times in its four rounds; its second run of fio is 20 us slower than the first
    of_a = {round_: profile(reads=4) for round_ in (1, 2, 3, 4)}
    of_b = {round_: profile(reads=3 + 2 * (round_ % 2 == 0)) for round_ in (1, 2, 3, 4)}
    fio_b = {0: line(210, 1), 1: line(230, 1)}

    predicted = predict(of_a, of_b, twice(line(300, 1)), fio_b, confidence=0.95)

    assert predicted is not None
    each = 232 * US  # the mean of both runs; so rounds scatter by 2 reads of it
    rounds_error = each * 2 / math.sqrt(3) / math.sqrt(4)  # standard deviation of 3, 5, 3, 5 is 2 / sqrt(3)
    fio_error = 4 * 10 * US  # half the runs' difference, 4 reads on average
    assert predicted.difference_s.low is not None
    half = predicted.difference_s.value - predicted.difference_s.low
    assert half == pytest.approx(math.hypot(T_3 * rounds_error, Z * fio_error), rel=1e-4)


def test_more_runs_of_fio_make_the_interval_narrower() -> None:
    twice_as_often = {run: line(210 + 20 * (run % 2), 1) for run in range(4)}
    halves = []
    for fio_b in (twice_as_often, {run: twice_as_often[run] for run in (0, 1)}):
        predicted = between(profile(), profile(), twice(line(300, 1)), fio_b)
        assert predicted is not None
        assert predicted.difference_s.low is not None
        halves.append(predicted.difference_s.value - predicted.difference_s.low)
    # standard deviation of 210, 230, 210, 230 is 20 / sqrt(3), of 210, 230 it is 20 / sqrt(2)
    assert halves == pytest.approx([Z * 4 * 20 * US / math.sqrt(12), Z * 4 * 10 * US], rel=1e-4)


def test_fio_that_ran_once_gives_an_expectation_without_an_interval() -> None:
    predicted = between(profile(), profile(), {0: line(300, 1)}, {0: line(220, 1)})

    assert predicted is not None
    assert (predicted.difference_s.low, predicted.difference_s.high) == (None, None)


def test_a_query_that_reads_nothing_is_expected_not_to_differ() -> None:
    # no reads on a, some on b: only b's count
    predicted = between(profile(reads=0), profile(), twice(line(300, 1)), twice(line(220, 1)))

    assert predicted is not None
    assert predicted.difference_s.value == pytest.approx(4 * 232 * US)
    assert between(profile(reads=0), profile(reads=0), twice(line(1, 1)), twice(line(1, 1))) is None


@pytest.mark.parametrize(
    ("fio_a", "fio_b"),
    [
        ({}, {}),
        (twice(line(300, 1)), {}),
        (twice({4 * KIB: 300 * US}), twice({4 * KIB: 300 * US})),  # nothing near 12 KiB
        (twice(line(-100, 1)), twice(line(220, 1))),  # a line that gives no time at all
    ],
)
def test_nothing_is_expected_without_fios_word_on_such_reads(
    fio_a: FioReadTimes, fio_b: FioReadTimes
) -> None:
    assert between(profile(), profile(), fio_a, fio_b) is None


def test_one_size_of_fio_is_enough_for_reads_near_it() -> None:
    predicted = between(profile(), profile(), twice({16 * KIB: 300 * US}), twice({16 * KIB: 250 * US}))

    assert predicted is not None
    assert predicted.difference_s.value == pytest.approx(4 * -50 * US)


def test_nothing_is_expected_of_rounds_without_telemetry() -> None:
    unknown = Profile(requests=1, seconds=0.1, grown={})

    assert between(unknown, profile(), twice(line(300, 1)), twice(line(220, 1))) is None
    assert predict({}, {}, {}, {}, confidence=0.95) is None


def test_only_random_reads_one_at_a_time_tell_of_a_cold_search(tmp_path: Path) -> None:
    jobs = [
        {"name": "cold-4k", "rw": "randread", "bs": 4 * KIB},
        {"name": "cold-16k", "rw": "randread", "bs": 16 * KIB, "numjobs": 1, "iodepth": 8, "engine": "psync"},
        {"name": "deep", "rw": "randread", "bs": 4 * KIB, "iodepth": 32, "engine": "libaio"},
        {"name": "many", "rw": "randread", "bs": 4 * KIB, "numjobs": 2},
        {"name": "sequential", "rw": "read", "bs": 4 * KIB},
    ]
    folder = SessionFolder.create(tmp_path, "s", kind="baseline", plan=small_plan(name="x", baseline=jobs))
    row = replace(ROW, arm="gp3", mean_s=1e-3)
    folder.rows_baseline(replace(row, job=str(job["name"]), bs_bytes=int(str(job["bs"]))) for job in jobs)

    assert fio_read_times(load_session(folder.path)) == {"gp3": {0: {4 * KIB: 1e-3, 16 * KIB: 1e-3}}}


PROVEN = Estimate(-0.36e-3, -0.5e-3, -0.2e-3)
EXPECTED = FioPrediction(
    difference_s=Estimate(-0.34e-3, -0.4e-3, -0.3e-3),
    reads=4.2,
    io_bytes=12 * KIB,
    per_read_s=-0.08e-3,
    overlap=1.0,
)


def test_the_reads_are_said_to_be_why_when_fio_and_search_agree() -> None:
    assert sentence(why("gp2", "gp3", [profile(4.2)], [profile(4.2)], EXPECTED, PROVEN)) == (
        "a read takes 0.08 ms longer on gp2 than on gp3 in fio: "
        "that predicts 0.34 ms more per query (measured 0.36 ms)"
    )


def test_reads_that_only_add_up_to_more_are_said_to() -> None:
    same = replace(EXPECTED, per_read_s=0.01e-3)  # as where more of them are in flight at once on gp3
    assert sentence(why("gp2", "gp3", [profile(4.2)], [profile(4.2)], same, PROVEN)) == (
        "the reads of a query add up to more in fio on gp2 than on gp3: "
        "that predicts 0.34 ms more per query (measured 0.36 ms)"
    )


def test_arms_that_read_unequally_often_are_said_to() -> None:
    text = sentence(why("gp2", "gp3", [profile(8.4)], [profile(4.2)], EXPECTED, PROVEN))

    assert "in fio, and gp2 reads 8.4 I/Os per query, gp3 4.2: that predicts" in text


@pytest.mark.parametrize(
    ("prediction", "measured"),
    [
        (EXPECTED, replace(PROVEN, value=0.36e-3, low=0.2e-3, high=0.5e-3)),  # the other way round
        (EXPECTED, replace(PROVEN, value=-3e-3, low=-4e-3, high=-2e-3)),  # far more than expected
        (
            replace(EXPECTED, difference_s=Estimate(-0.34e-3, -0.4e-3, 0.1e-3)),
            PROVEN,
        ),  # fio does not know the direction
        (replace(EXPECTED, difference_s=Estimate(-0.34e-3)), PROVEN),
        (EXPECTED, replace(PROVEN, low=None, high=None)),
        (None, PROVEN),
    ],
)
def test_no_sentence_where_the_data_do_not_say_why(
    prediction: FioPrediction | None, measured: Estimate
) -> None:
    assert why("gp2", "gp3", [profile()], [profile()], prediction, measured) == ()


def test_a_limiter_that_held_back_the_slower_arm_is_named() -> None:
    # 4 reads of 0.25 ms are 1 ms of I/O per query, 0.31 ms of it in the limiter: most of the 0.36 ms
    slow = profile(waited_s={"throughput": 0.31e-3, "iops": 0.0})
    fast = profile(waited_s={"throughput": 0.0, "iops": 0.0})

    reasons = why("gp2", "gp3", [slow], [fast], None, PROVEN)

    assert sentence(reasons) == "gp2 waited 31% of its I/O time in its throughput limiter (gp3 0%)"


def test_a_limit_of_striped_volumes_is_named_by_what_all_of_them_waited() -> None:
    slow = profile(waited_s=dict.fromkeys(("1-iops", "2-iops", "3-iops"), 0.1e-3))

    reasons = why("gp2", "gp3", [slow], [profile(waited_s={"iops": 0.0})], None, PROVEN)

    assert sentence(reasons) == "gp2 waited 30% of its I/O time in its iops limiter (gp3 0%)"


def test_volumes_that_ask_for_more_at_once_do_so_for_no_more_than_all_of_the_time() -> None:
    slow = replace(profile(), grown=profile().grown | {"ebs.exceeded_s.throughput": 0.25})  # of 0.1 s

    (reason,) = why("gp2", "gp3", [slow], [profile()], None, PROVEN)

    assert sentence([reason]) == "gp2 asked for more than its throughput limit for 100% of the time (gp3 0%)"


@pytest.mark.parametrize(
    ("slow_s", "fast_s"),
    [
        (0.05e-3, 0.0),  # 5 % of its I/O
        (0.31e-3, 0.25e-3),  # the faster arm waited nearly as long
        (0.15e-3, 0.0),  # less than half of the 0.36 ms
    ],
)
def test_a_limiter_that_does_not_explain_the_difference_is_not_named(slow_s: float, fast_s: float) -> None:
    slow, fast = (profile(waited_s={"throughput": s}) for s in (slow_s, fast_s))

    assert why("gp2", "gp3", [slow], [fast], None, PROVEN) == ()


def test_a_limiter_that_held_back_few_requests_for_long_does_not_explain_the_middle_one() -> None:
    # one request of six waits for 1.9 ms: 0.32 ms in the mean, most of the 0.36 ms that medians differ by
    calm = profile(waited_s={"throughput": 0.0})
    waiting = profile(reads=16.0, waited_s={"throughput": 1.9e-3})
    assert why("gp2", "gp3", [waiting, *[calm] * 5], [calm] * 6, None, PROVEN) == ()
    alike = profile(reads=6.0, waited_s={"throughput": 0.32e-3})
    assert why("gp2", "gp3", [alike] * 6, [calm] * 6, None, PROVEN)


def test_a_real_volume_that_exceeded_its_limit_in_few_requests_is_not_said_to() -> None:
    calm, exceeding = profile(), profile()
    exceeding = replace(exceeding, grown={**exceeding.grown, "ebs.exceeded_s.volume_throughput": 0.09})
    calm = replace(calm, grown={**calm.grown, "ebs.exceeded_s.volume_throughput": 0.0})
    # 30 % of the time in all, and none of two requests of three
    assert why("gp2", "gp3", [exceeding, calm, calm], [calm], None, PROVEN) == ()


def test_a_limiter_on_the_faster_arm_explains_nothing() -> None:
    assert why("gp2", "gp3", [profile()], [profile(waited_s={"iops": 0.4e-3})], None, PROVEN) == ()


def test_a_real_volume_that_exceeded_its_limit_is_said_to() -> None:
    slow, fast = profile(), profile()
    slow = replace(slow, grown={**slow.grown, "ebs.exceeded_s.volume_throughput": 0.031})

    # 31 of the 100 ms that its requests took
    assert sentence(why("gp2", "gp3", [slow], [fast], None, PROVEN)) == (
        "gp2 asked for more than its volume_throughput limit for 31% of the time (gp3 0%)"
    )


def test_nothing_is_said_of_arms_without_telemetry() -> None:
    assert why("gp2", "gp3", [], [], EXPECTED, PROVEN) == ()


def test_tasks_with_one_reason_get_one_sentence_with_ranges() -> None:
    def waited(share: float, on_faster: float) -> Explanation:
        return Explanation(
            kind="waited", slower="gp2", faster="gp3", limit="iops", share=share, share_on_faster=on_faster
        )

    assert waited(0.2, 0.0).subject == waited(0.4, 0.1).subject
    assert sentence([waited(0.2, 0.0), waited(0.43, 0.02)]) == (
        "gp2 waited 20 to 43% of its I/O time in its iops limiter (gp3 0 to 2%)"
    )


def with_processor(one: Profile, seconds: float) -> Profile:
    return replace(one, grown={**one.grown, "node.processor_s": seconds * one.requests})


def test_what_the_processors_of_the_node_explain_is_no_volumes() -> None:
    of_a, of_b = ([with_processor(profile(), s)] * 5 for s in (4e-3, 7e-3))
    limited = [with_processor(profile(waited_s={"iops": 5e-3}), 4e-3)] * 5
    (reason,) = why("a", "b", of_a, of_b, None, Estimate(5e-3, 4e-3, 6e-3))
    assert (reason.kind, reason.slower) == ("processors", "b")
    assert sentence([reason]) == (
        "a query uses 3.00 ms more of the node's processors on b than on a, which no volume causes (it takes "
        "5.00 ms longer)"
    )
    assert why("a", "b", of_a, of_b, None, Estimate(9e-3, 8e-3, 1e-2)) == ()  # a third of the difference
    assert [reason.kind for reason in why("a", "b", of_a, limited, None, Estimate(5e-3, 4e-3, 6e-3))] == [
        "waited"
    ]


@pytest.mark.parametrize(("others", "ran"), [((1, 2, 3), 2.75), ((0, 0, 0), 1.0)])
def test_what_other_clients_asked_meanwhile_is_no_part_of_a_query(
    others: tuple[int, ...], ran: float
) -> None:
    times = zip((0, *others), (10.0, 9.0, 10.5, 10.25), (1.0, 4.0, 1.0, 0.3), strict=True)
    rows = [row(client=client, started_s=at, service_time_s=took) for client, at, took in times]
    grown = profile(waited_s={"iops": 1e-4}).grown | {"ebs.exceeded_s.throughput": 0.5}
    of = {"arm": "a", "task": "t", "round": 1, "begin": {}, "end": {}, "grown": grown}
    window = Window(**of, requests=1, start_s=10.0, end_s=11.0)  # type: ignore[arg-type]
    ((own,),) = singles(own_parts([window], table(*rows, row(round=2, client=9)))).values()
    assert own.reads == pytest.approx(40 / ran)
    assert own.await_s == pytest.approx(0.25e-3)
    assert own.held_back == {"throughput": 0.5, "iops": pytest.approx(0.1)}
