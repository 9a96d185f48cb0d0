"""Choosing a backend, plain directories, real mounts refused; nothing here needs root."""

import errno
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from attached import open_volume
from fake_machine import FakeMachine

from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.machine.disks import mounts_of
from esrally_ebs.machine.mounts import mount_holding
from esrally_ebs.machine.processes import Clock
from esrally_ebs.model import Kind, Volume, VolumeSpec
from esrally_ebs.plan.plan import PLUG_INS
from esrally_ebs.volumes import backends as volumes
from esrally_ebs.volumes import mounted
from esrally_ebs.volumes.emulated import backend as emulated_backend
from esrally_ebs.volumes.emulated.control import LimiterState, change, read_state
from esrally_ebs.volumes.mounted import check_distinct, check_mount
from esrally_ebs.volumes.record import RECORD_NAME, Record, read_record, write_record

GIB = 1024**3


def _spec(type_: str = "directory", **more: int | Path | str) -> VolumeSpec:
    return VolumeSpec(**{"name": "a", "type": type_, "size_bytes": GIB} | more)


@pytest.mark.parametrize(
    ("spec", "backend"),
    [
        (_spec("gp2"), "emulated"),
        (_spec("gp3"), "emulated"),
        (_spec("gp3", mount=Path("/mnt/a")), "mounted"),
        (_spec("mounted", mount=Path("/mnt/a")), "mounted"),
        (_spec("directory", mount=Path("/data")), "directory"),
    ],
)
def test_the_type_and_a_mount_decide_the_backend(spec: VolumeSpec, backend: str) -> None:
    assert spec.backend == backend


def test_volumes_that_the_kernel_stripes_share_what_is_known_of_their_instance() -> None:
    """Each of eight devices was one of its own, with the 3.3 million IOPS of all disks of the instance."""
    spec = _spec("instance-store", instance="i3.16xlarge", stripes=8, striped_by="btrfs")
    members = list(emulated_backend.members_of(spec))
    assert [one.name for one, _ in members] == [model.name for _, model in members]
    assert {(one.stripes, model.stripes) for one, model in members} == {(1, 1)}
    assert sum(model.limits[0].rate for _, model in members) == pytest.approx(3_300_000)


def test_a_package_can_add_a_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plug-in is used by the commands as any other backend, and found again from the directory alone."""
    module = ModuleType("ramdisks")
    detached: list[Path] = []
    module.attach = lambda spec, directory, *, backing: Volume(  # type: ignore[attr-defined]
        spec=spec, kind=Kind.DIRECTORY, mount=directory
    )
    module.detach = detached.append  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ramdisks", module)
    point = EntryPoint(name="ramdisk", value="ramdisks", group=PLUG_INS)
    monkeypatch.setattr(volumes, "entry_points", lambda *, group, name: [point] if name == point.name else [])

    assert volumes.attach(_spec("ramdisk"), tmp_path / "arm").mount == tmp_path / "arm"
    with monkeypatch.context() as uninstalled:
        uninstalled.setattr(volumes, "entry_points", lambda **_: [])
        with pytest.raises(SetupError, match=f"{tmp_path}/arm: its volume is of the backend 'ramdisk'"):
            volumes.detach(tmp_path / "arm")
    volumes.detach(tmp_path / "arm")
    assert detached == [tmp_path / "arm"]
    assert not (tmp_path / "arm").exists()

    del module.detach  # type: ignore[attr-defined]
    with pytest.raises(SetupError, match=r"'ramdisk' \(package ramdisks\): ramdisks lacks attach or detach"):
        volumes.attach(_spec("ramdisk"), tmp_path / "arm")


def test_a_directory_made_for_a_volume_goes_with_it(tmp_path: Path) -> None:
    arm = tmp_path / "arm"
    with open_volume(_spec(), arm) as volume:
        assert volume.kind is Kind.DIRECTORY
        assert volume.filesystem == mount_holding(tmp_path).filesystem
        (volume.mount / "file").write_text("x")
    assert not arm.exists()


def test_a_directory_that_was_there_before_stays_with_all_it_holds(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text("x")
    with open_volume(_spec(mount=tmp_path / "data"), tmp_path / "arm"):
        pass
    assert (tmp_path / "data" / "file").read_text() == "x"


def test_a_directory_is_never_made_on_the_way(tmp_path: Path) -> None:
    """The file system that a missing mount would be on is another one."""
    with pytest.raises(SetupError, match="No such file or directory; give another directory"):
        volumes.attach(_spec(mount=tmp_path / "not" / "mounted"), tmp_path / "s" / "a")
    assert list(tmp_path.iterdir()) == [tmp_path / "s"]


def test_a_volume_that_dies_while_it_is_attached_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the name of a file, as a read of it fails: 'what was read or written' was all that was said."""

    def dying(*_: object, **__: object) -> Volume:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(emulated_backend, "attach", dying)
    spec = VolumeSpec(name="gp3", type="gp3", size_bytes=1 << 30)
    with pytest.raises(SetupError, match=f"volume 'gp3': {tmp_path}/gp3: Input/output error; see that there"):
        volumes.attach(spec, tmp_path / "gp3")


