"""The service time of one I/O once the limiters let it pass: operation and size in, seconds out.

``(base + per_kib * KiB) * exp(N(0, sigma))``: a log-normal whose median grows linearly with the size. Pure
and reproducible: the same seed gives the same sequence.
"""

import math
import random
from dataclasses import dataclass, replace

_US = 1e-6
_KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One operation's service time: the median is ``base_us + per_kib_us * KiB`` microseconds."""

    base_us: float
    per_kib_us: float
    sigma: float  # of the natural logarithm

    def median_s(self, size: int) -> float:
        """Median service time in seconds of an I/O of ``size`` bytes."""
        base, per_byte = self.line_s()
        return base + per_byte * size

    def slowed(self, factor: float) -> "Service":
        """The same with every service time ``factor`` times as long."""
        return replace(self, base_us=self.base_us * factor, per_kib_us=self.per_kib_us * factor)

    def line_s(self) -> tuple[float, float]:
        """The median as a line: seconds for nothing, and seconds per byte."""
        return self.base_us * _US, self.per_kib_us * _US / _KIB


def drawn_s(median_s: float, sigma: float, normal: float) -> float:
    """A service time from its median and one draw of the standard normal distribution."""
    return median_s * math.exp(sigma * normal)


class Latency:
    """Draws service times of reads and writes."""

    def __init__(self, read: Service, write: Service, seed: int) -> None:
        """A fresh sequence for ``seed``."""
        self._gauss = random.Random(seed).gauss
        # Plain numbers in tuples, as the daemon draws tens of thousands a second.
        self._of = tuple((*s.line_s(), s.sigma) for s in (read, write))

    def seconds(self, size: int, *, write: bool) -> float:
        """The service time in seconds of one I/O of ``size`` bytes."""
        base, per_byte, sigma = self._of[write]
        median = base + per_byte * size
        return drawn_s(median, sigma, self._gauss(0.0, 1.0)) if sigma else median
