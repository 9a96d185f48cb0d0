"""The main job for real: the bare command on a small plan, then all that its session folder must hold."""

import json
import os
import re
import statistics
from collections import Counter, defaultdict
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from race_under_test import docker
from rally_command import Homes
from small_race import ARMS, ITERATIONS, ROUNDS, TASKS, WARMUPS, Raced

from esrally_ebs import cli

pytestmark = pytest.mark.system

# from the design's section on the session folder, in its order
SAMPLES = (
    "session, arm, round, task, operation, phase, iteration, client, started_s, service_time_s, latency_s, "
    "processing_time_s, ops, success, hits, took_s, resident_before"
)
BASELINE = (
    "arm, round, job, op, bs_bytes, numjobs, iodepth, iops, bandwidth_bytes_per_s, mean_s, p50_s, p90_s, "
    "p99_s, p999_s"
)
TELEMETRY = "arm, device, at_s, metric, value, unit"


def columns(folder: Path) -> set[str]:
    """The column lists of all Parquet files in a folder."""
    return {", ".join(pq.read_schema(path).names) for path in folder.glob("*.parquet")}


def test_the_session_is_complete(race: Raced) -> None:
    assert (race.session.state, race.session.reason) == ("complete", "")
    assert race.session.ended_at is not None
    assert "lateness" in {check.name for check in race.session.checks}
    # this machine's processors may be shared, or busy with whatever else it does
    failed = {check.name for check in race.session.checks if not check.ok}
    assert failed <= {"processors", "lateness"}


def test_the_folder_holds_what_the_design_says_and_nothing_else(race: Raced) -> None:
    folder = race.session.path
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    reports = {name for name in names if name.startswith("report.")}
    assert reports >= {"report.txt", "report.md", "report.csv", "report.json"}
    assert names - reports == {
        *("session.json", "samples", "baseline", "baseline.parquet"),
        *("telemetry", "events.jsonl", "race.json"),
    }


def test_tables_have_the_columns_of_the_design(race: Raced) -> None:
    folder = race.session.path
    assert columns(folder / "samples") == {SAMPLES}
    assert columns(folder / "telemetry") == {TELEMETRY}
    assert ", ".join(pq.read_schema(folder / "baseline.parquet").names) == BASELINE


def test_only_the_included_tasks_are_raced_in_every_round_on_every_arm(race: Raced) -> None:
    requests = Counter((row["task"], row["arm"], row["round"]) for row in race.measured)
    wanted = {(task, arm, number) for task in TASKS for arm in ARMS for number in range(1, ROUNDS + 1)}
    assert requests == dict.fromkeys(wanted, ITERATIONS)


def test_every_measured_request_was_cold_and_the_first_since_its_drop(race: Raced) -> None:
    resident = [row["resident_before"] for row in race.measured]
    assert None not in resident
    assert max(resident) <= 0.01
    assert {row["iteration"] for row in race.measured} == {1}


def test_every_drop_is_an_event_with_residency_before_and_after(race: Raced) -> None:
    drops = [event for event in race.session.events if event.kind == "drop"]
    assert Counter(event.arm for event in drops) == dict.fromkeys(ARMS, len(race.measured) // 2)
    assert all(0 <= drop.fields["after"] <= 0.01 for drop in drops)
    # a request reads its pages back, so that there is something to drop
    assert statistics.median(drop.fields["before"] for drop in drops) > 0.01


def test_hits_are_known_and_the_same_on_both_arms(race: Raced) -> None:
    hits = defaultdict(set)
    for row in race.measured:
        hits[row["task"]].add(row["hits"])
    assert {len(counts) for counts in hits.values()} == {1}
    assert all(isinstance(count, int) and count > 0 for counts in hits.values() for count in counts)
    # Elasticsearch counts to 10,000 hits; a fortieth of the 20,000 documents are small ranges in the US
    assert 200 < hits[TASKS[1]].pop() < 1000


def test_hits_are_those_of_the_generated_documents(own: Homes, race: Raced) -> None:
    (corpus,) = (own.rally / ".rally").rglob("documents-20000.json")
    documents = [json.loads(line) for line in corpus.read_text().splitlines()]
    ranges = [(doc, doc["TRANGE"]) for doc in documents if "TRANGE" in doc]
    big = [doc for doc, days in ranges if days["gte"] <= 30 and days["lte"] >= 0]
    small = [doc for doc, days in ranges if days["gte"] <= -10 and days["lte"] >= -20]
    wanted = {TASKS[0]: len(big), TASKS[1]: sum(doc["station"]["country_code"] == "US" for doc in small)}
    assert {row["task"]: row["hits"] for row in race.measured} == wanted


def test_no_request_failed_and_times_are_plausible(race: Raced) -> None:
    for row in race.measured:
        assert row["success"]
        assert 0 < row["took_s"] <= row["service_time_s"] + 0.001  # took is in whole milliseconds
        assert row["service_time_s"] <= row["processing_time_s"] < 30
        assert race.session.started_at < row["started_s"] < (race.session.ended_at or 0)


def test_requests_did_not_overlap(race: Raced) -> None:
    ends = [row["started_s"] + row["service_time_s"] for row in race.measured]
    starts = [row["started_s"] for row in race.measured]
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))


