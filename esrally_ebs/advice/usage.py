"""Replays a log of a volume's usage on other volumes: shows when their limits would have been reached.

Reads what operators have: CloudWatch's sums, output of ``iostat -xt``, ``sar -d`` or ``sadf``, or a trace.
These tell nothing about latency, nor about bursts shorter than an interval.
"""

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esrally_ebs.advice.sysstat import NOT_TEXT, Row, amounts_of, rows_of, text_of
from esrally_ebs.catalog.limits import Limit, Model
from esrally_ebs.errors import FormatError
from esrally_ebs.volumes.virtual.replay import Column

_KINDS = (
    "CloudWatch's JSON (aws --output json), iostat -xt (text or -o JSON), text of sar -d (sar -b names no"
    " device) or sadf's -d or -j of it, or a trace of blkparse, perf script, biosnoop -Q or fio's iolog"
)
_MAX_SECONDS = 7 * 86400
# Share of a limit in an interval: with so much usage the limit was reached for moments. If it was the
# recorded volume's own limit, the log cannot show more.
_AT_LIMIT = 0.95
_LARGEST_MEAN = 2**50  # bytes of an I/O: with next to no I/Os, a log may show any number
_ROUNDING = 0.05  # a mean may appear larger by this: logs have two digits, -h rounds to ``1.0G``
_METRICS = ("VolumeReadOps", "VolumeReadBytes", "VolumeWriteOps", "VolumeWriteBytes")
_LEAST_IO_BYTES = 512  # a volume's sector
_MIN_PERIODS = 12  # of a result that has consecutive ones: with fewer, all may be apart
_MACHINE = re.compile(r'\bLinux \S+ \(([^)\s]+)\)|"nodename": *"([^"]+)"')
_NOT_ANSWERED = ("Forbidden", "InternalError")  # results whose list is empty for this reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A volume's usage in some seconds; all are reads if a source does not separate reads and writes."""

    seconds: float
    reads: float
    read_bytes: float
    writes: float
    written_bytes: float
    is_gap: bool = field(default=False, compare=False)  # the log has no report of these seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedUsage:
    """The intervals replayed on one volume."""

    at_limit_s: Mapping[str, float]  # seconds at each limit
    lowest_credits: float | None  # smallest share left; None for a volume without credits
    credits_last_s: float | None  # from the start, at the mean usage; None: for good

    @property
    def limited_s(self) -> float:
        """Seconds at the limit that was reached longest."""
        return max(self.at_limit_s.values(), default=0.0)


def parse_usage(text: str, source: str, device: str | None = None) -> list[Interval]:
    """The intervals of a log of any known kind; ``device`` selects one of several.

    Raises FormatError, naming ``source``, for other text, or for several devices if none is named.
    """
    text = NOT_TEXT.sub("", text)
    try:
        if _is_json(text):
            documents = list(_documents(text))
            if "sysstat" not in documents[0]:
                return _amounts(_cloudwatch(documents, device), source)
            text = "\n".join(map(text_of, documents))
        rows = rows_of(text, source)
    except (ValueError, OverflowError) as error:
        raise FormatError(f"{source}: {error}; give {_KINDS}") from error
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(
            f"{source}: JSON, but neither of get-metric-data nor of sysstat; give {_KINDS}"
        ) from error
    try:
        made = [
            (began_s, seconds, amounts_of(values, seconds))
            for began_s, seconds, values in _of_device(rows, device, source)
        ]
    except ValueError as error:
        raise FormatError(f"{source}: {error}; give {_KINDS}") from error
    return _amounts(_without_gaps(made), source)


def device_of(devices: Iterable[str], wanted: str | None, source: str) -> str | None:
    """The device that is wanted, or the only one, as the log calls it: with or without ``/dev/``.

    None where the log has no device. Raises FormatError, naming ``source``, for one that is not in it, and
    for several of which none is wanted.
    """
    names = {device.removeprefix("/dev/"): device for device in devices}
    if wanted is None and len(names) > 1:
        listed = ", ".join(names.values())
        raise FormatError(f"{source}: of {len(names)} devices; name one with --device: {listed}")
    name = next(iter(names), "") if wanted is None else wanted.removeprefix("/dev/")
    if names and name not in names:
        raise FormatError(f"{source}: nothing of device {wanted}; it has {', '.join(names.values())}")
    return names.get(name)


def _of_device(
    rows: Sequence[Row], device: str | None, source: str
) -> list[tuple[float, float, dict[str, float]]]:
    """The rows of the chosen device, or of the only one, without its name."""
    device = device_of((row[0] for row in rows), device, source)
    chosen = [row[1:] for row in rows if row[0] == device]
    if not chosen:
        raise FormatError(f"{source}: no report of a device between two times of day; give {_KINDS}")
    return chosen


