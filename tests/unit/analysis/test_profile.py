"""What a query did to its volume: from counters before and after each request to I/O per query."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esrally_ebs.analysis.profile import Profile, pooled, profiles_of, read_windows
from esrally_ebs.model import Event

KIB = 1024
WRAP_S = 2**32 / 1000  # the kernel prints milliseconds of 32 bits
ZERO = dict.fromkeys(
    (
        *(f"device.{name}" for name in ("reads", "read_bytes", "read_s", "writes", "written_bytes")),
        *("device.write_s", "device.weighted_s", "emulator.waited_s.iops", "emulator.waited_s.throughput"),
    ),
    0.0,
)


def event(
    start: float,
    end: float,
    begin: Mapping[str, float],
    grown: Mapping[str, float],
    /,
    **changes: Any,  # noqa: ANN401
) -> Event:
    """An observed request during which counters grew so much."""
    arm = changes.pop("arm", "gp2")
    fields: dict[str, Any] = {
        "task": "big_range",
        "round": 1,
        "requests": 1,
        "started_s": start,
        "begin": dict(begin),
        "end": {name: value + grown.get(name, 0.0) for name, value in begin.items()},
    }
    return Event(at_s=end, kind="io", arm=arm, fields={**fields, **changes})


# 4 reads of 12 KiB that took 1 ms in all, 0.4 ms of which in the throughput limiter
READS = {
    "device.reads": 4.0,
    "device.read_bytes": 4 * 12 * KIB,
    "device.read_s": 0.001,
    "device.weighted_s": 0.001,
    "emulator.waited_s.throughput": 0.0004,
}


def only(*events: Event) -> Profile:
    windows, broken = read_windows(events)
    assert broken == 0
    ((_, by_round),) = profiles_of(windows).items()
    return pooled(by_round.values())


def test_io_per_query_comes_from_the_growth_of_counters_within_requests_alone() -> None:
    # between the two requests the device reads 1000 times for something else
    profile = only(
        event(10.0, 10.010, ZERO, READS),
        event(11.0, 11.010, {**ZERO, "device.reads": 1004.0}, READS, round=2),
    )

    assert profile.requests == 2
    assert profile.reads == 4
    assert profile.io_bytes == 12 * KIB
    assert profile.read_bytes == 48 * KIB
    assert profile.await_s == pytest.approx(0.001 / 4)
    # 1 ms of I/O in flight within each 10 ms
    assert profile.depth == pytest.approx(0.1)
    assert profile.held_back == pytest.approx({"iops": 0.0, "throughput": 0.4})


def test_what_reached_over_a_second_boundary_belongs_to_its_request_whole() -> None:
    profile = only(event(10.995, 11.005, ZERO, READS))

    assert profile.reads == 4


def test_requests_of_several_clients_that_overlap_are_counted_once() -> None:
    # Two clients: from 10.0 to 10.4 and from 10.2 to 10.6; the device reads once every 0.1 s.
    def at(reads: float) -> dict[str, float]:
        return {**ZERO, "device.reads": reads}

    profile = only(
        event(10.0, 10.4, at(100), {"device.reads": 4.0}), event(10.2, 10.6, at(102), {"device.reads": 4.0})
    )

    assert profile.requests == 2
    assert profile.reads == 6 / 2
    assert profile.seconds == pytest.approx(0.6)


def test_a_task_that_reads_nothing_has_no_size_and_no_await() -> None:
    profile = only(event(10.0, 10.01, ZERO, {}))

    assert (profile.reads, profile.io_bytes, profile.await_s) == (0.0, None, None)
    assert profile.held_back == {}


def test_credits_that_were_spent_are_net_of_what_flowed_back() -> None:
    begin = {**ZERO, "emulator.credits": 5_000.0}

    assert only(event(10.0, 10.01, begin, {"emulator.credits": -9.0})).credits_spent == 9
    assert only(event(10.0, 10.01, begin, {"emulator.credits": 2.0})).credits_spent == -2


def test_the_exceeded_counters_of_a_real_volume_are_shares_of_the_requests_time() -> None:
    begin = {**ZERO, "ebs.exceeded_s.volume_throughput": 7.0}

    profile = only(event(10.0, 10.1, begin, {"ebs.exceeded_s.volume_throughput": 0.031}))

    assert profile.held_back["volume_throughput"] == pytest.approx(0.31)


def test_a_time_that_wrapped_goes_on_and_a_counter_that_fell_takes_its_request_out() -> None:
    wrapping = {**ZERO, "device.read_s": WRAP_S - 0.0004}
    grown = event(10.0, 10.01, wrapping, {**READS, "device.read_s": 0.001 - WRAP_S})
    assert only(grown).await_s == pytest.approx(0.001 / 4)

    again = event(12.0, 12.01, {**ZERO, "device.reads": 900.0}, {"device.reads": -890.0})
    windows, broken = read_windows([grown, again])
    assert (len(windows), broken) == (1, 1)

    # a time that fell but cannot have wrapped: only 10 ms passed
    reset = event(12.0, 12.01, {**ZERO, "device.read_s": 500.0}, {"device.read_s": -499.0})
    assert read_windows([reset]) == ((), 1)


def test_a_counter_that_one_request_lacks_is_unknown_for_all() -> None:
    without = {name: value for name, value in ZERO.items() if not name.startswith("emulator")}

    profile = only(event(10.0, 10.01, ZERO, READS), event(11.0, 11.01, without, READS))

    assert profile.waited_s == {}
    assert profile.reads == 4


def test_without_any_counter_nothing_is_known_and_nothing_breaks() -> None:
    profile = only(event(10.0, 10.01, {}, {}))

    assert profile.reads is None
    assert profile.await_s is None
    assert profile.depth is None
    assert profile.credits_spent is None
    assert profile.held_back == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"requests": 0},
        {"requests": None},
        {"round": "one"},
        {"started_s": 11.0},  # ends before it starts
        {"begin": None},
        {"begin": {"device.reads": "many"}},
        {"begin": {"emulator.credits": float("nan")}},
        {"arm": None},
    ],
)
def test_an_event_that_is_broken_is_counted_and_left_out(changes: dict[str, Any]) -> None:
    assert read_windows([event(10.0, 10.01, ZERO, READS, **changes)]) == ((), 1)


def test_a_session_without_observations_has_no_profiles() -> None:
    assert read_windows([Event(at_s=1.0, kind="drop", arm="gp2")]) == ((), 0)
    assert profiles_of(()) == {}


# start of a request, its length, and how many reads per second the device makes all the time
spans = st.lists(st.tuples(st.floats(0, 50), st.floats(0.01, 20)), min_size=1, max_size=12)


@given(spans, st.floats(0, 1000))
def test_joined_windows_never_count_more_than_the_device_did_while_any_request_ran(
    requests: list[tuple[float, float]], rate: float
) -> None:
    events = [
        event(start, start + length, {"device.reads": rate * start}, {"device.reads": rate * length})
        for start, length in requests
    ]
    windows, broken = read_windows(events)

    covered, last = 0.0, float("-inf")
    for start, length in sorted(requests):
        covered += max(0.0, start + length - max(last, start))
        last = max(last, start + length)
    assert broken == 0
    assert sum(window.requests for window in windows) == len(requests)
    assert sum(window.grown["device.reads"] for window in windows) == pytest.approx(rate * covered, abs=1e-6)
