"""Parses other tools' traces into a session's table of I/Os, and describes how they use a device.

What a tool does not record is missing in the table: fio's logs have no completions, and only perf, the kernel
and blkparse say what was read ahead.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esrally_ebs.advice.usage import device_of
from esrally_ebs.errors import FormatError
from esrally_ebs.store.encoding import MAX_IO_BYTES, TRACE

_SECTOR = 512
_MAX_LINE = 1000  # a longer line belongs to no trace
_LINE = re.compile(rf"^.{{1,{_MAX_LINE}}}$", re.MULTILINE)
_MAX_SECTOR = 2**63 // _SECTOR  # sectors that a 64-bit offset can address
# Lines of I/Os: blkparse and the kernel have issues (D), completions (C) and requeued issues (R); biosnoop
# has completions (an I/O that no scheduler queued may have -1 ms in its queue); fio's iolog has issues, and
# in version 2 waits between them instead of times.
_NUMBER = r"\d{1,18}"
_TIME = r"\d{1,12}\.\d{1,9}"
_BLKPARSE = re.compile(
    rf"(?P<device>\d+,\d+) +\d+ +\d+ +(?P<s>{_TIME}) +(?P<thread>{_NUMBER}) +(?P<action>[DCR])"
    rf" +(?P<op>[A-Z]*[RW][A-Z]*) +(?P<sector>{_NUMBER}) \+ (?P<sectors>{_NUMBER})"
)
_PERF = re.compile(
    rf"(.*?(?P<thread>{_NUMBER}) +\[\d+\])?.*?(?P<s>{_TIME}): +"
    r"(\d+ +)?(block:)?block_rq_(?P<action>issue|complete|requeue): +"
    r"(?P<device>\d+,\d+) (?P<op>[A-Z]*[RW][A-Z]*) (\d+ )?\(.*?\)"
    rf" (?P<sector>{_NUMBER}) \+ (?P<sectors>{_NUMBER})"
)
_BIOSNOOP = re.compile(
    rf"(?P<s>{_TIME}) +.*?(?P<thread>{_NUMBER}) +(?P<device>\S+) +(?P<op>[A-Z]*[RW][A-Z]*) +"
    rf"(?P<sector>{_NUMBER}) +(?P<bytes>{_NUMBER})( *[SR?](?= ))?(?P<queue> +-?[\d.]+)?"
    r" +(?P<took_ms>\d{1,9}(\.\d+)?)$"
)
_QUEUED = "QUE(ms)"  # a column of biosnoop -Q
_IOLOG = re.compile(
    rf"((?P<us>{_NUMBER}) )?(?P<device>\S+) (?P<op>read|write) (?P<offset>{_NUMBER}) (?P<bytes>{_NUMBER})$"
)
_IOLOG_HEAD = re.compile(r"fio version (?P<version>\d+) iolog")
# Heads and summaries of a recording, and the line after them, by which two recordings differ.
_RECORDING = re.compile(r"^(TIME\(s\) +COMM|(?:CPU\d+|Total) \(\S+\):).*\n(.*)", re.MULTILINE)
_IOLOG_WAIT = re.compile(rf"\S+ wait (?P<us>{_NUMBER})")
_MAX_FILES, _FILE_SPACE = 2**18, 2**44  # of an iolog; offsets stay below 2**63
# Messages of the kernel, trace-cmd, blkparse, perf script, biosnoop and blktrace about full buffers.
_LOST = re.compile(
    r"^CPU:\d+ \[(?:LOST )?(?:(\d+) )?EVENTS(?: DROPPED)?\]|^Skips: [\d,]+ forward \(([\d,]+)"
    r"|PERF_RECORD_LOST lost (\d+)|events and lost (\d+) chunks|^Possibly lost (\d+) samples"
    r"|^lost (\d+) events|You have (\d+) dropped",
    re.MULTILINE | re.IGNORECASE,
)
# blkparse numbers the events of a device, per processor.
_NUMBERED = re.compile(
    rf"^ *(\d+,\d+) +(\d+) +({_NUMBER}) +{_TIME} +{_NUMBER} +([A-Z]{{1,2}}) ", re.MULTILINE
)
# The kernel's trace tells how many events its buffers had, and where overwritten buffers begin.
_IN_BUFFER = re.compile(r"^# entries-in-buffer/entries-written: (\d{1,18})/", re.MULTILINE)
_EVENT_LINE = re.compile(rf"^ *\S.{{0,100}}? \[\d+\] .{{0,20}}?{_TIME}: ", re.MULTILINE)
_BEGINS = re.compile(r"##### CPU \d+ buffer started ####")
# Actions of a blkparse output without filters: unplugging (U) is neither read nor write (-a read).
_ALL_KINDS = {"Q", "G", "U", "D", "C"}
_MAX_PASSED_OVER = 0.01  # share of missing numbers, or of a buffer's events
_MAX_BACKWARDS = 0.25  # share of events of perf, which prints them in order of time
_AGAIN_S = 0.1  # in which a device that refused a request has room again
_TOOLS = (_BLKPARSE, _PERF, _BIOSNOOP)


class _Io(NamedTuple):
    """An I/O of a trace, in seconds of the tool's clock; columns of ``TRACE`` that a tool may have."""

    device: str
    at_s: float  # issued; or done, if its issue is not in the trace
    done_s: float | None  # None if its issue or its completion is not in the trace
    offset: int
    bytes: int
    op: str
    ahead: bool | None
    thread: int | None


