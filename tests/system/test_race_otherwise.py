"""The main job for real in its other ways: warm, indexing by itself, and with spawned processes."""

import re
from collections import Counter, defaultdict
from itertools import pairwise

import pytest
from rally_command import Homes
from small_race import ARMS, TASKS, raced, telemetry

pytestmark = pytest.mark.system


def test_a_warm_race_at_a_rate_says_so_in_every_output_and_drops_nothing(own: Homes) -> None:
    rate = 5
    warm = raced(
        own, f"--include-tasks={TASKS[0]}", cache="warm", rounds=2, iterations=4, target_throughput=rate
    )
    assert list(own.run.iterdir()) == []
    assert warm.session.plan.cache.mode == "warm"
    due = defaultdict(list)
    for row in warm.measured:
        assert row["latency_s"] >= row["service_time_s"]
        due[row["arm"], row["round"]].append(row["started_s"] + row["service_time_s"] - row["latency_s"])
    assert set(due) == {(arm, number) for arm in ARMS for number in (1, 2)}
    for times in due.values():  # as scheduled, however long the request before took
        assert [b - a for a, b in pairwise(sorted(times))] == pytest.approx([1 / rate] * 3, abs=0.05)
    assert {row["resident_before"] for row in warm.measured} == {None}
    assert not [event for event in warm.session.events if event.kind == "drop"]
    for suffix in ("txt", "md", "csv", "json"):
        assert re.search(r"cache\W+warm|warm\W+cache", warm.report(suffix)), suffix


def test_arms_that_index_by_themselves_are_said_to_differ_in_segments(own: Homes) -> None:
    # --test-mode: 1,000 documents, one request per search; figures mean nothing, but everything runs
    indexing = raced(own, "--challenge=index-only", "--test-mode", rounds=2)
    assert indexing.session.plan.race.challenge == "index-only"
    assert indexing.session.dataset["documents"] == 1000
    bulks = {row["arm"]: row for row in indexing.measured if row["operation"] == "index"}
    assert set(bulks) == set(ARMS)
    assert {row["round"] for row in indexing.measured if row["operation"] == "index"} == {0}
    for suffix in ("txt", "md", "csv", "json"):
        assert re.search(r"segments (may )?differ", indexing.report(suffix)), suffix


@pytest.mark.long
def test_a_race_works_with_sockets_when_rally_spawns_its_processes(
    own: Homes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESRALLY_EBS_ACTORS", "sockets")  # with queues they are forked, whatever is configured
    own.configure("\n[actor]\nactor.process.startup.method = spawn\n")
    # each task takes 5 s longer then, so as few as can be
    spawned = raced(own, f"--include-tasks={TASKS[0]}", rounds=1, iterations=2, warmup_iterations=0)
    assert spawned.session.state == "complete"
    assert Counter(row["arm"] for row in spawned.measured) == {"gp2": 2, "gp3": 2}
    assert max(row["resident_before"] for row in spawned.measured) <= 0.01
    assert telemetry(spawned)["gp2", "device.reads_per_s"]
