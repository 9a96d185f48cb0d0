"""The metrics of published rows: what of an fio result a metric is, and its unit in base units."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from esrally_ebs.units import GIB, KIB, MIB

Row = Mapping[str, Any]

SECONDS = {"us": 1e-6, "usec": 1e-6, "µs": 1e-6, "ms": 1e-3, "msec": 1e-3, "ns": 1e-9, "nsec": 1e-9}
SECONDS |= {"s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0}
BYTES = {
    "b/s": 1.0, "kib/s": KIB, "mib/s": MIB, "gib/s": 1024 * MIB, "kkib/s": 1000 * KIB,
    "kb/s": 1e3, "mb/s": 1e6, "gb/s": 1e9, "mbit/s": 1e6 / 8, "gbit/s": 1e9 / 8,
    "mbps": 1e6 / 8, "gbps": 1e9 / 8, "Mb/s": 1e6 / 8, "Gb/s": 1e9 / 8,
    "b": 1.0, "bytes": 1.0, "kib": KIB, "mib": MIB, "gib": GIB, "mb": 1e6, "gb": 1e9,
}  # fmt: skip
COUNTS = {
    "iops": 1.0,
    "io": 1.0,
    "ios": 1.0,
    "io/s": 1.0,
    "ops/s": 1.0,
    "op/s": 1.0,
    "ops": 1.0,
    "kiops": 1e3,
}


def unit_of(row: Row, units: Mapping[str, float]) -> float:
    """The factor from the row's unit to base units; ValueError for one that is not among ``units``."""
    text = str(row["unit"])
    if "post writes Mbps" in text:
        return MIB  # it names EBS's setting, which is in MiB/s
    word = text.split()[0].rstrip(",;")
    if word not in units and word.lower() not in units:
        raise ValueError(f"unit {row['unit']!r}")
    return units[word if word in units else word.lower()]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What of an fio result a metric is."""

    sides: tuple[str, ...]
    what: str  # "iops", "total_ios", "device_ios", "runtime", "bytes", "bandwidth", or a latency:
    percentile: float | None = None  # None for the mean
    units: Mapping[str, float]


def reading_of(metric: str) -> Reading:
    """How a metric is read off; ValueError for one that fio's result does not hold."""
    name = metric.lower()
    reads, writes = "read" in name, "write" in name
    sides = ("read",) if reads and not writes else ("write",) if writes and not reads else ("read", "write")
    percent = re.search(r"(?:^|_)p(\d+(?:\.\d+)?)(?:_|$)", name)
    if re.search(r"slat|stdev|stddev", name):
        raise ValueError(f"metric {metric!r}")
    if percent or re.search(r"lat|await|response", name):
        if re.search("max|min", name):
            raise ValueError(f"metric {metric!r}")  # of one I/O
        share = _percentile(percent[1]) if percent else 50.0 if "median" in name else None
        return Reading(sides=sides, what="latency", percentile=share, units=SECONDS)
    for words, what, units in _READINGS:
        if re.search(words, name):
            return Reading(sides=sides, what=what, units=units)
    raise ValueError(f"metric {metric!r}")


_READINGS = (
    (r"runtime|elapsed|duration", "runtime", SECONDS),
    (r"iops", "iops", COUNTS),
    (r"device_ios", "device_ios", COUNTS),
    (r"total_ios", "total_ios", COUNTS),
    (r"total_(?:bytes|mib)|moved", "bytes", BYTES),
    (r"bw|bandwidth|throughput", "bandwidth", BYTES),
)


def _percentile(digits: str) -> float:
    """``999`` is 99.9."""
    return float(digits) if "." in digits or len(digits) < 3 else float(f"{digits[:2]}.{digits[2:]}")
