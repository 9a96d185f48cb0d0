"""Verdicts: right where the answer is known, silent where it is not, and blind to what does not matter."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esrally_ebs.analysis.compare import Comparison, Judgement, Verdict, judge
from esrally_ebs.analysis.gate import GateLimit, decide
from esrally_ebs.analysis.summary import MIN_ROUNDS, Blocks

Times = list[list[float]]  # by round


def blocks(**tasks: tuple[Times, Times]) -> Blocks:
    return {
        (task, arm): {number: np.array(times) for number, times in enumerate(rounds, start=1)}
        for task, both in tasks.items()
        for arm, rounds in zip(("a", "b"), both, strict=True)
    }


def verdict_on(a: Times, b: Times, *, margin: float = 0.05, confidence: float = 0.95) -> Comparison:
    (comparison,) = judge(blocks(task=(a, b)), ("a", "b"), margin=margin, confidence=confidence).comparisons
    return comparison


def width(comparison: Comparison) -> float:
    """Of the interval of the 50th percentile's ratio, as a difference of logarithms."""
    ratio = comparison.percentiles[0].ratio
    assert ratio.low is not None
    assert ratio.high is not None
    return math.log(ratio.high / ratio.low)


def rounds(
    scale: float = 1.0, *, noise: float = 0.01, count: int = 6, requests: int = 5, seed: int = 1
) -> Times:
    draw = np.random.default_rng(seed)
    return [
        list(0.03 * scale * np.exp(draw.normal(0, noise)) * np.exp(draw.normal(0, noise, requests)))
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("scale", "verdict"),
    [(1.2, Verdict.SLOWER), (1 / 1.2, Verdict.FASTER), (1.0, Verdict.EQUIVALENT)],
)
def test_a_clear_answer_is_given(scale: float, verdict: Verdict) -> None:
    comparison = verdict_on(rounds(seed=1), rounds(scale, seed=2))
    assert comparison.verdict is verdict
    assert comparison.more_rounds is None


def tied(seed: int) -> tuple[Times, Times]:
    """Every request takes 10 or 100 ms: far apart by the median, though arms hardly differ."""
    draw = np.random.default_rng(seed)
    a, b = ([list(draw.choice([0.01, 0.1], 5, p=(p, 1 - p))) for _ in range(6)] for p in (0.45, 0.55))
    return a, b


@pytest.mark.parametrize("seed", [6, 27])
def test_a_ratio_outside_of_the_margin_is_not_equivalent_however_many_times_are_equal(seed: int) -> None:
    made = blocks(task=tied(seed))
    (comparison,) = judge(made, ("a", "b"), margin=0.05, confidence=0.95).comparisons
    assert comparison.percentiles[0].ratio.value < 0.2
    assert comparison.verdict is Verdict.INCONCLUSIVE
    assert comparison.more_rounds is None
    judged = decide([comparison], made, limits=[GateLimit(percentile=50, slowdown=0.05)], confidence=0.95)
    assert judged.decisions[0].why == "too many requests took equally long for an interval"


def test_an_arm_with_fewer_than_half_of_the_requests_gets_no_verdict() -> None:
    slow = rounds(1.5, count=8, seed=2)
    enough, too_few = (verdict_on(rounds(count=8), [times[:left] for times in slow]) for left in (3, 2))
    assert enough.verdict is Verdict.SLOWER
    assert enough.warnings[0] == "unequal numbers of requests: a 40, b 24"
    assert (too_few.verdict, too_few.p_different, too_few.more_rounds) == (Verdict.INCONCLUSIVE, None, None)
    assert too_few.warnings[0] == (
        "unequal numbers of requests: a 40, b 16; "
        "no interval and no verdict where one arm has fewer than half of the other's"
    )


def test_noise_gives_inconclusive_and_an_estimate_of_rounds() -> None:
    comparison = verdict_on(rounds(noise=0.15, seed=1), rounds(1.03, noise=0.15, seed=2))
    assert comparison.verdict is Verdict.INCONCLUSIVE
    assert comparison.more_rounds is not None
    assert comparison.more_rounds > 0


def test_a_proven_three_per_cent_is_never_equivalent_at_two() -> None:
    comparison = verdict_on(rounds(noise=0.001, seed=1), rounds(1.03, noise=0.001, seed=2), margin=0.02)
    assert comparison.verdict is Verdict.SLOWER


