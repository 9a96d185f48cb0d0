"""What a report says of a session: verdict, doubts, what was left out, and where the time went."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import eight_rounds
import pyarrow as pa
import pytest
import session_in_memory
from golden_session import ARMS, START, arm, fio, make, record, sample, samples, telemetry
from small_plan import small_plan

from esrally_ebs import report
from esrally_ebs.analysis.findings import find
from esrally_ebs.analysis.summary import PERCENTILES
from esrally_ebs.model import Check, Event, Phase, Sample, State
from esrally_ebs.store import SessionFolder, load_session


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    return record(tmp_path)


def test_too_few_rounds_give_no_verdict_but_their_number(tmp_path: Path) -> None:
    path = make(tmp_path, samples(rounds=2))
    assert report.build(load_session(path)).next_step == "wait for the other rounds of this session."
    SessionFolder(path).finish(State.COMPLETE, ended_at=START + 600)
    built = report.build(load_session(path))
    assert "2 rounds measured; at least 6 are needed" in built.verdict
    assert built.next_step == "measure 4 more rounds (design.rounds = 6)."


def test_a_price_list_that_is_not_there_is_no_silence_about_costs(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESRALLY_EBS_PRICES", "/nowhere.json")
    text = report.render_text(report.build(load_session(recorded)))
    assert text.count("No price: /nowhere.json: prices cannot be read: No such file or directory") == 1


def test_different_hits_make_the_arms_not_comparable(tmp_path: Path) -> None:
    rows = [*samples(), sample("gp3", 1, "range_field_big_range", START, 0.06, hits=3)]
    rows.append(sample("gp2", 1, "range_field_big_range", START, 0.06))
    built = report.build(load_session(make(tmp_path, rows)))
    assert built.verdict.startswith("Not comparable: range_field_big_range: hit counts differ")


def test_what_is_not_comparable_has_times_and_no_verdict_anywhere(recorded: Path) -> None:
    before = report.build(load_session(recorded))
    assert "slower" in report.render_text(before)
    SessionFolder(recorded).add_check(Check(name="hits", ok=False, value="", text="other documents"))
    built = report.build(load_session(recorded))
    searches = [table for table in built.tables if table.key.startswith("service_time")]
    assert len(searches) == 1
    cells = [cell for table in searches for row in table.rows for cell in row.cells]
    assert {cell.facts["verdict"] for cell in cells if "verdict" in cell.facts} == {"not comparable"}
    assert not any(cell.better for cell in cells)
    assert {change.verdict for forest in built.figures.searches for change in forest.changes} == {""}
    assert built.reasons == ()
    for form in ("text", "markdown", "csv", "json"):  # the page of HTML explains its marks in these words
        assert not re.search(r"\b(slower|faster)\b", report.RENDERERS[form](built))


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


def test_a_race_whose_requests_are_gone_is_not_reported_as_one_of_fio_alone(tmp_path: Path) -> None:
    path = make(tmp_path, [])
    SessionFolder(path).rows_baseline([fio(name, 0, "read", 3000.0) for name in ARMS])
    SessionFolder(path).finish(State.COMPLETE)
    verdict = report.build(load_session(path)).verdict
    assert verdict.startswith("No request of the race was recorded; the tables show what fio measured on ")


def test_where_a_disk_changed_samples_no_verdict_rests_on_the_others(recorded: Path) -> None:
    (recorded / "samples" / "part-9.parquet").write_bytes(b"PAR1")
    built = report.build(load_session(recorded))
    assert built.verdict.startswith("Not comparable: samples/part-9.parquet: not readable as Parquet")
    assert built.next_step.startswith("see to the disk that changed it")


def test_an_empty_session_is_reported_in_every_format(tmp_path: Path) -> None:
    folder = SessionFolder.create(tmp_path, "empty", kind="race", plan=small_plan())
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


def test_a_task_of_one_arm_only_is_not_said_to_have_run_once(tmp_path: Path) -> None:
    rows = [*samples(), *(sample("gp2", round_, "lonely", START, 0.5) for round_ in range(1, 7))]
    path = make(tmp_path, rows)
    SessionFolder(path).finish(State.COMPLETE)
    built = report.build(load_session(path))
    tables = {table.key: table for table in built.tables}
    assert [row.item for row in tables["alone"].rows] == ["lonely"]
    # no operations a second: between its rounds other tasks and arms were measured
    titles = [column.title for column in tables["alone"].columns]
    assert titles == ["gp2 p50", "gp2 p99", "gp3 p50", "gp3 p99"]
    assert "once" not in tables
    assert "unequal numbers of requests: gp2 6, gp3 0" in built.verdict


def test_a_task_that_failed_on_the_reference_alone_is_not_said_to_be_of_one_arm() -> None:
    of_three = session_in_memory.session(arms=("a", "b", "c"))
    rows = of_three.samples.to_pylist()
    rows += [{**row, "task": "u", "success": row["arm"] != "a"} for row in rows]
    built = report.build(replace(of_three, samples=pa.Table.from_pylist(rows, of_three.samples.schema)))
    (table,) = [table for table in built.tables if table.key == "alone"]
    assert (table.title, [row.item for row in table.rows]) == ("Not compared", ["u"])
    assert "succeeded on no two arms that are compared" in table.notes[0]


def test_a_distribution_is_described_by_the_percentiles_of_the_tables(recorded: Path) -> None:
    session = load_session(recorded)
    curves = {
        (plot.heading, curve.name): curve.summary
        for plot in report.build(session).figures.distributions
        for curve in plot.curves
    }
    for of in find(session).summaries:
        times = ", ".join(f"p{p} {of.percentile(p).value * 1e3:.2f} ms" for p in PERCENTILES)
        assert curves[of.task, of.arm] == f"{of.arm} {times}"


def test_an_arms_own_percentiles_have_their_intervals_in_csv_and_json(recorded: Path) -> None:
    built = report.build(load_session(recorded))
    cell = json.loads(report.render_json(built))["tables"]["service_time_p50"]["range_field_big_range"]["gp2"]
    assert cell["p50_low_s"] < cell["p50_s"] < cell["p50_high_s"]
    assert "p50_low_s" in report.render_csv(built)


def test_hits_that_were_not_recorded_are_said(tmp_path: Path) -> None:
    rows = [replace(one, hits=None) for one in samples()]
    built = report.build(load_session(make(tmp_path, rows)))
    assert any("hit counts were not recorded" in warning for warning in built.warnings)


def test_of_a_first_round_that_was_cut_hits_are_not_said_to_be_missing(tmp_path: Path) -> None:
    path = make(tmp_path, samples(rounds=1)[:-3])
    SessionFolder(path).finish(State.CANCELLED, "Ctrl-C")
    built = report.build(load_session(path))
    assert not [warning for warning in built.warnings if "hit counts" in warning]


def test_failed_requests_and_faults_are_among_the_warnings(tmp_path: Path) -> None:
    rows = [*samples(), sample("gp3", 1, "range_field_big_range", START, 1.0, success=False)]
    path = make(tmp_path, rows)
    SessionFolder(path).event(Event(at_s=START, kind="fault", arm="gp3", fields={"text": "node gone"}))
    warnings = report.build(load_session(path)).warnings
    assert "fault on gp3: node gone" in warnings
    assert "range_field_big_range: 1 failed request of gp3 left out" in warnings


def test_three_arms_have_a_column_per_arm_against_the_reference_and_the_best_is_marked(
    tmp_path: Path,
) -> None:
    scale = {"a": 1.0, "b": 1.5, "c": 2.0}
    rows = [
        sample(name, round_, "q", START, 0.03 * factor * (1 + 0.001 * round_ * factor))
        for name, factor in scale.items()
        for round_ in range(1, 7)
    ]
    arms = [replace(arm("gp2"), spec=replace(arm("gp2").spec, name=name)) for name in scale]
    document = json.loads(report.render_json(report.build(load_session(make(tmp_path, rows, arms=arms)))))
    cells = document["tables"]["service_time_p50"]["q"]
    assert list(cells) == ["a", "b", "c", "b against a", "c against a"]
    assert [name for name in scale if cells[name].get("better")] == ["a"]


def test_where_the_time_went_adds_up_to_the_whole_session(recorded: Path) -> None:
    tables = json.loads(report.render_json(report.build(load_session(recorded))))["tables"]
    seconds = [item["session"]["seconds"] for item in tables["stages"].values()]
    assert sum(seconds[:-1]) == pytest.approx(seconds[-1]) == 600


def test_a_time_that_is_no_number_is_no_part_of_where_the_time_went(tmp_path: Path) -> None:
    first, *others = samples()
    path = make(tmp_path, [replace(first, service_time_s=math.inf), *others])
    SessionFolder(path).finish(State.COMPLETE, ended_at=START + 600)
    tables = json.loads(report.render_json(report.build(load_session(path))))["tables"]
    seconds = tables["stages"]["measured requests"]["session"]["seconds"]
    assert seconds == pytest.approx(sum(one.service_time_s for one in others))


def test_the_parts_of_recorded_rounds_are_not_added_to_them(recorded: Path) -> None:
    fields = {"name": "rounds", "seconds": 100.0}
    SessionFolder(recorded).event(Event(at_s=START, kind="stage", fields=fields))
    tables = json.loads(report.render_json(report.build(load_session(recorded))))["tables"]
    seconds = {name: item["session"]["seconds"] for name, item in tables["stages"].items()}
    # 2.5 s to attach and 9.25 s to start nodes, then 100 s of rounds, leave 488.25 s of 600 s for all else.
    assert seconds["all else"] == pytest.approx(488.25)
    assert "measured requests" not in seconds
    assert seconds["in the race: measured requests"] > 0


def test_where_parts_overlap_nothing_takes_less_than_no_time(recorded: Path) -> None:
    event = Event(at_s=START, kind="drop", arm="gp2", fields={"task": "t", "round": 1, "seconds": 900.0})
    SessionFolder(recorded).event(event)  # by several clients at once
    tables = json.loads(report.render_json(report.build(load_session(recorded))))["tables"]
    seconds = {name: item["session"]["seconds"] for name, item in tables["stages"].items()}
    assert min(seconds.values()) >= 0
    assert seconds["whole session"] == 600


def test_values_that_are_no_numbers_are_not_drawn(tmp_path: Path) -> None:
    rows = [replace(one, service_time_s=0.0) for one in samples()]
    path = make(tmp_path, rows)
    with SessionFolder(path).part_writer("telemetry") as writer:
        writer.add([replace(one, value=float("nan")) for one in telemetry()])
    text = report.render_html(report.build(load_session(path)))
    assert not re.search(r'="[^"]*\bnan\b', text)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("form", report.RENDERERS)
def test_a_time_that_is_no_number_is_reported_in_every_format(
    tmp_path: Path, value: float, form: str
) -> None:
    first, *rest = samples()
    path = make(tmp_path, [replace(first, service_time_s=value), *rest])
    text = report.RENDERERS[form](report.build(load_session(path)))
    assert not re.search(r'[dxy]\d?="[^"]*\b(nan|inf)\b', text)


@pytest.mark.parametrize("at_s", [None, "soon", START])
def test_events_that_say_too_little_are_passed_over(recorded: Path, at_s: object) -> None:
    folder = SessionFolder(recorded)
    before = report.render_text(report.build(load_session(recorded)))
    for kind, fields in (
        ("drop", {}),
        ("drop", {"after": None, "attempts": None, "refill_s": "long"}),
        ("stage", {}),
        ("stage", {"name": "x", "seconds": "long"}),
        ("gc", {"seconds": None if at_s == START else 0.2, "text": "Pause Full"}),
        ("baseline", {"seconds": "long", "round": "first"}),
    ):
        folder.event(Event(at_s=at_s, kind=kind, arm="gp2", fields=fields))  # type: ignore[arg-type]
    if at_s != START:
        folder.event(Event(at_s=at_s, kind="fault", arm="gp2", fields={}))  # type: ignore[arg-type]
    built = report.build(load_session(recorded))
    report.render_html(built)
    lines = report.render_text(built).splitlines(keepends=True)
    assert "".join(line for line in lines if not line.startswith("  events.jsonl")) == before


def test_a_recorded_check_is_not_made_again(tmp_path: Path) -> None:
    path = make(tmp_path, samples())
    SessionFolder(path).add_check(Check(name="hits", ok=True, value="", text="seen while racing"))
    texts = [check.text for check in report.build(load_session(path)).checks if check.name == "hits"]
    assert texts == ["seen while racing"]


def test_fio_at_the_end_of_a_short_session_does_not_cover_its_rounds(tmp_path: Path) -> None:
    path = make(tmp_path, samples(rounds=1))
    for round_, at in ((0, START), (1, START + 20)):
        fields = {"job": "j", "round": round_, "seconds": 2.0}
        SessionFolder(path).event(Event(at_s=at, kind="baseline", arm="gp2", fields=fields))
    spans = report.build(load_session(path)).figures.spans
    assert [(s.start_s, s.end_s) for s in spans if s.name == "fio"] == [(-2.0, 0.0), (18.0, 20.0)]


def test_credits_are_drawn_as_a_share_of_the_bucket_whatever_they_count(recorded: Path) -> None:
    timelines = {t.title: t for t in report.build(load_session(recorded)).figures.timelines}
    (curve,) = timelines["Burst credits"].curves
    # 5.4 million at first, a thousand less each second: after nine seconds 99.83 % are left
    assert curve.y[0] == 100
    assert curve.y[-1] == pytest.approx(100 * (5.4e6 - 9000) / 5.4e6)


WARM = {"cache": {"mode": "warm"}}


def waiting(task: str) -> list[Sample]:
    """The samples of all tasks, of which one kept to a schedule: gp3 answers 50 ms late."""
    return [
        replace(row, latency_s=row.service_time_s + (0.05 if row.arm == "gp3" else 0.001))
        if row.task == task
        else row
        for row in samples()
    ]


def test_latency_is_judged_beside_service_time_for_what_kept_to_a_schedule(tmp_path: Path) -> None:
    task = "range_field_small_range"
    built = report.build(load_session(make(tmp_path, waiting(task), **WARM)))
    (table,) = [table for table in built.tables if table.key == "latency"]
    assert {row.item for row in table.rows} == {task}
    assert [row.key for row in table.rows] == ["latency_p50", "latency_p90", "latency_p99"]
    verdicts = {
        table.key: cell.facts["verdict"]
        for table in built.tables
        for row in table.rows
        for cell in row.cells
        if row.item == task and "verdict" in cell.facts
    }
    assert verdicts == {"service_time": "equivalent", "latency": "slower"}
    assert "open loop" in report.render_text(built)


@pytest.mark.parametrize("changes", [{}, {**WARM, "design": {"nodes": "one"}}])
def test_where_evictions_or_other_arms_delay_requests_there_is_no_latency(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    built = report.build(load_session(make(tmp_path, waiting("range_field_small_range"), **changes)))
    assert not [table for table in built.tables if table.key == "latency"]


def test_steady_says_after_how_many_requests_or_that_it_never_was(tmp_path: Path) -> None:
    path = make(tmp_path, samples(), cache={"mode": "steady"})
    for arm_name, kind, requests in (
        ("gp2", "steady", 60),
        ("gp2", "steady", 1200),
        ("gp3", "not-steady", 9),
    ):
        SessionFolder(path).note(kind, arm=arm_name, task="q", text="q: not steady", requests=requests)
    built = report.build(load_session(path))
    label = "cache: steady, what the node's memory leaves of it (gp2 after 1,260 requests, gp3 never was)"
    assert label in built.labels
    assert "not-steady on gp3: q: not steady" in built.warnings
    assert "steady caches" in built.verdict


def test_a_session_of_several_starts_says_that_it_holds_under_any_jvm(tmp_path: Path) -> None:
    design = {"rounds": 12, "starts": 3}
    built = report.build(load_session(make(tmp_path, samples(rounds=12), design=design)))
    assert "scope: these volumes under any JVM: nodes were started 3 times" in built.labels
    assert re.search(r"cold caches, any JVM\)\.$", built.verdict)
    (times,) = [table for table in built.tables if table.key.startswith("service_time")]
    assert "means over 3 starts of the nodes, Student's t" in times.notes[0]
    assert "~" not in " ".join(cell.text for row in times.rows for cell in row.cells)
    one = report.build(load_session(make(tmp_path / "1", samples(rounds=12), design={"nodes": "one"})))
    assert "scope: these volumes under this JVM" in one.labels


def test_each_warm_up_has_its_place_on_the_timeline(tmp_path: Path) -> None:
    rows = [
        replace(sample("gp2", round_, "range_field_big_range", START + at, 0.5), phase=phase)
        for at, round_, phase in (
            (0, 0, Phase.WARMUP),
            (1, 0, Phase.WARMUP),
            (10, 1, Phase.MEASURE),
            (60, 0, Phase.WARMUP),
            (63, 0, Phase.WARMUP),
            (70, 2, Phase.MEASURE),
        )
    ]
    spans = report.build(load_session(make(tmp_path, rows))).figures.spans
    assert sorted((s.start_s, s.end_s) for s in spans if s.name == "warm") == [(0.0, 1.5), (60.0, 63.5)]


def test_the_environment_says_how_tasks_are_asked_and_shows_no_hash_of_what() -> None:
    asked = {"t": {"clients": 4, "query": "0123456789ab"}, "u": {"query": "ba9876543210"}}
    built = report.build(session_in_memory.session(environment={"tasks": asked}))
    table = next(table for table in built.tables if table.key == "environment")
    assert [row.item for row in table.rows if row.item.startswith("tasks")] == ["tasks t clients"]


def test_a_recording_names_the_commands_that_read_it(tmp_path: Path) -> None:
    folder = SessionFolder.create(tmp_path, "s", kind="trace", plan=small_plan())
    folder.update(arms=[arm("gp2")])
    folder.finish(State.COMPLETE)
    start = "I/Os of gp2 (emulated) were recorded and nothing is compared: 'esrally-ebs usage' reads"
    assert report.build(load_session(folder.path)).verdict == f"{start} this folder."
    with folder.part_writer("samples") as writer:
        writer.add([sample("gp2", 1, "q", START, 0.1)])
    with_requests = load_session(folder.path)
    assert (
        report.build(with_requests).verdict
        == f"{start} this folder; 'esrally-ebs advise' predicts its requests."
    )


def test_prices_and_times_many_times_as_high_have_thousands_apart(tmp_path: Path) -> None:
    arms = [
        eight_rounds.named("gp3"),
        eight_rounds.named("big", type="io2", iops=16_000, throughput_bytes_per_s=None),
    ]
    made = eight_rounds.built(tmp_path, eight_rounds.rows({"gp3": 1.0, "big": 12.0}), arms)
    assert re.search(r"slower than gp3 \(emulated\): \+1,\d{3}\.\d % \[\+1,\d{3}\.\d, \+1,", made.verdict)
    assert re.search(r"\(by up to 1,\d{3}\.\d %\)", made.details[0])
    assert re.search(r"big 1,\d{3}\.\d\d USD \(\+\d\d,\d{3} %\)", made.cost)
