"""Percentiles of each task on each arm, by round, and curves of how cold starts become warm."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from esrally_ebs.analysis.rounds import ArmTimes, Estimate, Floats, Mean
from esrally_ebs.model import Phase
from esrally_ebs.plan.tables import MIN_STARTS
from esrally_ebs.store.encoding import baseline_of

Rows = npt.NDArray[np.int64]
PERCENTILES = (50, 90, 99)
MIN_ROUNDS = 6  # with fewer, Student's t claims too often at the levels that eight tasks need
# The rounds' own variation does not cancel in a single arm. Its 99th percentile depends on its slowest
# rounds, so few rounds give no interval; its 90th needs some more rounds than a difference does.
_HIGHEST_ALONE = 90
_MIN_ROUNDS_ALONE = 12
_BEYOND = 5  # requests beyond a tail's percentile that its interval needs on an arm
# all measured requests; only the first since each drop; or latencies of requests due at a time
Scope = Literal["all", "first", "latency"]
# task and arm to round to service times (or latencies) in seconds; tasks and arms in order of appearance
Blocks = Mapping[tuple[str, str], Mapping[int, Floats]]
# Rounds of each start of the nodes; empty if there is only one.
Starts = Sequence[range]
# task and arm to the standard error shared by all its rounds, as a share of its times
Off = Mapping[tuple[str, str], float]
_MAX_REQUESTS = 1000  # a curve's longest, in requests since the drop
_MIN_REQUESTS = 4  # for a curve; fewer show no level
_LEVEL_SHARE = 0.25  # last part of a curve that gives the warm level
_WARM_FACTOR = 1.1  # a request is warm if it takes at most this many times the level


def rows_by(table: pa.Table, names: Sequence[str]) -> list[tuple[tuple[Any, ...], Rows]]:
    """Rows of each combination of values in the columns ``names``, in order of the combinations.

    Text must not be missing. Groups are in the order of their keys, and texts rank by their first appearance.
    """
    if not table.num_rows:
        return []
    columns = [_encoded(table[name]) for name in names]
    most = math.prod(len(values) for values, _ in columns)
    # few groups, many rows: 16-bit keys are sorted in one pass
    key = np.zeros(table.num_rows, np.int16 if most < 2**15 else np.int64)
    for values, codes in columns:
        key *= len(values)
        key += codes.astype(key.dtype)
    order = np.argsort(key, kind="stable")
    ends = np.flatnonzero(np.diff(key[order])) + 1
    groups = np.split(order, ends)
    grouped = [(tuple(values[codes[rows[0]]] for values, codes in columns), rows) for rows in groups]
    ranks = [_ranks([(key[place], rows[0]) for key, rows in grouped]) for place in range(len(names))]
    return sorted(
        grouped, key=lambda group: [rank[value] for rank, value in zip(ranks, group[0], strict=True)]
    )


def _encoded(column: pa.ChunkedArray) -> tuple[list[Any], npt.NDArray[np.int32]]:
    """Distinct values of a column, and each row's index among them."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    column = column.unify_dictionaries()
    codes = [chunk.indices.to_numpy(zero_copy_only=False) for chunk in column.chunks]
    return column.chunk(0).dictionary.to_pylist(), np.concatenate(codes)


def _ranks(appearances: Sequence[tuple[Any, np.int64]]) -> dict[Any, Any]:
    """Sort keys: numbers by themselves, texts by their first row."""
    ranks: dict[Any, Any] = {}
    for value, row in appearances:
        rank = int(row) if isinstance(value, str) else value
        ranks[value] = min(rank, ranks.get(value, rank))
    return ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One task on one arm."""

    task: str
    arm: str
    scope: Scope
    rounds: int
    requests: int  # successful and measured
    failed: int
    percentiles: tuple[Estimate, ...]  # seconds, in the order of PERCENTILES

    def percentile(self, percentile: int) -> Estimate:
        return self.percentiles[PERCENTILES.index(percentile)]

    @property
    def p50_s(self) -> float:
        return self.percentiles[0].value

    @property
    def p99_s(self) -> float:
        return self.percentiles[2].value


def shared_rounds(a: Mapping[int, Floats], b: Mapping[int, Floats]) -> list[int]:
    """Rounds in which both arms were measured, in order; not round 0, which is before the rounds."""
    return sorted(round_ for round_ in a.keys() & b.keys() if round_ > 0)


def by_start(starts: Starts, rounds: Sequence[int]) -> list[list[int]]:
    """These rounds, grouped by start of the nodes.

    Leaves out starts with fewer than half of another's rounds: they say too little.
    """
    measured = [[round_ for round_ in rounds if round_ in start] for start in starts]
    most = max(map(len, measured), default=0)
    return [own for own in measured if own and 2 * len(own) >= most]


def has_enough_requests(percentile: int, requests: int) -> bool:
    """Whether an arm has enough requests for an interval of this percentile."""
    return percentile <= 50 or requests * (100 - percentile) / 100 >= _BEYOND


def is_measured(samples: pa.Table) -> pa.ChunkedArray:
    return pc.equal(samples["phase"], Phase.MEASURE.value)


def is_of_rounds(samples: pa.Table) -> pa.ChunkedArray:
    """Mask of requests in rounds, not before them (indexing)."""
    return pc.and_(is_measured(samples), pc.greater(samples["round"], 0))


def counted(samples: pa.Table) -> pa.ChunkedArray:
    """Mask of requests that count: measured, successful, and with a possible time."""
    mask = pc.and_(is_measured(samples), samples["success"])
    return pc.and_(mask, is_time(samples["service_time_s"]))


def is_time(seconds: pa.ChunkedArray) -> pa.ChunkedArray:
    """Mask of values that are finite and above 0; missing values are false."""
    return pc.fill_null(pc.and_(pc.is_finite(seconds), pc.greater(seconds, 0)), False)


def measured_blocks(samples: pa.Table, scope: Scope = "all") -> Blocks:
    """Times of counted requests, or (``first``) of those right after a drop.

    ``latency``: from due to answered, for tasks that kept to a schedule. For others, Rally reports the
    service time as latency.
    """
    column = "latency_s" if scope == "latency" else "service_time_s"
    mask = counted(samples)
    if scope == "first":
        mask = pc.and_(mask, pc.equal(samples["iteration"], 1))
    if scope == "latency":
        mask = pc.and_(mask, is_time(samples["latency_s"]))
        due = samples.filter(pc.and_(mask, pc.not_equal(samples["latency_s"], samples["service_time_s"])))
        mask = pc.and_(
            mask, pc.is_in(samples["task"].cast(pa.string()), pc.unique(due["task"].cast(pa.string())))
        )
    table = samples.select(["task", "arm", "round", column]).filter(mask)
    times = table[column].to_numpy()
    blocks: dict[tuple[str, str], dict[int, Floats]] = {}
    for (task, arm, round_), rows in rows_by(table, ["task", "arm", "round"]):
        blocks.setdefault((task, arm), {})[round_] = times[rows]
    return blocks


def fio_blocks(baseline: pa.Table, percentile: int) -> Blocks:
    """Each pass of a fio job as a round with one time: the pass's own percentile. Tasks are ``job read``."""
    blocks: dict[tuple[str, str], dict[int, Floats]] = {}
    for row in baseline_of(baseline):
        own = blocks.setdefault((f"{row.job} {row.op}", row.arm), {})
        own[row.round + 1] = np.array([getattr(row, f"p{percentile}_s")])  # + 1: the first pass is no warm-up
    return blocks


