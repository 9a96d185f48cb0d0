"""A session's figures as data: changes with intervals, distributions, telemetry on one clock.

Every curve is thinned to a few hundred points, so that a report of millions of samples stays small.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esrally_ebs.analysis.findings import Findings
from esrally_ebs.analysis.rounds import Estimate, Floats
from esrally_ebs.analysis.summary import PERCENTILES
from esrally_ebs.model import Phase
from esrally_ebs.report.conditions import series_of, turns_of
from esrally_ebs.report.model import Curve, Figures, Forest, Plot, RelativeChange, Span, Timeline, Turn
from esrally_ebs.report.search import TOGETHER
from esrally_ebs.store.session import Session
from esrally_ebs.units import MIB

_POINTS = 300  # of a curve: about one per pixel
_FIO_PAUSE_S = 30.0  # baselines closer than this belong to one part of the session
# metric, title, unit, and the size of the unit in base units
_METRICS = (
    ("device.reads_per_s", "Reads", "per second", 1.0),
    ("device.read_bytes_per_s", "Read throughput", "MiB/s", float(MIB)),
    ("device.read_await_s", "Time of a read at the device", "ms", 1e-3),
    ("device.queue_depth", "Queue depth", "requests", 1.0),
    ("emulator.credits", "Burst credits", "% of the bucket", 0.01),
    ("memory.cache_bytes", "Page cache of the node", "MiB", float(MIB)),
)


def figures(session: Session, findings: Findings) -> Figures:
    """All figures for which the session has data."""
    return Figures(
        searches=tuple(_searches(findings)),
        baselines=tuple(_baselines(session, findings.arms)),
        distributions=tuple(_distributions(findings)),
        timelines=tuple(_timelines(session)),
        spans=tuple(sorted(_spans(session), key=lambda span: span.start_s)),
        turns=tuple(_turns(session)),
    )


def _searches(findings: Findings) -> Iterator[Forest]:
    for a, b in findings.pairs:
        changes = [
            _change(c.task, c.percentiles[0].ratio, "" if c.p_different is None else c.verdict, findings)
            for c in findings.comparisons
            if (c.a, c.b) == (a, b) and math.isfinite(c.percentiles[0].ratio.value)
        ]
        changes += [
            _change(TOGETHER, overall.ratio, overall.verdict, findings)
            for overall in findings.overall
            if (overall.a, overall.b) == (a, b)
        ]
        title = f"Search: {b} against {a}, 50th percentile of service time"
        yield Forest(title=title, less=f"{b} faster", more=f"{b} slower", changes=tuple(changes))


def _change(item: str, ratio: Estimate, verdict: str, findings: Findings) -> RelativeChange:
    low, high = (None if end is None else end - 1 for end in (ratio.low, ratio.high))
    return RelativeChange(
        item=item, value=ratio.value - 1, low=low, high=high, verdict=verdict, margin=findings.margin
    )


def _baselines(session: Session, compared: Sequence[str]) -> Iterator[Forest]:
    """fio's changes of every other arm against the arm that searches are compared with, or the first."""
    reads = {
        (row["job"], row["arm"]): row["p50_s"]
        for row in session.baseline.select(["arm", "round", "job", "op", "p50_s"]).to_pylist()
        if row["op"] == "read" and row["round"] == 0
    }
    a, *others = sorted(session.arm_names, key=lambda arm: arm not in compared[:1]) or [""]
    for b in others:
        changes = tuple(
            RelativeChange(item=job, value=after / before - 1)
            for job in dict.fromkeys(job for job, _ in reads)
            if (before := reads.get((job, a))) and (after := reads.get((job, b)))
        )
        if changes:
            title = f"fio: {b} against {a}, 50th percentile of read latency (one run, no interval)"
            yield Forest(title=title, less=f"{b} faster", more=f"{b} slower", changes=changes)


def _distributions(findings: Findings) -> Iterator[Plot]:
    for task in findings.tasks:
        curves = []
        for (other, arm), by_round in findings.blocks.items():
            if other == task:
                blocks = [times for round_, times in by_round.items() if round_ > 0]
                curves += [_shares(arm, np.concatenate(blocks))] if blocks else []
        yield Plot(
            title=f"Distribution of service times: {task}",
            heading=task,
            across="service time, ms",
            up="share of requests, %",
            curves=tuple(sorted(curves, key=lambda curve: curve.name)),
            grid=(0, 25, 50, 90, 100),
        )


