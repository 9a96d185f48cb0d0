"""Samples by task, arm and round, and the percentiles of each task on each arm, from raw samples."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from esrally_ebs.model import Phase

Floats = npt.NDArray[np.float64]
Scope = Literal["all", "first"]  # all measured requests, or only the first since each drop
# (task, arm) to round to service times in seconds; tasks and arms in order of appearance
Blocks = Mapping[tuple[str, str], Mapping[int, Floats]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One task on one arm."""

    task: str
    arm: str
    scope: Scope
    rounds: int
    requests: int  # successful and measured
    failed: int
    p50_s: float
    p90_s: float
    p99_s: float
    warnings: tuple[str, ...]


def measured_blocks(samples: pa.Table, scope: Scope = "all") -> Blocks:
    """Service times of what counts: measured, successful, and (``first``) right after a drop."""
    mask = pc.and_(_measured(samples), samples["success"])
    if scope == "first":
        mask = pc.and_(mask, pc.equal(samples["iteration"], 1))
    table = samples.select(["task", "arm", "round", "service_time_s"]).filter(mask)
    if not table.num_rows:
        return {}
    tasks, task_of = _codes(table["task"])
    arms, arm_of = _codes(table["arm"])
    round_of = table["round"].to_numpy()
    times = table["service_time_s"].to_numpy()
    order = np.lexsort((round_of, arm_of, task_of))  # stable: requests stay in their order
    keys = np.stack([task_of[order], arm_of[order], round_of[order]], axis=1)
    starts = np.flatnonzero(np.any(np.diff(keys, axis=0, prepend=keys[:1] - 1), axis=1))
    blocks: dict[tuple[str, str], dict[int, Floats]] = {}
    for start, part in zip(starts, np.split(times[order], starts[1:]), strict=True):
        task, arm, round_ = keys[start]
        blocks.setdefault((tasks[task], arms[arm]), {})[int(round_)] = part
    return blocks


def failures(samples: pa.Table) -> Mapping[tuple[str, str], int]:
    """Measured requests that failed, by task and arm."""
    failed = samples.filter(pc.and_(_measured(samples), pc.invert(samples["success"])))
    pairs = zip(failed["task"].to_pylist(), failed["arm"].to_pylist(), strict=True)
    counts: dict[tuple[str, str], int] = {}
    for pair in pairs:
        counts[pair] = counts.get(pair, 0) + 1
    return counts


def summarize(samples: pa.Table, scope: Scope = "all") -> tuple[Summary, ...]:
    """Percentiles of every task on every arm that has a successful measured request."""
    failed = failures(samples)
    return tuple(
        _summary(key, by_round, scope, failed.get(key, 0))
        for key, by_round in measured_blocks(samples, scope).items()
    )


def _summary(key: tuple[str, str], by_round: Mapping[int, Floats], scope: Scope, failed: int) -> Summary:
    times = np.concatenate(list(by_round.values()))
    p50, p90, p99 = (float(value) for value in np.percentile(times, [50, 90, 99]))
    warnings = []
    if len(times) < 100:  # fewer than one request lies beyond the 99th percentile
        warnings.append(f"p99 is the slowest of only {len(times)} requests, not a tail")
    if failed:
        warnings.append(f"{failed} requests failed and are left out")
    if len({len(block) for block in by_round.values()}) > 1:
        warnings.append("rounds have unequal numbers of requests")
    return Summary(
        task=key[0],
        arm=key[1],
        scope=scope,
        rounds=len(by_round),
        requests=len(times),
        failed=failed,
        p50_s=p50,
        p90_s=p90,
        p99_s=p99,
        warnings=tuple(warnings),
    )


def _measured(samples: pa.Table) -> pa.ChunkedArray:
    return pc.equal(samples["phase"].cast(pa.string()), Phase.MEASURE.value)


def _codes(column: pa.ChunkedArray) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Distinct values in order of appearance, and each row's place among them."""
    encoded = column.cast(pa.string()).combine_chunks().dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)
