"""What becomes of counters, cgroup figures and limiter states, and how a source that fails is marked."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from es_gp3 import node_of

from esrally_ebs.errors import SetupError
from esrally_ebs.machine.processes import Clock
from esrally_ebs.model import Kind, Node, TelemetryPoint, Volume, VolumeSpec
from esrally_ebs.telemetry.sampler import CUT, Sampler

CGROUP = Path("/sys/fs/cgroup/memory/docker/1")
NODE = replace(node_of(1), arm="gp2", memory_cgroup=CGROUP)
DISKSTATS = Path("/proc/diskstats")


@dataclass
class Machine:
    """Files and a clock that the test moves."""

    files: dict[Path, str] = field(default_factory=dict)
    now_s: float = 100.0

    def read_text(self, path: Path) -> str:
        if path not in self.files:
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return self.files[path]

    @property
    def clock(self) -> Clock:
        return Clock(monotonic=lambda: self.now_s, epoch=lambda: 1e9 + self.now_s)

    def disk(self, *numbers: int, device: str = "loop3") -> None:
        self.files[DISKSTATS] = f"7 3 {device} {' '.join(map(str, numbers))}\n"

    def sampler(self, *arms: tuple[Volume, Node | None], **more: Any) -> Sampler:  # noqa: ANN401
        """Of these arms, by default one, whose daemons are silent."""
        ours = {"read_state": silent, "clock": self.clock, "read_text": self.read_text}
        return Sampler(arms or [(volume(), None)], **ours, **more)


@dataclass(frozen=True)
class LimiterState:
    levels: Mapping[str, float]
    waited_s: Mapping[str, float]
    credits: float | None
    seconds_until_full: float
    unlimited: bool
    label: str = "gp2"


def volume(name: str = "gp2", device: str | None = "loop3", control: Path | None = None) -> Volume:
    return Volume(
        spec=VolumeSpec(name=name, type="gp2", size_bytes=1 << 30),
        kind=Kind.EMULATED,
        mount=Path("/mnt"),
        device=device,
        control=control,
    )


def silent(control: Path) -> object:
    raise SetupError(f"{control}: the volume's daemon does not answer")


def values(points: list[TelemetryPoint], arm: str = "gp2") -> dict[str, float]:
    return {point.metric: point.value for point in points if point.arm == arm}


# fields: reads, merged, sectors, ms; writes, merged, sectors, ms; in flight, busy ms, weighted ms
FIRST = (100, 0, 800, 1000, 10, 0, 80, 50, 0, 1000, 5000)
SECOND = (400, 0, 3200, 1600, 30, 0, 400, 90, 4, 2000, 11000)


def test_rates_come_from_the_growth_of_counters_over_the_time_between() -> None:
    machine = Machine()
    sampler = machine.sampler()
    machine.disk(*FIRST)
    sampler.sample()
    machine.now_s += 2.0
    machine.disk(*SECOND)

    # In 2 s: 300 reads of 2400 sectors that took 600 ms, 20 writes of 320 sectors that took 40 ms,
    # 6000 ms of requests in flight; sectors are of 512 bytes.
    assert values(sampler.sample()) == pytest.approx(
        {
            "device.in_flight": 4,
            "device.reads_per_s": 300 / 2,
            "device.writes_per_s": 20 / 2,
            "device.read_bytes_per_s": 2400 * 512 / 2,
            "device.write_bytes_per_s": 320 * 512 / 2,
            "device.queue_depth": 6.0 / 2,
            "device.read_await_s": 0.600 / 300,
            "device.write_await_s": 0.040 / 20,
            CUT: 0,
        }
    )


def test_times_that_begin_at_0_again_are_no_negative_waits() -> None:
    """The kernel prints milliseconds of 32 bits."""
    machine = Machine()
    sampler = machine.sampler()
    end = 2**32
    machine.disk(1000, 0, 8000, end - 500, 50, 0, 800, end - 30, 4, 900, end - 4000)
    sampler.sample()
    machine.now_s += 2.0
    machine.disk(1300, 0, 10_400, 100, 70, 0, 1120, 10, 4, 1500, 2000)
    after = values(sampler.sample())
    assert after["device.queue_depth"] == pytest.approx(6.0 / 2)
    assert after["device.read_await_s"] == pytest.approx(0.600 / 300)
    assert after["device.write_await_s"] == pytest.approx(0.040 / 20)


def test_the_first_sample_has_no_rates_and_is_not_cut() -> None:
    machine = Machine()
    machine.disk(*FIRST)
    sampler = machine.sampler()

    assert values(sampler.sample()) == {"device.in_flight": 0, CUT: 0}


def test_a_second_without_requests_has_no_wait() -> None:
    machine = Machine()
    machine.disk(*FIRST)
    sampler = machine.sampler()
    sampler.sample()
    machine.now_s += 1.0

    metrics = values(sampler.sample())

    assert metrics["device.reads_per_s"] == 0
    assert "device.read_await_s" not in metrics


def test_points_carry_arm_device_time_and_unit() -> None:
    machine = Machine()
    machine.disk(*FIRST)
    sampler = machine.sampler()

    assert sampler.sample()[0] == TelemetryPoint(
        arm="gp2", device="loop3", at_s=1e9 + 100.0, metric="device.in_flight", value=0, unit=""
    )


def test_the_memory_of_the_node_is_sampled_with_its_major_faults() -> None:
    machine = Machine(files={CGROUP / "memory.stat": "anon 5\nfile 30\nfile_mapped 20\npgmajfault 7\n"})
    sampler = machine.sampler((volume(device=None), NODE))
    sampler.sample()
    machine.now_s += 0.5
    machine.files[CGROUP / "memory.stat"] = "anon 5\nfile 30\nfile_mapped 20\npgmajfault 17\n"

    # 10 more faults in half a second
    assert values(sampler.sample()) == {
        "memory.cache_bytes": 30,
        "memory.mapped_file_bytes": 20,
        "memory.rss_bytes": 5,
        "memory.major_faults_per_s": 20,
        CUT: 0,
    }


def test_what_a_node_merges_and_refreshes_is_sampled_while_it_has_open_indices() -> None:
    merges = {"current": 2, "total": 7, "total_time_in_millis": 1500}
    work = {"merges": merges, "refresh": {"total": 40, "total_time_in_millis": 250}}
    asked = iter([work, {}])
    sampler = Machine().sampler((volume(device=None), NODE), read_work=lambda node: next(asked))
    measured = {"merging": 2, "merges": 7, "merge_s": 1.5, "refreshes": 40, "refresh_s": 0.25}
    of_indices = {f"index.{name}": value for name, value in measured.items()}
    assert of_indices.items() <= values(sampler.sample()).items()
    assert not of_indices.keys() & values(sampler.sample()).keys()


def test_every_number_of_the_emulators_state_is_sampled_with_its_unit() -> None:
    state = LimiterState(
        levels={"iops": 3000.0, "throughput": -5.0},
        waited_s={"iops": 1.5},
        credits=None,
        seconds_until_full=0.25,
        unlimited=False,
    )
    sampler = Sampler([(volume(device=None, control=Path("/run/c")), None)], read_state=lambda control: state)

    assert {(point.metric, point.value, point.unit) for point in sampler.sample()} == {
        ("emulator.levels.iops", 3000.0, ""),
        ("emulator.levels.throughput", -5.0, ""),
        ("emulator.waited_s.iops", 1.5, "s"),
        ("emulator.seconds_until_full", 0.25, "s"),
        ("emulator.unlimited", 0.0, ""),
        (CUT, 0.0, "sources"),
    }


def test_a_source_that_fails_cuts_its_arm_and_no_other() -> None:
    machine = Machine()
    machine.disk(*FIRST)
    cuts: list[tuple[str, str]] = []
    arms = [(volume("gp2", control=Path("/run/c")), NODE), (volume("gp3"), None)]
    sampler = machine.sampler(*arms, on_cut=lambda arm, text: cuts.append((arm, text)))
    points = sampler.sample() + sampler.sample()

    # Of gp2's sources the cgroup's file is not there and the daemon is silent; its device goes on.
    assert values(points, "gp2") == {"device.in_flight": 0, CUT: 2}
    assert values(points, "gp3") == {"device.in_flight": 0, CUT: 0}
    assert [arm for arm, _ in cuts] == ["gp2", "gp2"]  # once per source, not per second
    assert cuts[1][1] == "/run/c: the volume's daemon does not answer"


def test_a_device_that_comes_back_is_not_cut_any_more_and_begins_anew() -> None:
    machine = Machine()
    reasons: list[str] = []
    sampler = machine.sampler(on_cut=lambda arm, text: reasons.append(text))
    cuts = []
    for device in ("loop3", "loop4", "loop3"):
        machine.disk(*SECOND, device=device)
        points = sampler.sample()
        machine.now_s += 1.0
        cuts.append(values(points)[CUT])

    assert cuts == [0, 1, 0]
    assert "device.reads_per_s" not in values(points)
    assert reasons == ["/proc/diskstats: device loop3 has gone; is the arm still attached?"]


def test_counters_that_fall_are_a_cut_and_not_a_negative_rate() -> None:
    machine = Machine()
    sampler = machine.sampler()
    samples = []
    for numbers in (SECOND, FIRST, SECOND):
        machine.disk(*numbers)
        samples.append(values(sampler.sample()))
        machine.now_s += 1.0

    assert [sample[CUT] for sample in samples] == [0, 1, 0]
    assert samples[2]["device.reads_per_s"] == 300
