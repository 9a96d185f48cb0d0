"""Compares two arms on one task: difference, ratio, intervals, and a verdict or what is missing for one."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Generic, TypeVar

import numpy as np

from esrally_ebs.analysis.multiplicity import PValues, adjusted
from esrally_ebs.analysis.rounds import (
    ArmTimes,
    Estimate,
    Floats,
    Mean,
    Pair,
    below,
    critical_t,
    more_rounds,
    rarest,
)
from esrally_ebs.analysis.summary import (
    MIN_ROUNDS,
    PERCENTILES,
    Blocks,
    Off,
    Starts,
    by_start,
    has_enough_requests,
    shared_rounds,
)
from esrally_ebs.plan.tables import MIN_STARTS
from esrally_ebs.units import number_of

_MIN_ERROR = 1e-6  # a smaller standard error comes from tied times, not from agreement


class Verdict(StrEnum):
    """What can be claimed about arm b against arm a, by the 50th percentile."""

    FASTER = "faster"
    SLOWER = "slower"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class PercentileComparison:
    """One percentile of two arms; intervals are not corrected for several tasks."""

    percentile: int
    difference_s: Estimate  # b - a
    ratio: Estimate  # b / a
    starts: Mean | None = None  # mean of the ratio's logarithm over starts, if several


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Arm ``b`` against arm ``a``; p values are adjusted for all claims made together."""

    a: str
    b: str
    verdict: Verdict = Verdict.INCONCLUSIVE
    p_different: float | None = None  # None if there is no interval
    p_equivalent: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsClaim(Claim):
    """A claim from the rounds of a session."""

    rounds: int  # in which both arms were measured
    more_rounds: int | None = None  # estimate; None when decided or impossible to estimate
    starts: int = 1  # of the nodes
    off: float = 0.0  # standard error common to all rounds, as a share of the ratio; included in intervals

    @property
    def observations(self) -> int:
        """Number of observations for Student's t: starts of the nodes if several, else rounds."""
        return self.starts if self.starts > 1 else self.rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(RoundsClaim):
    """One task on two arms."""

    task: str
    percentiles: tuple[PercentileComparison, ...]
    warnings: tuple[str, ...]

    @property
    def ratio(self) -> Estimate:
        """b / a of the 50th percentile."""
        return self.percentiles[0].ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Overall(RoundsClaim):
    """All tasks of two arms together, equally weighted."""

    tasks: int
    ratio: Estimate  # geometric mean of the tasks' ratios of 50th percentiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A session's comparisons and overall claims."""

    comparisons: tuple[Comparison, ...]
    overall: tuple[Overall, ...]  # one per pair of arms; none for a pair with too few rounds

    def withheld(self) -> "Judgement":
        """The same times without claims, for arms that must not be compared."""
        without = (
            replace(c, verdict=Verdict.INCONCLUSIVE, p_different=None, p_equivalent=None, more_rounds=None)
            for c in self.comparisons
        )
        return Judgement(comparisons=tuple(without), overall=())


_About = TypeVar("_About", Comparison, Overall)


@dataclass(frozen=True, slots=True)
class _Question(Generic[_About]):
    """Does a ratio of 50th percentiles differ from 1, for one task (one pair) or for all tasks together?

    ``about`` is the answer, still without a verdict; without pairs there is too little data to test.
    """

    about: _About
    pairs: tuple[Pair, ...]
    # the ratio's logarithm: over starts of the nodes, or for all tasks together over rounds
    mean: Mean | None = None
    shared: Sequence[int] = ()  # rounds of a task that both arms have

    @property
    def rounds(self) -> int:
        return self.about.rounds

    def p_different(self) -> float:
        count = self.about.observations
        p = below(-abs(self.t(1.0)), count)
        return 2 * (p if self.about.starts > 1 else max(p, rarest(count)))

    def p_equivalent(self, margin: float) -> float:
        if self.about.starts > 1 and self.mean is not None:
            return self.mean.p_equivalent(math.log1p(margin))
        return _p_equivalent(self, 1 / (1 + margin), 1 + margin)

    def t(self, ratio: float) -> float:
        """Student's t against a true ratio of ``ratio``; positive if b is slower than that."""
        if self.mean is not None:
            return self.mean.t(math.log(ratio))
        (pair,) = self.pairs
        return pair.t(PERCENTILES[0], ratio=ratio)


