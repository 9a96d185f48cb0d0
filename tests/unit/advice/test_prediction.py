"""What recorded requests would take on another volume, and whether their own is predicted."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from recorded_requests import (
    BLOCK,
    COMPUTE_S,
    GP3,
    IOS,
    ST1,
    of_computing,
    recorded,
    recording,
)

from esrally_ebs.advice import prediction
from esrally_ebs.advice.advice import advise
from esrally_ebs.advice.dependencies import thread_of
from esrally_ebs.advice.prediction import MAX_TASK_ERROR, PERCENTILES, Predictor
from esrally_ebs.advice.recording import Recording
from esrally_ebs.advice.tables import build_advice
from esrally_ebs.catalog.limits import Limit, Model
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.errors import MeasurementError
from esrally_ebs.model import Bound
from esrally_ebs.plan import parse_plan
from esrally_ebs.units import KIB, MIB
from esrally_ebs.volumes.virtual.replay import Load, Replayed, Thread, replay


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


@pytest.mark.parametrize(("bytes_", "striped", "parts"), [(MIB, {}, 4), (8 * BLOCK, {"stripes": 8}, 8)])
def test_an_io_that_is_split_takes_as_long_as_the_slowest_of_its_parts(
    bytes_: int, striped: dict[str, int], parts: int
) -> None:
    """All parts had one luck, so none was slower than the others: 8 of them took 63 % of their time."""
    model = replace(model_for(replace(GP3, **striped, chunk_bytes=BLOCK)), limits=())
    thread = thread_of(recording(recorded()))
    thread = thread._replace(size=np.where(thread.size, bytes_, 0))
    drawn = np.random.default_rng(1).normal(0, model.read.sigma, (100_000, parts)).max(axis=1)
    io_s = model.read.median_s(bytes_ // parts) * np.exp(drawn).mean()
    expected_s = (IOS + 1) * COMPUTE_S + IOS * io_s
    assert replay(thread, model).latency_s.mean() == pytest.approx(expected_s, rel=0.01)


def test_parts_of_an_io_wait_for_their_volumes_limits_at_once() -> None:
    model = model_for(replace(GP3, stripes=8, chunk_bytes=BLOCK))
    slow = replace(model, limits=(Limit(name="iops", counts="operations", rate=10, capacity=10),))
    thread = thread_of(recording(recorded()))
    replayed = replay(thread._replace(size=np.where(thread.size, 8 * BLOCK, 0)), slow)
    assert 0.5 < replayed.limit_s["iops"] / replayed.latency_s.sum() < 1


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
    low = replace(GP3, type="gp2", iops=None, throughput_bytes_per_s=None, credits=1e-9)
    alone = predictor.predict(low)
    by_turns = predictor.predict(low, beside=[GP3])
    assert by_turns.waits["credits"] < alone.waits["credits"]
    times_s = [one.percentile(50).value for one in (predictor.predict(GP3, beside=[GP3]), predictor.check)]
    assert times_s[0] == pytest.approx(times_s[1])


def test_a_volume_without_credits_has_none_before_any_cold_request(predictor: Predictor) -> None:
    """So neither the pace nor the other volumes of a race decide what it answers."""
    empty = replace(GP3, type="gp2", iops=None, throughput_bytes_per_s=None, credits=0.0)
    low = predictor.predict(replace(empty, credits=1e-9))
    alone, by_turns = predictor.predict(empty), predictor.predict(empty, beside=[GP3])
    assert alone.waits["credits"] > low.waits["credits"]
    assert by_turns.percentile(50).value == pytest.approx(alone.percentile(50).value)


def test_the_p99_of_few_requests_may_be_as_long_as_the_slowest() -> None:
    """How parts of it vary says too little; of more requests than that, the slowest is far beyond."""
    latency_s = np.exp(np.random.default_rng(3).normal(-3, 0.3, 299))
    for count, reaches in ((298, True), (299, False)):
        of = of_computing(np.append(latency_s[: count - 1], 10.0))
        high_s = Predictor(of, thread_of(of)).check.percentile(99).high
        assert high_s is not None
        assert (high_s >= 9.9) is reaches


def test_an_error_just_beyond_what_is_allowed_reads_as_beyond_it() -> None:
    of = recording(recorded())
    made = Predictor(of, thread_of(of))
    made.errors = {50: -0.0304, 90: 0.0, 99: 0.0}
    with pytest.raises(MeasurementError, match=r"predicted -3\.04% off \(allowed: 3%\)"):
        made.require_right()


def test_a_trace_of_another_volume_gives_no_advice() -> None:
    made = recorded()
    other = replace(recording(made), spec=replace(GP3, type="io2", iops=8000, throughput_bytes_per_s=None))
    with pytest.raises(MeasurementError, match="self-check"):
        Predictor(other, thread_of(other)).require_right()


@pytest.mark.parametrize(
    ("type_", "asked"),
    [
        ("gp2", r"log, and had it 100% of its burst credits at first \(of a 'trace' --credits says it\)"),
        ("gp3", "log"),
    ],
)
def test_burst_credits_that_were_used_up_are_named_as_a_cause(type_: str, asked: str) -> None:
    """Nobody can say those of a volume of one's own: one that was throttled is replayed from full."""
    of = replace(recording(recorded()), logged=True)
    throttled = replace(of, latency_s=1.5 * of.latency_s)
    if type_ == "gp2":
        throttled = replace(throttled, spec=replace(GP3, type="gp2", iops=None, throughput_bytes_per_s=None))
    with pytest.raises(MeasurementError, match=rf"whole, and .* in the {asked}\? Record again"):
        Predictor(throttled, thread_of(of)).require_right()


def test_a_race_whose_ios_were_counted_is_not_asked_whether_its_trace_is_whole() -> None:
    """Nor for its clients: requests that overlap, and traces that lack I/Os, were refused before that."""
    of = recording(recorded())
    throttled = replace(of, latency_s=1.5 * of.latency_s)
    with pytest.raises(MeasurementError, match=r"was the machine busy.* quiet one$") as refused:
        Predictor(throttled, thread_of(of)).require_right()
    assert "client" not in str(refused.value)


def three_tasks(changed: dict[str, float]) -> Predictor:
    """Of which the slowest has the p99; measured as so many times as long as they are predicted."""
    task = np.tile(["quick", "slow", "slowest"], 16)
    of = of_computing(np.tile([0.02, 0.05, 0.2], 16) * 1.01 ** (np.arange(48) % 4))
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
    report = build_advice(recorded(), advice, made)
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


def test_what_is_in_memory_is_neither_waited_for_nor_charged(predictor: Predictor) -> None:
    slow = replace(ST1, credits=0.0)
    without, with_all = predictor.predict(slow), predictor.predict(slow, cache_bytes=IOS * BLOCK)
    assert without.waits["credits"] > 0.5
    assert with_all.percentile(50).value == pytest.approx((IOS + 1) * COMPUTE_S, rel=0.02)
