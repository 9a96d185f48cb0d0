"""Choosing a backend, plain directories, real mounts refused; nothing here needs root."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from esrally_ebs import volumes
from esrally_ebs.emulator.control import LimiterState, change, read_state
from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.model import Kind, Volume, VolumeSpec
from esrally_ebs.system import Clock
from esrally_ebs.volumes.mounted import check_distinct, check_mount
from esrally_ebs.volumes.mounts import mount_holding

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
    assert volumes.backend_name(spec) == backend


def test_an_unknown_type_is_refused_with_all_that_there_are() -> None:
    with pytest.raises(
        PlanError, match=r"^volume 'a': no type 'gp9'; use one of directory, efs, gp2, gp3, .*mounted"
    ):
        volumes.backend_name(_spec("gp9"))


def test_a_directory_made_for_a_volume_goes_with_it(tmp_path: Path) -> None:
    arm = tmp_path / "arm"
    with volumes.open_volume(_spec(), arm) as volume:
        assert volume.kind is Kind.DIRECTORY
        assert volume.filesystem == mount_holding(tmp_path).filesystem
        (volume.mount / "file").write_text("x")
    assert not arm.exists()


def test_a_directory_that_was_there_before_stays_with_all_it_holds(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text("x")
    with volumes.open_volume(_spec(mount=tmp_path / "data"), tmp_path / "arm"):
        pass
    assert (tmp_path / "data" / "file").read_text() == "x"


def test_missing_parents_of_a_directory_are_made_and_go_with_it(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    deep = tmp_path / "there" / "made" / "deep"
    with volumes.open_volume(_spec(mount=deep), tmp_path / "run" / "s" / "a") as volume:
        assert volume.mount.parent == deep
    assert list((tmp_path / "there").iterdir()) == []


def test_a_parent_made_for_a_directory_stays_with_what_somebody_put_there(tmp_path: Path) -> None:
    deep = tmp_path / "made" / "deep"
    with volumes.open_volume(_spec(mount=deep), tmp_path / "run" / "s" / "a"):
        (tmp_path / "made" / "note").write_text("x")
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["note"]


def test_a_parent_that_two_arms_share_goes_with_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESRALLY_EBS_RUN", str(tmp_path / "run"))
    arms = [tmp_path / "run" / session / "arm" for session in ("s", "t")]
    for arm in arms:
        volumes.attach(_spec(mount=tmp_path / "made" / arm.parent.name), arm)
    (tmp_path / "run" / "t" / "cut").mkdir()
    (tmp_path / "run" / "t" / "cut" / "volume.json").write_text("{")  # of another arm, nobody's here

    volumes.detach(arms[0])
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["t"]
    volumes.detach(arms[1])
    assert not (tmp_path / "made").exists()


def test_parents_that_were_made_in_vain_go_at_once(tmp_path: Path) -> None:
    session = "s" * 250  # a directory of its name cannot be made, those above it can
    with pytest.raises(SetupError, match="File name too long; give another directory"):
        volumes.attach(_spec(mount=tmp_path / "made" / "deep"), tmp_path / session / "a")
    assert not (tmp_path / "made").exists()


def test_an_attached_volume_is_detached_by_its_directory_alone_and_twice_does_no_harm(tmp_path: Path) -> None:
    volume = volumes.attach(_spec(), tmp_path / "arm")
    assert volume.mount.is_dir()
    for _ in range(2):
        volumes.detach(tmp_path / "arm")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_takes_one_volume_at_a_time(tmp_path: Path) -> None:
    with (
        volumes.open_volume(_spec(), tmp_path / "arm"),
        pytest.raises(SetupError, match="a volume is attached there already"),
    ):
        volumes.attach(_spec(), tmp_path / "arm")


def test_a_path_that_is_no_mount_point_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        PlanError, match=f"^volume 'a': {tmp_path} is not a mount point; mount the volume there"
    ):
        volumes.attach(_spec("gp2", mount=tmp_path), tmp_path / "arm")
    assert not (tmp_path / "arm").exists()


def test_a_read_only_mount_is_refused() -> None:
    with pytest.raises(SetupError, match="is read-only"):
        check_mount(Path("/proc"), name="a")  # takes no files, which is as good


def test_a_mounted_volume_needs_a_mount(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="mount is missing; give the path of the mount point"):
        volumes.attach(_spec("mounted"), tmp_path / "arm")


def test_two_arms_on_one_device_are_refused_by_name() -> None:
    root = Path("/")
    with pytest.raises(PlanError, match=r"^volumes 'a' and 'b': / and / are on one device"):
        check_distinct([_spec("gp2", mount=root), _spec("gp3", name="b", mount=root)])


def test_a_directory_has_no_buckets_to_wait_for(tmp_path: Path) -> None:
    with volumes.open_volume(_spec(), tmp_path / "arm") as volume:
        assert volumes.wait_refilled(volume, clock=_counting_clock()) == 0.0


def test_a_real_volume_is_given_one_idle_second_to_refill(tmp_path: Path) -> None:
    volume = Volume(spec=_spec("gp3"), kind=Kind.EBS, mount=tmp_path)
    assert volumes.wait_refilled(volume, clock=_counting_clock()) == 1.0


def test_waiting_ends_when_the_buckets_are_full(tmp_path: Path) -> None:
    volume = Volume(spec=_spec("gp3"), kind=Kind.EMULATED, mount=tmp_path, control=tmp_path / "control")
    with _answering(tmp_path / "control", [_state(0.7), _state(0.1), _state(0.0)]):
        assert volumes.wait_refilled(volume, clock=_counting_clock()) == pytest.approx(0.8)


def test_a_dead_daemon_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"control: the volume's daemon does not answer .*esrally-ebs clean"):
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
