"""Requests of a disk from their events, which come in pieces."""

import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esrally_ebs.errors import SetupError
from esrally_ebs.machine.disks import RequestQueue
from esrally_ebs.machine.tracefs import REQUEST_EVENTS, EventFormat, TracedEvents
from esrally_ebs.telemetry import block_trace
from esrally_ebs.telemetry.block_trace import IoMatcher, queues_of

ISSUE, COMPLETE = REQUEST_EVENTS
FIELDS = {"common_type": (0, 2), "common_pid": (4, 4), "dev": (8, 4), "sector": (16, 8), "rwbs": (34, 10)}
FORMATS = {ISSUE: EventFormat(7, {**FIELDS, "bytes": (28, 4)}), COMPLETE: EventFormat(8, FIELDS)}
DATA = 48
DEV = 259 << 20
DISK = RequestQueue(
    name="nvme1n1", number="259:0", first_sector=0, end_sector=2**30, is_part=False, is_mount=True
)


@dataclass
class Seen:
    """An event as the kernel writes it."""

    at_ns: int
    event: str
    sector: int
    rwbs: str = "R"
    dev: int = DEV
    bytes: int = 4096
    thread: int = 697
    before: str = ""  # what was in the buffer there, which the kernel does not clear

    def data(self) -> bytes:
        fields = {"common_type": FORMATS[self.event].id, "common_pid": self.thread, "dev": self.dev}
        fields |= {"sector": self.sector, **({"bytes": self.bytes} if self.event == ISSUE else {})}
        data = bytearray(DATA)
        for name, value in fields.items():
            offset, size = FORMATS[self.event].fields[name]
            data[offset : offset + size] = value.to_bytes(size, "little")
        rwbs = f"{self.rwbs}\0{self.before}".encode()
        data[34 : 34 + len(rwbs)] = rwbs
        return bytes(data)


def events(*traced: Seen) -> TracedEvents:
    pages = np.frombuffer(b"".join(one.data() for one in traced), np.uint8)
    return TracedEvents(
        np.array([one.at_ns for one in traced], np.int64), np.arange(len(traced)) * DATA, pages
    )


def matcher(*queues: RequestQueue) -> IoMatcher:
    return IoMatcher(FORMATS, queues or (DISK,), epoch_s=1e9)


def test_a_request_is_an_io_with_its_thread_and_what_was_read_ahead() -> None:
    ios = matcher().add(
        events(
            Seen(2_000_000, ISSUE, 8, "RA", bytes=16_384),
            Seen(1_000_000, ISSUE, 800, "FWS", thread=12),
            Seen(2_400_000, COMPLETE, 8, "RA", thread=0),
            Seen(3_000_000, COMPLETE, 800, "FWS", thread=0),
            Seen(3_000_001, ISSUE, 0, "FF"),
            Seen(3_000_002, ISSUE, 16, "DS"),
        ),
        "a",
    )
    rows = ios.to_pylist()
    assert [(row["op"], row["ahead"], row["offset"], row["bytes"], row["thread"]) for row in rows] == [
        ("write", False, 409_600, 4096, 12),
        ("read", True, 4096, 16_384, 697),
    ]
    assert rows[1]["at_s"] == pytest.approx(1e9 + 0.002)
    assert rows[1]["done_s"] - rows[1]["at_s"] == pytest.approx(400e-6, abs=1e-6)
    assert {row["device"] for row in rows} == {"nvme1n1"}
    assert {row["queue_s"] for row in rows} == {None}


def test_what_the_buffer_had_behind_the_letters_of_a_request_is_none_of_them() -> None:
    """Some reads seemed to be readahead, by whatever the page was used for before."""
    ios = matcher().add(events(Seen(1, ISSUE, 8, before="AAA"), Seen(2, COMPLETE, 8)), "a")
    assert ios["ahead"].to_pylist() == [False]


def test_places_are_those_of_the_partition() -> None:
    part = RequestQueue(
        name="nvme1n1", number="259:0", first_sector=2048, end_sector=9999, is_part=True, is_mount=True
    )
    ios = matcher(part).add(events(Seen(1, ISSUE, 2056), Seen(2, COMPLETE, 2056)), "a")
    assert ios["offset"].to_pylist() == [8 * 512]


