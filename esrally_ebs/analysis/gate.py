"""Whether one arm is slower than another by more than a limit allows: compares limits with intervals.

Pure: takes what ``compare`` found for two arms, gives a decision per task and limit and one for all. A limit
is asked about as ``compare`` asks whether there is any difference: *if b took as many times as long as the
limit allows, would the two have one common percentile?* The width of an interval would not do: its sides
may differ.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import pyarrow as pa

from esrally_ebs.analysis.compare import Comparison, PercentileComparison, judge, pair_of
from esrally_ebs.analysis.multiplicity import holm
from esrally_ebs.analysis.rounds import Estimate, Pair, below, critical_t, more_rounds, rarest
from esrally_ebs.analysis.summary import MIN_ROUNDS, PERCENTILES, Blocks, fio_blocks, shared_rounds
from esrally_ebs.errors import PlanError

_NO_WIDTH = 1e-6  # interval narrower than this, as a fraction, counts as having no width
# Standard error of a percentile by fio, as a share: buckets are up to 1/64 of a time wide, anywhere in them
_FIO_ERROR = 1 / 64 / math.sqrt(12)
_LIMIT = re.compile(r"\s*p(\d{1,2})\s*=\s*(\d{1,9}(?:\.\d+)?)\s*%\s*\Z")


class Outcome(StrEnum):
    """Result for one limit."""

    PASS = "pass"  # nosec B105
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLimit:
    """How much slower a percentile may get; ``slowdown`` is a fraction (0.05 = 5 %)."""

    percentile: int
    slowdown: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDecision:
    """One limit on one task; ``ratio`` has the task's own interval, if there is one."""

    task: str
    limit: GateLimit
    ratio: Estimate
    outcome: Outcome
    why: str  # reason if inconclusive, else empty
    more_rounds: float | None = None  # estimate of what would decide; infinite: none would; None: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """All decisions about arm ``b`` against arm ``a``."""

    a: str
    b: str
    confidence: float
    decisions: tuple[TaskDecision, ...]

    @property
    def outcome(self) -> Outcome:
        """FAIL if any limit is shown to be exceeded, PASS if all are shown to be kept, else INCONCLUSIVE."""
        outcomes = {decision.outcome for decision in self.decisions}
        if Outcome.FAIL in outcomes:
            return Outcome.FAIL
        return Outcome.PASS if outcomes == {Outcome.PASS} else Outcome.INCONCLUSIVE


def parse_limit(text: str) -> GateLimit:
    """Parse a limit such as ``"p50=5%"``. Raises PlanError for any other text."""
    match = _LIMIT.match(text)
    if match is None or int(match[1]) not in PERCENTILES:
        known = ", ".join(f"p{percentile}" for percentile in PERCENTILES)
        raise PlanError(f"--max-slowdown {text}: write a percentile ({known}) and a limit, such as p50=5%")
    return GateLimit(percentile=int(match[1]), slowdown=float(match[2]) / 100)


def decide(
    comparisons: Sequence[Comparison], blocks: Blocks, *, limits: Sequence[GateLimit], confidence: float
) -> Gate:
    """Test every limit on every task of one pair of arms; ``comparisons`` must be those of ``blocks``.

    A task passes if the whole interval is below the limit, and fails if it is above. Intervals are corrected
    over all tasks and limits as verdicts are (Holm): the chance of any false fail is at most 1 - confidence,
    and so, separately, is that of any false pass.
    """
    questions = [
        (c, limit, next(p for p in c.percentiles if p.percentile == limit.percentile))
        for limit in limits
        for c in comparisons
    ]
    known = [
        number
        for number, (comparison, _, compared) in enumerate(questions)
        if compared.ratio.low is not None and not _is_tied(comparison, compared, 1 - confidence)
    ]
    by_task = {questions[number][0].task: questions[number][0] for number in known}
    pairs = {task: _pair(comparison, blocks) for task, comparison in by_task.items()}
    evidence = [_p_values(*questions[number], pairs[questions[number][0].task]) for number in known]
    kept, broken = (holm([p_values[side] for p_values in evidence]) for side in (0, 1))
    outcomes = dict.fromkeys(range(len(questions)), Outcome.INCONCLUSIVE)
    for number, p_below, p_above in zip(known, kept, broken, strict=True):
        outcomes[number] = _outcome(p_below, p_above, 1 - confidence)
    undecided = [number for number, outcome in outcomes.items() if outcome is Outcome.INCONCLUSIVE]
    return Gate(
        a=comparisons[0].a,
        b=comparisons[0].b,
        confidence=confidence,
        decisions=tuple(
            TaskDecision(
                task=comparison.task,
                limit=limit,
                ratio=compared.ratio,
                outcome=outcomes[number],
                why=_why(comparison, limit, compared, 1 - confidence) if number in undecided else "",
                more_rounds=_more_rounds(comparison, limit, compared, confidence, len(known))
                if number in known and number in undecided
                else None,
            )
            for number, (comparison, limit, compared) in enumerate(questions)
        ),
    )


