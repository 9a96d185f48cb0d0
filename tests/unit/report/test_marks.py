"""Marked rounds stay in: the verdict with and without them side by side, and what hangs on them."""

from dataclasses import replace

import numpy as np

from esrally_ebs.analysis.compare import Verdict, judge
from esrally_ebs.analysis.marks import Block, Cause
from esrally_ebs.analysis.summary import Blocks
from esrally_ebs.report import causes
from esrally_ebs.report.model import Table
from esrally_ebs.report.search import Findings

TASK = "big_range"
ARMS = ("gp2", "gp3")
PAUSE = Cause(kind="gc", what="garbage collection", text="1 pause", share=0.4)


def findings(blocks: Blocks) -> Findings:
    judgement = judge(blocks, ARMS, margin=0.05, confidence=0.95)
    return Findings(
        scope="all",
        arms=ARMS,
        summaries=(),
        comparisons=judgement.comparisons,
        overall=judgement.overall,
        blocks=blocks,
        margin=0.05,
        confidence=0.95,
    )


def paused(slow_rounds: set[int]) -> Findings:
    """Twelve rounds of 20 ms on both arms, to a per mille; in some of them gp3 takes 30 ms."""
    return findings(
        {
            (TASK, arm): {
                r: np.array([0.03 if arm == "gp3" and r in slow_rounds else 0.02] * 5) * (1 + r % 3 * 1e-3)
                for r in range(1, 13)
            }
            for arm in ARMS
        }
    )


def stalled(rounds: range) -> Findings:
    """Two like arms in 17 rounds; gp3 took four times as long in some of them."""
    draw = np.random.default_rng(4)
    return findings(
        {
            (TASK, arm): {
                r: np.exp(draw.normal(0, 0.02, 6)) * (4.0 if arm == "gp3" and r in rounds else 1.0)
                for r in range(1, 18)
            }
            for arm in ARMS
        }
    )


def on_gp3(*rounds: int) -> dict[Block, tuple[Cause, ...]]:
    return {("gp3", TASK, round_): (PAUSE,) for round_ in rounds}


def table(whole: Findings, marked: dict[Block, tuple[Cause, ...]]) -> Table:
    return causes.marks_table(whole, causes.without_marked(whole, marked), marked, ARMS)


def changes(whole: Findings, marked: dict[Block, tuple[Cause, ...]]) -> list[str]:
    return list(causes.changes(whole, causes.without_marked(whole, marked), marked))


def test_rounds_that_a_pause_made_slow_are_left_out_of_the_second_verdict_only() -> None:
    slow = {2, 3, 7, 8, 11}
    made = table(paused(slow), on_gp3(*slow))

    (row,) = made.rows
    assert [cell.text for cell in row.cells] == [
        "-",
        "garbage collection in rounds 2-3, 7-8, 11 (up to 40%)",
        "inconclusive (12 rounds)",
        "equivalent (7 rounds)",
    ]


def test_marks_that_leave_no_round_are_said_to() -> None:
    made = table(paused(set()), on_gp3(*range(1, 13)))

    assert made.rows[0].cells[-1].text == "no round is left"


def test_of_a_task_that_is_not_compared_no_round_is_said_to_be_missing() -> None:
    made = table(paused(set()), {("gp3", "other", 1): (PAUSE,)})

    assert [cell.text for cell in made.rows[0].cells[2:]] == ["-", "-"]


def test_without_marks_there_is_no_table() -> None:
    assert table(paused(set()), {}).rows == ()


def test_arms_that_may_not_be_compared_have_no_verdict_without_marked_rounds_either() -> None:
    refused = replace(paused({2, 3}), is_refused=True)
    made = table(refused, on_gp3(2, 3))

    assert {cell.text for cell in made.rows[0].cells[2:]} == {"not comparable (12 rounds)"}


def test_a_verdict_that_hangs_on_marked_rounds_is_said() -> None:
    whole = stalled(range(1, 8))
    assert whole.comparisons[0].verdict == "slower"
    lines = changes(whole, on_gp3(*range(1, 8)))
    assert lines == [f"{TASK}: without its 7 marked rounds gp3 is equivalent against gp2, not slower"]


def test_verdicts_that_do_not_are_said_to_be_the_same() -> None:
    lines = changes(stalled(range(0)), on_gp3(3))
    assert lines == ["without the marked rounds the verdict of every task is the same"]


def test_a_verdict_on_all_tasks_that_hangs_on_marked_rounds_is_said() -> None:
    of_one = stalled(range(1, 11)).blocks
    whole = findings(of_one | {("other", arm): times for (_, arm), times in of_one.items()})
    assert whole.overall[0].verdict == "slower"
    *_, line = changes(whole, on_gp3(*range(1, 11)))
    assert line == (
        "all tasks together: without the rounds that are marked on any of them gp3 is equivalent against gp2,"
        " not slower"
    )


def test_one_marked_round_is_one_round() -> None:
    whole = stalled(range(1, 8))
    other = replace(whole.comparisons[0], verdict=Verdict.FASTER)
    (line,) = changes(replace(whole, comparisons=(other,)), on_gp3(1))
    assert line.startswith(f"{TASK}: without its 1 marked round gp3 is ")


def test_without_marked_rounds_nothing_is_said() -> None:
    assert changes(stalled(range(0)), {}) == []


def test_a_table_without_verdicts_does_not_speak_of_them() -> None:
    alone = findings({(TASK, "gp3"): {r: np.full(5, 0.02) for r in range(1, 9)}})
    (note,) = causes.marks_table(alone, alone, on_gp3(2), ARMS).notes
    assert note == "They count like all others; each round's events stand in events.jsonl."
