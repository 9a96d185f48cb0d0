"""Parses sysstat's reports of devices: ``iostat``, ``sar -d`` and ``sadf``, in all their forms.

Languages, clocks, units and titles vary by release and setting; each report becomes a row here.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any

from esrally_ebs.errors import FormatError

_DAY_S, _HOUR_S = 86400, 3600
_JUMPS_S = (_HOUR_S, _DAY_S // 2)  # of clocks set forward or back, or without AM and PM
_MAX_OVERLAP_S = 2 * _HOUR_S  # of reports in local time, where a clock is set back
_JITTER_S = 2  # sar's reports vary by this much, as its times are whole seconds
# Bytes per unit of a column. Older sysstat (Amazon Linux 2) counts sectors.
_READ = {"rkB/s": 1024, "rMB/s": 1024**2, "rsec/s": 512, "rd_sec/s": 512}
_READ |= {"kB_read/s": 1024, "MB_read/s": 1024**2, "Blk_read/s": 512}  # without -x
_WRITTEN = {"wkB/s": 1024, "wMB/s": 1024**2, "wsec/s": 512, "wr_sec/s": 512}
_WRITTEN |= {"kB_wrtn/s": 1024, "MB_wrtn/s": 1024**2, "Blk_wrtn/s": 512}
_WRITTEN |= {"kB_w+d/s": 1024, "MB_w+d/s": 1024**2, "Blk_w+d/s": 512}  # -s
_READ |= {"kB/s": 1024, "MB/s": 1024**2, "sec/s": 512}  # -xs: reads and writes together
_WRITTEN |= {"rqm/s": 0}
_COUNTED = {"r/s", "w/s", "tps", *_READ, *_WRITTEN}
_HUMAN = {"%": 1, "k": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}  # bytes, whatever the title says
_BY_MEAN_SIZE = (("r/s", "rareq-sz", "rkB/s"), ("w/s", "wareq-sz", "wkB/s"), ("tps", "areq-sz", "kB/s"))
_OLD_TITLES = ("r", "w", "rkB", "wkB", "rd_sec", "wr_sec")
_SADF = "# hostname;interval;timestamp"  # how titles of sadf -d begin
_RUN = "Linux "  # how the first line of a run of iostat or sar begins
_HEAD = re.compile(rf"^{_RUN}|\b{_RUN}\S+ \(")  # that line, also behind what something else put before it
_DEVICE = ("Device", "Device:", "DEV")
_DEVICE_TITLE = re.compile(r"\bDevice:?\s")  # iostat's
_NUMBERS_BELOW = re.compile(r"^(\S+)\n {13}", re.MULTILINE)  # their device's name: -h before sysstat 12
NOT_TEXT = re.compile(r"\0|\x1b\[[\d;]*m")  # after a crash of the machine; S_COLORS=always
_DOTTED_TIME = re.compile(  # Finnish, Danish; but not a date before another time, as in Ukrainian
    r"^(?!.*:\d\d:)((?:[\d./-]+ )?\d\d?)\.(\d\d)\.(\d\d)(?=\s|$)", re.MULTILINE
)
_DASHED_TIME = re.compile(r"(?<= )(\d\d)-(\d\d)-")  # of sadf of sysstat 9 (RHEL 6)
_SINCE_EPOCH = re.compile(r"^\d{9,11}$", re.MULTILINE)  # -U of sysstat 12.7.8
_TIME = re.compile(  # a time of day, as languages write it
    r"(?<!\d)(?P<hour>\d\d?)[:時时시]\s?(?P<minute>\d\d)[:分분]\s?(?P<second>\d\d)[秒초]?"
    r"(\s?(?P<half>[AP])\.?\s?M\b\.?)?([+-]\d{4})?"
    # an optional zone: iostat has it last, sar before its titles or before a device and a number
    r"(?-i:\s+(?!(?:COM|[AP]M)\b)(?:[A-Z]{2,5}|[+-]\d{2,4})"
    r"(?=\s*$|\s+(?:DEV|COM)\b|\s+\S*[a-z]\S*\s+[\d.,]+\s))?",
    re.IGNORECASE,
)
# device, begin and seconds of its report, and its columns
Row = tuple[str, float, float, dict[str, float]]


def rows_of(text: str, source: str) -> list[Row]:
    """A log's device reports in order of time; empty without a report between two times of day.

    Raises FormatError, naming ``source``, if times run backwards, and ValueError for an invalid number, or
    for reports of several machines.
    """
    dated = sorted(_rows_of_sadf(text), key=itemgetter(1))
    _require_one_machine(dated)
    return dated or _whole(_device_rows(text, source))


def _require_one_machine(rows: Iterable[Row]) -> None:
    """Raise ValueError if reports of a device are of the same time, as several machines' or copies are."""
    ended_s: dict[str, float] = {}
    overlap_s: dict[str, float] = {}
    for device, began_s, seconds, _ in rows:
        both_s = min(ended_s.get(device, began_s) - began_s, seconds)
        if both_s > min(_JITTER_S, seconds / 2):
            overlap_s[device] = overlap_s.get(device, 0.0) + both_s
        if overlap_s.get(device, 0.0) > _MAX_OVERLAP_S:
            raise ValueError(f"several reports of {device} for the same time; give one machine's, once")
        ended_s[device] = max(ended_s.get(device, 0.0), began_s + seconds)


