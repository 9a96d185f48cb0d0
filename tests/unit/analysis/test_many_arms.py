"""Several arms against one reference: which are compared, behind which gate, at what error and rounds."""

import numpy as np
import pytest
import session_in_memory
from hypothesis import given
from hypothesis import strategies as st
from small_plan import small_plan

from esrally_ebs.analysis.compare import Verdict, judge
from esrally_ebs.analysis.findings import find
from esrally_ebs.analysis.multiplicity import PValues, adjusted, hochberg, holm, needed_rounds
from esrally_ebs.analysis.rounds import rarest
from esrally_ebs.analysis.summary import MIN_ROUNDS, Blocks
from esrally_ebs.errors import PlanError
from esrally_ebs.plan import parse_plan

p_values = st.lists(st.floats(0, 1), min_size=1, max_size=12)
TASKS = 8


def session(seed: int, ratios: dict[str, list[float]], rounds: int = 6, noise: float = 0.03) -> Blocks:
    """Four requests of each task and arm a round; a round moves all arms of a task alike."""
    draw = np.random.default_rng(seed)
    moved = np.exp(draw.normal(0, 0.05, (TASKS, rounds)))
    return {
        (f"t{task}", arm): {
            r + 1: 0.03 * ratio[task] * moved[task, r] * np.exp(draw.normal(0, noise, 4))
            for r in range(rounds)
        }
        for task in range(TASKS)
        for arm, ratio in ratios.items()
    }


def judged(seed: int, ratios: dict[str, list[float]], **shape: float) -> dict[tuple[str, str], Verdict]:
    """Verdicts by arm and task ("all" = all together)."""
    judgement = judge(session(seed, ratios, **shape), list(ratios), margin=0.05, confidence=0.95)  # type: ignore[arg-type]
    tasks = {(c.b, c.task): c.verdict for c in judgement.comparisons}
    return tasks | {(o.b, "all"): o.verdict for o in judgement.overall}


LIKE = [1.0] * TASKS


def test_five_arms_of_six_rounds_decide_what_is_far_from_the_reference() -> None:
    ratios = {"gp3": LIKE, "fast": LIKE, "io2": [0.75] * TASKS, "gp2": LIKE, "st1": [4.5] * TASKS}
    verdicts = judged(1, ratios)
    assert sum(verdicts["st1", f"t{n}"] is Verdict.SLOWER for n in range(TASKS)) >= 7
    assert sum(verdicts["io2", f"t{n}"] is Verdict.FASTER for n in range(TASKS)) >= 7
    assert (verdicts["st1", "all"], verdicts["io2", "all"]) == (Verdict.SLOWER, Verdict.FASTER)
    assert not {verdicts[arm, task] for arm, task in verdicts if arm in ("fast", "gp2")} & {
        Verdict.FASTER,
        Verdict.SLOWER,
    }


def test_tasks_are_claimed_only_where_all_together_are_decided() -> None:
    up_and_down = [1.5, 1 / 1.5] * (TASKS // 2)
    verdicts = judged(2, {"a": LIKE, "b": up_and_down, "c": LIKE}, noise=0.12)
    assert verdicts["b", "all"] is Verdict.INCONCLUSIVE
    assert {verdicts["b", f"t{n}"] for n in range(TASKS)} == {Verdict.INCONCLUSIVE}
    # two arms have no gate
    assert Verdict.SLOWER in judged(2, {"a": LIKE, "b": up_and_down}, noise=0.12).values()


@pytest.mark.parametrize("ratio", [1.0, 3.0])
def test_like_tasks_of_several_arms_are_called_different_in_five_per_cent_of_sessions(ratio: float) -> None:
    """100 sessions: at 95 % more than ten are wrong once in a hundred times. 3.0 opens every gate."""
    other = [ratio] * (TASKS // 2) + [1.0] * (TASKS // 2)
    wrong = 0
    for seed in range(100):
        verdicts = judged(seed, {"a": LIKE, "b": other, "c": other, "d": other}, noise=0.1)
        like = [v for (_, task), v in verdicts.items() if task != "all" and other[int(task[1:])] == 1]
        like += [v for (_, task), v in verdicts.items() if task == "all" and ratio == 1]
        wrong += bool({Verdict.FASTER, Verdict.SLOWER} & set(like))
    assert wrong <= 10


@given(p_values)
def test_hochberg_claims_at_least_what_holm_does_and_never_below_the_p_value(values: list[float]) -> None:
    for raw, step_up, step_down in zip(values, hochberg(values), holm(values), strict=True):
        assert raw <= step_up <= step_down


def test_hochberg_of_equal_values_is_that_value() -> None:
    assert hochberg([0.04] * 5) == [0.04] * 5
    assert hochberg([0.01, 0.04]) == [0.02, 0.04]


@given(p_values, p_values)
def test_one_other_arm_is_adjusted_by_holm_alone(different: list[float], equivalent: list[float]) -> None:
    (family,) = adjusted([PValues(different, equivalent, has_whole=len(different) > 1)])
    assert (family.different, family.equivalent) == (holm(different), holm(equivalent))


@given(st.lists(st.floats(0, 1), min_size=3, max_size=9), st.integers(2, 6))
def test_no_task_has_a_smaller_p_than_its_gate_and_each_arm_its_share(values: list[float], arms: int) -> None:
    families = adjusted([PValues(values, values, has_whole=True)] * arms)
    for family in families:
        assert min(family.different) >= min(1.0, arms * values[-1]) == family.different[-1]
        assert all(p >= min(1.0, arms * raw) for p, raw in zip(family.different, values, strict=True))


@pytest.mark.parametrize(
    ("arms", "tasks", "confidence", "rounds"),
    [
        (2, 1, 0.95, 6),
        (2, 22, 0.95, 6),  # and all together: 23 questions
        (2, 23, 0.95, 7),
        (2, 8, 0.99, 7),
        (5, 8, 0.95, 6),  # four questions first, tasks only behind them
        (5, 8, 0.999, 8),
    ],
)
def test_the_rounds_that_can_tell_a_difference(arms: int, tasks: int, confidence: float, rounds: int) -> None:
    assert needed_rounds(arms, tasks, confidence) == rounds
    questions = arms - 1 if arms > 2 else tasks + (tasks > 1)
    assert 2 * rarest(rounds) * questions <= 1 - confidence
    assert rounds == MIN_ROUNDS or 2 * rarest(rounds - 1) * questions > 1 - confidence


@pytest.mark.parametrize(
    ("design", "against", "pairs"),
    [
        ({}, None, [("a", "b"), ("a", "c")]),
        ({"reference": "c"}, None, [("c", "a"), ("c", "b")]),
        ({"reference": "c"}, "b", [("b", "c"), ("b", "a")]),
    ],
)
def test_the_reference_is_the_plans_or_the_one_given(
    design: dict[str, str], against: str | None, pairs: list[tuple[str, str]]
) -> None:
    arms = [{"name": name, "type": "gp3"} for name in ("a", "b", "c")]
    recorded = session_in_memory.session(arms=("a", "b", "c"), plan=small_plan(arm=arms, design=design))
    assert find(recorded, against=against).pairs == pairs


def test_an_arm_that_there_is_not_is_no_reference() -> None:
    with pytest.raises(PlanError, match=r"--against x: no arm of session 0123; write one of a, b"):
        find(session_in_memory.session(), against="x")
    with pytest.raises(PlanError, match=r"design.reference: no arm is named 'x'; write one of a"):
        parse_plan('name = "p"\narm = [{name = "a", type = "gp3"}]\ndesign.reference = "x"', "p.toml")
