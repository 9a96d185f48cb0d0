"""The limiters of a volume as token buckets: an I/O and the time in, the seconds it must wait out.

Pure: the caller gives the time, so the same code serves the daemon and virtual time. A bucket may go into
debt; an I/O waits until the debt at its arrival is paid, so order is kept and the long-run rate is exact. A
bucket that holds exactly one second of its rate reproduces published runs to about 0.1 % (two fio jobs of
128 MiB on a 128 MiB/s volume take 1.000 s, sixteen take 15.0 s).
"""

from collections.abc import Mapping, MutableSequence, Sequence
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


def charged_bytes(size: int, continues: bool, max_io_bytes: int, merge_over_bytes: int) -> int:
    """The bytes that an I/O costs; a negative ``merge_over_bytes`` stands for SSD types."""
    if merge_over_bytes < 0 or (continues and size > merge_over_bytes):
        return size
    return operations_of(size, max_io_bytes) * max_io_bytes


def operations_of(size: int, max_io_bytes: int) -> int:
    """The operations that an I/O costs."""
    return -(-size // max_io_bytes) or 1


def admit(
    levels: MutableSequence[float],
    waited_s: MutableSequence[float],
    rates: Sequence[float],
    capacities: Sequence[float],
    by_operation: Sequence[bool],
    operations: int,
    charged: int,
    elapsed_s: float,
) -> float:
    """Fill all buckets for ``elapsed_s``, take one I/O from each, into debt if need be; the seconds to wait.

    The law itself, on plain sequences: the daemon calls it with lists, virtual time also with arrays.
    """
    longest = 0.0
    cause = -1
    for i, rate in enumerate(rates):
        level = levels[i]
        if elapsed_s > 0.0:
            level += elapsed_s * rate
            if level > capacities[i]:
                level = capacities[i]
        level -= operations if by_operation[i] else charged
        levels[i] = level
        if level < 0.0:
            wait = -level / rate
            if wait > longest:
                longest = wait
                cause = i
    if cause >= 0:
        waited_s[cause] += longest
    return longest


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """One limit's tokens at a time; ``waited_s`` adds up the waits for which this bucket was the cause."""

    limit: Limit
    level: float  # tokens, negative while in debt
    waited_s: float


class Limiter:
    """All buckets of one volume; an I/O waits for the slowest of them."""

    def __init__(self, limits: tuple[Limit, ...], accounting: Accounting, now: float) -> None:
        """Full buckets."""
        merge_over = accounting.merge_over_bytes
        self._limits = limits
        self._rates = [float(limit.rate) for limit in limits]
        self._capacities = [float(limit.capacity) for limit in limits]
        self._by_operation = [limit.counts == "operations" for limit in limits]
        self._levels = list(self._capacities)
        self._waited_s = [0.0] * len(limits)
        self._max_io = accounting.max_io_bytes
        self._merge_over = -1 if merge_over is None else merge_over
        self._next_offset = -1
        self._last = now

    @property
    def buckets(self) -> Mapping[str, Bucket]:
        """Each bucket as it was when the volume was last asked for anything."""
        states = zip(self._limits, self._levels, self._waited_s, strict=True)
        return {limit.name: Bucket(limit=limit, level=level, waited_s=w) for limit, level, w in states}

    def admit(self, offset: int, size: int, now: float) -> float:
        """Charge one I/O of ``size`` bytes that arrives ``now``; the seconds it must wait before it is
        served."""
        charged = charged_bytes(size, offset == self._next_offset, self._max_io, self._merge_over)
        self._next_offset = offset + size
        elapsed_s = now - self._last
        if elapsed_s > 0:
            self._last = now
        return admit(
            self._levels,
            self._waited_s,
            self._rates,
            self._capacities,
            self._by_operation,
            operations_of(size, self._max_io),
            charged,
            elapsed_s,
        )

    def _fill(self, now: float) -> None:
        """Bring all levels up to ``now`` without charging anyone's wait."""
        elapsed_s = max(0.0, now - self._last)
        self._last += elapsed_s
        filled = zip(self._levels, self._rates, self._capacities, strict=True)
        self._levels[:] = [min(most, level + elapsed_s * rate) for level, rate, most in filled]

    def refill(self, now: float) -> None:
        """Fill all buckets but the credits."""
        self._set_all(1.0, now)

    def drain(self, now: float) -> None:
        """Empty all buckets but the credits."""
        self._set_all(0.0, now)

    def set_credits(self, fraction: float, now: float) -> None:
        """Set the burst credits to a fraction of the bucket; nothing for a volume without credits."""
        self._fill(now)
        for i, limit in enumerate(self._limits):
            if limit.name == CREDITS:
                self._levels[i] = fraction * limit.capacity

    def seconds_until_full(self, now: float) -> float:
        """How long the volume must rest until all buckets but the credits are full."""
        self._fill(now)
        return max(
            (
                (limit.capacity - level) / limit.rate
                for limit, level in zip(self._limits, self._levels, strict=True)
                if limit.name != CREDITS
            ),
            default=0.0,
        )

    def levels(self, now: float) -> dict[str, float]:
        """Tokens in each bucket, negative while in debt."""
        self._fill(now)
        return {limit.name: level for limit, level in zip(self._limits, self._levels, strict=True)}

    def _set_all(self, fraction: float, now: float) -> None:
        self._fill(now)
        for i, limit in enumerate(self._limits):
            if limit.name != CREDITS:
                self._levels[i] = fraction * limit.capacity
