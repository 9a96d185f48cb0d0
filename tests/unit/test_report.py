"""A small session, made by hand through the store, in every format; and what each output must say."""

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from esrally_ebs import report
from esrally_ebs.model import (
    BaselineRow,
    Check,
    Event,
    Kind,
    Phase,
    Sample,
    State,
    TelemetryPoint,
    Volume,
    VolumeSpec,
)
from esrally_ebs.store import SessionFolder, load_session

MIB = 1024**2
START = 1_700_000_000.0
ARMS = ("gp2", "gp3")
ROUNDS = 6
# task to (seconds on gp2, ratio of gp3 to gp2, how much rounds of one arm differ)
TASKS = {
    "range_field_big_range": (0.060, 1.10, 0.002),
    "range_field_small_range": (0.028, 1.00, 0.002),
    "range_field_disjunction_small_range_small_term_query": (0.090, 1.04, 0.08),
}


def arm(name: str, kind: Kind = Kind.EMULATED) -> Volume:
    return Volume(
        spec=VolumeSpec(
            name=name,
            type=name,
            size_bytes=100 * 1024**3,
            iops=3000 if name == "gp3" else None,
            throughput_bytes_per_s=128 * MIB if name == "gp3" else None,
        ),
        kind=kind,
        mount=Path("/mnt") / name,
        device=f"loop{ARMS.index(name)}",
        filesystem="xfs",
        readahead_bytes=131072,
        scheduler="none",
    )


def samples(rounds: int = ROUNDS) -> list[Sample]:
    made = []
    at = START
    for round_ in range(1, rounds + 1):
        for task, (seconds, ratio, noise) in TASKS.items():
            for name in ARMS if round_ % 2 else ARMS[::-1]:
                wobble = 1 + noise * (((round_ * (3 if name == "gp2" else 5)) % 7) - 3) / 3
                for request in range(5):
                    service = (
                        seconds * (ratio if name == "gp3" else 1) * wobble * (1 + 0.01 * ((request * 2) % 5))
                    )
                    made.append(sample(name, round_, task, at, service))
                    at += 1.0
    return made


def sample(name: str, round_: int, task: str, at: float, service: float, **changes: Any) -> Sample:  # noqa: ANN401
    fields = {
        "session": "golden",
        "arm": name,
        "round": round_,
        "task": task,
        "operation": task,
        "phase": Phase.MEASURE,
        "iteration": 1,
        "client": 0,
        "started_s": at,
        "service_time_s": service,
        "latency_s": service,
        "processing_time_s": service,
        "ops": 1.0,
        "success": True,
        "hits": 1000 + len(task),
        "took_s": service - 0.002,
        "resident_before": 0.0005,
    }
    return Sample(**{**fields, **changes})


def fio(name: str, round_: int, op: str, iops: float) -> BaselineRow:
    base = {"gp2": 1.0, "gp3": 1.1}[name] * {"read": 418e-6, "write": 1032e-6}[op]
    return BaselineRow(
        arm=name,
        round=round_,
        job="seq-rw-16k-x2",
        op=op,
        bs_bytes=16384,
        numjobs=2,
        iodepth=1,
        iops=iops,
        bandwidth_bytes_per_s=iops * 16384,
        mean_s=base,
        p50_s=base,
        p90_s=base * 1.2,
        p99_s=base * 1.5,
        p999_s=base * 2,
    )


def telemetry() -> list[TelemetryPoint]:
    made = []
    for name in ARMS:
        for second in range(10):
            at = START + second + 0.5
            values = {"device.queue_depth": 0.5, "device.read_await_s": 4e-4, "device.reads_per_s": 100.0}
            if name == "gp2":
                values |= {"emulator.credits": 5.4e6 - 1000 * second, "emulator.credits_capacity": 5.4e6}
            values["emulator.waited_s.iops"] = 0.25 * second
            made += [
                TelemetryPoint(arm=name, device="loop0", at_s=at, metric=metric, value=value, unit="")
                for metric, value in values.items()
            ]
    return made


