"""Tables of service times, verdicts and cold starts."""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esrally_ebs.analysis.compare import Comparison, Overall, Verdict
from esrally_ebs.analysis.findings import Findings
from esrally_ebs.analysis.summary import PERCENTILES, ColdStartCurve, Summary
from esrally_ebs.report.cells import (
    arm_columns,
    arm_rows,
    difference_cell,
    pair_columns,
    ratio_cell,
    time_cell,
    verdict_facts,
)
from esrally_ebs.report.model import (
    NOTHING,
    Cell,
    Column,
    Curve,
    Plot,
    Row,
    Table,
    milliseconds,
    quantity,
    titled,
)
from esrally_ebs.store.session import Session
from esrally_ebs.units import format_seconds, format_share

TOGETHER = "all tasks together"  # shown instead of a task
_SENT_LATE_S = 0.005  # if a client is free, the load generator sends at most this late


def percentile_table(findings: Findings, arms: Sequence[str]) -> Table:
    """A row per compared task and percentile: a column per arm, difference and verdict per pair.

    Shows service times, or what the findings' scope has instead.

    The last row is all tasks together, if there is a verdict for them. In CSV and JSON each percentile, and
    all tasks together, is a separate table.
    """
    columns = [Column(title="at", subject="", left=True)]
    columns += [*titled(*arms), *pair_columns(findings.pairs, findings.confidence)]
    rows = [
        _row(findings, task, arms, position)
        for task in findings.tasks
        for position in range(len(PERCENTILES))
    ]
    return Table(
        key=_key(findings),
        title=_TITLES[findings.scope],
        item_title="task",
        columns=tuple(columns),
        rows=(*rows, *([_together(findings, arms)] if findings.overall else [])),
        notes=tuple(_notes(findings)),
    )


_TITLES = {
    "all": "Service time",
    "first": "Service time, first request after each drop",
    "latency": "Latency: from when a request was due to its answer",
}


def _key(findings: Findings, of: str = "service_time") -> str:
    """A table's key; each scope has its own."""
    if findings.scope == "latency":
        return "latency" if of == "service_time" else f"latency_{of}"
    return f"first_{of}" if findings.scope == "first" else of


_BLANK = Cell(text="", facts={})


def warnings(findings: Findings, latency: Findings) -> Iterator[str]:
    """Warns if ``latency`` is mostly the wait for a client; ``findings`` has the service times."""
    answered_s = {(s.task, s.arm): s.p50_s for s in findings.summaries}
    waited_s = {
        f"{s.task} on {s.arm}": s.p50_s - own_s
        for s in latency.summaries
        if s.task in latency.tasks  # no latency is shown for others, such as indexing
        and s.p50_s - (own_s := answered_s[s.task, s.arm]) > max(own_s, _SENT_LATE_S)
    }
    if waited_s:
        more = f" and {len(waited_s) - 3} more" if len(waited_s) > 3 else ""
        most = format_seconds(max(waited_s.values()))
        yield (
            f"latency: {', '.join(list(waited_s)[:3])}{more}: mostly the wait for a free client (up to "
            f"{most} in the median), which grows with the number of requests where more come than are "
            "answered; give more clients, or a lower rate"
        )


def _together(findings: Findings, arms: Sequence[str]) -> Row:
    cells = [Cell(text=f"p{PERCENTILES[0]}", facts={}), *[_BLANK] * len(arms)]
    for pair in findings.pairs:
        overall = next((overall for overall in findings.overall if (overall.a, overall.b) == pair), None)
        cells += (
            [NOTHING, NOTHING]
            if overall is None
            else [ratio_cell(overall.ratio), _judgement(overall.verdict.value, overall)]
        )
    return Row(item=TOGETHER, cells=tuple(cells), key=_key(findings, "together") + f"_p{PERCENTILES[0]}")


def _row(findings: Findings, task: str, arms: Sequence[str], position: int) -> Row:
    of_task = {(c.a, c.b): c for c in findings.comparisons if c.task == task}
    of_arm = {s.arm: s for s in findings.summaries if s.task == task}
    best = set() if findings.is_refused else _best(list(of_task.values()), position)
    percentile = PERCENTILES[position]
    cells = [Cell(text=f"p{percentile}", facts={})]
    cells += [time_cell(of_arm.get(arm), percentile, better=arm in best) for arm in arms]
    for pair in findings.pairs:
        comparison = of_task.get(pair)
        cells.append(NOTHING if comparison is None else difference_cell(comparison.percentiles[position]))
        if comparison is not None and position == 0:
            cells.append(_judgement(findings.word(comparison), comparison))
        else:
            cells.append(_BLANK)
    key = f"{_key(findings)}_p{percentile}"
    return Row(item=task, cells=tuple(cells), continues=position > 0, key=key)


