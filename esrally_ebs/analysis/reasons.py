"""Why a task is slower on one arm: the difference predicted from fio, and what explains it, in words.

The prediction is reads per query times how long such a read takes alone. fio's cold-search-like jobs (random
reads, one at a time) of several sizes give a line: the time of a read by its size. Reads of a query count as
one after another as far as the queue depth says that they were. A query is a sum of many reads, so means
count: the volume with the lower median may have the longer tail.

A reason is given only for what explains a proven difference: a limiter that held back the slower arm for most
of it, or fio's difference at the very reads of the query. What the node's processors explain is no volume's.
Tasks that share one get one sentence.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median, stdev
from typing import Literal

import numpy as np
import pyarrow as pa
from scipy import special

from esrally_ebs.analysis.profile import EXCEEDED, Profile, Window, pooled
from esrally_ebs.analysis.rounds import Estimate
from esrally_ebs.analysis.summary import is_time, rows_by
from esrally_ebs.store.session import Session

# Sizes further away than this factor from the only measured size have no prediction.
_MAX_SIZE_FACTOR = 2.0
# A limiter explains a difference when it took this share of the slower arm's I/O time, this many times as
# much as on the other arm, and its waits make up this part of the difference. What differs is the 50th
# percentile, so they must do so in the middle request as well: a few that waited long do not move it.
_MIN_SHARE = 0.1
_MIN_FACTOR = 2.0
_MIN_PART = 0.5

# fio's round (start or end of the session), to a read's size, to its mean time in seconds
FioReadTimes = Mapping[int, Mapping[int, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FioPrediction:
    """How much longer a query should take on arm b than on arm a, in seconds; negative if b is faster."""

    difference_s: Estimate  # no interval if fio ran once, or in one round only
    reads: float  # per query on b
    io_bytes: float  # of a read on b
    per_read_s: float  # how much longer a read of that size takes on b, in fio
    overlap: float  # simultaneous reads on b, at least 1


@dataclass(frozen=True, slots=True)
class _Time:
    value: float
    error: float | None  # standard error; None if fio ran once


def own_parts(windows: Iterable[Window], samples: pa.Table) -> list[Window]:
    """Windows reduced to the observed requests' part, where other clients' requests overlapped.

    The growth of counters is divided by the number of overlapping requests, each weighted by the part of its
    time inside.
    """
    own = samples.select(["task", "arm", "round", "client", "started_s", "service_time_s"])
    own = own.filter(is_time(own["service_time_s"]))
    clients, starts, lengths = (own[name].to_numpy() for name in own.column_names[3:])
    blocks = {key: rows for key, rows in rows_by(own, own.column_names[:3]) if np.ptp(clients[rows])}
    parts = []
    for window in windows:
        rows = blocks.get((window.task, window.arm, window.round), np.zeros(0, np.int64))
        ends = np.minimum(starts[rows] + lengths[rows], window.end_s)
        within = np.clip(ends - np.maximum(starts[rows], window.start_s), 0.0, None) / lengths[rows]
        part = window.requests / max(window.requests, float(within.sum()))
        grown = {
            name: value if name.startswith(EXCEEDED) else value * part for name, value in window.grown.items()
        }
        parts.append(replace(window, grown=grown))
    return parts


def fio_read_times(session: Session) -> Mapping[str, FioReadTimes]:
    """fio's times of the plan's random reads at queue depth 1, by arm."""
    jobs = {
        job.name
        for job in session.plan.baseline
        if job.rw == "randread" and job.numjobs == job.in_flight == 1
    }
    times: dict[str, dict[int, dict[int, float]]] = {}
    for row in session.baseline.to_pylist():
        if row["job"] in jobs and row["op"] == "read" and row["mean_s"] and row["mean_s"] > 0:
            times.setdefault(row["arm"], {}).setdefault(row["round"], {})[row["bs_bytes"]] = row["mean_s"]
    return times


def predict(
    a: Mapping[int, Profile],
    b: Mapping[int, Profile],
    fio_a: FioReadTimes,
    fio_b: FioReadTimes,
    *,
    confidence: float,
) -> FioPrediction | None:
    """The expected difference over the rounds that both arms have; None if any input is missing."""
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
    return FioPrediction(
        difference_s=Estimate(value) if half is None else Estimate(value, value - half, value + half),
        reads=all_b.reads,
        io_bytes=size,
        per_read_s=at_b.value - at_a.value,
        overlap=_overlap(all_b),
    )


def _difference(a: Profile, b: Profile, fio_a: FioReadTimes, fio_b: FioReadTimes) -> float | None:
    of_a, of_b = _query(a, fio_a), _query(b, fio_b)
    return None if of_a is None or of_b is None else of_b.value - of_a.value


def _query(profile: Profile, fio: FioReadTimes) -> _Time | None:
    """Expected time of one query's reads."""
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


