"""The main job for real: the bare command on a small plan, then all that its session folder must hold."""

import itertools
import json
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from rally_command import Ended, Homes, homes

from esrally_ebs import causes, cli, node
from esrally_ebs.store import Session, find_session, load_session

pytestmark = pytest.mark.system

ARMS = ("gp2", "gp3")
ALL_SEARCHES = (
    "range_field_big_range",
    "range_field_small_range",
    "range_field_conjunction_big_range_small_term_query",
    "range_field_conjunction_small_range_small_term_query",
    "range_field_conjunction_small_range_big_term_query",
    "range_field_conjunction_big_range_big_term_query",
    "range_field_disjunction_small_range_small_term_query",
    "range_field_disjunction_big_range_small_term_query",
)
TASKS = ("range_field_big_range", "range_field_conjunction_small_range_big_term_query")
ROUNDS, ITERATIONS, WARMUPS = 4, 3, 6
JOBS = {"short": (0, 1), "once": (0,)}  # job -> the times at which it runs: 0 the start, 1 the end
PLAN = f"""\
name = "test-race"
[[arm]]
name = "gp2"
type = "gp2"
size = "2GiB"
[[arm]]
name = "gp3"
type = "gp3"
size = "2GiB"
[dataset]
documents = 20_000
[race]
iterations = {ITERATIONS}
warmup_iterations = {WARMUPS}
[design]
rounds = {ROUNDS}
[[baseline]]
name = "short"
rw = "randread"
bs = "16k"
size = "4m"
runtime = "1s"
repeat = true
[[baseline]]
name = "once"
rw = "readwrite"
bs = "16k"
size = "4m"
"""
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


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Homes]:
    """Homes that all races of this module share, so that the dataset is built once."""
    with homes(tmp_path_factory.mktemp("race")) as made:
        (made.rally / "plan.toml").write_text(PLAN)
        (made.rally / "short.toml").write_text(PLAN.partition("[[baseline]]")[0])
        yield made


@dataclass(frozen=True)
class Raced:
    """A race that has ended, and its session."""

    ended: Ended
    session: Session
    measured: list[dict[str, Any]]  # samples after the warm-up, in the order of their starts
    warming: list[dict[str, Any]]

    def report(self, suffix: str) -> str:
        return (self.session.path / f"report.{suffix}").read_text()


def raced(own: Homes, *flags: str, plan: str = "short.toml", **params: object) -> Raced:
    """Race with these track parameters; the race must succeed. The short plan has no baselines."""
    said = ",".join(f"{name}:{value}" for name, value in {"plan": own.rally / plan, **params}.items())
    ended = own.race(f"--track-params={said}", *flags)
    assert ended.exit_code == 0, ended.output
    session = load_session(find_session(own.pack, "latest"))
    rows = sorted(session.samples.to_pylist(), key=lambda row: float(row["started_s"]))
    return Raced(
        ended=ended,
        session=session,
        measured=[row for row in rows if row["phase"] == "measure"],
        warming=[row for row in rows if row["phase"] == "warmup"],
    )


@pytest.fixture(scope="module")
def race(own: Homes) -> Raced:
    """The race that most tests look at."""
    return raced(own, f"--include-tasks={','.join(TASKS)}", plan="plan.toml")


def columns(folder: Path) -> set[str]:
    """The column lists of all Parquet files in a folder."""
    return {", ".join(pq.read_schema(path).names) for path in folder.glob("*.parquet")}


def test_the_session_is_complete(race: Raced) -> None:
    assert (race.session.state, race.session.reason) == ("complete", "")
    assert race.session.ended_at is not None
    assert [check.name for check in race.session.checks if not check.ok] == []


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
    found = Counter((row["task"], row["arm"], row["round"]) for row in race.measured)
    wanted = {(task, arm, number) for task in TASKS for arm in ARMS for number in range(1, ROUNDS + 1)}
    assert found == dict.fromkeys(wanted, ITERATIONS)


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
    assert {len(found) for found in hits.values()} == {1}
    assert all(isinstance(count, int) and count > 0 for found in hits.values() for count in found)
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


