"""What is typed wrong, and what cannot be printed: one line and the exit code of it, never a traceback."""

import io
import os
import sys
from pathlib import Path

import pytest

from esrally_ebs import system
from esrally_ebs.cli import main
from esrally_ebs.errors import SetupError
from esrally_ebs.model import State
from esrally_ebs.store import SessionFolder


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["sessions", "--nonsense"], "No such option: --nonsense"),
        (["report"], "Missing argument"),
        (["volumes", "set", "gp2", "--credits", "2"], "--credits"),
        (["volumes", "set", "gp2", "--time-scale", "much"], "--time-scale"),
        (["volumes", "set", "gp2", "--drain", "--refill"], "one of --drain and --refill"),
        (["volumes", "set", "gp2", "--credits", "nan"], "--credits"),
        (["simulate", "smoke", "--set", "=3"], "--set =3: write KEY=VALUE"),
        (["simulate", "smoke", "--set", "name=" + "[" * 50_000], "smoke.toml: name: "),
        (["corpus", "generate", "--output", "/dev/null"], "/dev/null: is no file"),
        (["study", "burst-2014", "--simulate", "--output", "/"], "--output /: is a folder; name a file"),
        (
            ["study", "burst-2014", "--output", "/nowhere/out"],
            "--output /nowhere/out: there is no folder /nowhere",
        ),
        (["run", "smoke", "--set", "race.track=nowhere"], "race.track: there is no "),
        (["run", "smoke", "--set", "race.track=../docs"], "race.track: there is no "),
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


def test_without_words_there_is_help_and_no_empty_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    printed = capsys.readouterr()
    assert "Usage: esrally-ebs" in printed.out
    assert printed.err == ""


def printing_to(descriptor: int, encoding: str = "utf-8") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.FileIO(descriptor, "w"), encoding=encoding, write_through=False)


def test_a_closed_pipe_is_no_failed_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    for words in (["--help"], ["dashboard"]):  # what rich prints, and what print does
        with monkeypatch.context() as patched, printing_to(os.dup(writing)) as stream:
            patched.setattr(sys, "stdout", stream)
            assert main(words) == 141
    os.close(writing)


def test_a_full_disk_under_the_output_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patched, printing_to(os.open("/dev/full", os.O_WRONLY)) as stream:
        patched.setattr(sys, "stdout", stream)
        assert main(["dashboard"]) == 3
    assert "No space left on device; see that it" in capsys.readouterr().err


def test_a_closed_output_and_another_encoding_stop_no_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ESRALLY_EBS_HOME", str(tmp_path))
    SessionFolder.create(tmp_path, "one", kind="race", plan={"name": "gr\u00f6\u00dfe"})
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", None)
        assert main(["sessions"]) == 0
        sys.stdout.close()
    with (
        monkeypatch.context() as patched,
        printing_to(os.open(tmp_path / "out", os.O_CREAT | os.O_WRONLY), "ascii") as stream,
    ):
        patched.setattr(sys, "stdout", stream)
        assert main(["sessions"]) == 0
    assert "gr??e" in (tmp_path / "out").read_text()


def test_texts_are_shown_as_they_are_and_on_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ESRALLY_EBS_HOME", str(tmp_path))
    why = f"{tmp_path}/:key:/[/]: take [[baseline]] out of the plan, " + "or more of it " * 30
    SessionFolder.create(tmp_path, "one", kind="race", plan={"name": "p"}).finish(State.FAILED, why)
    assert main(["sessions"]) == 0
    assert why.strip() in capsys.readouterr().out


def test_a_command_that_is_not_there_or_was_killed_ends_as_in_a_shell(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="/nowhere/rally: No such file or directory; install it"):
        system.run_in_terminal(["/nowhere/rally"])
    assert system.run_in_terminal(["sh", "-c", "kill -9 $$"]) == 137
    (tmp_path / "tool").write_text("no program")
    with pytest.raises(SetupError, match="tool: Permission denied; run"):
        system.run([tmp_path / "tool"], timeout_s=1.0)