def failures(samples: pa.Table) -> Mapping[tuple[str, str], int]:
    """Measured requests that failed, by task and arm."""
    failed = samples.filter(pc.and_(is_measured(samples), pc.invert(samples["success"])))
    return Counter(zip(failed["task"].to_pylist(), failed["arm"].to_pylist(), strict=True))


def summarize(samples: pa.Table, scope: Scope = "all") -> tuple[Summary, ...]:
    """Percentiles, with intervals, of every task and arm with a successful measured request."""
    return summarize_blocks(measured_blocks(samples, scope), failures(samples), scope)


def summarize_blocks(
    blocks: Blocks,
    failed: Mapping[tuple[str, str], int],
    scope: Scope = "all",
    *,
    confidence: float = 0.95,
    starts: Starts = (),
) -> tuple[Summary, ...]:
    """``summarize`` from ``measured_blocks`` and ``failures``, for callers that have them."""
    return tuple(
        _summary(key, by_round, scope, failed.get(key, 0), confidence, starts)
        for key, by_round in blocks.items()
    )


def _summary(
    key: tuple[str, str],
    by_round: Mapping[int, Floats],
    scope: Scope,
    failed: int,
    confidence: float,
    starts: Starts,
) -> Summary:
    arm = ArmTimes([by_round[number] for number in sorted(by_round)])
    requests = len(arm.all)
    if starts:
        measured = by_start(starts, sorted(by_round))
        parts = [ArmTimes([by_round[number] for number in rounds]) for rounds in measured]
        percentiles = tuple(_over_starts(q, arm, parts, confidence) for q in PERCENTILES)
    else:
        percentiles = tuple(
            arm.interval(q, confidence)
            if is_known_alone(q, len(by_round)) and has_enough_requests(q, requests)
            else Estimate(arm.percentile(q))
            for q in PERCENTILES
        )
    return Summary(
        task=key[0],
        arm=key[1],
        scope=scope,
        rounds=len(by_round),
        requests=requests,
        failed=failed,
        percentiles=percentiles,
    )


def _over_starts(percentile: int, arm: ArmTimes, parts: Sequence[ArmTimes], confidence: float) -> Estimate:
    """An arm's percentile, with the interval from starts of its node."""
    value = arm.percentile(percentile)
    if len(parts) < MIN_STARTS or percentile > _HIGHEST_ALONE:
        return Estimate(value)
    if not has_enough_requests(percentile, min(len(part.all) for part in parts)):
        return Estimate(value)
    mean = Mean(tuple(math.log(part.percentile(percentile)) for part in parts)).ratio(confidence)
    return Estimate(value, min(value, mean.low or value), max(value, mean.high or value))


def is_known_alone(percentile: int, rounds: int) -> bool:
    """Whether there are enough rounds for an interval of an arm's own percentile."""
    return percentile <= _HIGHEST_ALONE and rounds >= (MIN_ROUNDS if percentile <= 50 else _MIN_ROUNDS_ALONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdStartCurve:
    """Cold-start curve of one task on one arm."""

    task: str
    arm: str
    requests: npt.NDArray[np.int64]  # number since the drop, from 1
    median_s: Floats  # median over rounds of the request with that number
    warm_s: float  # median of the last quarter of the curve
    meets: int | None  # first number from which the curve stays within 10 % of the warm level; None = not yet


def cold_starts(samples: pa.Table) -> tuple[ColdStartCurve, ...]:
    """Curves of tasks and arms whose requests follow one another without drops; else empty."""
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