@dataclass(frozen=True, slots=True)
class _Family:
    """All questions about one arm against the reference; ``whole`` is about all tasks together."""

    tasks: Sequence[_Question[Comparison]]
    whole: _Question[Overall] | None

    @property
    def questions(self) -> list[_Question[Any]]:
        return [*self.tasks, *([self.whole] if self.whole else [])]

    def p_values(self, margin: float) -> PValues:
        return PValues(
            [q.p_different() for q in self.questions],
            [q.p_equivalent(margin) for q in self.questions],
            self.whole is not None,
        )


def judge(
    blocks: Blocks,
    arms: Sequence[str],
    *,
    margin: float,
    confidence: float,
    starts: Starts = (),
    off: Off | None = None,
    intervals: bool = True,
) -> Judgement:
    """Compare each arm with the first, the reference: every task in order, then all tasks together.

    ``margin`` is a fraction: within it, arms count as equivalent. All claims of faster and slower hold
    together, over all arms and tasks, with ``confidence`` (see ``adjusted``); so, separately, do all claims
    of equivalence. Round 0 (before the rounds: indexing, warm-up) has no repetition and is not compared.

    ``starts`` has the rounds of each start of the nodes, if there were several. Then a start is one
    observation, however many rounds it has, and claims hold for any JVM.

    ``off`` is the error that an arm has in all of its rounds alike, which rounds cannot show. It is included
    in all intervals and p values; as an arm has it in all tasks, more tasks do not reduce it.

    Without ``intervals``, verdicts are the same but there are no estimates of further rounds; five times as
    fast.
    """
    of_interval = confidence if intervals else None
    tasks = [
        _of_task(task, arms[0], other, blocks, of_interval, starts, off or {})
        for task in dict.fromkeys(task for task, _ in blocks)
        for other in arms[1:]
        if {(task, arms[0]), (task, other)} <= blocks.keys() and _is_repeated(blocks, task, arms[0], other)
    ]
    families = []
    for other in arms[1:]:
        own = [question for question in tasks if question.about.b == other]
        whole = _of_all_tasks(own, (arms[0], other), blocks, of_interval, starts, off or {})
        families.append(_Family([q for q in own if q.pairs], whole if whole.pairs else None))
    decidable = [family for family in families if family.tasks]
    answers = _answers(decidable, margin, confidence, gated=bool(starts))
    return Judgement(
        comparisons=tuple(replace(q.about, **answers.get(id(q), {})) for q in tasks),
        overall=tuple(replace(f.whole.about, **answers[id(f.whole)]) for f in families if f.whole),
    )


def _is_repeated(blocks: Blocks, task: str, a: str, b: str) -> bool:
    return any(round_ > 0 for arm in (a, b) for round_ in blocks[task, arm])


