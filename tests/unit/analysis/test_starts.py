"""Several starts of the nodes: each is one observation, so what a JVM draws is in every interval."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from esrally_ebs.analysis.compare import Judgement, Verdict, judge
from esrally_ebs.analysis.gate import GateLimit, Outcome, decide
from esrally_ebs.analysis.rounds import Mean
from esrally_ebs.analysis.summary import Blocks, summarize_blocks

ROUNDS, REQUESTS = 4, 5


def blocks(ratios: Sequence[float], *, tasks: int = 1, noise: float = 0.02, seed: int = 0) -> Blocks:
    """b takes ``ratios`` times as long as a, one ratio for each start."""
    draw = np.random.default_rng(seed)
    of_b = np.repeat(ratios, ROUNDS)
    made = {}
    for task in range(tasks):
        times = 0.03 * np.exp(draw.normal(0, noise, (2, len(of_b), REQUESTS)))
        times[1] *= of_b[:, None]
        for arm, own in zip("ab", times, strict=True):
            made[f"t{task}", arm] = dict(enumerate(own, start=1))
    return made


def starts(count: int) -> list[range]:
    return [range(first, first + ROUNDS) for first in range(1, count * ROUNDS, ROUNDS)]


def judged(made: Blocks, count: int) -> Judgement:
    return judge(made, "ab", margin=0.05, confidence=0.95, starts=starts(count))


def test_the_ratio_is_the_geometric_mean_over_starts_with_students_interval() -> None:
    ratios = (1.1, 1.2, 1.35)
    (only,) = judged(blocks(ratios, noise=0.0), 3).comparisons
    logs = np.log(ratios)
    low, high = stats.t.interval(0.95, 2, logs.mean(), stats.sem(logs))
    assert (only.starts, only.rounds) == (3, 12)
    assert only.ratio.value == pytest.approx(math.exp(logs.mean()))
    assert (only.ratio.low, only.ratio.high) == pytest.approx((math.exp(low), math.exp(high)))
    assert only.p_different == pytest.approx(stats.ttest_1samp(logs, 0).pvalue)
    difference = only.percentiles[0].difference_s
    assert difference.value == pytest.approx(0.03 * (np.mean(ratios) - 1))


def test_what_starts_draw_is_no_difference_of_volumes() -> None:
    made = blocks([1.06, 0.97, 1.10, 1.02])
    (of_rounds,) = judge(made, "ab", margin=0.01, confidence=0.95).comparisons
    (of_starts,) = judge(made, "ab", margin=0.01, confidence=0.95, starts=starts(4)).comparisons
    assert of_rounds.verdict is Verdict.SLOWER
    assert of_starts.verdict is Verdict.INCONCLUSIVE
    assert of_starts.more_rounds is None


def test_tasks_are_claimed_only_where_all_together_are() -> None:
    made = blocks([1.2, 1.22, 1.21], tasks=8)
    judgement = judged(made, 3)
    (whole,) = judgement.overall
    assert (whole.verdict, whole.starts) == (Verdict.SLOWER, 3)
    assert {c.verdict for c in judgement.comparisons} == {Verdict.SLOWER}
    assert min(c.p_different or 0 for c in judgement.comparisons) >= (whole.p_different or 0)


def test_all_tasks_together_are_of_the_starts_that_all_tasks_have() -> None:
    ratios = (1.9, 1.1, 1.2, 1.3, 0.6)
    made = dict(blocks(ratios, tasks=2, noise=0.0))
    first, *_, last = starts(5)
    made["t0", "b"] = {r: times for r, times in made["t0", "b"].items() if r not in first}
    made["t1", "b"] = {r: times for r, times in made["t1", "b"].items() if r not in last}
    (whole,) = judged(made, 5).overall
    assert (whole.starts, whole.rounds) == (3, 12)
    assert whole.ratio.value == pytest.approx(math.exp(np.log(ratios[1:4]).mean()))


def test_two_starts_get_no_verdict_and_say_what_is_missing() -> None:
    (only,) = judge(blocks([1.2, 1.2]), "ab", margin=0.05, confidence=0.95, starts=starts(3)).comparisons
    assert (only.verdict, only.ratio.low) == (Verdict.INCONCLUSIVE, None)
    assert only.warnings[-1] == (
        "2 of 3 starts of the nodes (or volumes) were measured: at least 3 are needed for an interval and a "
        "verdict"
    )


@pytest.mark.parametrize(("rounds", "measured"), [(1, 3), (2, 4)])
def test_a_start_that_was_cut_off_counts_from_half_of_its_rounds_on(rounds: int, measured: int) -> None:
    made = blocks([1.2, 1.22, 1.21, 1.8])
    cut = {key: {r: by_round[r] for r in range(1, 13 + rounds)} for key, by_round in made.items()}
    (only,) = judged(cut, 4).comparisons
    assert only.starts == measured
    left_out = "round 13 is left out: a start (or volume) has fewer than half of another's rounds"
    assert (left_out in only.warnings) == (measured == 3)
    assert (only.ratio.value < 1.25) == (measured == 3)


def test_several_rounds_that_are_left_out_are_several() -> None:
    made = blocks([1.2, 1.22, 1.21, 1.8, 1.8])
    cut = {key: {r: by_round[r] for r in (*range(1, 14), 17)} for key, by_round in made.items()}
    (only,) = judged(cut, 5).comparisons
    said = "rounds 13, 17 are left out: a start (or volume) has fewer than half of another's rounds"
    assert said in only.warnings


def test_where_a_start_has_too_few_requests_for_a_tail_it_is_said_of_starts() -> None:
    (only,) = judged(blocks([1.2, 1.21, 1.19]), 3).comparisons  # 60 requests an arm would be enough for p90
    assert only.percentiles[1].ratio.low is None
    assert only.warnings == (
        "p90 and p99: no interval, 20 requests per arm and start (or volume): too few for it",
    )


def test_starts_that_agree_to_the_last_digit_are_equivalent_or_differ() -> None:
    assert judged(blocks([1.0] * 3, noise=0.0), 3).comparisons[0].verdict is Verdict.EQUIVALENT
    assert judged(blocks([1.5] * 3, noise=0.0), 3).comparisons[0].verdict is Verdict.SLOWER


def test_an_arms_own_interval_is_over_starts_too() -> None:
    made = blocks([1.0, 1.5, 0.7])
    of_a, of_b = summarize_blocks(made, {}, starts=starts(3))
    low, high = of_b.percentiles[0].low, of_b.percentiles[0].high
    assert low is not None
    assert high is not None
    assert low < 0.03 * 0.7 < 0.03 * 1.5 < high
    assert of_a.percentiles[1].low is None  # of too few requests at each start
    assert all(each.percentiles[0].low is None for each in summarize_blocks(made, {}, starts=starts(3)[:2]))


@pytest.mark.parametrize(
    ("slowdown", "outcome"), [(0.5, Outcome.PASS), (0.05, Outcome.FAIL), (0.2, Outcome.INCONCLUSIVE)]
)
def test_a_gate_asks_starts(slowdown: float, outcome: Outcome) -> None:
    made = blocks([1.19, 1.21, 1.2])
    comparisons = judged(made, 3).comparisons
    limit = GateLimit(percentile=50, slowdown=slowdown)
    assert decide(comparisons, made, limits=[limit], confidence=0.95).outcome is outcome


def test_the_mean_of_starts_holds_the_truth_whatever_the_jvm_draws() -> None:
    """1,000 sessions of three starts: 95 % hold it, 93 to 97 with a standard error of 0.7."""
    draw = np.random.default_rng(1)
    for jvm in (0.0, 0.01, 0.02):
        means = draw.normal(0.1, math.hypot(jvm, 0.01), (1000, 3))
        intervals = [Mean(tuple(values)).interval(0.95) for values in means.tolist()]
        holding = sum((each.low or 0) <= 0.1 <= (each.high or 0) for each in intervals)
        assert 930 <= holding <= 970