def test_too_few_rounds_are_said_and_give_no_interval() -> None:
    comparison = verdict_on(rounds(count=MIN_ROUNDS - 1), rounds(2.0, count=MIN_ROUNDS - 1))
    assert comparison.verdict is Verdict.INCONCLUSIVE
    assert comparison.percentiles[0].ratio.low is None
    assert comparison.percentiles[0].ratio.value == pytest.approx(2.0)
    assert comparison.more_rounds == 1
    assert any(f"at least {MIN_ROUNDS}" in warning for warning in comparison.warnings)


def test_a_percentile_that_too_few_requests_reach_has_no_interval() -> None:
    # 5 must lie beyond p90 and p99: of 24 x 2 = 48 requests 4.8 and 0.5 do; of 24 x 50 = 1,200, 120 and 12
    draw = np.random.default_rng(1)
    few, many = (
        verdict_on(*(list(np.exp(draw.normal(0, 0.1, (24, requests)))) for _ in "ab")) for requests in (2, 50)
    )
    assert [p.ratio.low is not None for p in few.percentiles] == [True, False, False]
    assert [p.ratio.low is not None for p in many.percentiles] == [True, True, True]


def test_the_round_is_the_unit_so_more_requests_in_it_do_not_make_it_surer() -> None:
    # what differs is the round, not the request: 200 requests say what 5 say
    draw = np.random.default_rng(3)
    level = np.exp(draw.normal(0, 0.05, (2, 6)))
    few, many = (
        verdict_on(*[[list(np.full(requests, 0.03 * one)) for one in arm] for arm in level])
        for requests in (5, 200)
    )
    assert few.percentiles[0].ratio == many.percentiles[0].ratio


def test_a_drift_that_hits_both_arms_of_a_round_does_not_widen_the_interval_much() -> None:
    a, b = (np.array(rounds(scale, noise=0.05, count=12, seed=n)) for n, scale in ((1, 1.0), (2, 1.3)))
    drift = np.linspace(1, 1.1, 12)[:, None]
    still, drifting = (verdict_on(list(x), list(y)) for x, y in ((a, b), (a * drift, b * drift)))
    assert drifting.verdict is still.verdict is Verdict.SLOWER
    # 10 % over the session is 3 % of spread between rounds, which both arms have
    assert width(drifting) < 1.2 * width(still)


def test_many_tasks_make_the_same_evidence_count_for_less() -> None:
    doubtful = (rounds(noise=0.05, count=8, seed=5), rounds(1.1, noise=0.05, count=8, seed=6))
    alone = judge(blocks(one=doubtful), ("a", "b"), margin=0.05, confidence=0.95).comparisons[0]
    noise = {
        f"t{n}": (rounds(noise=0.2, count=8, seed=20 + n), rounds(noise=0.2, count=8, seed=40 + n))
        for n in range(19)
    }
    among = judge(blocks(one=doubtful, **noise), ("a", "b"), margin=0.05, confidence=0.95).comparisons[0]
    assert alone.p_different is not None
    # 20 tasks and all of them together: 21 questions
    assert among.p_different == pytest.approx(min(1.0, alone.p_different * 21))


def test_a_round_on_one_arm_only_is_left_out_and_said() -> None:
    comparison = verdict_on(rounds(count=7), rounds(count=6, seed=2))
    assert comparison.rounds == 6
    assert any("round 7 was measured on one arm only" in warning for warning in comparison.warnings)
    others = verdict_on(rounds(count=8), rounds(count=6, seed=2)).warnings
    assert "rounds 7, 8 were measured on one arm only: left out" in others


def test_three_arms_are_compared_with_the_first() -> None:
    three = {
        ("task", arm): {n: np.array(times) for n, times in enumerate(rounds(scale, seed=7), start=1)}
        for arm, scale in (("a", 1.0), ("b", 1.5), ("c", 2.0))
    }
    pairs = judge(three, ("a", "b", "c"), margin=0.05, confidence=0.95).comparisons
    assert [(c.a, c.b) for c in pairs] == [("a", "b"), ("a", "c")]
    assert all(c.verdict is Verdict.SLOWER for c in pairs)


times = st.lists(
    st.lists(st.floats(1e-4, 10.0), min_size=5, max_size=5), min_size=MIN_ROUNDS, max_size=MIN_ROUNDS + 1
)


