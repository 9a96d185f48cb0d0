"""Verdicts: right where the answer is known, silent where it is not, and blind to what does not matter."""

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esrally_ebs.model import Kind, Phase, State, Volume, VolumeSpec
from esrally_ebs.stats import (
    MIN_ROUNDS,
    Blocks,
    Comparison,
    Verdict,
    check_comparable,
    compare,
    measured_blocks,
    summarize,
)
from esrally_ebs.stats.resample import holm, interval, spreads
from esrally_ebs.store.encoding import BASELINE, SAMPLES, TELEMETRY
from esrally_ebs.store.session import Session

Times = list[list[float]]  # by round


def blocks(**tasks: tuple[Times, Times]) -> Blocks:
    return {
        (task, arm): {number: np.array(times) for number, times in enumerate(rounds, start=1)}
        for task, both in tasks.items()
        for arm, rounds in zip(("a", "b"), both, strict=True)
    }


def judge(a: Times, b: Times, *, margin: float = 0.05, confidence: float = 0.95) -> Comparison:
    (comparison,) = compare(blocks(task=(a, b)), ("a", "b"), margin=margin, confidence=confidence)
    return comparison


def rounds(
    scale: float = 1.0, *, noise: float = 0.01, count: int = 6, requests: int = 5, seed: int = 1
) -> Times:
    draw = np.random.default_rng(seed)
    return [
        list(0.03 * scale * np.exp(draw.normal(0, noise)) * np.exp(draw.normal(0, noise, requests)))
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("scale", "verdict"),
    [(1.2, Verdict.SLOWER), (1 / 1.2, Verdict.FASTER), (1.0, Verdict.EQUIVALENT)],
)
def test_a_clear_answer_is_given(scale: float, verdict: Verdict) -> None:
    comparison = judge(rounds(seed=1), rounds(scale, seed=2))
    assert comparison.verdict is verdict
    assert comparison.more_rounds is None


def test_noise_gives_inconclusive_and_an_estimate_of_rounds() -> None:
    comparison = judge(rounds(noise=0.15, seed=1), rounds(1.03, noise=0.15, seed=2))
    assert comparison.verdict is Verdict.INCONCLUSIVE
    assert comparison.more_rounds is not None
    assert comparison.more_rounds > 0


def test_a_proven_three_per_cent_is_never_equivalent_at_two() -> None:
    comparison = judge(rounds(noise=0.001, seed=1), rounds(1.03, noise=0.001, seed=2), margin=0.02)
    assert comparison.verdict is Verdict.SLOWER


def test_too_few_rounds_are_said_and_give_no_interval() -> None:
    comparison = judge(rounds(count=MIN_ROUNDS - 1), rounds(2.0, count=MIN_ROUNDS - 1))
    assert comparison.verdict is Verdict.INCONCLUSIVE
    assert comparison.percentiles[0].ratio.low is None
    assert comparison.percentiles[0].ratio.value == pytest.approx(2.0)
    assert comparison.more_rounds == 1
    assert any(f"at least {MIN_ROUNDS}" in warning for warning in comparison.warnings)


def test_a_percentile_that_too_few_requests_reach_has_no_interval() -> None:
    # 6 x 5 = 30 requests: 3 lie beyond p90 and none beyond p99; 6 x 40 = 240: 2.4 lie beyond p99
    few, many = judge(rounds(), rounds(seed=2)), judge(rounds(requests=40), rounds(requests=40, seed=2))
    assert [p.ratio.low is not None for p in few.percentiles] == [True, True, False]
    assert [p.ratio.low is not None for p in many.percentiles] == [True, True, True]


def test_the_round_is_the_unit_so_more_requests_in_it_do_not_make_it_surer() -> None:
    # what differs is the round, not the request: 200 requests say what 5 say
    draw = np.random.default_rng(3)
    level = np.exp(draw.normal(0, 0.05, (2, 6)))
    few, many = (
        judge(*[[list(np.full(requests, 0.03 * one)) for one in arm] for arm in level])
        for requests in (5, 200)
    )
    assert few.percentiles[0].ratio == many.percentiles[0].ratio


def test_a_drift_that_hits_both_arms_of_a_round_is_not_taken_for_a_difference() -> None:
    drift = [1 + 0.2 * number for number in range(8)]
    a = [[0.03 * scale] * 5 for scale in drift]
    b = [[0.03 * scale * 1.1] * 5 for scale in drift]
    ratio = judge(a, b).percentiles[0].ratio
    assert (ratio.low, ratio.high) == (pytest.approx(1.1), pytest.approx(1.1))


def test_many_tasks_make_the_same_evidence_count_for_less() -> None:
    doubtful = (rounds(noise=0.05, seed=5), rounds(1.16, noise=0.05, seed=6))
    alone = compare(blocks(one=doubtful), ("a", "b"), margin=0.05, confidence=0.95)[0]
    noise = {f"t{n}": (rounds(noise=0.2, seed=20 + n), rounds(noise=0.2, seed=40 + n)) for n in range(19)}
    among = compare(blocks(one=doubtful, **noise), ("a", "b"), margin=0.05, confidence=0.95)[0]
    assert alone.p_different is not None
    assert among.p_different == pytest.approx(min(1.0, alone.p_different * 20))


