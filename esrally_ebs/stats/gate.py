"""Whether one arm is slower than another by more than is allowed: the limits of a gate against intervals.

Pure: takes what ``compare`` found for two arms, gives a decision per task and limit and one for all.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from esrally_ebs.errors import PlanError
from esrally_ebs.stats.found import Comparison, PercentileComparison
from esrally_ebs.stats.rounds import Estimate, below, holm, rarest
from esrally_ebs.stats.summary import PERCENTILES

_NO_WIDTH = 1e-6  # an interval whose ends are closer than this, as a fraction
_LIMIT = re.compile(r"\s*p(\d+)\s*=\s*(\d+(?:\.\d+)?)\s*%\s*\Z")


class Outcome(StrEnum):
    """What is shown about a limit."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """How much slower a percentile may be; ``slowdown`` is a fraction (0.05 = 5 %)."""

    percentile: int
    slowdown: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDecision:
    """One limit on one task; ``ratio`` has the interval of this task by itself, if there is one."""

    task: str
    limit: Limit
    ratio: Estimate
    outcome: Outcome
    why: str  # why it is inconclusive; empty otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """All decisions on arm ``b`` against arm ``a``."""

    a: str
    b: str
    confidence: float
    decisions: tuple[TaskDecision, ...]

    @property
    def outcome(self) -> Outcome:
        """Fail when any limit is shown to be broken, pass when all are shown to be kept."""
        outcomes = {decision.outcome for decision in self.decisions}
        if Outcome.FAIL in outcomes:
            return Outcome.FAIL
        return Outcome.PASS if outcomes == {Outcome.PASS} else Outcome.INCONCLUSIVE


def parse_limit(text: str) -> Limit:
    """``"p50=5%"`` to a limit; raises PlanError for any other text."""
    match = _LIMIT.match(text)
    if match is None or int(match[1]) not in PERCENTILES:
        known = ", ".join(f"p{percentile}" for percentile in PERCENTILES)
        raise PlanError(f"--max-slowdown {text}: write a percentile ({known}) and a limit, such as p50=5%")
    return Limit(percentile=int(match[1]), slowdown=float(match[2]) / 100)


def decide(comparisons: Sequence[Comparison], limits: Sequence[Limit], *, confidence: float) -> Gate:
    """Hold every limit against every task of one pair of arms.

    A task passes when the whole interval lies below the limit, and fails when it lies above. Intervals are
    corrected over all tasks and limits as verdicts are (Holm): the chance of any false fail is at most
    1 - confidence, and so, separately, is that of any false pass.
    """
    questions = [
        (c, limit, next(p for p in c.percentiles if p.percentile == limit.percentile))
        for limit in limits
        for c in comparisons
    ]
    known = [
        number
        for number, (comparison, _, found) in enumerate(questions)
        if found.log_ratio_error is not None and not _is_tied(comparison, found, 1 - confidence)
    ]
    distances = [_distance(questions[number][1], questions[number][2]) for number in known]
    errors = [questions[number][2].log_ratio_error or 0.0 for number in known]
    rounds = [questions[number][0].rounds for number in known]
    # Twice the tail: an interval of two sides that ends at the limit has p = 1 - confidence.
    kept, broken = (
        holm([min(1.0, 2 * _tail(sign * d, e, n)) for d, e, n in zip(distances, errors, rounds, strict=True)])
        for sign in (1, -1)
    )
    outcomes = dict.fromkeys(range(len(questions)), Outcome.INCONCLUSIVE)
    for number, p_below, p_above in zip(known, kept, broken, strict=True):
        outcomes[number] = _outcome(p_below, p_above, 1 - confidence)
    return Gate(
        a=comparisons[0].a,
        b=comparisons[0].b,
        confidence=confidence,
        decisions=tuple(
            TaskDecision(
                task=comparison.task,
                limit=limit,
                ratio=found.ratio,
                outcome=outcomes[number],
                why=_why(comparison, limit, found, 1 - confidence)
                if outcomes[number] is Outcome.INCONCLUSIVE
                else "",
            )
            for number, (comparison, limit, found) in enumerate(questions)
        ),
    )


def _is_tied(comparison: Comparison, found: PercentileComparison, alpha: float) -> bool:
    """Whether an interval without width tells of equal times only, and not of a difference."""
    low, high, p_different = found.ratio.low, found.ratio.high, comparison.p_different
    if low is None or high is None or p_different is None or p_different <= alpha:
        return False
    return high / low - 1 < _NO_WIDTH and not low <= 1 <= high


def _distance(limit: Limit, found: PercentileComparison) -> float:
    """How far below the limit the ratio is, as a difference of logarithms."""
    return math.log1p(limit.slowdown) - math.log(found.ratio.value)


def _tail(distance: float, error: float, rounds: int) -> float:
    """The chance of being ``distance`` or more on one side of the truth."""
    if error == 0 and distance <= 0:
        return 1.0
    return rarest(rounds) if error == 0 else max(rarest(rounds), below(-distance / error, rounds))


def _outcome(p_below: float, p_above: float, alpha: float) -> Outcome:
    if p_below <= alpha:
        return Outcome.PASS
    return Outcome.FAIL if p_above <= alpha else Outcome.INCONCLUSIVE


def _is_about(doubt: str, percentile: int) -> bool:
    """Whether a doubt says why this percentile has no interval: of it by name, or of all."""
    about, _, said = doubt.partition(":")
    return "interval" in said and (f"p{percentile}" in about or "p" not in about)


def _why(comparison: Comparison, limit: Limit, found: PercentileComparison, alpha: float) -> str:
    ratio, bound = found.ratio, 1 + limit.slowdown
    if ratio.low is None or ratio.high is None:
        doubts = [doubt for doubt in comparison.warnings if _is_about(doubt, limit.percentile)]
        return doubts[0] if doubts else "there is no interval"
    if _is_tied(comparison, found, alpha):
        return "too many requests took equally long for an interval"
    if ratio.high < bound or ratio.low > bound:
        return "decided for this task alone, but not for all tasks together"
    return "the limit lies within the interval"
