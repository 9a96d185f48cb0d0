"""For tests of what must not be touched: the fixtures of faults, and a victim beside the pack."""

from pathlib import Path

import pytest
from faulted import able_machine, home

__all__ = ["able_machine", "home"]


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of the user's."""
    file = tmp_path / "victim" / "thesis"
    file.parent.mkdir()
    file.write_text("years of work")
    return file
