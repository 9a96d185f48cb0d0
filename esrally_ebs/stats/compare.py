"""Two arms on one task: difference, ratio, intervals, a verdict, and what is missing when there is none."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import combinations

import numpy as np
from scipy import special

from esrally_ebs.stats.resample import Estimate, Floats, Spread, holm, interval, spreads, tail
from esrally_ebs.stats.summary import Blocks

PERCENTILES = (50, 90, 99)
MIN_ROUNDS = 4  # docs/statistics.md: simulated coverage with four rounds is no worse than with ten
_BEYOND = 2  # requests that must lie beyond a percentile on each arm before its interval means anything
_MOST_ROUNDS = 500  # beyond this an estimate of rounds is not worth its name
_POWER = 0.8  # chance that the estimated number of rounds does decide


class Verdict(StrEnum):
    """What may be said of arm b against arm a, from the 50th percentile."""

    FASTER = "faster"
    SLOWER = "slower"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class PercentileComparison:
    """One percentile of two arms; the intervals are for this task alone, not corrected for many tasks."""

    percentile: int
    a_s: float
    b_s: float
    difference_s: Estimate  # b - a
    ratio: Estimate  # b / a
    log_ratio_error: float | None = None  # standard error of log(ratio); None without an interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One task on two arms; the verdict says how ``b`` does against ``a``."""

    task: str
    a: str
    b: str
    rounds: int  # in which both arms were measured
    percentiles: tuple[PercentileComparison, ...]
    verdict: Verdict
    p_different: float | None  # adjusted for all tasks; None without an interval
    p_equivalent: float | None
    more_rounds: int | None  # estimate; None when decided, or when it cannot be estimated
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Evidence:
    comparison: Comparison
    p50: Spread | None


def compare(
    blocks: Blocks, arms: Sequence[str], *, margin: float, confidence: float
) -> tuple[Comparison, ...]:
    """Every task on every pair of arms (the first named is ``a``), in order of tasks.

    ``margin`` is a fraction: within it, arms count as equivalent. Faster and slower are right together for
    all tasks and pairs with ``confidence`` (Holm); so are, separately, the equivalences. Round 0 (before
    the rounds: indexing, warm-up) has no repetition and is not compared.
    """
    tasks = list(dict.fromkeys(task for task, _ in blocks))
    pairs = list(combinations(arms, 2))
    evidence = [
        _measure(task, a, b, blocks, confidence)
        for task in tasks
        for a, b in pairs
        if (task, a) in blocks and (task, b) in blocks and _is_repeated(blocks, task, a, b)
    ]
    return tuple(_judge(evidence, margin, 1 - confidence))


def _is_repeated(blocks: Blocks, task: str, a: str, b: str) -> bool:
    return any(round_ > 0 for arm in (a, b) for round_ in blocks[task, arm])


def _measure(task: str, a: str, b: str, blocks: Blocks, confidence: float) -> _Evidence:
    of_a, of_b = blocks[task, a], blocks[task, b]
    shared = sorted(round_ for round_ in of_a.keys() & of_b.keys() if round_ > 0)
    times_a, times_b = [of_a[r] for r in shared], [of_b[r] for r in shared]
    warnings = _doubts(a, b, of_a.keys() ^ of_b.keys(), times_a, times_b)
    enough = len(shared) >= MIN_ROUNDS and all(float(t.min()) > 0 for t in (*times_a, *times_b))
    if enough:
        found = spreads(times_a, times_b, PERCENTILES)
        least = min(sum(len(t) for t in times) for times in (times_a, times_b))
        percentiles = tuple(
            _with_interval(q, s, len(shared), confidence) if _is_seen(q, least) else _without_interval(q, s)
            for q, s in zip(PERCENTILES, found, strict=True)
        )
    else:
        found = []
        percentiles = _points(times_a or list(of_a.values()), times_b or list(of_b.values()))
    comparison = Comparison(
        task=task,
        a=a,
        b=b,
        rounds=len(shared),
        percentiles=percentiles,
        verdict=Verdict.INCONCLUSIVE,
        p_different=None,
        p_equivalent=None,
        more_rounds=MIN_ROUNDS - len(shared) if len(shared) < MIN_ROUNDS else None,
        warnings=warnings,
    )
    return _Evidence(comparison, found[0] if found else None)


