"""Searches beside bulk tasks on real nodes: the same bytes before each block, and tables of both."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from rally_command import Homes, homes
from small_race import SHORT

from esrally_ebs.machine.resources import resource
from esrally_ebs.store import find_session, load_session

pytestmark = pytest.mark.system


@pytest.fixture
def at(tmp_path: Path) -> Iterator[Homes]:
    with homes(tmp_path) as made:
        plan = SHORT.replace("rounds = 4", "rounds = 2")
        (made.rally / "plan.toml").write_text(plan + '[cache]\nmode = "warm"\n')
        yield made


def test_an_arm_gets_the_same_bytes_back_before_each_block_and_writes_last_as_long_as_the_search(
    at: Homes,
) -> None:
    given = f"--track-params=plan:{at.rally / 'plan.toml'},documents:3000,append_rate:500,append_size:50"
    flags = ("--challenge=append", "--include-tasks=latest,append")
    ended = at.race(given, *flags, track=resource("tracks") / "logs-ebs")
    assert ended.exit_code == 0, ended.output
    assert list(at.run.iterdir()) == []
    session = load_session(find_session(at.pack, "latest"))
    checks = {check.name: check for check in session.checks}
    for arm in ("gp2", "gp3"):
        assert checks[f"brought back: {arm}"].value == checks[f"segments of {arm}"].value
    assert checks["documents"].value == "3000"
    restored = [event for event in session.events if event.kind == "brought-back"]
    assert Counter(event.arm for event in restored) == {"gp2": 3, "gp3": 3}  # the warm-up and two rounds
    # a page that is being written stays
    assert max(event.number("resident") or 0.0 for event in restored) <= session.plan.cache.max_resident
    phases = defaultdict(list)
    for row in session.samples.to_pylist():
        assert row["success"]
        phases[row["arm"], row["round"], row["phase"]].append(row)
    for arm in ("gp2", "gp3"):
        for round_ in (1, 2):
            searches, writes = phases[arm, round_, "measure"], phases[arm, round_, "beside"]
            assert len(searches) == 3
            assert {row["task"] for row in writes} == {"append-beside-latest"}
            begins = min(row["started_s"] for row in phases[arm, round_, "warmup"])
            assert begins - 1 < writes[0]["started_s"] < searches[-1]["started_s"]
    report = (session.path / "report.txt").read_text()
    assert "Indexing beside searches" in report
    assert "Writes beside searches" in report
    assert "documents added beside searches; each block begins with the same bytes" in report
