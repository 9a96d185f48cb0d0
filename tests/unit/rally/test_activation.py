"""What a process of a race knows of its session: as it is now, for nodes may have been started anew."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from small_plan import small_plan

from esrally_ebs.rally import activation
from esrally_ebs.store.context import Context


def test_a_session_is_known_as_it_is_and_as_it_was_once_it_is_taken_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    first = Context(session="s", folder=tmp_path, run=run, plan=small_plan(), arms=())
    first.save()
    monkeypatch.setattr(activation, "_installed", {"path": first.path})
    assert activation.current() == first
    assert activation.current() is activation.current()
    second = replace(first, has_writes=True)
    second.save()
    assert activation.current() == second
    assert [path.name for path in run.iterdir()] == ["context.json"]
    shutil.rmtree(run)
    assert activation.current() == second
