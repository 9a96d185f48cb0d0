"""fio's histogram of latencies: nanoseconds in, a bin out, and back."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

BINS = 29 * 64  # 64 to each power of two of nanoseconds, as fio has them; the last ends at 17 s


def bin_of(nanoseconds: float) -> int:
    """The bin of a latency."""
    if nanoseconds < 64.0:
        return max(0, int(nanoseconds))
    mantissa, exponent = math.frexp(nanoseconds)  # mantissa in [0.5, 1)
    return min(BINS - 1, (exponent - 7) * 64 + int(mantissa * 128.0))


def middle_ns(number: int) -> int:
    """The middle of a bin in nanoseconds."""
    octave, step = divmod(number, 64)
    if octave < 2:
        return number
    width = 1 << (octave - 1)
    return int((64 + step + 0.5) * width)


def percentile_ns(bins: Sequence[int], percentile: float) -> int:
    """Nanoseconds: the middle of the first bin that, with those below it, holds the share; 0 for no I/O."""
    cumulated = list(accumulate(bins))
    if not cumulated or not cumulated[-1]:
        return 0
    return middle_ns(bisect_left(cumulated, max(1, percentile / 100 * cumulated[-1])))
