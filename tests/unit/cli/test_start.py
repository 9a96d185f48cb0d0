"""A command loads what it needs: the help and the release no command, a word its module alone."""

import os
import subprocess
import sys

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from esrally_ebs.cli import app_of, main

WORDS = tuple(get_command(app_of()).commands)  # type: ignore[attr-defined]
HEAVY = ("elasticsearch", "numpy", "pyarrow", "scipy")


def loaded(*words: str) -> set[str]:
    """The modules of a new interpreter that has run a command."""
    code = "import sys; from esrally_ebs.cli import main; main(); print(*sys.modules, file=sys.stderr)"
    ended = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    return set(ended.stderr.split())


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["--version"], [], ["repotr"], ["--nonsense"], ["--"]])
def test_what_runs_no_command_loads_none(words: list[str]) -> None:
    modules = loaded(*words)
    assert modules.isdisjoint(HEAVY)
    assert {name for name in modules if name.startswith("esrally_ebs.cli.")} == {"esrally_ebs.cli.output"}


def test_a_track_is_made_of_logs_without_what_sessions_need() -> None:
    assert loaded("workload", "import", "--help").isdisjoint(HEAVY)


@pytest.mark.parametrize("word", ["doctor", "run", "sessions", "advise", "volumes"])
def test_no_command_loads_clients_and_statistics_that_few_need(word: str) -> None:
    assert loaded(word, "--help").isdisjoint(("elasticsearch", "scipy.stats"))


def test_help_without_commands_is_that_of_the_commands() -> None:
    quick, whole = (CliRunner().invoke(app_of(words), ["--help"]) for words in (["--help"], None))
    assert quick.stdout == whole.stdout


def test_a_command_after_two_dashes_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--", "dashboard"]) == 0
    assert capsys.readouterr().out.startswith("{")


def test_a_shell_is_offered_a_command_and_its_options() -> None:
    asked = {"_ESRALLY_EBS_COMPLETE": "complete_bash"}
    for words, count, offered in (("rep", 1, "report"), ("report --f", 2, "--format")):
        shell = {**os.environ, **asked, "COMP_WORDS": f"esrally-ebs {words}", "COMP_CWORD": str(count)}
        command = [sys.executable, "-m", "esrally_ebs"]
        assert subprocess.run(command, env=shell, capture_output=True, text=True).stdout.split() == [offered]


@pytest.mark.parametrize("word", WORDS)
def test_each_word_finds_its_command_in_one_module(word: str) -> None:
    commands = get_command(app_of([word])).commands  # type: ignore[attr-defined]
    assert word in commands
    assert len(commands) < len(WORDS)
