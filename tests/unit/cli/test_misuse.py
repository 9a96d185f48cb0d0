"""What is typed wrong, and what cannot be printed: one line and the exit code of it, never a traceback."""

import errno
import io
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from esrally.utils import process
from small_plan import small_plan

from esrally_ebs import __version__
from esrally_ebs.cli import machine, main
from esrally_ebs.cli.output import put
from esrally_ebs.errors import SetupError
from esrally_ebs.machine import processes as system
from esrally_ebs.machine.processes import interrupt_again
from esrally_ebs.model import State
from esrally_ebs.session import runs
from esrally_ebs.store import SessionFolder


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["sessions", "--nonsense"], "No such option: --nonsense"),
        (["report"], "Missing argument"),
        (["report", "x", "--format", "PDF"], "--format PDF: choose one of text, markdown, csv, json, html"),
        (["report", "x", "--format", "md"], "session 'x': not found"),
        (["report", "x", "--format", "HTML"], "session 'x': not found"),
        (["report", "x", "--against"], "requires an argument; see 'esrally-ebs report --help'"),
        (["volumes", "set", "--credits"], "requires an argument; see 'esrally-ebs volumes set --help'"),
        (["simulate", "\udcff.toml"], "/\\udcff.toml: No such file"),
        (["volumes", "set", "gp2", "--credits", "2"], "--credits"),
        (["volumes", "modify", "vol-1", "--iops", "0", "--size", "200GiB"], "--iops"),
        (["volumes", "set", "gp2", "--time-scale", "much"], "--time-scale"),
        (["volumes", "set", "gp2", "--drain", "--refill"], "one of --drain and --refill"),
        (["volumes", "set", "gp2", "--credits", "nan"], "--credits"),
        (["simulate", "smoke", "--set", "=3"], "--set =3: write KEY=VALUE"),
        (["simulate", "smoke", "--set", "name=" + "[" * 50_000], "smoke.toml: name: "),
        (["corpus", "generate", "--output", "/dev/null"], "/dev/null: is no file"),
        (["study", "burst-2014", "--simulate", "--output", "/"], "/: is the path of a folder; name a file"),
        (
            ["study", "burst-2014", "--output", "/nowhere/out"],
            "/nowhere/out: there is no folder /nowhere; make it first",
        ),
        (["advise", "x", "--keep", "p99.9=1s"], "--keep p99.9: volumes' models do not know rare slow I/Os"),
        (["advise", "x", "--keep", "p99=1s", "--race", "--output", "/nowhere/out"], "is no folder /nowhere"),
        (["report", "x", "--output", "report.html.gz"], "nothing is written as gzip; give --format, one of"),
        (["report", "x", "--output", "report.PDF"], "report.PDF: nothing is written as application/pdf; giv"),
        (["report", "x", "--output", "x.tsv"], "nothing is written as text/tab-separated-values; give --fo"),
        (["gate", "x", "--max-slowdown", "p50=5%", "--junit", "nodir/x"], "nodir/x: there is no folder nodi"),
        (["advise", "x", "--keep", "p99=1s", "--plan", "nodir/x"], "nodir/x: there is no folder nodir; make"),
        (["volumes", "modify", "vol-1"], "to what? give --type, --size, --iops or --throughput"),
        (["run", "smoke", "--sessions", "2"], "--sessions"),
        (["corpus", "convert", "x", "--output", "~nobody-is-called-so"], "directory.; write the whole path"),
        (["study", "burst-2014", "--simulate", "--runs", "2"], "--runs: says something of devices alone; le"),
        (["study", "burst-2014", "--simulate", "--session", "latest"], "--session: nikkei-2021 alone"),
        (["sessions", "--plan", ""], "--plan '': an empty value; is a variable of your shell not set?"),
        (["push", "latest", "--configuration-name", ""], "an empty value; is a variable of your shell not"),
        (["trace", "--mount", "", "--size", "1GiB", "--seconds", "2"], "--mount '': an empty value; is a"),
        (["trace", "--mount", "/", "--size", "1GiB", "--seconds", "nan"], "Invalid value for '--seconds'"),
        (
            ["trace", "--mount", "/", "--seconds", "2", "--size", "1GiB", "--began", "2026-11-22T10:00:00Z"],
            "--began: says something of another tool's trace alone; leave it out",
        ),
        (["trace", "--from", "x", "--size", "1GiB", "--pid", "7"], "--pid: says something of a mount alone"),
        (["usage", "/", "--size", "1GiB", "--device", "sda"], "/: a folder without a session; name one log"),
        (["usage", "/", "--size", "1GiB"], "/: a folder without a session; name one log in it, or what"),
        (
            ["trace", "--from", "/dev/null", "--size", "1GiB"],
            "in it; name a trace of these ('esrally-ebs usage' takes iostat, sar and CloudWatch)",
        ),
        (["advise", "x", "--keep", "p99=1s", "--accept", "idle"], "--accept: says something of a race alone"),
        (["run", "burst-2014", "--sessions", "3"], "has no [race], and fio alone gets no verdict"),
        (
            ["run", "ingest", "--sessions", "3", "--set", "design.knee=p99=1s", "--set", "cache.mode=warm"],
            "ingest.toml: looks for a knee",
        ),
    ],
)
def test_words_that_mean_nothing_are_one_line_and_exit_code_2(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith("esrally-ebs: ")
    assert says in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("track", ["{}", "../tracks/logs-ebs", "logs-ebs/", ""])
def test_no_plan_has_a_track_run_that_is_not_among_ours(
    track: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "track.json").write_text("{}")
    raced: list[object] = []
    monkeypatch.setattr(runs, "call_rally", lambda *flags: raced.append(flags) or 0)
    assert main(["run", "gp2-vs-gp3", "--set", f"race.track={track.format(tmp_path)}"]) == 2
    assert not raced
    assert "race.track: there is no " in capsys.readouterr().err


def test_a_plan_that_measures_nothing_leaves_no_session_to_be_the_latest(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.toml").write_text('name = "p"\n[[arm]]\nname = "a"\ntype = "directory"\n')
    assert main(["run", str(tmp_path / "p.toml")]) == 2
    assert "p.toml: has no [race] and no [[baseline]], so nothing would" in capsys.readouterr().err
    assert not (home / "sessions").exists()


def test_without_words_there_is_help_and_no_empty_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    printed = capsys.readouterr()
    assert "Usage: esrally-ebs" in printed.out
    assert printed.err == ""


def test_the_release_and_a_short_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"esrally-ebs {__version__}\n"
    assert main(["sessions", "-h"]) == 0
    assert "Usage: esrally-ebs sessions" in capsys.readouterr().out


def printing_to(descriptor: int, encoding: str = "utf-8") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.FileIO(descriptor, "w"), encoding=encoding, write_through=False)


def test_a_closed_pipe_is_no_failed_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    # what rich prints, what print does, and what is written by name
    for words in (["--help"], ["dashboard"], ["dashboard", "--output", f"/dev/fd/{writing}"]):
        with monkeypatch.context() as patched, printing_to(os.dup(writing)) as stream:
            patched.setattr(sys, "stdout", stream)
            assert main(words) == 141
    os.close(writing)


@pytest.mark.parametrize("place", ["pipe", "/dev/full"])
def test_an_error_that_nobody_can_read_keeps_its_exit_code(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, descriptor = os.pipe()
    os.close(reading)
    if place != "pipe":
        os.close(descriptor)
        descriptor = os.open(place, os.O_WRONLY)
    with monkeypatch.context() as patched, printing_to(descriptor) as stream:
        patched.setattr(sys, "stderr", stream)
        assert main(["report"]) == 2
        stream.write("what another library says later")  # flushed at the end, where Python answers with 120


def test_a_terminal_without_a_size_does_not_swallow_what_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    assert main(["--help"]) == 0
    assert "Usage: esrally-ebs" in capsys.readouterr().out


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC])
def test_clean_removes_all_where_nobody_reads_any_more_or_the_disk_of_its_log_is_full(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    removed: list[str] = []

    def take_down() -> Iterator[tuple[str, list[str]]]:
        for session in ("s-1", "s-2"):
            removed.append(session)
            yield session, []

    def hung_up(text: str) -> None:
        raise OSError(number, os.strerror(number))

    def sweep(say: Callable[[str], None], *, dead_instances: bool) -> list[str]:
        say("vol-1: deleted")
        removed.append("vol-1")
        return []

    monkeypatch.setattr(machine, "put", hung_up)
    monkeypatch.setattr(machine.clean, "clean", take_down)
    monkeypatch.setattr(machine.clean, "clean_nodes", lambda: iter(()))
    monkeypatch.setattr(machine.running, "sessions", lambda: ([], []))
    monkeypatch.setattr(machine.volumes, "sweep_aws", sweep)
    monkeypatch.setattr(machine.host_client, "leftovers", lambda home: ())
    assert main(["clean"]) == 0
    assert removed == ["s-1", "s-2", "vol-1"]


def test_sessions_of_the_caller_that_may_not_be_read_keep_nothing_else_unsaid(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def leftovers(home: Path) -> Iterator[tuple[str, bool]]:
        raise PermissionError(13, "Permission denied", "/root/ebs/sessions")
        yield

    monkeypatch.setattr(machine.clean, "clean", lambda: iter([("s-1", ["/mnt: stays"])]))
    monkeypatch.setattr(machine.clean, "clean_nodes", lambda: iter(()))
    monkeypatch.setattr(machine.running, "sessions", lambda: ([], []))
    monkeypatch.setattr(machine.volumes, "sweep_aws", lambda say, *, dead_instances: [])
    monkeypatch.setattr(machine.host_client, "leftovers", leftovers)
    assert main(["clean"]) == 3
    shown = capsys.readouterr()
    assert "were not asked: /root/ebs/sessions may not be read" in shown.out
    assert "/mnt: stays" in shown.err


def test_a_full_disk_under_the_output_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patched, printing_to(os.open("/dev/full", os.O_WRONLY)) as stream:
        patched.setattr(sys, "stdout", stream)
        assert main(["dashboard"]) == 3
    assert "esrally-ebs: stdout: No space left on device; see that it" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["dashboard"], ["study", "striping-2015", "--simulate", "--format=json"]])
