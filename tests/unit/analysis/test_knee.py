"""The search for the knee on simulated queues, and what it says where there is none."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
import simulated_queue
from hypothesis import given, settings
from hypothesis import strategies as st

from esrally_ebs.analysis.knee import (
    MAX_RATE,
    KneeSearch,
    NextStep,
    Purpose,
    StepResult,
    observe,
)
from esrally_ebs.model import Bound, parse_bound

P99 = Bound(percentile=99, seconds=0.02)
SERVICE_S = np.full(1, 0.005)


def search(bound: Bound = P99, steps: int = 6) -> KneeSearch:
    return KneeSearch(bound=bound, step_s=30.0, steps=steps, confidence=0.975, margin=0.05)


def step(rate: float, requests: int, late: int, **changes: object) -> StepResult:
    fields = {"purpose": Purpose.MEASURE if rate else Purpose.ALONE, "mean_s": 0.005, "quantile_s": 0.005}
    return StepResult(**{**fields, "rate": rate, "requests": requests, "late": late, **changes})  # type: ignore[arg-type]


def test_the_knee_of_a_queue_is_where_it_is() -> None:
    rules = search()
    truth = simulated_queue.true_knee(SERVICE_S, 2, rules, 200_000)
    for seed in range(3):
        knee = rules.knee(simulated_queue.run(rules, SERVICE_S, 2, seed))
        assert knee.rate == pytest.approx(truth, rel=0.08)
        assert knee.low <= truth <= knee.high


def test_the_knee_of_a_queue_with_few_bursts_is_found_by_how_latency_falls_off() -> None:
    rules = search(Bound(percentile=99, seconds=0.05), steps=10)
    truth = 200 - math.log(100) / 0.05  # M/M/1, 5 ms in the mean
    service_s = np.random.default_rng(3).exponential(0.005, 200_000)
    errors = [
        rules.knee(simulated_queue.run(rules, service_s, 1, seed)).rate / truth - 1 for seed in range(40)
    ]
    assert np.mean(np.abs(errors) <= 0.05) >= 0.9  # from late requests alone: 0.75


@pytest.mark.parametrize("seed", range(4))
def test_a_bound_far_beyond_a_query_has_its_knee_between_what_held_and_what_ran_away(seed: int) -> None:
    rules = search(Bound(percentile=99, seconds=0.3), steps=10)
    knee = rules.knee(simulated_queue.run(rules, SERVICE_S, 2, seed))
    assert knee.rate == pytest.approx(391.6, rel=0.05)  # it was 400 to 800, of two servers that make 400
    assert knee.low <= 391.6 <= knee.high


def test_what_queries_take_by_themselves_is_no_tail_of_a_queue() -> None:
    rules = search(Bound(percentile=99, seconds=0.1), steps=10)
    draw = np.random.default_rng(3)  # eight tasks in turn
    tasks_s = (0.022, 0.028, 0.03, 0.035, 0.04, 0.044, 0.06, 0.07)
    service_s = draw.choice(tasks_s, 100_000) * draw.lognormal(0, 0.08, 100_000)
    truth = simulated_queue.true_knee(service_s, 2, rules, 200_000)
    knees = [rules.knee(simulated_queue.run(rules, service_s, 2, seed)) for seed in range(6)]
    assert np.mean([knee.rate for knee in knees]) == pytest.approx(truth, rel=0.1)  # it was 45 % lower
    assert sum(knee.low <= truth <= knee.high for knee in knees) >= 5  # and none


@pytest.mark.parametrize(
    ("alone_s", "share"),
    [
        ([0.005] * 98 + [0.009] * 2, 0.75 * math.exp(-12 * 2 / 29)),
        ([0.018] * 19 + [0.005] * 81, 0.75 * math.exp(-12 * 2 / 29)),  # only as the node has just started
        ([0.005] * 96 + [0.012] * 4, 0.25),  # counted
        ([0.005] * 98 + [0.018] * 2, 0.25),  # few, and near the bound
        ([0.019] * 96 + [math.inf] * 4, 0.25),
    ],
)
def test_late_ones_are_counted_where_queries_alone_come_near_the_bound(
    alone_s: list[float], share: float
) -> None:
    times, first = np.array(alone_s), NextStep(purpose=Purpose.ALONE, rate=0.0, seconds=8.0)
    alone = observe(first, np.arange(100.0), times, times, P99)
    latency = np.array([0.001, 0.0165, 0.0165, 0.5])
    made = observe(
        NextStep(purpose=Purpose.MEASURE, rate=1.0, seconds=4.0), latency * 0, latency, latency, P99, alone
    )
    assert made.share == pytest.approx(share)


def test_the_knee_of_a_server_that_takes_queries_by_the_batch_is_where_it_is() -> None:
    """Most wait for two batches of 24 ms: close to the bound, and never long alone."""
    rules, draw = search(Bound(percentile=99, seconds=0.06), steps=10), np.random.default_rng(1)
    steps = list[StepResult]()
    while (step := rules.next(steps)) is not None:
        due = np.sort(draw.random(step.due)) * step.seconds
        latency = batches(due) if step.rate else np.full(800, 0.009)
        steps.append(observe(step, due if step.rate else latency.cumsum(), latency, latency, rules.bound))
    knee = rules.knee(steps)
    assert knee.rate == pytest.approx(590, rel=0.05)  # it was 551 [520, 575]
    assert knee.low <= 590 <= knee.high


@pytest.mark.parametrize("seed", range(2))
def test_the_knee_of_servers_that_take_as_long_for_each_is_not_too_high(seed: int) -> None:
    rules = search(Bound(percentile=99, seconds=0.025), steps=10)
    knee = rules.knee(simulated_queue.run(rules, np.full(1, 0.01), 3, seed))
    assert knee.rate == pytest.approx(185.6, rel=0.05)
    assert knee.low <= 185.6 <= knee.high


def batches(due_s: simulated_queue.Floats) -> simulated_queue.Floats:
    """Latencies of a server that takes up to 16 waiting requests at once, 8 ms and 1 ms for each."""
    latency, now_s, first = np.empty(len(due_s)), 0.0, 0
    while first < len(due_s):
        now_s = max(now_s, due_s[first])
        last = min(first + 16, int(np.searchsorted(due_s, now_s, "right")))
        now_s += 0.008 + 0.001 * (last - first)
        latency[first:last] = now_s - due_s[first:last]
        first = last
    return latency


def test_failed_requests_are_no_part_of_how_latency_falls_off() -> None:
    """As a full node rejects queries at once, and none that it takes is late."""
    latency = np.array([0.005] * 90 + [0.01] * 6 + [math.inf] * 4)
    step_ = NextStep(purpose=Purpose.MEASURE, rate=10.0, seconds=10.0)
    made = observe(step_, np.zeros(100), latency, np.full(100, 0.005), P99)
    assert made.share == pytest.approx(0.04 + 0.06 * math.exp(-6))  # 12 ms from 8 ms on, 2 ms on average


def test_of_a_median_as_many_may_be_late_as_not() -> None:
    rules = search(Bound(percentile=50, seconds=0.01), steps=10)
    service_s = np.random.default_rng(3).lognormal(math.log(0.005), 0.3, 100_000)
    truth = simulated_queue.true_knee(service_s, 1, rules, 100_000)
    knees = [rules.knee(simulated_queue.run(rules, service_s, 1, seed)).rate for seed in range(6)]
    assert np.mean(knees) == pytest.approx(truth, rel=0.02)


def test_a_knee_is_not_above_rates_that_all_break_the_bound() -> None:
    rules = search(Bound(percentile=90, seconds=0.03), steps=10)
    service_s = np.random.default_rng(3).exponential(0.01, 200_000)
    truth = 100 - math.log(10) / 0.03  # M/M/1; without any queue half of those that may be late are
    knees = [rules.knee(simulated_queue.run(rules, service_s, 1, seed)).rate for seed in range(12)]
    assert np.mean(knees) == pytest.approx(truth, rel=0.15)  # by probes in which 30 % might be late: 1.55
    assert max(knees) < 1.3 * truth


def test_where_long_steps_break_what_held_in_probes_lower_rates_are_probed() -> None:
    probe = {"purpose": Purpose.PROBE}
    steps = [step(0, 100, 0), step(40, 300, 0, **probe), *[step(50, 400, 90, **probe)] * 2]
    measured = [step(40, 1200, 90), step(38, 1200, 90)]
    lower = search().next([*steps, *measured])
    assert lower is not None
    assert (lower.purpose, lower.rate) == (Purpose.PROBE, 9.5)
    again = search().next([*steps, *measured, step(9.5, 280, 0, **probe)])
    assert again is not None
    assert again.purpose is Purpose.MEASURE


def test_longer_steps_make_the_interval_narrower() -> None:
    widths = []
    for step_s in (30.0, 120.0):
        rules = KneeSearch(bound=P99, step_s=step_s, steps=6, confidence=0.975, margin=0.01)
        widths.append(rules.knee(simulated_queue.run(rules, SERVICE_S, 2, 1)).width)
    assert widths[1] < 0.7 * widths[0]


@settings(max_examples=30)
@given(st.floats(0.1, 5.0), st.floats(0.0, 100.0))
def test_the_share_of_late_requests_is_that_of_an_exponential_however_late_they_are(
    fall: float, stall_s: float
) -> None:
    ranks = (np.arange(20_000) + 0.5) / 20_000
    latency_s = -np.log(ranks) * P99.seconds / fall
    latency_s[latency_s > P99.seconds] += stall_s
    due_s = np.random.default_rng(1).permutation(20_000) / 20_000.0
    made = observe(
        NextStep(purpose=Purpose.MEASURE, rate=20_000.0, seconds=1.0), due_s, latency_s, latency_s, P99
    )
    assert made.share == pytest.approx(math.exp(-fall), rel=0.1, abs=2e-4)


def test_a_step_in_which_nothing_comes_near_the_bound_has_no_late_share() -> None:
    times = np.linspace(0, 1, 50)
    made = observe(
        NextStep(purpose=Purpose.MEASURE, rate=50.0, seconds=1.0), times, times * 0 + 1e-3, times, P99
    )
    assert made.share == 0.0


def test_a_bound_that_a_query_alone_breaks_ends_the_search_at_once() -> None:
    rules = search(Bound(percentile=99, seconds=0.001))
    steps = simulated_queue.run(rules, SERVICE_S, 2, 1)
    assert len(steps) == 1
    assert rules.knee(steps).why == "no rate holds it: alone a query takes 5 ms (p99)"


def test_how_long_a_slow_query_takes_alone_is_said_without_an_exponent() -> None:
    knee = search().knee([step(0, 100, 60, quantile_s=1.5)])
    assert knee.why == "no rate holds it: alone a query takes 1.5 s (p99)"


def test_queries_of_which_too_many_fail_are_not_said_to_be_slow() -> None:
    knee = search().knee([step(0, 100, 60, quantile_s=math.inf)])
    assert knee.why == "no rate holds it: asked alone, more than 1% of the queries fail"


def test_a_bound_that_is_never_broken_says_up_to_which_rate() -> None:
    rules = search(Bound(percentile=99, seconds=60.0))
    steps = simulated_queue.run(rules, np.full(1, 1e-4), 4, 1)
    knee = rules.knee(steps)
    assert knee.why == f"it held up to {steps[-1].rate:,.0f}/s for 8 s, and the load generator makes no more"
    assert MAX_RATE / 2 < steps[-1].rate <= MAX_RATE


def test_a_search_that_ended_before_the_bound_broke_says_for_how_long_it_held() -> None:
    rules = search(Bound(percentile=90, seconds=20.0))  # longer than the step that held
    probe = step(13, 85, 2, purpose=Purpose.PROBE)
    said = "it held up to 13/s for 8 s, and no higher rate was tried: raise design.budget"
    assert rules.knee([step(0, 7, 0), probe]).why == said
    low = step(0.2, 5, 0, purpose=Purpose.PROBE)
    assert "it held up to 0.2/s for 30 s, and" in rules.knee([step(0, 7, 0), low]).why


def test_a_search_that_began_too_low_for_its_short_steps_says_so() -> None:
    probes = [step(0.01 * 2**number, 400, 0, purpose=Purpose.PROBE) for number in range(16)]
    steps = [step(0, 1, 0, mean_s=50.0), *probes]  # the first query of a node that has just started
    assert search().next(steps) is None
    assert search().knee(steps).why == (
        "it held up to 328/s for 8 s, and 16 short steps went no higher, as the first queries were slow:"
        " search again"
    )
    assert "no higher rate was tried: raise design.budget" in search().knee(steps[:-1]).why


def test_a_bound_that_breaks_at_every_rate_says_down_to_which() -> None:
    steps = [step(0, 100, 0), *(step(100 / 4**n, 100, 50, purpose=Purpose.PROBE) for n in range(16))]
    assert search().next(steps) is None
    assert search().knee(steps).why.startswith("no rate holds it, down to")


def test_a_probe_that_broke_is_made_again_and_counts_by_its_last() -> None:
    probe = {"purpose": Purpose.PROBE}
    broke = step(12, 100, 80, **probe, ran_away=True)  # while the node compiled its code
    steps = [step(0, 100, 0), step(10, 100, 0, **probe), broke]
    again = NextStep(purpose=Purpose.PROBE, rate=12, seconds=pytest.approx(25.0))
    assert search().next(steps) == again
    probed = search().next([*steps, step(12, 100, 0, **probe)])
    assert probed is not None
    assert (probed.purpose, probed.rate) == (Purpose.PROBE, 24)
    measure = search().next([*steps, broke])
    assert measure is not None
    assert measure.purpose is Purpose.MEASURE


def test_few_requests_are_doubted() -> None:
    steps = [step(0, 100, 0), step(2, 50, 0), step(4, 100, 1), step(5, 120, 60, ran_away=True)]
    assert search().knee(steps).doubt.startswith("the bound allows 2.7 late requests")


def test_a_bound_that_a_step_is_too_short_for_is_doubted() -> None:
    steps = [step(0, 1500, 0), step(380, 9000, 0), step(420, 9000, 6000, ran_away=True)]
    knee = search(Bound(percentile=99, seconds=3.0)).knee(steps)
    assert knee.doubt.startswith(
        "at a rate 10.0% above what is served, the bound breaks only as a step of 30"
    )
    assert knee.doubt.endswith("make steps 120 s or longer")
    knee = search(Bound(percentile=99, seconds=30.0)).knee(steps)
    assert knee.doubt.endswith("ends: steps of 10 min, the longest, have 5.0%")


def test_the_interval_of_a_bound_that_a_step_is_too_short_for_reaches_down_to_what_is_served() -> None:
    rules = search(Bound(percentile=99, seconds=20.0))
    knee = rules.knee(simulated_queue.run(rules, np.full(1, 1.0), 4, 1))  # four servers, a second each
    assert knee.low <= 3.9 <= knee.high
    assert knee.doubt.startswith("at a rate 66.7% above what is served")  # not that too few were late


def test_queries_that_break_the_bound_by_themselves_are_doubted() -> None:
    service_s = np.where(np.random.default_rng(3).random(200_000) < 0.012, 0.03, 0.0045)
    rules = KneeSearch(bound=P99, step_s=30.0, steps=10, confidence=0.975, margin=0.05)
    knee = rules.knee(simulated_queue.run(rules, service_s, 2, 0))  # no rate has 99 % within the bound
    said = r"up to \d+/s 1\.\d\d% of the requests were late, the bound allows 1%"
    assert re.match(said, knee.doubt)


def test_a_knee_below_all_long_steps_is_doubted_where_these_break_the_bound() -> None:
    probes = [step(100, 640, 0, purpose=Purpose.PROBE), step(400, 2500, 2500, ran_away=True)]
    long = [step(rate, 20_000, 600) for rate in (190.0, 200.0, 220.0, 250.0, 300.0)]  # a stall a minute
    knee = search().knee([step(0, 1500, 0), *probes, *long])
    assert knee.rate < 190
    assert knee.doubt.startswith("up to 190/s 2.91% of the requests were late, the bound allows 1%")


@pytest.mark.parametrize(
    ("late", "doubt"),
    [
        ((30, 55, 21, 40, 34), ""),  # bursts of a queue with one server, by chance
        ((30, 85, 41, 60, 54), "up to 107/s 2.08% of the requests were late"),
    ],
)
def test_more_late_requests_below_a_knee_than_by_chance_are_doubted(
    late: tuple[int, ...], doubt: str
) -> None:
    below = [step(rate, 2600, count) for rate, count in zip((103, 104, 105, 106, 107), late, strict=True)]
    above = [step(rate, 2600, 200) for rate in (109, 110, 111, 112, 113)]
    shares = [replace(one, share=0.009 if one.rate < 108 else 0.013) for one in (*below, *above)]
    knee = search(Bound(percentile=99, seconds=0.05)).knee([step(0, 1500, 0), *shares])
    assert knee.rate == pytest.approx(107.5, rel=0.02)
    assert knee.doubt[: len(doubt) or None] == doubt


@pytest.mark.parametrize(("failed", "doubt"), [(52, "up to 165/s 0.76% of the requests were late"), (20, "")])
def test_queries_that_fail_by_themselves_almost_as_often_as_the_bound_allows_are_doubted(
    failed: int, doubt: str
) -> None:
    probes = [step(100, 3400, failed // 2), step(150, 3400, failed // 2)]
    long = [step(rate, 6400, late) for rate, late in ((270, 55), (275, 60), (280, 64), (285, 80), (290, 99))]
    knee = search().knee([step(0, 1500, 10), *probes, *long, step(400, 2500, 2500, ran_away=True)])
    assert knee.doubt[: len(doubt) or None] == doubt


def test_queries_that_are_late_by_themselves_less_often_than_allowed_are_no_doubt() -> None:
    """29 % of thousands are surely fewer than the half that the bound of a median allows."""
    long = [step(rate, 6400, late) for rate, late in ((640, 2900), (650, 3000), (660, 3150), (670, 3250))]
    probes = [step(100, 3400, 990), step(400, 3400, 990), step(900, 7000, 7000, ran_away=True)]
    bound = Bound(percentile=50, seconds=0.02)
    assert not search(bound).knee([step(0, 1500, 440), *probes, *long]).may_be_lower


def test_many_late_requests_below_a_rate_with_few_are_doubted() -> None:
    def doubt(*late: int) -> str:
        rates = (255, 260, 265, 270, 275, 280)
        long = [step(rate, 6400, count) for rate, count in zip(rates, late, strict=True)]
        return search().knee([step(0, 1500, 0), *long, step(400, 2500, 2500, ran_away=True)]).doubt

    assert doubt(0, 0, 260, 31, 100, 100) == (
        "4.06% of the requests were late in a step at 265/s, 0.48% were late in one at 270/s: late ones come"
        " in bursts, as of stalls; make steps longer, since the knee may be lower, or none"
    )
    assert not doubt(0, 0, 255, 31, 100, 100)
    assert not doubt(0, 0, 260, 33, 100, 100)
    assert not doubt(0, 0, 31, 64, 256, 400)  # a queue


def test_the_lowest_rate_that_was_tried_is_doubted_where_more_are_late_than_the_bound_allows() -> None:
    long = [step(rate, 1500, 30) for rate in (50.0, 55.0, 60.0, 65.0, 70.0)]
    knee = search().knee([step(0, 1000, 12), *long, step(200, 1500, 1500, ran_away=True)])
    assert knee.rate == pytest.approx(50)
    assert knee.doubt.startswith("up to 50/s 2.00% of the requests were late, the bound allows 1%")


def test_what_runs_away_is_seen_by_its_end() -> None:
    due = np.linspace(0, 30, 1000)
    made = observe(
        NextStep(purpose=Purpose.PROBE, rate=33.0, seconds=30.0), due, due / 30, due * 0 + 0.01, P99
    )
    assert made.ran_away
    assert made.requests == 800  # without the first fifth


@pytest.mark.parametrize("ends_s", [5.0, 20.0, 28.5])
def test_what_a_stall_kept_from_being_sent_is_late(ends_s: float) -> None:
    """All clients wait for the volume, so a step is ended before most of what was due meanwhile is sent."""
    stalled = NextStep(purpose=Purpose.MEASURE, rate=100.0, seconds=30.0)
    due = np.linspace(0, 30, 3000)
    due = due[due <= ends_s]
    latency = np.where(np.arange(len(due)) < len(due) - 32, 0.005, 3.0)  # as many as there are clients
    made = observe(stalled, due, latency, np.full(len(due), 0.005), Bound(percentile=99, seconds=0.1))
    assert made.requests == pytest.approx(2400, abs=1)
    assert made.late == pytest.approx(min(2400, 100 * (30 - ends_s) + 32), abs=2)


def test_at_the_knee_of_a_median_a_step_does_not_run_away() -> None:
    due = np.linspace(0, 30, 1000)
    latency = np.where(np.arange(1000) % 20 < 11, 0.03, 0.01)  # 55 % are late
    bound = Bound(percentile=50, seconds=0.02)
    made = observe(NextStep(purpose=Purpose.MEASURE, rate=33.0, seconds=30.0), due, latency, latency, bound)
    assert not made.ran_away


def test_a_failed_request_is_late() -> None:
    step_ = NextStep(purpose=Purpose.PROBE, rate=0.3, seconds=10.0)
    times = np.array([0.0, 5.0, 9.0])
    made = observe(step_, times, np.array([0.001, math.inf, 0.001]), times * 0 + 0.001, P99)
    assert (made.requests, made.late) == (2, 1)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(1, 4000), st.integers(1, 5000), st.floats(0, 1)), min_size=1, max_size=12)
)
def test_a_knee_lies_between_rates_that_were_tried_and_within_its_interval(
    tried: list[tuple[float, int, float]],
) -> None:
    steps = [step(0, 100, 0), *(step(rate, count, int(share * count)) for rate, count, share in tried)]
    knee = search().knee(steps)
    rates = [rate for rate, *_ in tried]
    if not knee.why:
        assert min(rates) * 0.999 <= knee.rate <= max(rates) * 1.001
        assert knee.low <= knee.rate * 1.001
        assert knee.high >= knee.rate * 0.999


@pytest.mark.parametrize(
    "text", ["p99", "p99=", "p101=1s", "p99=100", "p99=0ms", "99=1s", "p9=1s", "p99=x", ""]
)
def test_a_bound_that_is_none_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(Exception, match=r"^--latency .*(write|number)") as raised:
        parse_bound(text, "--latency")
    assert "\n" not in str(raised.value)


def test_a_bound_says_what_it_is() -> None:
    assert str(parse_bound("p99.9 = 0.1s", "--keep")) == "p99.9 of 100 ms"
    assert str(parse_bound("p99=20m", "--keep")) == "p99 of 1200000 ms"  # 1.2e+06 is no time to 'knee'
    assert str(parse_bound("p99=28.9ms", "--keep")) == "p99 of 28.9 ms"
