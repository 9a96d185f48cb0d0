"""The verdict with and without marked rounds, side by side."""

import numpy as np

from esrally_ebs.causes import Cause
from esrally_ebs.report.marks import marks_table
from esrally_ebs.report.search import Findings
from esrally_ebs.stats import compare

TASK = "big_range"
ARMS = ("gp2", "gp3")
PAUSE = Cause(kind="gc", what="garbage collection", text="1 pause", share=0.4)


def findings(slow_rounds: set[int]) -> Findings:
    """Twelve rounds of 20 ms on both arms, to a per mille; in some of them gp3 takes 30 ms."""
    blocks = {
        (TASK, arm): {
            r: np.array([0.03 if arm == "gp3" and r in slow_rounds else 0.02] * 5) * (1 + r % 3 * 1e-3)
            for r in range(1, 13)
        }
        for arm in ARMS
    }
    found = compare(blocks, ARMS, margin=0.05, confidence=0.95)
    return Findings(
        scope="all", summaries=(), comparisons=found, overall=(), blocks=blocks, margin=0.05, confidence=0.95
    )


def test_rounds_that_a_pause_made_slow_are_left_out_of_the_second_verdict_only() -> None:
    slow = {2, 3, 7, 8, 11}
    table = marks_table(findings(slow), {("gp3", TASK, r): (PAUSE,) for r in slow}, ARMS)

    assert table is not None
    (row,) = table.rows
    assert [cell.text for cell in row.cells] == [
        "-",
        "garbage collection in rounds 2-3, 7-8, 11 (up to 40%)",
        "inconclusive (12 rounds)",
        "equivalent (7 rounds)",
    ]


def test_marks_that_leave_no_round_are_said_to() -> None:
    everywhere = {("gp3", TASK, r): (PAUSE,) for r in range(1, 13)}
    table = marks_table(findings(set()), everywhere, ARMS)

    assert table is not None
    assert table.rows[0].cells[-1].text == "no round is left"


def test_without_marks_there_is_no_table() -> None:
    assert marks_table(findings(set()), {}, ARMS) is None
