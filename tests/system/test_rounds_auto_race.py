"""A real race whose rounds end themselves: fewer than its schedule holds, and the end still runs."""

import pytest
from quick_node import NODE_TABLE
from rally_command import Homes
from small_race import PLAN, TASKS, raced

pytestmark = pytest.mark.system

MOST, BUDGET_S = 60, 3


def test_rounds_end_when_their_time_is_spent_and_what_follows_them_still_runs(own: Homes) -> None:
    (own.rally / "auto.toml").write_text(PLAN + NODE_TABLE)
    ran = raced(
        own,
        f"--include-tasks={','.join(TASKS)}",
        plan="auto.toml",
        rounds="auto",
        max_rounds=MOST,
        budget=f"{BUDGET_S}s",
        iterations=1,
    )
    looked = [event.fields for event in ran.session.events if event.kind == "look"]
    last = looked[-1]
    assert last["ends"] == "the time budget is spent" or last["undecided"] == []
    measured = sorted({row["round"] for row in ran.measured})
    assert measured == list(range(1, int(last["rounds"]) + 1))
    assert len(measured) < MOST
    # two tasks, two arms, one request in each round; no round was cut
    assert len(ran.measured) == 4 * len(measured)
    assert set(ran.session.baseline["round"].to_pylist()) == {0, 1}
    assert f"at most {MOST}" in ran.report("txt")