def text_of(document: Mapping[str, Any]) -> str:
    """Text form of JSON by ``iostat -o JSON`` or ``sadf -j``; adds ``/s`` that its titles may lack."""
    lines = []
    for host in document["sysstat"]["hosts"]:
        lines.append(_RUN)
        for report in host["statistics"]:
            time = report.get("timestamp", "")
            if not isinstance(time, str):  # sadf's
                lines += _sadf_lines(report, time)
                continue
            lines.append(time)
            for disk in map(_with_bytes, report.get("disk", ())):
                lines += [" ".join(("Device", *_titles(disk))), " ".join(map(str, disk.values()))]
    return "\n".join(lines)


def _with_bytes(disk: Mapping[str, Any]) -> dict[str, Any]:
    """Adds kB by the mean sizes of I/Os, as iostat's own are sectors in sysstat 12.1.2 to 12.2.0."""
    kilobytes = {
        of_bytes: disk[count] * disk[size]
        for count, size, of_bytes in _BY_MEAN_SIZE
        if size in disk and count in disk
    }
    return {**disk, **kilobytes}


def _sadf_lines(report: Mapping[str, Any], time: Mapping[str, Any]) -> Iterator[str]:
    """A JSON report as lines of ``sadf -d``."""
    for disk in report.get("disk", ()):
        yield ";".join((_SADF, "DEV", *_titles(disk)))
        yield ";".join(
            ("", str(time["interval"]), f"{time['date']} {time['time']}".strip(), *map(str, disk.values()))
        )


def _titles(disk: Mapping[str, Any]) -> list[str]:
    """Titles of all columns except the first, the device's name."""
    return [f"{title}/s" if title in _OLD_TITLES else title for title in list(disk)[1:]]


def _rows_of_sadf(text: str) -> Iterator[Row]:
    """As ``_device_rows``, for ``sadf -d``, whose lines each have their duration."""
    titles: list[str] = []
    for line in text.splitlines() if _SADF in text else ():
        words = line.replace(",", ".").split(";")
        if line.startswith(_SADF):
            titles = words[3:]
        elif titles[:1] == ["DEV"] and len(words) > len(titles) + 2 and (seconds := float(words[1])) > 0:
            time = _DASHED_TIME.sub(r"\1:\2:", words[2][:19])  # without the name of a zone
            ended_s = (
                float(time)
                if time.isdecimal()
                else datetime.fromisoformat(time).replace(tzinfo=UTC).timestamp()
            )
            for at in range(3, len(words) - len(titles) + 1, len(titles)):  # -h puts several on a line
                values = _counts(titles[1:], words[at + 1 : at + len(titles)])
                yield words[at], ended_s - seconds, seconds, values


def _device_rows(text: str, source: str) -> Iterator[Row]:
    """A row for each line of a device."""
    titles: list[str] = []
    name_is_last, name_at = False, 0
    for words, has_time, began_s, seconds in _timed_lines(text, source):
        if "DEV" in words and not has_time:  # sar's averages, in any language
            titles = []
            continue
        place = next((at for at, word in enumerate(words) if word in _DEVICE), None)
        if place is not None:
            name_is_last = words[-1] in ("DEV", "Device")  # --pretty
            name_at = 0 if name_is_last else place  # behind what journald, ts or Docker put before each line
        words = [*words[-1:], *words[:-1]] if name_is_last else words[name_at:]
        if place is not None:
            titles = words[1:]
        elif not words or words[0].endswith(":"):
            titles = titles if has_time and not words else []
        elif seconds and titles and len(words) == len(titles) + 1:
            yield words[0], began_s, seconds, _counts(titles, words[1:])


