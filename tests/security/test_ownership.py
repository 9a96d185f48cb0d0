"""Directories with well-known names, and mounts: used only when nobody else can replace what is in them."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import golden_session
import pytest
from stored import GP2

from esrally_ebs.cli import main
from esrally_ebs.cli.output import put
from esrally_ebs.errors import SetupError
from esrally_ebs.machine.caller import Caller
from esrally_ebs.machine.private import (
    private_directory,
    require_private,
    require_unchangeable,
)
from esrally_ebs.machine.processes import Process
from esrally_ebs.machine.resources import home
from esrally_ebs.model import VolumeSpec
from esrally_ebs.node import dataset, life
from esrally_ebs.node.data_directory import DataDirectory
from esrally_ebs.node.dataset import unfinished_folder
from esrally_ebs.session import clean, reaper
from esrally_ebs.store import running
from esrally_ebs.volumes import backends as volumes
from esrally_ebs.volumes.emulated import backend, release

NOBODY, OTHER = 65534, 65533
GIB = 1024**3
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_directory_of_ours_is_for_us_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)  # as some runners of CI jobs have it
    try:
        made = private_directory(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert (mode(made), mode(made.parent)) == (0o700, 0o700)
    assert private_directory(made) == made


@pytest.mark.parametrize("command", ["esrally", "esrally-ebs"])
def test_nobody_else_may_write_to_what_a_command_makes_whatever_the_umask(
    tmp_path: Path, command: str
) -> None:
    hook = (Path(__file__).parents[2] / "esrally_ebs.pth").read_text()
    ours = "from esrally_ebs.cli import main; main()"
    (tmp_path / command).write_text(f"{hook}\nopen('made', 'w')" if command == "esrally" else ours)
    words = [sys.executable, command, "dashboard", "--output", "made"]
    env = {**os.environ, "PYTHONNOUSERSITE": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(words, cwd=tmp_path, env=env, umask=0, check=True)
    assert mode(tmp_path / "made") == 0o664


def test_a_link_in_its_place_is_refused_and_what_it_names_is_untouched(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (tmp_path / "esrally-ebs").symlink_to(victim)
    with pytest.raises(SetupError, match="is a link"):
        private_directory(tmp_path / "esrally-ebs")
    assert list(victim.iterdir()) == []


def test_a_file_in_its_place_is_called_one_and_not_to_be_removed_unseen(tmp_path: Path) -> None:
    (tmp_path / "passwd").touch()
    with pytest.raises(SetupError, match="passwd: is a file, and no directory of ours; see whose it is"):
        require_private(tmp_path / "passwd")


def test_a_directory_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(SetupError, match="others may write to it"):
        private_directory(tmp_path / "open")


@needs_root
def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0o700)
    os.chown(tmp_path / "theirs", NOBODY, NOBODY)
    with pytest.raises(SetupError, match=f"belongs to user {NOBODY}"):
        private_directory(tmp_path / "theirs")


@needs_root
def test_who_is_not_root_is_sent_to_a_run_directory_of_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("ESRALLY_EBS_RUN", str(tmp_path / "run"))
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    with pytest.raises(SetupError, match=r"a: is root's; run as root or set ESRALLY_EBS_RUN to a directory"):
        running.begin("a")


@pytest.mark.parametrize("lacking", [{"f_bfree": 3}, {"f_ffree": 5}])
def test_nothing_is_attached_that_a_full_run_directory_could_not_tell_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: dict[str, int]
) -> None:
    room = {"f_blocks": 10_000, "f_frsize": 4096, "f_bfree": 10_000, "f_files": 10_000, "f_ffree": 10_000}
    monkeypatch.setenv("ESRALLY_EBS_RUN", str(tmp_path / "run"))
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(**{**room, **lacking}))
    with pytest.raises(SetupError, match="No space left on device; make room there or set ESRALLY_EBS_RUN"):
        running.begin("a")
    assert list((tmp_path / "run").iterdir()) == []


def test_no_session_begins_in_a_run_directory_that_others_may_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(0o777)
    monkeypatch.setenv("ESRALLY_EBS_RUN", str(tmp_path / "run"))
    with pytest.raises(SetupError, match="others may write to it"):
        running.begin("a")
    assert list((tmp_path / "run").iterdir()) == []


@needs_root
def test_a_path_below_what_others_may_rename_things_in_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    (tmp_path / "deep" / "mount").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "deep")
    paths = (tmp_path, tmp_path / "deep" / "mount", tmp_path / "link" / "mount", tmp_path / "none" / "yet")

    def require_all() -> None:
        for path in paths:
            require_unchangeable(path)

    require_all()
    tmp_path.chmod(0o1777)  # as /tmp: nobody renames what is another's
    require_all()
    tmp_path.chmod(0o775)
    for path in paths:
        with pytest.raises(SetupError, match=f"^arm a: {tmp_path} may be changed by whoever .* its mode"):
            require_unchangeable(path, name="arm a: ")
    tmp_path.chmod(0o755)
    os.chown(tmp_path, NOBODY, NOBODY)
    for path in paths:
        with pytest.raises(SetupError, match=f"by user {NOBODY}, who owns it"):
            require_unchangeable(path)
    monkeypatch.setenv("SUDO_UID", str(NOBODY))  # who calls may be root anyway
    require_all()


@needs_root
def test_what_a_reboot_ended_in_a_callers_home_goes_by_the_callers_own_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as theirs:
        user = Caller(NOBODY, NOBODY, "nobody", theirs)
        monkeypatch.delenv("ESRALLY_EBS_HOME", raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("ESRALLY_EBS_RUN", str(tmp_path / "run"))
        monkeypatch.setattr(clean, "caller", lambda: user)
        monkeypatch.setattr(clean, "booted_at_s", lambda: time.time() + 60)
        own, of_root = (unfinished_folder(home(theirs), "0123456789abcdef", each) for each in ("a", "b"))
        for folder in (own, of_root):
            (folder / "elasticsearch").mkdir(parents=True)
        for path in (Path(theirs), *Path(theirs).rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        os.chown(of_root, 0, 0)
        assert (str(own), []) in clean.clean()
        assert not own.exists()
        assert (of_root / "elasticsearch").exists()


@needs_root
def test_no_session_begins_below_a_directory_that_others_may_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner might put another in its place while root works there, or forge one for ``clean``."""
    monkeypatch.setenv("ESRALLY_EBS_RUN", str(tmp_path / "theirs" / "run"))
    running.begin("a")
    os.chown(tmp_path / "theirs", NOBODY, NOBODY)
    for use in (running.begin, running.claim, running.owner_lives, running.is_ours):
        with pytest.raises(SetupError, match=f"{tmp_path}/theirs may be changed by user {NOBODY}"):
            use("a")
    assert main(["clean"]) == 3
    assert (tmp_path / "theirs" / "run" / "a" / "owner").exists()


