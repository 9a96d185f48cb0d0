"""What the run directory and a killed session leave is told apart, taken down, and never a traceback."""

import errno
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE

import pytest

from esrally_ebs import node
from esrally_ebs.cli import machine, main
from esrally_ebs.errors import SetupError
from esrally_ebs.machine.caller import Caller
from esrally_ebs.machine.procfs import parse_mountinfo
from esrally_ebs.model import VolumeSpec, short_name
from esrally_ebs.node.dataset import unfinished_folder
from esrally_ebs.session import clean, manual
from esrally_ebs.store import context, running
from esrally_ebs.store.files import locked
from esrally_ebs.units import MIB
from esrally_ebs.volumes import backends as volumes
from esrally_ebs.volumes.emulated import backend, control, release
from esrally_ebs.volumes.emulated.release import image_of, image_roots


@pytest.mark.parametrize("words", ["", "99999999 1"])
def test_an_owner_that_was_cut_or_has_gone_does_not_live(run: Path, words: str) -> None:
    running.begin("s")
    (run / "s" / "owner").write_text(words)
    assert not running.owner_lives("s")
    assert list(clean.clean()) == [("s", [])]


def test_this_process_lives_and_what_is_attached_by_hand_counts_as_owned(run: Path) -> None:
    running.begin("s")
    assert running.owner_lives("s")
    (run / "s" / "owner").write_text("1 0")
    running.hand_over("s")
    assert list(clean.clean()) == []


def test_every_note_of_a_session_goes_with_it(run: Path) -> None:
    running.begin("s")
    names = {name for key, name in vars(context).items() if key.isupper() and isinstance(name, str)}
    for name in names - {context.OF_CALLER}:
        (run / "s" / name).write_text("note")
    assert len(names) >= 8
    assert clean.take_down("s") == []


def test_an_index_that_was_being_built_goes_with_its_session_alone(run: Path) -> None:
    datasets = run.parent / "home" / "datasets"
    mine, other = (f"0123.{short_name(session)}.unfinished" for session in ("deadbeef-1", "deadbeef-2"))
    for name in (mine, other, "0123"):
        (datasets / name / "elasticsearch").mkdir(parents=True)
    assert clean.take_down("deadbeef-1") == []
    assert sorted(path.name for path in datasets.iterdir()) == ["0123", other]


def test_what_a_reboot_ended_goes_and_what_is_of_this_boot_stays(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run / "lives" / "a").mkdir(parents=True)
    arms = ("ended/a", "lives/a", "lives/b/1")  # the last is one of those that a stripe has
    images = [image_of(image_roots()[1], run / arm) for arm in arms]
    for image in images:
        image.parent.mkdir(parents=True, exist_ok=True)
        image.write_bytes(b"data")
    datasets = run.parent / "home" / "datasets"
    ended = unfinished_folder(run.parent / "home", "0123456789abcdef", "ended")
    for path in (ended, datasets / "0123", datasets / "the user's.unfinished"):
        (path / "elasticsearch").mkdir(parents=True)

    assert list(clean.clean()) == []
    monkeypatch.setattr(clean, "booted_at_s", lambda: time.time() + 60)
    assert list(clean.clean()) == [(str(ended), []), (str(images[0]), [])]
    assert sorted(path.name for path in datasets.iterdir()) == ["0123", "the user's.unfinished"]
    assert not images[0].parent.exists()
    assert all(image.exists() for image in images[1:])


def test_an_image_that_a_session_makes_while_clean_looks_at_an_old_one_stays(run: Path) -> None:
    image = image_of(image_roots()[1], run / "s" / "a")
    image.parent.mkdir(parents=True)
    image.write_bytes(b"of an earlier boot")
    run.mkdir(mode=0o700)
    with ThreadPoolExecutor() as pool:
        with locked(run):  # as a session does that begins
            swept = pool.submit(release.sweep_images, time.time() + 60)
            time.sleep(0.2)
            (run / "s").mkdir()
        assert swept.result() == []
    assert image.exists()