# Time, whether issued (D), requeued (R) or completed (C), and the I/O that the line describes.
_Event = tuple[float, str, _Io]


def parse_trace(text: str, source: str, device: str | None = None, *, began_s: float = 0.0) -> pa.Table:
    """I/Os of one device as a table of ``TRACE`` in order of time; ``began_s`` is added to the tool's clock.

    Without rows if the text is no trace. Raises FormatError, naming ``source``, for a trace of several
    devices if none is named, for a device that is not in it, and for several fio recordings in one file.
    """
    if (recordings := _recordings(text)) > 1:
        raise FormatError(f"{source}: {recordings} recordings, each with its own clock; give one of them")
    ios = list(_ios(text, source))
    device = device_of((io.device for io in ios), device, source)
    own = [io for io in ios if io.device == device]
    constants = {"arm": "", "path_s": 0.0}
    columns = {
        field.name: pa.array([getattr(io, field.name, constants.get(field.name)) for io in own], field.type)
        for field in TRACE
    }
    for name in ("at_s", "done_s"):
        columns[name] = pc.add(columns[name], began_s)
    if pc.any(columns["ahead"]).as_py():  # only one of two biosnoops tells
        columns["ahead"] = pc.fill_null(columns["ahead"], False)
    return pa.table(columns, TRACE).sort_by("at_s")


def _recordings(text: str) -> int:
    """Number of recordings with a head or a summary; copies of blkparse's or biosnoop's count once."""
    others = Counter(head for head, _ in set(_RECORDING.findall(text)))
    return max(len(_IOLOG_HEAD.findall(text)), *others.values(), 0)


def _ios(text: str, source: str) -> Iterator[_Io]:
    """I/Os of a trace, unordered; none for other text."""
    lines = (line[0].strip() for line in _LINE.finditer(text))
    if head := _IOLOG_HEAD.match(text.lstrip()):
        yield from _iolog(lines, has_times=head["version"] != "2")
        return
    issued: dict[tuple[str, int], _Io] = {}
    for seconds, action, io in _events(lines, source, has_queue=_QUEUED in text[:_MAX_LINE]):
        begun = issued.pop((io.device, io.offset), None)
        if action == "C":
            yield io if begun is None else begun._replace(done_s=seconds)
        if action == "D":
            if begun is not None and not _is_again(io, begun):  # its completion was lost
                yield begun
            issued[io.device, io.offset] = io
    yield from issued.values()


def _is_again(io: _Io, begun: _Io) -> bool:
    """Whether an issue repeats the one before, for which the device had no room.

    Few traces show the requeue: recordings of issues and completions alone do not.
    """
    return io.at_s - begun.at_s < _AGAIN_S and (io.bytes, io.op) == (begun.bytes, begun.op)


def _events(lines: Iterator[str], source: str, *, has_queue: bool) -> list[_Event]:
    """Events in order of time; a file may list one processor after another.

    Begins when all processors have events: what one has overwritten would be missing among the others'.
    Raises FormatError, naming ``source``, if perf printed times since the event before.
    """
    events, since_s, begins, is_of_perf = list[_Event](), 0.0, False, False
    for line in lines:
        begins = begins or bool(_BEGINS.match(line))
        match = next((match for tool in _TOOLS if (match := tool.match(line))), None)
        if match is None:
            continue
        if begins:
            since_s, begins = max(since_s, float(match["s"])), False
        of = match.groupdict()
        if not has_queue or of.get("queue", "-"):  # a truncated line has only the queue's time
            events += _event(of)
        is_of_perf = is_of_perf or match.re is _PERF
    times_s = np.array([seconds for seconds, *_ in events])
    backwards = np.count_nonzero(np.diff(times_s) < 0)
    if is_of_perf and backwards > _MAX_BACKWARDS * len(times_s) and np.median(times_s) < 1:
        raise FormatError(f"{source}: its times are since the event before; give it without --deltatime")
    whole = dict.fromkeys(event for event in events if event[0] >= since_s)  # each once, if lines are copied
    return sorted(whole, key=itemgetter(0))


