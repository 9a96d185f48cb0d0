"""``ramp_time``: I/O as ever, then figures that begin anew; to fio and in virtual time."""

import json
from pathlib import Path
from typing import Any

import pytest

from esrally_ebs.model import VolumeSpec
from esrally_ebs.plan import BaselineJob
from esrally_ebs.volumes.baseline import job_argv
from esrally_ebs.volumes.virtual import SimulatedVolume, VolumeJob, run_together

KIB, GIB = 1024, 1024**3
GP3 = VolumeSpec(name="gp3", type="gp3", size_bytes=100 * GIB)


def job(**options: Any) -> BaselineJob:  # noqa: ANN401 - options of fio
    deep = {"name": "job", "rw": "randread", "bs": 4 * KIB, "engine": "libaio", "iodepth": 32}
    return BaselineJob(**{**deep, **options})


def run(of: BaselineJob, volume: SimulatedVolume | None = None) -> dict[str, Any]:
    document = json.loads((volume or SimulatedVolume(GP3)).run(of, compiled=False, seconds=9))
    (job,) = document["jobs"]
    return {**document, **job}


def test_what_was_saved_up_is_spent_before_it_counts() -> None:
    # 3,000 IOPS, and a second's worth of them saved up, which two seconds of I/O use up
    fresh, ramped = run(job(runtime=1.0)), run(job(runtime=1.0, ramp_time=2.0))
    assert fresh["read"]["iops"] == pytest.approx(6000, rel=0.02)
    assert ramped["read"]["iops"] == pytest.approx(3000, rel=0.02)


def test_what_counts_is_what_the_same_job_does_after_that_time() -> None:
    whole, ramped = run(job(runtime=3.0)), run(job(runtime=1.0, ramp_time=2.0))
    ios = whole["per_second"]["ios"]
    assert ramped["per_second"]["ios"] == [0, 0, *ios[2:]]
    reads = ramped["read"]
    counts = (reads["total_ios"], reads["clat_ns"]["N"], reads["lat_ns"]["N"], reads["iops_samples"])
    assert counts == (sum(ios[2:]), sum(ios[2:]), sum(ios[2:]), 2)  # two half seconds
    assert whole["read"]["clat_ns"]["max"] >= reads["clat_ns"]["max"]


def test_the_runtime_begins_after_it() -> None:
    volume = SimulatedVolume(GP3)
    ramped = run(job(runtime=0.5, ramp_time=1.5), volume)
    assert 500 <= ramped["read"]["runtime"] < 530
    assert 2.0 <= volume.clock_s < 2.03
    assert ramped["elapsed"] == 3  # seconds begun, as fio tells of them
    assert (ramped["job options"]["ramp_time"], ramped["job options"]["runtime"]) == ("1500000us", "500000us")


def test_jobs_that_run_together_have_each_their_own() -> None:
    volume = SimulatedVolume(GP3)
    jobs = [job(name="first", runtime=2.0), job(name="second", runtime=0.5, ramp_time=1.5)]
    texts = run_together([VolumeJob(volume=volume, job=of) for of in jobs], compiled=False)
    first, second = (json.loads(text)["jobs"][0]["read"] for text in texts)
    assert first["total_ios"] > 3 * second["total_ios"]  # four times as long, and the saved-up second
    assert second["iops"] == pytest.approx(1500, rel=0.1)  # half of the volume's


def test_fio_is_told_of_it() -> None:
    words = job_argv(job(runtime=3.0, ramp_time=1.5), Path("file"))
    assert {"--time_based=1", "--runtime=3000000us", "--ramp_time=1500000us"} <= set(words)
    assert not any("ramp" in word for word in job_argv(job(runtime=3.0), Path("file")))
