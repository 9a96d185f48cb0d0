"""The gate: a decision from intervals, its exit code, and its one-line reason."""

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_rows import row, table
from session_in_memory import session
from small_plan import small_plan

from esrally_ebs.analysis.compare import judge
from esrally_ebs.analysis.gate import Gate, GateLimit, Outcome, TaskDecision, decide, parse_limit
from esrally_ebs.analysis.rounds import Estimate
from esrally_ebs.analysis.summary import Blocks
from esrally_ebs.errors import MeasurementError, PlanError
from esrally_ebs.model import Check, Event, Phase, State
from esrally_ebs.report import gate as gates
from esrally_ebs.store.encoding import SAMPLES

P50 = GateLimit(percentile=50, slowdown=0.05)


def blocks(ratios: dict[str, float], *, noise: float = 0.01, rounds: int = 6, requests: int = 40) -> Blocks:
    """Tasks on arms a and b whose true ratio is given; rounds differ by ``noise`` on each arm."""
    source = np.random.default_rng(7)
    made: dict[tuple[str, str], dict[int, np.ndarray]] = {}
    for task, ratio in ratios.items():
        for arm, scale in (("a", 1.0), ("b", ratio)):
            made[task, arm] = {
                number: 0.1 * scale * math.exp(source.normal(0, noise)) * (1 + 0.001 * np.arange(requests))
                for number in range(1, rounds + 1)
            }
    return made


def gate(ratios: dict[str, float], *limits: GateLimit, **shape: float) -> Gate:
    return gate_of(blocks(ratios, **shape), *(limits or (P50,)))  # type: ignore[arg-type]


def gate_of(made: Blocks, *limits: GateLimit) -> Gate:
    comparisons = judge(made, ["a", "b"], margin=0.05, confidence=0.95).comparisons
    return decide(comparisons, made, limits=limits, confidence=0.95)


@pytest.mark.parametrize(
    ("ratio", "outcome"),
    [(1.0, Outcome.PASS), (0.5, Outcome.PASS), (1.2, Outcome.FAIL), (1.05, Outcome.INCONCLUSIVE)],
)
def test_an_interval_below_the_limit_passes_above_it_fails_and_across_it_decides_nothing(
    ratio: float, outcome: Outcome
) -> None:
    assert gate({"t": ratio}).outcome is outcome


def test_one_broken_limit_fails_all_and_one_undecided_keeps_from_passing() -> None:
    assert gate({"t": 1.0, "u": 1.2, "v": 1.05}).outcome is Outcome.FAIL
    assert gate({"t": 1.0, "v": 1.05}).outcome is Outcome.INCONCLUSIVE


def test_many_tasks_make_the_same_evidence_count_for_less() -> None:
    # Noise of 2 % per arm and round: about 1.2 % on the ratio of six rounds, so 5 % away decides one task
    # (t = 4.2 with 5 degrees of freedom, p = 0.01) but not fifty (0.01 x 50 is more than 5 %).
    alone, among = gate({"t": 1.0}, noise=0.02), gate({f"t{n}": 1.0 for n in range(50)}, noise=0.02)
    assert alone.outcome is Outcome.PASS
    undecided = [d for d in among.decisions if d.outcome is Outcome.INCONCLUSIVE]
    assert "decided for this task alone, but not for all tasks together" in {d.why for d in undecided}


def test_without_an_interval_nothing_is_decided_and_the_reason_is_said() -> None:
    few_rounds = gate({"t": 3.0}, rounds=3)
    assert few_rounds.outcome is Outcome.INCONCLUSIVE
    assert few_rounds.decisions[0].why == "3 rounds: at least 6 are needed for an interval and a verdict"
    few_requests = gate({"t": 3.0}, GateLimit(percentile=99, slowdown=0.1), requests=5)
    assert few_requests.decisions[0].why == "p90 and p99: no interval, 30 requests per arm: too few for it"


def test_the_reason_is_that_of_the_percentile_which_is_limited() -> None:
    # all that lies beyond p90 lies in one round; beyond p99 lie 3 of 300 requests
    times = {r: np.linspace(1.0, 1.1, 50) * (10.0 if r == 6 else 1.0) for r in range(1, 7)}
    limits = [GateLimit(percentile=percentile, slowdown=0.1) for percentile in (90, 99)]
    judged = gate_of({("t", arm): times for arm in "ab"}, *limits)
    assert [decision.why for decision in judged.decisions] == [
        "p90: no interval, too few rounds hold the requests that decide it",
        "p99: no interval, 300 requests per arm: too few for it",
    ]