def test_a_dash_is_stdout(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*words, "--output", "-"]) == 0
    assert capsys.readouterr().out.startswith("{")
    assert list(tmp_path.iterdir()) == []


def test_a_dash_is_stdout_for_files_beside_the_output_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """advise --plan and gate --junit wrote a file of that name."""
    monkeypatch.chdir(tmp_path)
    put("[[arm]]", Path("-"))
    assert capsys.readouterr().out == "[[arm]]\n"
    assert list(tmp_path.iterdir()) == []


def test_what_goes_to_a_descriptor_stands_behind_what_its_file_has(tmp_path: Path) -> None:
    with (log := tmp_path / "job.log").open("w") as file:
        file.write("built\n")
        file.flush()
        put("<testsuites />\n", Path(f"/dev/fd/{file.fileno()}"))
        file.seek(0, os.SEEK_END)
        file.write("done\n")
    assert log.read_text() == "built\n<testsuites />\ndone\n"


@pytest.mark.parametrize(
    ("number", "is_own", "holds"),
    [(errno.EBUSY, False, "new"), (errno.EACCES, True, "new"), (errno.EACCES, False, "old")],
)
def test_a_file_in_whose_place_nothing_can_be_put_is_written_to(
    number: int, is_own: bool, holds: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is mounted into a container, or this user's in a directory that is closed to the user."""

    def refuse(path: Path, target: Path) -> None:
        raise OSError(number, os.strerror(number), str(path))

    (output := tmp_path / "index.html").write_text("old")
    monkeypatch.setattr(Path, "replace", refuse)
    user = output.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: user if is_own else user + 1)
    with nullcontext() if holds == "new" else pytest.raises(SetupError, match="name a file elsewhere"):
        put("new", output)
    assert [path.read_text() for path in tmp_path.iterdir()] == [holds]


