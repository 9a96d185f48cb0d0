r"""Token buckets: how the limits that a volume is sold with become waits.

A bucket holds tokens, and every I/O takes some: one for an operation, or one for each byte. Tokens come back
at the bucket's rate, 3,000 a second for a volume of 3,000 IOPS, until the bucket is full.

    tokens
     3,000 |\                       /----  At rest the bucket is full, so 3,000 I/Os pass at once.
           | \ many at once        /
         0 |--\-------------------/------  Then it is in debt: each I/O waits until the debt that it arrives
           |   \_________________/         at is paid, so they pass 1/3,000 s after one another.
           +---------------------------- time

An I/O is charged at once, into debt if need be, and delayed by debt / rate. So I/Os keep their order, and
over a long time they pass at exactly the rate. A volume has several buckets (operations, bytes, burst
credits, those of its instance); an I/O is charged to all, and the longest wait counts.

A bucket that holds one second of its rate reproduces published runs to about 0.1 % (two fio jobs of 128 MiB
on a 128 MiB/s volume take 1.000 s, sixteen take 15.0 s). Pure: the caller gives the time, so the daemon and
virtual time run the same code.
"""

from collections.abc import Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from esrally_ebs.catalog.limits import Accounting, Limit, charged_bytes, of_each, operations_of, shrunk


class Buckets(NamedTuple):
    """Token buckets as plain sequences: the daemon's are lists, virtual time's may be arrays."""

    levels: MutableSequence[float]  # tokens as of ``filled_s``, negative while in debt
    filled_s: MutableSequence[float]
    waited_s: MutableSequence[float]  # waits caused by this bucket, added up
    taken: MutableSequence[float]  # tokens, added up
    rates: Sequence[float]
    capacities: Sequence[float]
    # Tokens per operation and per byte: for reads at 2 i, for writes at 2 i + 1.
    per_operation: Sequence[float]
    per_byte: Sequence[float]


def buckets_of(limits: Sequence[Limit], now: float) -> Buckets:
    """Full buckets."""
    weights = [
        (limit.counts == "operations", weight) for limit in limits for weight in (limit.reads, limit.writes)
    ]
    return Buckets(
        levels=[float(limit.capacity) for limit in limits],
        filled_s=[now] * len(limits),
        waited_s=[0.0] * len(limits),
        taken=[0.0] * len(limits),
        rates=[float(limit.rate) for limit in limits],
        capacities=[float(limit.capacity) for limit in limits],
        per_operation=[float(weight) if operations else 0.0 for operations, weight in weights],
        per_byte=[0.0 if operations else float(weight) for operations, weight in weights],
    )


def charge_buckets(
    buckets: Buckets,
    first: int,
    last: int,
    shared: int,
    write: int,
    operations: float,
    charged: float,
    now: float,
    beside: float,
) -> float:
    """Fill buckets ``first`` to ``last - 1`` and the last ``shared`` of all, then charge one I/O to them.

    Levels may become negative. Returns the longest wait in seconds, and adds it to that bucket's
    ``waited_s``, less ``beside``, which other parts of the same I/O wait meanwhile. A bucket that the I/O
    takes no tokens from does not delay it.
    """
    levels, filled_s, waited_s, taken, rates, capacities, per_operation, per_byte = buckets
    longest = 0.0
    cause = -1
    to_shared = len(rates) - shared - last
    for own in range(first, last + shared):
        i = own if own < last else own + to_shared
        rate = rates[i]
        level = levels[i]
        elapsed_s = now - filled_s[i]
        if elapsed_s > 0.0:
            level += elapsed_s * rate
            if level > capacities[i]:
                level = capacities[i]
            filled_s[i] = now
        cost = per_operation[2 * i + write] * operations + per_byte[2 * i + write] * charged
        level -= cost
        levels[i] = level
        taken[i] += cost
        if level < 0.0 and cost > 0.0:
            wait = -level / rate
            if wait > longest:
                longest = wait
                cause = i
    if longest > beside:
        waited_s[cause] += longest - beside
    return longest


def fill(buckets: Buckets, now: float) -> None:
    """Add the tokens that have come back by ``now``."""
    for i, rate in enumerate(buckets.rates):
        elapsed_s = now - buckets.filled_s[i]
        if elapsed_s > 0.0:
            buckets.levels[i] = min(buckets.capacities[i], buckets.levels[i] + elapsed_s * rate)
            buckets.filled_s[i] = now