def test_a_limit_on_very_many_tasks_needs_more_rounds_than_a_few() -> None:
    # zero noise on 24 tasks: of six rounds 24 x 2 / 924 is more than 5 %, of seven 24 x 2 / 3432 is not
    tasks = {f"t{n}": 1.2 for n in range(24)}
    assert gate(tasks, noise=0.0).outcome is Outcome.INCONCLUSIVE
    assert gate(tasks, noise=0.0, rounds=7).outcome is Outcome.FAIL


def noisy(draw: np.random.Generator, rounds: int, ratio: float) -> Blocks:
    """Rounds that depart by 5 % on each arm, of 12 requests that vary by a tenth."""
    return {
        ("t", arm): {
            number: times * scale * math.exp(draw.normal(0, 0.05))
            for number, times in enumerate(np.exp(draw.normal(0, 0.1, (rounds, 12))), 1)
        }
        for arm, scale in (("a", 1.0), ("b", ratio))
    }


def test_the_rounds_that_a_gate_asks_for_decide_about_four_times_of_five() -> None:
    decided = []
    for seed in range(40):
        draw = np.random.default_rng(seed)
        (first,) = gate_of(noisy(draw, 12, 1.0), P50).decisions
        if first.more_rounds and math.isfinite(first.more_rounds):
            (again,) = gate_of(noisy(draw, 12 + int(first.more_rounds), first.ratio.value), P50).decisions
            decided.append(again.outcome is not Outcome.INCONCLUSIVE)
    assert len(decided) >= 20
    assert 0.6 <= np.mean(decided) <= 0.95


def test_an_undecided_gate_says_about_how_many_rounds_may_decide_all_its_limits() -> None:
    judged = gate({"t": 1.03, "u": 1.05}, noise=0.02)
    needed = [d.more_rounds for d in judged.decisions if d.outcome is Outcome.INCONCLUSIVE]
    assert len(needed) == 2
    said = f"more rounds may decide (about {max(count or 0 for count in needed):g})"
    assert gates.reason(session(1.0), judged).endswith(f"; {said}")


def test_a_limit_that_is_what_was_measured_is_decided_by_no_number_of_rounds() -> None:
    judged = gate({"t": 1.05}, noise=0.02)
    limit = GateLimit(percentile=50, slowdown=judged.decisions[0].ratio.value - 1)
    at_limit = gate({"t": 1.05}, limit, noise=0.02)
    assert at_limit.decisions[0].more_rounds == math.inf
    reason = gates.reason(session(1.0), at_limit)
    assert reason.endswith("; more rounds would hardly decide, as a limit is too near to what was measured")


def test_every_limit_is_held_against_every_task() -> None:
    decided = gate({"t": 1.0, "u": 1.0}, P50, GateLimit(percentile=90, slowdown=0.1)).decisions
    assert [(d.limit.percentile, d.task) for d in decided] == [(50, "t"), (50, "u"), (90, "t"), (90, "u")]


@given(st.floats(0.5, 2.0), st.floats(0.0, 0.5))
@settings(max_examples=20, deadline=None)
def test_a_looser_limit_never_turns_a_pass_into_anything_else(ratio: float, slowdown: float) -> None:
    order = [Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.PASS]
    strict, loose = (
        gate({"t": ratio}, GateLimit(percentile=50, slowdown=s)).outcome for s in (slowdown, slowdown + 0.1)
    )
    assert order.index(loose) >= order.index(strict)


def test_a_limit_is_read_as_it_is_written() -> None:
    assert parse_limit("p50=5%") == P50
    assert parse_limit("p99 = 2.5 %") == GateLimit(percentile=99, slowdown=0.025)


@pytest.mark.parametrize(
    "text", ["", "p50", "p50=5", "p75=5%", "50=5%", "p50=-5%", "p50=5%%", f"p50={'9' * 400}%"]
)
def test_any_other_limit_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(PlanError, match="such as p50=5%"):
        parse_limit(text)


@pytest.mark.parametrize(("ratio", "code", "word"), [(1.0, 0, "passed"), (1.2, 1, "failed")])
def test_the_reason_is_one_line_that_names_arms_and_says_emulated(ratio: float, code: int, word: str) -> None:
    recorded = session(ratio)
    judged = gates.judge_session(recorded, [P50])
    assert gates.EXIT_CODES[judged.outcome] == code
    first, *tasks = gates.render_gate(recorded, judged).splitlines()
    assert first.startswith(f"gate {word}: b (emulated) against a (emulated): ")
    assert len(tasks) == 1
    assert "limit +5 %" in tasks[0]


