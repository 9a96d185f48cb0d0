"""A real search for the knee, as short as it gets: from the command to its report."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rally_command import Homes, homes

from esrally_ebs.model import State
from esrally_ebs.store import load_session

pytestmark = [pytest.mark.system, pytest.mark.long]

PLAN = """
name = "knee"
accept = ["lateness"]
arm = [{name = "gp3", type = "gp3", size = "20GiB"}]
dataset = {documents = 20000}
race = {iterations = 2, warmup_iterations = 5}
cache = {mode = "steady"}
design = {step = "10s", steps = 6, budget = "70s"}
"""


@pytest.fixture
def rally(tmp_path: Path) -> Iterator[Homes]:
    with homes(tmp_path / "homes") as made:
        yield made


def test_a_search_for_the_knee_ends_with_a_rate_for_the_arm_and_all_its_steps(
    rally: Homes, tmp_path: Path
) -> None:
    plan = tmp_path / "knee.toml"
    plan.write_text(PLAN)
    ended = rally.knee(plan, "--latency=p90=100ms", "--task=range_field_big_range")
    assert ended.exit_code == 0, ended.output
    (folder,) = (rally.pack / "sessions").iterdir()
    session = load_session(folder)
    assert session.state is State.COMPLETE
    assert {event.arm for event in session.events if event.kind == "step"} == {"gp3"}
    (warmed,) = (event for event in session.events if event.kind in ("steady", "not-steady"))
    assert warmed.fields["read_bytes"][0] > 0  # nothing that copying the index left in memory was there
    assert json.loads((folder / "report.json").read_text())["tables"]["knee"].keys() == {"gp3"}
    assert "Highest rate" in (folder / "report.txt").read_text()
