"""A session that fails is taken down, whatever else fails with it."""

from pathlib import Path

import pytest

from esrally_ebs import clean
from esrally_ebs.errors import SetupError
from esrally_ebs.model import State
from esrally_ebs.plan import parse_plan
from esrally_ebs.session import Live
from esrally_ebs.store import load_session

PLAN = 'name = "x"\n[[arm]]\nname = "a"\ntype = "directory"\nmount = "/mnt"\n'


def test_a_session_that_cannot_write_how_it_failed_is_taken_down_all_the_same(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = Live("s")
    events = tmp_path / "home" / "sessions" / "s" / "events.jsonl"
    write_owner = clean.write_owner

    def begin_and_fail(session: str) -> Path:
        made = write_owner(session)
        events.mkdir()  # no event can be appended or read, as on a disk that is full or broken
        raise SetupError(f"{made}: no room")

    monkeypatch.setattr(clean, "write_owner", begin_and_fail)
    with pytest.raises(SetupError, match="no room"):
        live.start(parse_plan(PLAN, "x.toml"), clusters={"a": "a"})
    assert not (run / "s").exists()
    assert load_session(tmp_path / "home" / "sessions" / "s").state is State.FAILED
