"""Percentiles of one arm and of two, with the round (not the request) as the unit of what is known.

Two arms are compared by a question that needs no density and no bootstrap: *if b took ``ratio`` times as long
as a, the two would have one common percentile. Do they, round after round?* The fraction of each round's
requests below the common percentile is counted on both arms; the differences of these fractions, one per
round, are given to Student's t-test. All ratios that it does not reject are the interval. Requests of a round
share what that round was like; in the difference of its two fractions that cancels.

Pure. Everything is found by binary search in sorted arrays, so ten million requests cost little more than
sorting them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy import special

Floats = npt.NDArray[np.float64]

_FIRST_STEP = 0.01
_PRECISION = 1e-3  # share of the distance from the estimate to that end
_MEDIAN = 50
# Requests beyond a tail's percentile must be spread over this many rounds, or its interval depends on luck.
_ROUNDS_BEYOND = 5
_BESIDE = (0.0, 0.001, -0.001, 0.01, -0.01, 0.1, -0.1, 1.0, -1.0)  # logarithms of ratios to try
_ERRORS = 1.5  # standard errors on either side: within one, few requests change it in jumps
_MIN_WIDTH = 1e-6  # of logarithms: less is a jump over tied times
_STEPS = 16  # doublings before an end counts as absent: a ratio of e ** 655
_NOTHING = 1e-12  # rounding error of sums of fractions that should cancel
_MIN_SPREAD = 1e-9  # for observations that agree to the last digit
_MAX_ROUNDS = 500  # an estimate of more rounds than this is useless
_POWER = 0.8  # probability that the estimated number of rounds decides


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its interval; an end is None if there is too little data for it."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Mean:
    """Mean of sessions or of starts of the nodes, each one observation, with Student's t over them.

    Whatever a JVM draws for as long as it lives is in their spread. For a balanced one-way layout that is
    what REML with Satterthwaite's degrees of freedom gives (Searle, Casella and McCulloch 1992).
    """

    values: tuple[float, ...]
    own: float = _MIN_SPREAD**2  # least variance, for values that are all equal
    off: float = 0.0  # standard error that all values share

    @property
    def count(self) -> int:
        """Number of observations; degrees of freedom are one less."""
        return len(self.values)

    @property
    def value(self) -> float:
        return float(np.mean(self.values))

    @property
    def variance(self) -> float:
        """Variance of one observation."""
        spread = float(np.var(self.values, ddof=1))
        return spread if math.sqrt(spread) >= _MIN_SPREAD else self.own

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return math.sqrt(self.variance / self.count + self.off**2)

    def t(self, truth: float) -> float:
        """Student's t against a true mean of ``truth``."""
        return (self.value - truth) / self.error

    def p_different(self) -> float:
        """P value for a true mean of 0."""
        return 2 * below(-abs(self.t(0.0)), self.count)

    def p_equivalent(self, limit: float) -> float:
        """P value for a true mean beyond plus or minus ``limit``, by two one-sided tests."""
        return max(below(self.t(limit), self.count), below(-self.t(-limit), self.count))

    def interval(self, confidence: float) -> Estimate:
        half = critical_t(self.count, confidence) * self.error
        return Estimate(self.value, self.value - half, self.value + half)

    def ratio(self, confidence: float) -> Estimate:
        """For means of logarithms: the ratio and its interval."""
        value, half = self.value, critical_t(self.count, confidence) * self.error
        return Estimate(math.exp(value), math.exp(value - half), math.exp(value + half))


