"""fio's engines and words in a plan: what they mean to a device and in virtual time."""

import json
from pathlib import Path

import pytest

from esrally_ebs.model import VolumeSpec
from esrally_ebs.plan import BaselineJob, parse_plan
from esrally_ebs.volumes.baseline import job_argv
from esrally_ebs.volumes.virtual import SimulatedVolume

GP3 = VolumeSpec(name="gp3", type="gp3", size_bytes=100 * 1024**3)
PLAN = """
name = "engines"
[[arm]]
name = "gp3"
type = "gp3"
[[baseline]]
name = "job"
bs = "4KiB"
size = "4MiB"
"""


def job(text: str) -> BaselineJob:
    (job,) = parse_plan(PLAN + text, "engines.toml").baseline
    return job


def iops(of: BaselineJob) -> float:
    (result,) = json.loads(SimulatedVolume(GP3).run(of, compiled=False))["jobs"]
    return float(result["read"]["iops"])


@pytest.mark.parametrize("engine", ["psync", "sync", "pvsync", "pvsync2"])
def test_an_engine_that_waits_has_one_io_in_flight(engine: str) -> None:
    of = job(f'rw = "randread"\niodepth = 16\nengine = "{engine}"')
    assert iops(of) == iops(job('rw = "randread"'))
    assert {f"--ioengine={engine}", "--iodepth=1"} <= set(job_argv(of, Path("file")))


@pytest.mark.parametrize("engine", ["libaio", "io_uring"])
def test_an_engine_that_does_not_wait_has_its_depth(engine: str) -> None:
    of = job(f'rw = "randread"\niodepth = 4\nengine = "{engine}"')
    assert iops(of) > 3 * iops(job('rw = "randread"'))
    assert {f"--ioengine={engine}", "--iodepth=4"} <= set(job_argv(of, Path("file")))


def test_rw_is_readwrite() -> None:
    assert job('rw = "rw"').rw == "readwrite"
