"""Recorded requests that come by chance: what they wait for processors and for the volume."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from recorded_requests import COMPUTE_S, GP3, IOS, folder_of, of_computing, recorded, recording

from esrally_ebs.advice.advice import Option, advise
from esrally_ebs.advice.dependencies import thread_of
from esrally_ebs.advice.prediction import PERCENTILES, Predictor
from esrally_ebs.advice.tables import build_advice
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.cli import main
from esrally_ebs.errors import PlanError
from esrally_ebs.model import Bound
from esrally_ebs.units import GIB
from esrally_ebs.volumes.virtual.replay import Load, replay


def test_requests_that_meet_no_other_take_what_they_take_one_by_one() -> None:
    thread, model = thread_of(recording(recorded())), model_for(GP3)
    alone_s = replay(thread, model, seed=3).latency_s
    assert replay(thread, model, seed=3, load=Load(1e-3, 1)).latency_s == pytest.approx(alone_s)


@pytest.mark.parametrize(("cores", "per_s", "mean_s"), [(1, 50, 0.02), (1, 80, 0.05), (2, 160, 0.02778)])
def test_processors_are_the_queue_of_the_textbook(cores: int, per_s: float, mean_s: float) -> None:
    """M/M/1: 1 / (100 - arrivals); M/M/2 at 80 %: 1 / (100 (1 - 0.8^2))."""
    thread = thread_of(of_computing(np.random.default_rng(1).exponential(0.01, 30_000)))
    latency_s = replay(thread, model_for(GP3), load=Load(per_s, cores)).latency_s
    assert latency_s.mean() == pytest.approx(mean_s, rel=0.08)


def test_more_ios_than_a_volume_serves_wait_for_its_limit_however_short_the_recording() -> None:
    """120 queries a second with 30 I/Os each; the recording has 48 of them."""
    made, load = recording(recorded()), Load(120, 16)
    predictor = Predictor(made, thread_of(made)).under(load)
    held, served = (predictor.predict(replace(GP3, iops=iops)) for iops in (3000, 6000))
    assert (held.binds, served.binds) == ("iops", "latency")
    assert 0.3 < held.waits["iops"] < 1  # of the time of those that count, not of all that come
    assert held.percentile(50).value > 1.0  # of 10 s that it is behind by a sixth
    assert served.percentile(99).value < 2 * predictor.check.percentile(99).value


def test_a_volume_that_serves_a_little_too_few_queries_is_held_back_by_that_limit() -> None:
    """It was held back by its latency, as I/Os of ten seconds had hardly waited for the limit."""
    made = recording(recorded())
    predictor = Predictor(made, thread_of(made)).under(Load(100.5, 16))
    on_gp3 = predictor.predict(GP3)
    assert on_gp3.falls_behind
    assert on_gp3.waits["iops"] < 0.05
    assert on_gp3.binds == "iops"
    gp2 = replace(GP3, type="gp2", iops=None, throughput_bytes_per_s=None)
    assert (predictor.predict(gp2).binds, predictor.predict(replace(gp2, credits=0.0)).binds) == (
        "iops",
        "credits",
    )


def test_a_volume_that_serves_fewer_queries_than_come_keeps_no_bound() -> None:
    """Of the first ten seconds and 48 queries p90 was up to 2.9 s: today's volume was said to keep 5 s."""
    made = recording(recorded())
    predictor = Predictor(made, thread_of(made)).under(Load(120, 16))
    bound = Bound(percentile=90, seconds=5.0)
    advice = advise(predictor, GP3, bound, region="us-east-1", types=["gp3", "gp2"])
    assert advice.best is not None
    (iops, *_) = model_for(advice.best.spec).limits
    assert 120 * IOS <= iops.rate < 1.2 * 120 * IOS
    assert not advice.today.keeps
    assert advice.today.prediction.used["iops"] == pytest.approx(120 * IOS / 3000, rel=0.01)
    gp2 = replace(GP3, type="gp2", iops=None, throughput_bytes_per_s=None)
    assert predictor.predict(gp2).falls_behind  # of 3,600 IOPS it bursts to 3,000
    predictor.under(Load(60, 16))
    assert not predictor.predict(gp2).falls_behind
    assert predictor.predict(replace(gp2, credits=0.0)).falls_behind
    predictor.under(Load(120, 16))
    report = build_advice(recorded(), advice, predictor)
    assert report.details[0] == (
        "Today: serves fewer queries than come, for 8.00 USD a month, held back by volume IOPS."
    )
    assert not any(line.startswith("One step down") for line in report.details)
    assert "they keep no bound" in report.tables[0].notes[1]
    (used,) = (table for table in report.tables if table.key == "used")
    assert "At 100% or more a limit serves fewer than come" in used.notes[0]


def test_a_dearer_volume_that_falls_behind_is_no_step_up(predictor: Predictor) -> None:
    """As it is behind by little in the first seconds, it may be faster for as long as those last."""
    bound = Bound(percentile=90, seconds=1.0)
    advice = advise(predictor, GP3, bound, region="us-east-1", types=["gp3"])
    *cheaper, dearest = advice.options
    whole = tuple(replace(one, value=one.value / 2) for one in dearest.prediction.whole)
    behind = replace(dearest, prediction=replace(dearest.prediction, whole=whole, falls_behind=True))
    advice = replace(advice, options=(*cheaper, behind))
    assert behind not in advice.front
    assert advice.neighbours()[1] != behind
    advice = replace(advice, options=tuple(replace(one, prediction=behind.prediction) for one in cheaper[:2]))
    assert len(advice.front) == 1  # none serves what comes: there is a fastest all the same