class ArmTimes:
    """Service times (s) of one task on one arm, sorted within each round; rounds in order of time."""

    def __init__(self, rounds: Sequence[Floats]) -> None:
        self.rounds = [np.sort(times) for times in rounds]
        # stable sorting merges runs that are already sorted
        self.all = np.sort(np.concatenate(self.rounds), kind="stable")
        self.sizes = np.array([len(times) for times in self.rounds], dtype=np.float64)

    def percentile(self, percentile: float) -> float:
        """Percentile of all requests together, interpolated like numpy."""
        place = (len(self.all) - 1) * percentile / 100
        below = math.floor(place)
        above = min(below + 1, len(self.all) - 1)
        return float(self.all[below] + (self.all[above] - self.all[below]) * (place - below))

    def counts_below(self, value: float) -> Floats:
        """Requests below ``value`` in each round; equal ones count half."""
        doubled = [
            times.searchsorted(value, "left") + times.searchsorted(value, "right") for times in self.rounds
        ]
        return np.array(doubled) / 2

    def interval(self, percentile: float, confidence: float) -> Estimate:
        """Percentile of all requests, with an interval from the rounds (Woodruff 1952)."""
        value = self.percentile(percentile)
        if percentile > _MEDIAN:
            return self._tail(value, percentile, confidence)
        critical = critical_t(len(self.rounds) - 1, confidence)  # fitting the line takes a degree of freedom

        def is_kept(index: int) -> bool:
            below = self.counts_below(float(self.all[index])) - self.sizes * percentile / 100
            return abs(student(below, off_line(below))) <= critical

        middle = min(len(self.all) - 1, int(len(self.all) * percentile / 100))
        low = _furthest(is_kept, middle, 0)
        high = _furthest(is_kept, middle, len(self.all) - 1)
        if low is None or high is None:
            return Estimate(value)
        return Estimate(value, min(value, float(self.all[low])), max(value, float(self.all[high])))

    def _tail(self, value: float, percentile: float, confidence: float) -> Estimate:
        """A high percentile, from an interval of the fraction below it (Korn and Graubard 1998).

        The rounds are worth a certain number of independent requests; the binomial interval for these is
        asymmetric, as are rounds few of which reach the tail.
        """
        level, requests, rounds = percentile / 100, float(self.sizes.sum()), len(self.rounds)
        departures = self.counts_below(value) - level * self.sizes
        variance = rounds * off_line(departures) ** 2 / requests**2
        independent = min(requests, level * (1 - level) / variance) if variance else requests
        normal = float(special.ndtri((1 + confidence) / 2))
        independent *= (normal / critical_t(rounds - 1, confidence)) ** 2
        faster, slower, side = independent * level, independent * (1 - level), (1 - confidence) / 2
        low = float(special.betaincinv(faster, slower + 1, side))
        high = float(special.betaincinv(faster + 1, slower, 1 - side))
        if high > 1 - 0.5 / requests:  # no upper end: a slower request may just not have occurred
            return Estimate(value)
        return Estimate(value, self.percentile(100 * low), self.percentile(100 * high))