def test_a_broken_limit_is_quoted_with_its_interval() -> None:
    recorded = session(1.2)
    assert gates.reason(recorded, gates.judge_session(recorded, [P50])).endswith(
        "the one limit is broken: p50 of t +20.0 % [+20.0, +20.0], limit +5 %"
    )


def test_an_end_just_beyond_the_limit_has_the_digits_that_tell() -> None:
    ratio = Estimate(value=1.06, low=1.0504, high=1.07)
    decision = TaskDecision(task="t", limit=P50, ratio=ratio, outcome=Outcome.FAIL, why="")
    assert gates.result_text(decision) == "p50 of t +6.00 % [+5.04, +7.00], limit +5 %"


def test_reasons_of_several_kinds_are_told_apart() -> None:
    among = gate({f"t{n}": 1.0 for n in range(50)} | {"v": 1.05}, noise=0.02)
    assert "not for all tasks together; the limit lies within" in gates.reason(session(1.0), among)


def test_limits_hold_for_the_latency_of_requests_that_were_due() -> None:
    """b serves as fast as a, but has let them wait for half of that time."""
    rows = [
        {**row, "latency_s": row["service_time_s"] * (1.5 if row["arm"] == "b" else 1.01)}
        for row in session().samples.to_pylist()
    ]
    recorded = session(
        plan=small_plan(race={}, cache={"mode": "warm"}), samples=pa.Table.from_pylist(rows, schema=SAMPLES)
    )
    judged = gates.judge_session(recorded, [P50])
    assert {decision.task: decision.outcome for decision in judged.decisions} == {
        "t": Outcome.PASS,
        "latency of t": Outcome.FAIL,
    }
    assert "p50 of latency of t +48.5 %" in gates.reason(recorded, judged)


def test_the_arms_can_be_swapped() -> None:
    judged = gates.judge_session(session(1.2), [P50], base="b", other="a")
    assert (judged.a, judged.b, judged.outcome) == ("b", "a", Outcome.PASS)


def test_naming_one_arm_is_enough_when_there_are_two() -> None:
    assert gates.judge_session(session(), [P50], other="a").a == "b"
    assert gates.judge_session(session(), [P50], base="b").b == "a"


def test_misses_that_did_not_become_steady_are_said_below_the_limits() -> None:
    text = "t: misses were not steady after 800 requests"
    recorded = session(events=(Event(at_s=0.0, kind="not-steady", arm="b", fields={"text": text}),))
    *_, last = gates.render_gate(recorded, gates.judge_session(recorded, [P50])).splitlines()
    assert last == f"warning: not-steady on b: {text}"


def test_unequal_writes_beside_searches_are_said_below_the_limits() -> None:
    bulks = [
        row(
            arm=arm, task="append", phase=Phase.BESIDE.value, round=round_, started_s=float(round_),
            service_time_s=1.0, ops=ops + round_,
        )
        for round_ in range(1, 9)
        for arm, ops in (("a", 1000.0), ("b", 2000.0))
    ]  # fmt: skip
    of = session(1.2)
    of = replace(of, samples=pa.concat_tables([of.samples, table(*bulks)]))
    said = gates.render_gate(of, gates.judge_session(of, [P50]))
    assert "\nwarning: append: more documents were added on b, which slows the searches beside them\n" in said
    equal = replace(of, samples=of.samples.filter(pc.equal(of.samples["phase"], Phase.MEASURE.value)))
    assert "warning" not in gates.render_gate(equal, gates.judge_session(equal, [P50]))


def test_a_gate_is_against_the_reference_of_the_plan() -> None:
    arms = [{"name": name, "type": "gp3"} for name in "ab"]
    plan = small_plan(race={}, arm=arms, design={"reference": "b"})
    judged = gates.judge_session(session(1.2, plan=plan), [P50])
    assert (judged.a, judged.b, judged.outcome) == ("b", "a", Outcome.PASS)