def decide_fio(
    baseline: pa.Table, limits: Sequence[GateLimit], arms: Sequence[str], *, confidence: float
) -> Gate:
    """Test every limit on every fio job of two arms; each pass of a job is a round.

    ``confidence`` holds for all limits together: alpha is divided equally among them (Bonferroni). Jobs that
    only one arm ran are left out. fio sorts times into buckets, so passes that agree may all be off.
    """
    alone = 1 - (1 - confidence) / len(limits)
    decisions: list[TaskDecision] = []
    for limit in limits:
        blocks = fio_blocks(baseline, limit.percentile)
        off = dict.fromkeys(blocks, _FIO_ERROR)
        comparisons = judge(blocks, arms, margin=limit.slowdown, confidence=alone, off=off).comparisons
        if comparisons:
            # Each pass gives one number, its own percentile; the median of these is compared.
            of_passes = decide(comparisons, blocks, limits=[replace(limit, percentile=50)], confidence=alone)
            decisions += [
                replace(d, limit=limit, why=_why_of_passes(d, c))
                for d, c in zip(of_passes.decisions, comparisons, strict=True)
            ]
    return Gate(a=arms[0], b=arms[1], confidence=confidence, decisions=tuple(decisions))


def _why_of_passes(decision: TaskDecision, comparison: Comparison) -> str:
    if comparison.rounds >= MIN_ROUNDS:
        return decision.why
    passes = f"{comparison.rounds} pass{'' if comparison.rounds == 1 else 'es'}"
    return f"{passes} of {MIN_ROUNDS} that an interval takes: repeat = {MIN_ROUNDS - 1} in its [[baseline]]"


def _is_tied(comparison: Comparison, compared: PercentileComparison, alpha: float) -> bool:
    """Whether an interval without width comes from tied times instead of a difference."""
    low, high, p_different = compared.ratio.low, compared.ratio.high, comparison.p_different
    if low is None or high is None or p_different is None or p_different <= alpha:
        return False
    return high / low - 1 < _NO_WIDTH and not low <= 1 <= high


def _p_values(
    comparison: Comparison, limit: GateLimit, compared: PercentileComparison, pair: Pair
) -> tuple[float, float]:
    """P values for "limit kept" and "limit exceeded"; small if the rounds show it beyond chance.

    Two-sided (twice the tail): an interval that ends at the limit has p = 1 - confidence. If the interval
    contains the limit, both are 1: with tied times, the test might reject even the measured ratio.
    """
    bound, count, least = 1 + limit.slowdown, comparison.observations, 0.0
    if compared.starts is not None:
        t = compared.starts.t(math.log(bound))
    else:
        t, least = pair.t(limit.percentile, ratio=bound), rarest(count)
    kept, broken = (min(1.0, 2 * max(least, below(side * t, count))) for side in (1, -1))
    low, high = compared.ratio.low, compared.ratio.high
    return (
        kept if high is not None and high < bound else 1.0,
        broken if low is not None and low > bound else 1.0,
    )


def _more_rounds(
    comparison: Comparison, limit: GateLimit, compared: PercentileComparison, confidence: float, asked: int
) -> float | None:
    """How many further rounds would decide, of so many limits ``asked`` about; over starts not known."""
    ratio, bound = compared.ratio, 1 + limit.slowdown
    end = ratio.high if ratio.value < bound else ratio.low
    if compared.starts is not None or not end or end == ratio.value:
        return None
    error = abs(math.log(end / ratio.value)) / critical_t(comparison.rounds, confidence)
    distance, tail = abs(math.log(bound / ratio.value)), (1 - confidence) / 2 / asked
    return more_rounds(distance, tail, comparison.rounds, error, comparison.off) or math.inf


def _pair(comparison: Comparison, blocks: Blocks) -> Pair:
    a, b = blocks[comparison.task, comparison.a], blocks[comparison.task, comparison.b]
    return pair_of(a, b, shared_rounds(a, b), comparison.off)


def _outcome(p_below: float, p_above: float, alpha: float) -> Outcome:
    if p_below <= alpha:
        return Outcome.PASS
    return Outcome.FAIL if p_above <= alpha else Outcome.INCONCLUSIVE


def _is_about(doubt: str, percentile: int) -> bool:
    """Whether a warning explains why this percentile has no interval: it names it, or no percentile."""
    about, _, text = doubt.partition(":")
    return "interval" in text and (f"p{percentile}" in about or "p" not in about)


def _why(comparison: Comparison, limit: GateLimit, compared: PercentileComparison, alpha: float) -> str:
    ratio, bound = compared.ratio, 1 + limit.slowdown
    if ratio.low is None or ratio.high is None:
        doubts = [doubt for doubt in comparison.warnings if _is_about(doubt, limit.percentile)]
        return doubts[0] if doubts else "there is no interval"
    if _is_tied(comparison, compared, alpha):
        return "too many requests took equally long for an interval"
    if ratio.high < bound or ratio.low > bound:
        return "decided for this task alone, but not for all tasks together"
    return "the limit lies within the interval"
