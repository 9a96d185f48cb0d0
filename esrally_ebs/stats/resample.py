"""Percentiles of two arms and how sure they are, when rounds (not requests) are drawn again.

Requests of one round share what that round was like, so they say less than their number suggests. Rounds are
drawn with replacement, both arms of a round together; the spread of the percentile over the draws is its
standard error, and Student's t with (rounds - 1) degrees of freedom allows for having seen few rounds.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

DRAWS = 2000
_SEED = 20210512  # fixed: the same samples always give the same report
_POINTS_PER_BLOCK = 1000  # a larger block is drawn from through this many of its quantiles
_CELLS_AT_ONCE = 4_000_000

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its interval; no interval (None) when there are too few rounds for one."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """One percentile of two arms, seconds, with the standard errors of difference and log ratio."""

    a: float
    b: float
    difference_error: float
    log_ratio_error: float

    @property
    def log_ratio(self) -> float:
        """log(b / a)."""
        return math.log(self.b / self.a)


def spreads(a: Sequence[Floats], b: Sequence[Floats], percentiles: Sequence[float]) -> list[Spread]:
    """One Spread per percentile; ``a[i]`` and ``b[i]`` are the service times (s, > 0) of one round."""
    rounds = len(a)
    draws = np.random.default_rng(_SEED).multinomial(rounds, [1 / rounds] * rounds, size=DRAWS)
    drawn_a, drawn_b = _drawn(a, draws, percentiles), _drawn(b, draws, percentiles)
    whole_a, whole_b = (
        np.percentile(np.concatenate(a), percentiles),
        np.percentile(np.concatenate(b), percentiles),
    )
    # The spread over draws is that of a mean with divisor n; the sample's own has n - 1.
    inflate = math.sqrt(rounds / (rounds - 1))
    differences = (drawn_b - drawn_a).std(axis=0, ddof=1) * inflate
    log_ratios = np.log(drawn_b / drawn_a).std(axis=0, ddof=1) * inflate
    return [
        Spread(a=float(pa), b=float(pb), difference_error=float(diff), log_ratio_error=float(ratio))
        for pa, pb, diff, ratio in zip(whole_a, whole_b, differences, log_ratios, strict=True)
    ]


def interval(value: float, error: float, rounds: int, confidence: float) -> Estimate:
    """Student's interval around a value."""
    half = error * float(special.stdtrit(rounds - 1, (1 + confidence) / 2))
    return Estimate(value, value - half, value + half)


def tail(distance: float, error: float, rounds: int) -> float:
    """The chance of being ``distance`` or more on one side of the truth."""
    if error == 0:
        return 0.0 if distance > 0 else 1.0
    return float(special.stdtr(rounds - 1, -distance / error))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment: comparing each to alpha bounds the chance of any false claim by alpha."""
    adjusted = [1.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = highest
    return adjusted


def _drawn(blocks: Sequence[Floats], draws: npt.NDArray[np.int64], percentiles: Sequence[float]) -> Floats:
    """Percentiles of the pooled requests of each draw: (draws, percentiles)."""
    thinned = [_thin(block) for block in blocks]
    values = np.concatenate(thinned)
    weight = np.concatenate([np.full(len(t), len(b) / len(t)) for t, b in zip(thinned, blocks, strict=True)])
    block_of = np.repeat(np.arange(len(blocks)), [len(block) for block in thinned])
    order = np.argsort(values, kind="stable")
    values, weight, block_of = values[order], weight[order], block_of[order]
    rows = []
    for some in _slices(draws, len(values)):
        cumulated = np.cumsum(some[:, block_of] * weight, axis=1)
        total = cumulated[:, -1:]
        # 1e-9: sums of weights that should be equal may differ in the last bit
        below = [(cumulated < total * (q / 100) * (1 - 1e-9)).sum(axis=1) for q in percentiles]
        rows.append(values[np.minimum(np.stack(below, axis=1), len(values) - 1)])
    return np.concatenate(rows)


def _thin(block: Floats) -> Floats:
    if len(block) <= _POINTS_PER_BLOCK:
        return block
    return np.quantile(block, (np.arange(_POINTS_PER_BLOCK) + 0.5) / _POINTS_PER_BLOCK)


def _slices(draws: npt.NDArray[np.int64], width: int) -> Iterator[npt.NDArray[np.int64]]:
    step = max(1, _CELLS_AT_ONCE // max(1, width))
    for start in range(0, len(draws), step):
        yield draws[start : start + step]
