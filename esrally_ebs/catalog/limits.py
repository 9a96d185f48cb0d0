"""What a volume can do, as numbers: limits, the cost of an I/O under them, service times.

The daemon of an emulated volume reads no other file of the catalog, so this one stays light.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self

CREDITS = "credits"  # suffix of names of burst-credit buckets; nobody waits for these to fill
_US = 1e-6
_KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One token bucket: ``rate`` tokens per second, at most ``capacity`` saved."""

    name: str  # "iops", "throughput", CREDITS; the instance's begin with "instance-"
    counts: Literal["operations", "bytes"]
    rate: float  # operations or bytes per second
    capacity: float  # operations or bytes
    reads: float = 1.0  # tokens per operation or byte read; 0 = reads are free
    writes: float = 1.0

    @property
    def of_credits(self) -> bool:
        """Whether this bucket allows bursts of minutes or hours."""
        return self.name.endswith(CREDITS)


def per_second(name: str, counts: Literal["operations", "bytes"], rate: float, seconds: float = 1.0) -> Limit:
    """A limit at a provisioned rate, with a bucket for that many seconds."""
    return Limit(name=name, counts=counts, rate=rate, capacity=rate * seconds)


def shrunk(limits: Sequence[Limit], times: float) -> tuple[Limit, ...]:
    """Limits where time runs faster by this factor: same rates, smaller buckets."""
    return tuple(replace(limit, capacity=limit.capacity / times) for limit in limits)


def of_each(limits: tuple[Limit, ...], stripes: int) -> tuple[Limit, ...]:
    """Limits of each striped volume: ``3-iops`` is the third's."""
    if stripes == 1:
        return limits
    return tuple(
        replace(limit, name=f"{volume}-{limit.name}") for volume in range(1, stripes + 1) for limit in limits
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounting:
    """How an I/O is charged.

    SSD types count one operation per started ``max_io_bytes`` and the bytes as they are. HDD types charge a
    whole ``max_io_bytes`` for any I/O unless it continues the last one and is larger than
    ``merge_over_bytes``: then it is merged with that one, and what was charged for both counts. EFS counts
    ``least_bytes`` at least.
    """

    max_io_bytes: int
    merge_over_bytes: int | None = None
    least_bytes: int = 0

    @property
    def merges_over(self) -> int:
        """``merge_over_bytes`` for compiled code: -1 for SSD types."""
        return -1 if self.merge_over_bytes is None else self.merge_over_bytes


def charged_bytes(
    size: int, continues: bool, max_io_bytes: int, merge_over_bytes: int, paid_bytes: int = 0
) -> int:
    """Bytes charged for an I/O; a negative ``merge_over_bytes`` means SSD types.

    ``paid_bytes``: what the I/O that it continues was charged beyond its own end.
    """
    if merge_over_bytes < 0 or (continues and size > merge_over_bytes):
        return max(0, size - paid_bytes)
    return operations_of(size, max_io_bytes) * max_io_bytes


def operations_of(size: int, max_io_bytes: int) -> int:
    return -(-size // max_io_bytes) or 1


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
        """The service with all times multiplied by ``factor``."""
        return replace(self, base_us=self.base_us * factor, per_kib_us=self.per_kib_us * factor)

    def line_s(self) -> tuple[float, float]:
        """The median as a line: seconds at 0 bytes, and seconds per byte."""
        return self.base_us * _US, self.per_kib_us * _US / _KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    name: str
    limits: tuple[Limit, ...]  # of the volume; if striped, of each
    accounting: Accounting
    read: Service
    write: Service
    instance: str = ""  # the instance that it is attached to; "": none that limits it
    instance_limits: tuple[Limit, ...] = ()  # of all volumes of that instance together
    stripes: int = 1  # number of volumes striped as one
    chunk_bytes: int = 0  # bytes on one volume before the next, if striped
    untouched_iops: float | None = None  # for blocks never written, at dates when that mattered

    @property
    def bursts(self) -> bool:
        """Whether the volume has burst credits; its instance may have some, too."""
        return any(limit.of_credits for limit in self.limits)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for the daemon's settings and for a session's record."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """The model from ``to_json``'s result."""
        parts = {
            "limits": tuple(Limit(**limit) for limit in fields["limits"]),
            "accounting": Accounting(**fields["accounting"]),
            "read": Service(**fields["read"]),
            "write": Service(**fields["write"]),
            "instance_limits": tuple(Limit(**limit) for limit in fields["instance_limits"]),
        }
        return cls(**{**fields, **parts})
