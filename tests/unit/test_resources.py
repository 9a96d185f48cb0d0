"""Where the pack keeps its own, by the environment."""

from pathlib import Path

import pytest

from esrally_ebs.errors import SetupError
from esrally_ebs.resources import home, run_dir


def test_folders_are_absolute_whatever_was_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("ESRALLY_EBS_HOME", "~/ebs")
    monkeypatch.setenv("ESRALLY_EBS_RUN", "run")

    assert home() == Path("/home/me/ebs")
    assert run_dir() == tmp_path / "run"


def test_a_home_that_nobody_knows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESRALLY_EBS_HOME", "~nobody-of-that-name/ebs")

    with pytest.raises(SetupError, match=r"^ESRALLY_EBS_HOME: .*; set it to a folder$"):
        home()