def test_an_attached_volume_is_detached_by_its_directory_alone_and_twice_does_no_harm(tmp_path: Path) -> None:
    volume = volumes.attach(_spec(), tmp_path / "arm")
    assert volume.mount.is_dir()
    for _ in range(2):
        volumes.detach(tmp_path / "arm")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_removed_from_a_mount_is_named_until_it_has_gone(tmp_path: Path) -> None:
    own = volumes.attach(_spec(), tmp_path / "arm").mount
    own.rmdir()
    own.symlink_to(tmp_path)  # never removed, also not by root
    for _ in range(2):
        with pytest.raises(SetupError, match=f"^{own}: cannot be removed; see that its mount can be written"):
            volumes.detach(tmp_path / "arm")
    own.unlink()
    volumes.detach(tmp_path / "arm")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("late", [False, True])
def test_what_others_have_put_in_the_place_of_our_directory_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """On a mount where all may write, as in /tmp."""
    own = tmp_path / "esrally-ebs-s"

    def write_late(directory: Path, record: Record) -> None:
        write_record(directory, record)
        own.mkdir()

    if late:
        monkeypatch.setattr(mounted, "write_record", write_late)
    else:
        own.symlink_to("nowhere")
    monkeypatch.setattr(mounted, "check_mount", lambda *_, **__: SimpleNamespace(mount_point=tmp_path))
    with pytest.raises(SetupError, match=r"volume 'a': .*/esrally-ebs-s(:| exists already;)"):
        volumes.attach(_spec("gp3", mount=tmp_path), tmp_path / "run" / "s" / "a")
    volumes.detach(tmp_path / "run" / "s" / "a")
    assert own.is_dir() if late else own.is_symlink()


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    record = Record(backend="directory", name="a", type="directory", created=(tmp_path / "x" / "y",))
    write_record(tmp_path / "a", record)
    assert read_record(tmp_path / "a") == record
    assert read_record(tmp_path / "b") is None


def test_a_record_that_was_cut_is_named(tmp_path: Path) -> None:
    (tmp_path / RECORD_NAME).write_text('{"backend": "emul')
    with pytest.raises(SetupError, match=r"volume\.json: cut, or not ours; look at what is mounted there"):
        read_record(tmp_path)


def test_a_directory_takes_one_volume_at_a_time(tmp_path: Path) -> None:
    with (
        open_volume(_spec(), tmp_path / "arm"),
        pytest.raises(SetupError, match="a volume is attached there already"),
    ):
        volumes.attach(_spec(), tmp_path / "arm")


def test_a_path_that_is_no_mount_point_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        PlanError, match=f"^volume 'a': {tmp_path} is not a mount point; mount the volume there"
    ):
        volumes.attach(_spec("gp2", mount=tmp_path), tmp_path / "arm")
    assert not (tmp_path / "arm").exists()


