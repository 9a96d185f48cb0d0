"""Runs of fio jobs as observed figures: the median over the runs of each arm and job, in base units."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from esrally_ebs.formats.fio import FioDirection
from esrally_ebs.published import Series
from esrally_ebs.studies.runs import Run

_OF_DIRECTION: Mapping[str, Callable[[FioDirection], float]] = {
    "bandwidth": lambda direction: direction.bandwidth_bytes_per_s,
    "p50": lambda direction: direction.p50_s,
    "p90": lambda direction: direction.p90_s,
}


def grouped(runs: Iterable[Run]) -> dict[tuple[str, str], list[Run]]:
    """The runs of each arm and job, in order of appearance."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.arm, run.job), []).append(run)
    return groups


def observed(runs: Iterable[Run]) -> dict[tuple[str, str, str], float]:
    """By arm, job and kind: IOPS and throughput of both directions together, await, and each direction's."""
    figures: dict[tuple[str, str, str], float] = {}
    for (arm, job), group in grouped(runs).items():
        figures[arm, job, "iops"] = statistics.median(iops_of(run) for run in group)
        figures[arm, job, "bandwidth"] = statistics.median(bandwidth_of(run) for run in group)
        figures[arm, job, "await"] = statistics.median(run.latency_s / run.ios for run in group)
        for op in dict.fromkeys(direction.op for run in group for direction in run.directions):
            for what, value in _OF_DIRECTION.items():
                figures[arm, job, f"{op}_{what}"] = statistics.median(_each(group, op, value))
    return figures


def marks(
    name: str,
    keys: Sequence[tuple[str, str, str]],
    figures: Mapping[tuple[str, str, str], float],
    unit: float,
) -> Series:
    """A mark of each figure that there is, at its key's place, in units of so many base units."""
    points = [(float(place), figures[key] / unit) for place, key in enumerate(keys) if key in figures]
    return Series(name=name, marks=True, points=points)


def iops_of(run: Run) -> float:
    """Reads and writes together."""
    return sum(direction.iops for direction in run.directions)


def bandwidth_of(run: Run) -> float:
    """Bytes a second, reads and writes together."""
    return sum(direction.bandwidth_bytes_per_s for direction in run.directions)


def _each(group: Sequence[Run], op: str, value: Callable[[FioDirection], float]) -> list[float]:
    return [value(direction) for run in group for direction in run.directions if direction.op == op]