def _of_task(
    task: str, a: str, b: str, blocks: Blocks, confidence: float | None, starts: Starts, off: Off
) -> _Question[Comparison]:
    of_a, of_b = blocks[task, a], blocks[task, b]
    off_by = _off([task], a, b, off)
    shared = shared_rounds(of_a, of_b)
    times_a, times_b = [of_a[r] for r in shared], [of_b[r] for r in shared]
    pairs: tuple[Pair, ...] = ()
    open_ended = list[str]()
    measured = by_start(starts, shared)
    enough = len(shared) >= MIN_ROUNDS and not _is_lopsided(times_a, times_b)
    enough = enough and (not starts or len(measured) >= MIN_STARTS)
    if enough and all(float(t.min()) > 0 for t in (*times_a, *times_b)):
        pair = pair_of(of_a, of_b, shared, off_by)
        pairs = (pair,)
        if starts:
            parts = [pair_of(of_a, of_b, rounds, off_by) for rounds in measured]
            percentiles = tuple(_over_starts(q, parts, confidence) for q in PERCENTILES)
        else:
            percentiles = tuple(_percentile(q, pair, confidence) for q in PERCENTILES)
        open_ended = [
            f"p{p.percentile}" for p in percentiles if confidence and not starts and _is_open(p, pair)
        ]
    else:
        percentiles = _points(times_a or list(of_a.values()), times_b or list(of_b.values()))
    comparison = Comparison(
        task=task,
        a=a,
        b=b,
        rounds=len(shared),
        percentiles=percentiles,
        more_rounds=MIN_ROUNDS - len(shared) if len(shared) < MIN_ROUNDS else None,
        starts=len(measured) if starts else 1,
        off=off_by,
        warnings=(
            *_doubts(a, b, of_a.keys() ^ of_b.keys(), times_a, times_b, starts),
            *_without_interval((of_a, of_b), measured if starts else [shared], open_ended),
            *_few_starts(starts, measured, shared),
        ),
    )
    return _Question(comparison, pairs, percentiles[0].starts, shared)


def pair_of(
    of_a: Mapping[int, Floats], of_b: Mapping[int, Floats], rounds: Sequence[int], off: float = 0.0
) -> Pair:
    """The two arms' times in these rounds, which both must have; ``off`` as in ``Pair``."""
    return Pair(ArmTimes([of_a[r] for r in rounds]), ArmTimes([of_b[r] for r in rounds]), off)


def _off(tasks: Sequence[str], a: str, b: str, off: Off) -> float:
    """Standard error common to all rounds of a ratio; an arm's error is the same in all of its tasks."""
    return math.hypot(*(sum(off.get((task, arm), 0.0) for task in tasks) / len(tasks) for arm in (a, b)))


def _few_starts(starts: Starts, measured: Sequence[Sequence[int]], shared: Sequence[int]) -> Iterator[str]:
    left_out = sorted(set(shared).difference(*measured))
    if starts and len(measured) < MIN_STARTS:
        yield (
            f"{len(measured)} of {len(starts)} starts of the nodes (or volumes) were measured: at least "
            f"{MIN_STARTS} are needed for an interval and a verdict"
        )
    elif starts and left_out:
        names = ", ".join(map(str, left_out))
        only = f"round {names} is" if len(left_out) == 1 else f"rounds {names} are"
        yield f"{only} left out: a start (or volume) has fewer than half of another's rounds"


def _is_lopsided(times_a: list[Floats], times_b: list[Floats]) -> bool:
    """Whether one arm has fewer than half of the other's requests: its rounds are then hits or misses, for
    which Student's t is not made.

    With an eighth, 7 % of sessions of equal arms claimed a difference; with half, 5 %.
    """
    counts = [sum(len(t) for t in times) for times in (times_a, times_b)]
    return 2 * min(counts) < max(counts)


def _doubts(
    a: str, b: str, unpaired: set[int], times_a: list[Floats], times_b: list[Floats], starts: Starts
) -> tuple[str, ...]:
    doubts = []
    rounds = len(times_a)
    if rounds < MIN_ROUNDS:
        measured = number_of(rounds, "round") + (" over all starts (or volumes)" if starts else "")
        doubts.append(f"{measured}: at least {MIN_ROUNDS} are needed for an interval and a verdict")
    if unpaired:
        names = ", ".join(str(number) for number in sorted(unpaired))
        only = f"round {names} was" if len(unpaired) == 1 else f"rounds {names} were"
        doubts.append(f"{only} measured on one arm only: left out")
    count_a, count_b = (sum(len(t) for t in times) for times in (times_a, times_b))
    if count_a != count_b:
        why = "; no interval and no verdict where one arm has fewer than half of the other's"
        lopsided = why if _is_lopsided(times_a, times_b) else ""
        doubts.append(f"unequal numbers of requests: {a} {count_a}, {b} {count_b}{lopsided}")
    return tuple(doubts)