def test_every_measured_request_is_observed_and_reads_the_same_on_both_arms(race: Raced) -> None:
    found, broken = causes.windows(race.session.events)
    assert broken == 0
    assert Counter((w.task, w.arm, w.round) for w in found) == Counter(
        (row["task"], row["arm"], row["round"]) for row in race.measured
    )
    # the same segments, cold: the same bytes, to a page or two of a read ahead that came too late
    for task in TASKS:
        a, b = (causes.pooled(causes.profiles(found)[task, arm].values()).read_bytes for arm in ARMS)
        assert a
        assert a == pytest.approx(b, rel=0.1)


def test_observed_requests_read_less_than_the_devices_did_in_all(race: Raced) -> None:
    found, _ = causes.windows(race.session.events)
    rates = telemetry(race)
    for arm in ARMS:
        rows = rates[arm, "device.read_bytes_per_s"]
        seconds = [after["at_s"] - before["at_s"] for before, after in itertools.pairwise(rows)]
        in_all = sum(row["value"] * s for row, s in zip(rows[1:], seconds, strict=True))
        assert 0 < sum(w.grown["device.read_bytes"] for w in found if w.arm == arm) <= in_all


def test_the_nodes_garbage_collections_are_events(race: Raced) -> None:
    pauses = [event for event in race.session.events if event.kind == "gc"]
    assert {event.arm for event in pauses} == set(ARMS)
    assert all(0 < event.fields["seconds"] < 5 for event in pauses)


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
    found = Counter((row["task"], row["arm"]) for row in race.warming)
    assert found == {(task, arm): WARMUPS for task in TASKS for arm in ARMS}
    assert max(row["started_s"] for row in race.warming) < race.measured[0]["started_s"]


def test_fio_ran_every_job_on_every_arm_at_the_start_and_the_short_one_at_the_end(race: Raced) -> None:
    rows = race.session.baseline.to_pylist()
    found = {(row["arm"], row["job"], row["round"]) for row in rows}
    assert found == {
        (arm, job, number) for arm in ARMS for job, numbers in JOBS.items() for number in numbers
    }
    assert {(row["job"], row["op"]) for row in rows} == {
        ("short", "read"),
        ("once", "read"),
        ("once", "write"),
    }
    for row in rows:
        assert row["iops"] * row["bs_bytes"] == pytest.approx(row["bandwidth_bytes_per_s"], rel=0.02)
        assert 0 < row["p50_s"] <= row["p90_s"] <= row["p99_s"] <= row["p999_s"]


def test_fios_own_output_is_kept(race: Raced) -> None:
    wanted = {f"{number}-{arm}-{job}.json" for arm in ARMS for job, ns in JOBS.items() for number in ns}
    files = list((race.session.path / "baseline").iterdir())
    assert {path.name for path in files} == wanted
    assert all("fio version" in json.loads(path.read_text()) for path in files)


def telemetry(race: Raced) -> Mapping[tuple[str, str], list[dict[str, Any]]]:
    """Telemetry by arm and metric, in the order of time."""
    found = defaultdict(list)
    for row in sorted(race.session.telemetry.to_pylist(), key=lambda row: float(row["at_s"])):
        found[row["arm"], row["metric"]].append(row)
    return found


def test_telemetry_is_sampled_about_once_a_second_from_first_to_last_request(race: Raced) -> None:
    for arm in ARMS:
        times = [row["at_s"] for row in telemetry(race)[arm, "device.in_flight"]]
        steps = [after - before for before, after in itertools.pairwise(times)]
        assert statistics.median(steps) == pytest.approx(1, abs=0.1)
        assert times[0] < race.warming[0]["started_s"]
        assert times[-1] > race.measured[-1]["started_s"] - 2


