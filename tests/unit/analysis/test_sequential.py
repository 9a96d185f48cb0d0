"""Looks of a session that stops itself: when, how sure, and what they find."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esrally_ebs.analysis.compare import Verdict, judge
from esrally_ebs.analysis.sequential import confidence_of, confidence_of_a_look, look, looks
from esrally_ebs.analysis.summary import MIN_ROUNDS
from esrally_ebs.plan import DesignPlan

ARMS = ("a", "b")
Times = dict[tuple[str, str], dict[int, np.ndarray]]


def session(draw: np.random.Generator, rounds: int, ratio: float = 1.0, noise: float = 0.1) -> Times:
    """Two tasks on two arms, four requests a round."""
    return {
        (task, arm): {
            r: scale * 0.03 * np.exp(draw.normal(0, noise, 4)) * np.exp(draw.normal(0, noise / 3))
            for r in range(1, rounds + 1)
        }
        for task in ("t", "u")
        for arm, scale in zip(ARMS, (1.0, ratio), strict=True)
    }


def test_looks_lie_further_and_further_apart() -> None:
    # 6, 6 x 1.5, x 1.5 ... rounded up, and the last round
    assert looks(48) == (6, 9, 14, 21, 31, 48)
    assert looks(6) == (6,)


@given(st.integers(MIN_ROUNDS, 1000))
def test_the_last_look_is_after_the_last_round_and_none_comes_twice(most: int) -> None:
    numbers = looks(most)
    assert numbers[-1] == most
    assert list(numbers) == sorted(set(numbers))


def test_looks_share_what_may_go_wrong() -> None:
    # 5 % over six looks
    assert confidence_of_a_look(0.95, 48) == pytest.approx(1 - 0.05 / 6)


def test_only_a_session_with_looks_claims_at_that_of_a_look() -> None:
    assert confidence_of(DesignPlan(rounds=12, max_rounds=48, confidence=0.9)) == 0.9
    assert confidence_of(DesignPlan(rounds="auto", max_rounds=48, confidence=0.9)) == pytest.approx(
        1 - 0.1 / 6
    )


def test_a_clear_difference_is_decided_and_noise_is_not() -> None:
    draw = np.random.default_rng(1)
    clear, noisy = session(draw, 9, ratio=1.5), session(draw, 9, ratio=1.03, noise=0.3)
    decided, undecided = (
        look([blocks], ARMS, margin=0.05, confidence=0.95, most=48) for blocks in (clear, noisy)
    )
    assert decided.decides
    assert (decided.rounds, decided.tasks) == (9, 2)
    assert not undecided.decides
    assert undecided.undecided == ("t", "u")


def test_nothing_measured_decides_nothing() -> None:
    assert not look([{}], ARMS, margin=0.05, confidence=0.95, most=48).decides


def test_looking_often_does_not_claim_often() -> None:
    """60 sessions of two equal arms, looked at up to five times each: at 95 % three may be wrong."""
    draw = np.random.default_rng(5)
    wrong = 0
    for _ in range(60):
        blocks = session(draw, 21)
        for rounds in looks(21):
            so_far = {key: {r: t for r, t in by.items() if r <= rounds} for key, by in blocks.items()}
            confidence = confidence_of_a_look(0.95, 21)
            comparisons = judge(so_far, ARMS, margin=0.05, confidence=confidence, intervals=False).comparisons
            if any(c.verdict in (Verdict.FASTER, Verdict.SLOWER) for c in comparisons):
                wrong += 1
                break
    assert wrong <= 3