@given(times)
@settings(max_examples=25, deadline=None)
def test_an_arm_against_itself_is_never_faster_or_slower(a: Times) -> None:
    comparison = verdict_on(a, a)
    assert comparison.verdict in (Verdict.EQUIVALENT, Verdict.INCONCLUSIVE)
    assert comparison.percentiles[0].ratio.value == 1


@given(times, st.floats(0.001, 1000.0), st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_neither_the_unit_nor_the_order_of_requests_matters(a: Times, scale: float, order: object) -> None:
    b = rounds(count=len(a), seed=9)
    before = verdict_on(a, b)
    shuffled = [sorted(times, reverse=True) for times in a]
    after = verdict_on([[t * scale for t in r] for r in shuffled], [[t * scale for t in r] for r in b])
    for one, other in zip(before.percentiles, after.percentiles, strict=True):
        assert other.ratio.value == pytest.approx(one.ratio.value)
        difference_s = one.difference_s.value * scale
        assert other.difference_s.value == pytest.approx(difference_s, abs=1e-9 * scale)


@given(times)
@settings(max_examples=25, deadline=None)
def test_swapping_the_arms_swaps_the_verdict(a: Times) -> None:
    b = rounds(count=len(a), seed=9)
    opposite = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}
    one, other = verdict_on(a, b), verdict_on(b, a)
    assert other.verdict is opposite.get(one.verdict, one.verdict)
    assert math.log(other.percentiles[0].ratio.value) == pytest.approx(
        -math.log(one.percentiles[0].ratio.value)
    )


def test_identical_arms_are_rarely_called_different() -> None:
    """40 sessions of eight tasks without a difference: at 95 % two may be wrong; five are 1 in 20."""
    draw = np.random.default_rng(11)
    wrong = 0
    for _ in range(40):
        level = np.exp(draw.normal(0, 0.03, (8, 2, 6, 1))) * np.exp(draw.normal(0, 0.1, (8, 1, 6, 1)))
        data = 0.03 * level * np.exp(draw.normal(0, 0.2, (8, 2, 6, 5)))
        session = blocks(**{f"t{n}": (list(task[0]), list(task[1])) for n, task in enumerate(data)})
        comparisons = judge(session, ("a", "b"), margin=0.05, confidence=0.95, intervals=False).comparisons
        wrong += any(c.verdict in (Verdict.FASTER, Verdict.SLOWER) for c in comparisons)
    assert wrong < 5


def all_tasks(a: list[Times], b: list[Times]) -> Judgement:
    session = blocks(**{f"t{n}": pair for n, pair in enumerate(zip(a, b, strict=True))})
    return judge(session, ("a", "b"), margin=0.05, confidence=0.95)


def test_tasks_that_are_each_too_noisy_are_decided_together() -> None:
    a, b = (
        [rounds(scale, noise=0.06, count=12, seed=70 * arm + task) for task in range(8)]
        for arm, scale in ((1, 1.0), (2, 1.06))
    )
    judgement = all_tasks(a, b)
    (overall,) = judgement.overall
    assert overall.verdict is Verdict.SLOWER
    assert overall.ratio.low is not None
    assert overall.ratio.high is not None
    assert overall.ratio.low < 1.06 < overall.ratio.high
    assert sum(c.verdict is Verdict.SLOWER for c in judgement.comparisons) < 8


def test_the_ratio_of_all_tasks_is_the_geometric_mean_of_theirs() -> None:
    a = [rounds(seed=n) for n in range(2)]
    b = [rounds(scale, seed=n) for n, scale in enumerate((2.0, 0.5))]
    (overall,) = all_tasks(a, b).overall
    assert overall.ratio.value == pytest.approx(1.0)  # sqrt(2 x 0.5)
    assert (overall.tasks, overall.rounds) == (2, 6)


def test_rounds_that_all_say_the_same_are_not_more_certain_than_so_few_can_be() -> None:
    # Of the 924 orders of six blocks of a and six of b, two put one arm wholly below the other.
    def session(tasks: int, count: int) -> tuple[Comparison, ...]:
        a, b = (rounds(scale, count=count, requests=1, seed=n) for n, scale in ((1, 1.0), (2, 2.0)))
        same = {f"t{n}": (a, b) for n in range(tasks)}
        return judge(blocks(**same), ("a", "b"), margin=0.05, confidence=0.95).comparisons

    assert session(1, 6)[0].p_different == pytest.approx(2 / 924)
    # 24 tasks and all of them together: 25 x 2 / 924 is more than 5 %, 25 x 2 / 3432 is not
    assert {(c.verdict, c.more_rounds) for c in session(24, 6)} == {(Verdict.INCONCLUSIVE, 1)}
    assert {c.verdict for c in session(24, 7)} == {Verdict.SLOWER}