def test_telemetry_has_device_memory_and_limiters_of_each_arm(race: Raced) -> None:
    found = telemetry(race)
    for arm in ARMS:
        for metric in (
            *("device.reads_per_s", "device.read_bytes_per_s", "device.queue_depth", "device.read_await_s"),
            *("memory.cache_bytes", "memory.mapped_file_bytes"),
            *("emulator.levels.iops", "emulator.levels.throughput", "emulator.waited_s.iops"),
        ):
            assert found[arm, metric], (arm, metric)
        assert max(row["value"] for row in found[arm, "device.reads_per_s"]) > 0
        assert max(row["value"] for row in found[arm, "memory.cache_bytes"]) > 0
    assert found["gp2", "emulator.credits"]
    assert not found["gp3", "emulator.credits"]
    devices = {(row["arm"], row["device"]) for rows in found.values() for row in rows}
    assert devices >= {(arm.spec.name, arm.device) for arm in race.session.arms}


@pytest.mark.parametrize("suffix", ["txt", "md", "csv", "json"])
def test_every_report_says_emulated_and_names_tasks_and_arms(race: Raced, suffix: str) -> None:
    text = race.report(suffix)
    assert "emulated" in text
    assert all(word in text for word in (*ARMS, "range_field_big_range", "short", "cold"))
    assert re.search(r"50th percentile|p50", text)


def test_arms_are_recorded_as_emulated_on_devices_of_their_own(race: Raced) -> None:
    arms = race.session.arms
    assert [(arm.spec.name, arm.kind, arm.filesystem) for arm in arms] == [
        ("gp2", "emulated", "xfs"),
        ("gp3", "emulated", "xfs"),
    ]
    assert len({arm.device for arm in arms} | {arm.device_number for arm in arms}) == 4


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
    assert race.session.id not in node.leftovers()
    assert str(own.run) not in Path("/proc/self/mounts").read_text()
    backing = [path.read_text() for path in Path("/sys/block").glob("loop*/loop/backing_file")]
    assert not [text for text in backing if str(own.run) in text]
    titles = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    left = [title for title in titles if race.session.id[:8] in title or str(own.run) in title]
    assert left == []


def test_a_warm_race_says_so_in_every_output_and_drops_nothing(own: Homes) -> None:
    warm = raced(own, f"--include-tasks={TASKS[0]}", cache="warm", rounds=2, iterations=2)
    assert warm.session.plan["cache"]["mode"] == "warm"
    assert {row["resident_before"] for row in warm.measured} == {None}
    assert not [event for event in warm.session.events if event.kind == "drop"]
    for suffix in ("txt", "md", "csv", "json"):
        assert re.search(r"cache\W+warm|warm\W+cache", warm.report(suffix)), suffix


def test_arms_that_index_by_themselves_are_said_to_differ_in_segments(own: Homes) -> None:
    # --test-mode: 1,000 documents, one request per search; figures mean nothing, but everything runs
    only = "--exclude-tasks=" + ",".join(task for task in ALL_SEARCHES if task != TASKS[0])
    indexing = raced(own, "--challenge=append-no-conflicts", "--test-mode", only, rounds=2)
    assert indexing.session.plan["race"]["challenge"] == "append-no-conflicts"
    assert indexing.session.dataset["documents"] == 1000
    bulks = {row["arm"]: row for row in indexing.measured if row["operation"] == "index"}
    assert set(bulks) == set(ARMS)
    assert {row["round"] for row in indexing.measured if row["operation"] == "index"} == {0}
    for suffix in ("txt", "md", "csv", "json"):
        assert re.search(r"segments (may )?differ", indexing.report(suffix)), suffix


def test_a_race_works_when_rally_spawns_its_processes(own: Homes) -> None:
    own.configure("\n[actor]\nactor.process.startup.method = spawn\n")
    # each task takes 5 s longer then, so as few as can be
    spawned = raced(own, f"--include-tasks={TASKS[0]}", rounds=1, iterations=2, warmup_iterations=0)
    assert spawned.session.state == "complete"
    assert Counter(row["arm"] for row in spawned.measured) == {"gp2": 2, "gp3": 2}
    assert max(row["resident_before"] for row in spawned.measured) <= 0.01
    assert telemetry(spawned)["gp2", "device.reads_per_s"]
