"""Files without an end, and pipes: what a user names is read up to a bound, and refused in one line."""

import os
from pathlib import Path

import pytest

from esrally_ebs.catalog.cost import price_list
from esrally_ebs.cli import main
from esrally_ebs.errors import PlanError


@pytest.mark.parametrize(
    "words",
    [
        ["run", "PLAN"],
        ["trace", "--from", "/dev/zero", "--size", "100GiB"],
        ["usage", "/dev/zero", "--size", "100GiB"],
        ["workload", "import", "/dev/zero", "--output", "made"],
    ],
)
def test_a_device_without_an_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = tmp_path / "plan.toml"
    plan.symlink_to("/dev/zero")
    for module in ("plan.plan", "cli.usage"):
        monkeypatch.setattr(f"esrally_ebs.{module}._MAX_CHARACTERS", 1000)
    assert main([str(plan) if word == "PLAN" else word for word in words]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_prices_that_are_no_file_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", "/dev/tty", str(tmp_path / "pipe")):
        with pytest.raises(PlanError, match=f"{path}: prices cannot be read: that is no file"):
            price_list(path)
