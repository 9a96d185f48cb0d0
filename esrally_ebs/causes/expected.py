"""What fio lets expect: reads per query times how long such a read takes alone, on one arm against another.

fio's cold-search-like jobs (random reads, one at a time) of several sizes give a line: the time of a read by
its size. A query's reads are taken to follow one another as far as the queue depth says that they did. A
query is a sum of many reads, so means count: the volume with the lower median may have the longer tail.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np
from scipy import special

from esrally_ebs.causes.profile import Profile, pooled
from esrally_ebs.store.session import Session

# One size alone says nothing of sizes that are further away than this factor.
_NEAR = 2.0

# fio's round (start or end of the session) to the size of a read to its mean time in seconds
FioReads = Mapping[int, Mapping[int, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """How much longer a query should take on arm b than on arm a; seconds, negative when b is faster."""

    value: float
    low: float | None  # None where fio ran once, or in one round only
    high: float | None
    reads: float  # per query on b
    io_bytes: float  # of a read on b
    per_read_s: float  # by how much a read of that size takes longer on b, in fio
    overlap: float  # reads at once on b, at least 1


@dataclass(frozen=True, slots=True)
class _Time:
    value: float
    error: float | None  # standard error; None when fio ran once


def fio_reads(session: Session) -> Mapping[str, FioReads]:
    """By arm: the plan's random reads at queue depth 1, as fio measured them."""
    jobs = {str(job.get("name")) for job in session.plan.get("baseline") or () if _is_search_like(job)}
    found: dict[str, dict[int, dict[int, float]]] = {}
    for row in session.baseline.to_pylist():
        if row["job"] in jobs and row["op"] == "read" and row["mean_s"] and row["mean_s"] > 0:
            found.setdefault(row["arm"], {}).setdefault(row["round"], {})[row["bs_bytes"]] = row["mean_s"]
    return found


def _is_search_like(job: Mapping[str, object]) -> bool:
    alone = job.get("numjobs", 1) == 1 and (job.get("iodepth", 1) == 1 or job.get("engine") == "psync")
    return job.get("rw") == "randread" and alone


def expected(
    a: Mapping[int, Profile],
    b: Mapping[int, Profile],
    fio_a: FioReads,
    fio_b: FioReads,
    *,
    confidence: float,
) -> Expected | None:
    """The expected difference over the rounds that both arms have; None where anything for it is missing."""
    rounds = sorted(a.keys() & b.keys())
    differences = [_difference(a[r], b[r], fio_a, fio_b) for r in rounds]
    known = [difference for difference in differences if difference is not None]
    if not known or len(known) < len(rounds):
        return None
    all_a, all_b = (pooled(by_round[r] for r in rounds) for by_round in (a, b))
    size = all_b.io_bytes
    if size is None or all_b.reads is None:
        return None
    at_a, at_b = _time(fio_a, size), _time(fio_b, size)
    if at_a is None or at_b is None:
        return None
    value = fmean(known)
    half = _half(known, _fio_error(all_a, all_b, fio_a, fio_b), confidence)
    return Expected(
        value=value,
        low=None if half is None else value - half,
        high=None if half is None else value + half,
        reads=all_b.reads,
        io_bytes=size,
        per_read_s=at_b.value - at_a.value,
        overlap=_overlap(all_b),
    )


def _difference(a: Profile, b: Profile, fio_a: FioReads, fio_b: FioReads) -> float | None:
    of_a, of_b = _query(a, fio_a), _query(b, fio_b)
    return None if of_a is None or of_b is None else of_b.value - of_a.value


def _query(profile: Profile, fio: FioReads) -> _Time | None:
    """What the reads of one query should take."""
    reads, size = profile.reads, profile.io_bytes
    if reads == 0:
        return _Time(0.0, 0.0)
    one = None if size is None else _time(fio, size)
    if reads is None or one is None:
        return None
    at_once = _overlap(profile)
    return _Time(reads * one.value / at_once, None if one.error is None else reads * one.error / at_once)


def _overlap(profile: Profile) -> float:
    return max(1.0, profile.depth or 1.0)


def _time(fio: FioReads, size: float) -> _Time | None:
    """One read of that size: the mean over fio's runs, and half their range as its error."""
    times = [_on_line(by_size, size) for by_size in fio.values()]
    known = [time for time in times if time is not None and time > 0]
    if not known or len(known) < len(times):
        return None
    return _Time(fmean(known), (max(known) - min(known)) / 2 if len(known) > 1 else None)


def _on_line(by_size: Mapping[int, float], size: float) -> float | None:
    if len(by_size) > 1:
        sizes, times = zip(*sorted(by_size.items()), strict=True)
        slope, base = np.polyfit(sizes, times, 1)
        return float(base + slope * size)
    for measured, time in by_size.items():
        if measured / _NEAR <= size <= measured * _NEAR:
            return time
    return None


def _fio_error(a: Profile, b: Profile, fio_a: FioReads, fio_b: FioReads) -> float | None:
    of_a, of_b = _query(a, fio_a), _query(b, fio_b)
    if of_a is None or of_b is None or of_a.error is None or of_b.error is None:
        return None
    return math.hypot(of_a.error, of_b.error)


def _half(values: Sequence[float], fio_error: float | None, confidence: float) -> float | None:
    """Half the interval: the spread over rounds and fio's own, as independent errors."""
    if fio_error is None or len(values) < 2:
        return None
    student = float(special.stdtrit(len(values) - 1, (1 + confidence) / 2))
    normal = float(special.ndtri((1 + confidence) / 2))
    return math.hypot(student * stdev(values) / math.sqrt(len(values)), normal * fio_error)
