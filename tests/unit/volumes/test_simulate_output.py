"""What a simulated job says in fio's words: the keys of fio itself, bins as fine, and figures that agree."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esrally_ebs.model import VolumeSpec
from esrally_ebs.plan import BaselineJob
from esrally_ebs.volumes.virtual import SimulatedVolume
from esrally_ebs.volumes.virtual.state import BINS, bin_of, middle_ns

KIB, MIB, GIB = 1024, 1024**2, 1024**3
GP3 = VolumeSpec(name="gp3", type="gp3", size_bytes=100 * GIB)
# fio 3.33: two clones of 4 KiB randrw with four in flight, on a file in memory
REAL = Path(__file__).parents[2] / "support" / "data" / "fio-3.33-randrw-libaio.json"
# Of the machine that ran it, or of the day: a simulated job has none of these.
NOT_SIMULATED = {
    *("job_runtime", "usr_cpu", "sys_cpu", "ctx", "majf", "minf"),
    *("iodepth_level", "iodepth_submit", "iodepth_complete"),
    *("latency_depth", "latency_target", "latency_percentile", "latency_window"),
}


def run(**options: Any) -> dict[str, Any]:  # noqa: ANN401 - options of fio
    job = BaselineJob(**{"name": "job", "rw": "randrw", "bs": 4 * KIB, "engine": "libaio", **options})
    (result,) = json.loads(SimulatedVolume(GP3).run(job, compiled=False))["jobs"]
    return dict(result)


def keys(value: Any, path: str = "") -> set[str]:  # noqa: ANN401 - JSON
    if not isinstance(value, dict):
        return {path}
    return {place for key in value for place in keys(value[key], f"{path}/{key}")}


def test_a_job_has_the_keys_of_fio() -> None:
    (real,) = json.loads(REAL.read_text())["jobs"]
    ours = run(iodepth=4, numjobs=2, size=4 * MIB)
    options = {"filename"}  # that one is of a file
    assert real["job options"].keys() - options <= ours["job options"].keys()
    expected = {key for key in keys(real) if key.split("/")[1] not in NOT_SIMULATED | {"job options"}}
    assert {key for key in keys(ours) if key.split("/")[1] != "job options"} == expected


def test_latency_is_what_it_took_to_submit_and_to_complete() -> None:
    # 3 x 64 in flight find a queue of 32 full: who waits for a place stands in the submission
    reads = run(iodepth=64, numjobs=3, size=8 * MIB)["read"]
    assert reads["slat_ns"]["mean"] > 1e5
    assert reads["lat_ns"]["mean"] == pytest.approx(reads["slat_ns"]["mean"] + reads["clat_ns"]["mean"])
    assert reads["slat_ns"]["N"] == reads["lat_ns"]["N"] == reads["total_ios"]


def test_a_synchronous_engine_has_no_submission_of_its_own() -> None:
    writes = run(engine="psync", rw="randwrite", size=MIB)["write"]
    assert writes["slat_ns"] == {"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0}
    assert writes["lat_ns"]["mean"] == writes["clat_ns"]["mean"]


def test_the_deviation_is_that_of_the_service_times() -> None:
    # gp3 reads are log-normal with 0.354: sqrt(exp(0.354**2) - 1) = 0.365 of their mean
    reads = run(engine="psync", rw="randread", size=32 * MIB)["read"]["clat_ns"]
    assert reads["stddev"] / reads["mean"] == pytest.approx(0.365, rel=0.05)


def test_rates_are_told_of_every_half_second() -> None:
    # 5 s at 3,000 a second after a second's worth at once: ten half seconds, of which the last is cut off
    reads = run(rw="randread", iodepth=32, runtime=5.0)["read"]
    assert reads["iops_samples"] == reads["bw_samples"] == 10
    assert reads["iops_min"] == pytest.approx(3000, rel=0.03)
    assert reads["iops_max"] > 6000
    assert reads["iops_mean"] == pytest.approx(reads["iops"], rel=0.01)
    assert reads["bw_mean"] == pytest.approx(4 * reads["iops_mean"])


def test_the_shares_of_latencies_are_of_all_ios() -> None:
    ours = run(iodepth=4, size=4 * MIB)
    shares = [share for unit in ("ns", "us", "ms") for share in ours[f"latency_{unit}"].values()]
    assert sum(shares) == pytest.approx(100)
    assert ours["latency_us"]["500"] > 10  # reads have a median of 463 us


def test_the_options_are_in_fios_words() -> None:
    options = run(rw="randrw", rwmixread=70, runtime=0.01, size=MIB)["job options"]
    assert options["ioengine"] == "libaio"
    assert (options["rwmixread"], options["runtime"], options["time_based"]) == ("70", "10000us", "1")


@given(nanoseconds=st.floats(1, 17e9))
def test_the_middle_of_a_bin_is_within_a_percent_of_what_falls_into_it(nanoseconds: float) -> None:
    number = bin_of(nanoseconds)  # the last bin ends at 17.2 s, as fio's does
    assert 0 <= number < BINS
    assert middle_ns(number) == pytest.approx(nanoseconds, rel=1 / 127, abs=1)


def test_bins_follow_one_another_without_gaps() -> None:
    values = np.concatenate([np.arange(1, 2000, 0.5), np.geomspace(2000, 1e9, 20_000)])
    assert all(0 <= later - earlier <= 1 for earlier, later in pairwise(bin_of(value) for value in values))
