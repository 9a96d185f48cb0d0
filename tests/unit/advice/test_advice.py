"""What recorded requests would take on another volume, and which is advised."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded_requests import (
    BLOCK,
    COMPUTE_S,
    GP3,
    IOS,
    ST1,
    folder_of,
    of_computing,
    recorded,
    recording,
)
from sample_rows import row, table
from small_plan import small_plan

from esrally_ebs.advice import prediction
from esrally_ebs.advice.advice import Advice, advise, priced_settings, settings
from esrally_ebs.advice.dependencies import thread_of
from esrally_ebs.advice.prediction import MAX_TASK_ERROR, PERCENTILES, Prediction, Predictor
from esrally_ebs.advice.recording import Recording
from esrally_ebs.advice.tables import (
    build_advice,
    kept_in_race,
    plan_text,
    raced_settings,
    setting_text,
)
from esrally_ebs.analysis.rounds import Estimate
from esrally_ebs.catalog.cost import CostPart, Price, Rate, Usage, monthly, price_list
from esrally_ebs.catalog.limits import Model
from esrally_ebs.catalog.volume_types import known_model, large_enough, model_for
from esrally_ebs.cli import main
from esrally_ebs.errors import MeasurementError, PlanError
from esrally_ebs.model import Bound, State, VolumeSpec
from esrally_ebs.plan import load_plan, parse_plan
from esrally_ebs.report import RENDERERS
from esrally_ebs.units import GIB, KIB, MIB
from esrally_ebs.volumes.virtual.replay import Load, Replayed, Thread, replay


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    made = recording(recorded())
    return Predictor(made, thread_of(made))


def test_the_access_pattern_of_a_task_is_told(predictor: Predictor) -> None:
    one, other = predictor.patterns
    assert (one.task, other.task) == ("t0", "t1")
    assert (one.ios, one.bytes, one.writes) == (IOS, IOS * BLOCK, 0.0)
    assert (one.continuing, one.waited_for, one.in_flight) == (0.0, 1.0, 1.0)
    assert 0.3 < one.computing < 0.6


def test_the_recorded_volume_is_predicted(predictor: Predictor) -> None:
    assert abs(predictor.errors[50]) < 0.02
    assert abs(predictor.errors[99]) < 0.05


def test_the_recorded_volume_is_replayed_once_with_each_luck(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was three times, though nothing in between changes what requests take."""
    seeds: list[int] = []

    def counted(thread: Thread, model: Model, *, seed: int = 0, **more: Any) -> Replayed:  # noqa: ANN401
        seeds.extend([seed] if seed else [])
        return replay(thread, model, seed=seed or 1, **more)

    monkeypatch.setattr(prediction, "replay", counted)
    made = recording(recorded())
    Predictor(made, thread_of(made))
    assert sorted(seeds) == sorted(set(seeds))


@pytest.mark.parametrize("rounds", [8, 1])
def test_nineteen_of_twenty_races_fall_into_the_interval(rounds: int) -> None:
    """Of as many requests as were recorded; of fewer than four rounds parts are taken."""
    draw, within = np.random.default_rng(3), []
    for _ in range(40):
        of = of_computing(np.exp(draw.normal(-3, 0.3, 320)), rounds)
        raced_s = np.percentile(np.exp(draw.normal(-3, 0.3, (50, 320))), PERCENTILES, axis=1)
        low_s, high_s = np.array([(one.low, one.high) for one in Predictor(of, thread_of(of)).check.whole]).T
        within.append(np.mean((low_s[:, None] <= raced_s) & (raced_s <= high_s[:, None]), axis=1))
    assert np.mean(within, axis=0) == pytest.approx([0.95] * 3, abs=0.06)