@dataclass(frozen=True, slots=True)
class Pair:
    """One task on two arms; ``a.rounds[i]`` and ``b.rounds[i]`` are the same round."""

    a: ArmTimes
    b: ArmTimes
    off: float = 0.0  # standard error of b / a that all rounds share, as a share

    def evidence(self, percentile: float, ratio: float = 1.0, shift: float = 0.0) -> Floats:
        """Per round, how much more of a's than of b's requests lie below the common percentile of a and (b -
        shift) / ratio. The values add up to the difference of the fractions; positive: b is slower.
        """
        at_a, at_b = self._common(percentile, ratio, shift)
        below_a, below_b = self.a.counts_below(at_a), self.b.counts_below(at_b)
        size_a, size_b = float(self.a.sizes.sum()), float(self.b.sizes.sum())
        level = float(below_a.sum() + below_b.sum()) / (size_a + size_b)
        return (below_a - level * self.a.sizes) / size_a - (below_b - level * self.b.sizes) / size_b

    def log_ratios(self, percentile: float) -> tuple[float, ...] | None:
        """Each round's estimate of log(b / a); their mean is the estimate from all requests together.

        A round's evidence is divided by the slope of the total evidence over the ratio (Bahadur 1966), taken
        over the ratio's uncertainty (Francisco and Fuller 1991): further away there may be other modes, and
        nearer gaps between few requests. None if the total does not fall gradually, as with tied times.
        """
        value = math.log(self.b.percentile(percentile) / self.a.percentile(percentile))
        count = len(self.a.rounds)

        def evidence(shift: float) -> Floats:
            return self.evidence(percentile, math.exp(value + shift))

        def is_kept(unsure: float, shift: float) -> bool:
            return abs(float(evidence(shift).sum())) <= unsure

        # where rounds have the same order on both arms, all agree on the ratio itself, but not next to it
        near = (evidence(shift) for shift in _BESIDE)
        departures = next((e - e.mean() for e in near if np.ptp(e) > _NOTHING), None)
        if departures is None:
            return (value,) * count
        unsure = _ERRORS * math.sqrt(count) * float(departures.std(ddof=1))
        while True:
            low, high = edges(partial(is_kept, unsure), 0.0)
            if low is None or high is None:
                return None
            if high - low >= _MIN_WIDTH:
                # a median between two modes lies near one side; the mean of both would make it look too
                # certain
                width = math.hypot(low, high) / math.sqrt(2)
                return tuple((value + count * width / unsure * departures).tolist())
            unsure *= 2  # with few distinct times: widen until the next ones are reached

    def ratio(self, percentile: float, confidence: float) -> Estimate:
        """b / a of the percentile; times must be above 0."""
        value = self.b.percentile(percentile) / self.a.percentile(percentile)
        if not self._is_spread(percentile):
            return Estimate(value)

        def is_kept(log_ratio: float) -> bool:
            return self._is_kept(percentile, confidence, ratio=math.exp(log_ratio))

        low, high = edges(is_kept, math.log(value))
        if low is None or high is None:
            return Estimate(value)
        return Estimate(value, math.exp(low), math.exp(high))

    def difference(self, percentile: float, confidence: float) -> Estimate:
        """b - a of the percentile, in seconds."""
        of_a = self.a.percentile(percentile)
        value = self.b.percentile(percentile) - of_a
        if not self._is_spread(percentile):
            return Estimate(value)

        def is_kept(shift: float) -> bool:
            return self._is_kept(percentile, confidence, shift=shift)

        low, high = edges(is_kept, value, scale=max(abs(of_a), abs(value)))
        return Estimate(value) if low is None or high is None else Estimate(value, low, high)

    def t(self, percentile: float, *, ratio: float = 1.0, shift: float = 0.0) -> float:
        """Student's t of rounds against b = ratio * a + shift; positive: b is slower."""
        t = student(self.evidence(percentile, ratio, shift))
        if not self.off:
            return t
        of_a, of_b = self.a.percentile(percentile), self.b.percentile(percentile)
        if shift:
            return less_sure(t, of_b - of_a - shift, self.off * of_b)
        return less_sure(t, math.log(of_b / of_a / ratio), self.off)

    def _is_kept(self, percentile: float, confidence: float, **truth: float) -> bool:
        """Whether the rounds do not reject this ratio or shift."""
        return abs(self.t(percentile, **truth)) <= critical_t(len(self.a.rounds), confidence)

    def _is_spread(self, percentile: float) -> bool:
        """Whether enough rounds have requests beyond a tail's percentile."""
        beyond = [arm.sizes - arm.counts_below(arm.percentile(percentile)) for arm in (self.a, self.b)]
        return percentile <= _MEDIAN or _spread(beyond[0] + beyond[1]) >= _ROUNDS_BEYOND

    def _common(self, percentile: float, ratio: float, shift: float) -> tuple[float, float]:
        """Percentile of a and (b - shift) / ratio together, on a's scale and on b's."""
        wanted = (len(self.a.all) + len(self.b.all)) * percentile / 100
        lower = self._smallest(math.ceil(wanted - 1e-9), ratio, shift)
        if abs(wanted - round(wanted)) > 1e-9:
            return lower
        upper = self._smallest(round(wanted) + 1, ratio, shift)
        return (lower[0] + upper[0]) / 2, (lower[1] + upper[1]) / 2

    def _smallest(self, rank: int, ratio: float, shift: float) -> tuple[float, float]:
        """The ``rank``-th smallest (from 1) of a and (b - shift) / ratio together, on both scales."""
        a, b = self.a.all, self.b.all
        # how many of a are among the first ``rank``: the fewest for which a's next is not before b's last
        low, high = max(0, rank - len(b)), min(rank, len(a))
        while low < high:
            taken = (low + high) // 2
            if a[taken] < (b[rank - taken - 1] - shift) / ratio:
                low = taken + 1
            else:
                high = taken
        last_a = float(a[low - 1]) if low else -math.inf
        last_b = float(b[rank - low - 1]) if rank > low else -math.inf
        if (last_b - shift) / ratio > last_a:
            return (last_b - shift) / ratio, last_b
        return last_a, last_a * ratio + shift


def _spread(counts: Floats) -> float:
    """Effective number of rounds with requests: all if even, one if all are in one (Kish 1965)."""
    squares = float((counts**2).sum())
    return float(counts.sum()) ** 2 / squares if squares else 0.0