def observed() -> list[Event]:
    """A request reads 10 x 100 KiB at 1 ms; of each of gp3's big range 0.6 ms is waiting for throughput."""
    made = []
    for one in samples():
        waited = 0.006 if one.arm == "gp3" and one.task == "range_field_big_range" else 0.0
        begin = dict.fromkeys(("device.reads", "device.read_bytes", "device.read_s"), 1000.0)
        begin |= dict.fromkeys(
            ("device.write_s", "device.weighted_s", "emulator.waited_s.throughput"), 1000.0
        )
        grown = {"device.reads": 10, "device.read_bytes": 1_024_000, "device.read_s": 0.01}
        grown |= {"device.weighted_s": 0.01, "emulator.waited_s.throughput": waited}
        fields = {"task": one.task, "round": one.round, "requests": 1, "started_s": one.started_s}
        fields |= {"begin": begin, "end": {name: v + grown.get(name, 0.0) for name, v in begin.items()}}
        made.append(Event(at_s=one.started_s + one.service_time_s, kind="io", arm=one.arm, fields=fields))
    return made


def make(home: Path, rows: list[Sample], *, arms: list[Volume] | None = None, **plan: Any) -> Path:  # noqa: ANN401
    whole: dict[str, Any] = {
        "name": "gp2-vs-gp3",
        "race": {"track": "noaa-ebs"},
        "cache": {"mode": "cold", "drop_every": 1, "max_resident": 0.01},
        "design": {"margin": 0.05, "confidence": 0.95},
        **plan,
    }
    folder = SessionFolder.create(home, "golden", kind="race", plan=whole, started_at=START)
    folder.update(
        arms=arms or [arm(name) for name in ARMS],
        environment={
            "kernel": "6.1.0",
            "memory_bytes": 8 * 1024**3,
            "nodes": {n: {"version": "8.8.2"} for n in ARMS},
        },
        dataset={"documents": 1000, "bytes": 300 * MIB, "hash": "0123456789abcdef", "segments": []},
    )
    with folder.part_writer("samples") as writer:
        writer.add(rows)
    return folder.path


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = make(tmp_path, samples())
    folder = SessionFolder(path)
    folder.rows_baseline(
        [
            fio(name, round_, op, iops * scale)
            for name, iops in (("gp2", 1353.0), ("gp3", 1439.0))
            for op in ("read", "write")
            for round_, scale in ((0, 1.0), (1, 0.98))
        ]
    )
    with folder.part_writer("telemetry") as writer:
        writer.add(telemetry())
    for number, name in enumerate(ARMS * 3):
        fields = {
            "before": 0.8,
            "after": 0.0005 * number,
            "attempts": 1 + (number == 3),
            "refill_s": 0.5 * number,
            "seconds": 0.1,
        }
        folder.event(Event(at_s=START + number, kind="drop", arm=name, fields=fields))
    for name, seconds in (("attach volumes", 2.5), ("start nodes", 9.25)):
        folder.event(Event(at_s=START, kind="stage", fields={"name": name, "seconds": seconds}))
    for event in observed():
        folder.event(event)
    folder.event(Event(at_s=START + 9, kind="limiter-begin", arm="gp3", fields={"limit": "throughput"}))
    pause = {"text": "Pause Full", "seconds": 0.1}  # in the last request of gp2's first block, of 60 ms each
    folder.event(Event(at_s=START + 4.1, kind="gc", arm="gp2", fields=pause))
    folder.add_warning("two other processes were busy")
    folder.finish(State.COMPLETE, ended_at=START + 600)
    return path


@pytest.mark.parametrize("form", report.RENDERERS)
def test_a_report_is_what_the_golden_file_holds(
    recorded: Path, golden: Callable[[str, str], None], form: str
) -> None:
    built = report.build(load_session(recorded))
    golden(f"report.{report.SUFFIX[form]}", report.RENDERERS[form](built))


