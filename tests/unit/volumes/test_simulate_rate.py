"""``rate_iops`` and ``rate``: I/O at a rate of its own, to fio and in virtual time."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esrally_ebs.model import VolumeSpec
from esrally_ebs.plan import BaselineJob
from esrally_ebs.volumes.baseline import job_argv
from esrally_ebs.volumes.fio import FioDirection, parse_fio
from esrally_ebs.volumes.virtual import SimulatedVolume

KIB, GIB = 1024, 1024**3
GP3 = VolumeSpec(name="gp3", type="gp3", size_bytes=100 * GIB)


def job(**options: Any) -> BaselineJob:  # noqa: ANN401 - options of fio
    deep = {"name": "job", "rw": "randread", "bs": 4 * KIB, "engine": "libaio", "iodepth": 32, "runtime": 2.0}
    return BaselineJob(**{**deep, **options})


def run(of: BaselineJob, *, compiled: bool = False) -> FioDirection:
    (reads,) = parse_fio(SimulatedVolume(GP3).run(of, compiled=compiled), "simulated")
    return reads


@pytest.mark.parametrize(
    ("options", "iops"),
    [
        ({"rate_iops": 400}, 400),
        ({"rate_iops": 400, "engine": "psync"}, 400),
        ({"rate_iops": 400, "numjobs": 3}, 1200),  # each clone has the rate
        ({"rate": 400 * 4 * KIB}, 400),
        (
            {"rate_iops": 100_000, "ramp_time": 2.0},
            3000,
        ),  # the volume's limit, once what it saved up is spent
    ],
)
def test_a_job_keeps_to_its_rate_where_the_volume_does(options: dict[str, Any], iops: float) -> None:
    assert run(job(**options)).iops == pytest.approx(iops, rel=0.02)


def test_below_the_volumes_limit_an_io_waits_for_no_other() -> None:
    alone, rated, deep = run(job(iodepth=1)), run(job(rate_iops=400)), run(job())
    assert rated.p50_s == pytest.approx(alone.p50_s, rel=0.1)
    assert deep.p50_s > 5 * rated.p50_s


def test_what_was_late_is_caught_up() -> None:
    # 3,000 IOPS are saved up, so a rate of 4,500 is kept for two seconds, and 9,000 I/Os were due by then
    assert run(job(rate_iops=4500, numjobs=1, size=8192 * 4 * KIB)).iops == pytest.approx(4500, rel=0.02)


def test_the_sleep_before_an_io_that_is_due_after_the_end_is_of_the_runtime() -> None:
    # due at 0, 1 and 2 s, and then fio sleeps to the end
    assert run(job(rate_iops=1, runtime=2.5)).iops == pytest.approx(3 / 2.5, rel=1e-3)


@given(st.integers(1, 5000), st.sampled_from(["psync", "libaio"]), st.integers(1, 3))
def test_no_rate_is_exceeded(rate: int, engine: str, clones: int) -> None:
    reads = run(job(rate_iops=rate, engine=engine, numjobs=clones, runtime=0.2))
    assert reads.ios <= clones * (rate * 0.2 + 1)


@pytest.mark.slow
def test_machine_code_says_the_same() -> None:
    rated = job(rate_iops=2500, numjobs=2)
    assert run(rated, compiled=True) == run(rated)


def test_fio_is_told_of_it() -> None:
    assert "--rate_iops=400" in job_argv(job(rate_iops=400), Path("file"))
    assert f"--rate={1024 * KIB}" in job_argv(job(rate="1MiB"), Path("file"))
    assert not any("rate" in word for word in job_argv(job(), Path("file")))
