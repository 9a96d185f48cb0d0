"""The reaper's wait."""

import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from small_plan import small_plan

from esrally_ebs.aws.provision.journal import JOURNAL_NAME
from esrally_ebs.errors import SetupError
from esrally_ebs.machine.processes import SYSTEM_CLOCK, Process, tell
from esrally_ebs.session import reaper
from esrally_ebs.session.clean import take_down
from esrally_ebs.store import SessionFolder, load_session, running
from esrally_ebs.store.context import ENDING, STAYS


def test_records_are_forced_to_disk_until_a_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaper, "_SYNC_EVERY_S", 0.01)
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    process = Process.of(child.pid)
    assert process is not None
    calls: list[int] = []

    def meanwhile() -> None:
        calls.append(1)
        if len(calls) == 3:
            child.communicate(b"")

    assert reaper.watch([process], meanwhile) == process
    assert len(calls) == 3


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")  # as it is meant to be
def test_who_starts_it_can_wait_until_it_watches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ESRALLY_EBS_RUN", str(tmp_path / "run"))
    with subprocess.Popen(["sleep", "60"]) as watched:
        wait = reaper.start("s", tmp_path, [watched.pid])
        wait()
        watched.kill()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(SetupError, match="the session's reaper did not start"):
        reaper.start("s", tmp_path, [])()


@pytest.mark.parametrize("watched", ["[os.getpid()]", "()"], ids=("of a race", "of a helper"))
def test_a_session_that_dies_before_the_reaper_watches_is_taken_down(
    watched: str, run: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "home" / "sessions" / "s"
    script = (
        "import os; from pathlib import Path; from esrally_ebs.session import reaper;"
        " from esrally_ebs.store import running; running.begin('s');"
        f" reaper.start('s', Path({str(folder)!r}), {watched}); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 9
    assert SYSTEM_CLOCK.wait_until(lambda: not (run / "s").exists(), limit_s=60), "its folder is still there"


def test_a_session_that_is_in_the_working_directory_says_that_it_was_killed(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of ``trace --output made``."""
    monkeypatch.chdir(tmp_path)
    made = SessionFolder.create(tmp_path, "s", kind="trace", plan=small_plan(), path=Path("made"))
    running.begin("s")
    gone = Process(os.getpid(), 0)
    reaper.reap("s", made.path, gone, [gone], None)
    assert "was killed" in load_session(made.path).reason
    assert not (run / "s").exists()


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")  # as above
def test_a_session_of_which_something_stays_was_not_killed(run: Path, tmp_path: Path) -> None:
    """Its owner has said so, and its command must be let say it."""
    folder, session = running.begin("s"), tmp_path / "home" / "sessions" / "s"
    session.mkdir(parents=True)
    (folder / "somebody's").touch()
    (folder / STAYS).touch()
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(sleep) as control, subprocess.Popen(sleep) as command:
        wait = reaper.start("s", session, [control.pid, command.pid])
        (reaping,) = (one for one in psutil.Process().children() if one.pid not in (control.pid, command.pid))
        wait()
        control.kill()
        control.wait()
        assert reaping.wait(60) == 0
        assert command.poll() is None
        command.kill()
    assert not any(session.iterdir())
    (folder / "somebody's").unlink()
    assert take_down("s") == []


def test_the_keeper_takes_down_what_it_is_about_to_bring_up(tmp_path: Path) -> None:
    standing = tmp_path / "s"
    standing.mkdir()
    script = "trap 'rmdir \"$1\"; exit' USR1; echo; while :; do sleep 0.05; done"
    with subprocess.Popen(["bash", "-c", script, "-", standing], stdout=subprocess.PIPE) as keeper:
        assert keeper.stdout is not None
        keeper.stdout.readline()
        process = Process.of(keeper.pid)
        assert process is not None
        reaper._wait_for_keeper(process, standing)
        assert not standing.exists()


def test_nobody_waits_for_race_control_that_was_killed_while_it_took_down(tmp_path: Path) -> None:
    me = Process.of(os.getpid())
    assert me is not None
    gone = Process(me.pid, me.start_ticks - 1)
    assert reaper._patience_s(tmp_path, [me, gone]) == 1.0
    (tmp_path / ENDING).touch()
    assert reaper._patience_s(tmp_path, [gone, me]) == 1.0
    assert reaper._patience_s(tmp_path, [me, gone]) > 10


def test_race_control_is_given_minutes_to_take_down_what_was_made_on_aws(tmp_path: Path) -> None:
    """It was killed after 20 s, and the session that was cancelled called one whose process was killed."""
    me = Process.of(os.getpid())
    assert me is not None
    (tmp_path / ENDING).touch()
    (tmp_path / "a").mkdir()
    assert reaper._patience_s(tmp_path, [me], reaper.ends_within_s(tmp_path)) < 60
    (tmp_path / "a" / JOURNAL_NAME).touch()
    longest_s = reaper.ends_within_s(tmp_path)
    (tmp_path / "a" / JOURNAL_NAME).unlink()  # that arm has gone, others of the session are there
    assert reaper._patience_s(tmp_path, [me], longest_s) >= 600


def test_a_command_whose_output_nobody_reads_holds_no_take_down_up() -> None:
    """A pager, or a terminal that Ctrl-S has stopped: the reaper once waited for it for ever."""
    output, full = os.pipe()
    os.set_blocking(full, False)
    with suppress(BlockingIOError):
        while True:
            os.write(full, b"x" * 4096)
    with subprocess.Popen(["sleep", "60"], stderr=full) as command:
        process = Process.of(command.pid)
        assert process is not None
        teller = threading.Thread(target=tell, args=(process, "killed"), daemon=True)
        teller.start()
        teller.join(10)
        has_ended = not teller.is_alive()
        command.kill()
    os.close(output)
    os.close(full)
    assert has_ended
