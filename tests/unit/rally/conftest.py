"""For tests of what is replaced in Rally: it is as it was after each, and no user has raced before."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from esrally import log, paths
from esrally.driver import runner
from rally_configuration import Config, configuration

from esrally_ebs.rally import patches


@pytest.fixture
def rally() -> Iterator[None]:
    """Rally as it was, after the test."""
    before = [(patch, getattr(patch.owner, patch.name, None)) for patch in patches.TABLE]
    yield
    for patch, thing in before:
        if thing is not None:
            setattr(patch.owner, patch.name, thing)
        elif hasattr(patch.owner, patch.name):
            delattr(patch.owner, patch.name)


@pytest.fixture(autouse=True)
def rally_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rally's own files, without which no actor of it starts, and those that it leaves of tracks it reads."""
    monkeypatch.setenv("RALLY_HOME", str(tmp_path_factory.mktemp("rally")))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("rendered")))
    Path(paths.logs()).mkdir(parents=True)
    shutil.copy(log.TEMPLATE_PATH, log.log_config_path())


@pytest.fixture
def cfg(tmp_path: Path) -> Config:
    """Rally's configuration of a race on nodes that the pack starts."""
    return configuration(tmp_path, pipeline="from-sources")


@pytest.fixture
def no_runners() -> Any:  # noqa: ANN401 - a fixture
    known = vars(runner)["__RUNNERS"]
    before = dict(known)
    known.clear()
    yield
    known.clear()
    known.update(before)
