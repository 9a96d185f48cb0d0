"""Published figures beside ours: a study's data and our rows in, errors and a text with all of them out.

Pure. The data of a study stand beside its plan in ``pipelines/``; figures are kept as printed in the article,
with the factor that turns their unit, once corrected, into a base unit.
"""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from esrally_ebs import cost
from esrally_ebs.errors import FormatError
from esrally_ebs.model import BaselineRow, VolumeSpec

_FIGURES = {  # as in the data: what it is, its kind of unit, its kind of tolerance
    "iops": ("IOPS", "iops", "iops"),
    "read_bandwidth": ("read throughput", "bandwidth", "bandwidth"),
    "write_bandwidth": ("write throughput", "bandwidth", "bandwidth"),
    "read_p50": ("read p50", "latency", "p50"),
    "read_p90": ("read p90", "latency", "p90"),
    "write_p50": ("write p50", "latency", "p50"),
    "write_p90": ("write p90", "latency", "p90"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What an article published of the jobs of a plan."""

    title: str
    source: str
    factors: Mapping[str, float]  # by kind of unit: what a figure is multiplied by to get base units
    tolerances: Mapping[str, float]  # by kind of figure, relative
    rows: tuple[Mapping[str, Any], ...]  # arm, job, and each figure as printed
    reads: Mapping[str, int]  # by job: how many of its I/Os were reads
    notes: tuple[str, ...]
    knife_edges: Mapping[str, str]  # "arm job": why its percentiles may be off
    region: str
    on: str  # the day of the prices
    usd: Mapping[str, float]  # by arm: US dollars a month
    usd_tolerance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One published figure and ours, both in base units."""

    arm: str
    job: str
    key: str
    published: float
    ours: float
    tolerance: float  # relative

    @property
    def error(self) -> float:
        """Ours against the published one, relative."""
        return self.ours / self.published - 1

    @property
    def ok(self) -> bool:
        """Whether the error is within the tolerance."""
        return abs(self.error) <= self.tolerance


def parse_study(text: str, source: str) -> Study:
    """The data of a study from JSON; FormatError, naming ``source``, when they are not whole."""
    try:
        data = json.loads(text)
        return Study(
            title=data["title"],
            source=data["source"],
            factors={kind: unit["factor"] for kind, unit in data["units"].items()},
            tolerances=data["tolerances"],
            rows=tuple(data["rows"]),
            reads=data["reads"],
            notes=(
                *(f"Corrected: {text}" for text in data["corrections"]),
                data["mix_note"],
                *(f"Not covered: {text}" for text in data["not_covered"]),
            ),
            knife_edges=data["knife_edges"],
            region=data["prices"]["region"],
            on=data["prices"]["on"],
            usd=data["prices"]["usd"],
            usd_tolerance=data["prices"]["tolerance_usd"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(
            f"{source}: not the data of a study: {error!r}; install esrally_ebs again"
        ) from error


def compare(study: Study, rows: Sequence[BaselineRow]) -> tuple[Figure, ...]:
    """Every published figure beside the median of our runs; a row's round says of which run it is."""
    return tuple(
        Figure(
            arm=row["arm"],
            job=row["job"],
            key=key,
            published=row[key] * study.factors[unit],
            ours=_median([r for r in rows if (r.arm, r.job) == (row["arm"], row["job"])], key),
            tolerance=study.tolerances[tolerance],
        )
        for row in study.rows
        for key, (_, unit, tolerance) in _FIGURES.items()
    )


def _median(rows: Iterable[BaselineRow], key: str) -> float:
    runs: dict[int, dict[str, BaselineRow]] = {}
    for row in rows:
        runs.setdefault(row.round, {})[row.op] = row
    return statistics.median(_value(run, key) for run in runs.values())


def _value(run: Mapping[str, BaselineRow], key: str) -> float:
    if key == "iops":
        return sum(row.iops for row in run.values())
    op, what = key.split("_")
    row = run[op]
    return {"bandwidth": row.bandwidth_bytes_per_s, "p50": row.p50_s, "p90": row.p90_s}[what]


def render(study: Study, figures: Sequence[Figure], specs: Sequence[VolumeSpec], how: str) -> str:
    """The whole study as text; ``how`` says in one line how ours came about."""
    lines = [study.title, f"Published: {study.source}", f"Ours: {how}", ""]
    lines += _table(figures)
    lines += ["", *_summary(study, figures), "", *_prices(study, specs), ""]
    return "\n".join([*lines, *study.notes]) + "\n"


def _table(figures: Iterable[Figure]) -> list[str]:
    columns = f"{'arm':5}{'job':18}{'figure':26}{'published':>11}{'ours':>11}{'error':>9}{'allowed':>9}"
    return [columns, *map(_line, figures)]


def _line(figure: Figure) -> str:
    title, unit, _ = _FIGURES[figure.key]
    scale, name = {"iops": (1.0, ""), "bandwidth": (1e-6, ", MB/s"), "latency": (1e6, ", us")}[unit]
    digits = 2 if unit == "bandwidth" else 0
    published, ours = (f"{value * scale:,.{digits}f}" for value in (figure.published, figure.ours))
    error, allowed = f"{figure.error * 100:+.1f} %", f"{figure.tolerance * 100:.0f} %"
    mark = "ok" if figure.ok else "MISS"
    what = f"{figure.arm:5}{figure.job:18}{title + name:26}"
    return f"{what}{published:>11}{ours:>11}{error:>9}{allowed:>9}  {mark}"


def _summary(study: Study, figures: Sequence[Figure]) -> list[str]:
    missed = [figure for figure in figures if not figure.ok]
    lines = [f"{len(figures) - len(missed)} of {len(figures)} published figures are within tolerance."]
    for row in dict.fromkeys(f"{figure.arm} {figure.job}" for figure in missed):
        of_row = [f for f in missed if f"{f.arm} {f.job}" == row]
        names = ", ".join(f"{_FIGURES[f.key][0]} {f.error * 100:+.0f} %" for f in of_row)
        why = study.knife_edges.get(row)
        lines.append(f"Outside: {row}: {names}" + (f" ({why})" if why else ""))
    return lines


def _prices(study: Study, specs: Sequence[VolumeSpec]) -> list[str]:
    lines = []
    for spec in specs:
        if spec.name not in study.usd:
            continue
        price = cost.monthly(spec, study.region, on=study.on)
        published = study.usd[spec.name]
        mark = "ok" if abs(price.usd - published) <= study.usd_tolerance else "MISS"
        lines.append(
            f"{spec.name} in {price.region}: {price.usd:.3f} USD a month, published {published:.2f}  {mark}"
            f"  (prices of {price.dated}; {price.source})"
        )
    return lines
