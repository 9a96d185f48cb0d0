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
_PRECISION = 1e-3  # of the distance from the estimate to that end
_MEDIAN = 50
# So many rounds must hold what lies beyond a tail's percentile of two arms, or its interval hangs on luck.
_ROUNDS_BEYOND = 5
_BESIDE = (0.0, 0.001, -0.001, 0.01, -0.01, 0.1, -0.1, 1.0, -1.0)  # a ratio, as logarithms
_ERRORS = 1.5  # so many standard errors to both sides: with one, few requests tell it by leaps
_MIN_WIDTH = 1e-6  # of logarithms: less is a leap over times that are equal
_STEPS = 16  # doublings after which there is no end: a ratio of e ** 655
_NOTHING = 1e-12  # what sums of fractions that should cancel may be off
_MIN_SPREAD = 1e-9  # of observations that agree to the last digit


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its interval; an end is None when there is too little to tell it."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of sessions, or of starts of the nodes, each one observation: Student's t over them.

    Whatever a JVM draws for as long as it lives is in their spread. For a balanced one-way layout that is
    what REML with Satterthwaite's degrees of freedom gives (Searle, Casella and McCulloch 1992).
    """

    values: tuple[float, ...]
    own: float = _MIN_SPREAD**2  # their own variance, for values that are all the same
    off: float = 0.0  # what all of them are off by alike, a standard error

    @property
    def count(self) -> int:
        """So many observations have one degree of freedom less."""
        return len(self.values)

    @property
    def value(self) -> float:
        return float(np.mean(self.values))

    @property
    def variance(self) -> float:
        """Of one observation."""
        spread = float(np.var(self.values, ddof=1))
        return spread if math.sqrt(spread) >= _MIN_SPREAD else self.own

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return math.sqrt(self.variance / self.count + self.off**2)

    def t(self, truth: float) -> float:
        """Student's t against the true mean being ``truth``."""
        return (self.value - truth) / self.error

    def p_different(self) -> float:
        """Of the true mean's being 0."""
        return 2 * below(-abs(self.t(0.0)), self.count)

    def p_equivalent(self, limit: float) -> float:
        """Of the true mean's lying outside of plus and minus ``limit``, by two one-sided tests."""
        return max(below(self.t(limit), self.count), below(-self.t(-limit), self.count))

    def interval(self, confidence: float) -> Estimate:
        half = critical_t(self.count, confidence) * self.error
        return Estimate(self.value, self.value - half, self.value + half)

    def ratio(self, confidence: float) -> Estimate:
        """Of logarithms, the interval of what they are of."""
        value, half = self.value, critical_t(self.count, confidence) * self.error
        return Estimate(math.exp(value), math.exp(value - half), math.exp(value + half))


class ArmTimes:
    """Service times (s) of one task on one arm, sorted within each round; rounds are in the order of time."""

    def __init__(self, rounds: Sequence[Floats]) -> None:
        self.rounds = [np.sort(times) for times in rounds]
        # stable sorting merges what is sorted already
        self.all = np.sort(np.concatenate(self.rounds), kind="stable")
        self.sizes = np.array([len(times) for times in self.rounds], dtype=np.float64)

    def percentile(self, percentile: float) -> float:
        """Of all requests together, interpolated as numpy does."""
        place = (len(self.all) - 1) * percentile / 100
        below = math.floor(place)
        above = min(below + 1, len(self.all) - 1)
        return float(self.all[below] + (self.all[above] - self.all[below]) * (place - below))

    def counts_below(self, value: float) -> Floats:
        """Requests of each round below ``value``; one that equals it is half below."""
        doubled = [
            times.searchsorted(value, "left") + times.searchsorted(value, "right") for times in self.rounds
        ]
        return np.array(doubled) / 2

    def interval(self, percentile: float, confidence: float) -> Estimate:
        """The percentile of all requests, with the interval that rounds give it (Woodruff 1952)."""
        value = self.percentile(percentile)
        if percentile > _MEDIAN:
            return self._tail(value, percentile, confidence)
        critical = critical_t(len(self.rounds) - 1, confidence)  # the line takes a degree of freedom

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
        """A high percentile, by an interval of the fraction below it (Korn and Graubard 1998).

        Rounds say as much of that fraction as so many independent requests would: the binomial interval of
        these is lopsided, as rounds are of which few reach the tail.
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
        if high > 1 - 0.5 / requests:  # the slowest request is no end: a slower one was only not met
            return Estimate(value)
        return Estimate(value, self.percentile(100 * low), self.percentile(100 * high))


@dataclass(frozen=True, slots=True)
class Pair:
    """One task on two arms; ``a.rounds[i]`` and ``b.rounds[i]`` are of the same round."""

    a: ArmTimes
    b: ArmTimes
    off: float = 0.0  # standard error of what b / a is off by in all rounds alike, as a share

    def evidence(self, percentile: float, ratio: float = 1.0, shift: float = 0.0) -> Floats:
        """One number per round: how much more of a's than of b's requests lie below the percentile common to
        a and (b - shift) / ratio; the numbers add up to the difference of the fractions. Positive: b slower.
        """
        at_a, at_b = self._common(percentile, ratio, shift)
        below_a, below_b = self.a.counts_below(at_a), self.b.counts_below(at_b)
        size_a, size_b = float(self.a.sizes.sum()), float(self.b.sizes.sum())
        level = float(below_a.sum() + below_b.sum()) / (size_a + size_b)
        return (below_a - level * self.a.sizes) / size_a - (below_b - level * self.b.sizes) / size_b

    def log_ratios(self, percentile: float) -> tuple[float, ...] | None:
        """What each round says of b / a, as logarithms whose mean is that of all requests together.

        The evidence of a round, by how fast that of all falls with the ratio (Bahadur 1966): over as far as
        the ratio is unsure (Francisco and Fuller 1991), for beyond it may lie other modes, and close by
        gaps between few requests. None where it does not fall bit by bit, as among times that are equal.
        """
        value = math.log(self.b.percentile(percentile) / self.a.percentile(percentile))
        count = len(self.a.rounds)

        def evidence(shift: float) -> Floats:
            return self.evidence(percentile, math.exp(value + shift))

        def is_kept(unsure: float, shift: float) -> bool:
            return abs(float(evidence(shift).sum())) <= unsure

        # where rounds come in the same order on both arms, all agree on the ratio itself, and not beside it
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
                # a median between two modes lies near one side: by their mean, it would seem surer than it is
                width = math.hypot(low, high) / math.sqrt(2)
                return tuple((value + count * width / unsure * departures).tolist())
            unsure *= 2  # of times with few levels: as far as to the next ones

    def ratio(self, percentile: float, confidence: float) -> Estimate:
        """b / a of the percentile, for times above 0."""
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
        """Student's t of rounds against the truth being b = ratio * a + shift; positive: b is slower."""
        t = student(self.evidence(percentile, ratio, shift))
        if not self.off:
            return t
        of_a, of_b = self.a.percentile(percentile), self.b.percentile(percentile)
        if shift:
            return less_sure(t, of_b - of_a - shift, self.off * of_b)
        return less_sure(t, math.log(of_b / of_a / ratio), self.off)

    def _is_kept(self, percentile: float, confidence: float, **truth: float) -> bool:
        """Whether the rounds do not speak against this ratio, or shift, being true."""
        return abs(self.t(percentile, **truth)) <= critical_t(len(self.a.rounds), confidence)

    def _is_spread(self, percentile: float) -> bool:
        """Whether the requests beyond a tail's percentile are of enough rounds."""
        beyond = [arm.sizes - arm.counts_below(arm.percentile(percentile)) for arm in (self.a, self.b)]
        return percentile <= _MEDIAN or _spread(beyond[0] + beyond[1]) >= _ROUNDS_BEYOND

    def _common(self, percentile: float, ratio: float, shift: float) -> tuple[float, float]:
        """The percentile of a and (b - shift) / ratio together, on the scale of a and on that of b."""
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
    """Over how many rounds requests are spread: all when even, one when all lie in one (Kish 1965)."""
    squares = float((counts**2).sum())
    return float(counts.sum()) ** 2 / squares if squares else 0.0