def test_an_index_that_is_finished_while_clean_looks_at_it_does_not_end_clean(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Finishing:
        def fullmatch(self, name: str) -> bool:
            (datasets / name).rename(datasets / "0123")
            return True

    datasets = run.parent / "home" / "datasets"
    unfinished_folder(run.parent / "home", "0123", "another").mkdir(parents=True)
    monkeypatch.setattr(clean, "_UNFINISHED", Finishing())
    monkeypatch.setattr(clean, "booted_at_s", lambda: time.time() + 3600)
    assert list(clean.clean()) == []
    assert (datasets / "0123").exists()


def test_an_index_that_a_session_is_building_stays_when_the_clock_was_set_on(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.begin("lives")
    building = run.parent / "home" / "datasets" / f"0123.{short_name('lives')}.unfinished"
    building.mkdir(parents=True)
    monkeypatch.setattr(clean, "booted_at_s", lambda: time.time() + 3600)
    assert list(clean.clean()) == []
    assert building.exists()


MOUNTED = """\
27 1 0:23 / / rw - ext4 /dev/vda1 rw
51 27 0:43 / {0}/killed/gp3/disk rw - fuse ebs-volume rw,user_id=0,group_id=0
52 27 0:44 / {0}/killed/gp2/1/disk rw - fuse ebs-volume rw,user_id=0,group_id=0
53 27 0:45 / {0}/planted/gp3/disk rw - fuse ebs-volume rw,user_id=1000,group_id=1000
54 27 0:46 / {0}/other/gp3/disk rw - fuse sshfs rw,user_id=0,group_id=0
"""


def test_only_what_root_has_mounted_is_an_emulated_volumes_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = parse_mountinfo(MOUNTED.format(tmp_path), "mounts")
    monkeypatch.setattr(release, "mounts", lambda: mounts)
    assert release.mounted_disks() == [tmp_path / "killed/gp3/disk", tmp_path / "killed/gp2/1/disk"]


def test_volumes_of_a_session_that_was_killed_in_another_run_directory_are_named_and_left(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    disks = []
    for directory, owner in (("run 2", "1 0"), ("by-hand", running.BY_HAND), ("lives", ""), ("run", "1 0")):
        monkeypatch.setenv("ESRALLY_EBS_RUN", str(run.with_name(directory)))
        folder = running.begin("s")
        if owner:
            (folder / "owner").write_text(owner)
        disks += [folder / "gp3" / "disk", folder / "gp2" / "disk"]
    disks.append(run.parent / "gp3" / "disk")
    monkeypatch.setattr(
        volumes, "mounted_disks", lambda: [disk for disk in disks if disk.parents[1].exists()]
    )
    assert main(["clean"]) == 0
    there = run.with_name("run 2")
    assert capsys.readouterr().out == (
        f"s: removed\n{there}: has volumes or nodes of a killed session; remove them:"
        f" ESRALLY_EBS_RUN='{there}' esrally-ebs clean\n"
        f"{run.parent}: its records were deleted, and volumes are mounted there; if that session runs no"
        f" more: touch {run.parents[1]}/.esrally-ebs; echo 0 0 > {run.parent}/owner;"
        f" ESRALLY_EBS_RUN={run.parents[1]} esrally-ebs clean\nnothing else is left behind\n"
    )
    assert (there / "s" / "owner").read_text() == "1 0"


def test_the_command_that_is_named_for_deleted_records_removes_what_they_were_of(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, there = running.begin("s"), run.with_name("it's here")
    (folder / "gp2" / "1").mkdir(parents=True)
    (folder / "owner").unlink()
    run.rename(there)
    (there / running.MARK).unlink()
    monkeypatch.setattr(volumes, "mounted_disks", lambda: [there / "s" / "gp2" / "disk"])
    assert main(["clean"]) == 0
    command = capsys.readouterr().out.partition("runs no more: ")[2].partition("; ESRALLY_EBS_RUN")[0]
    subprocess.run(["/bin/sh", "-c", f"PATH=/usr/bin:/bin; {command}"], check=True)
    monkeypatch.setenv("ESRALLY_EBS_RUN", str(there))
    (there / "s" / "gp2" / "1").rmdir()
    assert list(clean.clean()) == [("s", [])]


def test_nodes_of_sessions_in_other_run_directories_are_named_unless_these_live(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were passed over in silence where no volume was mounted: of real volumes, of a deleted folder."""
    nodes = [run.with_name("deleted") / "s"]
    for directory, owner in (("dead", "1 0"), ("by-hand", running.BY_HAND), ("lives", "")):
        monkeypatch.setenv("ESRALLY_EBS_RUN", str(run.with_name(directory)))
        nodes.append(running.begin("s"))
        if owner:
            (nodes[-1] / "owner").write_text(owner)
    monkeypatch.setenv("ESRALLY_EBS_RUN", str(run))
    monkeypatch.setattr(node, "folders_elsewhere", lambda: nodes)
    assert main(["clean"]) == 0
    assert re.findall(r"remove them: ESRALLY_EBS_RUN=(\S+) esrally-ebs clean", capsys.readouterr().out) == [
        str(run.with_name("dead")),
        str(run.with_name("deleted")),
    ]


def test_a_session_that_ends_while_it_is_looked_for_is_not_named(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = [[run.with_name("b") / "s"], []]
    monkeypatch.setattr(node, "folders_elsewhere", lambda: ended.pop(0))
    assert list(clean.name_elsewhere()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="as root, who alone has such mounts")
def test_a_dead_file_system_that_is_looked_into_for_a_socket_does_not_keep_the_volume(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the socket was deleted, a search for those of striped volumes meets the mount's I/O error."""
    folder = running.begin("s")
    (folder / "owner").write_text("1 0")
    (folder / "gp3" / "mnt").mkdir(parents=True)
    glob = Path.glob

    def failing(path: Path, pattern: str) -> Iterator[Path]:
        if pattern.endswith(control.SOCKET_NAME):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path / "mnt"))
        return iter(list(glob(path, pattern)))

    monkeypatch.setattr(Path, "glob", failing)
    assert list(clean.clean()) == [("s", [])]


@pytest.mark.skipif(os.geteuid() != 0, reason="images are root's")
def test_sessions_that_end_take_no_folder_from_those_that_begin(run: Path) -> None:
    """In one of a hundred such races a session could not make its image."""

    def come_and_go(session: str) -> None:
        image = image_roots()[0] / session / "gp3.img"
        for _ in range(400):
            backend._make_image(image, MIB)
            release.remove_images([image])

    with ThreadPoolExecutor() as threads:
        list(threads.map(come_and_go, ["a", "b", "c"]))
    assert not image_roots()[0].exists()


def test_by_sudo_data_hosts_are_asked_for_sessions_of_the_caller_as_the_caller(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fio on data hosts needs no root: its sessions are in the user's home, whose keys SSH takes."""
    asked: list[Path | str] = []
    monkeypatch.delenv("ESRALLY_EBS_HOME")
    monkeypatch.setenv("HOME", str(run.parent / "root"))
    theirs = Caller(12345, 12345, "someone", str(run.parent / "theirs"))
    monkeypatch.setattr(machine, "caller", lambda: theirs)
    monkeypatch.setattr(Caller, "become", lambda user: asked.append(user.name))

    def leftovers(home: Path) -> Iterator[tuple[str, bool]]:
        asked.append(home.relative_to(run.parent).parts[0])
        yield f"host a: still holds session of {asked[-1]}", True

    monkeypatch.setattr(machine.host_client, "leftovers", leftovers)
    assert main(["clean"]) == 3
    assert asked == ["root", "someone", "theirs"]
    assert capsys.readouterr().err.count("host a: still holds") == 2
    monkeypatch.setenv("ESRALLY_EBS_HOME", str(run.parent / "shared"))
    asked.clear()
    assert main(["clean"]) == 3
    assert asked == ["someone", "shared"]


def test_detaching_goes_on_after_an_arm_that_stays(run: Path) -> None:
    for plan in ("by-hand-a", "by-hand-b"):
        running.begin(plan)
    arm = run / "by-hand-a" / "arm"
    arm.mkdir()
    (arm / "volume.json").write_text("{")  # nobody can tell what it is
    with pytest.raises(SetupError):
        manual.down()
    assert running.sessions() == (["by-hand-a"], [])


def test_what_another_command_is_attaching_is_not_detached_meanwhile(run: Path) -> None:
    code = "from esrally_ebs.store import running; running.begin('by-hand-a'); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=PIPE, stdout=PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline()
        with pytest.raises(SetupError, match=f"nothing was detached: process {other.pid} attaches or deta"):
            manual.down()
        other.communicate(b"\n")
    assert manual.down() == ["a"]


def test_what_was_made_in_the_users_directory_goes_with_a_killed_session(run: Path) -> None:
    running.begin("s")
    (run.parent / "data").mkdir()
    spec = VolumeSpec(name="a", type="directory", size_bytes=0, mount=run.parent / "data")
    volumes.attach(spec, run / "s" / "a")
    (run / "s" / "owner").write_text("99999999 1")

    assert list(clean.clean()) == [("s", [])]
    assert list((run.parent / "data").iterdir()) == []


def test_that_nothing_was_attached_is_said(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["volumes", "down"]) == 0
    assert capsys.readouterr().out == "no arm is attached by hand\n"


@pytest.mark.parametrize("text", ["", "{}", '{"arms": 3}'])
def test_a_context_that_was_cut_is_one_line_and_can_be_taken_down(run: Path, text: str) -> None:
    running.begin("by-hand-a")
    (run / "by-hand-a" / "context.json").write_text(text)
    with pytest.raises(SetupError, match=r"context\.json: not readable here; 'esrally-ebs volumes down'"):
        manual.attached()
    assert manual.down() == ["a"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user's file")
def test_another_users_session_is_one_line(run: Path) -> None:
    running.begin("s")
    os.chown(run / "s", 0, 0)
    child = os.fork()
    if not child:
        os.seteuid(65534)
        try:
            running.owner_lives("s")
        except SetupError as error:
            os._exit(0 if "another user's" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user's run directory")
@pytest.mark.parametrize(("words", "code"), [("down", 3), ("show a", 3), ("list", 0)])
def test_a_user_who_may_not_look_is_not_told_that_no_arm_is_attached(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], words: str, code: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        run = Path(folder, "run")
        monkeypatch.setenv("ESRALLY_EBS_RUN", str(run))
        running.begin("by-hand-a")
        run.chmod(0o711)  # as by sudo
        child = os.fork()
        if not child:
            os.seteuid(65534)
            ended = main(["volumes", *words.split()])
            sys.stderr.flush()
            os._exit(ended)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code
    printed = capfd.readouterr()
    assert str(run) in printed.err
    assert "as root" in printed.err
    assert "no arm" not in printed.out
