"""Tables of service times and verdicts, from the statistics of a session."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esrally_ebs.model import Check
from esrally_ebs.report.cells import arm_columns, arm_rows, difference_cell, ratio_cell, time_cell
from esrally_ebs.report.model import NOTHING, Cell, Column, Row, Table, Value
from esrally_ebs.stats import (
    PERCENTILES,
    Blocks,
    Comparison,
    Overall,
    Summary,
    Verdict,
    judge,
    measured_blocks,
)
from esrally_ebs.stats.sequential import AUTO, confidence_of, looks
from esrally_ebs.stats.summary import Scope, failures, summarize_blocks
from esrally_ebs.store.session import Session

TOGETHER = "all tasks together"  # what stands in the place of a task


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What the statistics say of one scope of requests."""

    scope: Scope
    summaries: tuple[Summary, ...]
    comparisons: tuple[Comparison, ...]
    overall: tuple[Overall, ...]
    blocks: Blocks
    margin: float
    confidence: float
    ended: str = ""  # of rounds that end themselves: how many there were, and why no more
    is_refused: bool = False  # what must agree does not: there are times, and nothing is claimed of them

    @property
    def tasks(self) -> list[str]:
        """What is compared, in order."""
        return list(dict.fromkeys(c.task for c in self.comparisons))

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The arms that are compared, in order."""
        return list(dict.fromkeys((c.a, c.b) for c in self.comparisons))

    def word(self, comparison: Comparison) -> str:
        """The verdict as reports say it."""
        return "not comparable" if self.is_refused else comparison.verdict.value

    def without(self, rounds: Mapping[str, set[int]], arms: Sequence[str]) -> "Findings":
        """The same without some rounds of some tasks; verdicts only, and no estimates of further rounds."""
        kept = {
            (task, arm): {r: times for r, times in by_round.items() if r not in rounds.get(task, ())}
            for (task, arm), by_round in self.blocks.items()
        }
        blocks = {key: by_round for key, by_round in kept.items() if by_round}
        judged = judge(blocks, arms, margin=self.margin, confidence=self.confidence, intervals=False)
        return replace(self, blocks=blocks, comparisons=judged.comparisons, overall=judged.overall)


def find(
    session: Session,
    scope: Scope = "all",
    *,
    arms: Sequence[str] | None = None,
    checks: Sequence[Check] = (),
) -> Findings:
    """Summaries and comparisons at the plan's margin and confidence; of all arms, or in the order given.

    With a check that forbids to compare, times are found and no verdict is given.
    """
    design = session.plan.get("design", {})
    margin, confidence = float(design.get("margin", 0.05)), confidence_of(design)
    arms = [arm.spec.name for arm in session.arms] if arms is None else arms
    blocks = measured_blocks(session.samples, scope)
    judged = judge(blocks, arms, margin=margin, confidence=confidence)
    is_refused = any(check.forbids for check in checks)
    if is_refused:
        judged = judged.withheld()
    return Findings(
        scope=scope,
        summaries=summarize_blocks(blocks, failures(session.samples), scope, confidence=confidence),
        comparisons=judged.comparisons,
        overall=judged.overall,
        blocks=blocks,
        margin=margin,
        confidence=confidence,
        ended=_ended(session, design),
        is_refused=is_refused,
    )


def _ended(session: Session, design: Mapping[str, Any]) -> str:
    if design.get("rounds") != AUTO:
        return ""
    seen = [event.fields for event in session.events if event.kind == "look"]
    most = int(design["max_rounds"])
    why = str(seen[-1]["ends"]) if seen else ""
    after = ", ".join(str(fields["rounds"]) for fields in seen) or "no"
    return (
        f"Rounds: at most {most}; looked after {after} rounds{f', and ended as {why}' if why else ''}. "
        f"Each of {len(looks(most))} possible looks claims at {confidence_of(design):.1%}, "
        f"so all together at {float(design.get('confidence', 0.95)):.0%}."
    )


def percentile_tables(findings: Findings, arms: Sequence[str]) -> list[Table]:
    """One table per percentile: a row per compared task, a column per arm, and the difference per pair.

    The last one has all tasks together, where there is a verdict for them.
    """
    tables = [
        _table(findings, arms, position) for position in range(len(PERCENTILES)) if findings.comparisons
    ]
    return [*tables, *([_together(findings)] if findings.overall else [])]


def _together(findings: Findings) -> Table:
    columns, cells = [], []
    for overall in findings.overall:
        subject = f"{overall.b} against {overall.a}"
        columns.append(Column(title=f"{subject} [{findings.confidence:.0%}]", subject=subject))
        columns.append(Column(title=f"{overall.b} is", subject=subject, left=True))
        cells += [ratio_cell(overall.ratio), _judgement(overall.verdict.value, overall)]
    first = findings.scope == "first"
    return Table(
        key=f"{'first_' if first else ''}together_p50",
        title="All tasks together, 50th percentile" + (", first request after each drop" if first else ""),
        item_title="tasks",
        columns=tuple(columns),
        rows=(Row(item=TOGETHER, cells=tuple(cells)),),
        notes=("As if one ratio held for all of them: the geometric mean of the tasks' ratios.",),
    )


def _table(findings: Findings, arms: Sequence[str], position: int) -> Table:
    percentile = PERCENTILES[position]
    columns = [Column(title=arm, subject=arm) for arm in arms]
    for a, b in findings.pairs:
        title = "difference" if len(findings.pairs) == 1 else f"{b} against {a}"
        columns.append(Column(title=f"{title} [{findings.confidence:.0%}]", subject=f"{b} against {a}"))
        if percentile == PERCENTILES[0]:
            columns.append(Column(title=f"{b} is", subject=f"{b} against {a}", left=True))
    first = findings.scope == "first"
    return Table(
        key=f"{'first_' if first else ''}service_time_p{percentile}",
        title=f"Service time, {percentile}th percentile"
        + (", first request after each drop" if first else ""),
        item_title="task",
        columns=tuple(columns),
        rows=tuple(_row(findings, task, arms, position) for task in findings.tasks),
        notes=_notes(findings, percentile),
    )


def _row(findings: Findings, task: str, arms: Sequence[str], position: int) -> Row:
    of_task = {(c.a, c.b): c for c in findings.comparisons if c.task == task}
    of_arm = {s.arm: s for s in findings.summaries if s.task == task}
    best = set() if findings.is_refused else _best(list(of_task.values()), position)
    cells = [time_cell(of_arm.get(arm), PERCENTILES[position], better=arm in best) for arm in arms]
    for pair in findings.pairs:
        comparison = of_task.get(pair)
        cells.append(NOTHING if comparison is None else difference_cell(comparison.percentiles[position]))
        if position == 0:
            cells.append(NOTHING if comparison is None else _judgement(findings.word(comparison), comparison))
    return Row(item=task, cells=tuple(cells))


def _best(comparisons: Sequence[Comparison], position: int) -> set[str]:
    """Arms that beat another beyond doubt and are beaten by none."""
    beats = [winner for c in comparisons if (winner := _winner(c, position)) is not None]
    losers = {loser for _, loser in beats}
    return {winner for winner, _ in beats} - losers


def _winner(comparison: Comparison, position: int) -> tuple[str, str] | None:
    """Winner and loser: by the verdict for the 50th percentile, by the interval for the others."""
    a, b = comparison.a, comparison.b
    if position == 0:
        decided = {Verdict.FASTER: (b, a), Verdict.SLOWER: (a, b)}
        return decided.get(comparison.verdict)
    ratio = comparison.percentiles[position].ratio
    if ratio.high is not None and ratio.high < 1:
        return b, a
    return (a, b) if ratio.low is not None and ratio.low > 1 else None


def _judgement(word: str, comparison: Comparison | Overall) -> Cell:
    facts: dict[str, Value] = {
        "verdict": word,
        "p_different": comparison.p_different,
        "p_equivalent": comparison.p_equivalent,
        "more_rounds_estimate": comparison.more_rounds,
    }
    text = word
    if comparison.more_rounds is not None:
        about = "needs " if comparison.p_different is None else "~"
        text += f" ({about}{comparison.more_rounds} more)"
    return Cell(text=text, facts=facts)


def _notes(findings: Findings, percentile: int) -> tuple[str, ...]:
    if findings.is_refused:
        return ("Times as they were measured: a check failed, so nothing is said of how arms compare.",)
    if percentile != PERCENTILES[0]:
        position = PERCENTILES.index(percentile)
        if all(c.percentiles[position].ratio.low is None for c in findings.comparisons):
            return ("No interval: too few rounds, or too few requests that reach this percentile.",)
        return ("Better is marked where the interval of the task by itself leaves out 0.",)
    notes = [
        f"Verdicts hold for all tasks together at {findings.confidence:.0%} (Holm); equivalent means within "
        f"{findings.margin:.0%}. An interval is for its task alone, so it may exclude 0 without a verdict."
    ]
    if any(c.more_rounds is not None and c.p_different is not None for c in findings.comparisons):
        notes.append(
            "'~N more' rounds is an estimate: if the truth is what is seen here and noise stays as it is."
        )
    return (*notes, findings.ended) if findings.ended else tuple(notes)


_ONCE = "Measured once on each arm, one arm after the other: a difference here has no interval."
_ALONE = "Measured in rounds, but no two arms have a request of it that succeeded."


def single_tables(session: Session, findings: Findings, arms: Sequence[str]) -> Iterator[Table]:
    """Tasks without a verdict, with percentiles and rate: run once per arm (indexing), or on one arm only."""
    compared = set(findings.tasks)
    left = {(s.task, s.arm): s for s in findings.summaries if s.task not in compared}
    repeated = {task for task, arm in left if any(round_ > 0 for round_ in findings.blocks[task, arm])}
    for key, title, note, of in (
        ("once", "Once per arm", _ONCE, {key: s for key, s in left.items() if key[0] not in repeated}),
        ("alone", "On one arm only", _ALONE, {key: s for key, s in left.items() if key[0] in repeated}),
    ):
        if of:
            yield Table(
                key=key,
                title=title,
                item_title="task",
                columns=arm_columns(arms, ("p50", "p99", "operations/s")),
                rows=arm_rows(of, arms, partial(_single_cells, session.samples)),
                notes=(note,),
            )


def _single_cells(samples: pa.Table, summary: Summary | None) -> tuple[Cell, ...]:
    if summary is None:
        return NOTHING, NOTHING, NOTHING
    rate = _rate(samples, summary)
    p50, p99 = (
        Cell(text=f"{value * 1e3:.2f} ms", facts={metric: value})
        for metric, value in (("p50_s", summary.p50_s), ("p99_s", summary.p99_s))
    )
    return p50, p99, NOTHING if rate is None else Cell(text=f"{rate:.0f}", facts={"operations_per_s": rate})


def _rate(samples: pa.Table, summary: Summary) -> float | None:
    mask = pc.and_(
        pc.equal(samples["task"].cast(pa.string()), summary.task),
        pc.equal(samples["arm"].cast(pa.string()), summary.arm),
    )
    own = samples.filter(mask)
    starts, times = own["started_s"].to_numpy(), own["service_time_s"].to_numpy()
    seconds = float(np.max(starts + times) - np.min(starts))
    return float(pc.sum(own["ops"]).as_py()) / seconds if seconds > 0 else None
