"""What the daemon makes of limits, overheads and settings, and what volumes of one instance share."""

import os
import struct
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.model import VolumeSpec
from esrally_ebs.volumes.emulated.control import LimiterState, together
from esrally_ebs.volumes.emulated.daemon.admission import Admission, InstancePage, spread_over

GIB, KIB, MIB = 1024**3, 1024, 1024**2
OVERHEAD = (((10e-6, 0.0), (20e-6, 1e-9)), ((30e-6, 0.0), (40e-6, 0.0)))  # alone, beside; read, write


def _admission(now: float = 0.0, page: Path | None = None, **spec: Any) -> Admission:  # noqa: ANN401
    volume = VolumeSpec(**{"name": "a", "type": "gp2", "size_bytes": 100 * GIB} | spec)
    settings = {
        "model": model_for(volume).to_json(),
        "seed": 1,
        "credits": volume.credits,
        "time_scale": volume.time_scale,
        "instance_page": None if page is None else str(page),
    }
    return Admission(settings, now)


def _state(admission: Admission, now: float) -> LimiterState:
    return admission.state(now, in_flight=0, errors=0)


@pytest.mark.parametrize(
    ("write", "beside", "early_s"),
    # A write alone has a cost per byte: 20 us and 1 ns for each of 16 KiB.
    [(False, False, 10e-6), (True, False, 20e-6 + 16384e-9), (False, True, 30e-6), (True, True, 40e-6)],
)
def test_the_paths_own_cost_is_taken_off_by_direction_and_company(
    write: bool, beside: bool, early_s: float
) -> None:
    admission = _admission()
    admission.change({"fixed_latency_s": [1e-3, 1e-3], "overhead": OVERHEAD}, 0.0)
    limited_s, due, _ = admission.schedule(0, 16 * KIB, 5.0, write=write, in_flight=int(beside))
    assert limited_s == 0
    assert due == pytest.approx(5.0 + 1e-3 - early_s, abs=1e-12)
    assert _state(admission, 5.0).target_s["write" if write else "read"] == pytest.approx(1e-3)


def test_an_io_over_several_chunks_takes_as_long_as_the_slowest_of_its_parts() -> None:
    """It took as long as one I/O of one volume, unlike in virtual time and as 8 volumes never do."""
    service = model_for(VolumeSpec(name="a", type="gp2", size_bytes=100 * GIB)).read
    drawn = np.random.default_rng(1).normal(0, service.sigma, (100_000, 8)).max(axis=1)
    expected_s = service.median_s(16 * KIB) * np.exp(drawn).mean()
    admission = _admission(stripes=8, chunk_bytes=16 * KIB)
    times_s = [1e3 * number for number in range(2000)]  # no limit is reached
    due_s = [admission.schedule(0, 128 * KIB, now, write=False, in_flight=0)[1] for now in times_s]
    assert np.mean(np.subtract(due_s, times_s)) == pytest.approx(expected_s, rel=0.02)


def test_fixed_latencies_between_two_are_the_same_from_each_change_on_and_lie_all_over() -> None:
    admission = _admission()
    for _ in range(2):
        admission.change({"fixed_latency_s": [1e-3, 2e-3]}, 0.0)
        held_s = [admission.schedule(0, KIB, 0.0, write=False, in_flight=0)[1] for _ in range(8)]
        assert held_s == pytest.approx(list(islice(spread_over(1e-3, 2e-3), 8)))
    gaps = [b - a for a, b in pairwise(sorted([*held_s, 2e-3]))]
    assert min(held_s) == pytest.approx(1e-3)
    assert max(gaps) < 0.3e-3


def test_reads_are_slowed_while_it_runs_and_writes_are_not() -> None:
    usual, slowed = _admission(), _admission()
    slowed.change({"read_latency": 4.0}, 0.0)
    for write, times in ((False, 4.0), (True, 1.0)):
        due_s = [one.schedule(0, 16 * KIB, 0.0, write=write, in_flight=0)[1] for one in (usual, slowed)]
        assert due_s[1] == pytest.approx(times * due_s[0])
    slowed.change({"read_latency": 1.0}, 0.0)
    assert slowed.schedule(0, KIB, 0.0, write=False, in_flight=0)[1] == pytest.approx(
        usual.schedule(0, KIB, 0.0, write=False, in_flight=0)[1]
    )


def test_a_time_scale_divides_what_is_saved_up_and_leaves_rates_and_fullness() -> None:
    # 100 GiB of gp2: 300 IOPS, bursts to 3000, 5.4 million credits
    admission = _admission()
    admission.change({"credits": 0.5, "drain": True, "time_scale": 100}, 0.0)
    state = _state(admission, 0.0)
    assert state.credits_capacity == 54_000
    assert state.credits == 27_000
    assert state.capacities["iops"] == 30
    # It fills at 300 a second as ever: the missing half takes 90 s, not 9,000.
    assert _state(admission, 90.0).credits == pytest.approx(54_000)
    admission.change({"time_scale": 1}, 90.0)
    assert _state(admission, 90.0).credits == pytest.approx(5_400_000)


