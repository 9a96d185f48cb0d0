"""Emulated volumes at work: what they hold and how it is changed, striped, or shared by an instance; and data
that are never torn or lost.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from mmap import mmap
from pathlib import Path

import pytest
from attached import open_volume
from emulated_arms import GIB, MIB, control_of, daemon_of, fio_at_the_limits, lay_out, spec_of
from leftovers import leftovers

from esrally_ebs.cli import main
from esrally_ebs.errors import SetupError
from esrally_ebs.machine.mounts import mount_at
from esrally_ebs.machine.processes import SYSTEM_CLOCK, run
from esrally_ebs.machine.resources import run_dir
from esrally_ebs.model import Volume
from esrally_ebs.session import clean, manual
from esrally_ebs.store import running
from esrally_ebs.volumes import backends as volumes
from esrally_ebs.volumes.emulated.control import change, read_state

pytestmark = pytest.mark.system
needs_btrfs = pytest.mark.skipif(shutil.which("mkfs.btrfs") is None, reason="needs btrfs-progs")

_BLOCK = 64 * 1024
_RANDREAD = ("--rw=randread", "--bs=16k", "--ioengine=libaio", "--iodepth=64")


def test_a_scaled_burst_and_its_recovery_take_as_long_as_the_arithmetic_says(arms: Path) -> None:
    # 100 GiB of gp2: 5.4 million credits, bursts to 3000 a second, 300 a second come in. A thousandth of it
    # lasts 5400 / 2700 = 2 s; half of it comes back in 2700 / 300 = 9 s, a ninth of that in 1 s. Beside other
    # work fewer reads may be asked for, and then the burst lasts longer by as many: never shorter.
    spec = spec_of(type_="gp2", size_bytes=100 * GIB, time_scale=1000)
    with open_volume(spec, arms / "a") as volume:
        lay_out(volume, 64)
        control = control_of(volume)
        change(control, credits=1.0, refill=True)
        with _reading(volume, "--iodepth=32", "--runtime=3"):
            _until(lambda: read_state(control).in_flight > 16)
            start = time.monotonic()
            first = read_state(control)
            _until(lambda: read_state(control).levels["credits"] <= 0)
            burst_s, last = time.monotonic() - start, read_state(control)
        before = first.levels["credits"]
        assert last.reads - first.reads == pytest.approx(before + 300 * burst_s, rel=0.02)
        assert burst_s > before / 2700 * 0.98
        begins = time.monotonic()
        before = read_state(control).levels["credits"]
        begun = time.monotonic()
        _until(lambda: read_state(control).levels["credits"] >= before + 300)
        ends = time.monotonic()
        gained = read_state(control).levels["credits"] - before
        assert 300 * (ends - begun) * 0.98 <= gained <= 300 * (time.monotonic() - begins) * 1.02


def test_a_read_never_sees_half_a_write(arms: Path) -> None:
    spec = spec_of(size_bytes=40 * GIB, iops=16_000, throughput_bytes_per_s=1000 * MIB)
    with open_volume(spec, arms / "a") as volume:
        lay_out(volume, 1)
        descriptor = os.open(volume.mount / "fio", os.O_RDWR | os.O_DIRECT)
        stop = threading.Event()
        with mmap(-1, _BLOCK) as memory:
            os.pwrite(descriptor, memory, 0)
        with ThreadPoolExecutor(3) as pool:
            writers = [pool.submit(_write_letters, descriptor, letters, stop) for letters in (b"abc", b"xyz")]
            try:
                letters_read = _read_letters(descriptor, seconds=1.5)
            finally:
                stop.set()
            written = sum(writer.result() for writer in writers)
        os.close(descriptor)
        assert written > 500
        assert len(letters_read) > 3  # reads saw writes of both, and each of them whole


@pytest.mark.beside
def test_what_was_flushed_is_in_the_image_after_the_daemon_is_killed(
    arms: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image, words = tmp_path / "image", os.urandom(_BLOCK)
    calls, tool = tmp_path / "calls", tmp_path / "tools" / "mount"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\necho "$*" >> {calls}\nexec {shutil.which("mount")} "$@"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    run(["truncate", "--size=2G", image], timeout_s=10)
    run(["mkfs.xfs", "-q", image], timeout_s=60)
    volume = volumes.attach(spec_of(), arms / "a", backing=image)
    with (volume.mount / "file").open("wb") as file:
        file.write(words)
        os.fsync(file.fileno())
        daemon_of(volume).signal(signal.SIGKILL)
    volumes.detach(arms / "a")
    # the kernel would try for ever to write what is left to a device that is dead, and hold up every sync(2)
    assert "remount" not in calls.read_text()
    run(["mount", "-o", "loop", image, tmp_path], timeout_s=20)
    try:
        assert (tmp_path / "file").read_bytes() == words
    finally:
        run(["umount", tmp_path], timeout_s=20)


@pytest.mark.parametrize("by", ["device", pytest.param("btrfs", marks=needs_btrfs)])
def test_striped_volumes_do_as_much_as_all_of_them_and_leave_nothing(arms: Path, by: str) -> None:
    with open_volume(spec_of(stripes=3, striped_by=by), arms / "a") as volume:
        lay_out(volume, 256)
        job = fio_at_the_limits(volume, *_RANDREAD, "--size=256m", "--runtime=2")
        # 3 x 3000, less what random addresses leave idle on one while another is late
        assert job["read"]["iops"] == pytest.approx(9000, rel=0.05)
        waited_s = read_state(control_of(volume)).waited_s
        assert all(waited_s[f"{number}-iops"] > 0 for number in (1, 2, 3))


@pytest.mark.beside
@needs_btrfs
def test_one_dead_volume_of_a_stripe_is_an_error_and_all_are_detached(arms: Path) -> None:
    volume = volumes.attach(spec_of(stripes=2, striped_by="btrfs"), arms / "a")
    one = arms / "a" / "1" / "control"
    daemon_of(Volume(spec=volume.spec, kind=volume.kind, mount=volume.mount, control=one)).signal(
        signal.SIGKILL
    )
    with pytest.raises(SetupError, match="does not answer"):
        read_state(control_of(volume))
    volumes.detach(arms / "a")
    assert leftovers() == ()


@needs_btrfs
def test_a_dead_volume_of_another_is_not_in_the_way_of_a_stripe_and_stays(arms: Path) -> None:
    other = volumes.attach(spec_of("other"), arms / "other")
    daemon_of(other).signal(signal.SIGKILL)
    try:
        with open_volume(spec_of(stripes=2, striped_by="btrfs"), arms / "a") as volume:
            assert volume.filesystem == "btrfs"
        assert mount_at(other.mount) is not None
    finally:
        volumes.detach(arms / "other")


def test_the_volumes_of_an_instance_share_its_limit_across_daemons(arms: Path) -> None:
    # A t3.small lets 2,085 Mbit/s = 260.6 MB/s through, and each of the volumes could do 250 MiB/s.
    def of(name: str) -> object:
        spec = spec_of(name, throughput_bytes_per_s=250 * MIB, instance="t3.small")
        return open_volume(spec, arms / name)

    with of("a") as first, of("b") as second:  # type: ignore[attr-defined]
        for volume in (first, second):
            lay_out(volume, 64)
        options = (
            "--rw=randread",
            "--bs=256k",
            "--ioengine=libaio",
            "--iodepth=16",
            "--size=64m",
            "--runtime=2",
        )
        with ThreadPoolExecutor(2) as pool:
            jobs = list(pool.map(lambda volume: fio_at_the_limits(volume, *options), (first, second)))
        assert sum(job["read"]["bw_bytes"] for job in jobs) == pytest.approx(260.6e6, rel=0.05)
        assert read_state(control_of(first)).waited_s["instance-throughput"] > 0
        assert read_state(control_of(second)).waited_s["instance-throughput"] > 0


_PLAN = """
name = "ebs-test-live"
[[arm]]
name = "small"
type = "gp2"
size = "100GiB"
credits = 0.5
time_scale = 10
"""


@pytest.mark.beside
def test_limiters_are_shown_and_set_from_the_command_line(
    arms: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plan.toml").write_text(_PLAN)
    (volume,) = manual.up(str(tmp_path / "plan.toml"))
    try:
        for name in ("small", f"{volume.mount}/"):  # as a shell completes it
            assert main(["volumes", "show", name]) == 0
            assert "50.0%" in capsys.readouterr().out
        assert main(["volumes", "set", "small", "--credits", "0", "--time-scale", "100"]) == 0
        shown = capsys.readouterr().out
        assert "54,000" in shown
        assert "time scale 100" in shown
        assert main(["volumes", "show", "other"]) == 2
        assert "not attached" in capsys.readouterr().err
    finally:
        manual.down()
    assert "by-hand-ebs-test-live" not in running.sessions()[0]


def two_arms(folder: Path) -> Path:
    """The plan of a second arm besides."""
    path = folder / "plan.toml"
    head, _, arm = _PLAN.partition("[[arm]]")
    path.write_text(f"{head}[[arm]]{arm}[[arm]]{arm.replace('small', 'second')}")
    return path


@pytest.mark.beside
def test_volumes_in_use_stay_attached_all_of_them_and_who_uses_them_is_named(
    arms: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = two_arms(tmp_path)
    attached = manual.up(str(path))
    try:
        with (attached[1].mount / "open").open("w"):
            assert main(["volumes", "down"]) == 3
            error = capsys.readouterr().err
            assert f"{attached[1].mount} is used by " in error
            assert f"(pid {os.getpid()})" in error
            assert error.count("\n") == 1
            assert all(mount_at(volume.mount) is not None for volume in attached)
        other = tmp_path / "other.toml"
        other.write_text(_PLAN.replace("ebs-test-live", "another"))
        assert main(["volumes", "down", str(other)]) == 0
        assert "no arm of" in capsys.readouterr().out
        assert all(mount_at(volume.mount) is not None for volume in attached)
        assert main(["volumes", "down", str(path)]) == 0
    finally:
        manual.down()
    assert all(mount_at(volume.mount) is None for volume in attached)


@pytest.mark.beside
def test_an_arm_whose_daemon_was_killed_goes_down_with_the_others(
    arms: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    attached = manual.up(str(two_arms(tmp_path)))
    try:
        daemon_of(attached[0]).signal(signal.SIGKILL)
        with (
            pytest.raises(OSError, match="Input/output error"),
            (attached[0].mount / "file").open("w") as file,
        ):
            os.fsync(file)
        assert main(["volumes", "down"]) == 0, capsys.readouterr().err
    finally:
        clean.take_down("by-hand-ebs-test-live")
    assert all(mount_at(volume.mount) is None for volume in attached)


@pytest.mark.beside
def test_a_command_that_is_ended_while_it_attaches_leaves_nothing(arms: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "esrally_ebs", "volumes", "up", two_arms(tmp_path)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as command:
        first = run_dir() / "by-hand-ebs-test-live" / "small" / "mnt"
        assert SYSTEM_CLOCK.wait_until(lambda: mount_at(first) is not None, limit_s=60, poll_s=0.01)
        command.send_signal(signal.SIGTERM)
        _, said = command.communicate(timeout=60)
    remained = leftovers()
    clean.take_down("by-hand-ebs-test-live")
    assert (command.returncode, said, remained) == (130, "esrally-ebs: cancelled\n", ())


@pytest.mark.beside
def test_credits_of_a_volume_without_any_are_refused(
    arms: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(_PLAN.replace('"gp2"', '"gp3"').replace("credits = 0.5\n", ""))
    manual.up(str(path))
    try:
        assert main(["volumes", "set", "small", "--credits", "0"]) == 2
        assert "has no burst credits" in capsys.readouterr().err
        assert main(["volumes", "show", "small"]) == 0
        shown = capsys.readouterr().out
        assert "3,000 I/Os/s" in shown
        assert "125.0 MiB/s" in shown
        assert "small (gp3, emulated)" in shown
    finally:
        manual.down()


@contextmanager
def _reading(volume: Volume, *options: str) -> Iterator[None]:
    words = ["fio", "--name=job", f"--filename={volume.mount}/fio", "--direct=1", "--rw=randread", "--bs=4k"]
    more = ["--thread", "--ioengine=libaio", "--size=64m", "--time_based", *options]  # threads die with it
    with subprocess.Popen([*words, *more], stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


def _until(reached: Callable[[], object]) -> None:
    assert SYSTEM_CLOCK.wait_until(reached, limit_s=15.0, poll_s=0.005)


def _write_letters(descriptor: int, letters: bytes, stop: threading.Event) -> int:
    count = 0
    with mmap(-1, _BLOCK) as memory:
        while not stop.is_set():
            memory[:] = letters[count % len(letters) :][:1] * _BLOCK
            os.pwrite(descriptor, memory, 0)
            count += 1
    return count


def _read_letters(descriptor: int, *, seconds: float) -> set[bytes]:
    """What blocks were made of; every block of one letter only."""
    letters = set()
    until = time.monotonic() + seconds
    with mmap(-1, _BLOCK) as memory:
        while time.monotonic() < until:
            os.preadv(descriptor, (memory,), 0)
            first = memory[:1]
            assert memory[:] == first * _BLOCK
            letters.add(first)
    return letters