@needs_root
def test_no_arm_lies_in_a_directory_that_another_user_may_exchange(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", NOBODY, NOBODY)
    spec = VolumeSpec(name="a", type="directory", size_bytes=0, mount=tmp_path / "theirs")
    with pytest.raises(SetupError, match=f"volume 'a': {tmp_path}/theirs may be changed by user {NOBODY}"):
        volumes.attach(spec, tmp_path / "run" / "s" / "a")
    assert not any((tmp_path / "theirs").iterdir())


@pytest.fixture
def image(run: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the image of the arm gp3 of the plan p will be, in memory of the test's own; it is there."""
    monkeypatch.setattr(release, "_SHARED_MEMORY", run.parent / "shm")
    monkeypatch.setattr(backend, "_ROOM_BYTES", 0)
    monkeypatch.setattr(backend, "_check_machine", lambda: None)
    image = release.image_of(release.image_roots()[0], run / "by-hand-p" / "gp3")
    for folder in reversed(image.parents[:3]):
        folder.mkdir()
    image.write_text("planted")
    return image


def attach_gp3(run: Path) -> None:
    backend.attach(VolumeSpec(name="gp3", type="gp3", size_bytes=GIB), run / "by-hand-p" / "gp3")


@needs_root
@pytest.mark.parametrize("how", ["an image", "a link to a folder with one"])
def test_an_image_in_a_directory_of_another_user_s_is_neither_served_nor_removed(
    run: Path, image: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Plans have names that one may guess, and the directory is whose who makes it first."""
    monkeypatch.setattr(backend, "_start_daemon", lambda *_: pytest.fail("it is served"))
    if how != "an image":
        image.parent.rename(run.parent / "of-others")
        image.parent.symlink_to(run.parent / "of-others")
    memory = image.parent.parent
    os.chown(memory, NOBODY, NOBODY)
    with pytest.raises(SetupError, match=f"{memory}: belongs to user {NOBODY}"):
        attach_gp3(run)
    volumes.detach(run / "by-hand-p" / "gp3")  # also without a record
    assert image.read_text() == "planted"


def test_an_image_of_an_earlier_boot_is_no_arm_of_this_one(
    run: Path, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in image.parents[:2]:
        folder.chmod(0o700)

    def start(*settings: object) -> None:
        assert image.stat().st_size == GIB
        raise SetupError("no daemon here")

    monkeypatch.setattr(backend, "_start_daemon", start)
    with pytest.raises(SetupError, match="no daemon here"):
        attach_gp3(run)
    assert not image.parent.exists()


@needs_root
def test_what_a_node_is_given_is_no_link_and_nothing_behind_one(tmp_path: Path, victim: Path) -> None:
    arm = tmp_path / "arm" / "elasticsearch"
    (arm / "deep").mkdir(parents=True)
    (arm / "deep" / "index").touch()
    (arm / "file").symlink_to(victim)
    (arm / "folder").symlink_to(victim.parent)
    volume = replace(GP2, mount=arm.parent)
    assert life.prepare_data_dir(volume) == arm
    assert {path.lstat().st_uid for path in (arm, *arm.rglob("*"))} == {1000}
    assert {path.stat().st_uid for path in (victim, victim.parent)} == {0}
    arm.rename(tmp_path / "aside")
    arm.symlink_to(victim.parent)
    with pytest.raises(SetupError, match="a link"):
        life.prepare_data_dir(volume)
    assert victim.stat().st_uid == victim.parent.stat().st_uid == 0


@needs_root
def test_a_dataset_that_another_user_may_change_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    path = tmp_path / "datasets" / dataset.key_of(DataDirectory(path=tmp_path / "data"), "image")
    path.mkdir(parents=True)
    (path / "dataset.json").write_text("{")
    with pytest.raises(SetupError, match="not the record of a built index"):
        ensure(tmp_path)
    assert mode(path) == 0o700
    os.chown(path, NOBODY, NOBODY)
    with pytest.raises(SetupError, match=f"belongs to user {NOBODY}"):
        ensure(tmp_path)


def ensure(home: Path) -> None:
    """A dataset that is never built."""
    source = DataDirectory(path=home / "data")
    server = cast(dataset.NodeServer, None)
    dataset.ensure(home, source, image="image", server=server, session="s", say=print)


@needs_root
def test_links_of_a_dataset_are_copied_as_links(tmp_path: Path, victim: Path) -> None:
    source = tmp_path / "dataset" / "elasticsearch"
    source.mkdir(parents=True)
    (source / "secret").symlink_to(victim)
    empty = dataset.Dataset(
        key="k", path=source.parent, documents=0, bytes=0, segments=(), hash=dataset.content_hash(source)
    )
    (tmp_path / "arm").mkdir()
    dataset.copy_to(empty, replace(GP2, mount=tmp_path / "arm", control=None))
    assert (tmp_path / "arm" / "elasticsearch" / "secret").is_symlink()


@needs_root
def test_a_session_of_another_user_is_read_and_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ESRALLY_EBS_HOME", str(tmp_path))
    path = golden_session.record(tmp_path)
    os.chown(path, NOBODY, NOBODY)
    assert main(["report", "golden"]) == 0
    assert main(["cloudwatch", "golden"]) == 3
    assert "golden: belongs to another user" in capsys.readouterr().err


def test_a_later_process_with_the_pid_of_a_watched_one_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"], stderr=subprocess.DEVNULL) as other:
        now = Process.of(other.pid)
        assert now is not None
        before = Process(now.pid, now.start_ticks - 1)
        assert reaper.watch([before], pytest.fail) == before
        before.signal(signal.SIGKILL)
        assert now.alive
        now.signal(signal.SIGKILL)
        assert other.wait() == -signal.SIGKILL


@needs_root
def test_a_process_that_gets_the_pid_of_one_that_just_ended_is_sent_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between the look at it and the signal."""
    last = Path("/proc/sys/kernel/ns_last_pid")
    if not os.access(last, os.W_OK):
        pytest.skip("pids cannot be chosen here")
    first = subprocess.Popen(["sleep", "60"])
    later = [first]

    def end_and_start_another(self: Process) -> bool:
        first.kill()
        first.wait()
        for _ in range(100):  # another process may get it
            last.write_text(str(self.pid - 1))
            later.append(subprocess.Popen(["sleep", "60"]))
            if later[-1].pid == self.pid:
                break
        return True

    process = Process.of(first.pid)
    assert process is not None
    monkeypatch.setattr(Process, "alive", property(end_and_start_another))
    process.signal(signal.SIGTERM)
    time.sleep(0.1)
    ends = [each.poll() for each in later[1:]]
    for each in later[1:]:
        each.kill()
        each.wait()
    if later[-1].pid != process.pid:
        pytest.skip("the pid was taken")
    assert set(ends) == {None}


@needs_root
def test_a_caller_that_is_no_user_is_said_before_anything_is_trusted(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    running.begin("a")
    monkeypatch.setenv("SUDO_UID", "me")
    assert main(["clean"]) == 3
    assert "SUDO_UID=me: is no number of a user" in capsys.readouterr().err


@needs_root
@pytest.mark.parametrize("planted", ["link", "link to pipe", "pipe"])
def test_what_another_user_put_into_a_shared_directory_makes_way(
    tmp_path: Path, victim: Path, planted: str
) -> None:
    link = tmp_path / "made"
    pipe = link if planted == "pipe" else tmp_path / "pipe"
    os.mkfifo(pipe)
    if planted != "pipe":
        link.symlink_to(victim if planted == "link" else pipe)
    os.lchown(link, NOBODY, NOBODY)
    words = [sys.executable, "-m", "esrally_ebs", "dashboard", "--output", str(link)]
    subprocess.run(words, check=True, timeout=20)  # a pipe would be waited for
    assert victim.read_text() == "years of work"
    assert link.lstat().st_uid == 0
    assert link.read_text().startswith("{")


def test_a_link_that_comes_after_the_look_is_not_followed(
    tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "made"

    def then_put_there(look: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
        def looked(path: Any, **how: Any) -> os.stat_result:  # noqa: ANN401
            try:
                return look(path, **how)
            finally:
                if path == output and not os.path.lexists(f"{tmp_path}/./made"):
                    os.symlink(victim, output)  # noqa: PTH211

        return looked

    for name in ("stat", "lstat"):
        monkeypatch.setattr(os, name, then_put_there(getattr(os, name)))
    put("a report", output)
    assert victim.read_text() == "years of work"
    assert output.read_text() == "a report"


@needs_root
def test_what_others_mounted_in_our_directory_is_not_removed_with_it(tmp_path: Path, victim: Path) -> None:
    (tmp_path / "data").mkdir()
    arm = tmp_path / "session" / "gp3"
    spec = VolumeSpec(name="gp3", type="directory", size_bytes=GIB, mount=tmp_path / "data")
    volume = volumes.attach(spec, arm)
    point = volume.mount / "elasticsearch" / "backup"
    point.mkdir(parents=True)
    subprocess.run(["mount", "--bind", victim.parent, point], check=True)
    try:
        with pytest.raises(SetupError, match=f"{point}: is mounted in a directory of ours; run 'umount"):
            volumes.detach(arm)
    finally:
        subprocess.run(["umount", point], check=True)
    assert victim.exists()
    volumes.detach(arm)
    assert not volume.mount.exists()
