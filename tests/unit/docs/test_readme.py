"""The README's commands in their order, on a recorded session, without root; a race's words are only read."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from esrally import rally
from esrally.utils import opts
from query_logs import GOLDEN_LOGS
from sessions_of_six_rounds import make

from esrally_ebs.cli import main
from esrally_ebs.model import Backend
from esrally_ebs.rally.settings import plan_for

ROOT = Path(__file__).parents[3]
COMMANDS = [
    shlex.split(line) for line in re.findall(r"^\$ (.+)$", (ROOT / "README.md").read_text(), re.MULTILINE)
]


@pytest.fixture
def at_home(own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own to be in, with one recorded session."""
    monkeypatch.chdir(own_folders)
    make(own_folders / "home", "a-race", at=4e9)  # the latest, whatever is simulated
    shutil.copy(GOLDEN_LOGS / "es-slow-log-8.log", own_folders / "slowlog.json")
    return own_folders


def test_every_command_of_ours_works_on_a_recorded_session(
    at_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = {}
    for program, *words in COMMANDS:
        if program == "esrally-ebs":
            assert main(words) == 0, f"{shlex.join(words)}: {capsys.readouterr().err}"
            outputs[words[0]] = capsys.readouterr().out
    assert outputs.keys() == {"report", "volumes", "workload", "gate", "simulate"}
    assert (at_home / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert "gp3 (emulated) is faster than gp2 (emulated)" in outputs["report"]
    assert "<testsuite" in (at_home / "gate.xml").read_text()
    assert "simulated in virtual time" in outputs["simulate"]


def test_a_race_on_mounts_has_the_arms_that_it_names() -> None:
    words, own = (words for program, *words in COMMANDS if program == "esrally")
    given = rally.create_arg_parser().parse_args(words)
    assert (ROOT / given.track_path / "track.json").is_file()
    arms = plan_for(opts.to_dict(given.track_params)).arm
    assert [(arm.name, arm.backend, str(arm.mount)) for arm in arms] == [
        ("gp2", Backend.MOUNTED, "/mnt/gp2"),
        ("gp3", Backend.MOUNTED, "/mnt/gp3"),
    ]
    given = rally.create_arg_parser().parse_args(own)
    assert (given.track_path, plan_for(opts.to_dict(given.track_params)).dataset.data) == (
        "my-queries",
        Path("/var/lib/elasticsearch"),
    )


def test_no_other_program_is_called_but_make() -> None:
    others = [words for words in COMMANDS if words[0] not in ("esrally-ebs", "esrally")]
    assert others == [["make", "race"]]