def _event(of: dict[str, Any]) -> Iterator[_Event]:
    """A line's event; none if its place or size is invalid, as for a command to the disk."""
    size = int(of["bytes"]) if "bytes" in of else int(of["sectors"]) * _SECTOR
    if int(of["sector"]) >= _MAX_SECTOR or not 0 < size < MAX_IO_BYTES:
        return
    seconds, took_ms = float(of["s"]), of.get("took_ms")
    action = of.get("action", "complete")[0].upper().replace("I", "D")
    is_whole, is_half = took_ms is not None, "action" in of and action == "C"
    yield (
        seconds,
        action,
        _Io(
            device=sys.intern(of["device"]),
            at_s=seconds - float(took_ms or 0) / 1000,
            done_s=seconds if is_whole else None,
            offset=int(of["sector"]) * _SECTOR,
            bytes=size,
            op="write" if "W" in of["op"] else "read",
            ahead="A" in of["op"] or (None if is_whole else False),
            thread=None if is_half or not of["thread"] else int(of["thread"]),
        ),
    )


def _iolog(lines: Iterator[str], *, has_times: bool) -> Iterator[_Io]:
    """I/Os of fio's log. Files in one folder are on one device, each in an address range of its own."""
    now_us, ranges = 0, dict[str, int]()
    for line in lines:
        if not has_times and (wait := _IOLOG_WAIT.match(line)):
            now_us += int(wait["us"])
        elif (io := _IOLOG.match(line)) and 0 < int(io["bytes"]) < MAX_IO_BYTES:
            at_s = (int(io["us"] or 0) if has_times else now_us) / 1e6
            file, offset, device = io["device"], int(io["offset"]), sys.intern(io["device"])
            if not file.startswith("/dev/"):
                device = sys.intern(file.rpartition("/")[0] or ".")
                offset += ranges.setdefault(file, len(ranges) % _MAX_FILES * _FILE_SPACE)
            yield _Io(device, at_s, None, offset, int(io["bytes"]), io["op"], None, None)


def lost_events(text: str) -> int:
    """A lower bound on the events lost: those reported, and gaps in numbering."""
    said = sum(int(("".join(counts) or "1").replace(",", "")) for counts in _LOST.findall(text))
    return said + _passed_over(text) + _not_printed(text)


def _not_printed(text: str) -> int:
    """Events in the kernel's buffers that the trace has no line of; 0 if only a few."""
    count = max(map(int, _IN_BUFFER.findall(text)), default=0)
    missing = count - sum(1 for _ in _EVENT_LINE.finditer(text)) if count else 0
    return missing if missing > _MAX_PASSED_OVER * count else 0


def _passed_over(text: str) -> int:
    """Missing numbers if blkparse printed events of all kinds; 0 if only a few."""
    numbers: dict[str, dict[str, set[int]]] = {}
    kinds: dict[str, set[str]] = {}
    for device, processor, number, kind in map(re.Match.groups, _NUMBERED.finditer(text)):
        numbers.setdefault(device, {}).setdefault(processor, set()).add(int(number))
        kinds.setdefault(device, set()).add(kind)
    if {"A"} in kinds.values():  # a partition below LVM shares its disk's numbers
        return 0
    expected = missing = 0
    for by_processor in numbers.values():
        apart = list(by_processor.values())
        count = sum(map(len, apart))
        # Numbered per device or per processor: if both are possible, the one with fewer gaps.
        ways = [apart, [set().union(*apart)]]
        spans = [sum(map(_span, way)) for way in ways if sum(map(len, way)) == count]
        expected += min(spans)
        missing += min(spans) - count
    has_all_kinds = any(own >= _ALL_KINDS for own in kinds.values())
    return missing if has_all_kinds and missing > _MAX_PASSED_OVER * expected else 0


def _span(numbers: set[int]) -> int:
    """How many numbers there are from the first to the last; they begin anew after 32 bits."""
    ordered = sorted(numbers)
    outside = max(after - before for before, after in pairwise([*ordered, ordered[0] + 2**32]))
    return 2**32 - outside + 1


def lacks(ios: pa.Table) -> list[str]:
    """What a trace does not show, and what cannot be derived therefore; a sentence each."""
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
    """How a trace's I/Os use the device; None for what the trace does not show."""

    ios: int
    bytes: int
    median_bytes: float
    continuing: float  # share that begin where a recent I/O of the same kind ended
    ahead: float | None  # share that is readahead
    in_flight: float | None  # when an I/O is issued, including it
    median_s: float | None
    p99_s: float | None


_RECENT = 64  # I/Os to search for the one that an I/O continues


def access_of(ios: pa.Table) -> Access:
    """Access pattern of I/Os of one kind on one device, at least one, in order of time."""
    offset, size = ios["offset"].to_numpy(), ios["bytes"].to_numpy()
    last_end: dict[int, int] = {}  # newest I/O that ended at each place
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
