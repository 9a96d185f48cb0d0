"""Published rows as experiments in virtual time: a row in, the simulated runs out.

Rows of one experiment share its runs.
"""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from published_rows import Row, job_of, spec_of, without_credits

from esrally_ebs.plan import BaselineJob
from esrally_ebs.units import GIB, KIB, MIB
from esrally_ebs.volumes.virtual import SimulatedInstance, SimulatedVolume
from esrally_ebs.volumes.virtual.state import REQUEST_BYTES

# fio's own start between two runs on a volume, as the gaps of the runs of 2020 show.
_START_S = 0.4
# The Xen block device of 2014 takes 11 pages per request; its queue held 144 of them (Little's law: 480 ms at
# 300 IOPS, 72 ms at 2000).
_XEN_REQUEST, _XEN_QUEUE = 44 * KIB, 144
_IOS, _MOST_RUNS = 100_000, 40  # percentiles of a small job scatter: run it so often, and take the median


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The runs of an experiment: fio's JSON of each, parsed."""

    runs: tuple[Mapping[str, Any], ...]
    block_bytes: int
    request_bytes: int  # the largest that reaches the volume

    def median(self, of: Any) -> float:  # noqa: ANN401 - a function of one run
        """The median over the runs of what ``of`` finds in one."""
        return statistics.median(of(run) for run in self.runs)


def key_of(row: Row) -> str:
    """The same for all rows of an experiment."""
    what = [row.get(name) for name in ("volume", "instance", "workload", "date")]
    workload = row.get("workload")
    tool = str(workload.get("tool") if isinstance(workload, dict) else "")
    # one run of iotune is four experiments, and credits may be there or not
    differs = [row["metric"] if "iotune" in tool else "", without_credits(row)]
    return json.dumps([*what, *differs], sort_keys=True)


def run(row: Row, siblings: Sequence[Row]) -> Outcome:
    """Run a row's experiment; ``siblings`` are the rows of the same one. PlanError when it cannot be."""
    spec, job = spec_of(row), job_of(row)
    gap_s, before = _before(row["workload"], job)
    ios = math.inf if job.runtime is not None else job.numjobs * (job.size // job.bs)
    count = 1 if math.isinf(ios) else max(1, min(_MOST_RUNS, round(_IOS / ios)))
    reads = None if math.isinf(ios) else _reads(siblings, int(ios))
    runs = []
    for seed in range(1, count + 1):
        volume = SimulatedVolume(spec, seed=seed)
        for job_before in before:
            volume.run(job_before, compiled=True)
            volume.rest(gap_s)
        runs.append(json.loads(volume.run(job, reads=reads, compiled=True)))
    request_bytes = max(REQUEST_BYTES, volume.model.accounting.max_io_bytes)
    return Outcome(runs=tuple(runs), block_bytes=job.bs, request_bytes=request_bytes)


def _before(workload: Row, job: BaselineJob) -> tuple[float, list[BaselineJob]]:
    """The gap before a run, and the runs that came before it on the volume.

    A gap alone is of a series in which blocks double; else the row says that the other direction came before,
    or that the file was written.
    """
    if workload.get("idle_gap_before_s") is not None:
        blocks = [job.bs // 4, job.bs // 2]
        series = [job.model_copy(update={"bs": block}) for block in blocks if block >= 4 * KIB]
        return workload["idle_gap_before_s"], series or [job]
    if workload.get("run_right_after"):
        return _START_S, [job.model_copy(update={"rw": "read" if "write" in job.rw else "write"})]
    if workload.get("laid_out_just_before"):
        laid_out = {"rw": "write", "bs": MIB, "numjobs": 1, "runtime": None}
        return _START_S, [job.model_copy(update=laid_out)]
    return 0.0, []


def _reads(siblings: Sequence[Row], ios: int) -> int | None:
    """How many I/Os of a mix were reads, when both directions are published: fio's coin, not the volume's."""
    values = {row["metric"]: row["value"] for row in siblings}
    for read, write in (("read_bw", "write_bw"), ("read_iops", "write_iops")):
        if read in values and write in values:
            return round(ios * values[read] / (values[read] + values[write]))
    return None


@dataclass(frozen=True, kw_only=True)
class Burst:
    """The experiment of 2014 on a gp2 volume: written once, then until the credits end, then again."""

    prewarm_iops: float
    prewarm_await_s: float
    burst_iops: float
    burst_await_s: float
    after_iops: float
    after_await_s: float
    burst_s: float  # with the time of the first writing
    again_s: float  # of burst after two hours without I/O
    refill_s: float


def burst(row: Row) -> Burst:
    """Write a whole volume once, go on until its credits end, rest for two hours, go on."""
    spec = spec_of(row)
    spec = replace(spec, name="burst")
    volume = SimulatedVolume(spec, instance=SimulatedInstance(SimulatedVolume(spec).instance.limits))
    first = _dd(volume, spec.size_bytes / _XEN_REQUEST / 2000, untouched=True)
    before_s = volume.clock_s
    second, end_s = _until_credits_end(volume)
    after = _dd(volume, 300)
    volume.rest(7200)
    _, again_s = _until_credits_end(volume)
    credit = next(limit for limit in volume.limits if limit.of_credits)
    return Burst(
        prewarm_iops=first["iops"],
        prewarm_await_s=first["clat_ns"]["mean"] / 1e9,
        burst_iops=second["iops"],
        burst_await_s=second["clat_ns"]["mean"] / 1e9,
        after_iops=after["iops"],
        after_await_s=after["clat_ns"]["mean"] / 1e9,
        burst_s=before_s + end_s,
        again_s=again_s,
        refill_s=credit.capacity / credit.rate,
    )


def _dd(volume: SimulatedVolume, seconds: float, *, untouched: bool = False) -> Mapping[str, Any]:
    job = BaselineJob(name="dd", rw="write", bs=_XEN_REQUEST, numjobs=_XEN_QUEUE, size=GIB, runtime=seconds)
    written: Mapping[str, Any] = json.loads(volume.run(job, compiled=True, untouched=untouched))["jobs"][0]
    return written["write"]  # type: ignore[no-any-return]


def _until_credits_end(volume: SimulatedVolume) -> tuple[Mapping[str, Any], float]:
    """What the last whole five minutes of the burst were, and how long all of it was."""
    start_s = volume.clock_s
    whole: Mapping[str, Any] = {}
    while True:
        minute = _dd(volume, 60)
        if volume.levels()["credits"] < minute["iops"]:  # less than a second's worth
            return whole, volume.clock_s - start_s
        whole = minute