def off_line(evidence: Floats) -> float:
    """Standard deviation of rounds around a straight line; the line takes one degree of freedom.

    A drift through the session makes rounds differ without making the result less certain. Each round counts
    by its distance from the line through the others: else a deviating round at an end would look like a
    drift.
    """
    place = np.arange(len(evidence)) - (len(evidence) - 1) / 2
    weight = 1 / len(evidence) + place**2 / float(place @ place)  # of a round in where the line lies at it
    rest = evidence - evidence.mean() - place * float(place @ evidence) / float(place @ place)
    return math.sqrt(float(((rest / (1 - weight)) ** 2).sum() / (1 / (1 - weight)).sum()))


def student(evidence: Floats, deviation: float | None = None) -> float:
    """Student's t of rounds whose mean should be 0; infinite if all rounds have the same value other than 0.

    ``deviation`` defaults to the rounds' own.
    """
    mean = float(evidence.mean())
    deviation = float(evidence.std(ddof=1)) if deviation is None else deviation
    if abs(mean) < _NOTHING:
        return 0.0
    return (
        mean / deviation * math.sqrt(len(evidence)) if deviation > _NOTHING else math.copysign(math.inf, mean)
    )


def less_sure(t: float, distance: float, off: float) -> float:
    """Student's t, reduced for a standard error ``off`` that all rounds share.

    ``distance`` is from the measured value to the truth that ``t`` tests, so distance / t is the standard
    error from the rounds; both are added as independent errors.
    """
    if not off or not t:
        return t
    return math.copysign(abs(distance) / math.hypot(distance / t, off), t)


def critical_t(rounds: int, confidence: float) -> float:
    """Critical value of Student's t for so many rounds: ``1 - confidence`` lies beyond plus and minus it."""
    return float(special.stdtrit(rounds - 1, (1 + confidence) / 2))


def below(t: float, rounds: int) -> float:
    """Probability of a t of at most this."""
    return float(special.stdtr(rounds - 1, t))


def rarest(rounds: int) -> float:
    """Probability of the most extreme order of so many rounds on two equal arms: all of one below all others.

    If all rounds say the same, Student's t is infinite and its p 0: more certainty than so few rounds can
    give, so this is a lower bound for p.
    """
    return float(1 / special.binom(2 * rounds, rounds))


def more_rounds(distance: float, tail: float, rounds: int, error: float, off: float) -> int | None:
    """How many further rounds would show that the truth is not ``distance`` from what was measured.

    An estimate, if what was measured is true and the noise stays; None where no such number would. ``tail``
    is the chance to be wrong, ``error`` the standard error after ``rounds``, with ``off`` in it, which more
    rounds do not reduce.
    """
    totals = np.arange(rounds + 1, _MAX_ROUNDS + 1)
    errors = np.sqrt(max(error**2 - off**2, 0.0) * rounds / totals + off**2)
    is_shown = distance >= (special.stdtrit(totals - 1, 1 - tail) + special.ndtri(_POWER)) * errors
    enough = totals[is_shown & (1 / special.binom(2 * totals, totals) <= tail)]
    return int(enough[0]) - rounds if len(enough) else None


def edges(
    kept: Callable[[float], bool], start: float, *, scale: float = 1.0
) -> tuple[float | None, float | None]:
    """Ends of the range around ``start`` (which is kept) where values are kept; None on a side without end.

    Searches in steps of ``scale`` / 100, doubled each time.
    """
    return _edge(kept, start, -scale * _FIRST_STEP), _edge(kept, start, scale * _FIRST_STEP)


def _edge(kept: Callable[[float], bool], start: float, step: float) -> float | None:
    """How far from ``start``, in steps that begin with ``step``, values are kept; None if there is no end."""
    inside, outside = start, start + step
    for _ in range(_STEPS):
        if not kept(outside):
            break
        inside, outside = outside, start + 2 * (outside - start)
    else:
        return None
    while abs(outside - inside) > _PRECISION * max(abs(outside - start), abs(step) * _PRECISION):
        middle = (inside + outside) / 2
        if kept(middle):
            inside = middle
        else:
            outside = middle
    return outside


def _furthest(is_kept: Callable[[int], bool], start: int, end: int) -> int | None:
    """Index closest to ``start``, towards ``end``, that is not kept; None if the last one is."""
    if is_kept(end):
        return None
    inside, outside = start, end
    while abs(outside - inside) > 1:
        middle = (inside + outside) // 2
        if is_kept(middle):
            inside = middle
        else:
            outside = middle
    return outside