def _is_json(text: str) -> bool:
    return re.match(r"\s*(\[\s*)?\{", text) is not None  # "[2026-11-22 10:00:00]" is none


def usage_notes(text: str) -> tuple[str, ...]:
    """Notes that a log needs besides its intervals."""
    notes = []
    runs = _MACHINE.findall(text)
    machines = list(dict.fromkeys(map("".join, runs)))
    is_of_sadf = _is_json(text) and '"interval"' in text  # its reports have dates: nothing is left out
    if len(runs) > len(machines) and not is_of_sadf:
        notes.append(
            f"The log has {len(runs)} runs. The time between them is left out, though burst credits come back"
            " in it."
        )
    if len(machines) > 1:
        notes.append(
            f"The log is of {len(machines)} machines ({', '.join(machines[:3])}), whose reports count one"
            " after the other. If they ran at the same time, give the log of each by itself."
        )
    if _is_json(text) and re.search(r'"(?:kB|MB)_read/s"', text):
        notes.append(
            "iostat of sysstat 12.1.2 to 12.2.0 (Ubuntu 20.04) writes sectors into JSON and calls them kB or"
            " MB. In such a log bytes are half as many, of MB a 2048th: log with -x, which has sizes of I/Os."
        )
    return tuple(notes)


def _amounts(intervals: Iterable[Interval], source: str) -> list[Interval]:
    """The intervals, after checking that amounts are numbers and not negative."""
    checked = list(intervals)
    for number, interval in enumerate(checked, start=1):
        for value in astuple(interval):
            if not 0 <= value < math.inf:
                raise FormatError(f"{source}: {value:g} is no amount (interval {number}); leave it out")
    return checked


def _documents(text: str) -> Iterator[Any]:
    """JSON documents one after another (as appended by several calls), or in a list."""
    decode, at, space = json.JSONDecoder().raw_decode, 0, re.compile(r"\s*")
    while (at := space.match(text, at).end()) < len(text):  # type: ignore[union-attr]
        try:
            document, at = decode(text, at)
        except json.JSONDecodeError as error:
            raise ValueError(f"no whole JSON, {error}: copy it when what writes it has ended") from error
        yield from document if isinstance(document, list) else [document]