def _best(comparisons: Sequence[Comparison], position: int) -> set[str]:
    """Arms that are proven better than another and worse than none."""
    beats = [winner for c in comparisons if (winner := _winner(c, position)) is not None]
    losers = {loser for _, loser in beats}
    return {winner for winner, _ in beats} - losers


def _winner(comparison: Comparison, position: int) -> tuple[str, str] | None:
    """Winner and loser: by the verdict for the 50th percentile, by the interval for others."""
    a, b = comparison.a, comparison.b
    if position == 0:
        decided = {Verdict.FASTER: (b, a), Verdict.SLOWER: (a, b)}
        return decided.get(comparison.verdict)
    ratio = comparison.percentiles[position].ratio
    if ratio.high is not None and ratio.high < 1:
        return b, a
    return (a, b) if ratio.low is not None and ratio.low > 1 else None


def _judgement(word: str, comparison: Comparison | Overall) -> Cell:
    facts = verdict_facts(word, comparison) | {"more_rounds_estimate": comparison.more_rounds}
    text = word
    if comparison.more_rounds is not None:
        about = "needs " if comparison.p_different is None else "~"
        text += f" ({about}{comparison.more_rounds} more)"
    return Cell(text=text, facts=facts)


def _notes(findings: Findings) -> Iterator[str]:
    if findings.is_refused:
        yield "Times as they were measured: a check failed, so nothing is said of how arms compare."
        return
    yield from _of_verdicts(findings)
    if findings.scope == "latency":
        yield (
            "Requests were sent when they were due (open loop): a stall counts for each that was due in it. "
            "Latency has the wait for a free client, too; its verdicts are a family of their own."
        )
    if any(c.more_rounds is not None and c.p_different is not None for c in findings.comparisons):
        yield "'~N more' rounds is an estimate: if the truth is what is seen here and noise stays as it is."
    tails = range(1, len(PERCENTILES))
    without = [p for p in tails if all(c.percentiles[p].ratio.low is None for c in findings.comparisons)]
    if without:
        which = " and ".join(f"p{PERCENTILES[p]}" for p in without)
        yield f"{which}: no interval, with too few rounds or too few requests that reach it."
    if len(without) < len(tails):
        yield "Above p50, better is marked where the interval of the task by itself leaves out 0."
    if findings.overall:
        yield "All tasks together is the geometric mean of the tasks' ratios."
    if findings.ended:
        yield findings.ended


def _of_verdicts(findings: Findings) -> Iterator[str]:
    confidence, margin = format_share(findings.confidence), format_share(findings.margin)
    yield (
        f"Verdicts are for p50 and hold for all tasks together at {confidence} ({_method(findings)}); "
        f"equivalent means within {margin}. An interval is for its task alone, so it may "
        "exclude 0 without a verdict."
    )
    off = max((one.off for one in (*findings.overall, *findings.comparisons)), default=0.0)
    if off:
        yield (
            "Intervals and verdicts allow for what reads of emulated volumes may be off by all session long, "
            f"too: up to {off:.2%} of a ratio (standard error of their calibration)."
        )
    if findings.starts:
        yield (
            "An arm's times are of all of its requests together, a difference is the mean of the differences "
            f"of {observed(findings)}: it may be another than that of the two times."
        )


def _method(findings: Findings) -> str:
    """How claims share the chance of error."""
    arms = "other arms share the error equally" if len(findings.pairs) > 1 else ""
    if not (arms or findings.starts):
        return "Holm"
    over = f"means over {observed(findings)}, Student's t" if findings.starts else ""
    return "; ".join(part for part in (arms, "single tasks behind all of them", over) if part)


def observed(findings: Findings) -> str:
    """The observations for Student's t."""
    if not findings.starts:
        return "rounds"
    if findings.volumes > 1:
        return f"{findings.volumes} volumes of each type"
    measured = max((c.starts for c in findings.comparisons), default=len(findings.starts))
    return f"{measured} starts of the nodes"


def volumes_table(findings: Findings, volumes: Sequence[str]) -> Table:
    """Medians of every compared task on every volume, for sessions that compare types."""
    of = {(s.task, s.arm): s for s in findings.summaries if s.task in findings.tasks}
    return Table(
        key="volumes",
        title="Service time by volume, p50",
        item_title="task",
        columns=arm_columns(volumes, ("p50",)),
        rows=arm_rows(of, volumes, lambda summary: (time_cell(summary, PERCENTILES[0]),)),
        notes=("How far volumes of one type differ; 'report SESSION --against VOLUME' compares them.",),
    )