def _time(fio: FioReadTimes, size: float) -> _Time | None:
    """One read of that size: mean over fio's runs, and standard error."""
    times = [_on_line(by_size, size) for by_size in fio.values()]
    known = [time for time in times if time is not None and time > 0]
    if not known or len(known) < len(times):
        return None
    return _Time(fmean(known), stdev(known) / math.sqrt(len(known)) if len(known) > 1 else None)


def _on_line(by_size: Mapping[int, float], size: float) -> float | None:
    if len(by_size) > 1:
        sizes, times = zip(*sorted(by_size.items()), strict=True)
        slope, base = np.polyfit(sizes, times, 1)
        return float(base + slope * size)
    for measured, time in by_size.items():
        if measured / _MAX_SIZE_FACTOR <= size <= measured * _MAX_SIZE_FACTOR:
            return time
    return None


def _fio_error(a: Profile, b: Profile, fio_a: FioReadTimes, fio_b: FioReadTimes) -> float | None:
    of_a, of_b = _query(a, fio_a), _query(b, fio_b)
    if of_a is None or of_b is None or of_a.error is None or of_b.error is None:
        return None
    return math.hypot(of_a.error, of_b.error)


def _half(values: Sequence[float], fio_error: float | None, confidence: float) -> float | None:
    """Half the interval: spread over rounds and fio's error, combined as independent errors."""
    if fio_error is None or len(values) < 2:
        return None
    student = float(special.stdtrit(len(values) - 1, (1 + confidence) / 2))
    normal = float(special.ndtri((1 + confidence) / 2))
    return math.hypot(student * stdev(values) / math.sqrt(len(values)), normal * fio_error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One reason why a task is slower on an arm; arms by their display names."""

    kind: Literal["waited", "exceeded", "reads", "processors"]
    slower: str
    faster: str
    limit: str = ""  # the limit that held back the slower arm; empty for reads
    share: float = 0.0  # of I/O time that it waited, or of the time that demand exceeded the limit
    share_on_faster: float = 0.0
    per_read_s: float = 0.0  # how much longer a read takes on the slower arm, in fio
    reads: float = 0.0  # per query on the slower arm
    reads_on_faster: float = 0.0
    predicted_s: float = 0.0  # seconds: longer per query by fio, or more processor time
    measured_s: float = 0.0

    @property
    def subject(self) -> tuple[str, str, str, str]:
        """Key for reasons that one sentence can cover."""
        return self.kind, self.slower, self.faster, self.limit


def sentence(reasons: Sequence[Explanation]) -> str:
    """One sentence, without a full stop, for reasons of one subject; ranges where tasks differ."""
    first = reasons[0]
    if first.kind == "reads":
        return _reads_sentence(reasons)
    if first.kind == "processors":
        more = _range([reason.predicted_s * 1e3 for reason in reasons], ".2f")
        longer = _range([reason.measured_s * 1e3 for reason in reasons], ".2f")
        return (
            f"a query uses {more} ms more of the node's processors on {first.slower} than on {first.faster}, "
            f"which no volume causes (it takes {longer} ms longer)"
        )
    shares = _range([reason.share * 100 for reason in reasons], ".0f")
    others = _range([reason.share_on_faster * 100 for reason in reasons], ".0f")
    if first.kind == "exceeded":
        what = f"asked for more than its {first.limit} limit for {shares}% of the time"
    else:
        what = f"waited {shares}% of its I/O time in its {first.limit} limiter"
    return f"{first.slower} {what} ({first.faster} {others}%)"


def _reads_sentence(reasons: Sequence[Explanation]) -> str:
    slower, faster = reasons[0].slower, reasons[0].faster
    longer = _range([reason.per_read_s * 1e3 for reason in reasons], ".2f")
    parts = []
    if all(reason.per_read_s > 0 for reason in reasons):
        parts.append(f"a read takes {longer} ms longer on {slower} than on {faster} in fio")
    if any(abs(reason.reads_on_faster - reason.reads) > 0.1 * reason.reads for reason in reasons):
        reads, on_faster = (
            _range(list(of), ".1f")
            for of in zip(*((r.reads, r.reads_on_faster) for r in reasons), strict=True)
        )
        parts.append(f"{slower} reads {reads} I/Os per query, {faster} {on_faster}")
    if not parts:
        parts.append(f"the reads of a query add up to more in fio on {slower} than on {faster}")
    predicted, measured = (
        _range(list(of), ".2f")
        for of in zip(*((r.predicted_s * 1e3, r.measured_s * 1e3) for r in reasons), strict=True)
    )
    return f"{', and '.join(parts)}: that predicts {predicted} ms more per query (measured {measured} ms)"


def _range(values: Sequence[float], form: str) -> str:
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"


def why(
    a: str,
    b: str,
    of_a: Sequence[Profile],
    of_b: Sequence[Profile],
    prediction: FioPrediction | None,
    measured: Estimate,
) -> tuple[Explanation, ...]:
    """Why ``b`` differs from ``a`` (both display names); empty if the data do not show it.

    ``measured`` is a proven difference b - a in seconds. ``of_a`` and ``of_b`` are profiles of single
    requests, or of overlapping ones joined.
    """
    if not of_a or not of_b:
        return ()
    slower, faster = _Requests(b, of_b), _Requests(a, of_a)
    if measured.value < 0:
        slower, faster = faster, slower
    return tuple(_processors(slower, faster, abs(measured.value))) or (
        *_limiters(slower, faster, abs(measured.value)),
        *_fio(slower, faster, prediction, measured),
    )


class _Requests:
    """An arm by display name, with profiles of each request and of all."""

    def __init__(self, arm: str, each: Sequence[Profile]) -> None:
        self.arm, self.each, self.whole = arm, each, pooled(each)

    def processor_s(self) -> tuple[float, float]:
        """Processor time of a query, mean and median; nan where it was not counted."""
        each = [math.nan if one.processor_s is None else one.processor_s for one in self.each]
        return fmean(each), median(each)

    def wait_s(self, limit: str) -> tuple[float, float]:
        """Wait of a query for a limiter, mean and median."""
        return _waits(self.whole, limit), median(_waits(one, limit) for one in self.each)


def _processors(slower: _Requests, faster: _Requests, difference_s: float) -> Iterator[Explanation]:
    """A reason if the nodes' processor time is most of the difference."""
    more_s = _longer_s(slower.processor_s(), faster.processor_s())
    if more_s >= _MIN_PART * difference_s:
        yield Explanation(
            kind="processors",
            slower=slower.arm,
            faster=faster.arm,
            predicted_s=more_s,
            measured_s=difference_s,
        )


def _limiters(slower: _Requests, faster: _Requests, difference_s: float) -> Iterator[Explanation]:
    for limit, share in slower.whole.held_back.items():
        elsewhere = faster.whole.held_back.get(limit, 0.0)
        if share < _MIN_SHARE or share < _MIN_FACTOR * elsewhere:
            continue
        kind: Literal["waited", "exceeded"] = "waited"
        if limit in slower.whole.exceeded_s:  # for how long, not how much longer requests took
            kind = "exceeded"
            explains = median(one.held_back.get(limit, 0.0) for one in slower.each) >= _MIN_SHARE
        else:
            explains = _longer_s(slower.wait_s(limit), faster.wait_s(limit)) >= _MIN_PART * difference_s
        if explains:
            yield Explanation(
                kind=kind,
                slower=slower.arm,
                faster=faster.arm,
                limit=limit,
                share=share,
                share_on_faster=elsewhere,
            )


def _longer_s(slower: tuple[float, float], faster: tuple[float, float]) -> float:
    """How much longer the slower arm took per query: by the mean or the median, whichever is less."""
    return min(slower[0] - faster[0], slower[1] - faster[1])


def _waits(profile: Profile, limit: str) -> float:
    """Seconds that a limiter added to a query; simultaneous waits count once."""
    return profile.waited_s.get(limit, 0.0) / profile.requests / _overlap(profile)


def _fio(
    slower: _Requests, faster: _Requests, prediction: FioPrediction | None, measured: Estimate
) -> Iterator[Explanation]:
    if prediction is None or not _agree(prediction, measured):
        return
    yield Explanation(
        kind="reads",
        slower=slower.arm,
        faster=faster.arm,
        per_read_s=math.copysign(1.0, measured.value) * prediction.per_read_s,
        reads=slower.whole.reads or 0.0,
        reads_on_faster=faster.whole.reads or 0.0,
        predicted_s=abs(prediction.difference_s.value),
        measured_s=abs(measured.value),
    )


def _agree(prediction: FioPrediction, measured: Estimate) -> bool:
    """Whether both have the same direction beyond doubt, and intervals that overlap."""
    low, high = prediction.difference_s.low, prediction.difference_s.high
    if low is None or high is None or measured.low is None or measured.high is None:
        return False
    one_direction = (low > 0 and measured.value > 0) or (high < 0 and measured.value < 0)
    return one_direction and low <= measured.high and high >= measured.low