def _whole(rows: Iterable[Row]) -> list[Row]:
    """One row per report of a device: ``--pretty`` has separate tables for reads and writes."""
    whole: dict[tuple[str, float], Row] = {}
    for device, began_s, seconds, values in rows:
        *_, others = whole.get((device, began_s), (values,))
        whole[device, began_s] = device, began_s, seconds, values | others
    return list(whole.values())


def _counts(titles: Sequence[str], words: Sequence[str]) -> dict[str, float]:
    """Only the needed columns: all of them took nine times as much memory as the log."""
    columns = zip(titles, words, strict=True)
    return {title: _number(title, word) for title, word in columns if title in _COUNTED}


def _number(title: str, word: str) -> float:
    """A number, perhaps rounded by ``--human``: ``1.5M``. ValueError for others, with the column's name."""
    unit = 1.0 if word[-1:] not in _HUMAN else _HUMAN[word[-1]] / (_READ | _WRITTEN).get(title, 1)
    try:
        return float(word.rstrip("".join(_HUMAN))) * unit
    except ValueError:
        raise ValueError(f"{word!r} is no number of {title}") from None


def _timed_lines(text: str, source: str) -> Iterator[tuple[list[str], bool, float, float]]:
    """For each line: its words, whether it has a time, and its report's begin and seconds.

    iostat's first report covers the time since boot, so it only tells when the next one begins; for sar, the
    titles of each table do. A log may have several runs, with unknown gaps between.
    """
    seconds, time_s, now_s, is_table = 0.0, -1.0, 0.0, False
    is_iostat = _DEVICE_TITLE.search(text) is not None
    text = _DOTTED_TIME.sub(r"\1:\2:\3", _NUMBERS_BELOW.sub(r"\1 ", text))
    text = _SINCE_EPOCH.sub(lambda time: str(timedelta(seconds=int(time[0]) % _DAY_S)), text)
    for line in text.splitlines():
        if _HEAD.search(line):
            time_s, seconds = -1.0, 0.0
        clock = _TIME.search(line)
        words = (line[clock.end() :] if clock else line).replace(",", ".").split()
        if clock and words[:1] == ["COM"]:  # a table of sar -C, possibly within a report
            continue
        if clock:
            before_s, time_s = time_s, _second_of_day(clock)
            if is_iostat and seconds > _JITTER_S and (time_s - before_s) % _DAY_S == 1:
                time_s = before_s  # a report that another program was still reading as the second ended
            if is_table and words and not line[: clock.start()].strip() and time_s < before_s:
                now_s -= before_s - time_s
            elif time_s != before_s:  # a line of sar's has the time of its report
                seconds = _seconds_between(before_s, time_s, seconds, source) if before_s >= 0 else 0.0
                now_s += seconds
        is_table = not line.strip()
        yield words, clock is not None, now_s - seconds, seconds


def _seconds_between(before_s: float, time_s: float, usual_s: float, source: str) -> float:
    """Seconds between two times of day; the last interval again if the clock jumped."""
    seconds = (time_s - before_s) % _DAY_S
    longer_s = min((seconds - usual_s) % _DAY_S, (usual_s - seconds) % _DAY_S)
    if 0 < usual_s < _HOUR_S and any(abs(longer_s - jump_s) <= _JITTER_S for jump_s in _JUMPS_S):
        return usual_s
    if time_s < before_s and seconds > _DAY_S / 2:  # no midnight in between
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


def amounts_of(values: Mapping[str, float], seconds: float) -> list[float]:
    """Reads, bytes read, writes and bytes written of one report.

    Raises ValueError if its columns do not have them.
    """
    try:
        read, written = _bytes_of(values, _READ), _bytes_of(values, _WRITTEN)
        reads, writes = (values["r/s"], values["w/s"]) if "r/s" in values else (values["tps"], 0.0)
    except KeyError as error:
        raise ValueError("its columns do not say how many I/Os and bytes") from error
    if "r/s" not in values:  # if I/Os are not told apart, bytes are not either
        read, written = read + written, 0.0
    return [seconds * rate for rate in (reads, read, writes, written)]


def _bytes_of(values: Mapping[str, float], sizes: Mapping[str, int]) -> float:
    """Bytes per second from whichever of these columns is there. Raises KeyError if none is."""
    title = next((title for title in sizes if title in values), "")
    return values[title] * sizes[title]