@pytest.mark.parametrize(
    ("arms", "limits", "of", "text"),
    [
        ("ab", [P50], {"base": "x"}, "not an arm"),
        ("ab", [P50], {"base": "a", "other": "a"}, "two different"),
        ("ab", [P50], {"other": "x"}, "not an arm"),
        ("abc", [P50], {}, "has arms a, b, c; name one with --other"),
        ("a", [P50], {}, "a gate compares two arms, and it has 1"),
        ("ab", [], {}, "--max-slowdown p50=5%"),
    ],
)
def test_arms_that_cannot_be_gated_are_refused(
    arms: str, limits: list[GateLimit], of: dict[str, str], text: str
) -> None:
    with pytest.raises(PlanError, match=text):
        gates.judge_session(session(arms=tuple(arms)), limits, **of)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"checks": (Check(name="cold", ok=False, value="", text="9 % resident"),)}, "not comparable: 9 %"),
        ({"state": State.FAILED, "reason": "node died"}, r"failed \(node died\)"),
        ({"warnings": ("samples/part-9.parquet: not readable as Parquet; its rows are left out",)}, "part-9"),
        ({"state": State.RUNNING}, "running"),
        ({"state": State.CANCELLED, "arms": ()}, "cancelled"),
        ({"samples": SAMPLES.empty_table()}, "no search was compared"),
    ],
)
def test_what_is_not_valid_is_refused_with_exit_code_4(changes: dict[str, object], text: str) -> None:
    with pytest.raises(MeasurementError, match=text) as refused:
        gates.judge_session(session(**changes), [P50])  # type: ignore[arg-type]
    assert refused.value.exit_code == 4


def test_a_decision_does_not_depend_on_the_order_of_tasks() -> None:
    made = blocks({"t": 1.0, "u": 1.2, "v": 1.05})
    judged = judge(made, ["a", "b"], margin=0.05, confidence=0.95).comparisons
    forth, back = (
        decide(some, made, limits=[P50], confidence=0.95).decisions for some in (judged, judged[::-1])
    )
    assert {(d.task, d.outcome) for d in forth} == {(d.task, d.outcome) for d in back}


def test_a_point_without_spread_at_the_limit_is_not_decided() -> None:
    at_limit = gate({"t": 1.0}, GateLimit(percentile=50, slowdown=0.0), noise=0.0)
    assert at_limit.outcome is Outcome.INCONCLUSIVE


def two_levels(draw: np.random.Generator, ratio: float) -> Blocks:
    """45 in 100 requests find the cache warm: the 50th percentile lies at the foot of the cold ones."""
    made: dict[tuple[str, str], dict[int, np.ndarray]] = {}
    for arm, scale in (("a", 1.0), ("b", ratio)):
        rounds = (0.02 * scale * np.exp(0.4 * draw.normal(size=4)) for _ in range(24))
        made["t", arm] = {
            number: np.where(draw.random(4) < 0.45, 0.004, 1.0) * times
            for number, times in enumerate(rounds, 1)
        }
    return made


def test_a_limit_that_is_the_truth_is_seldom_decided_where_intervals_are_lopsided() -> None:
    # Judged by half the width of their interval, 21 of these were decided, 14 of them against it.
    draw = np.random.default_rng(3)
    judged = [gate_of(two_levels(draw, 1.05), P50) for _ in range(200)]
    decisions = [decided for one in judged for decided in one.decisions]
    wrong = [d for d in decisions if d.outcome is not Outcome.INCONCLUSIVE]
    assert len(wrong) <= 16  # 5 % are 10, uncertain by 6
    assert not [d for d in wrong if (d.ratio.low or 0) <= 1.05 <= (d.ratio.high or math.inf)]


def test_a_gate_over_starts_of_the_nodes_asks_for_more_of_them() -> None:
    recorded = session(1.05, plan=small_plan(race={}, design={"rounds": 6, "starts": 3}))
    reason = gates.reason(recorded, gates.judge_session(recorded, [P50]))
    assert reason.endswith("more starts of the nodes, or more rounds of each, may decide")


def test_tasks_that_a_gate_leaves_out_as_no_arm_answers_them_are_said() -> None:
    failed = [
        row(arm=arm, task="u", round=round_, service_time_s=0.1, success=False, hits=None)
        for arm in ("a", "b")
        for round_ in range(1, 7)
    ]
    of = session()
    of = replace(of, samples=pa.concat_tables([of.samples, table(*failed)]))
    judged = gates.judge_session(of, [GateLimit(percentile=50, slowdown=0.5)])
    assert judged.outcome is Outcome.PASS
    said = "warning: 12 of 72 measured requests failed (u), as many on each arm: they are left out"
    assert gates.render_gate(of, judged).endswith(f"\n{said}\n")
