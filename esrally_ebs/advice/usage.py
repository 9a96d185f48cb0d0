"""Replays a log of what a volume did, minute by minute: when another's limits would have been reached.

Takes what operators have: CloudWatch's sums, what ``iostat -xt``, ``sar -d`` or ``sadf`` say, the I/Os of a
trace. That says nothing of latency, and nothing of bursts shorter than an interval.
"""

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esrally_ebs.catalog.limits import Limit, Model
from esrally_ebs.errors import FormatError
from esrally_ebs.volumes.virtual.replay import Column

_KINDS = (
    "CloudWatch's JSON, iostat -xt (text or -o JSON), text of sar -d (sar -b names no device) or sadf's"
    " -d or -j of it, or a trace of blkparse, perf script, biosnoop -Q or fio's iolog"
)
_DAY_S, _HOUR_S = 86400, 3600
_JUMPS_S = (_HOUR_S, _DAY_S // 2)  # of clocks that are put on or back, or do not say which half of the day
_JITTER_S = 2  # of sar's reports, by the seconds that it prints
_MAX_SECONDS = 7 * _DAY_S
# Bytes of what a column counts. Older releases of sysstat (Amazon Linux 2) count sectors.
_READ = {"rkB/s": 1024, "rMB/s": 1024**2, "rsec/s": 512, "rd_sec/s": 512}
_READ |= {"kB_read/s": 1024, "MB_read/s": 1024**2, "Blk_read/s": 512}  # without -x
_WRITTEN = {"wkB/s": 1024, "wMB/s": 1024**2, "wsec/s": 512, "wr_sec/s": 512}
_WRITTEN |= {"kB_wrtn/s": 1024, "MB_wrtn/s": 1024**2, "Blk_wrtn/s": 512}
_WRITTEN |= {"kB_w+d/s": 1024, "MB_w+d/s": 1024**2, "Blk_w+d/s": 512}  # -s
_READ |= {"kB/s": 1024, "MB/s": 1024**2, "sec/s": 512}  # -xs, of reads and writes
_WRITTEN |= {"rqm/s": 0}
_COUNTED = {"r/s", "w/s", "tps", *_READ, *_WRITTEN}
_HUMAN = {"%": 1, "k": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}  # bytes, whatever the title says
_BY_MEAN_SIZE = (("r/s", "rareq-sz", "rkB/s"), ("w/s", "wareq-sz", "wkB/s"), ("tps", "areq-sz", "kB/s"))
_OLD_TITLES = ("r", "w", "rkB", "wkB", "rd_sec", "wr_sec")
_SADF = "# hostname;interval;timestamp"  # how titles of sadf -d begin
_RUN = "Linux "  # how the first line of a run of iostat or sar begins
_NUMBERS_BELOW = re.compile(r"^(\S+)\n {13}", re.MULTILINE)  # their device's name: -h before sysstat 12
_NOT_TEXT = re.compile(r"\0|\x1b\[[\d;]*m")  # where a machine went down, or S_COLORS=always
_DOTTED_TIME = re.compile(  # Finnish, and no date before another time, which Ukrainian has
    r"^(?!.*:\d\d:)((?:[\d.]+ )?\d\d?)\.(\d\d)\.(\d\d)(?=\s|$)", re.MULTILINE
)
_SINCE_EPOCH = re.compile(r"^\d{9,11}$", re.MULTILINE)  # -U of sysstat 12.7.8
_TIME = re.compile(  # of a day, as languages write it
    r"(?<!\d)(?P<hour>\d\d?)[:時时시]\s?(?P<minute>\d\d)[:分분]\s?(?P<second>\d\d)[秒초]?"
    r"(\s?(?P<half>[AP])\.?\s?M\b\.?)?([+-]\d{4})?"
    # and a zone: of iostat the last word, of sar before its titles, or before a device and a number
    r"(?-i:\s+(?!(?:COM|[AP]M)\b)(?:[A-Z]{2,5}|[+-]\d{2,4})"
    r"(?=\s*$|\s+(?:DEV|COM)\b|\s+\S*[a-z]\S*\s+[\d.,]+\s))?",
    re.IGNORECASE,
)
# Of what a limit gives in an interval: who uses so much was at it for moments, and where it was the volume's
# own the log shows no more than that.
_AT_LIMIT = 0.95
_LARGEST_MEAN = 2**50  # bytes of an I/O: of next to no I/Os a log may say any number
_ROUNDING = 0.05  # by which a mean may seem larger than it is: logs have two digits, -h rounds to ``1.0G``
_METRICS = ("VolumeReadOps", "VolumeReadBytes", "VolumeWriteOps", "VolumeWriteBytes")
_MIN_PERIODS = 12  # of a result, of which some follow one another: of fewer all may lie apart
_NOT_ANSWERED = ("Forbidden", "InternalError")  # of a result, whose list is empty then


# Device, when its report begins, for how many seconds, and its columns.
_Row = tuple[str, float, float, dict[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """What a volume did in some seconds; where a source does not tell reads from writes, all are reads."""

    seconds: float
    reads: float
    read_bytes: float
    writes: float
    written_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedUsage:
    """What the intervals would have been on one volume."""

    at_limit_s: Mapping[str, float]  # seconds of the intervals in which this limit was reached
    lowest_credits: float | None  # the least fraction that was left; None for a volume without
    credits_last_s: float | None  # from the start, at the mean of the intervals; None for any time

    @property
    def limited_s(self) -> float:
        """Seconds at the limit that was reached longest."""
        return max(self.at_limit_s.values(), default=0.0)


def parse_usage(text: str, source: str, device: str | None = None) -> list[Interval]:
    """The intervals of a log, whose kind is seen from its text; ``device`` chooses one of several.

    Raises FormatError, naming ``source``, for text of no such kind, or of several devices when none is named.
    """
    text = _NOT_TEXT.sub("", text)
    try:
        if _is_json(text):
            documents = list(_documents(text))
            if "sysstat" not in documents[0]:
                return _amounts(_cloudwatch(documents, device), source)
            text = "\n".join(map(_text_of, documents))
        rows = sorted(_rows_of_sadf(text), key=itemgetter(1)) or _whole(_device_rows(text, source))
    except (ValueError, OverflowError) as error:
        raise FormatError(f"{source}: {error}; give {_KINDS}") from error
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(
            f"{source}: JSON, but neither of get-metric-data nor of sysstat; give {_KINDS}"
        ) from error
    devices = list(dict.fromkeys(row[0] for row in rows))
    if device is None and len(devices) > 1:
        named = ", ".join(devices)
        raise FormatError(f"{source}: of {len(devices)} devices; name one with --device: {named}")
    if device is not None and devices and device not in devices:
        raise FormatError(f"{source}: nothing of device {device}; it has {', '.join(devices)}")
    chosen = [row[1:] for row in rows if device in (None, row[0])]
    if not chosen:
        raise FormatError(f"{source}: no report of a device between two times of day; give {_KINDS}")
    made = ((began_s, seconds, _amounts_of(values, seconds, source)) for began_s, seconds, values in chosen)
    return _amounts(_without_gaps(made), source)


def _is_json(text: str) -> bool:
    return text.lstrip().startswith(("{", "["))


def usage_notes(text: str) -> tuple[str, ...]:
    """What must be known of a log besides its intervals."""
    if not (_is_json(text) and re.search(r'"(?:kB|MB)_read/s"', text)):
        return ()
    return (
        "iostat of sysstat 12.1.2 to 12.2.0 (Ubuntu 20.04) writes sectors into JSON and calls them kB or MB."
        " In such a log bytes are half as many, of MB a 2048th: log with -x, which has sizes of I/Os.",
    )


def _amounts(intervals: Iterable[Interval], source: str) -> list[Interval]:
    """The intervals, none of which has less than nothing, or no number, of anything."""
    checked = list(intervals)
    for number, interval in enumerate(checked, start=1):
        for value in astuple(interval):
            if not 0 <= value < math.inf:
                raise FormatError(f"{source}: {value:g} is no amount (interval {number}); leave it out")
    return checked


def _documents(text: str) -> Iterator[Any]:
    """JSON documents one after the other, as calls that add to a file leave them, or in a list."""
    decode, at, space = json.JSONDecoder().raw_decode, 0, re.compile(r"\s*")
    while (at := space.match(text, at).end()) < len(text):  # type: ignore[union-attr]
        try:
            document, at = decode(text, at)
        except json.JSONDecodeError as error:
            raise ValueError(f"no whole JSON, {error}: copy it when what writes it has ended") from error
        yield from document if isinstance(document, list) else [document]


def _results(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Those of get-metric-data; of get-metric-statistics the one, in their form."""
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
    """The answers of CloudWatch: sums of ``_METRICS`` of one volume.

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
                raise ValueError(f"{label}: two values of {time}; give those of one volume")
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
    """Metric, label and values of each result, by labels, in which ``device`` stands."""
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
    """Raise ValueError where a metric is missing, or says of no I/Os how large they are."""
    if missing := [name for name in _METRICS if name not in sums]:
        raise ValueError(f"no sums of {missing[0]}" + (f" in whose label {device} stands" if device else ""))
    for counts, sizes in (_METRICS[:2], _METRICS[2:]):
        if any(sums[counts].values()) != any(sums[sizes].values()):
            raise ValueError(f"of {counts} and {sizes} one has nothing; give both of one volume and time")


def _require_same_start(
    sums: Mapping[str, Mapping[datetime, float]], periods: Sequence[datetime], lengths_s: Sequence[float]
) -> None:
    """Raise ValueError where periods overlap that have no metric in common.

    They begin when an answer does: those of metrics that were asked for a minute later lie amid the others.
    """
    for (time, after), length_s in zip(pairwise(periods), lengths_s, strict=False):
        is_over = time + timedelta(seconds=length_s) <= after
        if not is_over and not any(time in own and after in own for own in sums.values()):
            raise ValueError(
                f"periods of {time} and {after} overlap, each of other metrics; ask for all from one"
                " start time"
            )


def _period_s(times: Collection[datetime], least: int) -> float:
    """The shortest time between two of them; infinite where there are fewer than ``least``."""
    if len(times) < least:
        return math.inf
    return min((after - before).total_seconds() for before, after in pairwise(sorted(times)))


def _names(label: str, device: str) -> bool:
    """Whether it stands there as a whole: vol-1 not in vol-12."""
    return re.search(rf"(?<![\w-]){re.escape(device)}(?![\w-])", label) is not None


def _moment(time: str | float) -> datetime:
    return datetime.fromisoformat(time) if isinstance(time, str) else datetime.fromtimestamp(time, UTC)


def intervals_of(ios: pa.Table, during_s: Sequence[float] = ()) -> list[Interval]:
    """A trace second by second, also those without I/O, before the first and after the last, too.

    ``during_s`` are times within which it was recorded. Raises FormatError for less than two seconds.
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


_FIELDS = ("reads", "read_bytes", "writes", "written_bytes")


def _interval(seconds: float, amounts: Sequence[float]) -> Interval:
    return Interval(seconds=seconds, **dict(zip(_FIELDS, amounts, strict=True)))


def _without_gaps(rows: Iterable[tuple[float, float, Sequence[float]]]) -> Iterator[Interval]:
    """Intervals of rows that say when they begin, how long they are, and what was done: none in between.

    Credits come back meanwhile.
    """
    ended_s = None
    for began_s, seconds, amounts in rows:
        if ended_s is not None and began_s > ended_s:
            yield _interval(began_s - ended_s, (0.0,) * len(_FIELDS))
        yield _interval(seconds, amounts)
        ended_s = began_s + seconds


def _at(sums: Mapping[str, Mapping[datetime, float]], time: datetime) -> list[float]:
    return [sums[name].get(time, 0.0) for name in _METRICS]


def _text_of(document: Mapping[str, Any]) -> str:
    """The text of what ``iostat -o JSON`` or ``sadf -j`` says, whose titles may lack their ``/s``."""
    lines = []
    for host in document["sysstat"]["hosts"]:
        lines.append(_RUN)
        for report in host["statistics"]:
            time = report.get("timestamp", "")
            if not isinstance(time, str):  # of sadf
                lines += _sadf_lines(report, time)
                continue
            lines.append(time)
            for disk in map(_with_bytes, report.get("disk", ())):
                lines += [" ".join(("Device", *_titles(disk))), " ".join(map(str, disk.values()))]
    return "\n".join(lines)


def _with_bytes(disk: Mapping[str, Any]) -> dict[str, Any]:
    """With kB by the mean sizes of I/Os: kB and MB of iostat of sysstat 12.1.2 to 12.2.0 are sectors."""
    kilobytes = {
        of_bytes: disk[count] * disk[size]
        for count, size, of_bytes in _BY_MEAN_SIZE
        if size in disk and count in disk
    }
    return {**disk, **kilobytes}


def _sadf_lines(report: Mapping[str, Any], time: Mapping[str, Any]) -> Iterator[str]:
    """What ``sadf -d`` says instead of its JSON."""
    for disk in report.get("disk", ()):
        yield ";".join((_SADF, "DEV", *_titles(disk)))
        yield ";".join(
            ("", str(time["interval"]), f"{time['date']} {time['time']}".strip(), *map(str, disk.values()))
        )


def _titles(disk: Mapping[str, Any]) -> list[str]:
    """Of all but the device's name, which is the first."""
    return [f"{title}/s" if title in _OLD_TITLES else title for title in list(disk)[1:]]


def _rows_of_sadf(text: str) -> Iterator[_Row]:
    """As ``_device_rows``, of text of ``sadf -d``; each of its lines says for how long it is."""
    titles: list[str] = []
    for line in text.splitlines() if _SADF in text else ():
        words = line.replace(",", ".").split(";")
        if line.startswith(_SADF):
            titles = words[3:]
        elif titles[:1] == ["DEV"] and len(words) > len(titles) + 2 and (seconds := float(words[1])) > 0:
            time = words[2][:19]  # without the name of a zone
            ended_s = float(time) if time.isdecimal() else _moment(time).replace(tzinfo=UTC).timestamp()
            for at in range(3, len(words) - len(titles) + 1, len(titles)):  # with -h several
                values = _counts(titles[1:], words[at + 1 : at + len(titles)])
                yield words[at], ended_s - seconds, seconds, values


def _device_rows(text: str, source: str) -> Iterator[_Row]:
    """Of each line of a device."""
    titles: list[str] = []
    name_is_last = False
    for words, has_time, began_s, seconds in _timed_lines(text, source):
        if "DEV" in words and not has_time:  # sar's averages, in whatever language
            titles = []
            continue
        if are_titles := bool({"Device", "Device:", "DEV"} & set(words)):
            name_is_last = words[-1] in ("DEV", "Device")  # --pretty
        if name_is_last:
            words = [*words[-1:], *words[:-1]]
        if are_titles:
            titles = words[1:]
        elif not words or words[0].endswith(":"):
            titles = titles if has_time else []
        elif seconds and titles and len(words) == len(titles) + 1:
            yield words[0], began_s, seconds, _counts(titles, words[1:])


def _whole(rows: Iterable[_Row]) -> list[_Row]:
    """One for each report of a device: ``--pretty`` has a table of reads and another of writes."""
    whole: dict[tuple[str, float], _Row] = {}
    for device, began_s, seconds, values in rows:
        *_, others = whole.get((device, began_s), (values,))
        whole[device, began_s] = device, began_s, seconds, values | others
    return list(whole.values())


def _counts(titles: Sequence[str], words: Sequence[str]) -> dict[str, float]:
    """The columns that are needed: all of them took nine times as much memory as the log."""
    columns = zip(titles, words, strict=True)
    return {title: _number(title, word) for title, word in columns if title in _COUNTED}


def _number(title: str, word: str) -> float:
    """A number, which ``--human`` may have rounded: ``1.5M``; ValueError names the column of what is none."""
    unit = 1.0 if word[-1:] not in _HUMAN else _HUMAN[word[-1]] / (_READ | _WRITTEN).get(title, 1)
    try:
        return float(word.rstrip("".join(_HUMAN))) * unit
    except ValueError:
        raise ValueError(f"{word!r} is no number of {title}") from None


def _timed_lines(text: str, source: str) -> Iterator[tuple[list[str], bool, float, float]]:
    """The words of each line, whether it has a time, when the report that it is of begins, and its seconds.

    The first report of iostat is of the time since the machine started, and only says when the next begins;
    sar says that in its titles, of each of its tables. A log may have several runs, which nothing is known to
    lie between.
    """
    seconds, time_s, now_s, is_table = 0.0, -1.0, 0.0, False
    text = _DOTTED_TIME.sub(r"\1:\2:\3", _NUMBERS_BELOW.sub(r"\1 ", text))
    text = _SINCE_EPOCH.sub(lambda time: str(timedelta(seconds=int(time[0]) % _DAY_S)), text)
    for line in text.splitlines():
        clock = _TIME.search(line)
        words = (line[clock.end() :] if clock else line).replace(",", ".").split()
        if clock and words[:1] == ["COM"]:  # of sar -C, also amid a report's time
            continue
        if clock:
            before_s, time_s = time_s, _second_of_day(clock)
            if is_table and words and not line[: clock.start()].strip() and time_s < before_s:
                now_s -= before_s - time_s
            elif time_s != before_s or not words:  # a line of sar's has the time of its report
                seconds = _seconds_between(before_s, time_s, seconds, source) if before_s >= 0 else 0.0
                now_s += seconds
        elif line.startswith(_RUN):
            time_s, seconds = -1.0, 0.0
        is_table = not line.strip()
        yield words, clock is not None, now_s - seconds, seconds


def _seconds_between(before_s: float, time_s: float, usual_s: float, source: str) -> float:
    """From a second of a day to the next such; as long as the last time where a clock jumped."""
    seconds = (time_s - before_s) % _DAY_S
    longer_s = min((seconds - usual_s) % _DAY_S, (usual_s - seconds) % _DAY_S)
    if 0 < usual_s < _HOUR_S and any(abs(longer_s - jump_s) <= _JITTER_S for jump_s in _JUMPS_S):
        return usual_s
    if time_s < before_s and seconds > _DAY_S / 2:  # no midnight between them
        raise FormatError(
            f"{source}: times run backwards, from {timedelta(seconds=before_s)} to "
            f"{timedelta(seconds=time_s)}; give one recording at a time, of a clock of 24 hours"
            " (S_TIME_FORMAT=ISO)"
        )
    return seconds


def _second_of_day(clock: re.Match[str]) -> float:
    hour, minute, second = map(int, clock.group("hour", "minute", "second"))
    if half := clock["half"]:
        hour = hour % 12 + (12 if half in "Pp" else 0)
    return hour * 3600.0 + minute * 60 + second


def _amounts_of(values: Mapping[str, float], seconds: float, source: str) -> list[float]:
    """Of one report, in the order of ``_FIELDS``."""
    try:
        read, written = _bytes_of(values, _READ), _bytes_of(values, _WRITTEN)
        reads, writes = (values["r/s"], values["w/s"]) if "r/s" in values else (values["tps"], 0.0)
    except KeyError as error:
        raise FormatError(
            f"{source}: its columns do not say how many I/Os and bytes; give {_KINDS}"
        ) from error
    if "r/s" not in values:  # of I/Os that may be either the bytes are, too
        read, written = read + written, 0.0
    return [seconds * rate for rate in (reads, read, writes, written)]


def _bytes_of(values: Mapping[str, float], sizes: Mapping[str, int]) -> float:
    """Bytes a second by whichever of these columns there is; KeyError without one."""
    title = next((title for title in sizes if title in values), "")
    return values[title] * sizes[title]


def columns_of(intervals: Sequence[Interval]) -> Column:
    """A row for each field of the intervals, in their order; idle ones that follow each other are one."""
    rows = np.array(
        [(one.seconds, one.reads, one.read_bytes, one.writes, one.written_bytes) for one in intervals], float
    )
    idle = (rows[:, 1] == 0) & (rows[:, 3] == 0)
    first = np.flatnonzero(~(idle & np.append(False, idle[:-1])))
    columns: Column = np.add.reduceat(rows, first).T
    return columns


def replay_usage(columns: Column, model: Model, *, credits: float = 1.0) -> ReplayedUsage:
    """Charge intervals to the limits of a volume, striped ones evenly; what is not done stays owed."""
    seconds = columns[0]
    at_limit_s, lowest, last_s = {}, [], []
    for i, limit in enumerate((*model.limits, *model.instance_limits)):
        stripes = model.stripes if i < len(model.limits) else 1
        gives, takes = limit.rate * seconds, _cost(columns, limit, model) / stripes
        first = limit.capacity * (credits if limit.of_credits and i < len(model.limits) else 1.0)
        # The level after each interval, at most the capacity: as much below the sum of all that came and
        # went as the highest that this sum was above the capacity.
        grown = np.cumsum(gives - takes)
        levels = grown + np.minimum(first, np.minimum.accumulate(limit.capacity - grown))
        before = np.append(first, levels[:-1])
        after = before + gives - takes
        saved = limit.of_credits & (after > (1 - _AT_LIMIT) * limit.capacity)
        whole = (after < 0) | ((takes >= _AT_LIMIT * gives) & ~saved)
        owed = np.maximum(0.0, -before)  # and done before the interval is over, unless that is at the limit
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
    """Tokens by interval, its I/Os all of their mean size, and random: HDD types charge more for these."""
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
