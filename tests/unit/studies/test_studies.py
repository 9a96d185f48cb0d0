"""The five studies in virtual time: what they must show, and the arithmetic that they rest on."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_plan import small_plan
from stored import sample_of

from esrally_ebs import studies
from esrally_ebs.catalog import cost
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.cli import main
from esrally_ebs.errors import PlanError
from esrally_ebs.model import Kind, State, Volume
from esrally_ebs.plan import BaselineJob, Plan, load_plan
from esrally_ebs.report.model import Table, Value
from esrally_ebs.store import SessionFolder, load_session
from esrally_ebs.store.encoding import SAMPLES, to_table
from esrally_ebs.studies import burst
from esrally_ebs.studies.nikkei import crossover, rally_table
from esrally_ebs.studies.published import Inputs, Result, Status
from esrally_ebs.studies.runs import LoadPhase, Run, run_of
from esrally_ebs.studies.tuning import QUEUE, bottleneck_of, ceilings
from esrally_ebs.volumes.fio import PERCENTILES, FioDirection

KIB, MIB = 1024, 1024**2
PIPELINES = Path(__file__).parents[3] / "pipelines"


def plan_of(name: str) -> Plan:
    return load_plan(PIPELINES / f"{name}.toml")


def a_run(waited_s: dict[str, float]) -> Run:
    direction = FioDirection(
        job="log", op="write", ios=1000, iops=100.0, bandwidth_bytes_per_s=1e6, mean_s=0.01,
        p50_s=0.01, p90_s=0.01, p99_s=0.01, p999_s=0.01,
    )  # fmt: skip
    return Run(
        arm="t3-3000-250", job="log", block_bytes=64 * KIB, directions=(direction,),
        waited_s=waited_s,
    )  # fmt: skip


@dataclass(slots=True)
class Recorded:
    """A runner that has its runs and phases already."""

    runs: list[Run] = field(default_factory=list)
    phased: list[LoadPhase] = field(default_factory=list)
    scale: int = 1
    virtual: bool = False
    how: str = "recorded"

    def jobs(self, plan: Plan, reads: Any) -> list[Run]:  # noqa: ANN401 - as the protocol has it
        return self.runs

    def phases(self, plan: Plan) -> list[LoadPhase]:
        return self.phased


def values_of(table: Table) -> list[list[Value]]:
    return [row.values for row in table.rows]


def show(name: str, runner: studies.Runner) -> Result:
    return studies.run_study(name, runner, cost.price_list())


@pytest.mark.parametrize("name", studies.names())
def test_every_published_figure_has_its_arm_and_job_in_the_plan(name: str) -> None:
    plan, study = plan_of(name), studies.read_study(name)
    arms = {arm.name for arm in plan.arm} | {"", "vpn"}
    jobs = {job.name for job in plan.baseline} | {"", "copy", "baseline"}
    assert plan.name == name
    assert {figure.arm for figure in study.figures} <= arms
    assert {figure.job for figure in study.figures} <= jobs
    assert study.corrected()


@pytest.mark.slow  # compiles for several seconds
def test_the_fio_rows_of_2021_are_within_tolerance_but_for_the_row_on_a_knife_edge() -> None:
    result = show("nikkei-2021", studies.VirtualRunner())
    missed = {(f.published.arm, f.published.job) for f in result.figures if f.status is Status.MISS}
    assert missed <= {("gp2", "seq-rw-256k-x2")}
    assert not [f for f in result.figures if f.status is Status.MISSING]
    ours = {(f.published.arm, f.published.kind.key): f.ours for f in result.figures}
    assert (ours["gp2", "usd"], ours["gp3", "usd"]) == (pytest.approx(12.00), pytest.approx(9.744))


def test_gp2_reaches_gp3_at_the_size_of_the_article_s_graph() -> None:
    specs = {spec.name: spec for spec in plan_of("nikkei-2021").arm}
    assert crossover(specs["gp2"], specs["gp3"]) == 1000  # 3 IOPS per GiB, 3,000 included


@pytest.mark.parametrize(
    ("hits", "said"),
    [((7, 8), "not comparable: range_field_big_range: hit counts differ"), ((), "no search was measured")],
)
def test_a_session_that_says_nothing_of_arms_is_not_put_beside_the_published_race(
    home: Path, capsys: pytest.CaptureFixture[str], hits: tuple[int, ...], said: str
) -> None:
    folder = SessionFolder.create(home, "race", kind="race" if hits else "simulate", plan=small_plan())
    specs = plan_of("nikkei-2021").arm[:2]
    folder.update(arms=[Volume(spec=spec, kind=Kind.EMULATED, mount=home) for spec in specs])
    with folder.part_writer("samples") as writer:
        writer.add(sample_of(0.01, arm=arm, hits=of) for arm, of in zip(("gp2", "gp3"), hits, strict=False))
    folder.finish(State.COMPLETE)
    assert main(["study", "nikkei-2021", "--simulate", "--session", "race"]) == 4
    assert f"session race: {said}" in capsys.readouterr().err


@pytest.mark.slow  # compiles for several seconds
def test_efs_meters_reads_at_a_third_and_bills_what_is_moved() -> None:
    result = show("efs-2022", studies.VirtualRunner())
    metered_table, bill = (values_of(table) for table in result.parts.tables)
    metered = {(row[0], row[1]): row[4] for row in metered_table}
    assert metered["bursting", "write"] == pytest.approx(100)
    assert metered["bursting", "read"] == pytest.approx(100 / 3)
    bills = {row[0]: row[4] for row in bill if row[1] == "together"}
    # 100 GiB read and written: 3 + 6 USD in Ohio (taken to be Virginia's), 4 + 7 in Tokyo
    assert bills == {"us-east-2": pytest.approx(9.0), "ap-northeast-1": pytest.approx(11.0)}
    missed = [f.published.job for f in result.figures if f.status is Status.MISS]
    assert missed == ["write"]  # Bursting's, 7.9 %: said so in the study


def test_a_recorded_race_stands_beside_the_published_one(tmp_path: Path) -> None:
    folder = SessionFolder.create(tmp_path, "race", kind="race", plan=small_plan())
    specs = plan_of("nikkei-2021").arm[:2]
    folder.update(arms=[Volume(spec=spec, kind=Kind.EMULATED, mount=tmp_path) for spec in specs])
    samples = [sample_of(seconds, arm=arm) for arm, seconds in (("gp2", 0.010), ("gp3", 0.020))]
    samples.append(replace(samples[1], task="range_field_small_range"))
    session = replace(load_session(folder.path), samples=to_table(samples, SAMPLES))
    table = rally_table(studies.read_study("nikkei-2021").settings["rally"], session)
    assert [column.title for column in table.columns[-3:]] == [
        "gp2, ours (ms)",
        "gp3, ours (ms)",
        "faster, ours",
    ]
    rows = values_of(table)
    assert rows[0] == ["range_field_big_range", 60.84, 86.83, "gp2", 10.0, 20.0, "gp2"]
    assert {row[0]: row[-3:] for row in rows}["range_field_small_range"] == [None, 20.0, None]
    assert [None, None, None] in [row[-3:] for row in rows]  # not raced
    assert table.notes == ("session race; the same arm is faster in 1 of 1 task raced on both",)


@pytest.mark.slow  # compiles for several seconds
def test_the_command_writes_a_page_with_plots_or_the_plots_alone(tmp_path: Path) -> None:
    for name, begins in (
        ("study.html", "<!DOCTYPE html>"),
        ("study.svg", "<svg "),
        ("study.txt", "EFS, 2022"),
    ):
        assert main(["study", "efs-2022", "--simulate", "--output", str(tmp_path / name)]) == 0
        assert (tmp_path / name).read_text().startswith(begins)


@given(
    st.lists(st.tuples(st.integers(0, 4000), st.just(0.1)), min_size=1, max_size=2000), st.integers(0, 900)
)
def test_five_minute_sums_lose_nothing(seconds: list[tuple[int, float]], start_s: int) -> None:
    sums = burst.five_minute_sums([LoadPhase(name="a", start_s=start_s, seconds=seconds)])
    assert sum(count for _, count in sums) == sum(done for done, _ in seconds)
    assert [start for start, _ in sums] == list(range(0, 300 * len(sums), 300))


def phase(name: str, start_s: int, fast_s: int, whole_s: int, iops: int) -> LoadPhase:
    """144 in flight all the time: in every second they have waited for 144 s together."""
    seconds = [(iops if i < fast_s else 300, 144.0) for i in range(whole_s)]
    return LoadPhase(name=name, start_s=start_s, seconds=seconds)


def test_a_burst_is_measured_by_the_second_scaled_back_and_its_await_follows_the_queue() -> None:
    # a hundredth of everything: credits end after 20 s, two hours of rest are 72 s and give 8 s
    phased = [phase("burst", 0, 20, 47, 3000), phase("again", 119, 8, 35, 3000)]
    study = studies.read_study("burst-2014")
    inputs = Inputs(
        study=replace(study, settings={**study.settings, "queues": [1, 8]}),
        plan=plan_of("burst-2014"),
        runner=Recorded(phased=phased, scale=100),
        prices=cost.price_list(),
    )
    parts = burst.run(inputs)
    ours = parts.observed
    assert ours["", "burst", "iops"] == 3000
    assert ours["", "burst", "await"] == pytest.approx(144 / 3000)
    assert ours["", "baseline", "await"] == pytest.approx(0.480)
    assert ours["", "", "again"] == pytest.approx(800)
    assert ours["", "burst", "ops_5min"] == 900_000  # three seconds of 3,000, times a hundred
    assert ("", "prewarm", "iops") not in ours  # a device has no blocks that were never written
    assert ("", "", "length") not in ours
    queues = next(table for table in parts.tables if table.title.startswith("What await"))
    assert [row[0] for row in values_of(queues)] == ["1", "8"]
    for _, await_ms, little_ms, guess_ms in values_of(queues):
        assert await_ms == pytest.approx(little_ms, rel=0.01)
        assert guess_ms == 300


def test_the_limit_that_was_waited_for_held_the_run_back() -> None:
    model = model_for(plan_of("tuning-2023").arm[1])  # 3,000 IOPS, 250 MiB/s, t3.small
    job = next(job for job in plan_of("tuning-2023").baseline if job.name == "log")
    # 1,000 I/Os of 10 ms are 10 s of latency
    assert bottleneck_of(a_run({"throughput": 6.0, "iops": 1.0}), job, model).limit == "throughput"
    assert bottleneck_of(a_run({"throughput": 6.0, "iops": 1.0}), job, model).share == pytest.approx(0.6)
    assert bottleneck_of(a_run({"throughput": 0.5, "iops": 0.4}), job, model).limit == QUEUE  # 9 % of 10 s
    assert bottleneck_of(a_run({}), job, model).limit == QUEUE
    after = bottleneck_of(a_run({"throughput": 6.0}), job, model)
    assert (after.next_limit, after.next_bytes_per_s) == ("instance-throughput", pytest.approx(260.625e6))


def test_each_limit_lets_a_load_have_so_many_bytes() -> None:
    model = model_for(plan_of("tuning-2023").arm[0])  # 3,000 IOPS, 125 MiB/s, t3.small
    job = BaselineJob(name="oltp", rw="randwrite", bs=8 * KIB, engine="libaio", iodepth=4)
    ceiling_of = ceilings(a_run({}), job, model)
    assert ceiling_of["iops"] == 3000 * 8 * KIB
    assert ceiling_of["throughput"] == 125 * MIB
    assert ceiling_of["instance-iops"] == 11_800 * 8 * KIB
    assert ceiling_of[QUEUE] == pytest.approx(4 * 8 * KIB / (811e-6 + 8 * 3.1e-6))


def test_striped_waits_are_added_up_by_limit() -> None:
    percentiles = {f"{p:.6f}": 1 for p in PERCENTILES}
    writes = {"total_ios": 1, "iops": 1, "bw_bytes": 1, "clat_ns": {"mean": 1, "percentile": percentiles}}
    document = {
        "fio version": "fio-3.0",
        "limits": {"waited_s": {"1-iops": 1.0, "2-iops": 2.0, "instance-iops": 4.0}},
        "jobs": [{"jobname": "j", "error": 0, "read": {"total_ios": 0}, "write": writes}],
    }
    text = json.dumps(document)
    job = BaselineJob(name="j", rw="write", bs=4096)
    assert run_of(text, "a", job).waited_s == {"iops": 3.0, "instance-iops": 4.0}


def test_a_study_on_devices_shows_only_what_was_measured() -> None:
    run = replace(a_run({"throughput": 9.0}), arm="t3-3000-125")
    result = show("tuning-2023", Recorded(runs=[run]))
    assert [f.status for f in result.figures].count(Status.MISSING) == len(result.figures) - 1
    bottlenecks = values_of(result.parts.tables[0])
    assert [row[4] for row in bottlenecks] == ["volume throughput"]


def test_the_command_lists_and_refuses_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", "--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in studies.names())
    for argv, text in (
        (["study"], "which one"),
        (["study", "x", "--simulate"], "study 'x': not known; there is nikkei-2021"),
        (["study", "efs-2022", "--simulate", "--format", "pdf"], "choose one of text, markdown, json, csv"),
        (
            ["study", "efs-2022", "--simulate", "--output", str(tmp_path / "no" / "a.svg")],
            "there is no folder",
        ),
        (["study", "efs-2022", "--simulate", "--prices", str(tmp_path / "no")], "prices cannot be read"),
    ):
        assert main(argv) == PlanError.exit_code, argv
        error = capsys.readouterr().err
        assert text in error
        assert error.count("\n") == 1
