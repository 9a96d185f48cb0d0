"""fio's engines, words and rates in a plan: what they mean to a device and in virtual time."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esrally_ebs.model import VolumeSpec
from esrally_ebs.plan import BaselineJob
from esrally_ebs.volumes.baseline import job_argv
from esrally_ebs.volumes.fio import FioDirection, parse_fio
from esrally_ebs.volumes.virtual import SimulatedVolume, VolumeJob, run_together

KIB, MIB, GIB = 1024, 1024**2, 1024**3
GP3 = VolumeSpec(name="gp3", type="gp3", size_bytes=100 * GIB)


def job(**options: Any) -> BaselineJob:  # noqa: ANN401 - options of fio
    deep = {"name": "job", "rw": "randread", "bs": 4 * KIB, "engine": "libaio", "iodepth": 32}
    return BaselineJob(**{**deep, **options})


def run(of: BaselineJob) -> FioDirection:
    (reads,) = parse_fio(SimulatedVolume(GP3).run(of, compiled=False), "simulated")
    return reads


ALONE = job(engine="psync", iodepth=1, size=4 * MIB)


@pytest.mark.parametrize(
    ("engine", "in_flight"),
    [("psync", 1), ("sync", 1), ("pvsync", 1), ("pvsync2", 1), ("libaio", 4), ("io_uring", 4)],
)
def test_an_engine_has_its_depth_in_flight_unless_it_waits(engine: str, in_flight: int) -> None:
    of = job(engine=engine, iodepth=4, size=4 * MIB)
    assert (run(of).iops > 3 * run(ALONE).iops) is (in_flight > 1)
    assert in_flight > 1 or run(of).iops == run(ALONE).iops
    assert {f"--ioengine={engine}", f"--iodepth={in_flight}"} <= set(job_argv(of, Path("file")))


def test_rw_is_readwrite() -> None:
    assert job(rw="rw").rw == "readwrite"


# ``ramp_time``: I/O as ever, then figures that begin anew


def ramped(of: BaselineJob, volume: SimulatedVolume | None = None) -> dict[str, Any]:
    document = json.loads((volume or SimulatedVolume(GP3)).run(of, compiled=False, seconds=9))
    (job,) = document["jobs"]
    return {**document, **job}


def test_what_was_saved_up_is_spent_before_it_counts() -> None:
    # 3,000 IOPS, and a second's worth of them saved up, which two seconds of I/O use up
    assert run(job(runtime=1.0)).iops == pytest.approx(6000, rel=0.02)
    assert run(job(runtime=1.0, ramp_time=2.0)).iops == pytest.approx(3000, rel=0.02)


def test_what_counts_is_what_the_same_job_does_after_that_time() -> None:
    whole, after = ramped(job(runtime=3.0)), ramped(job(runtime=1.0, ramp_time=2.0))
    ios = whole["per_second"]["ios"]
    assert after["per_second"]["ios"] == [0, 0, *ios[2:]]
    reads = after["read"]
    counts = (reads["total_ios"], reads["clat_ns"]["N"], reads["lat_ns"]["N"], reads["iops_samples"])
    assert counts == (sum(ios[2:]), sum(ios[2:]), sum(ios[2:]), 2)  # two half seconds
    assert whole["read"]["clat_ns"]["max"] >= reads["clat_ns"]["max"]


def test_the_runtime_begins_after_it() -> None:
    volume = SimulatedVolume(GP3)
    after = ramped(job(runtime=0.5, ramp_time=1.5), volume)
    assert 500 <= after["read"]["runtime"] < 530
    assert 2.0 <= volume.clock_s < 2.03
    assert after["elapsed"] == 3  # seconds begun, as fio tells of them
    assert (after["job options"]["ramp_time"], after["job options"]["runtime"]) == ("1500000us", "500000us")


def test_jobs_that_run_together_have_each_their_own() -> None:
    volume = SimulatedVolume(GP3)
    jobs = [job(name="first", runtime=2.0), job(name="second", runtime=0.5, ramp_time=1.5)]
    texts = run_together([VolumeJob(volume=volume, job=of) for of in jobs], compiled=False)
    first, second = (json.loads(text)["jobs"][0]["read"] for text in texts)
    assert first["total_ios"] > 3 * second["total_ios"]  # four times as long, and the saved-up second
    assert second["iops"] == pytest.approx(1500, rel=0.1)  # half of the volume's


def test_fio_is_told_of_a_ramp() -> None:
    words = job_argv(job(runtime=3.0, ramp_time=1.5), Path("file"))
    assert {"--time_based=1", "--runtime=3000000us", "--ramp_time=1500000us"} <= set(words)
    assert not any("ramp" in word for word in job_argv(job(runtime=3.0), Path("file")))


# ``rate_iops`` and ``rate``: I/O at a rate of its own


def rated(**options: Any) -> BaselineJob:  # noqa: ANN401 - options of fio
    return job(**{"runtime": 2.0, **options})


@pytest.mark.parametrize(
    ("options", "iops"),
    [
        ({"rate_iops": 400}, 400),
        ({"rate_iops": 400, "engine": "psync"}, 400),
        ({"rate_iops": 400, "numjobs": 3}, 1200),  # each clone has the rate
        ({"rate": 400 * 4 * KIB}, 400),
        # the volume's limit, once what it saved up is spent
        ({"rate_iops": 100_000, "ramp_time": 2.0}, 3000),
    ],
)
def test_a_job_keeps_to_its_rate_where_the_volume_does(options: dict[str, Any], iops: float) -> None:
    assert run(rated(**options)).iops == pytest.approx(iops, rel=0.02)


def test_below_the_volumes_limit_an_io_waits_for_no_other() -> None:
    alone, at_rate, deep = run(rated(iodepth=1)), run(rated(rate_iops=400)), run(rated())
    assert at_rate.p50_s == pytest.approx(alone.p50_s, rel=0.1)
    assert deep.p50_s > 5 * at_rate.p50_s


def test_what_was_late_is_caught_up() -> None:
    # 3,000 IOPS are saved up, so a rate of 4,500 is kept for two seconds, and 9,000 I/Os were due by then
    assert run(rated(rate_iops=4500, numjobs=1, size=8192 * 4 * KIB)).iops == pytest.approx(4500, rel=0.02)


def test_the_sleep_before_an_io_that_is_due_after_the_end_is_of_the_runtime() -> None:
    # due at 0, 1 and 2 s, and then fio sleeps to the end
    assert run(rated(rate_iops=1, runtime=2.5)).iops == pytest.approx(3 / 2.5, rel=1e-3)


def test_an_io_takes_its_time_when_the_runtime_ends_before_all_are_in_flight() -> None:
    # submissions are 6 us apart, so two begin within 10 us
    (text,) = run_together([VolumeJob(volume=SimulatedVolume(GP3), job=job(runtime=10e-6))], compiled=False)
    reads = json.loads(text)["jobs"][0]["read"]
    assert reads["total_ios"] == 2
    assert reads["clat_ns"]["min"] > 100_000


@given(st.integers(1, 5000), st.sampled_from(["psync", "libaio"]), st.integers(1, 3))
def test_no_rate_is_exceeded(rate: int, engine: str, clones: int) -> None:
    reads = run(rated(rate_iops=rate, engine=engine, numjobs=clones, runtime=0.2))
    assert reads.ios <= clones * (rate * 0.2 + 1)


def test_fio_is_told_of_a_rate() -> None:
    assert "--rate_iops=400" in job_argv(rated(rate_iops=400), Path("file"))
    assert f"--rate={1024 * KIB}" in job_argv(rated(rate="1MiB"), Path("file"))
    assert not any("rate" in word for word in job_argv(rated(), Path("file")))
