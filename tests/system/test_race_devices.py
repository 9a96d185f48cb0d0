"""The main job for real, beside the requests: fio, telemetry, what each request read, pauses of the nodes."""

import itertools
import json
import statistics
from collections import Counter

import pytest
from small_race import ARMS, JOBS, TASKS, Raced, telemetry

from esrally_ebs.analysis.profile import pooled, profiles_of, read_windows

pytestmark = pytest.mark.system


def test_every_measured_request_is_observed_and_reads_the_same_on_both_arms(race: Raced) -> None:
    windows, broken = read_windows(race.session.events)
    assert broken == 0
    assert Counter((w.task, w.arm, w.round) for w in windows) == Counter(
        (row["task"], row["arm"], row["round"]) for row in race.measured
    )
    # the same segments, cold: the same bytes, to a page or two of a read ahead that came too late
    for task in TASKS:
        a, b = (pooled(profiles_of(windows)[task, arm].values()).read_bytes for arm in ARMS)
        assert a
        assert a == pytest.approx(b, rel=0.1)


def test_observed_requests_read_less_than_the_devices_did_in_all(race: Raced) -> None:
    windows, _ = read_windows(race.session.events)
    rates = telemetry(race)
    for arm in ARMS:
        rows = rates[arm, "device.read_bytes_per_s"]
        seconds = [after["at_s"] - before["at_s"] for before, after in itertools.pairwise(rows)]
        in_all = sum(row["value"] * s for row, s in zip(rows[1:], seconds, strict=True))
        assert 0 < sum(w.grown["device.read_bytes"] for w in windows if w.arm == arm) <= in_all


def test_the_nodes_garbage_collections_are_events(race: Raced) -> None:
    pauses = [event for event in race.session.events if event.kind == "gc"]
    assert {event.arm for event in pauses} == set(ARMS)
    assert all(0 < event.fields["seconds"] < 5 for event in pauses)


def test_fio_ran_every_job_on_every_arm_at_the_start_and_the_short_one_at_the_end(race: Raced) -> None:
    rows = race.session.baseline.to_pylist()
    runs = {(row["arm"], row["job"], row["round"]) for row in rows}
    assert runs == {(arm, job, number) for arm in ARMS for job, numbers in JOBS.items() for number in numbers}
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


def test_telemetry_is_sampled_about_once_a_second_from_first_to_last_request(race: Raced) -> None:
    for arm in ARMS:
        times = [row["at_s"] for row in telemetry(race)[arm, "device.in_flight"]]
        steps = [after - before for before, after in itertools.pairwise(times)]
        assert statistics.median(steps) == pytest.approx(1, abs=0.1)
        assert times[0] < race.warming[0]["started_s"]
        assert times[-1] > race.measured[-1]["started_s"] - 2


def test_telemetry_has_device_memory_and_limiters_of_each_arm(race: Raced) -> None:
    rows_of = telemetry(race)
    for arm in ARMS:
        for metric in (
            *("device.reads_per_s", "device.read_bytes_per_s", "device.queue_depth", "device.read_await_s"),
            *("memory.cache_bytes", "memory.mapped_file_bytes"),
            *("emulator.levels.iops", "emulator.levels.throughput", "emulator.waited_s.iops"),
        ):
            assert rows_of[arm, metric], (arm, metric)
        assert max(row["value"] for row in rows_of[arm, "device.reads_per_s"]) > 0
        assert max(row["value"] for row in rows_of[arm, "memory.cache_bytes"]) > 0
    assert rows_of["gp2", "emulator.credits"]
    assert not rows_of["gp3", "emulator.credits"]
    devices = {(row["arm"], row["device"]) for rows in rows_of.values() for row in rows}
    assert devices >= {(arm.spec.name, arm.device) for arm in race.session.arms}


def test_arms_are_recorded_as_emulated_on_devices_of_their_own(race: Raced) -> None:
    arms = race.session.arms
    assert [(arm.spec.name, arm.kind, arm.filesystem) for arm in arms] == [
        ("gp2", "emulated", "xfs"),
        ("gp3", "emulated", "xfs"),
    ]
    assert len({arm.device for arm in arms} | {arm.device_number for arm in arms}) == 4
