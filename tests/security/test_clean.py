"""``clean`` removes what carries our marks and nothing else, whoever works beside it."""

import ctypes
import errno
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from shared_python import NOBODY

from esrally_ebs.cli import main
from esrally_ebs.errors import SetupError
from esrally_ebs.machine import processes
from esrally_ebs.machine.caller import Caller
from esrally_ebs.machine.kernel_trees import Roots
from esrally_ebs.machine.processes import Process, argv_of
from esrally_ebs.machine.resources import home
from esrally_ebs.model import State, VolumeSpec
from esrally_ebs.node.dataset import unfinished_folder
from esrally_ebs.session import clean
from esrally_ebs.store import list_sessions, running
from esrally_ebs.volumes import backends as volumes
from esrally_ebs.volumes.emulated import release
from esrally_ebs.volumes.emulated.daemon import process as daemon
from esrally_ebs.volumes.record import Record, write_record

NEW_MOUNTS = 0x00020000  # CLONE_NEWNS
SLEEP = shutil.which("sleep") or "sleep"


def dead(session: str) -> Path:
    folder = running.begin(session)
    (folder / "owner").write_text("1 0")
    return folder


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_an_index_that_a_killed_session_was_building_in_the_callers_home_goes_with_it(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead("killed")
    running.begin("lives")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as theirs:
        monkeypatch.delenv("ESRALLY_EBS_HOME", raising=False)
        monkeypatch.setenv("HOME", str(run.parent))
        monkeypatch.setattr(clean, "caller", lambda: Caller(NOBODY, NOBODY, "nobody", theirs))
        killed, lives = (unfinished_folder(home(theirs), "0123", each) for each in ("killed", "lives"))
        for folder in (killed, lives):
            (folder / "elasticsearch").mkdir(parents=True)
        for path in (Path(theirs), *Path(theirs).rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        assert list(clean.clean()) == [("killed", [])]
        assert not killed.exists()
        assert lives.exists()


def test_a_home_that_was_named_as_run_directory_stays(run: Path) -> None:
    for name in (".ssh", "Documents"):
        (run / name).mkdir(parents=True)
        (run / name / "file").write_text("mine")
        (run / name / "owner").write_text("1 0")  # a file of that name is no mark by itself
    assert main(["clean"]) == 0
    assert sorted(path.name for path in run.rglob("file")) == ["file", "file"]
    with pytest.raises(SetupError, match="holds files of somebody else's"):
        running.begin("s")


def test_what_lies_among_our_sessions_is_named_and_left(
    run: Path, victim: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dead("killed")
    (run / "nightly").mkdir()
    (run / "nightly" / "notes").write_text("mine")
    (run / "link").symlink_to(victim.parent)
    (run / "x\nlive: removed").touch()
    (victim.parent / "owner").write_text("1 0")
    assert main(["clean"]) == 0
    output = capsys.readouterr().out
    assert "killed: removed" in output
    assert f"{run / 'link'}: left alone" in output
    assert f"{run / 'nightly'}: left alone" in output
    assert f"{run / 'x live: removed'}: left alone" in output
    assert (run / "nightly" / "notes").exists()
    assert victim.exists()


def test_what_a_session_does_not_know_stays_in_its_folder(
    run: Path, victim: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = dead("killed")
    (folder / "notes").write_text("mine")
    (folder / "link").symlink_to(victim.parent)
    assert main(["clean"]) == 3
    assert "link, notes" in capsys.readouterr().err
    assert (folder / "notes").exists()
    assert victim.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("whose", ["another user's", "open to all", "a link"])
def test_marks_of_ours_in_a_directory_of_others_are_not_believed(
    run: Path, victim: Path, capsys: pytest.CaptureFixture[str], whose: str
) -> None:
    """Root once removed the file that a record there named, at ``clean`` and ``volumes down``."""
    folder = dead("by-hand-x")
    write_record(folder / "gp3", Record(backend="emulated", name="gp3", type="gp3", created=(victim,)))
    if whose == "a link":
        run.rename(run.with_name("theirs"))
        run.symlink_to(run.with_name("theirs"))
    elif whose == "open to all":
        run.chmod(0o777)
    else:
        os.chown(run, 65534, 65534)
    for words in (["clean"], ["volumes", "down"], ["volumes", "list"], ["volumes", "show", "gp3"]):
        assert main(words) == 3
        assert re.fullmatch(
            rf"esrally-ebs: {run}: (belongs to user 65534|others may write to it|is a link,).*\n",
            capsys.readouterr().err,
        )
    assert victim.exists()
    assert (folder / "gp3" / "volume.json").exists()


def test_a_record_that_names_another_directory_removes_nothing(run: Path, victim: Path) -> None:
    folder = dead("killed")
    spec = VolumeSpec(name="a", type="directory", size_bytes=0)
    volumes.attach(spec, folder / "a")
    record = folder / "a" / "volume.json"
    own = str(folder / "a" / "esrally-ebs-killed")
    record.write_text(record.read_text().replace(own, str(victim.parent)))
    clean.take_down("killed")
    assert victim.exists()


@contextmanager
def sleeper(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([*words, "600"], executable=SLEEP, process_group=0)
    while not argv_of(process.pid):  # the kernel sets them at the end of exec
        time.sleep(0.001)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("words", "late", "ends"),
    [(("fio",), 0, True), (("fio",), 1, False), (("vi /home/fiona",), 0, False), (("sleep",), 0, False)],
)
def test_only_the_very_fio_that_was_noted_down_is_ended(
    run: Path, words: tuple[str, ...], late: int, ends: bool
) -> None:
    folder = dead("killed")
    with sleeper(*words) as process:
        noted = Process.of(process.pid)
        assert noted is not None
        (folder / "fio.pid").write_text(f"{noted.pid} {noted.start_ticks - late}\n")
        assert clean.take_down("killed") == []
        assert (process.poll() == -signal.SIGKILL) is ends


def test_a_pid_alone_ends_nothing(run: Path) -> None:
    folder = dead("killed")
    with sleeper("fio") as process:
        (folder / "fio.pid").write_text(f"{process.pid}\n")
        assert clean.take_down("killed") == []
        assert process.poll() is None


def begin_and_end(number: int, count: int) -> None:
    for each in range(count):
        session = f"s-{number}-{each}"
        running.begin(session)
        assert running.is_ours(session), f"{session} was taken"
        assert running.owner_lives(session)
        running.hand_over(session)
        assert running.owner_lives(session)
        running.claim_by_hand(session)
        assert clean.take_down(session) == []


def clean_all_the_time(stop: object) -> None:
    while not stop.is_set():  # type: ignore[attr-defined]
        taken = list(clean.clean())
        assert taken == []


def test_clean_beside_sessions_that_begin_and_end_takes_none_of_them(run: Path) -> None:
    """Of 1,500 it once took 69."""
    context = multiprocessing.get_context("fork")
    stop = context.Event()
    cleaner = context.Process(target=clean_all_the_time, args=(stop,))
    starters = [context.Process(target=begin_and_end, args=(number, 150)) for number in range(2)]
    run.mkdir()
    for process in (cleaner, *starters):
        process.start()
    for process in starters:
        process.join(60)
    stop.set()
    cleaner.join(30)
    assert [process.exitcode for process in (cleaner, *starters)] == [0, 0, 0]
    assert os.listdir(run) == []  # noqa: PTH208 - marks as well


def clean_once(results: "multiprocessing.Queue[int]") -> None:
    results.put(main(["clean"]))


def test_two_cleans_at_once_both_end_well(run: Path) -> None:
    context = multiprocessing.get_context("fork")
    for _ in range(5):
        for number in range(10):
            dead(f"killed-{number}")
        results: multiprocessing.Queue[int] = context.Queue()
        both = [context.Process(target=clean_once, args=(results,)) for _ in range(2)]
        for process in both:
            process.start()
        for process in both:
            process.join(60)
        assert [results.get(timeout=5) for _ in both] == [0, 0]
        assert list(run.iterdir()) == []


def test_what_was_killed_before_it_had_an_owner_goes(run: Path) -> None:
    running.begin("s")
    (run / ".new-t").mkdir()
    (run / ".new-u").mkdir()
    (run / ".new-u" / "owner").write_text("")
    assert main(["clean"]) == 0
    assert sorted(path.name for path in run.iterdir()) == [".esrally-ebs", "s"]


def no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_run_directory_without_room_keeps_no_session_from_being_taken_down(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("killed-1", "killed-2"):
        dead(name)
    monkeypatch.setattr(Path, "write_text", no_room)
    assert main(["clean"]) == 0
    assert not any(run.iterdir())


def test_a_loop_device_goes_also_where_there_is_no_room_to_note_it_down(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = ["loop7"]
    monkeypatch.setattr(release, "_loops_of", lambda directory: list(there))
    monkeypatch.setattr(release, "_detach_loop", there.remove)
    monkeypatch.setattr(release, "_sequence_number", lambda name: 1)
    monkeypatch.setattr(Path, "write_text", no_room)
    release.detach(run / "s" / "gp3")
    assert not there


def test_a_users_loop_device_that_has_the_number_of_ours_before_a_reboot_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers begin anew at a boot, and a run directory on a disk outlives it."""
    monkeypatch.setattr(release, "_loops", lambda: [("loop0", Path("/home/me/image.iso"))])
    monkeypatch.setattr(release, "_sequence_number", lambda name: 10)
    release.note_loops(tmp_path, ["loop0"])
    assert release._loops_of(tmp_path) == ["loop0"]
    monkeypatch.setattr(Roots, "boot_id", lambda roots: "the next one")
    assert release._loops_of(tmp_path) == []


def test_a_daemon_or_loop_of_another_mount_namespace_is_not_ours(run: Path) -> None:
    """Its directory has the same path there; ``volumes down`` here once ended it."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a mount namespace")
    folder = dead("by-hand-p")
    (folder / "gp3").mkdir()
    argv = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
    process = subprocess.Popen(
        argv,
        cwd=folder / "gp3",
        env={daemon.START_VARIABLE: daemon.__name__},
        stdout=subprocess.PIPE,
        preexec_fn=lambda: ctypes.CDLL(None).unshare(NEW_MOUNTS),
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        clean.take_down("by-hand-p")
        alive = process.poll() is None
        process.kill()
    assert alive


BEGINS = """\
import sys, time
from pathlib import Path
from esrally_ebs.plan import load_plan
from esrally_ebs.machine.resources import home, plan_path
from esrally_ebs.store import SessionFolder, running
SessionFolder.create(home(), "s", kind="race", plan=load_plan(plan_path("gp2-vs-gp3")))
running.begin("s")
print("begun", flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a PID namespace")
def test_a_session_of_a_container_that_shares_our_folders_is_not_taken_for_a_killed_one(run: Path) -> None:
    container = ["/usr/bin/unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-c"]
    with subprocess.Popen([*container, BEGINS], stdout=subprocess.PIPE) as outer:
        assert outer.stdout is not None
        outer.stdout.readline()
        sessions = list_sessions(home())
        cleaned = list(clean.clean())
        looks = "from esrally_ebs.session import clean; print(list(clean.clean()))"
        other = subprocess.run([*container, looks], capture_output=True, text=True, check=True).stdout
        outer.kill()
    assert [one.state for one in sessions] == [State.RUNNING]
    assert cleaned == []
    assert f"{run}/s/owner: names a process of another container, which is not seen from here" in other
    if processes.pid_namespace() == processes.FIRST_NAMESPACE:  # else it may run beside this container
        assert processes.SYSTEM_CLOCK.wait_until(lambda: not running.owner_lives("s"), limit_s=20)
        assert list(clean.clean()) == [("s", [])]
        assert [one.state for one in list_sessions(home())] == [State.FAILED]


def test_who_ends_with_its_session_waits_until_the_mark_has_gone_too(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keeper's thread that removed a session was cut off between the two."""
    dead("killed")
    is_last, may_go_on = threading.Event(), threading.Event()

    def unmark() -> None:
        is_last.set()
        assert may_go_on.wait(10)
        real()

    real = running._unmark
    monkeypatch.setattr(running, "_unmark", unmark)
    removing = threading.Thread(target=clean.take_down, args=("killed",))
    removing.start()
    assert is_last.wait(10)
    assert not running.is_ours("killed")
    threading.Timer(0.2, may_go_on.set).start()
    running.await_removal()
    assert not (run / running.MARK).exists()
    removing.join()
    running.await_removal()  # where there is none


def test_a_pipe_where_another_process_works_is_not_waited_for(run: Path, tmp_path: Path) -> None:
    folder = dead("killed")
    write_record(folder / "gp3", Record(backend="emulated", name="gp3", type="gp3"))
    os.mkfifo(tmp_path / daemon.PROCESS_NAME)
    other = subprocess.Popen([SLEEP, "60"], cwd=tmp_path)
    command = [sys.executable, "-m", "esrally_ebs", "clean"]
    try:
        assert subprocess.run(command, timeout=20, check=False).returncode == 0
    finally:
        other.kill()
        other.wait()
    assert not folder.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
def test_a_file_that_cannot_be_removed_keeps_no_other_session(
    run: Path, victim: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = dead("a") / "context.json"
    other = dead("b")
    file.touch()
    subprocess.run(["/bin/mount", "--bind", victim, file], check=True)
    try:
        assert main(["clean"]) == 3
    finally:
        subprocess.run(["/bin/umount", file], check=True)
    assert f"{file}: Device or resource busy" in capsys.readouterr().err
    assert victim.read_text() == "years of work"
    assert not other.exists()
    assert clean.take_down("a") == []


def test_it_is_said_that_an_engine_that_does_not_answer_was_not_asked(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client = tmp_path / "docker"
    client.write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2; exit 1\n")
    client.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    dead("killed")
    assert main(["clean"]) == 0
    assert capsys.readouterr().out == (
        "killed: removed\nthe Docker engine was not asked for nodes of killed sessions: docker: the engine"
        " does not answer; run 'make setup' or: sudo systemctl start docker\nnothing else is left behind\n"
    )
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(processes, "_OFTEN_LEFT_OUT", str(tmp_path / "empty"))
    assert main(["clean"]) == 0
    assert capsys.readouterr().out == "nothing is left behind\n"


def test_an_engine_that_fails_keeps_clean_from_nothing_else(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client, asked = tmp_path / "docker", tmp_path / "asked"  # hangs once, as where the machine boots
    hangs = f"[ -e {asked} ] && exit 0; : >{asked}; echo 'context deadline exceeded' >&2; exit 1"
    client.write_text(f"#!/bin/sh\n{hangs}\n")
    client.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    dead("unborn").rename(run / ".new-unborn")
    assert main(["clean"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("the Docker engine was not asked for nodes of killed sessions: docker ps ")
    assert out.endswith("context deadline exceeded\nnothing else is left behind\n")
    assert list(run.iterdir()) == []
