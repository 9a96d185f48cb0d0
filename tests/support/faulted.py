"""What tests of faults have in common: a machine that can, a home, and what is checked after each fault."""

import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from race_under_test import Race, fio_job, plan

from esrally_ebs import cli

QUERIES = plan(iterations=100_000)
FIO = plan(fio_job("short", runtime="200ms"), fio_job("long", runtime="5m"), arms=("gp3", "directory"))


@pytest.fixture(scope="session")
def able_machine() -> None:
    if os.geteuid() != 0 or not shutil.which("docker") or not shutil.which("fio"):
        pytest.skip("needs root, Docker and fio")


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sessions of all cases, and the one dataset that they copy."""
    return tmp_path_factory.mktemp("home")


@dataclass(frozen=True)
class Afterwards:
    """What is checked after every fault."""

    patch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]
    kept: list[tuple[str, object]]

    def listed(self, race: Race, state: str, reason: str) -> None:
        """The session is listed with its end and a reason, and 'clean' finds nothing to do."""
        self.patch.setenv("ESRALLY_EBS_HOME", str(race.home))
        self.capsys.readouterr()
        assert cli.main(["sessions", "--json"]) == 0
        (row,) = [row for row in json.loads(self.capsys.readouterr().out) if row["id"] == race.id]
        assert (row["state"], bool(re.search(reason, row["reason"]))) == (state, True), row
        assert len(row["reason"].splitlines()) <= 1
        assert cli.main(["clean"]) == 0
        output = self.capsys.readouterr().out
        assert race.id not in output
        assert re.search(r"^nothing (else )?is left behind$", output, re.MULTILINE)  # others may leave more

    def row(self, name: str, race: Race, code: int, gone_s: float) -> None:
        """A row of docs/faults.md; ``--junitxml`` holds them all."""
        self.kept.append(("row", f"| {name} | {race.error or race.cancelled} | {code} | {gone_s:.1f} |"))


@pytest.fixture
def afterwards(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> Afterwards:
    return Afterwards(monkeypatch, capsys, request.node.user_properties)


def assert_one_line(race: Race, reason: str) -> None:
    assert re.search(reason, race.error), race.output
    assert len(race.error.splitlines()) == 1, race.output
