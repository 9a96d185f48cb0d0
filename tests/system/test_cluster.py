"""Arms that are clusters of several nodes, for real: alike on all arms, and gone when one node dies."""

import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from faulted import Afterwards, assert_one_line
from race_under_test import Race, docker, plan, race
from rally_command import Homes
from small_race import ARMS, TASKS, raced

from esrally_ebs.machine.resources import resource

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("able_machine")]


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.long)])
def test_every_node_reads_its_own_volume_and_the_same_on_every_arm(own: Homes, count: int) -> None:
    text = (own.rally / "short.toml").read_text().replace("[node]", f"[node]\ncount = {count}")
    fewer = {
        "rounds = 4": "rounds = 2",
        "= 20_000": "= 5_000",
        "warmup_iterations = 6": "warmup_iterations = 2",
    }
    for old, new in fewer.items():
        text = text.replace(old, new)
    (own.rally / "cluster.toml").write_text(text)
    ran = raced(
        own, f"--include-tasks={TASKS[0]}", plan="cluster.toml", number_of_shards=count, number_of_replicas=1
    )
    checks = {check.name: check.ok for check in ran.session.checks}
    assert (checks["allocation"], checks["routing"], checks["hits"]) == (True, True, True)
    assert max(row["resident_before"] for row in ran.measured) <= 0.01
    read = defaultdict(set)
    for event in ran.session.events:
        if event.kind == "io":
            for name, counters in event.fields["nodes"].items():
                begin, end = (counters[when]["device.read_bytes"] for when in ("begin", "end"))
                read[name].add(end - begin)
    numbers = range(1, count + 1)
    nodes = {f"{arm}-{number}" for arm in ARMS for number in numbers}
    assert set(read) == nodes == set(ran.session.telemetry["arm"].to_pylist())
    for number in numbers:  # the same query reads the same blocks of the same copies
        assert read[f"gp2-{number}"] == read[f"gp3-{number}"]
    assert f"cluster of {count} nodes" in ran.report("txt")


@pytest.mark.long
def test_work_with_shards_is_timed_and_begins_the_same_each_time(own: Homes) -> None:
    text = (own.rally / "short.toml").read_text().replace("[node]", "[node]\ncount = 2")
    fewer = {"rounds = 4": "rounds = 1", "= 20_000": "= 2_000", "s = 3": "s = 2", "s = 6": "s = 0"}
    for old, new in fewer.items():
        text = text.replace(old, new)
    (own.rally / "green.toml").write_text(text)
    ran = raced(own, f"--track-path={resource('tracks/recovery-ebs')}", plan="green.toml")
    moved = [event for event in ran.session.events if event.kind == "recovery"]
    assert Counter((event.arm, event.fields["task"]) for event in moved) == {
        (arm, task): 2 for arm in ARMS for task in ("replica", "node-loss", "relocation", "restore", "merge")
    }
    assert len({event.fields["bytes"] for event in moved}) == 1  # the same index, whatever is done with it
    for event, row in zip(moved, ran.measured, strict=True):
        assert event.fields["seconds"] == pytest.approx(row["service_time_s"], rel=0.1, abs=0.05)
    assert {row["hits"] for row in ran.measured} == {2_000}
    assert max(row["resident_before"] for row in ran.measured) <= 0.01
    assert "Minutes to green" in ran.report("txt")


@pytest.mark.long
def test_a_copy_that_never_comes_ends_the_race_in_one_line(home: Path) -> None:
    forbidden = "cluster.routing.allocation.node_concurrent_incoming_recoveries"
    text = plan(arms=("gp3",)).replace("[node]", "[node]\ncount = 2")
    text = text.replace("params = { ", f'params = {{ "{forbidden}" = 0, ')
    track = f"--track-path={resource('tracks/recovery-ebs')}"
    with race(home, text, track, "--include-tasks=replica") as running:
        running.reach(lambda race: '"start nodes"' in race.events)
        began = time.monotonic()
        assert running.exit_code() == 3
        assert time.monotonic() - began < 200
        assert_one_line(
            running,
            r"arm arm0: replica: recovery-ebs is not green after 12\d s, .* replica 0 is on no node: "
            r"arm0-\d: reached the limit of incoming shard recoveries \[0\]",
        )


def searching(race: Race) -> bool:
    return race.events.count('"kind": "drop"') > 5


@pytest.mark.long
def test_a_dead_node_of_three_ends_the_race_in_one_line(home: Path, afterwards: Afterwards) -> None:
    text = plan(arms=("gp3",), iterations=100_000).replace("[node]", "[node]\ncount = 3")
    with race(home, text) as running:
        running.reach(searching)
        assert len(running.containers()) == 3
        (last,) = (name for name in docker("ps", "--format", "{{.Names}}").split() if "arm0-3" in name)
        struck = time.monotonic()
        docker("kill", "-s", "KILL", last)
        ended = running.exit_code()
        afterwards.row("one node of three", running, ended, running.gone(struck))
        assert ended == 3
    reason = r"arm arm0: its node arm0-3 has died: killed from outside"
    afterwards.listed(running, "failed", reason)
    assert_one_line(running, reason)