def _doubts(
    a: str, b: str, unpaired: set[int], times_a: list[Floats], times_b: list[Floats]
) -> tuple[str, ...]:
    doubts = []
    rounds = len(times_a)
    if rounds < MIN_ROUNDS:
        doubts.append(f"{rounds} rounds: at least {MIN_ROUNDS} are needed for an interval and a verdict")
    if unpaired:
        names = ", ".join(str(number) for number in sorted(unpaired))
        doubts.append(f"round {names} was measured on one arm only and is left out")
    count_a, count_b = (sum(len(t) for t in times) for times in (times_a, times_b))
    if count_a != count_b:
        doubts.append(f"unequal numbers of requests: {a} {count_a}, {b} {count_b}")
    least = min(count_a, count_b)
    blurred = [f"p{q}" for q in PERCENTILES if not _is_seen(q, least)]
    if least and blurred:
        doubts.append(f"{' and '.join(blurred)}: no interval, {least} requests per arm are too few for it")
    return tuple(doubts)


def _is_seen(percentile: int, requests: int) -> bool:
    return requests * (100 - percentile) / 100 >= _BEYOND


def _without_interval(percentile: int, spread: Spread) -> PercentileComparison:
    difference, ratio = Estimate(spread.b - spread.a), Estimate(spread.b / spread.a)
    return PercentileComparison(
        percentile=percentile, a_s=spread.a, b_s=spread.b, difference_s=difference, ratio=ratio
    )


def _with_interval(percentile: int, spread: Spread, rounds: int, confidence: float) -> PercentileComparison:
    ratio = interval(spread.log_ratio, spread.log_ratio_error, rounds, confidence)
    assert ratio.low is not None
    assert ratio.high is not None
    return PercentileComparison(
        percentile=percentile,
        a_s=spread.a,
        b_s=spread.b,
        difference_s=interval(spread.b - spread.a, spread.difference_error, rounds, confidence),
        ratio=Estimate(math.exp(ratio.value), math.exp(ratio.low), math.exp(ratio.high)),
        log_ratio_error=spread.log_ratio_error,
    )


def _points(times_a: list[Floats], times_b: list[Floats]) -> tuple[PercentileComparison, ...]:
    all_a, all_b = np.concatenate(times_a), np.concatenate(times_b)
    points = []
    for q in PERCENTILES:
        a, b = float(np.percentile(all_a, q)), float(np.percentile(all_b, q))
        ratio = Estimate(b / a if a else math.nan)
        points.append(
            PercentileComparison(percentile=q, a_s=a, b_s=b, difference_s=Estimate(b - a), ratio=ratio)
        )
    return tuple(points)


def _judge(evidence: list[_Evidence], margin: float, alpha: float) -> list[Comparison]:
    judged = [(e, e.p50) for e in evidence if e.p50 is not None]
    bound = math.log1p(margin)
    different = holm([2 * tail(abs(s.log_ratio), s.log_ratio_error, e.comparison.rounds) for e, s in judged])
    equivalent = holm(
        [tail(bound - abs(s.log_ratio), s.log_ratio_error, e.comparison.rounds) for e, s in judged]
    )
    verdicts = {}
    for (e, spread), p_different, p_equivalent in zip(judged, different, equivalent, strict=True):
        verdict = _verdict(spread.log_ratio, p_different <= alpha, p_equivalent <= alpha)
        undecided = verdict is Verdict.INCONCLUSIVE
        rounds = e.comparison.rounds
        verdicts[id(e)] = replace(
            e.comparison,
            verdict=verdict,
            p_different=p_different,
            p_equivalent=p_equivalent,
            more_rounds=_more_rounds(spread, rounds, bound, alpha / len(judged)) if undecided else None,
        )
    return [verdicts.get(id(e), e.comparison) for e in evidence]


def _verdict(log_ratio: float, different: bool, equivalent: bool) -> Verdict:
    if equivalent:  # also when the small difference that there is has been proven
        return Verdict.EQUIVALENT
    if different:
        return Verdict.FASTER if log_ratio < 0 else Verdict.SLOWER
    return Verdict.INCONCLUSIVE


def _more_rounds(spread: Spread, rounds: int, bound: float, alpha: float) -> int | None:
    """An estimate: how many more rounds would decide if the truth is what we see and noise stays."""
    size = abs(spread.log_ratio)
    totals = np.arange(rounds + 1, _MOST_ROUNDS + 1)
    errors = spread.log_ratio_error * np.sqrt(rounds / totals)
    power = special.ndtri(_POWER)
    two_sided = (special.stdtrit(totals - 1, 1 - alpha / 2) + power) * errors
    one_sided = (special.stdtrit(totals - 1, 1 - alpha) + power) * errors
    decided = totals[(size >= two_sided) | (bound - size >= one_sided)]
    return int(decided[0]) - rounds if len(decided) else None