@pytest.mark.parametrize("form", report.RENDERERS)
def test_every_output_says_emulated_warm_and_that_segments_differ(tmp_path: Path, form: str) -> None:
    path = make(tmp_path, samples(rounds=1), cache={"mode": "warm"})
    SessionFolder(path).update(dataset={"documents": 10, "copied": False})
    text = report.RENDERERS[form](report.build(load_session(path)))
    assert "emulated" in text
    assert "cache: warm" in text
    assert "segments differ: each arm indexed by itself" in text


def test_nothing_is_called_emulated_that_is_not(tmp_path: Path) -> None:
    arms = [arm(name, Kind.DIRECTORY) for name in ARMS]
    path = make(tmp_path, samples(rounds=1), arms=arms)
    assert "emulated" not in report.render_text(report.build(load_session(path)))


def test_the_csv_and_the_json_hold_the_same_values(recorded: Path) -> None:
    built = report.build(load_session(recorded))
    tables = json.loads(report.render_json(built))["tables"]
    rows = list(csv.DictReader(io.StringIO(report.render_csv(built))))
    compared = 0
    for row in rows:
        if row["table"] in tables and row["value"]:
            value = tables[row["table"]][row["item"]][row["subject"]][row["metric"]]
            assert row["value"] == (f"{value:.9g}" if isinstance(value, float) else str(value))
            compared += 1
    assert compared > 50


def test_colour_only_adds_to_what_is_there_as_text(recorded: Path) -> None:
    built = report.build(load_session(recorded))
    coloured, plain = report.render_text(built, colour=True), report.render_text(built)
    assert "\x1b[" in coloured
    assert "61.22 ms *" in plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured).split() == plain.split()


def test_too_few_rounds_give_no_verdict_but_their_number(tmp_path: Path) -> None:
    built = report.build(load_session(make(tmp_path, samples(rounds=2))))
    assert "no verdict, 2 rounds measured and at least 6 are needed" in built.verdict


def test_different_hits_make_the_arms_not_comparable(tmp_path: Path) -> None:
    rows = [*samples(), sample("gp3", 1, "range_field_big_range", START, 0.06, hits=3)]
    rows.append(sample("gp2", 1, "range_field_big_range", START, 0.06))
    built = report.build(load_session(make(tmp_path, rows)))
    assert built.verdict.startswith("Not comparable: range_field_big_range: hit counts differ")


def test_a_session_that_failed_says_so_first(tmp_path: Path) -> None:
    path = make(tmp_path, samples())
    SessionFolder(path).finish(State.FAILED, "the node of gp3 was killed", ended_at=START + 1)
    verdict = report.build(load_session(path)).verdict
    assert verdict.startswith(
        "This session failed (the node of gp3 was killed); from what was recorded before:"
    )


def test_a_session_of_fio_alone_is_reported(tmp_path: Path) -> None:
    path = make(tmp_path, [], race=None)
    SessionFolder(path).rows_baseline([fio(name, 0, "read", 3000.0) for name in ARMS])
    SessionFolder(path).finish(State.COMPLETE)
    built = report.build(load_session(path))
    assert built.verdict == (
        "No search was compared; the tables show what fio measured on gp2 (emulated) and gp3 (emulated)."
    )
    for render in report.RENDERERS.values():
        assert render(built)


def test_an_empty_session_is_reported_in_every_format(tmp_path: Path) -> None:
    folder = SessionFolder.create(tmp_path, "empty", kind="race", plan={})
    folder.finish(State.CANCELLED, "Ctrl-C")
    built = report.build(load_session(folder.path))
    assert "Ctrl-C" in built.verdict
    for render in report.RENDERERS.values():
        assert render(built)


def test_the_first_request_after_a_drop_is_reported_apart_when_others_follow_it(tmp_path: Path) -> None:
    rows = [
        sample(name, round_, "q", START, 0.05 if iteration == 1 else 0.01, iteration=iteration)
        for name in ARMS
        for round_ in range(1, 5)
        for iteration in (1, 2, 3)
    ]
    cache = {"mode": "cold", "drop_every": 0, "max_resident": 0.01}
    tables = json.loads(report.render_json(report.build(load_session(make(tmp_path, rows, cache=cache)))))[
        "tables"
    ]
    assert tables["service_time_p50"]["q"]["gp2"]["p50_s"] == 0.01
    assert tables["first_service_time_p50"]["q"]["gp2"]["p50_s"] == 0.05


