"""The service time of one I/O once the limiters let it pass: operation and size in, seconds out.

``(base + per_kib * KiB) * exp(N(0, sigma))``: a log-normal whose median grows linearly with the size. Pure
and reproducible: the same seed gives the same sequence.
"""

import math
import random

from esrally_ebs.catalog.limits import Service


def drawn_s(median_s: float, sigma: float, normal: float) -> float:
    """A service time from its median and one draw of the standard normal distribution."""
    return median_s * math.exp(sigma * normal)


class Latency:
    """Draws service times of reads and writes."""

    def __init__(self, read: Service, write: Service, seed: int) -> None:
        """A fresh sequence for ``seed``."""
        self._gauss = random.Random(seed).gauss
        self._read, self._write = read, write
        self.slow_reads(1.0)

    def slow_reads(self, times: float) -> None:
        """Multiply the service time of reads by this factor from now on."""
        # Plain numbers in tuples, as the daemon draws tens of thousands a second.
        self._of = tuple((*s.line_s(), s.sigma) for s in (self._read.slowed(times), self._write))

    def seconds(self, size: int, *, write: bool) -> float:
        """The service time in seconds of one I/O of ``size`` bytes."""
        base, per_byte, sigma = self._of[write]
        median = base + per_byte * size
        return drawn_s(median, sigma, self._gauss(0.0, 1.0)) if sigma else median
