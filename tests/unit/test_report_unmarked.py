"""Marked rounds stay in; the report says which verdicts hang on them."""

import numpy as np

from esrally_ebs.report.search import Findings
from esrally_ebs.report.unmarked import changes
from esrally_ebs.stats import judge

ARMS = ("a", "b")


def findings(stalled: range) -> Findings:
    """Two like arms in 14 rounds; b took four times as long in the rounds ``stalled``."""
    draw = np.random.default_rng(4)
    blocks = {
        ("t", arm): {
            r: np.exp(draw.normal(0, 0.02, 6)) * (4.0 if arm == "b" and r in stalled else 1.0)
            for r in range(1, 15)
        }
        for arm in ARMS
    }
    found = judge(blocks, ARMS, margin=0.05, confidence=0.95)
    return Findings(
        scope="all",
        summaries=(),
        comparisons=found.comparisons,
        overall=found.overall,
        blocks=blocks,
        margin=0.05,
        confidence=0.95,
    )


def test_a_verdict_that_hangs_on_marked_rounds_is_said() -> None:
    found = findings(range(1, 8))
    assert found.comparisons[0].verdict == "slower"
    said = list(changes(found, [("b", "t", r) for r in range(1, 8)], ARMS))
    assert said == ["t: without its 7 marked rounds b is equivalent against a, not slower"]


def test_verdicts_that_do_not_are_said_to_be_the_same() -> None:
    said = list(changes(findings(range(0)), [("b", "t", 3)], ARMS))
    assert said == ["without the marked rounds every verdict is the same"]


def test_without_marked_rounds_nothing_is_said() -> None:
    assert list(changes(findings(range(0)), [], ARMS)) == []
