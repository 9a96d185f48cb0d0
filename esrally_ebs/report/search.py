"""Tables of service times and verdicts, from the statistics of a session."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esrally_ebs.report.cells import difference_cell, time_cell
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


def find(session: Session, scope: Scope = "all", *, arms: Sequence[str] | None = None) -> Findings:
    """Summaries and comparisons at the plan's margin and confidence; of all arms, or in the order given."""
    design = session.plan.get("design", {})
    margin, confidence = float(design.get("margin", 0.05)), confidence_of(design)
    arms = [arm.spec.name for arm in session.arms] if arms is None else arms
    blocks = measured_blocks(session.samples, scope)
    judged = judge(blocks, arms, margin=margin, confidence=confidence)
    return Findings(
        scope=scope,
        summaries=summarize_blocks(blocks, failures(session.samples), scope, confidence=confidence),
        comparisons=judged.comparisons,
        overall=judged.overall,
        blocks=blocks,
        margin=margin,
        confidence=confidence,
        ended=_ended(session, design),
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
    """One table per percentile: a row per compared task, a column per arm, and the difference per pair."""
    return [_table(findings, arms, position) for position in range(len(PERCENTILES)) if findings.comparisons]


def _table(findings: Findings, arms: Sequence[str], position: int) -> Table:
    percentile = PERCENTILES[position]
    pairs = list(dict.fromkeys((c.a, c.b) for c in findings.comparisons))
    columns = [Column(title=arm, subject=arm) for arm in arms]
    for a, b in pairs:
        title = "difference" if len(pairs) == 1 else f"{b} against {a}"
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
        rows=tuple(_row(findings, task, arms, pairs, position) for task in _tasks(findings)),
        notes=_notes(findings, percentile),
    )


def _tasks(findings: Findings) -> list[str]:
    return list(dict.fromkeys(c.task for c in findings.comparisons))


def _row(
    findings: Findings, task: str, arms: Sequence[str], pairs: Sequence[tuple[str, str]], position: int
) -> Row:
    of_task = {(c.a, c.b): c for c in findings.comparisons if c.task == task}
    of_arm = {s.arm: s for s in findings.summaries if s.task == task}
    best = _best(list(of_task.values()), position)
    cells = [time_cell(of_arm.get(arm), PERCENTILES[position], better=arm in best) for arm in arms]
    for pair in pairs:
        comparison = of_task.get(pair)
        cells.append(NOTHING if comparison is None else difference_cell(comparison.percentiles[position]))
        if position == 0:
            cells.append(NOTHING if comparison is None else _judgement(comparison))
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


def _judgement(comparison: Comparison) -> Cell:
    facts: dict[str, Value] = {
        "verdict": comparison.verdict.value,
        "p_different": comparison.p_different,
        "p_equivalent": comparison.p_equivalent,
        "more_rounds_estimate": comparison.more_rounds,
    }
    text = comparison.verdict.value
    if comparison.more_rounds is not None:
        about = "needs " if comparison.p_different is None else "~"
        text += f" ({about}{comparison.more_rounds} more)"
    return Cell(text=text, facts=facts)


def _notes(findings: Findings, percentile: int) -> tuple[str, ...]:
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


def single_table(session: Session, findings: Findings, arms: Sequence[str]) -> Table | None:
    """Tasks that ran once per arm (indexing): percentiles and rate, and no verdict."""
    compared = set(_tasks(findings))
    of = {(s.task, s.arm): s for s in findings.summaries if s.task not in compared}
    if not of:
        return None
    columns = [
        Column(title=f"{arm} {what}", subject=arm) for arm in arms for what in ("p50", "p99", "operations/s")
    ]
    rows = []
    for task in dict.fromkeys(task for task, _ in of):
        cells = [cell for arm in arms for cell in _single_cells(session.samples, of.get((task, arm)))]
        rows.append(Row(item=task, cells=tuple(cells)))
    return Table(
        key="once",
        title="Once per arm",
        item_title="task",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=("Measured once on each arm, one arm after the other: a difference here has no interval.",),
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