def test_a_round_on_one_arm_only_is_left_out_and_said() -> None:
    comparison = judge(rounds(count=6), rounds(count=5, seed=2))
    assert comparison.rounds == 5
    assert any("round 6 was measured on one arm only" in warning for warning in comparison.warnings)


def test_unequal_numbers_of_requests_are_said() -> None:
    b = rounds(seed=2)
    b[0] = b[0][:3]
    assert any("unequal numbers of requests: a 30, b 28" in w for w in judge(rounds(), b).warnings)


def test_three_arms_are_compared_in_pairs() -> None:
    three = {
        ("task", arm): {n: np.array(times) for n, times in enumerate(rounds(scale, seed=7), start=1)}
        for arm, scale in (("a", 1.0), ("b", 1.5), ("c", 2.0))
    }
    pairs = compare(three, ("a", "b", "c"), margin=0.05, confidence=0.95)
    assert [(c.a, c.b) for c in pairs] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert all(c.verdict is Verdict.SLOWER for c in pairs)


def test_an_interval_of_no_spread_is_a_point() -> None:
    assert interval(1.0, 0.0, 6, 0.95) == interval(1.0, 0.0, 4, 0.99)


def test_holm_multiplies_the_smallest_by_all_and_keeps_the_order() -> None:
    # 0.01 x 3 = 0.03; 0.02 x 2 = 0.04; 0.03 x 1 = 0.03, raised to 0.04
    assert holm([0.03, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([]) == []


def test_a_large_block_says_what_all_its_requests_say() -> None:
    draw = np.random.default_rng(1)
    a, b = ([np.exp(draw.normal(0, 0.3, 5000)) for _ in range(6)] for _ in range(2))
    whole = np.percentile(np.concatenate(a), 50)
    spread = spreads(a, b, (50,))[0]
    assert spread.a == pytest.approx(whole)
    # 30,000 requests: the median's error is 1.2533 x 0.3 / sqrt(30000) = 0.0022, times sqrt(2) for two arms
    assert 0.001 < spread.log_ratio_error < 0.007


times = st.lists(
    st.lists(st.floats(1e-4, 10.0), min_size=5, max_size=5), min_size=MIN_ROUNDS, max_size=MIN_ROUNDS + 1
)


@given(times)
@settings(max_examples=25, deadline=None)
def test_an_arm_against_itself_is_never_faster_or_slower(a: Times) -> None:
    comparison = judge(a, a)
    assert comparison.verdict in (Verdict.EQUIVALENT, Verdict.INCONCLUSIVE)
    assert comparison.percentiles[0].ratio.value == 1


@given(times, st.floats(0.001, 1000.0), st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_neither_the_unit_nor_the_order_of_requests_matters(a: Times, scale: float, order: object) -> None:
    b = rounds(count=len(a), seed=9)
    before = judge(a, b)
    shuffled = [sorted(times, reverse=True) for times in a]
    after = judge([[t * scale for t in r] for r in shuffled], [[t * scale for t in r] for r in b])
    for one, other in zip(before.percentiles, after.percentiles, strict=True):
        assert other.ratio.value == pytest.approx(one.ratio.value)
        assert other.a_s == pytest.approx(one.a_s * scale)


@given(times)
@settings(max_examples=25, deadline=None)
def test_swapping_the_arms_swaps_the_verdict(a: Times) -> None:
    b = rounds(count=len(a), seed=9)
    opposite = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}
    one, other = judge(a, b), judge(b, a)
    assert other.verdict is opposite.get(one.verdict, one.verdict)
    assert math.log(other.percentiles[0].ratio.value) == pytest.approx(
        -math.log(one.percentiles[0].ratio.value)
    )


def test_identical_arms_are_rarely_called_different() -> None:
    """40 sessions of eight tasks without a difference: at 95 % two may be wrong; five are 1 in 20."""
    draw = np.random.default_rng(11)
    wrong = 0
    for _ in range(40):
        level = np.exp(draw.normal(0, 0.03, (8, 2, 6, 1))) * np.exp(draw.normal(0, 0.1, (8, 1, 6, 1)))
        data = 0.03 * level * np.exp(draw.normal(0, 0.2, (8, 2, 6, 5)))
        session = blocks(**{f"t{n}": (list(task[0]), list(task[1])) for n, task in enumerate(data)})
        found = compare(session, ("a", "b"), margin=0.05, confidence=0.95)
        wrong += any(c.verdict in (Verdict.FASTER, Verdict.SLOWER) for c in found)
    assert wrong < 5


def row(**changes: object) -> dict[str, object]:
    plain: dict[str, object] = dict.fromkeys(SAMPLES.names, 0)
    texts = {"session": "s", "arm": "a", "task": "t", "operation": "t", "phase": Phase.MEASURE.value}
    rest = {
        "round": 1,
        "iteration": 1,
        "service_time_s": 0.03,
        "success": True,
        "hits": 5,
        "resident_before": 0.0,
    }
    return {**plain, **texts, **rest, **changes}


def table(*rows: dict[str, object]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SAMPLES)


def test_only_measured_successful_requests_count() -> None:
    samples = table(
        row(service_time_s=0.01),
        row(service_time_s=0.03),
        row(service_time_s=9.0, success=False),
        row(service_time_s=9.0, phase=Phase.WARMUP.value),
    )
    (summary,) = summarize(samples)
    assert (summary.requests, summary.failed, summary.p50_s) == (2, 1, 0.02)
    assert "1 requests failed and are left out" in summary.warnings


def test_the_first_since_a_drop_can_be_taken_apart() -> None:
    samples = table(row(service_time_s=0.05), row(service_time_s=0.01, iteration=2))
    (first,) = summarize(samples, "first")
    assert (first.scope, first.p50_s) == ("first", 0.05)


def test_requests_are_sorted_by_task_arm_and_round() -> None:
    samples = table(
        row(task="u", service_time_s=3.0),
        row(round=2, service_time_s=2.0),
        row(service_time_s=1.0),
        row(arm="b", service_time_s=4.0),
        row(service_time_s=5.0),
    )
    found = {key: {r: list(t) for r, t in by.items()} for key, by in measured_blocks(samples).items()}
    assert found == {("t", "a"): {1: [1.0, 5.0], 2: [2.0]}, ("t", "b"): {1: [4.0]}, ("u", "a"): {1: [3.0]}}


def volume(name: str, kind: Kind = Kind.EMULATED, readahead: int = 131072) -> Volume:
    spec = VolumeSpec(name=name, type="gp3", size_bytes=1)
    return Volume(spec=spec, kind=kind, mount=Path("/mnt"), filesystem="xfs", readahead_bytes=readahead)


def session(samples: pa.Table, *arms: Volume, **changes: object) -> Session:
    plain: dict[str, object] = {
        "id": "s",
        "path": Path(),
        "kind": "race",
        "state": State.COMPLETE,
        "reason": "",
        "started_at": 0.0,
        "ended_at": 1.0,
        "plan": {"cache": {"mode": "cold", "max_resident": 0.01}},
        "arms": arms or (volume("a"), volume("b")),
        "environment": {"nodes": {"a": {"version": "8.8.2"}, "b": {"version": "8.8.2"}}},
        "dataset": {"hash": "abc"},
        "checks": (),
        "warnings": (),
        "samples": samples,
        "baseline": BASELINE.empty_table(),
        "telemetry": TELEMETRY.empty_table(),
        "events": (),
    }
    return Session(**{**plain, **changes})  # type: ignore[arg-type]


def failing(found: Session) -> list[str]:
    return [check.name for check in check_comparable(found) if not check.ok]


def test_equal_arms_are_comparable() -> None:
    found = check_comparable(session(table(row(), row(arm="b"))))
    assert {check.name for check in found} == {
        "hits",
        "segments",
        "versions",
        "settings",
        "requests",
        "errors",
        "cold",
    }
    assert all(check.ok for check in found)


@pytest.mark.parametrize(
    ("other", "name"),
    [
        ([row(arm="b", hits=6)], "hits"),
        ([row(arm="b"), row(arm="b")], "requests"),
        ([], "requests"),
        ([row(arm="b", success=False)], "errors"),
        ([row(arm="b", resident_before=0.02)], "cold"),
        ([row(arm="b", resident_before=None)], "cold"),
    ],
)
def test_samples_that_cannot_be_compared_are_named(other: list[dict[str, object]], name: str) -> None:
    samples = table(row(), row(task="other"), row(task="other", arm="b"), *other)
    assert failing(session(samples)) == [name]


def test_other_versions_and_settings_are_named() -> None:
    samples = table(row(), row(arm="b"))
    nodes = {"nodes": {"a": {"version": "8.8.2"}, "b": {"version": "8.8.1"}}}
    assert failing(session(samples, environment=nodes)) == ["versions"]
    assert failing(session(samples, volume("a"), volume("b", readahead=4096))) == ["settings"]


def test_volumes_of_different_kinds_may_differ_in_settings_but_it_is_said() -> None:
    found = session(table(row(), row(arm="b")), volume("a"), volume("b", Kind.EFS, readahead=4096))
    assert not failing(found)
    assert any("readahead_bytes differs" in check.text for check in check_comparable(found))


def test_a_warm_session_is_not_asked_to_be_cold() -> None:
    samples = table(row(resident_before=None), row(arm="b", resident_before=None))
    assert not failing(session(samples, plan={"cache": {"mode": "warm"}}))


def test_nothing_measured_gives_nothing_rather_than_an_error() -> None:
    empty = session(SAMPLES.empty_table())
    assert summarize(empty.samples) == ()
    assert not failing(empty)
