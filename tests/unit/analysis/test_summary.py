"""Which requests count, and the percentiles of an arm by itself."""

import math

import numpy as np
import pytest
from sample_rows import row, table

from esrally_ebs.analysis.rounds import Estimate
from esrally_ebs.analysis.summary import measured_blocks, summarize
from esrally_ebs.model import Phase


def test_only_measured_successful_requests_count() -> None:
    samples = table(
        row(service_time_s=0.01),
        row(service_time_s=0.03),
        row(service_time_s=9.0, success=False),
        row(service_time_s=9.0, phase=Phase.WARMUP.value),
    )
    (summary,) = summarize(samples)
    assert (summary.requests, summary.failed) == (2, 1)
    assert summary.p50_s == pytest.approx(0.02)


@pytest.mark.parametrize("seconds", [math.nan, math.inf, 0.0, -0.01, None])
def test_what_no_request_can_have_taken_does_not_count(seconds: float | None) -> None:
    (summary,) = summarize(table(row(), row(service_time_s=seconds)))
    assert (summary.requests, summary.p50_s) == (1, 0.03)


def test_the_first_since_a_drop_can_be_taken_apart() -> None:
    samples = table(row(service_time_s=0.05), row(service_time_s=0.01, iteration=2))
    (first,) = summarize(samples, "first")
    assert (first.scope, first.p50_s) == ("first", 0.05)


def test_requests_are_sorted_by_task_arm_and_round() -> None:
    samples = table(
        row(task="u", service_time_s=3.0),
        row(round=2, service_time_s=2.0),
        row(service_time_s=1.0),
        row(arm="b", service_time_s=4.0),
        row(service_time_s=5.0),
    )
    times = {key: {r: list(t) for r, t in by.items()} for key, by in measured_blocks(samples).items()}
    assert times == {("t", "a"): {1: [1.0, 5.0], 2: [2.0]}, ("t", "b"): {1: [4.0]}, ("u", "a"): {1: [3.0]}}


def test_percentiles_of_an_arm_have_intervals_where_enough_requests_reach_them() -> None:
    # 16 rounds x 20 requests = 320: 160 lie beyond p50, 32 beyond p90, 3.2 beyond p99
    draw = np.random.default_rng(1)
    samples = table(
        *(row(round=n, service_time_s=float(draw.lognormal())) for n in range(1, 17) for _ in range(20))
    )
    (summary,) = summarize(samples)
    p50, p90, p99 = summary.percentiles
    assert p50.low is not None
    assert p50.high is not None
    assert p50.low < p50.value < p50.high
    assert p90.low is not None
    assert p99.low is None


def test_a_tail_of_one_arm_has_an_interval_from_twelve_rounds_on() -> None:
    # 50 requests of each round: 5 or more of all lie beyond p90 long before
    draw = np.random.default_rng(1)
    times = draw.lognormal(size=(12, 50))

    def p90(rounds: int) -> Estimate:
        rows = [row(round=n, service_time_s=t) for n in range(rounds) for t in times[n]]
        return summarize(table(*rows))[0].percentile(90)

    assert p90(11).low is None
    estimate = p90(12)
    assert estimate.low is not None
    assert estimate.high is not None
    # a tail is surer towards the many than towards the few
    assert estimate.value - estimate.low < estimate.high - estimate.value


def test_rounds_that_differ_make_an_arm_less_sure_than_its_requests_do() -> None:
    draw = np.random.default_rng(1)
    level = np.exp(draw.normal(0, 0.2, 6))
    times = np.exp(draw.normal(0, 0.01, (6, 50)))
    alike, different = (
        summarize(
            table(
                *(
                    row(round=n, service_time_s=float(time))
                    for n, block in enumerate(times * scale[:, None], start=1)
                    for time in block
                )
            )
        )[0].percentiles[0]
        for scale in (np.ones(6), level)
    )
    assert alike.low is not None
    assert alike.high is not None
    assert alike.high / alike.low < 1.01
    assert different.low is None or different.high is None or different.high / different.low > 1.1


@pytest.mark.parametrize("percentile", [0, 1, 2])
def test_the_value_is_numpys_percentile_of_all_requests(percentile: int) -> None:
    times = np.random.default_rng(2).lognormal(size=(7, 9))
    samples = table(
        *(row(round=n, service_time_s=float(t)) for n, block in enumerate(times, start=1) for t in block)
    )
    (summary,) = summarize(samples)
    wanted = np.percentile(times, [50, 90, 99][percentile])
    assert summary.percentiles[percentile].value == pytest.approx(wanted)
