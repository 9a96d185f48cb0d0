"""A mount's I/Os recorded by the kernel's tracepoints, and nothing left of it, however it ends."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.compute as pc
import pytest

from esrally_ebs.machine.tracefs import tracefs
from esrally_ebs.model import State
from esrally_ebs.store import SessionFolder, load_session

pytestmark = pytest.mark.system  # none beside others: the kernel has one tracefs for all, that comes and goes
IOPS, SIZE_MIB = 2000, 64


@pytest.fixture
def instances(tmp_path: Path) -> Iterator[Path]:
    """Where tracing instances are; tracefs is mounted for the test where it is not."""
    place = tmp_path / "tracefs"
    mounted = tracefs() is None
    if mounted:
        place.mkdir()
        subprocess.run(["mount", "-t", "tracefs", "nodev", place], check=True)
    root = tracefs()
    assert root is not None
    yield root / "instances"
    if mounted:
        subprocess.run(["umount", place], check=True)


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Path]:
    """An ext4 on a loop device on a file in memory."""
    image, point = Path(f"/dev/shm/test-tracing-{os.getpid()}"), tmp_path / "mnt"
    image.write_bytes(b"")
    os.truncate(image, 2 * SIZE_MIB << 20)
    point.mkdir()
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, point], check=True)
    try:
        yield point
    finally:
        subprocess.run(["umount", point], check=True)
        image.unlink()


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    own = {"ESRALLY_EBS_HOME": str(tmp_path / "home"), "ESRALLY_EBS_RUN": str(tmp_path / "run")}
    return {**os.environ, **own}


def trace(mount: Path, seconds: int, output: Path) -> list[str]:
    words = ["trace", "--mount", str(mount), "--seconds", str(seconds), "--output", str(output)]
    return [str(Path(sys.executable).with_name("esrally-ebs")), *words, "--size", "100GiB"]


def fio(mount: Path, seconds: int) -> list[str]:
    job = [f"--filename={mount / 'file'}", f"--size={SIZE_MIB}m", "--rw=randread", "--bs=4k", "--direct=1"]
    job += [f"--rate_iops={IOPS}", f"--runtime={seconds}", "--time_based", "--output-format=json"]
    return ["fio", "--name=reads", "--ioengine=libaio", "--iodepth=4", *job]


def test_every_read_of_fio_is_recorded(
    mount: Path, instances: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    subprocess.run(fio(mount, 1), check=True, capture_output=True)  # lays the file out
    recorder = subprocess.Popen(
        trace(mount, 6, tmp_path / "out"), env=environment, stderr=subprocess.PIPE, text=True
    )
    assert recorder.stderr is not None
    assert re.match(r"recording the requests of loop\d+ for 6 s", recorder.stderr.readline())
    time.sleep(0.5)  # until the tracepoints are on
    load = subprocess.run(fio(mount, 2), check=True, capture_output=True, text=True)
    output = recorder.communicate(timeout=60)[1]
    assert recorder.returncode == 0, output
    assert " 0 events lost, 0 requests in flight" in output
    read = json.loads(load.stdout)["jobs"][0]["read"]["total_ios"]
    ios = SessionFolder(tmp_path / "out").read_trace()
    direct = ios.filter(pc.and_(pc.equal(ios["bytes"], 4096), pc.equal(ios["op"], "read")))
    assert read <= direct.num_rows <= read + 100  # ext4 reads some of its own
    assert pc.all(pc.greater_equal(ios["done_s"], ios["at_s"])).as_py()
    assert pc.all(pc.less(pc.add(ios["offset"], ios["bytes"]), 2 * SIZE_MIB << 20)).as_py()
    session = load_session(tmp_path / "out")
    assert session.state is State.COMPLETE
    assert [*instances.iterdir(), *(tmp_path / "run").glob("*")] == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_nothing_stays_of_a_recording_that_is_ended(
    number: int, code: int, mount: Path, instances: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    recorder = subprocess.Popen(trace(mount, 300, tmp_path / "out"), env=environment)
    until = time.monotonic() + 30
    while not list(instances.glob("*/per_cpu")) and time.monotonic() < until:
        time.sleep(0.1)
    assert list(instances.iterdir())
    time.sleep(0.5)
    recorder.send_signal(number)
    assert recorder.wait(timeout=30) == code
    while list((tmp_path / "run").glob("*")) and time.monotonic() < until:
        time.sleep(0.1)  # its reaper is at it
    assert [*instances.iterdir(), *(tmp_path / "run").glob("*")] == []
    assert load_session(tmp_path / "out").state in (State.CANCELLED, State.FAILED)


def test_a_machine_without_tracefs_says_how_to_mount_it(
    mount: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    if tracefs() is not None:
        pytest.skip("tracefs is mounted here")
    ended = subprocess.run(
        trace(mount, 2, tmp_path / "out"), env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 3
    assert "mount -t tracefs nodev /sys/kernel/tracing" in ended.stderr
    assert not (tmp_path / "out").exists()
