"""Reproducible randomness without a stream: integer hashes, a keyed permutation and inverse-CDF tables.

From a seed and numbers to numbers; the same on every machine, numpy version and number of workers, which
neither numpy's generators nor its floating-point functions guarantee.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]

DRAW_BITS: Final = 14
DRAWS: Final = 1 << DRAW_BITS  # number of values that a draw can have
_DRAWS_PER_HASH: Final = 64 // DRAW_BITS
_GOLDEN: Final = 0x9E3779B97F4A7C15
_ROUNDS: Final = 4  # of the Feistel network; three already give a pseudo-random permutation
_MASK: Final = (1 << 64) - 1


def mix(values: Hashes) -> Hashes:
    """Scramble 64-bit numbers with splitmix64's finaliser."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def keyed(seed: int, numbers: Integers) -> Hashes:
    """One hash per number; different for each seed."""
    start = np.array([(seed * _GOLDEN + 1) & _MASK], dtype=np.uint64)
    return mix(numbers.astype(np.uint64) * np.uint64(_GOLDEN) + mix(start))


class HashDraws:
    """Any number of independent draws of ``0 .. DRAWS-1`` for each hash."""

    def __init__(self, hashes: Hashes) -> None:
        self._hashes = hashes
        self._current = hashes
        self._taken = 0

    def next(self) -> Integers:
        turn, part = divmod(self._taken, _DRAWS_PER_HASH)
        if part == 0:
            step = np.uint64((turn + 1) * _GOLDEN & _MASK)
            self._current = mix(self._hashes + step)
        self._taken += 1
        shifted = self._current >> np.uint64(part * DRAW_BITS)
        return (shifted & np.uint64(DRAWS - 1)).astype(np.int64)


class Permutation:
    """A keyed permutation of ``0 .. size-1``, any part of which can be computed alone.

    A Feistel network over a rectangle slightly larger than ``size``; results outside are permuted again until
    they are inside.
    """

    def __init__(self, size: int, seed: int) -> None:
        self._size = size
        self._rows = math.isqrt(size) + 1
        self._columns = -(-size // self._rows)
        self._tables = [self._table(seed, number) for number in range(_ROUNDS)]

    def _table(self, seed: int, number: int) -> Integers:
        inputs, outputs = (self._columns, self._rows) if number % 2 == 0 else (self._rows, self._columns)
        hashes = keyed(seed * _ROUNDS + number, np.arange(inputs, dtype=np.int64))
        return (hashes % np.uint64(outputs)).astype(np.int64)

    def __call__(self, positions: Integers) -> Integers:
        places = self._once(positions)
        outside = np.flatnonzero(places >= self._size)
        while outside.size:
            places[outside] = self._once(places[outside])
            outside = outside[places[outside] >= self._size]
        return places

    def _once(self, places: Integers) -> Integers:
        row, column = np.divmod(places, self._columns)
        for number, table in enumerate(self._tables):
            if number % 2 == 0:
                row = (row + table[column]) % self._rows
            else:
                column = (column + table[row]) % self._columns
        return row * self._columns + column


def normal_table() -> Integers:
    """Inverse CDF of the standard normal distribution for every draw, in thousandths."""
    return np.array([round(1000 * score) for score in _normal_scores()], dtype=np.int64)


def gamma_table(shape: float) -> Integers:
    """Inverse CDF, in thousandths, of a gamma distribution of mean 1 (Wilson and Hilferty's formula)."""
    centre, spread = 1 - 1 / (9 * shape), 1 / (3 * math.sqrt(shape))
    values = (max(0.0, centre + spread * score) ** 3 for score in _normal_scores())
    return np.array([round(1000 * value) for value in values], dtype=np.int64)


def _normal_scores() -> list[float]:
    return [NormalDist().inv_cdf((draw + 0.5) / DRAWS) for draw in range(DRAWS)]


def quantile_table(points: Sequence[Sequence[int]], entries: int) -> Integers:
    """``entries`` evenly spaced values of the quantile function through (share in 1/1000, value) points."""
    shares, values = np.array(points, dtype=np.int64).T
    shares = shares * 2 * entries  # in units of 1/(2000 entries), so that everything stays an integer
    at = (2 * np.arange(entries, dtype=np.int64) + 1) * 1000
    segment = np.searchsorted(shares, at, side="right") - 1
    width, height = np.diff(shares), np.diff(values)
    values_at: Integers = values[segment] + height[segment] * (at - shares[segment]) // width[segment]
    return values_at
