"""fio in the tables of the 2021 article: IOPS, throughput, p50 and p90, for reads and for writes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from esrally_ebs.model import BaselineRow
from esrally_ebs.report.model import NOTHING, Cell, Column, Row, Table
from esrally_ebs.store.encoding import baseline_of
from esrally_ebs.units import MIB, format_bytes

_START, _END = 0, 1
_BY_VALUE = "fio ran once per arm: in its tables better is by value alone, without an interval."
_SAME = 0.005  # fio values closer than this are not told apart by a mark

Rows = Mapping[tuple[str, str, int], tuple[BaselineRow, ...]]  # by job, arm, round


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measure:
    key: str
    title: str
    metric: str
    of: Callable[[tuple[BaselineRow, ...]], float | None]
    text: Callable[[float], str]
    higher_is_better: bool


def tables(baseline: pa.Table, arms: Sequence[str]) -> list[Table]:
    """Every measure that any job has, a row per job and a column per arm; then the drift."""
    rows = _by_job(baseline)
    if not rows:
        return []
    made = [_measure_table(measure, rows, arms) for measure in _MEASURES]
    return [table for table in (*made, _drift(rows, arms)) if table is not None]


def _by_job(baseline: pa.Table) -> Rows:
    grouped: dict[tuple[str, str, int], tuple[BaselineRow, ...]] = {}
    for row in baseline_of(baseline):
        key = row.job, row.arm, row.round
        grouped[key] = (*grouped.get(key, ()), row)
    return grouped


def _iops(rows: tuple[BaselineRow, ...]) -> float | None:
    return sum(row.iops for row in rows) if rows else None


def _one(op: str, value: Callable[[BaselineRow], float]) -> Callable[[tuple[BaselineRow, ...]], float | None]:
    return lambda rows: next((value(row) for row in rows if row.op == op), None)


def _bandwidth(op: str) -> _Measure:
    return _Measure(
        key=f"fio_{op}_bandwidth",
        title=f"fio: {op} throughput",
        metric="bandwidth_bytes_per_s",
        of=_one(op, lambda row: row.bandwidth_bytes_per_s),
        text=lambda value: f"{value / MIB:.2f} MiB/s",
        higher_is_better=True,
    )


def _latency(percentile: int, op: str) -> _Measure:
    name = f"p{percentile}_s"
    return _Measure(
        key=f"fio_{op}_p{percentile}",
        title=f"fio: {op} latency, {percentile}th percentile",
        metric=name,
        of=_one(op, lambda row: float(getattr(row, name))),
        text=lambda value: f"{value * 1e6:.0f} us",
        higher_is_better=False,
    )


_IOPS = _Measure(
    key="fio_iops",
    title="fio: IOPS, reads and writes together",
    metric="iops",
    of=_iops,
    text=lambda value: f"{value:.0f}",
    higher_is_better=True,
)
_MEASURES = (
    _IOPS,
    *[_bandwidth(op) for op in ("read", "write")],
    *[_latency(percentile, op) for percentile in (50, 90) for op in ("read", "write")],
)


def _measure_table(measure: _Measure, rows: Rows, arms: Sequence[str]) -> Table | None:
    made = []
    for job in dict.fromkeys(job for job, _, _ in rows):
        values = [measure.of(rows.get((job, arm, _START), ())) for arm in arms]
        if any(value is not None for value in values):
            shape = next(rows[key][0] for key in rows if key[0] == job)
            made.append(Row(item=_describe(job, shape), cells=_cells(measure, values)))
    if not made:
        return None
    return Table(
        key=measure.key,
        title=measure.title,
        item_title="job",
        columns=tuple(Column(title=arm, subject=arm) for arm in arms),
        rows=tuple(made),
        notes=(_BY_VALUE,) if measure is _IOPS else (),
    )


def _describe(job: str, row: BaselineRow) -> str:
    depth = f" qd{row.iodepth}" if row.iodepth > 1 else ""
    return f"{job} ({row.numjobs} x {format_bytes(row.bs_bytes).replace('.0 ', ' ')}{depth})"


def _cells(measure: _Measure, values: Sequence[float | None]) -> tuple[Cell, ...]:
    known = sorted((value for value in values if value is not None), reverse=measure.higher_is_better)
    apart = len(known) > 1 and abs(known[0] - known[1]) > _SAME * abs(known[0])
    return tuple(
        NOTHING
        if value is None
        else Cell(text=measure.text(value), facts={measure.metric: value}, better=apart and value == known[0])
        for value in values
    )


def _drift(rows: Rows, arms: Sequence[str]) -> Table | None:
    jobs = dict.fromkeys(job for job, _, round_ in rows if round_ == _END)
    made = tuple(
        Row(
            item=job,
            cells=tuple(_change(rows.get((job, arm, _START)), rows.get((job, arm, _END))) for arm in arms),
        )
        for job in jobs
    )
    if not made:
        return None
    return Table(
        key="fio_drift",
        title="fio: IOPS at the end of the session against its start",
        item_title="job",
        columns=tuple(Column(title=arm, subject=arm) for arm in arms),
        rows=made,
        notes=("A change here is a drift of the volume or of the machine during the session.",),
    )


def _change(start: tuple[BaselineRow, ...] | None, end: tuple[BaselineRow, ...] | None) -> Cell:
    before, after = _iops(start or ()), _iops(end or ())
    if not before or after is None:
        return NOTHING
    change = after / before - 1
    return Cell(
        text=f"{change * 100:+.1f} %", facts={"iops_start": before, "iops_end": after, "change": change}
    )