_ONCE = "Measured once on each arm, one arm after the other: a difference here has no interval."
_ALONE = "Measured in rounds, but requests of it succeeded on no two arms that are compared."


def single_tables(session: Session, findings: Findings, arms: Sequence[str]) -> Iterator[Table]:
    """Tasks without a verdict: run once per arm (indexing; shown with their rate), or without a pair."""
    compared = set(findings.tasks)
    left = {(s.task, s.arm): s for s in findings.summaries if s.task not in compared}
    repeated = {task for task, arm in left if any(round_ > 0 for round_ in findings.blocks[task, arm])}
    once = {key: summary for key, summary in left.items() if key[0] not in repeated}
    alone = {key: summary for key, summary in left.items() if key[0] in repeated}
    if once:
        yield Table(
            key="once",
            title="Once per arm",
            item_title="task",
            columns=arm_columns(arms, ("p50", "p99", "operations/s")),
            rows=arm_rows(once, arms, partial(_once_cells, session.samples)),
            notes=(_ONCE,),
        )
    if alone:  # without a rate: other tasks and arms were measured between their rounds
        yield Table(
            key="alone",
            title="Not compared",
            item_title="task",
            columns=arm_columns(arms, ("p50", "p99")),
            rows=arm_rows(alone, arms, _single_cells),
            notes=(_ALONE,),
        )


def _single_cells(summary: Summary) -> tuple[Cell, ...]:
    return milliseconds("p50_s", summary.p50_s), milliseconds("p99_s", summary.p99_s)


def _once_cells(samples: pa.Table, summary: Summary) -> tuple[Cell, ...]:
    rate = _rate(samples, summary)
    return *_single_cells(summary), quantity("operations_per_s", rate, f"{rate or 0.0:.0f}")


def _rate(samples: pa.Table, summary: Summary) -> float | None:
    mask = pc.and_(
        pc.equal(samples["task"].cast(pa.string()), summary.task),
        pc.equal(samples["arm"].cast(pa.string()), summary.arm),
    )
    own = samples.filter(mask)
    starts, times = own["started_s"].to_numpy(), own["service_time_s"].to_numpy()
    seconds = float(np.max(starts + times) - np.min(starts))
    return float(pc.sum(own["ops"]).as_py()) / seconds if seconds > 0 else None


_POINTS = 300  # of a curve


def cold_start_plots(curves: Sequence[ColdStartCurve]) -> tuple[Plot, ...]:
    """One plot per task; a long curve shows every n-th point, and always the first and the last."""
    return tuple(
        Plot(
            title=f"Cold start: {task}",
            heading=task,
            across="request since the caches were dropped",
            up="service time, ms",
            curves=tuple(_cold_start_curve(curve) for curve in curves if curve.task == task),
        )
        for task in dict.fromkeys(curve.task for curve in curves)
    )


def _cold_start_curve(curve: ColdStartCurve) -> Curve:
    step = -(-len(curve.requests) // _POINTS)
    places = sorted({*range(0, len(curve.requests), step), len(curve.requests) - 1})
    return Curve(
        name=curve.arm,
        x=tuple(float(curve.requests[place]) for place in places),
        y=tuple(float(curve.median_s[place]) * 1e3 for place in places),
    )


def cold_start_table(curves: Sequence[ColdStartCurve], arms: Sequence[str]) -> Table:
    """A row per task; no rows if every request followed a drop."""
    return Table(
        key="cold_start",
        title="Cold start: from the drop to the warm level",
        item_title="task",
        columns=arm_columns(arms, ("first", "warm", "warm from")),
        rows=arm_rows({(curve.task, curve.arm): curve for curve in curves}, arms, _cold_start_cells),
        notes=(
            "Medians over all rounds by number of the request since the drop. The warm level is that of the "
            "last quarter; warm from: the request from which on all stay within 10 % of it.",
        ),
    )


def _cold_start_cells(curve: ColdStartCurve) -> tuple[Cell, Cell, Cell]:
    meets = "not yet" if curve.meets is None else f"request {curve.meets}"
    return (
        milliseconds("first_s", float(curve.median_s[0])),
        milliseconds("warm_s", curve.warm_s),
        Cell(text=meets, facts={"warm_from": curve.meets}),
    )
