"""The snapshot of a volume's counters around a request: what is in it, and that nothing breaks it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from esrally_ebs.errors import SetupError
from esrally_ebs.machine.procfs import ProcessorCounters
from esrally_ebs.model import Kind, Volume, VolumeSpec
from esrally_ebs.telemetry.observation import snapshot

# 300 reads of 2400 sectors of 512 bytes in 600 ms, 20 writes of 320 in 40 ms, 4 in flight, 6000 ms weighted
DISKSTATS = "7 3 loop3 300 5 2400 600 20 1 320 40 4 900 6000\n8 0 sda 1 1 1 1 1 1 1 1 1 1 1\n"
DEVICE = {
    "device.reads": 300,
    "device.read_bytes": 2400 * 512,
    "device.read_s": 0.6,
    "device.writes": 20,
    "device.written_bytes": 320 * 512,
    "device.write_s": 0.04,
    "device.weighted_s": 6.0,
    "device.in_flight": 4,
}


@dataclass(frozen=True)
class State:
    waited_s: Mapping[str, float]
    levels: Mapping[str, float]
    credits: float | None
    credits_capacity: float | None


GP2 = State({"iops": 1.5, "throughput": 0.25}, {"iops": 3000.0}, 5.0e6, 5.4e6)


def volume(device: str | None = "loop3", control: Path | None = Path("/run/gp2")) -> Volume:
    spec = VolumeSpec(name="gp2", type="gp2", size_bytes=1 << 30)
    return Volume(spec=spec, kind=Kind.EMULATED, mount=Path("/mnt"), device=device, control=control)


def dead(control: Path) -> object:
    raise SetupError("the volume's daemon does not answer")


@pytest.fixture(autouse=True)
def processors_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> ProcessorCounters:
        raise OSError

    monkeypatch.setattr("esrally_ebs.telemetry.observation.processor_counters", fail)


def test_a_snapshot_has_the_devices_counters_the_limiters_waits_and_the_credits() -> None:
    counters = snapshot(volume(), read_state=lambda path: GP2, read_text=lambda path: DISKSTATS)

    assert counters == {
        **DEVICE,
        "emulator.waited_s.iops": 1.5,
        "emulator.waited_s.throughput": 0.25,
        "emulator.credits": 5.0e6,
    }


def test_a_snapshot_has_what_the_last_devices_below_read() -> None:
    stacked = replace(volume(control=None), lowest=("sda", "loop3"))
    counters = snapshot(stacked, read_state=dead, read_text=lambda path: DISKSTATS)
    assert counters["lowest.read_bytes"] == (1 + 2400) * 512


def test_a_snapshot_has_what_the_machines_processors_did(monkeypatch: pytest.MonkeyPatch) -> None:
    now = ProcessorCounters(busy_s=1.0, stolen_s=0.25, total_s=2.0)
    monkeypatch.setattr("esrally_ebs.telemetry.observation.processor_counters", lambda: now)

    counters = snapshot(volume(control=None), read_state=dead, read_text=lambda path: DISKSTATS)

    assert (counters["processor.busy_s"], counters["processor.stolen_s"]) == (1.0, 0.25)
    assert DEVICE.items() <= counters.items()


def test_a_real_volume_adds_how_long_its_limits_were_exceeded() -> None:
    counters = snapshot(
        volume(control=None),
        read_state=dead,
        read_text=lambda path: DISKSTATS,
        read_more=lambda volume: {"ebs.exceeded_s.volume_iops": 0.5},
    )

    assert counters == {**DEVICE, "ebs.exceeded_s.volume_iops": 0.5}


def test_a_source_that_fails_is_left_out_and_the_others_stay() -> None:
    assert snapshot(volume(), read_state=dead, read_text=lambda path: DISKSTATS) == DEVICE
    # the device has gone
    assert snapshot(volume("loop9", None), read_state=dead, read_text=lambda path: DISKSTATS) == {}


def test_a_directory_has_no_counters() -> None:
    assert snapshot(volume(None, None), read_state=dead, read_text=lambda path: "") == {}


@pytest.mark.parametrize(
    ("text", "used_s"), [("2500000000\n", 2.5), ("usage_usec 2500000\nuser_usec 1\n", 2.5)]
)
def test_a_snapshot_has_what_the_node_used_of_the_processors(text: str, used_s: float) -> None:
    counters = snapshot(
        volume(None, None), read_state=dead, processor_time=Path("/usage"), read_text=lambda path: text
    )

    assert counters == {"node.processor_s": used_s}