def seconds_until_full(limits: Sequence[Limit], levels: Sequence[float]) -> float:
    """Seconds of rest until all buckets except credits are full."""
    return max(
        (
            (limit.capacity - level) / limit.rate
            for limit, level in zip(limits, levels, strict=True)
            if not limit.of_credits
        ),
        default=0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """One limit's level at some time; ``waited_s`` adds up the waits that it caused."""

    limit: Limit
    level: float  # tokens, negative while in debt
    waited_s: float


def pieces(offset: int, size: int, stripes: int, chunk_bytes: int) -> Iterator[tuple[int, int, int]]:
    """Splits an I/O on striped volumes (RAID 0) into I/Os of single ones: volume, offset there, bytes."""
    end = offset + size
    while offset < end:
        chunk, within = divmod(offset, chunk_bytes)
        length = min(end - offset, chunk_bytes - within)
        yield chunk % stripes, chunk // stripes * chunk_bytes + within, length
        offset += length


class Limiter:
    """All buckets of one volume, or of striped volumes; an I/O waits for the slowest."""

    def __init__(
        self,
        limits: tuple[Limit, ...],
        accounting: Accounting,
        now: float,
        *,
        shared: tuple[Limit, ...] = (),
        stripes: int = 1,
        chunk_bytes: int = 0,
    ) -> None:
        """Full buckets: ``limits`` for each of ``stripes`` volumes, ``shared`` once, for their instance.

        The third volume's limits are named ``3-iops`` and so on, if there are several.
        """
        self._limits = of_each(limits, stripes) + shared
        self._buckets = buckets_of(self._limits, now)
        self._own = len(limits)
        self._shared = len(shared)
        self._owns = len(limits) * stripes  # buckets of the volumes; the instance's follow
        self._stripes = stripes
        self._chunk = chunk_bytes
        self._max_io = accounting.max_io_bytes
        self._merge_over = accounting.merges_over
        self._least = accounting.least_bytes
        self._next_offsets = [-1] * stripes
        self._paid_to = [-1] * stripes  # by volume: offset up to which I/O has been charged

    @property
    def buckets(self) -> Mapping[str, Bucket]:
        """Buckets by limit, as of the last call."""
        states = zip(self._limits, self._buckets.levels, self._buckets.waited_s, strict=True)
        return {limit.name: Bucket(limit=limit, level=level, waited_s=w) for limit, level, w in states}

    def charge(self, offset: int, size: int, now: float, *, write: bool = False, saved: float = 0.0) -> float:
        """Charge one I/O that arrives ``now``; returns the seconds that it must wait for service.

        ``saved`` is the part of an operation that merging with the previous I/O saves.
        """
        if self._stripes == 1:
            return self._charge_member(0, offset, size, now, write, saved, 0.0)
        longest = 0.0
        for volume, start, length in pieces(offset, size, self._stripes, self._chunk):
            longest = max(longest, self._charge_member(volume, start, length, now, write, saved, longest))
        return longest

    def _charge_member(
        self, volume: int, offset: int, size: int, now: float, write: bool, saved: float, beside: float
    ) -> float:
        continues = offset == self._next_offsets[volume]
        paid = self._paid_to[volume] - offset if continues else 0
        charged = charged_bytes(size, continues, self._max_io, self._merge_over, paid)
        self._next_offsets[volume] = offset + size
        self._paid_to[volume] = offset + max(size, charged, paid)
        first = volume * self._own
        return charge_buckets(
            self._buckets,
            first,
            first + self._own,
            self._shared,
            1 if write else 0,
            operations_of(size, self._max_io) - saved,
            max(charged, self._least),
            now,
            beside,
        )

    def refill(self, now: float) -> None:
        """Fill the volumes' buckets except credits; not the instance's, which other volumes use."""
        self._set(range(self._owns), 1.0, now)

    def drain(self, now: float) -> None:
        """Empty the volumes' buckets except credits; not the instance's."""
        self._set(range(self._owns), 0.0, now)

    def drain_instance(self, now: float) -> None:
        """Empty the instance's buckets except credits."""
        self._set(range(self._owns, len(self._limits)), 0.0, now)

    def set_credits(self, fraction: float, now: float) -> None:
        """Set the volumes' burst credits to a fraction of their capacity; not the instance's."""
        fill(self._buckets, now)
        for i, limit in enumerate(self._limits[: self._owns]):
            if limit.of_credits:
                self._buckets.levels[i] = fraction * limit.capacity

    def seconds_until_full(self, now: float) -> float:
        """Seconds of rest until all buckets except credits are full."""
        fill(self._buckets, now)
        return seconds_until_full(self._limits, self._buckets.levels)

    def levels(self, now: float) -> dict[str, float]:
        """Tokens in each bucket; negative: debt."""
        fill(self._buckets, now)
        return {limit.name: level for limit, level in zip(self._limits, self._buckets.levels, strict=True)}

    def shrink(self, times: float, now: float) -> None:
        """Divide the capacities of the volumes' buckets, and levels above 0; rates and debts stay."""
        fill(self._buckets, now)
        self._limits = shrunk(self._limits[: self._owns], times) + self._limits[self._owns :]
        self._buckets = self._buckets._replace(capacities=[limit.capacity for limit in self._limits])
        for i in range(self._owns):
            self._buckets.levels[i] /= times if self._buckets.levels[i] > 0.0 else 1.0

    def shared_state(self) -> list[float]:
        """Levels and last filling times of the instance's buckets."""
        return [*self._buckets.levels[self._owns :], *self._buckets.filled_s[self._owns :]]

    def set_shared_state(self, state: Sequence[float]) -> None:
        """Set the instance's buckets from a ``shared_state``, perhaps of another process."""
        self._buckets.levels[self._owns :] = state[: self._shared]
        self._buckets.filled_s[self._owns :] = state[self._shared :]

    def _set(self, which: range, fraction: float, now: float) -> None:
        fill(self._buckets, now)
        for i in which:
            if not self._limits[i].of_credits:
                self._buckets.levels[i] = fraction * self._limits[i].capacity
