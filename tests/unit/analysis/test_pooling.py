"""Several sessions of one question: the common ratio, its interval, and what sessions differ by."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from esrally_ebs.analysis.compare import Comparison, Overall, PercentileComparison, Verdict
from esrally_ebs.analysis.findings import Findings
from esrally_ebs.analysis.pooling import MIN_SESSIONS, pool
from esrally_ebs.analysis.rounds import Estimate, critical_t

ROUNDS = 10


def estimate(log_ratio: float, error: float) -> Estimate:
    half = critical_t(ROUNDS, 0.95) * error
    return Estimate(math.exp(log_ratio), math.exp(log_ratio - half), math.exp(log_ratio + half))


def findings(log_ratios: list[float], error: float = 0.02) -> Findings:
    """A session of tasks with these ratios, and all of them together with their mean."""
    time = Estimate(0.0)
    comparisons = tuple(
        Comparison(
            task=f"t{number}",
            a="a",
            b="b",
            rounds=ROUNDS,
            percentiles=(
                PercentileComparison(percentile=50, difference_s=time, ratio=estimate(value, error)),
            ),
            warnings=(),
        )
        for number, value in enumerate(log_ratios)
    )
    mean = estimate(float(np.mean(log_ratios)), error / math.sqrt(len(log_ratios)))
    overall = Overall(a="a", b="b", tasks=len(log_ratios), rounds=ROUNDS, ratio=mean)
    return Findings(
        scope="all",
        arms=("a", "b"),
        summaries=(),
        comparisons=comparisons,
        overall=(overall,),
        blocks={},
        margin=0.05,
        confidence=0.95,
    )


def test_the_common_ratio_is_students_t_over_sessions() -> None:
    values = [0.01, 0.05, 0.03, 0.06]
    (task, whole) = pool([findings([v]) for v in values], margin=0.05, confidence=0.95)
    half = stats.t.ppf(0.975, 3) * np.std(values, ddof=1) / 2
    assert (task.task, whole.task) == ("t0", None)
    assert task.ratio.value == pytest.approx(math.exp(0.0375))
    assert task.ratio.low == pytest.approx(math.exp(0.0375 - half))
    assert task.ratio.high == pytest.approx(math.exp(0.0375 + half))
    assert task.between == pytest.approx(math.sqrt(max(0, np.var(values, ddof=1) - 0.02**2)))


def test_a_difference_that_all_sessions_have_is_claimed_and_one_of_some_is_not() -> None:
    alike = pool(
        [findings([0.1 + e, 0.1 - e]) for e in (0, 0.004, -0.004, 0.002)], margin=0.05, confidence=0.95
    )
    assert {one.verdict for one in alike} == {Verdict.SLOWER}
    mixed = pool([findings([v, v]) for v in (0.2, -0.1, 0.1, -0.15)], margin=0.05, confidence=0.95)
    assert {one.verdict for one in mixed} == {Verdict.INCONCLUSIVE}
    assert min(one.between for one in mixed) > 0.1


def test_sessions_that_agree_on_no_difference_are_equivalent() -> None:
    pooled = pool([findings([e, -e]) for e in (0.002, -0.001, 0.003, 0.0)], margin=0.05, confidence=0.95)
    assert {one.verdict for one in pooled} == {Verdict.EQUIVALENT}


def test_sessions_that_agree_to_the_last_digit_have_their_own_errors() -> None:
    *_, whole = pool([findings([0.1]) for _ in range(4)], margin=0.05, confidence=0.95)
    assert whole.ratio.low == pytest.approx(math.exp(0.1 - stats.t.ppf(0.975, 3) * 0.02 / 2))


def test_too_few_sessions_or_one_without_an_interval_are_not_pooled() -> None:
    sessions = [findings([0.1])] * MIN_SESSIONS
    assert pool(sessions[1:], margin=0.05, confidence=0.95) == ()
    open_ended = replace(findings([0.1]), overall=())
    assert [one.task for one in pool([*sessions, open_ended], margin=0.05, confidence=0.95)] == ["t0"]


def test_sessions_with_another_reference_are_not_pooled() -> None:
    other = findings([0.1])
    (comparison,), (overall,) = other.comparisons, other.overall
    other = replace(
        other,
        arms=("c", "b"),
        comparisons=(replace(comparison, a="c"),),
        overall=(replace(overall, a="c"),),
    )
    assert pool([findings([0.1]), other, findings([0.1])], margin=0.05, confidence=0.95) == ()


def test_all_tasks_together_are_the_same_tasks_in_every_session() -> None:
    sessions = [findings([0.1 + e, 0.1 - e]) for e in (0, 0.004, -0.004)]
    one_more = findings([0.1, 0.1, 2.0])
    pooled = pool([*sessions, one_more], margin=0.05, confidence=0.95)
    assert [one.task for one in pooled] == ["t0", "t1"]
