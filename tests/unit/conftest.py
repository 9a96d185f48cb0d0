"""For unit tests: the pack with folders of its own, so that none touches what this machine has."""

from pathlib import Path

import pytest


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run directory of a pack that has nothing yet, and no engine: so there are no containers."""
    monkeypatch.setenv("ESRALLY_EBS_RUN", str(tmp_path / "run"))
    monkeypatch.setenv("ESRALLY_EBS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", "")
    return tmp_path / "run"
