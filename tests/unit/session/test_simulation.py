"""A plan's fio jobs in virtual time, recorded as a session."""

from pathlib import Path

import pytest

from esrally_ebs.errors import PlanError
from esrally_ebs.model import State
from esrally_ebs.session import runs
from esrally_ebs.store import list_sessions, load_session


def test_a_simulated_plan_is_a_session_that_says_so_everywhere(home: Path) -> None:
    lines: list[str] = []
    text = runs.simulate_plan("smoke", {"design.seed": 3}, say=lines.append)
    assert "simulated in virtual time from the volume models: nothing was measured" in text
    assert "gp2 (emulated)" in text
    (summary,) = list_sessions(home)
    session = load_session(summary.path)
    assert (session.kind, session.state, session.emulated) == ("simulate", State.COMPLETE, True)
    assert (summary.path / "report.txt").read_text() == text
    for form in ("report.md", "report.csv", "report.json", "report.html"):
        assert "nothing was measured" in (summary.path / form).read_text()
    # two arms, two jobs, reads and writes of the mix, and the cold-search job twice
    assert session.baseline.num_rows == 2 * (2 + 1 + 1)
    *jobs, place = lines
    assert len(jobs) == len([event for event in session.events if event.kind == "simulated"]) == 2 * 3
    assert place == f"every job's JSON, as fio writes it: {summary.path / 'baseline'}"
    assert len(list((summary.path / "baseline").glob("*.json"))) == len(jobs)


def test_ctrl_c_leaves_a_session_that_says_so(home: Path) -> None:

    def press(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runs.simulate_plan("smoke", {}, say=press)
    (summary,) = list_sessions(home)
    assert (summary.state, summary.reason) == (State.CANCELLED, "cancelled by the user")


def test_a_plan_without_fio_jobs_cannot_be_simulated(tmp_path: Path) -> None:
    plan = tmp_path / "empty.toml"
    plan.write_text('name = "empty"\n[[arm]]\nname = "a"\ntype = "gp2"\n')
    with pytest.raises(PlanError, match=r"has no \[\[baseline\]\], so there is no I/O to simulate"):
        runs.simulate_plan(str(plan), {}, say=print)
