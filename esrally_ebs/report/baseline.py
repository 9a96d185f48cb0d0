"""fio's results in the tables of the 2021 article: IOPS, throughput, p50 and p90, for reads and writes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TypeGuard

import pyarrow as pa

from esrally_ebs.catalog.cost import sustained
from esrally_ebs.model import BaselineRow
from esrally_ebs.report.model import NOTHING, Cell, Row, Table, Value, titled
from esrally_ebs.store.encoding import baseline_of
from esrally_ebs.store.session import Session
from esrally_ebs.units import MIB, format_bytes

_FIRST_PASS = 0
_BY_VALUE = "The tables of fio show its first pass: better is by value alone, without an interval."
_NOTED_FACTOR = 1.02  # times the volume's sustained rate: more is noted
_SAME_WITHIN = 0.005  # fio values that differ by less count as equal

Rows = Mapping[tuple[str, str, int], tuple[BaselineRow, ...]]  # by job, arm, round


@dataclass(frozen=True, slots=True)
class _Measure:
    """A table of fio: which value of a job's rows it shows, and how as text."""

    key: str
    title: str
    metric: str  # of a row; IOPS of both directions are added up
    op: str  # read or write; empty for both
    text: Callable[[float], str]
    higher_is_better: bool = False

    def of(self, rows: Sequence[BaselineRow]) -> float | None:
        """The value of one job on one arm; None if it has none."""
        values = [float(getattr(row, self.metric)) for row in rows if self.op in ("", row.op)]
        return sum(values) if values else None


def _mib_per_s(rate: float) -> str:
    return f"{rate / MIB:.2f} MiB/s"


_IOPS = _Measure("fio_iops", "fio: IOPS, reads and writes together", "iops", "", "{:.0f}".format, True)
_LATENCIES = tuple(
    _Measure(
        f"fio_{op}_p{p}", f"fio: {op} latency, {p}th percentile", f"p{p}_s", op, lambda s: f"{s * 1e6:.0f} us"
    )
    for p in (50, 90)
    for op in ("read", "write")
)
_RATES = tuple(
    _Measure(f"fio_{op}_bandwidth", f"fio: {op} throughput", "bandwidth_bytes_per_s", op, _mib_per_s, True)
    for op in ("read", "write")
)
_MEASURES = (_IOPS, *_RATES, *_LATENCIES)


def tables(session: Session) -> list[Table]:
    """A table for every measure that some job has, a row per job and a column per arm; then the drift."""
    arms = session.arm_names
    rows = _by_job(session.baseline)
    made = (*(_measure_table(measure, rows, arms) for measure in _MEASURES), _drift(rows, arms))
    return [replace(t, notes=(*t.notes, *_saved_up(session, t))) for t in made]


def medians(baseline: pa.Table, arm: str) -> dict[str, tuple[float, Cell]]:
    """Each job's IOPS and latencies on an arm, the median of its passes, as value and cell."""
    by_job: dict[str, list[tuple[BaselineRow, ...]]] = {}
    for (job, of, _), rows in _by_job(baseline).items():
        if of == arm:
            by_job.setdefault(job, []).append(rows)
    measured: dict[str, tuple[float, Cell]] = {}
    for job, passes in by_job.items():
        for measure in (_IOPS, *_LATENCIES):
            values = [value for rows in passes if (value := measure.of(rows)) is not None]
            if values:
                value = median(values)
                cell = Cell(text=measure.text(value), facts={measure.metric: value})
                measured[f"{job}: {measure.title.removeprefix('fio: ')}"] = value, cell
    return measured


def _saved_up(session: Session, table: Table) -> Iterator[str]:
    """A note on figures above the volume's sustained rates, and why a job can reach them."""
    random = {job.name for job in session.plan.baseline if "rand" in job.rw}
    passed = []
    for row in table.rows:
        job = row.item.split(" (")[0]
        for arm, cell in zip(session.arms, row.cells, strict=True):
            iops, bytes_per_s = sustained(arm.spec)
            # sequential I/Os are merged before they are counted
            if iops and job in random and _passes(value := cell.facts.get("iops"), iops):
                passed.append(f"{arm.spec.name} in {job} {value:,.0f} of {iops:,.0f} IOPS")
            if bytes_per_s and _passes(value := cell.facts.get("bandwidth_bytes_per_s"), bytes_per_s):
                passed.append(
                    f"{arm.spec.name} in {job} {value / MIB:,.0f} of {bytes_per_s / MIB:,.0f} MiB/s"
                )
    if passed:
        yield (
            "More than the volume sustains, as a short job also spends what was saved up (burst credits, "
            f"a second of each limit): {'; '.join(passed)}."
        )


def _passes(value: Value, limit: float) -> TypeGuard[float]:
    return isinstance(value, float | int) and value > limit * _NOTED_FACTOR


def _by_job(baseline: pa.Table) -> Rows:
    grouped: dict[tuple[str, str, int], tuple[BaselineRow, ...]] = {}
    for row in baseline_of(baseline):
        key = row.job, row.arm, row.round
        grouped[key] = (*grouped.get(key, ()), row)
    return grouped


def _measure_table(measure: _Measure, rows: Rows, arms: Sequence[str]) -> Table:
    made = []
    for job in dict.fromkeys(job for job, _, _ in rows):
        values = [measure.of(rows.get((job, arm, _FIRST_PASS), ())) for arm in arms]
        if any(value is not None for value in values):
            shape = next(rows[key][0] for key in rows if key[0] == job)
            made.append(Row(item=_describe(job, shape), cells=_cells(measure, values)))
    return Table(
        key=measure.key,
        title=measure.title,
        item_title="job",
        columns=titled(*arms),
        rows=tuple(made),
        notes=(_BY_VALUE,) if measure is _IOPS else (),
    )


def _describe(job: str, row: BaselineRow) -> str:
    depth = f" qd{row.iodepth}" if row.iodepth > 1 else ""
    return f"{job} ({row.numjobs} x {format_bytes(row.bs_bytes).replace('.0 ', ' ')}{depth})"


def _cells(measure: _Measure, values: Sequence[float | None]) -> tuple[Cell, ...]:
    known = sorted((value for value in values if value is not None), reverse=measure.higher_is_better)
    apart = len(known) > 1 and abs(known[0] - known[1]) > _SAME_WITHIN * abs(known[0])
    return tuple(
        NOTHING
        if value is None
        else Cell(text=measure.text(value), facts={measure.metric: value}, better=apart and value == known[0])
        for value in values
    )


def _drift(rows: Rows, arms: Sequence[str]) -> Table:
    last = {job: round_ for job, _, round_ in sorted(rows, key=lambda key: key[2]) if round_ > _FIRST_PASS}
    made = tuple(
        Row(
            item=job,
            cells=tuple(
                _change(rows.get((job, arm, _FIRST_PASS)), rows.get((job, arm, end))) for arm in arms
            ),
        )
        for job, end in last.items()
    )
    return Table(
        key="fio_drift",
        title="fio: IOPS at the end of the session against its start",
        item_title="job",
        columns=titled(*arms),
        rows=made,
        notes=("A change here is a drift of the volume or of the machine during the session.",),
    )


def _change(start: tuple[BaselineRow, ...] | None, end: tuple[BaselineRow, ...] | None) -> Cell:
    before, after = _IOPS.of(start or ()), _IOPS.of(end or ())
    if not before or after is None:
        return NOTHING
    change = after / before - 1
    return Cell(
        text=f"{change * 100:+z.1f} %", facts={"iops_start": before, "iops_end": after, "change": change}
    )