def test_one_task_has_nothing_to_be_taken_together_with() -> None:
    assert all_tasks([rounds(seed=1)], [rounds(seed=2)]).overall == ()


def test_all_tasks_together_are_judged_in_the_rounds_of_all_of_them() -> None:
    """What a round was like is in all of its tasks: added up round by round, or not at all."""
    whole = blocks(
        **{f"t{n}": (rounds(count=12, seed=n), rounds(1.1, count=12, seed=9 + n)) for n in range(3)}
    )
    lost = {
        (task, arm): {r: t for r, t in own.items() if r != int(task[1]) + 1}
        for (task, arm), own in whole.items()
    }
    common = {key: {r: t for r, t in own.items() if r > 3} for key, own in whole.items()}
    judged = [judge(made, "ab", margin=0.05, confidence=0.95).overall for made in (lost, common)]
    ((of_lost,), (of_common,)) = judged
    assert (of_lost.rounds, of_lost.ratio) == (9, of_common.ratio)
    few = {key: {r: t for r, t in own.items() if r < 9} for key, own in lost.items()}
    assert judge(few, "ab", margin=0.05, confidence=0.95).overall == ()


@pytest.mark.parametrize("scales", [(1.3, 1.3, 0.9, 0.9, 0.9), (2.0, 0.9, 0.9)])
def test_all_tasks_follow_their_mean_and_not_the_greater_number(scales: Sequence[float]) -> None:
    """Most tasks are faster, and the others slower by more."""
    a = [rounds(seed=n) for n in range(len(scales))]
    b = [rounds(scale, seed=9 + n) for n, scale in enumerate(scales)]
    (overall,) = all_tasks(a, b).overall
    assert overall.ratio.value > 1.03
    assert overall.verdict is Verdict.SLOWER


def test_a_mean_of_tasks_that_differ_has_an_interval_with_a_width() -> None:
    scales = (0.5, 0.85, 0.85, 0.85, 0.98)
    a = [rounds(seed=n, requests=1, noise=0.01) for n in range(5)]
    b = [rounds(scale, seed=9 + n, requests=1, noise=0.01) for n, scale in enumerate(scales)]
    (overall,) = all_tasks(a, b).overall
    assert overall.ratio.low is not None
    assert overall.ratio.high is not None
    assert 0.01 < math.log(overall.ratio.high / overall.ratio.low) < 0.05
    assert overall.verdict is Verdict.FASTER


MIXES = {
    "a wide one is slower": ([(1.0, 0.03)] * 7 + [(1.55, 0.4)], Verdict.EQUIVALENT),  # their mean: +5.6 %
    "narrow slower, wide faster": ([(1.1, 0.03)] * 4 + [(1 / 1.1, 0.3)] * 4, Verdict.SLOWER),  # 0 %
}


@pytest.mark.parametrize("mix", MIXES)
def test_all_tasks_together_is_about_the_mean_of_their_ratios_however_sure_each_is(mix: str) -> None:
    tasks, wrong = MIXES[mix]
    draw = np.random.default_rng(3)
    verdicts, missed, truth = list[Verdict](), 0, math.exp(np.mean([math.log(ratio) for ratio, _ in tasks]))
    for _ in range(20):
        made = {
            (f"t{number}", arm): {
                round_: scale * np.exp(draw.normal(0, 0.02) + draw.normal(0, noise, 4))
                for round_ in range(1, 25)
            }
            for number, (ratio, noise) in enumerate(tasks)
            for arm, scale in (("a", 1.0), ("b", ratio))
        }
        (overall,) = judge(made, ("a", "b"), margin=0.05, confidence=0.95).overall
        verdicts.append(overall.verdict)
        if overall.ratio.low is not None and overall.ratio.high is not None:
            missed += not overall.ratio.low <= truth <= overall.ratio.high
    assert verdicts.count(wrong) <= 2
    assert missed <= 4
