"""For tests of what is on disk: a session that has just begun."""

from pathlib import Path

import pytest
from small_plan import small_plan

from esrally_ebs.store import SessionFolder


@pytest.fixture
def folder(tmp_path: Path) -> SessionFolder:
    return SessionFolder.create(tmp_path, "a-1", kind="race", plan=small_plan())
