"""A session that fails is taken down, whatever else fails with it."""

from pathlib import Path

import pytest

from esrally_ebs.errors import SetupError
from esrally_ebs.model import State
from esrally_ebs.plan import parse_plan
from esrally_ebs.session.protocol import LiveSession
from esrally_ebs.session.steps import MachineSteps
from esrally_ebs.store import load_session

PLAN = 'name = "x"\n[[arm]]\nname = "a"\ntype = "directory"\nmount = "/mnt"\n'


def test_a_session_that_cannot_write_how_it_failed_is_taken_down_all_the_same(
    run: Path, tmp_path: Path
) -> None:
    events = tmp_path / "home" / "sessions" / "s" / "events.jsonl"

    def fail(*_: object) -> None:
        events.mkdir()  # no event can be appended or read, as on a disk that is full or broken
        raise SetupError(f"{run}: no room")

    live = LiveSession(MachineSteps("s", parse_plan(PLAN, "x.toml"), start_reaper=fail))
    with pytest.raises(SetupError, match="no room"):
        live.prepare()
    assert not (run / "s").exists()
    assert load_session(tmp_path / "home" / "sessions" / "s").state is State.FAILED
