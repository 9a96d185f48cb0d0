"""Parses traces of other tools into a session's table of I/Os, and says how those use a device.

What a tool does not record is missing in the table: fio's logs have no completions, and only perf, the kernel
and blkparse say what was read ahead.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esrally_ebs.errors import FormatError
from esrally_ebs.store.encoding import TRACE

_SECTOR = 512
_MAX_LINE = 1000  # characters; a longer line is of no trace
_MAX_SECTOR = 2**63 // _SECTOR  # sectors that an offset of 64 bits can tell
# An I/O of a trace: blkparse and the kernel have issues (D), completions (C) and issues that were taken back
# (R, requeued), biosnoop's lines are of completions (an I/O that no scheduler queued may have -1 ms in its
# queue), those of fio's iolog of issues; version 2 of it has no times but how long it waits in between.
_NUMBER = r"\d{1,18}"
_TIME = r"\d{1,12}\.\d{1,9}"
_BLKPARSE = re.compile(
    rf"(?P<device>\d+,\d+) +\d+ +\d+ +(?P<s>{_TIME}) +(?P<thread>{_NUMBER}) +(?P<action>[DCR])"
    rf" +(?P<op>[A-Z]*[RW][A-Z]*) +(?P<sector>{_NUMBER}) \+ (?P<sectors>{_NUMBER})"
)
_PERF = re.compile(
    rf"(.*?(?P<thread>{_NUMBER}) +\[\d+\])?.*?(?P<s>{_TIME}): +"
    r"(block:)?block_rq_(?P<action>issue|complete|requeue): +"
    r"(?P<device>\d+,\d+) (?P<op>[A-Z]*[RW][A-Z]*) (\d+ )?\(.*?\)"
    rf" (?P<sector>{_NUMBER}) \+ (?P<sectors>{_NUMBER})"
)
_BIOSNOOP = re.compile(
    rf"(?P<s>{_TIME}) +.*?(?P<thread>{_NUMBER}) +(?P<device>\S+) +(?P<op>[A-Z]*[RW][A-Z]*) +"
    rf"(?P<sector>{_NUMBER}) +(?P<bytes>{_NUMBER})(?P<queue> +-?[\d.]+)? +(?P<took_ms>\d{{1,9}}(\.\d+)?)$"
)
_QUEUED = "QUE(ms)"  # a column of biosnoop -Q
_IOLOG = re.compile(
    rf"((?P<us>{_NUMBER}) )?(?P<device>\S+) (?P<op>read|write) (?P<offset>{_NUMBER}) (?P<bytes>{_NUMBER})$"
)
_IOLOG_HEAD = re.compile(r"fio version (?P<version>\d+) iolog")
_IOLOG_WAIT = re.compile(rf"\S+ wait (?P<us>{_NUMBER})")
# What the kernel, trace-cmd, blkparse, perf script, biosnoop and blktrace print where buffers were full.
_LOST = re.compile(
    r"^CPU:\d+ \[(?:LOST )?(?:(\d+) )?EVENTS(?: DROPPED)?\]|^Skips: [\d,]+ forward \(([\d,]+)"
    r"|PERF_RECORD_LOST lost (\d+)|events and lost (\d+) chunks|^Possibly lost (\d+) samples"
    r"|^lost (\d+) events|You have (\d+) dropped",
    re.MULTILINE | re.IGNORECASE,
)
# blkparse numbers the events of a device, on each processor.
_NUMBERED = re.compile(
    rf"^ *(\d+,\d+) +(\d+) +({_NUMBER}) +{_TIME} +{_NUMBER} +([A-Z]{{1,2}}) ", re.MULTILINE
)
# The kernel's trace says how many events its buffers had, and where each begins if any began to overwrite.
_IN_BUFFER = re.compile(r"^# entries-in-buffer/entries-written: (\d{1,18})/", re.MULTILINE)
_EVENT = re.compile(rf"^ *\S.{{0,100}}? \[\d+\] .{{0,20}}?{_TIME}: ", re.MULTILINE)
_BEGINS = re.compile(r"##### CPU \d+ buffer started ####")
# Of events, where none was left out when they were printed: unplugging (U) is of no read or write (-a read).
_ALL_KINDS = {"Q", "G", "U", "D", "C"}
_MAX_PASSED_OVER = 0.01  # of numbers, or of events that a buffer had
_AGAIN_S = 0.1  # in which a device has room again
_TOOLS = (_BLKPARSE, _PERF, _BIOSNOOP)


class _Line(NamedTuple):
    """An I/O of a trace; seconds on the tool's clock. The columns of ``TRACE`` that a tool may know."""

    device: str
    at_s: float  # issued, or done where its issue is not in the trace
    done_s: float | None  # None where its issue or its completion is not in the trace
    offset: int
    bytes: int
    op: str
    ahead: bool | None
    thread: int | None


