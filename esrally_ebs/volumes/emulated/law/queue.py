"""The queue before a volume, and service times: how many requests its device holds, and what merging saves.

A sequential I/O that waits for a place in a full queue can be merged with the one before it; both then count
as one operation. Virtual time and the daemon share these functions, and differ in how they know who waits.
"""

import math
import random

from esrally_ebs.catalog.limits import Model, Service

# Requests that a volume's device holds; the NVMe queue of an EBS volume has 32. With it, latencies of
# published runs of 16 clones with 16 I/Os each (2020) are reproduced: see docs/internals/emulation.md.
QUEUE = 32
# AWS advises one I/O in flight per 1,000 IOPS ("I/O characteristics and monitoring", User Guide of 2023).
# Fewer would keep a volume below its limit: 32 in flight at 0.28 ms are 114,000 of io2's 256,000.
IOPS_OF_A_REQUEST = 1000
# Part of an operation that a waiting I/O saves by merging, fitted to 4,930 IOPS of sequential 64 KiB on a
# volume of 3,000 IOPS (2023).
MERGED = 0.39


def drawn_s(median_s: float, sigma: float, normal: float) -> float:
    """A service time from its median and one draw of the standard normal distribution."""
    return median_s * math.exp(sigma * normal)


class Latency:
    """Draws service times of reads and writes, which follow the limiters' wait.

    ``(base + per_kib * KiB) * exp(N(0, sigma))``: a log-normal whose median grows linearly with the size. The
    same seed gives the same sequence.
    """

    def __init__(self, read: Service, write: Service, seed: int) -> None:
        self._gauss = random.Random(seed).gauss
        self._read, self._write = read, write
        self.slow_reads(1.0)

    def slow_reads(self, times: float) -> None:
        """From now on, multiply the service time of reads by this factor."""
        # Tuples of plain numbers, as the daemon draws tens of thousands a second.
        self._of = tuple((*s.line_s(), s.sigma) for s in (self._read.slowed(times), self._write))

    def seconds(self, size: int, *, write: bool) -> float:
        """The service time in seconds of one I/O of ``size`` bytes."""
        base, per_byte, sigma = self._of[write]
        median = base + per_byte * size
        return drawn_s(median, sigma, self._gauss(0.0, 1.0)) if sigma else median


def places(model: Model) -> int:
    """Requests that a volume's devices hold, all members of a stripe together."""
    iops = max((limit.rate for limit in model.limits if limit.name == "iops"), default=0.0)
    return max(QUEUE, math.ceil(iops / IOPS_OF_A_REQUEST)) * model.stripes


def saved_of(size: int, max_io_bytes: int, merge_over_bytes: int) -> float:
    """Part of its operation that a sequential I/O of ``size`` bytes saves if it waits beside the last one.

    0 for the largest size of an I/O, and where sequential I/Os are counted together anyway (HDD types; SSD
    types have a negative ``merge_over_bytes``).
    """
    if merge_over_bytes >= 0 or size >= max_io_bytes:
        return 0.0
    return min(MERGED, 1.0 - size / max_io_bytes)


class Queue:
    """A volume's queue for the daemon, which gets all requests at once and must find out which ones wait."""

    def __init__(self, model: Model) -> None:
        self._max_io = model.accounting.max_io_bytes
        self._merge_over = model.accounting.merges_over
        self._places = places(model)
        self._ends: dict[tuple[int, bool], None] = {}  # ends of the last requests, up to as many as places

    def saved(self, offset: int, size: int, in_flight: int, *, write: bool) -> float:
        """Part of its operation that a request saves, if ``in_flight`` others are not answered yet."""
        ends = self._ends
        waits_beside = in_flight >= self._places and (offset, write) in ends
        end = offset + size, write
        ends.pop(end, None)  # reinserted below as the newest
        ends[end] = None
        if len(ends) > self._places:
            del ends[next(iter(ends))]
        return saved_of(size, self._max_io, self._merge_over) if waits_beside else 0.0
