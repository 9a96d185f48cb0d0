"""The study of 2021 in virtual time, beside what was published."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from esrally_ebs import virtual
from esrally_ebs.errors import FormatError, PlanError
from esrally_ebs.model import BaselineRow, State, VolumeSpec
from esrally_ebs.published import compare, parse_study, render
from esrally_ebs.store import list_sessions, load_session

TEXT = (Path(__file__).parents[2] / "pipelines" / "nikkei-2021.json").read_text()
STUDY = parse_study(TEXT, "nikkei-2021.json")


def row(op: str, run: int = 1, **more: float) -> BaselineRow:
    figures = dict.fromkeys(
        ("iops", "bandwidth_bytes_per_s", "mean_s", "p50_s", "p90_s", "p99_s", "p999_s"), 1.0
    )
    return BaselineRow(
        arm="gp2",
        round=run,
        job="seq-rw-16k-x2",
        op=op,
        bs_bytes=16384,
        numjobs=2,
        iodepth=1,
        **{**figures, **more},
    )


def test_the_article_prints_kib_as_mb_and_its_iops_prove_it() -> None:
    for published in STUDY.rows:
        block = {"16k": 16, "256k": 256}[published["job"].split("-")[2]] * 1024
        throughput = (published["read_bandwidth"] + published["write_bandwidth"]) * STUDY.factors["bandwidth"]
        assert throughput / block == pytest.approx(published["iops"], rel=0.003)  # 546.48 is printed as 545


def test_the_number_of_reads_is_that_of_the_published_throughput() -> None:
    totals = {
        "seq-rw-16k-x2": 16384,
        "seq-rw-256k-x2": 1024,
        "seq-rw-16k-x16": 131072,
        "seq-rw-256k-x16": 8192,
    }
    for published in STUDY.rows:
        share = published["read_bandwidth"] / (published["read_bandwidth"] + published["write_bandwidth"])
        assert STUDY.reads[published["job"]] / totals[published["job"]] == pytest.approx(share, abs=0.0002)


def test_ours_is_the_median_of_the_runs_and_iops_are_reads_and_writes_together() -> None:
    study = replace(STUDY, rows=STUDY.rows[:1])  # gp2, seq-rw-16k-x2: 2706 IOPS, read p50 418 us
    reads = [row("read", run, iops=iops, p50_s=418e-6) for run, iops in enumerate((1300, 1406, 1900))]
    rows = [*reads, *(row("write", run, iops=1300) for run in range(3))]
    by_key = {figure.key: figure for figure in compare(study, rows)}
    assert by_key["iops"].ours == 2706
    assert by_key["iops"].error == 0
    assert by_key["read_p50"].ok
    assert not by_key["write_p50"].ok


def test_a_study_says_how_many_figures_are_outside_and_which() -> None:
    study = replace(STUDY, rows=STUDY.rows[:1])
    figures = compare(study, [row("read"), row("write")])
    text = render(study, figures, (), "made up")
    assert "0 of 7 published figures are within tolerance." in text
    assert "Outside: gp2 seq-rw-16k-x2: IOPS -100 %" in text


def test_a_price_that_differs_is_called_a_miss() -> None:
    specs = (VolumeSpec(name="gp2", type="gp2", size_bytes=200 * 1024**3),)
    assert "gp2 in ap-northeast-1: 24.000 USD a month, published 12.00  MISS" in render(STUDY, (), specs, "")


def test_data_that_are_not_whole_are_refused() -> None:
    with pytest.raises(FormatError, match=r"a\.json: not the data of a study: KeyError\('source'\)"):
        parse_study('{"title": "a"}', "a.json")


def test_every_arm_and_job_of_the_study_has_all_its_figures() -> None:
    rows = json.loads(TEXT)["rows"]
    assert len({(published["arm"], published["job"]) for published in rows}) == 8
    assert {len(published) for published in rows} == {9}


def test_virtual_time_is_within_tolerance_but_for_the_row_on_a_knife_edge() -> None:
    text = virtual.simulate_study("nikkei-2021")
    missed = {tuple(line.split()[:2]) for line in text.splitlines() if line.endswith("MISS")}
    assert missed <= {("gp2", "seq-rw-256k-x2")}
    assert "12.000 USD a month, published 12.00  ok" in text
    assert "9.744 USD a month, published 9.74  ok" in text


def test_an_unknown_study_is_refused_with_those_there_are() -> None:
    with pytest.raises(PlanError, match="study 'x': not known; there is nikkei-2021"):
        virtual.simulate_study("x")


def test_a_simulated_plan_is_a_session_that_says_so_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESRALLY_EBS_HOME", str(tmp_path))
    said: list[str] = []
    text = virtual.simulate_plan("smoke", {"design.seed": 3}, say=said.append)
    assert "simulated in virtual time from the volume models: nothing was measured" in text
    assert "gp2 (emulated)" in text
    (summary,) = list_sessions(tmp_path)
    session = load_session(summary.path)
    assert (session.kind, session.state, session.emulated) == ("simulate", State.COMPLETE, True)
    assert (summary.path / "report.txt").read_text() == text
    for form in ("report.md", "report.csv", "report.json", "report.html"):
        assert "nothing was measured" in (summary.path / form).read_text()
    # two arms, two jobs, reads and writes of the mix, and the cold-search job twice
    assert session.baseline.num_rows == 2 * (2 + 1 + 1)
    assert len(said) == len([event for event in session.events if event.kind == "simulated"]) == 2 * 3


def test_a_plan_without_fio_jobs_cannot_be_simulated(tmp_path: Path) -> None:
    plan = tmp_path / "empty.toml"
    plan.write_text('name = "empty"\n[[arm]]\nname = "a"\ntype = "gp2"\n')
    with pytest.raises(PlanError, match=r"has no \[\[baseline\]\], so there is no I/O to simulate"):
        virtual.simulate_plan(str(plan), {}, say=print)
