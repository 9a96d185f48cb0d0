"""fio really runs on a directory volume, leaves nothing there, and dies with whoever started it."""

import dataclasses
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from mounted import in_memory, on_loop

from esrally_ebs.errors import CommandError, SetupError
from esrally_ebs.machine.mounts import describe
from esrally_ebs.machine.processes import run
from esrally_ebs.model import Kind, Volume, VolumeSpec
from esrally_ebs.plan import BaselineJob
from esrally_ebs.telemetry.sampler import Sampler
from esrally_ebs.volumes.baseline import run_job
from esrally_ebs.volumes.fio import parse_fio

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed"),
]

SIZE = 4 * 1024**2
JOB = BaselineJob(name="seq-rw-16k-x2", rw="readwrite", bs=16384, numjobs=2, size=SIZE)
LONG = BaselineJob(name="long", rw="randread", bs=4096, numjobs=4, size=SIZE, runtime=60.0)


@pytest.fixture
def volume() -> Iterator[Volume]:
    # /var/tmp is on a disk; a tmpfs may refuse direct I/O.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        yield volume_at(Path(name))


def volume_at(mount: Path) -> Volume:
    return Volume(
        spec=VolumeSpec(name="here", type="directory", size_bytes=1 << 30), kind=Kind.DIRECTORY, mount=mount
    )


def wait_for(path: Path) -> int:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        if path.exists() and (text := path.read_text()):
            return int(text.split()[0])
        time.sleep(0.01)
    raise AssertionError(f"{path} did not appear")