def test_runs_at_a_rate_fall_into_the_interval() -> None:
    """Requests wait for one another, so parts of a run tell too little: of p90 70 % of runs were outside."""
    draw, load, within = np.random.default_rng(3), Load(80, 1), []
    of = of_computing(np.zeros(320))
    for number in range(10):
        made = replace(of, latency_s=draw.exponential(0.01, 320))
        thread = thread_of(made)
        whole = Predictor(made, thread).under(load).predict(GP3).whole
        low_s, high_s = np.array([(one.low, one.high) for one in whole]).T
        for seed in range(100 + 8 * number, 108 + 8 * number):
            latency_s = replay(thread, model_for(GP3), seed=seed, load=load).latency_s
            of_run_s = np.percentile(latency_s, PERCENTILES)
            within.append((low_s <= of_run_s) & (of_run_s <= high_s))
    assert np.mean(within, axis=0).min() > 0.8
    assert np.mean(within) > 0.85


def test_advice_at_a_rate_says_so_and_how_busy_cores_are() -> None:
    made = recording(recorded())
    predictor = Predictor(made, thread_of(made)).under(Load(120, 16))
    bound = Bound(percentile=50, seconds=0.05)
    advice = advise(predictor, GP3, bound, region="us-east-1", types=["gp3"])
    report = build_advice(recorded(), advice, predictor)
    assert "at 120 queries a second that come by chance, on 16 cores" in report.labels[1]
    assert report.details[-1] == (
        f"What queries compute at that rate is {120 * (IOS + 1) * COMPUTE_S / 16:.0%} of the cores."
    )
    assert report.next_step.startswith("measure it: 'esrally-ebs knee PLAN --latency p50=50ms'")
    longer = replace(advice, bound=replace(bound, seconds=1200.0))
    assert "--latency p50=1200000ms'" in build_advice(recorded(), longer, predictor).next_step
    straddling = replace(advice, doubtful=advice.options[1], best=advice.options[-1])
    report = build_advice(recorded(), straddling, predictor)
    assert "its interval straddles it; measure it and gp3" in report.verdict  # 'advise --race' refuses it


def test_queues_that_come_once_in_minutes_keep_no_bound_that_they_may_exceed() -> None:
    """15 queries a second of 30 reads each on 500 IOPS: p99 is 0.8 s, but was predicted as 18 to 47 ms.

    The setting was advised, with a warning.
    """
    made = recording(recorded())
    predictor = Predictor(made, thread_of(made), 97.9).under(Load(15, 8))
    io2 = replace(GP3, type="io2", iops=500, throughput_bytes_per_s=None)
    tail, p90 = (Bound(percentile=percentile, seconds=60.0) for percentile in (97.9, 90))
    busy = Option(prediction=predictor.predict(io2), bound=tail)
    assert busy.prediction.queued["iops"] == pytest.approx(0.0246, abs=0.001)
    assert busy.interval_s[1] < tail.seconds
    assert (busy.answer, replace(busy, bound=p90).answer) == ("perhaps", "yes")
    advice = advise(predictor, GP3, tail, region="us-east-1", types=["gp3"])
    report = build_advice(recorded(), replace(advice, doubtful=busy), predictor)
    assert "500 IOPS may keep p97.9 of 60000 ms or not: queries may queue for a limit of it" in report.verdict
    said = "Queries use 90% of the volume IOPS of io2 100 GiB, 500 IOPS, and about 2% of them find it used"
    assert any(warning.startswith(said) for warning in report.warnings)
    # credits that are not used are there for what comes, and where queries are many they hardly differ
    of_credits = replace(io2, type="gp2", iops=None, size_bytes=167 * GIB, credits=0.0)
    assert predictor.predict(of_credits).used["credits"] == pytest.approx(0.9, abs=0.01)
    assert max(predictor.predict(of_credits).queued.values()) < 1e-6
    spent = predictor.under(Load(40, 16)).predict(replace(of_credits, credits=1.0))
    assert spent.used["credits"] > 2
    assert max(spent.queued.values()) < 1e-6
    assert max(predictor.under(Load(95, 16)).predict(GP3).queued.values()) < 1e-4
    assert set(Predictor(made, thread_of(made)).predict(io2).queued.values()) == {0.0}


def test_more_computing_than_the_cores_can_do_is_refused() -> None:
    made = recording(recorded())
    with pytest.raises(PlanError, match=r"--rate 150: .* is 140% of 1 core, so no volume keeps a bound"):
        Predictor(made, thread_of(made)).under(Load(150, 1))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rate", "0"], "--rate 0: name queries a second, 0.001 to 10,000"),
        (["--rate", "1e-320"], "--rate 9.99989e-321: name queries a second"),  # predicted nan ms
        (["--rate", "nan"], "--rate nan: name queries a second"),
        (["--rate", "1e6"], "--rate 1e+06: name queries a second"),
        (["--cores", "2"], "--cores: counts with --rate alone"),
        (["--rate", "10"], "does not say how many cores; give --cores"),
        (["--rate", "10", "--race"], "--rate: a race of the advice asks one query after another"),
    ],
)
def test_rates_that_cannot_be_predicted_are_refused_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    folder = folder_of(tmp_path, recorded())
    assert main(["advise", str(folder.path), "--keep", "p90=1s", *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err


def test_the_processors_are_those_of_the_recorded_node_unless_others_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = {"a": {"processors": 4}, "b": {"processors": 6}}
    folder = folder_of(tmp_path, replace(recorded(), environment={"nodes": nodes}))
    words = ["advise", str(folder.path), "--keep", "p90=1s", "--types=gp3", "--rate=10"]
    for more, cores in (([], 4), (["--cores=8"], 8)):
        assert main([*words, *more, "--format=json"]) == 0
        assert f"on {cores} cores" in json.loads(capsys.readouterr().out)["labels"][1]