def test_who_may_read_a_report_may_read_the_next_one(tmp_path: Path) -> None:
    (output := tmp_path / "report.html").touch(mode=0o600)
    put("new", output)
    assert output.stat().st_mode & 0o777 == 0o600
    assert output.read_text() == "new"


def test_links_in_a_circle_make_way_for_what_is_written(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert main(["dashboard", "--output", str(tmp_path / "loop")]) == 0
    assert (tmp_path / "loop").read_text().startswith("{")


def test_a_closed_output_and_another_encoding_stop_no_command(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    SessionFolder.create(home, "one", kind="race", plan=small_plan()).finish(State.FAILED, "gr\u00f6\u00dfe")
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", None)
        assert main(["sessions"]) == 0
        sys.stdout.close()
    with (
        monkeypatch.context() as patched,
        printing_to(os.open(home / "out", os.O_CREAT | os.O_WRONLY), "ascii") as stream,
    ):
        patched.setattr(sys, "stdout", stream)
        assert main(["sessions"]) == 0
    assert "gr??e" in (home / "out").read_text()


def test_texts_are_shown_as_they_are_and_on_one_line(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    why = f"{home}/:key:/[/]: take [[baseline]] out of the plan, " + "or more of it " * 30
    SessionFolder.create(home, "one", kind="race", plan=small_plan()).finish(State.FAILED, why)
    assert main(["sessions"]) == 0
    assert why.strip() in capsys.readouterr().out


def test_a_command_that_is_not_there_or_was_killed_ends_as_in_a_shell(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="/nowhere/rally: No such file or directory; install it"):
        system.run_in_terminal(["/nowhere/rally"])
    assert system.run_in_terminal(["sh", "-c", "kill -9 $$"]) == 137
    (tmp_path / "tool").write_text("no program")
    with pytest.raises(SetupError, match="tool: Permission denied; run"):
        system.run([tmp_path / "tool"], timeout_s=1.0)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KeyError("ended_at"), 4),
        (RecursionError("deep"), 4),
        (OverflowError("1e999"), 4),
        (RuntimeError("odd"), 3),
    ],
)
def test_an_error_that_nobody_foresaw_is_one_line_and_no_failed_gate(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(home: Path) -> None:
        raise error

    monkeypatch.setattr("esrally_ebs.cli.sessions.list_sessions", fail)
    assert main(["sessions"]) == code
    line = capsys.readouterr().err
    assert line.startswith(f"esrally-ebs: {type(error).__name__} in test_misuse.py:")
    assert line.count("\n") == 1
    monkeypatch.setenv("ESRALLY_EBS_TRACEBACK", "1")
    assert main(["sessions"]) == code
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_rally_races_beside_any_of_our_commands() -> None:
    waiting = (
        "import time; from esrally_ebs import cli;"
        " cli._run = lambda argv: print(flush=True) or time.sleep(60); cli.main(['volumes', 'modify'])"
    )
    command = [sys.executable, "-c", waiting, "esrally-ebs"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as ours:
        assert ours.stdout is not None
        ours.stdout.readline()  # the command is under way
        try:
            assert ours.pid not in [other.pid for other in process.find_all_other_rally_processes()]
        finally:
            ours.kill()


def test_what_only_reads_sessions_needs_no_rally(home: Path) -> None:
    without = "import sys; sys.modules['esrally'] = None; from esrally_ebs.cli import main; sys.exit(main())"
    subprocess.run([sys.executable, "-", "sessions"], input=without, text=True, check=True, timeout=60)


def test_ctrl_c_while_modules_load_shows_no_traceback() -> None:
    words = [sys.executable, "-X", "importtime", "-m", "esrally_ebs", "--version"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as command:
        assert command.stderr is not None
        for line in command.stderr:
            if "esrally_ebs.errors" in line:
                break
        command.send_signal(signal.SIGINT)
        output = command.stderr.read()
    assert command.returncode == -signal.SIGINT
    assert "Traceback" not in output


def test_a_hangup_that_nohup_has_ignored_ends_no_command() -> None:
    code = (
        "import os, signal; from esrally_ebs.machine.processes import end_as_by_interrupt;"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN); end_as_by_interrupt();"
        "os.kill(os.getpid(), signal.SIGHUP)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_second_hangup_does_not_cut_short_what_the_first_removes() -> None:
    """A terminal that closes sends two."""
    code = (
        "import os, signal; from esrally_ebs.machine.processes import end_as_by_interrupt\n"
        "for ending in (signal.SIGHUP, signal.SIGTERM): signal.signal(ending, signal.SIG_DFL)\n"
        "end_as_by_interrupt()\n"
        "try: signal.raise_signal(signal.SIGHUP)\n"
        "except KeyboardInterrupt:\n"
        "    for ending in (signal.SIGHUP, signal.SIGTERM): signal.raise_signal(ending)\n"
        "    print('removed')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=60, stdout=subprocess.PIPE)
    assert done.stdout == b"removed\n"


def test_ctrl_c_in_a_callback_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python drops what a callback raises; the import system has one that a Ctrl-C met now and then."""
    monkeypatch.setattr(sys, "unraisablehook", interrupt_again)
    dropped = []

    def interrupted(_: object) -> None:
        dropped.append(1)
        raise KeyboardInterrupt

    observed = {1, 2}
    reference = weakref.ref(observed, interrupted)
    del observed
    assert reference() is None
    assert dropped
    with pytest.raises(KeyboardInterrupt):
        time.sleep(10)
