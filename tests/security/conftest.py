"""For tests of what must not be touched: the pack with folders of its own, and a victim beside them."""

from pathlib import Path

import pytest
import setproctitle
from faulted import able_machine, home

__all__ = ["able_machine", "home"]

setproctitle.setproctitle(
    "pytest"
)  # as for system tests: Rally races beside no Python with "esrally" in its words


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run directory that is not there yet, and no engine: so there are no containers."""
    monkeypatch.setenv("ESRALLY_EBS_RUN", str(tmp_path / "run"))
    monkeypatch.setenv("ESRALLY_EBS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", "")
    return tmp_path / "run"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of the user's."""
    file = tmp_path / "victim" / "thesis"
    file.parent.mkdir()
    file.write_text("years of work")
    return file