def parse_trace(text: str, source: str, device: str | None = None, *, began_s: float = 0.0) -> pa.Table:
    """The I/Os of one device, a table of ``TRACE`` by the time they came; ``began_s`` is added to its clock.

    A table without rows for text that is no trace. Raises FormatError, naming ``source``, for a trace of
    several devices of which none is named, for one that is not in it, and for several recordings in one file
    of fio's.
    """
    if (recordings := len(_IOLOG_HEAD.findall(text))) > 1:
        raise FormatError(
            f"{source}: {recordings} recordings, as fio adds to a file that is there; give one of them"
        )
    lines = list(_lines(text))
    devices = list(dict.fromkeys(line.device for line in lines))
    if device is None and len(devices) > 1:
        named = ", ".join(devices[:10])
        raise FormatError(f"{source}: of {len(devices)} devices; name one with --device: {named}")
    if device is not None and devices and device not in devices:
        raise FormatError(f"{source}: nothing of device {device}; it has {', '.join(devices[:10])}")
    rows = [
        {"arm": "", "queue_s": None, "path_s": 0.0, **line._asdict()}
        for line in lines
        if device in (None, line.device)
    ]
    tells_ahead = any(row["ahead"] for row in rows)  # of two biosnoops one does
    for row in rows:
        row["ahead"] = bool(row["ahead"]) if tells_ahead else row["ahead"]
        row["at_s"] += began_s
        row["done_s"] = None if row["done_s"] is None else row["done_s"] + began_s
    return pa.Table.from_pylist(rows, schema=TRACE).sort_by("at_s")


def _lines(text: str) -> Iterator[_Line]:
    """The I/Os of a trace, in no order; nothing for other text."""
    lines = (line.strip() for line in text.splitlines() if len(line) <= _MAX_LINE)
    if head := _IOLOG_HEAD.match(text.lstrip()):
        yield from _iolog(lines, has_times=head["version"] != "2")
        return
    issued: dict[tuple[str, str], tuple[float, dict[str, Any]]] = {}
    for of in _events(lines, has_queue=_QUEUED in text[:_MAX_LINE]):
        seconds, key, action = float(of["s"]), (of["device"], of["sector"]), of.get("action", "C")[0].upper()
        begun_s, by = issued.pop(key, (None, of))
        if action in "DI":
            if begun_s is not None and not _is_again(of, by, seconds - begun_s):  # its completion was lost
                yield from _io(by, begun_s, None)
            issued[key] = seconds, of
        if action in "DIR":
            continue
        if of.get("took_ms"):
            begun_s = seconds - float(of["took_ms"]) / 1000
        yield from _io(by, begun_s, seconds)
    for begun_s, of in issued.values():
        yield from _io(of, begun_s, None)


def _is_again(of: dict[str, Any], before: dict[str, Any], after_s: float) -> bool:
    """Whether an issue is of the same request as the one before, as its device had no room then.

    That it was taken back stands in few traces: who records issues and completions has no requeues.
    """
    return after_s < _AGAIN_S and (of["op"], of["sectors"]) == (before["op"], before["sectors"])


def _events(lines: Iterator[str], *, has_queue: bool) -> list[dict[str, Any]]:
    """What the lines say, in the order of time: a file may have one processor after the other.

    From when on all processors' are there: what one of them overwrote is missing among the others'.
    """
    events, since_s, begins = [], 0.0, False
    for line in lines:
        begins = begins or bool(_BEGINS.match(line))
        match = next((match for tool in _TOOLS if (match := tool.match(line))), None)
        if match is None:
            continue
        events.append(match.groupdict())
        if begins:
            since_s, begins = max(since_s, float(match["s"])), False
    events = [of for of in events if float(of["s"]) >= since_s]
    if has_queue:  # a line that was cut has one time, which is of the queue
        events = [of for of in events if of.get("queue", "-")]
    return sorted(events, key=lambda of: float(of["s"]))


def _io(of: dict[str, Any], begun_s: float | None, done_s: float | None) -> Iterator[_Line]:
    """The I/O of a line; nothing where its place or size is none, as of a command to the disk."""
    size = int(of["bytes"]) if "bytes" in of else int(of["sectors"]) * _SECTOR
    if int(of["sector"]) < _MAX_SECTOR and 0 < size < 2**32:
        yield _Line(
            device=of["device"],
            at_s=(done_s or 0.0) if begun_s is None else begun_s,
            done_s=None if begun_s is None else done_s,
            offset=int(of["sector"]) * _SECTOR,
            bytes=size,
            op="write" if "W" in of["op"] else "read",
            ahead="A" in of["op"] or (None if "took_ms" in of else False),
            thread=None if begun_s is None or not of["thread"] else int(of["thread"]),
        )