def off_line(evidence: Floats) -> float:
    """The standard deviation of rounds around a straight line through them, of one degree of freedom less.

    A drift through the session lets rounds differ without making what was measured less certain. Each
    round counts by how far it lies from the line through the others, or one at an end would pass for a drift.
    """
    place = np.arange(len(evidence)) - (len(evidence) - 1) / 2
    weight = 1 / len(evidence) + place**2 / float(place @ place)  # of a round in where the line lies at it
    rest = evidence - evidence.mean() - place * float(place @ evidence) / float(place @ place)
    return math.sqrt(float(((rest / (1 - weight)) ** 2).sum() / (1 / (1 - weight)).sum()))


def student(evidence: Floats, deviation: float | None = None) -> float:
    """Student's t of rounds whose mean should be 0; infinite when all rounds say the same and it is not 0.

    ``deviation`` is that of the rounds by themselves unless it is given.
    """
    mean = float(evidence.mean())
    deviation = float(evidence.std(ddof=1)) if deviation is None else deviation
    if abs(mean) < _NOTHING:
        return 0.0
    return (
        mean / deviation * math.sqrt(len(evidence)) if deviation > _NOTHING else math.copysign(math.inf, mean)
    )


def less_sure(t: float, distance: float, off: float) -> float:
    """Student's t of what may be ``off`` (a standard error) in all rounds alike, besides what they show.

    ``distance``: how far what was measured is from the truth that ``t`` is against, so that distance / t is
    its standard error by rounds; both errors are added as independent ones are.
    """
    if not off or not t:
        return t
    return math.copysign(abs(distance) / math.hypot(distance / t, off), t)


def critical_t(rounds: int, confidence: float) -> float:
    """Beyond plus and minus this lies ``1 - confidence`` of Student's distribution for so many rounds."""
    return float(special.stdtrit(rounds - 1, (1 + confidence) / 2))


def below(t: float, rounds: int) -> float:
    """The chance of a t of at most this."""
    return float(special.stdtr(rounds - 1, t))


def rarest(rounds: int) -> float:
    """The chance of the most extreme order of so many rounds on each of two arms that are alike.

    All of one below all of the other: then all rounds say the same, Student's t is infinite, and its p of 0
    would be a certainty that so few rounds cannot give.
    """
    return float(1 / special.binom(2 * rounds, rounds))


def edges(
    kept: Callable[[float], bool], start: float, *, scale: float = 1.0
) -> tuple[float | None, float | None]:
    """Between what values around ``start``, which is kept, all are; None on a side that has no end.

    ``scale`` is that of the values: an end is sought in steps of a hundredth of it, doubled each time.
    """
    return _edge(kept, start, -scale * _FIRST_STEP), _edge(kept, start, scale * _FIRST_STEP)


def _edge(kept: Callable[[float], bool], start: float, step: float) -> float | None:
    """How far from ``start`` in the direction of ``step`` values are kept; None when there is no end."""
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
    """The index closest to ``start``, towards ``end``, that is not kept; None when the last one is."""
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
