"""The queue before a volume: how many requests its device holds, and what merging saves those that wait.

A sequential I/O that waits for a place in a full queue can join the one before it, and both then count as
one operation. Virtual time and the daemon use the same functions; only how each knows who waits differs.
"""

from math import ceil

from esrally_ebs.catalog.limits import Model

# Requests that a volume's device holds; 32 is what the NVMe queue of an EBS volume has. With it, latencies of
# published runs of 16 clones with 16 I/Os each (2020) come out: see docs/internals/emulation.md.
QUEUE = 32
# AWS advises one I/O in flight per 1,000 IOPS ("I/O characteristics and monitoring", User Guide of 2023).
# Fewer would keep a volume from what it is sold for: 32 in flight at 0.28 ms are 114,000 of io2's 256,000.
IOPS_OF_A_REQUEST = 1000
# What of an operation is saved by an I/O that waits, fitted to 4,930 IOPS of sequential 64 KiB on a volume of
# 3,000 IOPS (2023).
MERGED = 0.39


def places(model: Model) -> int:
    """How many requests the devices of a volume hold, all members of a striped one together."""
    iops = max((limit.rate for limit in model.limits if limit.name == "iops"), default=0.0)
    return max(QUEUE, ceil(iops / IOPS_OF_A_REQUEST)) * model.stripes


def saved_of(size: int, max_io_bytes: int, merge_over_bytes: int) -> float:
    """What of its operation a sequential I/O of ``size`` bytes saves when it waits beside the one before it.

    Nothing where it is as large as an I/O can be, or where sequential I/Os are counted together anyway (HDD
    types; SSD types have a negative ``merge_over_bytes``).
    """
    if merge_over_bytes >= 0 or size >= max_io_bytes:
        return 0.0
    return min(MERGED, 1.0 - size / max_io_bytes)


class Queue:
    """A volume's queue as the daemon sees it, which is given all requests at once and must tell who waits."""

    def __init__(self, model: Model) -> None:
        """Empty."""
        self._max_io = model.accounting.max_io_bytes
        self._merge_over = model.accounting.merges_over
        self._places = places(model)
        self._ends: dict[tuple[int, bool], None] = {}  # of the last requests, as many as there are places

    def saved(self, offset: int, size: int, in_flight: int, *, write: bool) -> float:
        """What of its operation a request saves that comes when ``in_flight`` others are not answered yet."""
        ends = self._ends
        waits_beside = in_flight >= self._places and (offset, write) in ends
        end = offset + size, write
        ends.pop(end, None)  # so that it is the newest
        ends[end] = None
        if len(ends) > self._places:
            del ends[next(iter(ends))]
        return saved_of(size, self._max_io, self._merge_over) if waits_beside else 0.0
