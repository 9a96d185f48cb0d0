"""Which I/O a thread slept for, from the scheduler's events."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from esrally_ebs.machine.tracefs import THREAD_EVENTS, EventFormat, TracedEvents
from esrally_ebs.store.encoding import TRACE
from esrally_ebs.telemetry.block_trace import IoWaits

SWITCH, WAKING, FORK = THREAD_EVENTS
FORMATS = {
    SWITCH: EventFormat(3, {"common_type": (0, 2), "prev_pid": (8, 4)}),
    WAKING: EventFormat(4, {"common_type": (0, 2), "pid": (4, 4)}),
    FORK: EventFormat(5, {"common_type": (0, 2), "child_pid": (8, 4)}),
}
DATA = 12
WATCHED = (1, 2)


@dataclass
class Seen:
    """An event as the kernel writes it."""

    at_us: int
    event: str
    thread: int

    def data(self) -> bytes:
        data = bytearray(DATA)
        ((offset, size),) = (
            place for name, place in FORMATS[self.event].fields.items() if name != "common_type"
        )
        data[0:2] = FORMATS[self.event].id.to_bytes(2, "little")
        data[offset : offset + size] = self.thread.to_bytes(size, "little")
        return bytes(data)


def events(*traced: Seen) -> TracedEvents:
    pages = np.frombuffer(b"".join(one.data() for one in traced), np.uint8)
    at_ns = np.array([one.at_us * 1000 for one in traced], np.int64)
    return TracedEvents(at_ns, np.arange(len(traced)) * DATA, pages)


def ios(*done_us: int) -> pa.Table:
    plain = {"arm": "a", "device": "d", "at_s": 1e3, "offset": 0, "bytes": 4096, "op": "read", "path_s": 0.0}
    return pa.Table.from_pylist([{**plain, "done_s": 1e3 + us / 1e6} for us in done_us], schema=TRACE)


def waits_of(table: pa.Table) -> list[tuple[int | None, int | None, int | None]]:
    columns = [table["waiter"].to_pylist()]
    for name in ("slept_s", "woken_s"):
        columns.append([None if s is None else round(1e6 * (s - 1e3)) for s in table[name].to_pylist()])
    return list(zip(*columns, strict=True))


def test_the_io_that_was_done_right_before_a_thread_was_woken_is_what_it_slept_for() -> None:
    waits = IoWaits(FORMATS, WATCHED, epoch_s=1e3)
    waits.add(
        events(
            Seen(900, WAKING, 1),  # of the other processor's buffer, so read first
            Seen(2000, WAKING, 2),
            Seen(100, SWITCH, 1),
            Seen(300, SWITCH, 2),  # woken by no I/O: the last one was done long before
            Seen(950, WAKING, 1),  # was awake
        )
    )
    made = waits.put_into(ios(200, 895, 880))
    assert waits_of(made) == [(None, None, None), (1, 100, 900), (None, None, None)]
    assert made.schema == TRACE


def test_a_thread_that_sleeps_still_is_remembered() -> None:
    waits = IoWaits(FORMATS, WATCHED, epoch_s=1e3)
    waits.add(events(Seen(100, SWITCH, 1)))
    waits.add(events())
    waits.add(events(Seen(500, WAKING, 1)))
    assert waits.sleeps == 1
    assert waits_of(waits.put_into(ios(490))) == [(1, 100, 500)]
    assert waits.sleeps == 0
    assert waits_of(waits.put_into(ios(490))) == [(None, None, None)]


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_threads_that_sleep_for_one_io_the_first_is_noted(order: int) -> None:
    waits = IoWaits(FORMATS, WATCHED, epoch_s=1e3)
    both = [Seen(100, SWITCH, 1), Seen(110, SWITCH, 2), Seen(500, WAKING, 1), Seen(501, WAKING, 2)]
    waits.add(events(*both[::order]))
    assert waits_of(waits.put_into(ios(490))) == [(1, 100, 500)]


def test_without_ios_there_is_nothing_to_wait_for() -> None:
    waits = IoWaits(FORMATS, WATCHED, epoch_s=1e3)
    waits.add(events(Seen(100, SWITCH, 1), Seen(500, WAKING, 1)))
    assert waits.put_into(ios()).num_rows == 0


def test_threads_that_nobody_watches_wait_for_nothing() -> None:
    """The kernel tells of those, too, that a watched thread follows on a processor, or wakes."""
    waits = IoWaits(FORMATS, WATCHED, epoch_s=1e3)
    waits.add(events(Seen(100, SWITCH, 7), Seen(900, WAKING, 7)))
    assert waits_of(waits.put_into(ios(895))) == [(None, None, None)]


def test_a_thread_that_a_watched_one_begins_is_watched_however_short_it_lives() -> None:
    """Those that ended between two readings were taken for strangers, and what they read for read ahead."""
    waits = IoWaits(FORMATS, WATCHED, epoch_s=1e3)
    waits.add(events(Seen(150, SWITCH, 3), Seen(900, WAKING, 3), Seen(140, FORK, 3)))
    waits.add(events(Seen(1000, SWITCH, 3), Seen(1200, WAKING, 3)))
    assert waits_of(waits.put_into(ios(895, 1190))) == [(3, 150, 900), (3, 1000, 1200)]