def _without_interval(
    arms: Sequence[Mapping[int, Floats]], parts: Sequence[Sequence[int]], open_ended: Sequence[str]
) -> Iterator[str]:
    """Warnings for percentiles without an interval: too few requests (per start of the nodes) or rounds."""
    least = min((sum(len(arm[r]) for r in rounds) for arm in arms for rounds in parts), default=0)
    blurred = [f"p{q}" for q in PERCENTILES if not has_enough_requests(q, least)]
    if least and blurred:
        per = "arm" if len(parts) == 1 else "arm and start (or volume)"
        yield f"{' and '.join(blurred)}: no interval, {number_of(least, 'request')} per {per}: too few for it"
    if open_ended:
        yield f"{' and '.join(open_ended)}: no interval, too few rounds hold the requests that decide it"


def _is_open(compared: PercentileComparison, pair: Pair) -> bool:
    """Whether there is no interval despite enough requests."""
    return has_enough_requests(compared.percentile, _fewest(pair)) and compared.ratio.low is None


def _fewest(pair: Pair) -> int:
    return min(len(pair.a.all), len(pair.b.all))


def _percentile(percentile: int, pair: Pair, confidence: float | None) -> PercentileComparison:
    a, b = pair.a.percentile(percentile), pair.b.percentile(percentile)
    difference, ratio = Estimate(b - a), Estimate(b / a)
    if confidence is not None and has_enough_requests(percentile, _fewest(pair)):
        difference, ratio = pair.difference(percentile, confidence), pair.ratio(percentile, confidence)
    return PercentileComparison(percentile=percentile, difference_s=difference, ratio=ratio)


def _over_starts(percentile: int, parts: Sequence[Pair], confidence: float | None) -> PercentileComparison:
    """A percentile's comparison over several starts of the nodes: mean ratio and mean difference."""
    of_a = [part.a.percentile(percentile) for part in parts]
    of_b = [part.b.percentile(percentile) for part in parts]
    off = parts[0].off
    ratios = Mean(tuple(math.log(b / a) for a, b in zip(of_a, of_b, strict=True)), off=off)
    of_difference = off * float(np.mean(of_b))
    differences = Mean(tuple(b - a for a, b in zip(of_a, of_b, strict=True)), off=of_difference)
    difference, ratio = Estimate(differences.value), Estimate(math.exp(ratios.value))
    if confidence is not None and has_enough_requests(percentile, min(map(_fewest, parts))):
        difference, ratio = differences.interval(confidence), ratios.ratio(confidence)
    return PercentileComparison(percentile=percentile, difference_s=difference, ratio=ratio, starts=ratios)


def _points(times_a: list[Floats], times_b: list[Floats]) -> tuple[PercentileComparison, ...]:
    all_a, all_b = np.concatenate(times_a), np.concatenate(times_b)
    points = []
    for q in PERCENTILES:
        a, b = float(np.percentile(all_a, q)), float(np.percentile(all_b, q))
        ratio = Estimate(b / a if a else math.nan)
        points.append(PercentileComparison(percentile=q, difference_s=Estimate(b - a), ratio=ratio))
    return tuple(points)


