"""The arithmetic of benchmarks/cost_of_answer.py: what a session of another width takes, and what is said."""

import math
from typing import Any

import pytest
from cost_of_answer import claimed, session_seconds, show

SESSION = {"kind": "session", "seconds": 300.0, "rounds_seconds": 240.0, "rounds": 24, "widths": {"t": 0.05}}


def pair(ratio: float, seconds: float = 1000.0) -> dict[str, Any]:
    """Two races of 500 requests whose times are log-normal with a spread of 0.1."""
    p90 = math.exp(0.1 * 1.2815515655446004)
    times = [[0.01 * scale, 0.01 * scale * p90] for scale in (1.0, ratio)]
    return {
        "kind": "pair",
        "seconds": seconds,
        "races_seconds": seconds,
        "iterations": 500,
        "times": {"t": times},
    }


@pytest.mark.parametrize(
    ("share", "seconds"),
    [
        (1.0, 300.0),
        (0.5, 1020.0),  # half as wide: four times 24 rounds of 10 s, and 60 s around them
        (2.0, 120.0),  # six rounds
        (9.0, 120.0),  # no fewer give an interval
    ],
)
def test_a_session_of_another_width_has_other_rounds_and_the_same_around_them(
    share: float, seconds: float
) -> None:
    assert session_seconds([SESSION], share) == pytest.approx(seconds)


def test_iterations_alone_claim_what_the_errors_of_two_medians_do() -> None:
    # 1.2533 x 0.1 / sqrt(500) on each arm, sqrt(2) for both, 1.96 for 95 %
    assert claimed(pair(1.0)["times"]["t"], 500) == pytest.approx(0.015535, rel=1e-3)


def test_pairs_that_differ_cost_what_it_takes_to_see_their_mean(capsys: pytest.CaptureFixture[str]) -> None:
    # logarithms of 0.1 and -0.1 deviate by 0.1414: +- 0.277, 5.54 times as wide as the session
    assert show([SESSION, pair(math.exp(0.1)), SESSION, pair(math.exp(-0.1))])
    output = capsys.readouterr().out
    assert "2 of 2" in output  # both claim a difference of like volumes, +- 1.6 %
    assert "120 s, 0.12 of a pair" in output
    assert "31 pairs, 31000 s" in output  # 5.54 squared


def test_a_session_that_costs_more_than_a_third_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert not show([SESSION, pair(1.001, 300.0), pair(0.999, 300.0)])
    assert "limit 0.33" in capsys.readouterr().out


def test_too_little_tells_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert not show([SESSION, pair(1.0)])
    assert "1 sessions and 1 pairs" in capsys.readouterr().out
