"""One node for all arms, for real: what it records, when its rounds end, what is left when it ends badly."""

import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from faulted import Afterwards, assert_one_line
from quick_node import NODE_TABLE
from race_under_test import Race, docker, race
from rally_command import Homes
from small_race import ARMS, ITERATIONS, PLAN, SHORT, TASKS, Raced, raced

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("able_machine")]

ONE = ('nodes = "per-arm"', 'nodes = "one"')
ENDLESS = SHORT.replace(*ONE).replace(f"\niterations = {ITERATIONS}", "\niterations = 100_000")
MOST, BUDGET_S = 60, 3


@pytest.fixture(scope="module")
def one(own: Homes) -> Raced:
    """One race for all that is looked at after one; it leaves the dataset and its copies to the others."""
    (own.rally / "one.toml").write_text((PLAN + NODE_TABLE).replace(*ONE))
    auto = {"rounds": "auto", "max_rounds": MOST, "budget": f"{BUDGET_S}s"}
    return raced(own, f"--include-tasks={TASKS[0]}", plan="one.toml", **auto)


def test_rounds_end_when_their_time_is_spent_and_what_follows_them_still_runs(one: Raced) -> None:
    last = [event.fields for event in one.session.events if event.kind == "look"][-1]
    assert last["ends"] == "the time budget is spent" or last["undecided"] == []
    assert {row["round"] for row in one.measured} == set(range(1, int(last["rounds"]) + 1))
    assert last["rounds"] < MOST
    assert set(one.session.baseline["round"].to_pylist()) == {0, 1}
    assert f"at most {MOST}" in one.report("txt")


def test_each_arms_index_is_read_from_its_own_volume_in_pairs(one: Raced) -> None:
    # volumes are late where the machine is busy with whatever else it does
    assert {check.name for check in one.session.checks if check.forbids} <= {"lateness"}
    assert {row["success"] for row in one.measured} == {True}
    assert max(row["resident_before"] for row in one.measured) <= 0.01
    rounds = Counter((row["arm"], row["round"]) for row in one.measured)
    numbers = range(1, max(row["round"] for row in one.measured) + 1)
    assert rounds == {(arm, number): ITERATIONS for arm in ARMS for number in numbers}
    pairs = list(zip(one.measured[::2], one.measured[1::2], strict=True))
    assert {frozenset((a["arm"], b["arm"])) for a, b in pairs} == {frozenset(ARMS)}
    assert {first["arm"] for first, _ in pairs} == set(ARMS)
    reads = [e for e in one.session.events if e.kind == "io" and e.fields["round"]]
    assert Counter(e.arm for e in reads) == Counter(row["arm"] for row in one.measured)
    of_reads = [e.fields["end"]["device.read_bytes"] - e.fields["begin"]["device.read_bytes"] for e in reads]
    assert min(of_reads) > 0
    # what a volume read between its own requests was another arm's, which lies elsewhere
    for arm in ARMS:
        mine = sorted((e for e in reads if e.arm == arm), key=lambda e: e.at_s)
        between = [
            b.fields["begin"]["device.read_bytes"] - a.fields["end"]["device.read_bytes"]
            for a, b in pairwise(mine)
        ]
        assert sum(between) < sum(of_reads) / 10
    assert "one for all arms" in one.report("txt")


@pytest.mark.long
def test_what_one_node_cannot_serve_is_refused_before_anything_starts(own: Homes) -> None:
    (own.rally / "one.toml").write_text(SHORT.replace(*ONE))
    words = f"--track-params=plan:{own.rally / 'one.toml'}"
    ended = own.race(words, "--challenge=index-only")
    assert ended.exit_code == 2
    assert 'set design.nodes = "per-arm"' in ended.output


KILLED = r"main process.*was killed; everything it started was taken down"


def searching(race: Race) -> bool:
    return race.events.count('"kind": "drop"') > 20


def mounted(race: Race) -> bool:
    """Each arm's index is mounted into the container, and the node does not answer yet."""
    return "calibrate volumes" in race.events and bool(race.containers())


def kill_node(race: Race) -> None:
    (node,) = race.containers()
    docker("kill", "-s", "KILL", node)


def kill_volume(race: Race) -> None:
    race.daemons()[-1].kill()


def kill_main(race: Race) -> None:
    race.main.kill()


@pytest.mark.parametrize(
    ("stage", "strike", "code", "reason"),
    [
        (searching, kill_node, 3, r"^the node of all arms has died: killed from outside"),
        pytest.param(searching, kill_volume, 3, r"^arm gp[23]: its emulated volume", marks=pytest.mark.long),
        pytest.param(searching, kill_main, -9, KILLED, marks=pytest.mark.long),
        (mounted, kill_main, -9, KILLED),
    ],
)
def test_all_arms_end_in_one_line_and_nothing_stays(
    stage: Callable[[Race], bool],
    strike: Callable[[Race], None],
    code: int,
    reason: str,
    own: Homes,
    one: Raced,
    afterwards: Afterwards,
) -> None:
    with race(own.pack, ENDLESS, env={"RALLY_HOME": str(own.rally)}) as running:
        running.reach(stage)
        assert len(running.containers()) == 1
        struck = time.monotonic()
        strike(running)
        ended = running.exit_code()
        afterwards.row(f"one node, {strike.__name__}", running, ended, running.gone(struck))
        assert ended == code
    afterwards.listed(running, "failed", reason)
    assert_one_line(running, reason)
    assert running.id not in Path("/proc/self/mountinfo").read_text()