def test_in_every_pair_of_rounds_the_second_goes_through_the_arms_backwards(race: Raced) -> None:
    for task in TASKS:
        orders = [
            list(dict.fromkeys(r["arm"] for r in race.measured if (r["task"], r["round"]) == (task, number)))
            for number in range(1, ROUNDS + 1)
        ]
        assert all(sorted(order) == sorted(ARMS) for order in orders)
        assert [order[::-1] for order in orders[::2]] == orders[1::2]


def test_all_arms_warm_up_alike_before_the_first_round(race: Raced) -> None:
    requests = Counter((row["task"], row["arm"]) for row in race.warming)
    assert requests == {(task, arm): WARMUPS for task in TASKS for arm in ARMS}
    assert max(row["started_s"] for row in race.warming) < race.measured[0]["started_s"]


@pytest.mark.parametrize("suffix", ["txt", "md", "csv", "json"])
def test_every_report_says_emulated_and_names_tasks_and_arms(race: Raced, suffix: str) -> None:
    text = race.report(suffix)
    assert "emulated" in text
    assert all(word in text for word in (*ARMS, "range_field_big_range", "short", "cold"))
    assert re.search(r"50th percentile|p50", text)


def test_segments_of_each_arm_are_those_of_the_dataset(race: Raced) -> None:
    built = race.session.dataset["hash"]
    checks = {check.name: check for check in race.session.checks}
    for arm in ARMS:
        check = checks[f"segments of {arm}"]
        assert check.ok
        assert built.startswith(check.value)
    assert race.session.dataset["documents"] == 20_000
    assert sum(segment["docs"] for segment in race.session.dataset["segments"]) == 20_000


def test_rallys_own_record_is_in_the_folder(race: Raced) -> None:
    document = json.loads((race.session.path / "race.json").read_text())
    assert document["race-id"] == race.session.id == race.session.path.name
    assert document["challenge"] == "search-only"
    tasks = {row["task"] for row in document["results"]["op_metrics"]}
    assert tasks >= {f"{task}-{arm}-r1" for task in TASKS for arm in ARMS}


def test_the_times_of_all_stages_are_recorded(race: Raced) -> None:
    stages = {event.fields["name"] for event in race.session.events if event.kind == "stage"}
    assert stages >= {"attach volumes", "build dataset", "copy dataset", "start nodes", "take down"}


def test_the_report_can_be_made_again_from_the_folder_alone(
    race: Raced, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["report", str(race.session.path), "--format", "markdown"]) == 0
    assert capsys.readouterr().out.strip() == race.report("md").strip()


def test_nothing_is_left_behind(race: Raced, own: Homes) -> None:
    assert list(own.run.iterdir()) == []
    assert docker("ps", "-aq", "--filter", f"label=esrally-ebs.session={race.session.id}") == ""
    assert str(own.run) not in Path("/proc/self/mounts").read_text()
    backing = [path.read_text() for path in Path("/sys/block").glob("loop*/loop/backing_file")]
    assert not [text for text in backing if str(own.run) in text]
    # this process itself is called by the command that the test before has run in it
    others = (process for process in psutil.process_iter(["cmdline"]) if process.pid != os.getpid())
    titles = [" ".join(process.info["cmdline"] or []) for process in others]
    left = [title for title in titles if race.session.id[:8] in title or str(own.run) in title]
    assert left == []
