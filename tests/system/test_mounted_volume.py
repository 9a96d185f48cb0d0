"""Real mounts taken as arms: what is refused, and that nothing on them is touched."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from attached import open_volume
from mounted import on_loop

from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.machine.processes import run
from esrally_ebs.model import Kind, Volume, VolumeSpec
from esrally_ebs.node.eviction import evict
from esrally_ebs.telemetry.observation import snapshot
from esrally_ebs.volumes import backends as volumes
from esrally_ebs.volumes.emulated.control import read_state
from esrally_ebs.volumes.mounted import check_distinct, check_mount

pytestmark = [pytest.mark.system, pytest.mark.beside]

MIB, GIB = 1024**2, 1024**3


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Path]:
    """An ext4 file system of 600 MiB on a loop device."""
    with on_loop(tmp_path / "image", tmp_path / "mount", mib=600) as point:
        yield point


def _spec(mount: Path, name: str = "gp2") -> VolumeSpec:
    return VolumeSpec(name=name, type="gp2", size_bytes=GIB, mount=mount)


def test_a_real_mount_is_described_and_left_as_it_is(mount: Path, tmp_path: Path) -> None:
    (mount / "mine").write_text("x")
    with open_volume(_spec(mount), tmp_path / "arm") as volume:
        assert volume.kind is Kind.DIRECTORY  # a device that is not EBS
        assert volume.mount.parent == mount
        assert volume.filesystem == "ext4"
        assert 500 * MIB < volume.spec.size_bytes < 600 * MIB  # its own size, not the plan's
        assert str(volume.device).startswith("loop")
        assert volume.readahead_bytes
    assert (mount / "mine").read_text() == "x"
    assert sorted(path.name for path in mount.iterdir()) == ["lost+found", "mine"]
    assert not (tmp_path / "arm").exists()


def test_bytes_by_layer_tell_a_cache_below_the_file_system(mount: Path, tmp_path: Path) -> None:
    """A loop device without direct I/O answers from memory what was evicted above it."""

    def read_cold(volume: Volume) -> tuple[float, float]:
        evict([], volume.mount)
        before = snapshot(volume, read_state=read_state)
        (volume.mount / "index").read_bytes()
        after = snapshot(volume, read_state=read_state)
        return tuple(after[name] - before[name] for name in ("device.read_bytes", "lowest.read_bytes"))

    with open_volume(_spec(mount), tmp_path / "arm") as volume:
        (volume.mount / "index").write_bytes(os.urandom(32 * MIB))
        # the lowest device is the machine's, which others may read from meanwhile
        read, reached = min((read_cold(volume) for _ in range(5)), key=lambda counted: counted[1])
        assert read >= 32 * MIB
        assert reached < 0.5 * read
        run(["losetup", "--direct-io=on", f"/dev/{volume.device}"], timeout_s=10)
        read, reached = read_cold(volume)
        assert reached >= 0.9 * read >= 0.9 * 32 * MIB


def test_an_index_that_is_already_on_the_mount_is_not_the_sessions(mount: Path, tmp_path: Path) -> None:
    theirs = mount / "elasticsearch"
    theirs.mkdir()
    (theirs / "node.lock").touch()
    with open_volume(_spec(mount), tmp_path / "arm") as volume:
        assert volume.mount / "elasticsearch" != theirs
        (volume.mount / "elasticsearch").mkdir()
        (volume.mount / "elasticsearch" / "ours").touch()
    assert [path.name for path in theirs.iterdir()] == ["node.lock"]
    assert sorted(path.name for path in mount.iterdir()) == ["elasticsearch", "lost+found"]


def test_what_a_killed_session_wrote_on_a_mount_is_found_from_its_directory(
    mount: Path, tmp_path: Path
) -> None:
    volume = volumes.attach(_spec(mount), tmp_path / "session" / "arm")
    (volume.mount / "fio-bench").write_text("x")
    volumes.detach(tmp_path / "session" / "arm")
    assert [path.name for path in mount.iterdir()] == ["lost+found"]


def test_what_is_on_a_volume_that_somebody_unmounted_is_named_and_goes_once_it_is_back(
    mount: Path, tmp_path: Path
) -> None:
    volume, arm = volumes.attach(_spec(mount), tmp_path / "session" / "arm"), tmp_path / "session" / "arm"
    run(["umount", mount], timeout_s=10)
    try:
        with pytest.raises(SetupError, match=f"^{mount}: is not mounted any more, and {volume.mount.name} "):
            volumes.detach(arm)
    finally:
        run(["mount", "-o", "loop", tmp_path / "image", mount], timeout_s=10)
    assert volume.mount.is_dir()
    volumes.detach(arm)
    assert [path.name for path in mount.iterdir()] == ["lost+found"]
    assert not arm.exists()


def test_what_a_broken_file_system_may_hold_is_not_called_removed(tmp_path: Path) -> None:
    """After fatal errors XFS answers every look with one."""
    arm = tmp_path / "session" / "arm"
    with on_loop(tmp_path / "of-xfs", tmp_path / "xfs", mib=600, filesystem="xfs") as point:
        volume = volumes.attach(_spec(point), arm)
        run(["xfs_io", "-x", "-c", "shutdown", point], timeout_s=10)
        with pytest.raises(SetupError, match=f"^{volume.mount}: cannot be removed; see that its mount"):
            volumes.detach(arm)


def test_a_read_only_mount_is_refused(mount: Path) -> None:
    run(["mount", "-o", "remount,ro", mount], timeout_s=10)
    with pytest.raises(SetupError, match=f"^volume 'gp2': {mount} is read-only; mount it for writing$"):
        check_mount(mount, name="gp2")


def test_a_full_mount_is_refused_with_what_is_missing(mount: Path) -> None:
    with pytest.raises(SetupError, match=r"is full: 5\d\d\.\d MiB free, 1\.0 GiB needed; make room on it$"):
        check_mount(mount, name="gp2", min_free_bytes=GIB)


def test_one_device_mounted_twice_is_not_two_arms(mount: Path, tmp_path: Path) -> None:
    second = tmp_path / "second"
    second.mkdir()
    run(["mount", "--bind", mount, second], timeout_s=10)
    try:
        with pytest.raises(PlanError, match=r"^volumes 'gp2' and 'gp3': .* are on one device"):
            check_distinct([_spec(mount), _spec(second, "gp3")])
    finally:
        run(["umount", second], timeout_s=10)