def wait_for_job(volume: Volume, pid_file: Path) -> int:
    """The pid of the measured fio, after that of the layout."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        pid = wait_for(pid_file)
        with suppress(OSError):  # the layout has ended meanwhile
            if b"--time_based=1" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        time.sleep(0.01)
    raise AssertionError("the job did not start")


def test_a_job_runs_and_leaves_the_mount_as_it_was(volume: Volume, tmp_path: Path) -> None:
    refills: list[int] = []

    def refill() -> float:
        refills.append((volume.mount / "fio" / "fio-bench").stat().st_size)
        return 0.0

    text, rows = run_job(JOB, volume, pid_file=tmp_path / "fio.pid", refill=refill, round_=1)

    assert refills == [SIZE]  # once, when the file was laid out and before the job
    assert [(row.arm, row.round, row.job, row.op) for row in rows] == [
        ("here", 1, "seq-rw-16k-x2", "read"),
        ("here", 1, "seq-rw-16k-x2", "write"),
    ]
    # Two clones of 4 MiB in blocks of 16 KiB are 512 I/Os, all of which count.
    assert sum(direction.ios for direction in parse_fio(text, "text")) == 2 * SIZE // 16384
    assert all(0 < row.p50_s <= row.p90_s <= row.p99_s <= row.p999_s for row in rows)
    assert json.loads(text)["fio version"].startswith("fio-3.")
    assert list(volume.mount.iterdir()) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("engine", ["psync", "libaio"])
@pytest.mark.parametrize("rw", ["write", "randread"])
def test_a_timed_job_lasts_its_time(volume: Volume, tmp_path: Path, rw: str, engine: str) -> None:
    job = BaselineJob.model_validate(
        {"name": "timed", "rw": rw, "bs": 4096, "iodepth": 4, "engine": engine, "size": SIZE, "runtime": 0.5}
    )

    text, (row,) = run_job(job, volume, pid_file=tmp_path / "fio.pid", refill=lambda: 0.0)

    runtime_s = json.loads(text)["jobs"][0][row.op]["runtime"] / 1000
    assert runtime_s == pytest.approx(0.5, abs=0.3)
    assert row.iodepth == (4 if engine == "libaio" else 1)


def test_a_ramp_time_comes_before_the_runtime_and_is_not_counted(volume: Volume, tmp_path: Path) -> None:
    job = LONG.model_copy(update={"numjobs": 1, "ramp_time": 1.0, "runtime": 0.5})
    start = time.monotonic()

    text, (row,) = run_job(job, volume, pid_file=tmp_path / "fio.pid", refill=lambda: 0.0)

    assert time.monotonic() - start >= 1.5
    reads = json.loads(text)["jobs"][0]["read"]
    assert reads["runtime"] / 1000 == pytest.approx(0.5, abs=0.3)
    assert row.iops == pytest.approx(reads["total_ios"] / (reads["runtime"] / 1000), rel=0.01)


def test_a_kill_of_the_group_in_the_pid_file_is_reported_and_leaves_nothing(
    volume: Volume, tmp_path: Path
) -> None:
    killer = threading.Thread(target=lambda: os.killpg(wait_for_job(volume, tmp_path / "fio.pid"), 9))
    killer.start()

    with pytest.raises(
        CommandError, match=r"baseline long on here: fio: exit code -9: no output; run 'esrally-ebs"
    ):
        run_job(LONG, volume, pid_file=tmp_path / "fio.pid", refill=lambda: 0.0)

    killer.join()
    assert list(volume.mount.iterdir()) == []


def test_a_job_that_outlives_its_limit_is_ended(volume: Volume, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="fio still ran after 1 s and was ended"):
        run_job(LONG, volume, pid_file=tmp_path / "fio.pid", refill=lambda: 0.0, timeout_s=1.0)


def test_a_refill_that_fails_leaves_nothing(volume: Volume, tmp_path: Path) -> None:
    def refill() -> float:
        raise SetupError("the daemon has died")

    with pytest.raises(SetupError, match="the daemon has died"):
        run_job(JOB, volume, pid_file=tmp_path / "fio.pid", refill=refill)

    assert list(volume.mount.iterdir()) == []


def test_telemetry_counts_the_ios_that_fio_did(tmp_path: Path) -> None:
    with on_loop(tmp_path / "image", tmp_path / "mount", mib=512, filesystem="xfs") as mount:
        device = Path(run(["findmnt", "-n", "-o", "SOURCE", mount], timeout_s=10).strip()).name
        volume = dataclasses.replace(volume_at(mount), device=device)
        sampler = Sampler([(volume, None)], read_state=lambda control: {})

        begins: list[float] = []

        def refill() -> float:
            os.sync()  # what the layout left, so that only the job is between the two samples
            sampler.sample()
            begins.append(time.monotonic())
            return 0.0

        job = BaselineJob(name="cold", rw="randread", bs=4096, size=SIZE)
        text, (row,) = run_job(job, volume, pid_file=tmp_path / "fio.pid", refill=refill)
        rates = {point.metric: point.value for point in sampler.sample()}
        seconds = time.monotonic() - begins[0]

    # 4 MiB in blocks of 4 KiB are 1024 reads; the interval is known to about 1 %, and XFS may read a little.
    assert parse_fio(text, "text")[0].ios == 1024
    assert rates["device.reads_per_s"] * seconds == pytest.approx(1024, rel=0.05)
    assert rates["device.read_bytes_per_s"] * seconds == pytest.approx(SIZE, rel=0.05)
    assert 0 < rates["device.read_await_s"] <= 2 * row.mean_s


def test_a_full_mount_is_named_before_fio_starts(tmp_path: Path) -> None:
    with in_memory(tmp_path / "full", "size=2m") as mount:
        why = r"full: 2.0 MiB free, baseline seq-rw-16k-x2 needs 4.0 MiB; free some"
        with pytest.raises(SetupError, match=why):
            run_job(JOB, volume_at(mount), pid_file=tmp_path / "fio.pid", refill=lambda: 0.0)
        assert list(mount.iterdir()) == []


def test_a_read_only_mount_is_named(tmp_path: Path) -> None:
    why = r"ro/fio: Read-only file system; mount the arm writable"
    with in_memory(tmp_path / "ro", "ro,size=16m") as mount, pytest.raises(SetupError, match=why):
        run_job(JOB, volume_at(mount), pid_file=tmp_path / "fio.pid", refill=lambda: 0.0)


@pytest.mark.parametrize("when", ["before the job", "during the job"])
def test_a_volume_that_was_unmounted_is_not_measured(tmp_path: Path, when: str) -> None:
    mount = tmp_path / "gone"
    mount.mkdir()
    run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", mount], timeout_s=10)
    volume = describe(volume_at(mount).spec, mount, Kind.DIRECTORY)

    def unmount() -> float:
        run(["umount", "--lazy", mount], timeout_s=10)
        return 0.0

    if when == "before the job":
        unmount()
    try:
        with pytest.raises(SetupError, match=r"arm here: its volume is no longer mounted at .*/gone, which"):
            run_job(JOB, volume, pid_file=tmp_path / "fio.pid", refill=unmount)
        assert list(mount.iterdir()) == []
    finally:
        if mount.is_mount():
            unmount()


def test_a_missing_fio_is_named(volume: Volume, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match=r"fio: not found; install it \(apt-get install fio\)"):
        run_job(JOB, volume, pid_file=tmp_path / "fio.pid", refill=lambda: 0.0)
