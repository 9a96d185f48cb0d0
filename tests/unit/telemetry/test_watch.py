"""Which seconds become events: limiters that begin and end to hold an arm back, credits that run out."""

import itertools
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esrally_ebs.model import Event, TelemetryPoint
from esrally_ebs.telemetry.sampler import Watch

WAITED = "emulator.waited_s.throughput"


def events_of(
    metric: str, values: list[float], *, capacities: Mapping[str, float] = {"iops": 3000.0}
) -> list[Event]:
    watch = Watch()
    events = []
    for second, value in enumerate(values):
        state = {metric: value, **{f"emulator.capacities.{name}": full for name, full in capacities.items()}}
        points = [
            TelemetryPoint(arm="gp2", device="", at_s=100.0 + second, metric=name, value=number, unit="")
            for name, number in state.items()
        ]
        events += watch.look(points)
    return events


def test_a_limiter_that_holds_back_for_two_seconds_begins_once_and_ends_with_what_it_cost() -> None:
    # waits grow between second 1 and 2 (by 0.2 s) and between 2 and 3 (by 0.3 s), and rest then
    begin, end = events_of(WAITED, [5.0, 5.0, 5.2, 5.5, 5.5, 5.5])

    assert (begin.kind, begin.arm, begin.at_s, begin.fields) == (
        "limiter-begin",
        "gp2",
        101.0,
        {"limit": "throughput"},
    )
    assert (end.kind, end.at_s) == ("limiter-end", 103.0)
    assert end.fields == {"limit": "throughput", "seconds": 2.0, "waited_s": pytest.approx(0.5)}


def test_the_exceeded_counters_of_a_real_volume_are_watched_alike() -> None:
    (begin,) = events_of("ebs.exceeded_s.volume_iops", [0.0, 0.4])

    assert begin.fields == {"limit": "volume_iops"}


@pytest.mark.parametrize(
    "values",
    [
        [0.0, 0.005, 0.010, 0.015],  # half a per cent of the time is nothing to speak of
        [5.0],  # one value has no growth
        [5.0, 0.0, 0.0],  # the volume was attached again
    ],
)
def test_nothing_is_said_of_what_does_not_hold_back(values: list[float]) -> None:
    assert events_of(WAITED, values) == []


@pytest.mark.parametrize(
    "capacities",
    [
        {"iops": 3000.0, "throughput": 100.0, "instance-iops": 9000.0},  # gp2
        {"throughput": 3000.0, "instance-throughput": 9000.0},  # st1, sc1
        {"read-iops": 100.0, "client-throughput": 9000.0, "throughput": 3000.0},  # EFS
        {"1-iops": 1500.0, "1-throughput": 100.0, "2-iops": 1500.0, "2-throughput": 100.0},  # striped
    ],
)
def test_credits_run_out_once_and_are_back_with_enough_for_a_second_of_burst(
    capacities: dict[str, float],
) -> None:
    values = [2000.0, 0.0, -10.0, 500.0, 3000.0, 3001.0, 9000.0]
    exhausted, recovered = events_of("emulator.credits", values, capacities=capacities)

    assert (exhausted.kind, exhausted.at_s) == ("credits-exhausted", 101.0)
    assert (recovered.kind, recovered.at_s) == ("credits-recovered", 105.0)
    assert recovered.fields == {"credits": 3001.0, "seconds": 4.0}


@given(st.lists(st.floats(0, 10), max_size=30))
def test_begins_and_ends_take_turns_whatever_the_waits(growth: list[float]) -> None:
    kinds = [event.kind for event in events_of(WAITED, list(itertools.accumulate(growth)))]

    assert kinds == (["limiter-begin", "limiter-end"] * len(kinds))[: len(kinds)]