def _of_all_tasks(
    tasks: Sequence[_Question[Comparison]],
    arms: tuple[str, str],
    blocks: Blocks,
    confidence: float | None,
    starts: Starts,
    off: Off,
) -> _Question[Overall]:
    """All tasks of two arms, in the rounds that all tasks share; without pairs if there is one task only."""
    rounds = sorted(set[int].intersection(*(set(task.shared) for task in tasks))) if tasks else []
    measured = by_start(starts, rounds)
    overall = Overall(
        a=arms[0],
        b=arms[1],
        tasks=len(tasks),
        rounds=len(rounds),
        starts=len(measured) if starts else 1,
        off=_off([task.about.task for task in tasks], *arms, off) if tasks else 0.0,
        ratio=Estimate(math.nan),
    )
    enough = len(rounds) >= MIN_ROUNDS and (not starts or len(measured) >= MIN_STARTS)
    if len(tasks) < 2 or not all(task.pairs for task in tasks) or not enough:
        return _Question(overall, ())
    of_tasks = []
    # rounds and starts affect all of their tasks alike, so all tasks must have the same rounds
    for task in tasks:
        if list(task.shared) == rounds:
            mean, pair = task.mean, task.pairs[0]
        else:
            of_a, of_b = (blocks[task.about.task, arm] for arm in arms)
            pair = pair_of(of_a, of_b, rounds)
            parts = [pair_of(of_a, of_b, own) for own in measured]
            mean = _over_starts(PERCENTILES[0], parts, None).starts if starts else None
        values = pair.log_ratios(PERCENTILES[0]) if mean is None else mean.values
        if values is None:
            return _Question(overall, ())
        of_tasks.append(values)
    mean = Mean(tuple(np.mean(of_tasks, axis=0).tolist()), off=overall.off)
    ratio = Estimate(math.exp(mean.value)) if confidence is None else mean.ratio(confidence)
    return _Question(replace(overall, ratio=ratio), tasks[0].pairs, mean)


def _answers(
    families: Sequence[_Family], margin: float, confidence: float, *, gated: bool
) -> dict[int, dict[str, Any]]:
    """Verdict fields for each question, by the question's id."""
    alpha, arms, answers = 1 - confidence, len(families), {}
    raw = [family.p_values(margin) for family in families]
    for family, p_values in zip(families, adjusted(raw, gated=gated), strict=True):
        for q, p_different, p_equivalent in zip(
            family.questions, p_values.different, p_values.equivalent, strict=True
        ):
            # with many tied times, the rounds may disagree with the median in direction
            is_shown = p_different <= alpha and q.t(1.0) * math.log(q.about.ratio.value) >= 0
            verdict, more = verdict_of(q.t(1.0), is_shown, p_equivalent <= alpha), None
            if verdict is Verdict.INCONCLUSIVE and q.about.starts == 1:
                sharing = arms if arms > 1 and q is family.whole else arms * len(family.questions)
                more = _more_rounds(q, margin, confidence, alpha / sharing)
            answers[id(q)] = {
                "verdict": verdict,
                "p_different": p_different,
                "p_equivalent": p_equivalent,
                "more_rounds": more,
            }
    return answers


def _p_equivalent(question: _Question[Any], fastest: float, slowest: float) -> float:
    rounds = question.rounds
    p = max(below(question.t(slowest), rounds), below(-question.t(fastest), rounds), rarest(rounds))
    # With many tied times the test may reject even the measured ratio; outside the margin that is no evidence
    # of equivalence.
    return p if p > 0.5 or fastest <= question.about.ratio.value <= slowest else 1.0


def verdict_of(t: float, different: bool, equivalent: bool) -> Verdict:
    """The verdict from what is proven; the sign of ``t`` is the difference's."""
    if equivalent:  # even if a difference, a small one, is proven as well
        return Verdict.EQUIVALENT
    if different:
        return Verdict.FASTER if t < 0 else Verdict.SLOWER
    return Verdict.INCONCLUSIVE


def _more_rounds(question: _Question[Any], margin: float, confidence: float, alpha: float) -> int | None:
    """Estimate of further rounds needed to decide, if the measured ratio is true and the noise stays."""
    ratio, rounds = question.about.ratio, question.rounds
    if ratio.low is None or ratio.high is None:
        return None
    error = math.log(ratio.high / ratio.low) / 2 / critical_t(rounds, confidence)
    if error < _MIN_ERROR:
        return None
    size = abs(math.log(ratio.value))
    ways = (size, alpha / 2), (math.log1p(margin) - size, alpha)  # to show a difference, or equivalence
    needed = (more_rounds(distance, tail, rounds, error, question.about.off) for distance, tail in ways)
    return min((count for count in needed if count is not None), default=None)