def _iolog(lines: Iterator[str], *, has_times: bool) -> Iterator[_Line]:
    now_us = 0
    for line in lines:
        if not has_times and (wait := _IOLOG_WAIT.match(line)):
            now_us += int(wait["us"])
        elif io := _IOLOG.match(line):
            at_s = (int(io["us"] or 0) if has_times else now_us) / 1e6
            yield _Line(io["device"], at_s, None, int(io["offset"]), int(io["bytes"]), io["op"], None, None)


def lost_events(text: str) -> int:
    """Events that a trace says it lost, at least, or that its numbers pass over."""
    said = sum(int(("".join(counts) or "1").replace(",", "")) for counts in _LOST.findall(text))
    return said + _passed_over(text) + _not_printed(text)


def _not_printed(text: str) -> int:
    """How many of the events in the kernel's buffers its trace has no line of; of few it is said: none."""
    count = max(map(int, _IN_BUFFER.findall(text)), default=0)
    missing = count - len(_EVENT.findall(text)) if count else 0
    return missing if missing > _MAX_PASSED_OVER * count else 0


def _passed_over(text: str) -> int:
    """How many numbers are missing where blkparse printed events of all kinds; of few it is said: none."""
    numbers: dict[str, dict[str, set[int]]] = {}
    kinds: dict[str, set[str]] = {}
    for device, processor, number, kind in _NUMBERED.findall(text):
        numbers.setdefault(device, {}).setdefault(processor, set()).add(int(number))
        kinds.setdefault(device, set()).add(kind)
    if {"A"} in kinds.values():  # a partition below LVM: these are among the numbers of its disk
        return 0
    expected = missing = 0
    for by_processor in numbers.values():
        apart = list(by_processor.values())
        count = sum(map(len, apart))
        # By one counter or one of each processor: where both may be, by that which passes over fewer.
        ways = [apart, [set().union(*apart)]]
        spans = [sum(max(run) - min(run) + 1 for run in way) for way in ways if sum(map(len, way)) == count]
        expected += min(spans)
        missing += min(spans) - count
    has_all_kinds = any(own >= _ALL_KINDS for own in kinds.values())
    return missing if has_all_kinds and missing > _MAX_PASSED_OVER * expected else 0


def lacks(ios: pa.Table) -> list[str]:
    """What a trace does not tell, and what cannot be said because of it; a sentence each."""
    texts = []
    unknown = ios["done_s"].null_count
    if unknown == ios.num_rows:
        texts.append(
            "It has no I/O with both issue and completion: nothing is said of depth or times, and requests"
            " are not predicted."
        )
    elif unknown:
        texts.append(
            f"Of {unknown:,} I/Os it has no issue or no completion: those are left out of depth and times."
        )
    if ios["ahead"].null_count == ios.num_rows:
        texts.append("It does not say what was read ahead: that is inferred from places and times.")
    return texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How the I/Os of a trace use the device; what the trace does not say is None."""

    ios: int
    bytes: int
    median_bytes: float
    continuing: float  # share that begin where one of the last I/Os of their kind ended
    ahead: float | None  # share that is readahead
    in_flight: float | None  # when an I/O is issued, it included
    median_s: float | None
    p99_s: float | None


_RECENT = 64  # I/Os among which one is looked for that this one continues


def access_of(ios: pa.Table) -> Access:
    """The pattern of I/Os of one kind on one device, at least one, by the time they came."""
    offset, size = ios["offset"].to_numpy(), ios["bytes"].to_numpy()
    last_end: dict[int, int] = {}  # the newest I/O that ended at a place
    continuing = 0
    for number, (begin, end) in enumerate(zip(offset.tolist(), (offset + size).tolist(), strict=True)):
        continuing += number - last_end.get(begin, -_RECENT - 1) <= _RECENT
        last_end[end] = number
    timed = ios.filter(pc.is_valid(ios["done_s"]))
    at_s, done_s = timed["at_s"].to_numpy(), timed["done_s"].to_numpy()
    took_s = done_s - at_s
    before = np.searchsorted(np.sort(done_s), at_s, "right")
    known = pc.drop_null(ios["ahead"])
    return Access(
        ios=len(offset),
        bytes=int(size.sum()),
        median_bytes=float(np.median(size)),
        continuing=continuing / len(offset),
        ahead=pc.mean(known.cast(pa.int64())).as_py() if len(known) else None,
        in_flight=float(np.mean(np.arange(1, len(at_s) + 1) - before)) if len(at_s) else None,
        median_s=float(np.median(took_s)) if len(at_s) else None,
        p99_s=float(np.percentile(took_s, 99)) if len(at_s) else None,
    )