def test_a_task_that_ran_once_per_arm_has_a_rate_and_no_verdict(tmp_path: Path) -> None:
    rows = [
        sample(name, 0, "index", START + second, 0.5, ops=1000.0, hits=None)
        for name in ARMS
        for second in range(10)
    ]
    text = report.render_text(report.build(load_session(make(tmp_path, rows))))
    assert "Once per arm" in text
    assert "1053" in text  # 10 x 1000 operations in 9.5 s


def test_hits_that_were_not_recorded_are_said(tmp_path: Path) -> None:
    rows = [replace(one, hits=None) for one in samples()]
    built = report.build(load_session(make(tmp_path, rows)))
    assert any("hit counts were not recorded" in warning for warning in built.warnings)


def test_failed_requests_and_faults_are_among_the_warnings(tmp_path: Path) -> None:
    rows = [*samples(), sample("gp3", 1, "range_field_big_range", START, 1.0, success=False)]
    path = make(tmp_path, rows)
    SessionFolder(path).event(Event(at_s=START, kind="fault", arm="gp3", fields={"text": "node gone"}))
    warnings = report.build(load_session(path)).warnings
    assert "fault on gp3: node gone" in warnings
    assert "range_field_big_range: 1 requests failed on gp3 and are left out" in warnings


def test_three_arms_have_a_column_per_pair_and_the_best_is_marked(tmp_path: Path) -> None:
    scale = {"a": 1.0, "b": 1.5, "c": 2.0}
    rows = [
        sample(name, round_, "q", START, 0.03 * factor * (1 + 0.001 * round_ * factor))
        for name, factor in scale.items()
        for round_ in range(1, 7)
    ]
    arms = [replace(arm("gp2"), spec=replace(arm("gp2").spec, name=name)) for name in scale]
    document = json.loads(report.render_json(report.build(load_session(make(tmp_path, rows, arms=arms)))))
    found = document["tables"]["service_time_p50"]["q"]
    assert list(found) == ["a", "b", "c", "b against a", "c against a", "c against b"]
    assert [name for name in scale if found[name].get("better")] == ["a"]


def test_where_the_time_went_adds_up_to_the_whole_session(recorded: Path) -> None:
    tables = json.loads(report.render_json(report.build(load_session(recorded))))["tables"]
    seconds = [item["session"]["seconds"] for item in tables["stages"].values()]
    assert sum(seconds[:-1]) == pytest.approx(seconds[-1]) == 600


def test_the_parts_of_recorded_rounds_are_not_added_to_them(recorded: Path) -> None:
    fields = {"name": "rounds", "seconds": 100.0}
    SessionFolder(recorded).event(Event(at_s=START, kind="stage", fields=fields))
    tables = json.loads(report.render_json(report.build(load_session(recorded))))["tables"]
    seconds = {name: item["session"]["seconds"] for name, item in tables["stages"].items()}
    # 2.5 s to attach and 9.25 s to start nodes, then 100 s of rounds, leave 488.25 s of 600 s for all else.
    assert seconds["all else"] == pytest.approx(488.25)
    assert "measured requests" not in seconds
    assert seconds["in the race: measured requests"] > 0


def test_values_that_are_no_numbers_are_not_drawn(tmp_path: Path) -> None:
    rows = [replace(one, service_time_s=0.0) for one in samples()]
    path = make(tmp_path, rows)
    with SessionFolder(path).part_writer("telemetry") as writer:
        writer.add([replace(one, value=float("nan")) for one in telemetry()])
    text = report.render_html(report.build(load_session(path)))
    assert not re.search(r'="[^"]*\bnan\b', text)


def test_a_recorded_check_is_not_made_again(tmp_path: Path) -> None:
    path = make(tmp_path, samples())
    SessionFolder(path).add_check(Check(name="hits", ok=True, value="", text="seen while racing"))
    texts = [check.text for check in report.build(load_session(path)).checks if check.name == "hits"]
    assert texts == ["seen while racing"]
