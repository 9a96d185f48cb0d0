"""The interval of a percentile of one arm and of two, when rounds are what is drawn."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from esrally_ebs.analysis.multiplicity import holm
from esrally_ebs.analysis.rounds import ArmTimes, Estimate, Mean, Pair, edges, off_line, student

Times = list[list[float]]  # by round

values = st.lists(st.lists(st.floats(1e-3, 10.0), min_size=1, max_size=6), min_size=2, max_size=6)


def arm(times: Times) -> ArmTimes:
    return ArmTimes([np.array(block) for block in times])


def drawn(seed: int, *, rounds: int = 10, requests: int = 20, scale: float = 1.0) -> ArmTimes:
    draw = np.random.default_rng(seed)
    return ArmTimes([scale * block for block in np.exp(draw.normal(0, 0.2, (rounds, requests)))])


@given(values, values, st.sampled_from([10, 50, 90, 99]), st.floats(0.1, 10.0))
@settings(max_examples=200, deadline=None)
def test_the_common_percentile_is_that_of_all_requests_of_both(
    a: Times, b: Times, percentile: int, ratio: float
) -> None:
    pair = Pair(arm(a), arm(b))
    together = np.concatenate([pair.a.all, pair.b.all / ratio])
    at_a, at_b = pair._common(percentile, ratio, 0.0)
    wanted = np.percentile(together, percentile, method="averaged_inverted_cdf")
    assert at_a == pytest.approx(wanted)
    assert at_b == pytest.approx(wanted * ratio)


@given(values)
@settings(max_examples=50, deadline=None)
def test_an_arm_against_itself_has_no_evidence_of_a_difference(times: Times) -> None:
    pair = Pair(arm(times), arm(times))
    assert not np.any(pair.evidence(50))
    assert student(pair.evidence(50)) == 0


@given(values, values, st.sampled_from([50, 90]))
@settings(max_examples=50, deadline=None)
def test_swapping_the_arms_turns_the_evidence_round(a: Times, b: Times, percentile: int) -> None:
    shared = min(len(a), len(b))
    one, other = arm(a[:shared]), arm(b[:shared])
    forth, back = Pair(one, other).evidence(percentile), Pair(other, one).evidence(percentile)
    assert forth == pytest.approx(-back)


def test_evidence_is_the_difference_of_the_fractions_below_round_by_round() -> None:
    # both together: 1 2 3 4 | 5 6 7 8, so 4.5 halves them; below it lie 2 of 2, 1 of 2 (a) and 0, 1 (b)
    pair = Pair(arm([[1.0, 2.0], [3.0, 8.0]]), arm([[5.0, 6.0], [4.0, 7.0]]))
    # a: (2 - 1) / 4 and (1 - 1) / 4; b: (0 - 1) / 4 and (1 - 1) / 4
    assert list(pair.evidence(50)) == [0.5, 0.0]


def test_the_interval_of_a_ratio_holds_the_ratio_and_narrows_with_rounds() -> None:
    few, many = (
        Pair(drawn(1, rounds=rounds), drawn(2, rounds=rounds, scale=1.1)).ratio(50, 0.95)
        for rounds in (8, 80)
    )
    for estimate in (few, many):
        assert estimate.low is not None
        assert estimate.high is not None
        assert estimate.low < estimate.value < estimate.high
    assert many.low is not None
    assert many.high is not None
    assert few.low is not None
    assert few.high is not None
    # ten times the rounds: a third of the width
    assert 0.2 < math.log(many.high / many.low) / math.log(few.high / few.low) < 0.5


def test_the_interval_of_a_difference_is_in_seconds() -> None:
    a = drawn(1, rounds=40)
    shifted = ArmTimes([block + 0.5 for block in drawn(2, rounds=40).rounds])
    estimate = Pair(a, shifted).difference(50, 0.95)
    assert estimate.low is not None
    assert estimate.high is not None
    assert estimate.low < 0.5 < estimate.high
    assert estimate.high - estimate.low < 0.1


def test_a_greater_confidence_needs_a_wider_interval() -> None:
    pair = Pair(drawn(1), drawn(2))
    narrow, wide = pair.ratio(50, 0.9), pair.ratio(50, 0.99)
    assert wide.low is not None
    assert narrow.low is not None
    assert wide.low < narrow.low


def test_a_drift_does_not_widen_an_arms_own_interval() -> None:
    still = drawn(3, rounds=12, requests=50)
    drift = np.linspace(0.85, 1.15, 12)
    drifting = ArmTimes([block * scale for block, scale in zip(still.rounds, drift, strict=True)])
    widths = []
    for estimate in (one.interval(50, 0.95) for one in (still, drifting)):
        assert estimate.low is not None
        assert estimate.high is not None
        assert estimate.low < estimate.value < estimate.high
        widths.append(math.log(estimate.high / estimate.low))
    assert widths[1] < 2 * widths[0]  # where the drift counts as chance, 3.8 times


@given(st.lists(st.floats(-1.0, 1.0), min_size=6, max_size=30), st.floats(-3.0, 3.0))
@settings(max_examples=50, deadline=None)
def test_what_lies_off_a_line_does_not_depend_on_the_line(rounds: list[float], slope: float) -> None:
    evidence, line = np.array(rounds), slope * np.arange(len(rounds))
    assert off_line(evidence + line) == pytest.approx(off_line(evidence), abs=1e-9)
    assert off_line(line) == pytest.approx(0.0, abs=1e-9)


def test_one_round_that_is_unlike_the_others_counts_as_much_at_an_end_as_in_the_middle() -> None:
    spreads = [off_line(np.array([float(at == place) for at in range(12)])) for place in (0, 6, 11)]
    assert spreads == pytest.approx([spreads[1]] * 3, rel=0.1)


def test_the_interval_of_a_tail_is_the_binomial_one_of_as_many_independent_requests() -> None:
    # 40 rounds of 10 requests, one beyond p90 in each: what a round was like says nothing, so 400 requests
    # are 400, less what Student's t asks for with 39 degrees of freedom: (1.960 / 2.023)^2 x 400 = 375.6
    times = np.arange(400.0).reshape(10, 40).T
    estimate = ArmTimes(list(times)).interval(90, 0.95)
    low, high = (stats.beta.ppf(q, *k) for q, k in ((0.025, (338.0, 38.6)), (0.975, (339.0, 37.6))))
    assert estimate.low == pytest.approx(399 * low, abs=0.5)
    assert estimate.high == pytest.approx(399 * high, abs=0.5)


def test_a_tail_whose_end_lies_beyond_the_slowest_request_has_no_interval() -> None:
    # one round of twelve holds all that is slow: as good as one observation of the tail
    times = [np.linspace(1.0, 1.1, 10) for _ in range(11)] + [np.linspace(5.0, 9.0, 10)]
    assert ArmTimes(times).interval(90, 0.95).low is None


def test_requests_of_a_percentile_that_lie_in_one_round_give_no_interval() -> None:
    quiet = [[1.0 + n / 1000 for n in range(50)] for _ in range(5)]
    stormy = [[10.0 + n for n in range(50)]]
    pair = Pair(arm(quiet + stormy), arm(quiet + stormy))
    assert pair.ratio(99, 0.95) == Estimate(1.0)


def test_rounds_that_all_say_the_same_are_beyond_doubt() -> None:
    assert student(np.full(6, 0.2)) == math.inf
    assert student(np.full(6, -0.2)) == -math.inf
    assert student(np.zeros(6)) == 0


def test_students_t_is_that_of_the_textbook() -> None:
    # mean 2, deviation 1, three rounds: 2 / (1 / sqrt(3))
    assert student(np.array([1.0, 2.0, 3.0])) == pytest.approx(2 * math.sqrt(3))


def test_edges_are_where_values_stop_being_kept() -> None:
    low, high = edges(lambda x: -0.3 <= x <= 2.5, 0.1)
    assert low == pytest.approx(-0.3, abs=0.001)
    assert high == pytest.approx(2.5, abs=0.003)


def test_a_side_without_an_end_has_none() -> None:
    low, high = edges(lambda x: x >= 0, 1.0)
    assert low == pytest.approx(0, abs=0.001)
    assert high is None


def test_holm_multiplies_the_smallest_by_all_and_keeps_the_order() -> None:
    # 0.01 x 3 = 0.03; 0.02 x 2 = 0.04; 0.03 x 1 = 0.03, raised to 0.04
    assert holm([0.03, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([]) == []


def test_what_each_round_says_of_a_ratio_has_the_ratio_for_its_mean_and_its_error_for_its_spread() -> None:
    pairs = [
        Pair(drawn(2 * seed, rounds=12), drawn(2 * seed + 1, rounds=12, scale=1.1)) for seed in range(200)
    ]
    means = [Mean(values) for pair in pairs if (values := pair.log_ratios(50)) is not None]
    ratios = [math.log(pair.b.percentile(50) / pair.a.percentile(50)) for pair in pairs]
    assert [mean.value for mean in means] == pytest.approx(ratios)
    error = math.sqrt(np.mean([mean.error**2 for mean in means]))
    assert np.std(ratios) == pytest.approx(error, rel=0.2)


def pair_with_hits(draw: np.random.Generator, rounds: int, share: float, took: float) -> Pair:
    """Like arms, a cache answers a share of whose requests in a part of the time."""

    def arm_with_hits() -> ArmTimes:
        noise = draw.normal(0, 0.05, (rounds, 1)) + draw.normal(0, 0.1, (rounds, 4))
        return ArmTimes(list(np.where(draw.random((rounds, 4)) < share, took, 1.0) * np.exp(noise)))

    return Pair(arm_with_hits(), arm_with_hits())


def test_requests_that_a_cache_answers_do_not_make_a_ratio_less_sure_than_it_is() -> None:
    draw = np.random.default_rng(4)
    pairs = [pair_with_hits(draw, 24, 0.3, 0.2) for _ in range(300)]
    means = [Mean(values) for pair in pairs if (values := pair.log_ratios(50)) is not None]
    error = math.sqrt(np.mean([mean.error**2 for mean in means]))
    assert len(means) == len(pairs)
    assert np.std([mean.value for mean in means]) == pytest.approx(error, rel=0.25)


def test_tasks_of_like_arms_of_which_a_cache_answers_half_are_rarely_different_together() -> None:
    draw = np.random.default_rng(4)

    def of_three_tasks() -> Mean:
        tasks = [pair_with_hits(draw, 12, 0.5, 0.05).log_ratios(50) for _ in range(3)]
        return Mean(tuple(np.mean([values for values in tasks if values is not None], axis=0).tolist()))

    assert sum(of_three_tasks().p_different() <= 0.05 for _ in range(300)) <= 24


def test_rounds_in_the_same_order_on_both_arms_do_not_agree_on_a_ratio_without_any_error() -> None:
    draw = np.random.default_rng(3)
    levels = np.arange(1.0, 13.0)
    a, b = (arm([[level] for level in levels * np.exp(draw.normal(0, 0.01, 12))]) for _ in range(2))
    assert not Pair(a, b).evidence(50, b.percentile(50) / a.percentile(50)).any()
    values = Pair(a, b).log_ratios(50)
    assert values is not None
    assert Mean(values).error > 0.001
    assert Mean(Pair(arm([[1.0]] * 6), arm([[2.0]] * 6)).log_ratios(50) or ()).value == pytest.approx(
        math.log(2)
    )
