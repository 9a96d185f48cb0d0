"""What tests of emulated volumes have in common: a session's folder that must end up empty, and fio."""

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from leftovers import leftovers

from esrally_ebs.machine.processes import SYSTEM_CLOCK, Process, run
from esrally_ebs.model import Volume, VolumeSpec
from esrally_ebs.store import running
from esrally_ebs.volumes import backends as volumes
from esrally_ebs.volumes.emulated.control import change, read_state
from esrally_ebs.volumes.emulated.daemon.process import PROCESS_NAME

MIB, GIB = 1024**2, 1024**3


@pytest.fixture
def arms(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a session in the run directory; no part of a volume may be left there."""
    root = Path("/run") / f"ebs-test-{os.getpid()}"  # of its own, so that 'esrally-ebs clean' leaves it alone
    monkeypatch.setenv("ESRALLY_EBS_RUN", str(root))
    session = root / f"{time.monotonic_ns()}"
    session.mkdir(parents=True)
    (root / running.MARK).touch()  # sessions may begin beside this one
    yield session
    for directory in sorted({part.directory for part in leftovers()}):
        if directory.parent == session:
            volumes.detach(directory)
            pytest.fail(f"left behind and now removed: {directory}")
    session.rmdir()
    (root / running.MARK).unlink(missing_ok=True)
    root.rmdir()


def spec_of(name: str = "a", type_: str = "gp3", **more: Any) -> VolumeSpec:  # noqa: ANN401
    return VolumeSpec(**{"name": name, "type": type_, "size_bytes": 20 * GIB} | more)


def control_of(volume: Volume) -> Path:
    assert volume.control is not None
    return volume.control


def daemon_of(volume: Volume) -> Process:
    process = Process.of(json.loads((control_of(volume).parent / PROCESS_NAME).read_text())["pid"])
    assert process is not None
    return process


def fio(volume: Volume, *options: str) -> dict[str, Any]:
    words = ["fio", "--name=job", f"--filename={volume.mount}/fio", "--direct=1", "--output-format=json"]
    job: dict[str, Any] = json.loads(run([*words, *options], timeout_s=120))["jobs"][0]
    return job


def fio_at_the_limits(volume: Volume, *options: str) -> dict[str, Any]:
    """As ``fio``, from empty buckets on: a machine may be too slow to spend in a ramp what they had saved."""
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(fio, volume, *options, "--time_based", "--ramp_time=1")
        assert SYSTEM_CLOCK.wait_until(
            lambda: job.done() or read_state(control_of(volume)).in_flight, limit_s=30, poll_s=0.005
        )
        change(control_of(volume), drain=True, drain_instance=True)
        return job.result()


def lay_out(volume: Volume, mib: int) -> None:
    change(control_of(volume), unlimited=True)
    fio(volume, "--rw=write", "--bs=1m", "--ioengine=libaio", "--iodepth=8", f"--size={mib}m")
    change(control_of(volume), unlimited=False, refill=True)