def _results(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Results of get-metric-data; that of get-metric-statistics in the same form."""
    if "Values" in document:  # --query 'MetricDataResults[]'
        return [document]
    if "Datapoints" not in document:
        return list(document["MetricDataResults"])
    label, points = document["Label"], document["Datapoints"]
    if any("Sum" not in point for point in points):
        raise ValueError(f"{label}: no sums; ask get-metric-statistics for --statistics Sum")
    times, values = [point["Timestamp"] for point in points], [point["Sum"] for point in points]
    return [{"Label": label, "Timestamps": times, "Values": values}]


def _values(result: Mapping[str, Any]) -> Iterator[tuple[datetime, float]]:
    times, values = result["Timestamps"], result["Values"]
    if len(times) != len(values):
        raise ValueError(f"{result['Label']}: {len(times)} timestamps for {len(values)} values")
    return zip(map(_moment, times), map(float, values), strict=True)


def _cloudwatch(documents: Sequence[Mapping[str, Any]], device: str | None) -> list[Interval]:
    """Intervals from CloudWatch's answers: sums of ``_METRICS`` of one volume.

    Of more than 100,800 values the AWS CLI gives several results of one label, one after another. None says
    how long its periods are, and they may differ: CloudWatch keeps minutes for 15 days, then five minutes.
    """
    if all(document.get("NextToken") for document in documents):
        raise ValueError("a page of an answer (NextToken) without the last one; add the others")
    sums: dict[str, dict[datetime, float]] = {}
    periods_s: dict[datetime, float] = {}
    for metric, label, values in _chosen(documents, device):
        of_metric, period_s = sums.setdefault(metric, {}), _period_s(dict(values), _MIN_PERIODS)
        for time, value in values:
            if not value.is_integer():
                raise ValueError(f"{label}: {value:g} is no sum; ask for the statistic Sum")
            periods_s[time] = min(period_s, periods_s.get(time, math.inf))
            if of_metric.setdefault(time, value) != value:
                raise ValueError(
                    f"{label}: two values of {time}; give those of one volume, and one period for each time"
                )
    _require_all(sums, device)
    least_s = min(_period_s(of_metric, 2) for of_metric in sums.values())
    if math.isinf(least_s):
        raise ValueError("fewer than two periods")
    periods = sorted(periods_s)
    lengths_s = [least_s if math.isinf(periods_s[time]) else periods_s[time] for time in periods]
    _require_same_start(sums, periods, lengths_s)
    rows = [
        ((time - periods[0]).total_seconds(), length_s, _at(sums, time))
        for time, length_s in zip(periods, lengths_s, strict=True)
    ]
    return list(_without_gaps(rows))


def _chosen(
    documents: Iterable[Mapping[str, Any]], device: str | None
) -> Iterator[tuple[str, str, list[tuple[datetime, float]]]]:
    """Metric, label and values of each result whose label names ``device``, by label."""
    labels: dict[str, str] = {}
    last_status: dict[str, str] = {}
    for result in (one for document in documents for one in _results(document)):
        label = result["Label"]
        metric = next((name for name in _METRICS if name in label), None)
        if metric is not None and (device is None or _names(label, device)):
            if labels.setdefault(metric, label) != label:
                raise ValueError(f"of several volumes, {labels[metric]} and {label}: name one with --device")
            last_status[label] = result.get("StatusCode", "Complete")
            if last_status[label] in _NOT_ANSWERED:
                raise ValueError(f"{label}: not answered, {last_status[label]}; ask again, with rights")
            yield metric, label, list(_values(result))
    for label, status in last_status.items():
        if status == "PartialData":
            raise ValueError(f"{label}: a part of an answer (PartialData); add the others, or ask again")


def _require_all(sums: Mapping[str, Mapping[datetime, float]], device: str | None) -> None:
    """Raise ValueError if a metric is missing, or the sizes of counted I/Os are missing or too small."""
    if missing := [name for name in _METRICS if name not in sums]:
        where = f" in whose label {device} stands" if device else ": its name must be in a result's label"
        raise ValueError(f"no sums of {missing[0]}{where}")
    for counts, sizes in (_METRICS[:2], _METRICS[2:]):
        if any(sums[counts].values()) != any(sums[sizes].values()):
            raise ValueError(f"of {counts} and {sizes} one has nothing; give both of one volume and time")
        if sum(sums[sizes].values()) < _LEAST_IO_BYTES * sum(sums[counts].values()):
            raise ValueError(
                f"{sizes} are under {_LEAST_IO_BYTES} for each of {counts}; ask for the statistic Sum of both"
            )


def _require_same_start(
    sums: Mapping[str, Mapping[datetime, float]], periods: Sequence[datetime], lengths_s: Sequence[float]
) -> None:
    """Raise ValueError if periods overlap that have no metric in common.

    Periods begin with the answer's start: metrics requested a minute later lie between the others'.
    """
    for (time, after), length_s in zip(pairwise(periods), lengths_s, strict=False):
        is_over = time + timedelta(seconds=length_s) <= after
        if not is_over and not any(time in own and after in own for own in sums.values()):
            raise ValueError(
                f"periods of {time} and {after} overlap, each of other metrics; ask for all from one"
                " start time"
            )


def _period_s(times: Collection[datetime], least: int) -> float:
    """Shortest time between two of them; infinite if there are fewer than ``least``."""
    if len(times) < least:
        return math.inf
    return min((after - before).total_seconds() for before, after in pairwise(sorted(times)))


def _names(label: str, device: str) -> bool:
    """Whether the label has the device as a whole word: vol-1 is not in vol-12."""
    return re.search(rf"(?<![\w-]){re.escape(device)}(?![\w-])", label) is not None


def _moment(time: str | float) -> datetime:
    return datetime.fromisoformat(time) if isinstance(time, str) else datetime.fromtimestamp(time, UTC)


def intervals_of(ios: pa.Table, during_s: Sequence[float] = ()) -> list[Interval]:
    """A trace second by second, including idle seconds before the first and after the last I/O.

    ``during_s`` are the recording's begin and end. Raises FormatError for less than two seconds.
    """
    done_s = np.floor(pc.coalesce(ios["done_s"], ios["at_s"]).to_numpy())
    times_s = np.append(done_s, np.floor(during_s))
    seconds = float(np.ptp(times_s))
    if seconds < 1:
        raise FormatError(
            "a trace of less than two seconds says nothing of a volume's use; record for longer, with fio an"
            " iolog of version 3 (2 has no times)"
        )
    if seconds > _MAX_SECONDS:
        raise FormatError("a trace of more than a week: cut it, or where its clock jumps")
    second = (done_s - times_s.min()).astype(np.int64)
    is_write = pc.equal(ios["op"], "write").to_numpy()
    sums = [
        np.bincount(second[chosen], weights, minlength=int(seconds) + 1)
        for chosen in (~is_write, is_write)
        for weights in (None, ios["bytes"].to_numpy()[chosen])
    ]
    return [_interval(1.0, row) for row in np.transpose(sums).tolist()]


def _interval(seconds: float, amounts: Sequence[float], *, is_gap: bool = False) -> Interval:
    names = ("reads", "read_bytes", "writes", "written_bytes")
    return Interval(seconds=seconds, is_gap=is_gap, **dict(zip(names, amounts, strict=True)))


def _without_gaps(rows: Iterable[tuple[float, float, Sequence[float]]]) -> Iterator[Interval]:
    """Intervals from rows of (begin, seconds, amounts), with idle ones for gaps.

    Credits come back in gaps.
    """
    ended_s, last_s = None, 0.0
    for began_s, seconds, amounts in rows:
        if ended_s is not None and began_s > ended_s:
            gap_s = began_s - ended_s
            yield _interval(gap_s, (0.0,) * 4, is_gap=gap_s > last_s / 2)  # times are rounded
        yield _interval(seconds, amounts)
        ended_s, last_s = began_s + seconds, seconds


def _at(sums: Mapping[str, Mapping[datetime, float]], time: datetime) -> list[float]:
    return [sums[name].get(time, 0.0) for name in _METRICS]


def columns_of(intervals: Sequence[Interval]) -> Column:
    """A row for each field of the intervals, in order; consecutive idle intervals are merged."""
    rows = np.array(
        [(one.seconds, one.reads, one.read_bytes, one.writes, one.written_bytes) for one in intervals], float
    )
    idle = (rows[:, 1] == 0) & (rows[:, 3] == 0)
    first = np.flatnonzero(~(idle & np.append(False, idle[:-1])))
    columns: Column = np.add.reduceat(rows, first).T
    return columns


def replay_usage(columns: Column, model: Model, *, credits: float = 1.0) -> ReplayedUsage:
    """Charge intervals to a volume's limits, evenly over stripes; what is not done stays owed."""
    seconds = columns[0]
    at_limit_s, lowest, last_s = {}, [], []
    for i, limit in enumerate((*model.limits, *model.instance_limits)):
        stripes = model.stripes if i < len(model.limits) else 1
        gives, takes = limit.rate * seconds, _cost(columns, limit, model) / stripes
        first = limit.capacity * (credits if limit.of_credits and i < len(model.limits) else 1.0)
        # Level after each interval, capped at the capacity: the running sum of tokens in and out, lowered by
        # the most that it ever exceeded the capacity.
        grown = np.cumsum(gives - takes)
        levels = grown + np.minimum(first, np.minimum.accumulate(limit.capacity - grown))
        before = np.append(first, levels[:-1])
        after = before + gives - takes
        saved = limit.of_credits & (after > (1 - _AT_LIMIT) * limit.capacity)
        whole = (after < 0) | ((takes >= _AT_LIMIT * gives) & ~saved)
        owed = np.maximum(0.0, -before)  # done before the interval is over, unless at the limit
        parts = np.divide(owed, gives - takes, out=np.zeros_like(owed), where=~whole & (owed > 0))
        at_limit_s[limit.name] = float(np.sum(seconds * np.where(whole, 1.0, parts)))
        if limit.of_credits:
            if grown[-1] < 0:
                last_s.append(float(first * seconds.sum() / -grown[-1]))
            lowest.append(float(np.clip(levels.min(initial=first) / limit.capacity, 0.0, 1.0)))
    return ReplayedUsage(
        at_limit_s=at_limit_s,
        lowest_credits=min(lowest, default=None),
        credits_last_s=min(last_s, default=None),
    )


def _cost(columns: Column, limit: Limit, model: Model) -> Column:
    """Tokens per interval, with I/Os of mean size and random, for which HDD types charge more."""
    of, cost = model.accounting, np.zeros(columns.shape[1])
    for counts, sizes, weight in (
        (columns[1], columns[2], limit.reads),
        (columns[3], columns[4], limit.writes),
    ):
        with np.errstate(over="ignore"):
            mean = np.divide(sizes, counts, out=np.zeros_like(sizes), where=counts > 0)
        mean = np.clip(np.round(mean), 1, _LARGEST_MEAN)
        operations = np.ceil(mean / of.max_io_bytes * (1 - _ROUNDING))
        charged = mean if of.merges_over < 0 else operations * of.max_io_bytes
        each = operations if limit.counts == "operations" else np.maximum(charged, of.least_bytes)
        cost += weight * counts * each
    return cost