def test_links_in_a_circle_are_no_mount_point(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(PlanError, match="loop does not exist; mount the volume there first"):
        check_mount(tmp_path / "loop", name="a")


def test_a_read_only_mount_is_refused() -> None:
    with pytest.raises(SetupError, match="is read-only"):
        check_mount(Path("/proc"), name="a")  # takes no files, which is as good


@pytest.mark.parametrize(
    ("root", "says"),
    [(False, "this user may not write to {}; run as root"), (True, "root may not write to {}; let root in")],
    ids=["user", "root"],
)
def test_a_mount_that_this_user_may_not_write_to_is_not_called_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: bool, says: str
) -> None:
    """Also of root, whom NFS takes for another (root_squash)."""

    def refuse(**_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    mount = SimpleNamespace(mount_point=tmp_path, read_only=False)
    monkeypatch.setattr(mounted, "mount_at", lambda path: mount)
    monkeypatch.setattr(mounted.tempfile, "TemporaryFile", refuse)
    monkeypatch.setattr(mounted, "is_root", lambda: root)
    with pytest.raises(SetupError, match=f"^volume 'a': {says.format(tmp_path)}"):
        check_mount(tmp_path, name="a")


def test_a_mounted_volume_needs_a_mount(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="mount is missing; give the path of the mount point"):
        volumes.attach(_spec("mounted"), tmp_path / "arm")


def test_two_arms_on_one_device_are_refused_by_name() -> None:
    root = Path("/")
    with pytest.raises(PlanError, match=r"^volumes 'a' and 'b': / and / are on one device"):
        check_distinct([_spec("gp2", mount=root), _spec("gp3", name="b", mount=root)])


def test_two_logical_volumes_of_one_disk_are_one_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = FakeMachine(tmp_path)
    disks = [machine.nvme(f"nvme{at}n1", f"259:{at}") for at in (1, 2)]
    for at, members in enumerate(([disks[0]], [disks[0]], [disks[1]])):
        machine.array(f"dm-{at}", f"253:{at}", members, uuid=f"LVM-{at}")
        machine.mount(f"/mnt/{at}", f"/dev/mapper/vg-{at}", f"253:{at}")
    points = {mount.mount_point: mount for mount in mounts_of(machine.roots)}
    monkeypatch.setattr(mounted, "mount_at", points.get)
    monkeypatch.setattr(mounted, "Roots", lambda: machine.roots)
    a, b, c = (_spec("gp3", name=name, mount=Path(f"/mnt/{at}")) for at, name in enumerate("abc"))
    check_distinct([a, c])
    with pytest.raises(PlanError, match=r"'a' and 'b': /mnt/0 and /mnt/1 are on one device \(nvme1n1\)"):
        check_distinct([a, c, b])


def test_a_directory_has_no_buckets_to_wait_for(tmp_path: Path) -> None:
    with open_volume(_spec(), tmp_path / "arm") as volume:
        assert volumes.wait_refilled(volume, clock=_counting_clock()) == 0.0


def test_a_real_volume_is_given_one_idle_second_to_refill(tmp_path: Path) -> None:
    volume = Volume(spec=_spec("gp3"), kind=Kind.EBS, mount=tmp_path)
    assert volumes.wait_refilled(volume, clock=_counting_clock()) == 1.0


def test_waiting_ends_when_the_buckets_are_full(tmp_path: Path) -> None:
    volume = Volume(spec=_spec("gp3"), kind=Kind.EMULATED, mount=tmp_path, control=tmp_path / "control")
    with _answering(tmp_path / "control", [_state(0.7), _state(0.1), _state(0.0)]):
        assert volumes.wait_refilled(volume, clock=_counting_clock()) == pytest.approx(0.8)


def test_a_dead_daemon_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"daemon does not answer .*clean', or 'volumes down PLAN' "):
        read_state(tmp_path / "control")


def test_what_the_daemon_refuses_is_one_line(tmp_path: Path) -> None:
    with (
        _answering(tmp_path / "control", [{"error": "ValueError: no setting 'x'"}]),
        pytest.raises(SetupError, match=r"refuses .*no setting 'x'"),
    ):
        change(tmp_path / "control", x=True)


def test_a_socket_path_of_any_length_is_reached(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    with _answering(deep / "control", [_state(0.0)]):
        assert read_state(deep / "control").seconds_until_full == 0.0


def _counting_clock() -> Clock:
    """A clock on which only sleeping takes time."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    return Clock(monotonic=lambda: now[0], sleep=sleep, epoch=lambda: now[0])


def _state(seconds_until_full: float) -> dict[str, Any]:
    return LimiterState(
        levels={},
        capacities={},
        credits=None,
        credits_capacity=None,
        seconds_until_full=seconds_until_full,
        waited_s={},
        target_s={},
        reads=0,
        writes=0,
        read_bytes=0,
        written_bytes=0,
        in_flight=0,
        unlimited=False,
        time_scale=1.0,
        errors=0,
    ).to_json()


@pytest.mark.parametrize(("kind", "size"), [(Kind.EFS, GIB), (Kind.EBS, 2**63 - 4096)])
def test_a_mounted_efs_keeps_the_size_that_the_plan_says_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind, size: int
) -> None:
    def answer(**fields: object) -> Any:  # noqa: ANN401 - to whatever is asked
        return lambda *_, **__: SimpleNamespace(**fields)

    monkeypatch.setattr(mounted, "check_mount", answer(mount_point=tmp_path))
    monkeypatch.setattr(mounted, "identify", answer(kind=kind, name="fs-1"))
    monkeypatch.setattr(mounted.shutil, "disk_usage", answer(total=2**63 - 4096))  # as NFS says of each EFS
    volume = mounted.attach(_spec("efs", mount=tmp_path), tmp_path / "s" / "a")
    assert volume.spec.size_bytes == size


@contextmanager
def _answering(path: Path, answers: list[dict[str, Any]]) -> Iterator[None]:
    """A daemon that gives these answers, one per connection."""
    directory = os.open(path.parent, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{directory}/{path.name}")
        listener.listen()
        listener.settimeout(5)

        def serve() -> None:
            for answer in answers:
                client, _ = listener.accept()
                with client:
                    client.recv(65536)
                    client.sendall(json.dumps(answer).encode() + b"\n")

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join()
    os.close(directory)
