"""The kernel's pages of events, written here by the rules that the kernel writes them by, and read again."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esrally_ebs.errors import FormatError
from esrally_ebs.machine.tracefs import events_of, parse_format

PAGE = 4096
FORMAT = """name: block_rq_issue
ID: 2104
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;
\tfield:char rwbs[10];\toffset:34;\tsize:10;\tsigned:0;
"""
Event = tuple[int, bytes]  # nanoseconds since the event before, and data


def head(kind: int, delta_ns: int) -> bytes:
    return struct.pack("<I", kind | delta_ns << 5)


def event(delta_ns: int, data: bytes) -> bytes:
    """An event; a late one has a time extend before it, a long one its length in a word of its own."""
    data += b"\0" * (-len(data) % 4)
    late = head(30, delta_ns & (1 << 27) - 1) + struct.pack("<I", delta_ns >> 27) if delta_ns >> 27 else b""
    own = 0 if late else delta_ns
    if len(data) <= 28 * 4:
        return late + head(len(data) // 4, own) + data
    return late + head(0, own) + struct.pack("<I", len(data) + 4) + data


def page(at_ns: int, events: list[Event], flags: int = 0) -> bytes:
    body = b"".join(event(*one) for one in events)
    return (struct.pack("<QQ", at_ns, len(body) | flags) + body).ljust(PAGE, b"\0")


datas = st.one_of(st.binary(min_size=8, max_size=60), st.binary(min_size=120, max_size=300))
pages = st.lists(
    st.tuples(
        st.integers(0, 2**60),
        st.lists(st.tuples(st.one_of(st.integers(0, 10**6), st.integers(0, 10**10)), datas), max_size=10),
    ),
    max_size=5,
)


@given(pages)
def test_what_was_written_is_read(written: list[tuple[int, list[Event]]]) -> None:
    events = events_of(b"".join(page(at_ns, own) for at_ns, own in written), PAGE)
    expected = []
    for at_ns, own in written:
        for delta_ns, data in own:
            at_ns += delta_ns
            expected.append((at_ns, *struct.unpack("<Q", data[:8])))
    first = events.number(0, 8).astype(np.uint64)
    assert sorted(zip(events.at_ns.tolist(), first.tolist(), strict=True)) == sorted(expected)


def test_lost_events_are_flags_of_a_page_and_not_its_length() -> None:
    assert events_of(page(5, [(1, b"12345678")], flags=3 << 30), PAGE).at_ns.tolist() == [6]


def test_a_discarded_event_is_passed_over_and_a_time_stamp_is_absolute() -> None:
    body = head(29, 1) + struct.pack("<I", 12) + b"\0" * 8  # length is of its data and this word
    body += head(31, 5) + struct.pack("<I", 2) + event(7, b"12345678")
    whole = (struct.pack("<QQ", 100, len(body)) + body).ljust(PAGE, b"\0")
    assert events_of(whole, PAGE).at_ns.tolist() == [(2 << 27) + 5 + 7]


@given(st.lists(st.binary(min_size=PAGE, max_size=PAGE), max_size=3))
def test_any_page_is_read_to_an_end(noise: list[bytes]) -> None:
    events = events_of(b"".join(noise), PAGE)
    assert len(events.at_ns) <= len(noise) * PAGE // 4


def test_no_pages_are_no_events() -> None:
    assert len(events_of(b"", PAGE).at_ns) == 0


def test_a_format_is_read() -> None:
    kind = parse_format(FORMAT)
    assert kind.id == 2104
    assert kind.fields["sector"] == (16, 8)
    assert kind.fields["rwbs"] == (34, 10)


def test_any_other_format_is_refused() -> None:
    with pytest.raises(FormatError, match="uname -r"):
        parse_format("ID: 5\n")
