"""What a volume did, minute by minute, on another volume's limits: when those would have been reached.

Takes what operators have: CloudWatch's sums, text of ``iostat -xt`` or ``sar -d``, another tool's trace. That
says nothing of latency, and nothing of bursts shorter than an interval.
"""

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from esrally_ebs.catalog.limits import Limit, Model, charged_bytes, of_each, operations_of
from esrally_ebs.errors import FormatError

_KIB, _SECTOR = 1024, 512
_KINDS = (
    "CloudWatch's JSON, text of iostat -xt or sar -d, or a trace of blkparse, perf script, biosnoop -Q"
    " or fio's iolog v3"
)
_TIME = re.compile(r"\d\d:\d\d:\d\d( [AP]M)?")
_METRICS = ("VolumeReadOps", "VolumeReadBytes", "VolumeWriteOps", "VolumeWriteBytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """What a volume did in some seconds; where a source does not tell reads from writes, all are reads."""

    seconds: float
    reads: float
    read_bytes: float
    writes: float
    written_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What the intervals would have been on one volume."""

    at_limit_s: Mapping[str, float]  # seconds of the intervals in which this limit was reached
    lowest_credits: float | None  # the least fraction that was left; None for a volume without
    credits_gone_s: float

    @property
    def limited_s(self) -> float:
        """Seconds at the limit that was reached longest."""
        return max(self.at_limit_s.values(), default=0.0)


def parse_usage(text: str, source: str, device: str | None = None) -> list[Interval]:
    """The intervals of a log, whose kind is seen from its text; ``device`` chooses one of several.

    Traces become seconds. Raises FormatError, naming ``source``, for text of no such kind, or of several
    devices when none is named.
    """
    try:
        if text.lstrip().startswith("{"):
            return _cloudwatch(json.loads(text))
        rows: list[tuple[Any, ...]] = [*_traced(text)] or [*_device_rows(text)]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise FormatError(f"{source}: {error}; give {_KINDS}") from error
    devices = list(dict.fromkeys(row[0] for row in rows))
    if device is None and len(devices) > 1:
        named = ", ".join(devices)
        raise FormatError(f"{source}: of {len(devices)} devices; name one with --device: {named}")
    chosen = [row[1:] for row in rows if device in (None, row[0])]
    if len({row[0] for row in chosen}) < 2:
        raise FormatError(f"{source}: fewer than two reports with a time of day; give {_KINDS}")
    return list(_intervals(chosen) if len(chosen[0]) == 2 else _seconds(chosen))


def _cloudwatch(document: Mapping[str, object]) -> list[Interval]:
    """The answer of get-metric-data with the sums of ``_METRICS``, by their labels."""
    sums: dict[str, dict[datetime, float]] = {}
    for result in document["MetricDataResults"]:  # type: ignore[attr-defined]
        metric = next((name for name in _METRICS if name in result["Label"]), None)
        if metric is not None:
            times = map(datetime.fromisoformat, result["Timestamps"])
            sums[metric] = dict(zip(times, map(float, result["Values"]), strict=True))
    if missing := [name for name in _METRICS if name not in sums]:
        raise ValueError(f"no sums of {missing[0]}")
    periods = sorted(set().union(*sums.values()))
    if len(periods) < 2:
        raise ValueError("fewer than two periods")
    period_s = min((after - before).total_seconds() for before, after in pairwise(periods))
    return [
        Interval(seconds=period_s, **dict(zip(_FIELDS, _at(sums, time), strict=True))) for time in periods
    ]


# An I/O of a trace: blkparse and the kernel have issues (D) and completions (C), biosnoop's lines are of
# completions, those of fio's iolog v3 of issues.
_BLKPARSE = re.compile(
    r"(?P<device>\d+,\d+) +\d+ +\d+ +(?P<s>\d+\.\d+) +\d+ +(?P<action>[DC]) +(?P<op>[A-Z]*[RW][A-Z]*)"
    r" +(?P<sector>\d+) \+ (?P<sectors>\d+)"
)
_PERF = re.compile(
    r".*?(?P<s>\d+\.\d+): +(block:)?block_rq_(?P<action>issue|complete): (?P<device>\d+,\d+)"
    r" (?P<op>[A-Z]*[RW][A-Z]*) (\d+ )?\(.*?\) (?P<sector>\d+) \+ (?P<sectors>\d+)"
)
_BIOSNOOP = re.compile(
    r"(?P<s>\d+\.\d+) +.*?\d+ +(?P<device>\S+) +(?P<op>[RW]) +(?P<sector>\d+) +(?P<bytes>\d+)"
    r"( +[\d.]+)? +(?P<took_ms>[\d.]+)$"
)
_IOLOG = re.compile(r"(?P<ms>\d+) (?P<device>\S+) (?P<op>read|write) (?P<offset>\d+) (?P<bytes>\d+)")


class TracedIo(NamedTuple):
    """An I/O of another tool's trace; seconds on the tool's clock."""

    device: str
    at_s: float  # issued, or done where its issue is not in the trace
    done_s: float | None
    write: bool
    offset: int
    size: int  # bytes


def parse_traced(text: str) -> Iterator[TracedIo]:
    """The I/Os of a trace, in the order of its lines; nothing for other text."""
    issued: dict[tuple[str, str], float] = {}
    for line in text.splitlines():
        for kind in (_BLKPARSE, _PERF, _BIOSNOOP, _IOLOG):
            if io := kind.match(line.strip()):
                of = io.groupdict()
                seconds = float(of["s"]) if "s" in of else int(of["ms"]) / 1000
                key = of["device"], of.get("sector", "")
                if of.get("action", "C")[0] in "Di":
                    issued[key] = seconds
                    break
                offset = int(of["offset"]) if "offset" in of else int(of["sector"]) * _SECTOR
                size = int(of["bytes"]) if "bytes" in of else int(of["sectors"]) * _SECTOR
                begun_s: float | None = issued.pop(key, None)
                if of.get("took_ms"):
                    begun_s = seconds - float(of["took_ms"]) / 1000
                at_s, done_s = (seconds, None) if begun_s is None else (begun_s, seconds)
                yield TracedIo(of["device"], at_s, done_s, "w" in of["op"].lower(), offset, size)
                break


def _traced(text: str) -> Iterator[tuple[str, float, bool, int]]:
    """Device, second at which it was done, whether it is a write, and bytes, of each I/O."""
    for io in parse_traced(text):
        yield io.device, io.at_s if io.done_s is None else io.done_s, io.write, io.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How the I/Os of a trace use the device; what the trace does not say is None."""

    ios: int
    bytes: int
    median_bytes: float
    continuing: float  # share that begin where one of the last I/Os of their kind ended
    in_flight: float | None  # when an I/O is issued, it included
    median_s: float | None
    p99_s: float | None


_RECENT = 64  # I/Os among which one is looked for that this one continues


def access_of(ios: Sequence[TracedIo]) -> Access:
    """The pattern of I/Os of one kind on one device, at least one."""
    ordered = sorted(ios, key=lambda io: io.at_s)
    ends: deque[int] = deque(maxlen=_RECENT)
    continuing = 0
    for io in ordered:
        continuing += io.offset in ends
        ends.append(io.offset + io.size)
    timed = [(io.at_s, io.done_s) for io in ordered if io.done_s is not None]
    at_s, done_s = (np.array(column) for column in zip(*timed, strict=True)) if timed else (np.zeros(0),) * 2
    took_s = done_s - at_s
    before = np.searchsorted(np.sort(done_s), at_s, "right")
    return Access(
        ios=len(ios),
        bytes=sum(io.size for io in ios),
        median_bytes=float(np.median([io.size for io in ios])),
        continuing=continuing / len(ios),
        in_flight=float(np.mean(np.arange(1, len(at_s) + 1) - before)) if timed else None,
        median_s=float(np.median(took_s)) if timed else None,
        p99_s=float(np.percentile(took_s, 99)) if timed else None,
    )


def _seconds(ios: Sequence[tuple[float, bool, int]]) -> Iterator[Interval]:
    """A trace second by second, also those without I/O."""
    first = int(min(at_s for at_s, _, _ in ios))
    last = int(max(at_s for at_s, _, _ in ios))
    sums = [[0.0] * len(_FIELDS) for _ in range(first, last + 1)]
    for at_s, write, size in ios:
        second = sums[int(at_s) - first]
        second[2 * write] += 1
        second[2 * write + 1] += size
    for second in sums:
        yield Interval(seconds=1.0, **dict(zip(_FIELDS, second, strict=True)))


_FIELDS = ("reads", "read_bytes", "writes", "written_bytes")


def _at(sums: Mapping[str, Mapping[datetime, float]], time: datetime) -> list[float]:
    return [sums[name].get(time, 0.0) for name in _METRICS]


def _device_rows(text: str) -> Iterator[tuple[str, float, dict[str, float]]]:
    """Device, second of the day, and its columns, of each line of iostat or sar."""
    titles: list[str] = []
    time_s = 0.0
    for line in text.splitlines():
        clock = _TIME.search(line)
        if clock:
            time_s = _second_of_day(clock[0])
            line = line[clock.end() :]
        words = line.replace(",", ".").split()
        if words and words[0].rstrip(":") in ("Device", "DEV"):
            titles = words[1:]
        elif not words or words[0].endswith(":"):
            titles = titles if clock else []
        elif titles and len(words) == len(titles) + 1:
            yield words[0], time_s, dict(zip(titles, map(float, words[1:]), strict=True))


def _second_of_day(clock: str) -> float:
    hour, minute, second = map(int, clock[:8].split(":"))
    if clock.endswith("M"):
        hour = hour % 12 + (12 if "P" in clock else 0)
    return hour * 3600.0 + minute * 60 + second


def _intervals(rows: Sequence[tuple[float, Mapping[str, float]]]) -> Iterator[Interval]:
    """The first report is of the time since the machine started, and only says when the next begins."""
    for (before_s, _), (time_s, values) in pairwise(rows):
        seconds = (time_s - before_s) % 86400
        read = values.get("rkB/s", 1024 * values.get("rMB/s", 0.0)) * _KIB
        written = values.get("wkB/s", 1024 * values.get("wMB/s", 0.0)) * _KIB
        yield Interval(
            seconds=seconds,
            reads=seconds * values.get("r/s", values.get("tps", 0.0)),
            read_bytes=seconds * read,
            writes=seconds * values.get("w/s", 0.0),
            written_bytes=seconds * written,
        )


def replay_usage(intervals: Sequence[Interval], model: Model, *, credits: float = 1.0) -> Usage:
    """Charge the intervals to the limits of a volume, striped ones evenly; what is not done stays owed."""
    limits = of_each(model.limits, 1) + model.instance_limits
    levels = [limit.capacity * (credits if limit.of_credits else 1.0) for limit in limits]
    at_limit_s = {limit.name: 0.0 for limit in limits}
    lowest, gone_s = 1.0, 0.0
    for interval in intervals:
        for i, limit in enumerate(limits):
            own = i < len(model.limits)
            levels[i] += limit.rate * interval.seconds - _cost(interval, limit, model) / (
                model.stripes if own else 1
            )
            if levels[i] < 0:
                at_limit_s[limit.name] += interval.seconds
            levels[i] = min(limit.capacity, levels[i])
            if limit.of_credits:
                lowest = min(lowest, max(0.0, levels[i] / limit.capacity))
                gone_s += interval.seconds * (levels[i] <= 0)
    with_credits = any(limit.of_credits for limit in limits)
    return Usage(
        at_limit_s=at_limit_s, lowest_credits=lowest if with_credits else None, credits_gone_s=gone_s
    )


def _cost(interval: Interval, limit: Limit, model: Model) -> float:
    """Tokens of an interval, its I/Os all of their mean size, and random: HDD types charge more for those."""
    of, cost = model.accounting, 0.0
    for count, size, weight in (
        (interval.reads, interval.read_bytes, limit.reads),
        (interval.writes, interval.written_bytes, limit.writes),
    ):
        if count > 0:
            mean = max(1, round(size / count))
            operations = operations_of(mean, of.max_io_bytes)
            charged = max(charged_bytes(mean, False, of.max_io_bytes, of.merges_over), of.least_bytes)
            cost += weight * count * (operations if limit.counts == "operations" else charged)
    return cost
