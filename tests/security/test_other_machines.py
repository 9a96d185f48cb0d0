"""What a data host or its coordinator sends leads nowhere but where it is meant."""

import base64
import json
from pathlib import Path

import pytest

from esrally_ebs import errors
from esrally_ebs.errors import SetupError
from esrally_ebs.session import host
from esrally_ebs.session.asking import Answering, error_of


@pytest.fixture
def helper(run: Path) -> Answering:
    """The helper on a data host, which a key may allow a coordinator alone."""
    steps = host.HostSteps(start_reaper=lambda *_: None)
    steps.begin_here("s")
    return Answering(steps, host.OPERATIONS)


def asked(helper: Answering, operation: str, **arguments: object) -> str:
    """Why it was refused."""
    line = json.dumps({"operation": operation, "arguments": arguments}).encode()
    return str(helper.answer(line)[0]["error"]["text"])


def test_an_index_from_a_coordinator_takes_no_other_folders_place(helper: Answering, victim: Path) -> None:
    for key in (str(victim.parent), "../../victim", "..", ""):
        data = base64.b64encode(b"x").decode()
        for operation, more in (
            ("receive", {"path": "thesis", "data": data}),
            ("place", {"arms": []}),
            ("has", {}),
        ):
            assert "key" in asked(helper, operation, key=key, **more), operation
    assert victim.read_text() == "years of work"
    assert [path.name for path in victim.parent.parent.glob("victim*")] == ["victim"]


def test_an_index_from_a_coordinator_is_for_the_host_alone(helper: Answering, tmp_path: Path) -> None:
    line = {"operation": "receive", "arguments": {"key": "k", "path": "elasticsearch/a", "data": "eA=="}}
    assert helper.answer(json.dumps(line).encode())[0] == {"result": None}
    (received,) = (tmp_path / "home" / "datasets").iterdir()
    assert [path.stat().st_mode & 0o077 for path in (received, received / "elasticsearch")] == [0, 0]


@pytest.mark.parametrize("engine", ["tcp://evil:2375", "ssh://evil", "-H", ""])
def test_a_helper_asks_no_engine_that_a_plan_may_not_name(helper: Answering, engine: str) -> None:
    assert "docker" in asked(helper, "held", sessions=[], docker=engine)


@pytest.mark.parametrize("kind", ["__delattr__", "__class__", "near", "Iterable", "", 7])
def test_an_error_from_elsewhere_is_one_of_ours(kind: str) -> None:
    assert type(error_of({"kind": kind, "text": "PlanError"})) is SetupError
    assert errors.PlanError
