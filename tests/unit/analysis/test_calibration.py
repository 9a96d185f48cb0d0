"""What emulated volumes' reads may be off by all session long is in every interval and verdict."""

import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from session_in_memory import session

from esrally_ebs.analysis.compare import Judgement, Verdict, judge
from esrally_ebs.analysis.findings import Findings, find
from esrally_ebs.analysis.gate import GateLimit, Outcome, decide
from esrally_ebs.analysis.profile import CALIBRATION, calibration_errors
from esrally_ebs.analysis.rounds import ArmTimes, Mean, Pair, less_sure
from esrally_ebs.analysis.summary import Blocks
from esrally_ebs.model import Event

KIB = 1024
TASKS = ("big_range", "small_range")


def blocks(ratio: float, *, count: int = 12, noise: float = 0.002, seed: int = 1) -> Blocks:
    draw = np.random.default_rng(seed)
    return {
        (task, arm): {
            round_: 0.03 * times * np.exp(draw.normal(0, noise, 4)) for round_ in range(1, count + 1)
        }
        for task in TASKS
        for arm, times in (("a", 1.0), ("b", ratio))
    }


def judged(of: Blocks, off: Mapping[str, float] | None = None, starts: tuple[range, ...] = ()) -> Judgement:
    by_task = {(task, arm): share for task in TASKS for arm, share in (off or {}).items()}
    return judge(of, ("a", "b"), margin=0.01, confidence=0.95, starts=starts, off=by_task)


def test_intervals_hold_a_truth_that_all_rounds_miss_by_the_same() -> None:
    draw = np.random.default_rng(2)
    known, unknown = list[bool](), list[bool]()
    for _ in range(400):
        a, b = (np.exp(draw.normal(0, 0.03, (12, 4))) for _ in range(2))
        arms = ArmTimes(list(a)), ArmTimes(list(b * np.exp(draw.normal(0, 0.02))))
        for holds, off in ((known, 0.02), (unknown, 0.0)):
            for estimate, truth in (
                (Pair(*arms, off).ratio(50, 0.95), 1.0),
                (Pair(*arms, off).difference(50, 0.95), 0.0),
            ):
                assert estimate.low is not None
                assert estimate.high is not None
                holds.append(estimate.low <= truth <= estimate.high)
    assert 0.925 < np.mean(known) < 0.98
    assert np.mean(unknown) < 0.6


def test_a_difference_that_reads_may_be_off_by_is_not_claimed_however_sure_rounds_are() -> None:
    of = blocks(1.02)
    assert {one.verdict for one in judged(of).comparisons} == {Verdict.SLOWER}
    doubted = judged(of, {"a": 0.012, "b": 0.016})
    for one in (*doubted.comparisons, *doubted.overall):
        assert one.off == pytest.approx(0.02)
        assert one.verdict is Verdict.INCONCLUSIVE
        assert one.more_rounds is None  # none would help
    for ratio in (*(one.ratio for one in doubted.comparisons), *(one.ratio for one in doubted.overall)):
        assert ratio.low is not None
        assert ratio.low < 1 - 0.02


def test_starts_of_the_node_are_off_alike_too() -> None:
    starts = (range(1, 5), range(5, 9), range(9, 13))
    assert {one.verdict for one in judged(blocks(1.02), starts=starts).overall} == {Verdict.SLOWER}
    doubted = judged(blocks(1.02), {"b": 0.02}, starts)
    assert {one.verdict for one in (*doubted.overall, *doubted.comparisons)} == {Verdict.INCONCLUSIVE}
    assert Mean((0.01, 0.02, 0.03), off=0.3).error == pytest.approx(math.hypot(0.01 / math.sqrt(3), 0.3))


def test_the_gate_is_as_unsure() -> None:
    of = blocks(1.02)
    limit = GateLimit(percentile=50, slowdown=0.01)
    outcomes = [
        decide(judged(of, off).comparisons, of, limits=[limit], confidence=0.95).decisions[0].outcome
        for off in ({}, {"b": 0.02})
    ]
    assert outcomes == [Outcome.FAIL, Outcome.INCONCLUSIVE]


@given(st.floats(-50, 50), st.floats(-2, 2), st.floats(0, 1))
def test_nobody_gets_surer_by_being_off(t: float, distance: float, off: float) -> None:
    assert abs(less_sure(t, distance, off)) <= abs(t) * (1 + 1e-9)
    assert less_sure(math.copysign(math.inf, t), 0.1, 0.05) == pytest.approx(math.copysign(2.0, t))


def io(arm: str, requests: int, seconds: float, reads: int, size: int, read_s: float) -> Event:
    names = ("device.reads", "device.read_bytes", "device.read_s")
    grown = dict(zip(names, (reads, reads * size, read_s), strict=True))
    fields = {"task": "t", "round": 1, "requests": requests, "started_s": 100.0}
    begin = dict.fromkeys(names, 7.0)
    fields |= {"begin": begin, "end": {name: begin[name] + grown[name] for name in names}}
    return Event(at_s=100.0 + seconds, kind="io", arm=arm, fields=fields)


def calibration(arm: str, **changes: object) -> Event:
    fields = {"error_s": {"262144": 4e-6, "16384": 1e-6}, **changes}
    return Event(at_s=1.0, kind=CALIBRATION, arm=arm, fields=fields)


def test_a_request_is_off_by_its_reads_and_by_no_larger_share_than_a_read() -> None:
    events = [
        calibration("one after the other"),
        io("one after the other", 2, 0.08, 80, 16 * KIB, 0.04),
        calibration("at once"),
        io("at once", 1, 0.01, 100, 136 * KIB, 0.1),
        calibration("of memory"),
        io("of memory", 1, 0.01, 0, 0, 0.0),
        io("not calibrated", 1, 0.01, 10, 16 * KIB, 0.01),
        calibration("broken", error_s={"16384": None}),
        io("broken", 1, 0.01, 10, 16 * KIB, 0.01),
    ]
    assert calibration_errors(events) == {
        ("t", "one after the other"): pytest.approx(80 * 1e-6 / 0.08),
        ("t", "at once"): pytest.approx(2.5e-6 / 1e-3),
    }


def test_a_session_with_calibrated_volumes_says_less_and_one_without_what_it_said() -> None:
    events = tuple(event for arm in "ab" for event in (calibration(arm), io(arm, 1, 0.1, 90, 16 * KIB, 0.09)))
    plain, off = (find(session(1.001, events=those)) for those in ((), events))
    assert plain.comparisons[0].off == 0
    assert off.comparisons[0].off == pytest.approx(math.hypot(9e-4, 9e-4))
    assert width(off) > 2 * 9e-4 * math.sqrt(2) > width(plain)
    assert off.without({"t": {1}}).comparisons[0].off == off.comparisons[0].off


def width(findings: Findings) -> float:
    ratio = findings.comparisons[0].ratio
    assert ratio.low is not None
    assert ratio.high is not None
    return math.log(ratio.high / ratio.low)


def test_nothing_is_off_by_more_than_it_took_whatever_was_recorded() -> None:
    of_arms = [
        (calibration(arm, error_s={"16384": 1e300}), io(arm, 1, 0.1, 90, 16 * KIB, 0.09)) for arm in "ab"
    ]
    findings = find(session(1.001, events=tuple(event for pair in of_arms for event in pair)))
    assert findings.off == {("t", "a"): 1.0, ("t", "b"): 1.0}
    assert {one.verdict for one in findings.comparisons} == {Verdict.INCONCLUSIVE}
