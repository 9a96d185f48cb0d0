"""Cold starts: service time by number of the request since the caches were dropped, and when it is warm.

Pure. Says nothing where every request is preceded by a drop: then all of them are cold.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from esrally_ebs.analysis.grouping import rows_by
from esrally_ebs.analysis.summary import counted

_MAX_REQUESTS = 1000  # requests since the drop that a curve follows
_MIN_REQUESTS = 4  # fewer show no level
_LEVEL_SHARE = 0.25  # of a curve, at its end, that makes the warm level
_WARM_FACTOR = 1.1  # a request is warm that takes at most this many times the level

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdStartCurve:
    """One task on one arm."""

    task: str
    arm: str
    requests: npt.NDArray[np.int64]  # number since the drop, from 1
    median_s: Floats  # of all rounds' requests of that number
    warm_s: float  # median of the last quarter of the curve
    meets: int | None  # number from which on the curve stays within 10 % of the warm level; None = not yet


def cold_starts(samples: pa.Table) -> tuple[ColdStartCurve, ...]:
    """A curve per task and arm whose requests follow one another without a drop in between."""
    followed = pc.and_(pc.greater(samples["round"], 0), pc.less_equal(samples["iteration"], _MAX_REQUESTS))
    mask = pc.and_(counted(samples), followed)
    own = samples.select(["task", "arm", "iteration", "service_time_s"]).filter(mask)
    times = own["service_time_s"].to_numpy()
    medians: dict[tuple[str, str], dict[int, float]] = {}
    for (task, arm, number), rows in rows_by(own, ["task", "arm", "iteration"]):
        medians.setdefault((task, arm), {})[number] = float(np.median(times[rows]))
    return tuple(
        _curve(*key, by_number) for key, by_number in medians.items() if len(by_number) >= _MIN_REQUESTS
    )


def _curve(task: str, arm: str, medians: dict[int, float]) -> ColdStartCurve:
    requests = np.array(sorted(medians), np.int64)
    values = np.array([medians[int(number)] for number in requests])
    level = float(np.median(values[-max(1, round(len(values) * _LEVEL_SHARE)) :]))
    cold = np.flatnonzero(values > level * _WARM_FACTOR)
    first_warm = 0 if not len(cold) else int(cold[-1]) + 1
    return ColdStartCurve(
        task=task,
        arm=arm,
        requests=requests,
        median_s=values,
        warm_s=level,
        meets=int(requests[first_warm]) if first_warm < len(requests) else None,
    )
