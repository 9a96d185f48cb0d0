"""The limiters of a volume as token buckets: an I/O and the time in, the seconds it must wait out.

Pure: the caller gives the time, so the same code serves the daemon and virtual time. A bucket may go into
debt; an I/O waits until the debt at its arrival is paid, so order is kept and the long-run rate is exact. A
bucket that holds exactly one second of its rate reproduces published runs to about 0.1 % (two fio jobs of
128 MiB on a 128 MiB/s volume take 1.000 s, sixteen take 15.0 s).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

CREDITS = "credits"  # the name of the bucket of burst credits, which no one waits for to fill


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One token bucket: ``rate`` tokens a second, at most ``capacity`` of them saved up."""

    name: str  # "iops", "throughput" or CREDITS
    counts: Literal["operations", "bytes"]
    rate: float  # operations or bytes per second
    capacity: float  # operations or bytes


def per_second(name: str, counts: Literal["operations", "bytes"], rate: float) -> Limit:
    """The limit of a provisioned rate: its bucket holds one second of it."""
    return Limit(name=name, counts=counts, rate=rate, capacity=rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounting:
    """How an I/O is counted.

    SSD types count one operation per started ``max_io_bytes`` and the bytes as they are. HDD types charge a
    whole ``max_io_bytes`` for any I/O unless it continues the last one and is larger than
    ``merge_over_bytes``.
    """

    max_io_bytes: int
    merge_over_bytes: int | None = None


class Bucket:
    """One limit's tokens at a time; ``waited_s`` adds up the waits for which this bucket was the cause."""

    __slots__ = ("_last", "counts_operations", "level", "limit", "waited_s")

    def __init__(self, limit: Limit, now: float) -> None:
        """A full bucket."""
        self.limit = limit
        self.counts_operations = limit.counts == "operations"
        self.level = limit.capacity
        self.waited_s = 0.0
        self._last = now

    def take(self, amount: float, now: float) -> float:
        """Take tokens at once, into debt if need be; the seconds until the debt is paid."""
        limit = self.limit
        level = self.level
        if now > self._last:
            level = min(limit.capacity, level + (now - self._last) * limit.rate)
            self._last = now
        self.level = level = level - amount
        return 0.0 if level >= 0 else -level / limit.rate

    def fill_to(self, fraction: float, now: float) -> None:
        """Set the level to a fraction of the capacity."""
        self.take(0.0, now)
        self.level = fraction * self.limit.capacity

    def seconds_until_full(self, now: float) -> float:
        """How long the bucket must be left alone until it is full."""
        self.take(0.0, now)
        return (self.limit.capacity - self.level) / self.limit.rate


class Limiter:
    """All buckets of one volume; an I/O waits for the slowest of them."""

    def __init__(self, limits: tuple[Limit, ...], accounting: Accounting, now: float) -> None:
        """Full buckets."""
        self.buckets: Mapping[str, Bucket] = {limit.name: Bucket(limit, now) for limit in limits}
        self._ordered = tuple(self.buckets.values())
        self._max_io = accounting.max_io_bytes
        self._merge_over = accounting.merge_over_bytes
        self._next_offset = -1

    def admit(self, offset: int, size: int, now: float) -> float:
        """Charge one I/O of ``size`` bytes that arrives ``now``; the seconds it must wait before it is
        served."""
        operations = -(-size // self._max_io) or 1
        charged = size if self._merge_over is None else self._hdd_bytes(offset, size, operations)
        longest = 0.0
        cause = None
        for bucket in self._ordered:
            wait = bucket.take(operations if bucket.counts_operations else charged, now)
            if wait > longest:
                longest = wait
                cause = bucket
        if cause is not None:
            cause.waited_s += longest
        return longest

    def _hdd_bytes(self, offset: int, size: int, operations: int) -> int:
        merged = offset == self._next_offset and size > (self._merge_over or 0)
        self._next_offset = offset + size
        return size if merged else operations * self._max_io

    def refill(self, now: float) -> None:
        """Fill all buckets but the credits."""
        self._set_all(1.0, now)

    def drain(self, now: float) -> None:
        """Empty all buckets but the credits."""
        self._set_all(0.0, now)

    def set_credits(self, fraction: float, now: float) -> None:
        """Set the burst credits to a fraction of the bucket; nothing for a volume without credits."""
        if CREDITS in self.buckets:
            self.buckets[CREDITS].fill_to(fraction, now)

    def seconds_until_full(self, now: float) -> float:
        """How long the volume must rest until all buckets but the credits are full."""
        return max(
            (b.seconds_until_full(now) for name, b in self.buckets.items() if name != CREDITS), default=0.0
        )

    def levels(self, now: float) -> dict[str, float]:
        """Tokens in each bucket, negative while in debt."""
        for bucket in self._ordered:
            bucket.take(0.0, now)
        return {name: bucket.level for name, bucket in self.buckets.items()}

    def _set_all(self, fraction: float, now: float) -> None:
        for name, bucket in self.buckets.items():
            if name != CREDITS:
                bucket.fill_to(fraction, now)