@pytest.mark.parametrize("times", [500, 1000, 3000])
def test_a_burst_lasts_as_long_as_the_arithmetic_says_at_any_time_scale(times: int) -> None:
    admission = _admission(time_scale=times)
    now = 0.0
    # As fast as the volume allows: the next I/O comes when the last one's wait is over.
    while _state(admission, now).levels["credits"] > 0:
        now += admission.schedule(0, 4096, now, write=False, in_flight=0)[0]
    # 3000 a second leave and 300 come in; the 3000 operations that are saved up besides go at once.
    assert now == pytest.approx((5_400_000 - 3000) / 2700 / times, rel=0.01)


@pytest.mark.parametrize("settings", [{"time_scale": 0.5}, {"speed": 3}])
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"time scale|no setting 'speed'"):
        _admission().change(settings, 0.0)


def test_two_volumes_of_an_instance_draw_on_the_same_buckets(tmp_path: Path) -> None:
    page = tmp_path / "t3.small"
    spec = {"type": "gp3", "iops": 16_000, "throughput_bytes_per_s": 1000 * MIB, "instance": "t3.small"}
    first, second = (_admission(page=page, name=name, **spec) for name in "ab")
    before = _state(second, 0.0).levels
    first.schedule(0, 256 * KIB, 0.0, write=False, in_flight=0)
    after = _state(second, 0.0).levels
    assert after["instance-throughput"] == before["instance-throughput"] - 256 * KIB
    assert after["throughput"] == before["throughput"]
    # What one volume takes, the other waits for, and that wait is its own.
    while first.schedule(0, 256 * KIB, 0.0, write=False, in_flight=0)[0] == 0:
        pass
    assert second.schedule(0, 256 * KIB, 0.0, write=False, in_flight=0)[0] > 0
    assert _state(second, 0.0).waited_s["instance-throughput"] > 0
    assert _state(second, 0.0).waited_s["throughput"] == 0


@pytest.mark.parametrize("what", ["drain", "refill"])
def test_one_volume_is_drained_and_refilled_without_the_instance_that_others_use(
    tmp_path: Path, what: str
) -> None:
    spec = {"type": "gp3", "instance": "t3.small"}
    first, second = (_admission(page=tmp_path / "t3.small", name=name, **spec) for name in "ab")
    first.schedule(0, 256 * KIB, 0.0, write=False, in_flight=0)
    before = _state(second, 0.0).levels["instance-throughput"]
    first.change({what: True}, 0.0)
    levels = _state(first, 0.0).levels
    assert levels["throughput"] == (0 if what == "drain" else 125 * MIB)
    assert levels["instance-throughput"] == _state(second, 0.0).levels["instance-throughput"] == before
    first.change({"drain_instance": True}, 0.0)
    assert _state(second, 0.0).levels["instance-throughput"] == 0


def test_a_page_is_made_once_and_its_lock_dies_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "page"
    first, second = InstancePage(path, [1.0, 2.0]), InstancePage(path, [7.0, 7.0])
    child = os.fork()
    if child == 0:
        with InstancePage(path, [9.0, 9.0]).numbers() as numbers:
            numbers[0] = 5.0
            os._exit(0)  # with the lock held
    os.waitpid(child, 0)
    with second.numbers() as numbers:
        assert list(numbers) == [5.0, 2.0]
    with first.numbers() as numbers:
        numbers[1] = 3.0
    assert struct.unpack("2d", path.read_bytes()) == (5.0, 3.0)


def test_the_states_of_striped_volumes_are_told_as_one() -> None:
    one, two = _admission(), _admission(credits=0.5)
    one.count(4096, write=True)
    state = together({"1": _state(one, 0.0), "2": _state(two, 0.0)})
    assert state.levels["1-credits"] == 5_400_000
    assert state.levels["2-credits"] == 2_700_000
    assert (state.credits, state.credits_capacity) == (8_100_000, 10_800_000)
    assert (state.reads, state.writes, state.written_bytes) == (0, 1, 4096)
    assert state.seconds_until_full == 0


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"credits": float("nan")}, "a setting is no finite number"),
        ({"credits": 1.1}, "a fraction of 1.1 is outside 0 to 1"),
        ({"credits": -0.1}, "a fraction of -0.1 is outside 0 to 1"),
        ({"credits": "0.5"}, "a setting is no finite number"),
        ({"time_scale": float("inf")}, "a setting is no finite number"),
        ({"fixed_latency_s": [2e-3, 1e-3]}, "a latency between 0.002 and 0.001 s is none"),
        ({"fixed_latency_s": [-1e-3, 1e-3]}, "a latency between -0.001 and 0.001 s is none"),
        ({"fixed_latency_s": [0.0, float("inf")]}, "a setting is no finite number"),
        ({"fixed_latency_s": [0.0, 1e30]}, r"a latency between 0 and 1e\+30 s is none"),
        ({"read_latency": 0}, "reads cannot take 0 times as long"),
        ({"overhead": [[[0.0, float("nan")]] * 2] * 2}, "a setting is no finite number"),
    ],
)
def test_settings_of_which_one_is_wrong_change_nothing(wrong: dict[str, Any], text: str) -> None:
    admission = _admission()
    before = _state(admission, 0.0)
    right = {"unlimited": False, "time_scale": 10, "drain": True, "credits": 0.5}
    with pytest.raises(ValueError, match=text):
        admission.change(right | wrong, 0.0)
    assert _state(admission, 0.0) == before