@pytest.mark.parametrize("first", [2048, 10_000])
def test_places_on_two_partitions_of_one_disk_do_not_mix(first: int) -> None:
    """As below LVM: those on one were told from where the other begins, and were less than nothing."""
    of = matcher(*(replace(DISK, is_part=True, first_sector=one) for one in (first, 12_048 - first)))
    ios = of.add(
        events(
            Seen(1, ISSUE, 2056), Seen(2, ISSUE, 10_008), Seen(3, COMPLETE, 2056), Seen(4, COMPLETE, 10_008)
        ),
        "a",
    )
    assert ios["offset"].to_pylist() == [8 * 512, 7960 * 512]


def test_two_disks_of_an_array_do_not_mix() -> None:
    other = RequestQueue(
        name="nvme2n1", number="259:1", first_sector=0, end_sector=9999, is_part=False, is_mount=False
    )
    ios = matcher(other, DISK).add(
        events(
            Seen(1, ISSUE, 8),
            Seen(2, ISSUE, 8, dev=DEV + 1),
            Seen(3, COMPLETE, 8, dev=DEV + 1),
            Seen(9, COMPLETE, 8),
        ),
        "a",
    )
    assert ios["device"].to_pylist() == ["nvme1n1", "nvme2n1"]
    assert [round(1e9 * (row["done_s"] - row["at_s"])) >= 0 for row in ios.to_pylist()] == [True, True]


requests = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 10**6), st.integers(1, 10**6)), min_size=1, max_size=30
)


@given(requests, st.data())
def test_every_request_is_whole_however_its_events_come(
    drawn: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    """Also when a completion is read before its issue, and when requests of one sector follow one another."""
    traced, now_ns = [], 0
    for sector, pause_ns, took_ns in drawn:
        now_ns += pause_ns + 1
        traced += [Seen(now_ns, ISSUE, sector), Seen(now_ns + took_ns, COMPLETE, sector)]
        now_ns += took_ns + 1
    order = data.draw(st.permutations(traced))
    cut = data.draw(st.integers(0, len(order)))
    one = matcher()
    tables = [one.add(events(*part), "a") for part in (order[:cut], order[cut:])]
    assert sum(table.num_rows for table in tables) + 2 * one.in_flight >= len(drawn)
    assert one.in_flight == 0 or cut not in (0, len(order))
    if cut in (0, len(order)):
        took = sorted(row["done_s"] - row["at_s"] for table in tables for row in table.to_pylist())
        assert took == pytest.approx(sorted(one[2] / 1e9 for one in drawn), abs=3e-7)


def test_requests_of_one_sector_at_a_time_are_both_kept() -> None:
    one = matcher()
    ios = one.add(
        events(Seen(1, ISSUE, 8), Seen(2, ISSUE, 8), Seen(3, COMPLETE, 8), Seen(4, COMPLETE, 8)), "a"
    )
    assert (ios.num_rows, one.in_flight) == (2, 0)


def test_a_mount_without_a_disk_is_refused_with_its_kind() -> None:
    with pytest.raises(SetupError, match=r"/proc: proc on .* volumes list"):
        queues_of(Path("/proc"))


def test_a_place_that_is_not_there_is_refused() -> None:
    with pytest.raises(SetupError, match="no such place"):
        queues_of(Path("/nowhere/at/all"))


def test_a_process_that_is_hardly_the_node_is_watched_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container the node is process 7, or 1, which outside of it are other ones."""
    monkeypatch.setattr(block_trace, "has_thread_events", lambda _: True)
    place = Path("/dev/shm")
    with (
        subprocess.Popen(["sleep", "60"], cwd="/") as other,
        subprocess.Popen(["sleep", "60"], cwd=place) as node,
    ):
        try:
            threads, note = block_trace.threads_at(place, other.pid)
            assert threads == [other.pid]
            assert f"process {other.pid} uses nothing of {place}" in note
            assert block_trace.threads_at(place, node.pid) == ([node.pid], "")
        finally:
            other.kill()
            node.kill()
