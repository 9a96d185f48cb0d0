"""Pages of the kernel's trace buffer to columns of its events; pure.

A page has its time, how many bytes of it are used, and then events: each has a head of four bytes (5 bits of
type or length, 27 of the nanoseconds since the event before) and its data. Where an event begins follows from
the one before it, but pages do not depend on one another: the first events of all pages are taken at once,
then the second ones, and so on.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from esrally_ebs.errors import FormatError

Column = npt.NDArray[np.int64]
_HEAD_WORDS = 4  # of a page, 32 bits each: its time, then its length and flags
_USED = (1 << 20) - 1  # of the length; what is above says that events were lost
_PADDING, _TIME_EXTEND, _TIME_STAMP = 29, 30, 31
_DELTA_BITS, _TYPE_BITS = 27, 5
_FIELD = re.compile(r"field:(?P<name>[^;]+);\s*offset:(?P<offset>\d+);\s*size:(?P<size>\d+);")


@dataclass(frozen=True, slots=True)
class EventFormat:
    """One kind of event, as ``events/.../format`` describes it."""

    id: int
    fields: Mapping[str, tuple[int, int]]  # offset and size in bytes, by name


def parse_format(text: str) -> EventFormat:
    """Raises FormatError for text of another form."""
    number = re.search(r"^ID: (\d+)$", text, re.MULTILINE)
    fields = {
        match["name"].split("[")[0].split()[-1]: (int(match["offset"]), int(match["size"]))
        for match in _FIELD.finditer(text)
    }
    if number is None or not fields:
        raise FormatError("a tracepoint's format is not as this release knows it; report it with 'uname -r'")
    return EventFormat(int(number[1]), fields)


@dataclass(frozen=True, slots=True)
class TracedEvents:
    """Events of some pages, in the order of no clock: what ``columns`` gives is in the same order."""

    at_ns: Column  # by the clock of the buffer
    _data: Column  # byte at which each one's data begin
    _pages: npt.NDArray[np.uint8]  # all of them, one after the other

    def number(self, offset: int, size: int) -> Column:
        """The unsigned number at this place of each event."""
        value = np.zeros(len(self._data), np.int64)
        for byte in range(size):
            value |= self._pages[self._data + offset + byte].astype(np.int64) << (8 * byte)
        return value

    def of(self, kind: EventFormat) -> "TracedEvents":
        """Those of one kind."""
        mine = self.number(*kind.fields["common_type"]) == kind.id
        return TracedEvents(self.at_ns[mine], self._data[mine], self._pages)


def events_of(pages: bytes, page_bytes: int) -> TracedEvents:
    """The events of whole pages."""
    words = np.frombuffer(pages, "<u4").reshape(-1, page_bytes // 4)
    rows = np.arange(len(words))
    now_ns = words[:, 0].astype(np.int64) | words[:, 1].astype(np.int64) << 32
    end = np.minimum(_HEAD_WORDS + (words[:, 2] & _USED).astype(np.int64) // 4, words.shape[1])
    place = np.full(len(words), _HEAD_WORDS)
    times: list[Column] = []
    data: list[Column] = []
    while len(rows := rows[place[rows] + 1 < end[rows]]):
        head, next_word = words[rows, place[rows]], words[rows, place[rows] + 1].astype(np.int64)
        kind = (head & ((1 << _TYPE_BITS) - 1)).astype(np.int64)
        delta_ns = (head >> _TYPE_BITS).astype(np.int64)
        long_ns = delta_ns + (next_word << _DELTA_BITS)
        now_ns[rows] += np.where(kind == _TIME_EXTEND, long_ns, np.where(kind >= _PADDING, 0, delta_ns))
        now_ns[rows] = np.where(kind == _TIME_STAMP, long_ns, now_ns[rows])
        is_event = kind < _PADDING
        begin = place[rows] + np.where(kind == 0, 2, 1)
        times.append(now_ns[rows][is_event])
        data.append((rows * words.shape[1] + begin)[is_event] * 4)
        # the length is in the head, or, of long events and padding, in the word after it
        by_word = np.maximum(next_word // 4, 1)
        length = np.where((kind == 0) | (kind == _PADDING), by_word, np.where(is_event, kind, 1))
        place[rows] += np.where((kind == _PADDING) & (delta_ns == 0), words.shape[1], 1 + length)
    none = np.zeros(0, np.int64)
    whole = np.frombuffer(pages, np.uint8)
    return TracedEvents(np.concatenate([none, *times]), np.concatenate([none, *data]), whole)