def one_read_each(count: int) -> Recording:
    """Requests of eight tasks in turn, of a read each, in eight rounds."""
    began_s, read_s = np.arange(count) * 10.0, model_for(GP3).read.median_s(BLOCK)
    at_s = began_s + COMPUTE_S
    ios = {"at_s": at_s, "done_s": at_s + read_s, "offset": (2 * np.arange(count) + 1) * BLOCK}
    ios |= {name: np.full(count, value) for name, value in (("bytes", BLOCK), ("write", 0), ("ahead", -1))}
    of = replace(of_computing(np.full(count, 2 * COMPUTE_S + read_s)), first=np.arange(count + 1))
    task = np.tile([f"t{n}" for n in range(8)], count // 8)
    return replace(of, ios={**ios, "path_s": np.zeros(count)}, task=task)


def test_nineteen_of_twenty_races_fall_into_the_interval_where_their_ios_differ_by_luck() -> None:
    """Four are drawn of each, which vary half as much together: of p99 15 % of races were outside."""
    of = one_read_each(320)
    thread, within = thread_of(of), []
    drawn_s = [replay(thread, model_for(GP3), seed=seed).latency_s for seed in range(100, 200)]
    raced_s = np.percentile(drawn_s, PERCENTILES, axis=1)
    for recorded_s in drawn_s[:10]:
        whole = Predictor(replace(of, latency_s=recorded_s), thread).predict(GP3).whole
        low_s, high_s = np.array([(one.low, one.high) for one in whole]).T
        within.append(np.mean((low_s[:, None] <= raced_s) & (raced_s <= high_s[:, None]), axis=1))
    assert np.mean(within, axis=0).min() > 0.93


def test_a_slowest_request_is_not_taken_for_the_p99_of_what_only_computes() -> None:
    """Each luck has it again: of 64 requests it was the p99, though 26 % less was measured, and refused."""
    latency_s = np.append(np.full(63, 0.03), 0.06)
    of = of_computing(latency_s)
    made = Predictor(of, thread_of(of))
    made.require_right()
    assert made.errors == pytest.approx({50: 0.0, 90: 0.0, 99: 0.0})
    assert made.check.tasks["t"] == pytest.approx(np.percentile(latency_s, PERCENTILES))


def test_requests_too_few_to_vary_are_refused() -> None:
    """Of one the interval had no width, so the cheapest setting kept the bound up to its upper end."""
    of = of_computing(np.full(7, 0.087))
    with pytest.raises(MeasurementError, match=r"has 7 measured requests, .* takes 8 or more"):
        Predictor(of, thread_of(of))


def test_tasks_that_differ_widen_no_interval() -> None:
    """Of few rounds parts are taken: each has of all tasks, in whatever order they were asked."""
    draw, count = np.random.default_rng(3), 304
    usual_s = np.tile(np.repeat([0.03, 0.12], 4), count // 8)
    of = of_computing(usual_s * np.exp(draw.normal(0, 0.01, count)), rounds=3)
    of = replace(of, task=np.where(usual_s == 0.03, "quick", "slow"))
    p50, _, p99 = Predictor(of, thread_of(of)).check.whole
    assert max(p50.high - p50.low, p99.high - p99.low) < 0.02


@pytest.mark.parametrize(("at_first", "said"), [(1.15, True), (1.02, False), (0.9, False)])
def test_a_node_that_was_still_warming_up_is_a_warning(at_first: float, said: bool) -> None:
    """Of a fresh node: those recorded took 9 % longer than the same ones in races that went on for longer."""
    count = 96
    of = of_computing(0.03 * np.where(np.arange(count) < count // 2, at_first, 1.0), rounds=4)
    made = Predictor(of, thread_of(of))
    advice = advise(made, GP3, Bound(percentile=99, seconds=1.0), region="us-east-1", types=["gp3"])
    warnings = build_advice(recorded(), advice, made, region="us-east-1").warnings
    assert any("13% less in the second half" in warning for warning in warnings) is said


PERTURBED = """
name = "p"
trace = "perturb"
race = {}
design = {rounds = 8}
arm = [{name = "a", type = "gp3", size = "100GiB"}]
"""


def perturbed(slowed: Callable[[float], float]) -> Predictor:
    """Recorded while reads took ``slowed`` times as long, by what the plan says that they should."""
    plan = parse_plan(PERTURBED, "p.toml")
    made = replace(recorded(slowed=lambda round_: slowed(plan.read_latency_of(round_))), plan=plan)
    of = recording(made)
    return Predictor(of, thread_of(of))


def test_the_slope_of_slowed_reads_is_that_of_the_graph_and_only_usual_rounds_are_predicted() -> None:
    made = perturbed(lambda times: times)
    made.require_right()
    assert made.slope is not None
    read = model_for(GP3).read
    mean_s = read.median_s(BLOCK) * np.exp(read.sigma**2 / 2)  # a request waits for the sum of many
    assert made.slope.predicted_s == pytest.approx(IOS * mean_s, rel=0.05)
    assert made.slope.measured.value == pytest.approx(made.slope.predicted_s, rel=0.05)
    assert made.patterns[0].ios == IOS
    assert abs(made.errors[50]) < 0.02


def test_requests_that_are_slowed_otherwise_than_their_graph_says_give_no_advice() -> None:
    with pytest.raises(MeasurementError, match="self-check fails: for each usual time"):
        perturbed(lambda times: 1 + (times - 1) / 2).require_right()


def test_a_volume_of_known_latency_is_predicted_to_ten_microseconds() -> None:
    """A request takes its computing, and of each I/O the median."""
    model = model_for(replace(GP3, type="io2", iops=8000, throughput_bytes_per_s=None))
    exact = replace(model, read=replace(model.read, sigma=0.0))
    expected_s = (IOS + 1) * COMPUTE_S + IOS * exact.read.median_s(BLOCK)
    assert replay(thread_of(recording(recorded())), exact).latency_s == pytest.approx(expected_s, abs=1e-5)


def test_a_limit_makes_requests_wait_and_is_named(predictor: Predictor) -> None:
    slow = predictor.predict(replace(ST1, credits=0.0))
    assert slow.binds == "credits"
    assert slow.percentile(50).value > 10 * predictor.check.percentile(50).value
    assert predictor.check.binds == "latency"


def test_what_requests_use_of_limits_is_what_they_take_in_their_time() -> None:
    """Eighty requests of one read of 16 KiB, 10 s apart: 790 s and what the last one takes."""
    of = one_read_each(80)
    replayed = replay(thread_of(of), model_for(GP3))
    assert replayed.used["iops"] == pytest.approx(80 / (3000 * 790), rel=1e-4)
    assert replayed.used["throughput"] == pytest.approx(80 * BLOCK / (125 * MIB * 790), rel=1e-4)
    striped = replay(thread_of(of), model_for(replace(GP3, stripes=2, chunk_bytes=64 * KIB)))
    assert striped.used["iops"] == pytest.approx(replayed.used["iops"] / 2, rel=1e-4)
    loaded = replay(thread_of(of), model_for(GP3), load=Load(100.0, 8))
    assert loaded.used["iops"] == pytest.approx(100 / 3000, rel=0.1)


def test_beside_other_volumes_of_a_race_one_that_lives_on_credits_gets_more_back(
    predictor: Predictor,
) -> None:
    """Requests came 1 s after one another; by turns with another such volume they come twice as far apart."""
    empty = replace(GP3, type="gp2", iops=None, throughput_bytes_per_s=None, credits=0.0)
    alone = predictor.predict(empty)
    by_turns = predictor.predict(empty, beside=[GP3])
    assert by_turns.waits["credits"] < alone.waits["credits"]
    times_s = [one.percentile(50).value for one in (predictor.predict(GP3, beside=[GP3]), predictor.check)]
    assert times_s[0] == pytest.approx(times_s[1])


def test_the_cheapest_setting_whose_upper_end_keeps_the_bound_is_advised(predictor: Predictor) -> None:
    today = predictor.check.percentile(90).value
    advice = advise(predictor, GP3, Bound(percentile=90, seconds=today * 1.2), region="us-east-1")
    assert advice.best is not None
    assert advice.best.keeps
    assert not [option for option in advice.options if option.usd < advice.best.usd and option.keeps]
    costs = [option.usd for option in advice.front]
    assert costs == sorted(costs)
    times = [option.value_s for option in advice.front]
    assert times == list(accumulate(times, min))


def test_types_without_a_price_in_a_region_are_left_out_and_said(predictor: Predictor) -> None:
    bound = Bound(percentile=90, seconds=1.0)
    advice = advise(predictor, GP3, bound, region="us-east-2", types=["gp3", "io2", "gp2", "st1"])
    assert advice.best is not None
    assert advice.unpriced == ("io2", "st1")
    assert {option.spec.type for option in advice.options} == {"gp2", "gp3"}
    warnings = build_advice(recorded(), advice, predictor, region="us-east-2").warnings
    assert warnings[0].startswith("Settings of io2, st1 were left out")
    assert warnings[1] == (
        "Prices in us-east-2 that were not verified against AWS's price list: storage, throughput, IOPS."
    )
    with pytest.raises(PlanError, match=r"price of gp2 gb in mars: not known"):
        advise(predictor, GP3, bound, region="mars")


def test_what_must_be_known_of_a_recording_is_said_with_its_advice(predictor: Predictor) -> None:
    """One that was broken off, or of a log some of which is missing, gave advice as any other."""
    advice = advise(predictor, GP3, Bound(percentile=90, seconds=1.0), region="us-east-1", types=["gp3"])
    made = replace(recorded(), state=State.CANCELLED, reason="by the user", warnings=("--log: cut",))
    warnings = build_advice(made, advice, predictor, region="us-east-1").warnings
    assert warnings[0].startswith("Session 0123 is cancelled (by the user): predicted are")
    assert warnings[1] == "--log: cut"
    warnings = build_advice(recorded(), advice, predictor, region="us-east-1").warnings
    assert not [one for one in warnings if "0123" in one]
    assert [one for one in warnings if "those of io1, io2, st1 and sc1 are assumed from what AWS says" in one]


@pytest.mark.parametrize(
    ("instance", "said"), [("m5.large", "3,600 IOPS and 77 MiB/s"), ("m5.8xlarge", ""), (None, "")]
)
def test_what_an_instance_lets_through_for_good_is_said(
    predictor: Predictor, instance: str | None, said: str
) -> None:
    """Volumes are predicted without their burst, the instance with it; nobody said so."""
    today, bound = replace(GP3, instance=instance), Bound(percentile=90, seconds=1.0)
    advice = advise(predictor, today, bound, region="us-east-1", types=["gp3"])
    warnings = build_advice(recorded(), advice, predictor, region="us-east-1").warnings
    lines = [one for one in warnings if "Under a load that lasts it lets" in one]
    assert [said in one for one in lines] == ([True] if said else [])


def test_a_limit_of_the_instance_is_none_of_the_volume(predictor: Predictor) -> None:
    """It was "held back by the volume's instance-iops", which no volume has more of."""
    advice = advise(predictor, GP3, Bound(percentile=90, seconds=1.0), region="us-east-1", types=["gp3"])
    limited = replace(advice.today.prediction, waits={"iops": 0.1, "instance-iops": 0.5})
    advice = replace(advice, today=replace(advice.today, prediction=limited))
    report = build_advice(recorded(), advice, predictor, region="us-east-1")
    assert report.details[0].endswith("a month, held back by instance IOPS.")


def test_what_ios_wait_for_each_limit_is_shown_of_each_setting(predictor: Predictor) -> None:
    """Of a setting the limit that binds was named, not how much, nor what others add."""
    advice = advise(predictor, GP3, Bound(percentile=90, seconds=1.0), region="us-east-1", types=["gp3"])
    assert advice.best is not None
    waits = {"iops": 0.25, "throughput": 0.0}
    today = replace(advice.today.prediction, waits=waits | {"instance-iops": 0.5})
    best = replace(advice.best, prediction=replace(advice.best.prediction, waits=waits))
    advice = replace(
        advice, today=replace(advice.today, prediction=today, price=price_of(9.0)), options=(best,)
    )
    report = build_advice(recorded(), replace(advice, best=best), predictor, region="us-east-1")
    (limits,) = (table for table in report.tables if table.key == "limits")
    assert [column.title for column in limits.columns] == ["iops", "throughput", "instance-iops"]
    texts = [[cell.text for cell in row.cells] for row in limits.rows]
    assert texts == [["25%", "0%", "-"], ["25%", "0%", "50%"]]


def test_requests_that_failed_are_said_with_the_advice(predictor: Predictor) -> None:
    """The report of the same session said so; the advice was of those that were left, without a word."""
    advice = advise(predictor, GP3, Bound(percentile=90, seconds=1.0), region="us-east-1", types=["gp3"])
    rows = [{**one, "success": number > 2} for number, one in enumerate(recorded().samples.to_pylist())]
    bulk = row(task="index", round=0, success=False)
    made = replace(recorded(), samples=table(*rows, row(arm="b", success=False), bulk))
    warnings = build_advice(made, advice, predictor, region="us-east-1").warnings
    assert warnings[0] == "3 of 48 requests failed while recorded: those are left out."


def test_what_is_paid_by_use_today_is_part_of_todays_price(predictor: Predictor) -> None:
    """An EFS whose reads cost more than its storage was said to cost its storage, unlike in the report."""
    efs = VolumeSpec(name="a", type="efs", mode="elastic")
    bound, where = Bound(percentile=90, seconds=1.0), {"region": "us-east-1", "types": ["gp3"]}
    today = advise(predictor, efs, bound, **where, used=Usage(read_bytes=5000 * GIB)).today
    without = advise(predictor, efs, bound, **where).today
    assert today.usd > without.usd + 100


def test_each_task_has_the_percentile_that_is_bounded(predictor: Predictor) -> None:
    """Of --keep p90 the table of tasks had p50 and p99."""
    advice = advise(predictor, GP3, Bound(percentile=90, seconds=1.0), region="us-east-1", types=["gp3"])
    report = build_advice(recorded(), advice, predictor, region="us-east-1")
    (tasks,) = (table for table in report.tables if table.key == "tasks")
    titles = [column.title for column in tasks.columns]
    assert titles == [f"{when} p{percentile}" for when in ("today", "then") for percentile in (50, 90, 99)]
    p90_s = predictor.check.tasks["t1"][1]
    assert tasks.rows[1].cells[1].text == f"{p90_s * 1e3:.1f} ms"


def test_no_setting_keeps_what_computing_alone_takes(predictor: Predictor) -> None:
    advice = advise(predictor, GP3, Bound(percentile=50, seconds=0.001), region="us-east-1", types=["gp3"])
    assert (advice.best, advice.doubtful) == (None, None)


def test_a_gp3_of_which_nothing_was_bought_is_the_setting_that_it_is(predictor: Predictor) -> None:
    """Its plan says neither IOPS nor throughput: it was raced against what comes with it."""
    plain = replace(GP3, iops=None, throughput_bytes_per_s=None)
    bound = Bound(percentile=90, seconds=1.0)
    advice = advise(predictor, plain, bound, region="us-east-1", types=["gp3"])
    assert advice.best is not None
    assert len(raced_settings(advice)) == 1
    assert advice.today.interval_s == advice.best.interval_s


def test_what_is_bought_today_is_looked_at_too() -> None:
    """The cheapest that keeps a bound may be today's: only round figures were looked at."""
    looked_at = {(one.iops, one.throughput_bytes_per_s) for one in settings(replace(GP3, iops=3500), ["gp3"])}
    assert {(3500, 125 * MIB), (3500, 750 * MIB), (4000, 1000 * MIB), (3000, 125 * MIB)} <= looked_at
    assert 7000 in [one.iops for one in settings(replace(GP3, type="io2", iops=7000), ["io2"])]


def test_settings_are_as_large_as_their_iops_need() -> None:
    """Of 5 GiB no gp3 of 4,000 IOPS was looked at, which costs 5.64 USD with 8 GiB, but an io2 of 260 USD."""
    small = replace(GP3, size_bytes=5 * GIB)
    gib = {one.iops: one.size_bytes // GIB for one in settings(small, ["gp3"])}
    assert (gib[3000], gib[4000], gib[16_000], gib[80_000]) == (5, 8, 32, 160)
    assert {one.size_bytes // GIB for one in settings(replace(GP3, size_bytes=GIB), ["io2"])} >= {4, 5, 80}
    priced, _ = priced_settings(small, ["gp3", "io2"], "us-east-1", price_list())
    cheapest = min((price.usd, one.type) for one, price in priced if (one.iops or 0) >= 4000)
    assert cheapest == (pytest.approx(5.64), "gp3")


def test_the_least_iops_that_are_sold_are_looked_at(predictor: Predictor) -> None:
    """Requests of 30 reads, each on full buckets, wait for no limit of 100 IOPS: 500 were advised."""
    advice = advise(predictor, GP3, Bound(percentile=90, seconds=1.0), region="us-east-1", types=["io2"])
    assert advice.best is not None
    assert (advice.best.spec.iops, advice.best.usd) == (100, pytest.approx(19.0))
    assert advice.best.prediction.binds == "latency"


def test_the_most_that_is_sold_is_looked_at() -> None:
    """No io2 of more than 80,000 IOPS was, and no st1 of more throughput than that of 5,334 GiB."""
    sold = [one for one in settings(GP3, ["gp3", "io2", "gp2", "st1"]) if known_model(one)]
    most = {
        type_: max(limit.rate for one in sold if one.type == type_ for limit in model_for(one).limits[:1])
        for type_ in ("gp3", "io2", "gp2")
    }
    assert most == {"gp3": 80_000, "io2": 256_000, "gp2": 16_000}
    rates = [model_for(one).limits[1].rate for one in sold if one.type == "st1"]
    assert max(rates) == 500 * MIB


def cheapest_usd(
    type_: str, fine: dict[str, range], bound: Bound, predict: Callable[[VolumeSpec], Prediction]
) -> float:
    """Of all these settings that keep the bound; infinite where none does."""
    usd = math.inf
    bare = replace(GP3, type=type_, credits=0.0, iops=None, throughput_bytes_per_s=None)
    for point in product(*fine.values()):
        spec = large_enough(replace(bare, **dict(zip(fine, point, strict=True))))
        price = monthly(spec, "us-east-1").usd
        if price < usd and known_model(spec):
            high_s = predict(spec).percentile(bound.percentile).high
            assert high_s is not None
            usd = price if high_s <= bound.seconds else usd
    return usd


@pytest.mark.parametrize("latency_s", [0.018, 0.0195, 0.022, 0.024, 0.033, 0.05])
@pytest.mark.parametrize(
    ("type_", "fine"),
    [
        (
            "gp3",
            {"iops": range(3000, 32_000, 250), "throughput_bytes_per_s": range(125 * MIB, GIB, 25 * MIB)},
        ),
        ("io2", {"iops": range(100, 32_000, 50)}),
        ("gp2", {"size_bytes": range(100 * GIB, 5400 * GIB, 10 * GIB)}),
        ("st1", {"size_bytes": range(125 * GIB, 5400 * GIB, 10 * GIB)}),
    ],
)
def test_settings_between_round_figures_are_hardly_cheaper_than_what_is_advised(
    predictor: Predictor,
    type_: str,
    fine: dict[str, range],
    latency_s: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Round figures are far apart. Latencies are made up: IOPS and throughput both count."""
    usual = predictor.check
    bound = Bound(percentile=90, seconds=latency_s)

    def predict(spec: VolumeSpec) -> Prediction:
        rates = {limit.counts: limit.rate for limit in model_for(spec).limits}
        took_s = 0.015 + 20 / rates.get("operations", math.inf) + 0.6 * MIB / rates["bytes"]
        return replace(usual, spec=spec, whole=(Estimate(took_s, took_s / 1.02, took_s * 1.02),) * 3)

    monkeypatch.setattr(Predictor, "predict", lambda _, spec: predict(spec))
    best = advise(predictor, GP3, bound, region="us-east-1", types=[type_]).best
    assert (best.usd if best else math.inf) <= 1.02 * cheapest_usd(type_, fine, bound, predict)


def test_under_a_load_the_iops_that_it_takes_are_advised_rather_than_the_next_round_figure() -> None:
    """Of 110 requests a second with 30 reads each, which 3,000 IOPS do not serve."""
    of = recording(recorded())
    predictor = Predictor(of, thread_of(of)).under(Load(110.0, 8))
    bound = Bound(percentile=90, seconds=0.03)
    today = replace(GP3, type="io2", iops=3000, throughput_bytes_per_s=None)
    advice = advise(predictor, today, bound, region="us-east-1", types=["io2"])
    usd = cheapest_usd("io2", {"iops": range(2000, 6000, 50)}, bound, predictor.predict)
    assert advice.best is not None
    assert advice.best.usd <= 1.02 * usd
    assert advice.best in advice.options


def price_of(usd: float) -> Price:
    """One of a single part."""
    rate = Rate(usd=usd, dated="2026-01-01", source="made up", verified=True)
    return Price(region="us-east-1", parts=(CostPart(what="storage", amount=1.0, rate=rate),))


def test_todays_volume_is_not_raced_against_itself(predictor: Predictor) -> None:
    today = predictor.check.percentile(90)
    assert today.high is not None
    bound = Bound(percentile=90, seconds=(today.value + today.high) / 2)
    advice = advise(predictor, GP3, bound, region="us-east-1", types=["gp3"])
    advice = replace(advice, doubtful=advice.options[0], best=None)
    report = build_advice(recorded(), advice, predictor, region="us-east-1")
    assert "race" not in f"{report.verdict} {report.next_step}"
    assert "more rounds" in report.next_step


def test_todays_setting_and_a_size_of_memory_stand_in_a_table_once(predictor: Predictor) -> None:
    """Today's was there as a setting, too; of little that is read all parts are a mebibyte."""
    bound = Bound(percentile=90, seconds=1.0)
    advice = advise(predictor, GP3, bound, region="us-east-1", types=["gp3"])
    report = build_advice(recorded(), advice, predictor, region="us-east-1")
    tables = {table.key: [row.item for row in table.rows] for table in report.tables}
    assert tables["front"] == ["gp3 100 GiB, 3,000 IOPS, 125 MiB/s (today)"]
    assert tables["memory"] == ["1.0 MiB"]


def test_so_few_requests_bound_no_p99_and_their_advice_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A race of as many was slower than the upper end of one in seven; settings were recommended by it."""
    latency_s = np.exp(np.random.default_rng(3).normal(-3, 0.3, 100))
    of = of_computing(latency_s)
    assert Predictor(of, thread_of(of)).check.percentile(99).high is not None
    of = of_computing(latency_s[:99])
    made = Predictor(of, thread_of(of))
    assert [one.high is None for one in made.check.whole] == [False, False, True]
    advice = advise(made, GP3, Bound(percentile=99, seconds=10.0), region="us-east-1")
    assert (advice.best, advice.doubtful) == (None, advice.options[0])
    report = build_advice(recorded(), advice, made, region="us-east-1")
    assert "may keep p99 of 10000 ms; more is not known, as 99 requests bound no p99" in report.verdict
    assert report.next_step.startswith("record 100 requests or more")
    assert not [name for name, render in RENDERERS.items() if "inf ms" in render(report)]
    assert '"high_s"' not in RENDERERS["json"](report)
    folder = folder_of(tmp_path, recorded())
    assert main(["advise", str(folder.path), "--keep", "p99=10s"]) == 5
    assert "ms or more for" in capsys.readouterr().out


def test_the_p99_of_few_requests_may_be_as_long_as_the_slowest() -> None:
    """How parts of it vary says too little; of more requests than that, the slowest is far beyond."""
    latency_s = np.exp(np.random.default_rng(3).normal(-3, 0.3, 299))
    for count, reaches in ((298, True), (299, False)):
        of = of_computing(np.append(latency_s[: count - 1], 10.0))
        high_s = Predictor(of, thread_of(of)).check.percentile(99).high
        assert high_s is not None
        assert (high_s >= 9.9) is reaches


def test_memory_is_as_doubtful_as_a_setting(predictor: Predictor) -> None:
    cached = predictor.predict(predictor.check.spec, cache_bytes=MIB).percentile(90)
    assert cached.high is not None
    bound = Bound(percentile=90, seconds=(cached.value + cached.high) / 2)
    advice = advise(predictor, GP3, bound, region="us-east-1", types=["gp3"])
    report = build_advice(recorded(), advice, predictor, region="us-east-1")
    (memory,) = (table for table in report.tables if table.key == "memory")
    assert memory.rows[0].cells[-1].text == "perhaps"


def test_every_format_says_that_it_is_of_models_and_the_plan_is_one(predictor: Predictor) -> None:
    bound = Bound(percentile=90, seconds=predictor.check.percentile(90).value * 0.8)
    made = recorded()
    advice = advise(predictor, GP3, bound, region="us-east-1")
    report = build_advice(made, advice, predictor, region="us-east-1")
    assert all("statement of volume models" in render(report) for render in RENDERERS.values())
    assert "What requests wait for is inferred" in RENDERERS["text"](report)
    logged = build_advice(replace(made, kind="trace"), advice, predictor, region="us-east-1")
    assert "workload import" in logged.next_step  # 'advise --race' refuses it
    plan = parse_plan(plan_text(advice, made), "prove")
    assert plan.arm[0].type == "gp3"
    assert len(plan.arm) > 1


def test_the_plan_races_the_same_nodes_and_indices(predictor: Predictor) -> None:
    """A residency that was allowed was dropped, so the race was refused where its recording was not."""
    made = recorded()
    keys: dict[str, object] = {"dataset.data": "/data", "dataset.indices": "i,j", "cache.max_resident": 0.2}
    keys |= {"node.car": ["4gheap"], "node.params.x": 'a"b'}
    made = replace(made, plan=parse_plan(plan_text(advised := advise_first(predictor), made), "p", keys))
    plan = parse_plan(plan_text(advised, made), "prove")
    assert (plan.node, plan.dataset) == (made.plan.node, made.plan.dataset)
    assert plan.cache == made.plan.cache


def test_the_recorded_volume_is_raced_also_where_it_has_no_price(predictor: Predictor) -> None:
    """Of `--arm b` the session's first arm was raced as today's volume, and what it takes was not said."""
    io2 = replace(GP3, name="b", type="io2", iops=8000, throughput_bytes_per_s=None)
    bound = Bound(percentile=90, seconds=1.0)
    advice = advise(predictor, io2, bound, region="us-east-2", types=["gp3"])
    assert advice.unpriced == ("io2",)  # that it is missing was not said
    report = build_advice(recorded(), advice, predictor, region="us-east-2")
    assert re.match(r"Today: p90 .* ms at a price that is not known, held back by", report.details[0])
    (front,) = (table for table in report.tables if table.key == "front")
    assert [row.cells[0].text for row in front.rows if "(today)" in row.item] == ["-"]
    assert "today p90" in [column.title for table in report.tables for column in table.columns]
    arms = parse_plan(plan_text(advice, recorded()), "prove").arm
    assert [(arm.name, arm.type) for arm in arms] == [("today", "io2"), ("advised-1", "gp3")]


def test_the_plan_races_volumes_as_they_are_today(predictor: Predictor) -> None:
    """Of four striped volumes of another year one of today was raced."""
    spec = replace(GP3, stripes=4, chunk_bytes=64 * KIB, date="2021", encrypted=False)
    bound = Bound(percentile=90, seconds=predictor.check.percentile(90).value * 0.8)
    advice = advise(predictor, spec, bound, region="us-east-1", types=["gp3"])
    arms = parse_plan(plan_text(advice, recorded()), "prove").arm
    assert [replace(arm, name="a", iops=3000, throughput_bytes_per_s=125 * MIB) for arm in arms[:1]] == [spec]
    assert {(arm.stripes, arm.chunk_bytes, arm.date, arm.encrypted) for arm in arms} == {
        (4, 64 * KIB, "2021", False)
    }
    assert setting_text(spec) == "4 x gp3 100 GiB, 3,000 IOPS, 125 MiB/s"


def advise_first(predictor: Predictor) -> Advice:
    """Advice of a bound that today's volume does not keep."""
    bound = Bound(percentile=90, seconds=predictor.check.percentile(90).value * 0.8)
    return advise(predictor, GP3, bound, region="us-east-1", types=["gp3"])


def test_a_race_of_the_advice_stands_beside_what_was_predicted(predictor: Predictor) -> None:
    """Raced on a machine on which everything takes twice as long: the change is right, the times are not."""
    bound = Bound(percentile=90, seconds=predictor.check.percentile(90).value * 0.9)
    made = recorded()
    advice = advise(predictor, GP3, bound, region="us-east-1")
    rows = []
    raced = raced_settings(advice)
    for spec in raced:
        made_on = predictor.predict(spec, beside=[one for one in raced if one is not spec])
        times_s = np.interp(
            np.linspace(0, 1, 201),
            [0, 0.5, 0.9, 0.99, 1],
            [0, *[2 * e.value for e in made_on.whole], 9],
        )
        rows += [row(arm=spec.name, service_time_s=float(seconds)) for seconds in times_s]
    report = build_advice(
        made, advice, predictor, region="us-east-1", proof=replace(made, samples=table(*rows))
    )
    assert report.next_step.endswith(f"that race: 'esrally-ebs report {made.id}'")
    assert report.verdict == f"In the race no setting kept {bound}."
    assert report.details[0].startswith("Predicted: ")
    today = report.tables[0].rows[0]
    assert today.item == "today: gp3 100 GiB, 3,000 IOPS, 125 MiB/s"
    for one in report.tables[0].rows:
        texts = [cell.text for cell in one.cells]
        assert texts[3] == "-50.0%"
        assert float(texts[4].rstrip("%")) == 0.0
        assert texts[-1] == ("no" if texts[0] == "p90" else "-")


@pytest.mark.parametrize(
    ("times_s", "code", "verdict"),
    [
        ({"today": 9.0, "advised-1": 0.1}, 0, "125 GiB kept p90 of 10000 ms: p90 was 100.0 ms."),
        ({"today": 0.1, "advised-1": 11.0}, 0, "In the race gp3 100 GiB, 3,000 IOPS, 125 MiB/s kept"),
        ({"today": 11.0, "advised-1": 11.0}, 1, "In the race no setting kept p90 of 10000 ms."),
    ],
)
def test_what_a_race_measured_is_the_answer(
    times_s: dict[str, float],
    code: int,
    verdict: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer was the prediction's, also where the race had it wrong: "is the cheapest that keeps".

    And bulks counted as requests where the challenge indexes first.
    """
    folder, made = folder_of(tmp_path, recorded()), recorded()
    rows = [row(arm=arm, service_time_s=seconds) for arm, seconds in times_s.items()]
    rows += [row(arm=arm, service_time_s=99.0, round=0, task="index") for arm in times_s]
    monkeypatch.setattr("esrally_ebs.cli.advice._race", lambda *_: (replace(made, samples=table(*rows)), 0))
    assert main(["advise", str(folder.path), "--keep", "p90=10s", "--race"]) == code
    assert verdict in capsys.readouterr().out


def test_of_settings_that_kept_the_bound_in_the_race_the_cheapest_is_the_answer(predictor: Predictor) -> None:
    """Today's volume was in doubt, and raced beside a dearer one: that was named, also where both kept it."""
    advice = advise(predictor, GP3, Bound(percentile=90, seconds=1.0), region="us-east-1", types=["gp3"])
    advice = replace(advice, doubtful=advice.options[0], best=advice.options[-1])
    rows = [row(arm=arm, service_time_s=0.5) for arm in ("today", "advised-1")]
    kept = kept_in_race(advice, replace(recorded(), samples=table(*rows)))
    assert kept is not None
    assert setting_text(kept) == setting_text(GP3)


def test_a_race_without_requests_of_an_arm_is_no_proof(predictor: Predictor) -> None:
    made = recorded()
    advice = advise(predictor, GP3, Bound(percentile=90, seconds=1.0), region="us-east-1")
    with pytest.raises(MeasurementError, match="race again"):
        build_advice(made, advice, predictor, region="us-east-1", proof=made)


def test_a_trace_of_another_volume_gives_no_advice() -> None:
    made = recorded()
    other = replace(recording(made), spec=replace(GP3, type="io2", iops=8000, throughput_bytes_per_s=None))
    with pytest.raises(MeasurementError, match="self-check"):
        Predictor(other, thread_of(other)).require_right()


@pytest.mark.parametrize(
    ("type_", "asked"),
    [
        ("gp2", r"client, and had it 100% of its burst credits at first \(of a 'trace' --credits says it\)"),
        ("gp3", "client"),
    ],
)
def test_burst_credits_that_were_used_up_are_named_as_a_cause(type_: str, asked: str) -> None:
    """Nobody can say those of a volume of one's own: one that was throttled is replayed from full."""
    of = recording(recorded())
    throttled = replace(of, latency_s=1.5 * of.latency_s)
    if type_ == "gp2":
        throttled = replace(throttled, spec=replace(GP3, type="gp2", iops=None, throughput_bytes_per_s=None))
    with pytest.raises(MeasurementError, match=rf"and of one {asked}\? Record again"):
        Predictor(throttled, thread_of(of)).require_right()


def three_tasks(changed: dict[str, float], requests: int = 16) -> Predictor:
    """Of which the slowest has the p99; measured as so many times as long as they are predicted."""
    task = np.tile(["quick", "slow", "slowest"], requests)
    of = of_computing(np.tile([0.02, 0.05, 0.2], requests) * 1.01 ** (np.arange(3 * requests) % 4))
    of = replace(of, task=task)
    times = np.array([changed.get(one, 1.0) for one in task])
    return Predictor(replace(of, latency_s=of.latency_s * times), thread_of(of))


def test_a_task_that_is_far_off_gives_no_advice_though_another_makes_up_for_it() -> None:
    three_tasks({}).require_right()
    made = three_tasks({"quick": 1 / 1.4, "slow": 1.4})
    assert abs(made.errors[50]) < 0.01
    with pytest.raises(MeasurementError, match=r"requests of quick are predicted \+40\.0% off .* luck"):
        made.require_right()
    bound = Bound(percentile=90, seconds=1.0)
    advice = advise(three_tasks({}), GP3, bound, region="us-east-1", types=["gp3"])
    report = build_advice(recorded(), advice, made, region="us-east-1")
    (check,) = (table for table in report.tables if table.key == "self-check")
    off = [(row.item, row.cells[0].text) for row in check.rows[3:5]]
    assert off == [("middle of quick", "+40.0%"), ("middle of slow", "-28.6%")]


def test_a_task_that_is_off_by_the_luck_of_its_ios_gives_advice() -> None:
    """Requests of one read each, six of a task, recorded on the very model: none of 320 tasks is refused."""
    of = one_read_each(48)
    thread, errors = thread_of(of), []
    for seed in range(100, 140):
        latency_s = replay(thread, model_for(GP3), seed=seed).latency_s
        errors += Predictor(replace(of, latency_s=latency_s), thread).errors_by_task.values()
    assert max(abs(error) for error, _ in errors) > MAX_TASK_ERROR
    assert max(abs(error) - of_luck for error, of_luck in errors) < MAX_TASK_ERROR


def test_a_percentile_that_is_not_predicted_is_refused(predictor: Predictor) -> None:
    with pytest.raises(PlanError, match=r"^--keep p95: p50, p90 and p99 are predicted"):
        advise(predictor, GP3, Bound(percentile=95, seconds=1.0), region="us-east-1")


def test_settings_hold_the_data_of_today_and_have_no_credits() -> None:
    made = list(settings(GP3, ["gp2", "gp3", "io2", "st1", "sc1", "io1"]))
    assert min(spec.size_bytes for spec in made) >= GP3.size_bytes
    assert {spec.credits for spec in made} == {0.0}
    with pytest.raises(PlanError, match="efs"):
        list(settings(GP3, ["efs"]))


def test_of_settings_as_dear_and_as_fast_the_newer_type_and_the_wider_limits_come_first() -> None:
    """Where computing is all that counts, and prices are those of 500 GiB: gp2 and gp3 cost the same."""
    computing = of_computing(np.full(64, 0.01))
    today = replace(GP3, size_bytes=500 * GIB)
    bound = Bound(percentile=90, seconds=1.0)
    advice = advise(
        Predictor(computing, thread_of(computing)), today, bound, region="us-east-1", types=["gp2", "gp3"]
    )
    same = [one.spec for one in advice.options if one.usd == pytest.approx(50.0)]
    assert [(one.type, one.iops) for one in same] == [("gp3", 5000), ("gp3", 4000), ("gp2", None)]


def test_prices_are_those_of_the_plan_unless_another_region_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in the report of the same session; and the plan of the race has them, too."""
    listed = tmp_path / "prices.json"
    rates = {what: [[1.0, "2026-11-21", "a contract"]] for what in ("gb", "iops", "mib_per_s")}
    listed.write_text(json.dumps({"regions": {"mars-north-1": {"gp3": rates}}}))
    cost = {"region": "us-east-2", "prices": str(listed), "read": 7}
    made = replace(recorded(), plan=small_plan(race={}, cost=cost))
    folder, plan = folder_of(tmp_path, made), tmp_path / "prove.toml"
    advise_ = ["advise", str(folder.path), "--keep", "p90=10s", "--plan", str(plan), "--types", "gp3"]
    assert main(advise_) == 0
    assert "prices of us-east-2" in capsys.readouterr().out
    assert load_plan(plan).cost == made.plan.cost
    assert main([*advise_, "--region", "mars-north-1"]) == 0
    assert "100.00 USD a month" in capsys.readouterr().out


def test_the_command_reads_a_session_folder_and_its_exit_code_says_how_it_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(tmp_path, recorded())
    plan = tmp_path / "prove.toml"
    advise_ = ["advise", str(folder.path), "--plan", str(plan)]
    assert main([*advise_, "--keep", "p90=10s"]) == 0
    assert "is the cheapest that keeps" in capsys.readouterr().out
    assert main([*advise_, "--keep", "p90=1ms"]) == 1
    assert load_plan(plan).arm[0].name == "today"
    assert main([*advise_, "--keep", "p90=1ms", "--race"]) == 1
    assert "no race" in capsys.readouterr().err
    refused: list[str] = []
    monkeypatch.setattr(
        "esrally_ebs.cli.advice.run_sessions", lambda *a, **_: refused.append(a[0]) or ([], 4)
    )
    assert main([*advise_, "--keep", "p90=10s", "--race"]) == 4
    assert refused
    assert "is the cheapest" in capsys.readouterr().out
    assert main([*advise_, "--keep", "p90=10s", "--types=gp3, gp3"]) == 0
    assert "160 settings are compared" in capsys.readouterr().out
    assert main([*advise_, "--keep", "p90=10s", "--credits", "0.5"]) == 2
    assert "--credits: what session s1 raced had those of its plan" in capsys.readouterr().err
    assert main([*advise_, "--keep", "p50=1ms", "--keep", "p90=10s"]) == 2  # the first one was dropped
    assert "--keep: p50=1ms and p90=10s are 2 bounds; ask for each by itself" in capsys.readouterr().err
    for option in ("--arm=b", "--types="):
        assert main([*advise_, "--keep", "p90=10s", option]) == 2
        assert option.strip("=b") in capsys.readouterr().err
    (trace,) = (folder.path / "trace").glob("*.parquet")
    trace.unlink()
    assert main([*advise_, "--keep", "p90=1s"]) == 4
    assert "trace = true" in capsys.readouterr().err
    assert main(["usage", str(folder.path), "--size", "1GiB"]) == 2
    assert "s1: a session without a trace; name a log" in capsys.readouterr().err


def test_what_is_in_memory_is_neither_waited_for_nor_charged(predictor: Predictor) -> None:
    slow = replace(ST1, credits=0.0)
    without, with_all = predictor.predict(slow), predictor.predict(slow, cache_bytes=IOS * BLOCK)
    assert without.waits["credits"] > 0.5
    assert with_all.percentile(50).value == pytest.approx((IOS + 1) * COMPUTE_S, rel=0.02)
