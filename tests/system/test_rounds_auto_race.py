"""A real race whose rounds end themselves: fewer than its schedule holds, and the end still runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from rally_command import Homes, homes

from esrally_ebs.store import load_session

pytestmark = pytest.mark.system

MOST, BUDGET_S = 60, 5


@pytest.fixture
def rally(tmp_path: Path) -> Iterator[Homes]:
    with homes(tmp_path / "homes") as made:
        yield made


def test_rounds_end_when_their_time_is_spent_and_what_follows_them_still_runs(rally: Homes) -> None:
    ended = rally.race(
        f"--track-params=plan:smoke,rounds:auto,max_rounds:{MOST},budget:{BUDGET_S}s,iterations:1",
        "--include-tasks=range_field_big_range,range_field_small_range",
    )
    assert ended.exit_code == 0, ended.output
    (folder,) = (rally.pack / "sessions").iterdir()
    session = load_session(folder)
    looked = [event.fields for event in session.events if event.kind == "look"]
    last = looked[-1]
    assert last["ends"] == "the time budget is spent" or last["undecided"] == []
    measured = sorted({round_ for round_ in session.samples["round"].to_pylist() if round_ > 0})
    assert measured == list(range(1, int(last["rounds"]) + 1))
    assert len(measured) < MOST
    # two tasks, two arms, one request in each round; no round was cut
    assert sum(round_ > 0 for round_ in session.samples["round"].to_pylist()) == 4 * len(measured)
    assert set(session.baseline["round"].to_pylist()) == {0, 1}
    assert f"at most {MOST}" in (folder / "report.txt").read_text()
