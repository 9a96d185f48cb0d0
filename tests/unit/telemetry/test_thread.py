"""The thread that samples beside the race: its beat, its end, and how its owner learns that it died."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from esrally_ebs.errors import SetupError
from esrally_ebs.machine.processes import SYSTEM_CLOCK
from esrally_ebs.model import Kind, TelemetryPoint, Volume, VolumeSpec
from esrally_ebs.telemetry.sampler import CUT, Sampler, SamplerThread

NOWHERE = Volume(
    spec=VolumeSpec(name="gp2", type="gp2", size_bytes=1 << 30), kind=Kind.EMULATED, mount=Path("/mnt")
)


def silent(control: Path) -> object:
    raise SetupError(f"{control}: the volume's daemon does not answer")


@pytest.fixture
def sampled() -> Iterator[Callable[[Callable[[list[TelemetryPoint]], None]], SamplerThread]]:
    threads: list[SamplerThread] = []

    def start(sink: Callable[[list[TelemetryPoint]], None]) -> SamplerThread:
        sampler = Sampler([(NOWHERE, None)], read_state=silent)
        threads.append(SamplerThread(sampler.sample, sink, interval_s=0.02))
        threads[-1].start()
        return threads[-1]

    yield start
    for thread in threads:
        thread.stop()


def test_the_thread_samples_on_its_beat_until_it_is_stopped(
    sampled: Callable[[Callable[[list[TelemetryPoint]], None]], SamplerThread],
) -> None:
    rows: list[list[TelemetryPoint]] = []
    third = threading.Event()

    def sink(points: list[TelemetryPoint]) -> None:
        rows.append(points)
        if len(rows) == 3:
            third.set()

    thread = sampled(sink)
    assert third.wait(5)
    thread.stop()
    taken = len(rows)
    time.sleep(0.1)  # five beats

    assert len(rows) == taken
    assert rows[0][0].metric == CUT
    assert thread.error is None


def test_a_sink_that_fails_is_tried_again_and_remembered(
    sampled: Callable[[Callable[[list[TelemetryPoint]], None]], SamplerThread],
) -> None:
    calls: list[int] = []
    third = threading.Event()

    def sink(points: list[TelemetryPoint]) -> None:
        calls.append(len(points))
        if len(calls) == 1:
            raise SetupError("telemetry: disk full")
        if len(calls) == 3:
            third.set()

    thread = sampled(sink)

    assert third.wait(5)
    assert str(thread.error) == "telemetry: disk full"


@pytest.mark.skipif(os.getpriority(os.PRIO_PROCESS, 0) > 9, reason="these tests are as nice already")
def test_the_thread_gives_way_to_everybody_else() -> None:
    niceness: list[int] = []

    def sink(points: list[TelemetryPoint]) -> None:
        niceness.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    before = os.getpriority(os.PRIO_PROCESS, 0)
    thread = SamplerThread(Sampler([], read_state=silent).sample, sink, interval_s=60.0)
    thread.start()
    thread.stop()

    assert set(niceness) == {10}
    assert os.getpriority(os.PRIO_PROCESS, 0) == before  # and none of its process besides


def test_stopping_delivers_the_last_rows_without_the_next_beat_and_is_no_error() -> None:
    rows: list[list[TelemetryPoint]] = []
    thread = SamplerThread(Sampler([(NOWHERE, None)], read_state=silent).sample, rows.append, interval_s=60.0)
    thread.start()
    begin = time.monotonic()
    thread.stop()
    thread.stop()

    assert time.monotonic() - begin < 30.0
    assert (len(rows), thread.error) == (1, None)


def test_a_thread_that_was_never_started_can_be_stopped() -> None:
    SamplerThread(Sampler([], read_state=silent).sample, lambda points: None).stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_died_by_itself_is_an_error_when_it_is_stopped() -> None:
    def sink(points: list[TelemetryPoint]) -> None:
        raise SystemExit  # ends a thread without a word

    thread = SamplerThread(Sampler([], read_state=silent).sample, sink)
    thread.start()
    SYSTEM_CLOCK.wait_until(lambda: not thread.is_alive, limit_s=5, poll_s=0.001)
    thread.stop()

    assert str(thread.error) == "telemetry: its thread ended before it was stopped"