def _shares(arm: str, times: Floats) -> Curve:
    """Share of requests (y, per cent) that took at most x ms."""
    shares = np.arange(1, len(times) + 1) / len(times)
    ordered = np.sort(times)
    if len(times) > _POINTS:
        # Dense in the tail: every per mille of the last per cent, else every half per cent.
        shares = np.unique(np.concatenate([np.linspace(0.005, 0.99, 198), np.linspace(0.99, 1, 11)]))
        ordered = np.quantile(times, shares)
    levels = zip(PERCENTILES, np.percentile(times, PERCENTILES) * 1e3, strict=True)
    return Curve(
        name=arm,
        x=tuple(float(x) * 1e3 for x in ordered),
        y=tuple(float(y) * 100 for y in shares),
        style="steps",
        summary=f"{arm} {', '.join(f'p{p} {ms:.2f} ms' for p, ms in levels)}",
    )


def _timelines(session: Session) -> Iterator[Timeline]:
    for metric, title, unit, size in _METRICS:
        curves, step_s = [], 0.0
        for node, arm in session.nodes.items():
            at, values = series_of(session.telemetry, node, metric)
            at, values = at - session.started_at, values / size
            if metric == "emulator.credits":  # operations; for HDD types bytes
                _, capacity = series_of(session.telemetry, node, "emulator.credits_capacity")
                values = values / (capacity.max(initial=0.0) or np.nan)
            known = np.isfinite(values)
            if known.any():
                curve, step_s = _thinned(node, at[known], values[known])
                curves.append(curve if arm == node else replace(curve, arm=arm))
        if curves:
            yield Timeline(title=title, unit=unit, step_s=step_s, curves=tuple(curves))


def _thinned(arm: str, at: Floats, values: Floats) -> tuple[Curve, float]:
    """A curve of at most ``_POINTS`` means, and the seconds that each covers."""
    together = -(-len(at) // _POINTS)
    starts = np.arange(0, len(at), together)
    counts = np.diff(np.append(starts, len(at)))
    x, y = (np.add.reduceat(column, starts) / counts for column in (at, values))
    step_s = float(np.median(np.diff(at))) * together if len(at) > 1 else 1.0
    return Curve(name=arm, x=tuple(float(v) for v in x), y=tuple(float(v) for v in y)), step_s


def _spans(session: Session) -> Iterator[Span]:
    fio: dict[int, list[tuple[float, float]]] = {}  # by pass: 0 before the first round, others after the last
    for event in session.events:
        if event.kind == "baseline" and event.has_time:
            begin = event.at_s - (event.number("seconds") or 0.0)
            fio.setdefault(int(event.number("round") or 0), []).append((begin, event.at_s))
    for start, end in (span for spans in fio.values() for span in _joined(spans)):
        yield Span(name="fio", start_s=start - session.started_at, end_s=end - session.started_at)
    samples = session.samples
    measured = samples["round"].to_numpy() > 0
    begins = samples["started_s"].to_numpy()
    # warm-up comes before the rounds, and between rounds after restarts of the nodes
    after = np.searchsorted(np.sort(begins[measured]), begins) * ~measured
    times = samples.select(["phase", "round", "started_s"]).append_column("after", pa.array(after))
    times = times.append_column("ended_s", pc.add(samples["started_s"], samples["service_time_s"]))
    blocks = times.unify_dictionaries().group_by(["phase", "round", "after"])
    grouped = blocks.aggregate([("started_s", "min"), ("ended_s", "max")])
    for row in grouped.to_pylist():
        warm = row["phase"] == Phase.WARMUP.value
        if warm or row["round"] > 0:
            yield Span(
                name="warm" if warm else f"round {row['round']}",
                start_s=row["started_s_min"] - session.started_at,
                end_s=row["ended_s_max"] - session.started_at,
            )


def _turns(session: Session) -> Iterator[Turn]:
    """When each task was measured on each arm, in the first round's order."""
    began = session.started_at
    for (arm, task), spans in turns_of(session.samples, first_round=1).items():
        yield Turn(arm=arm, task=task, times=tuple((start - began, end - began) for start, end in spans))


def _joined(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    joined: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if joined and start - joined[-1][1] < _FIO_PAUSE_S:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    return joined
