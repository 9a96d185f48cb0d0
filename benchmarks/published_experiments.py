"""Published rows as experiments in virtual time: what a row says of volume, instance and workload in, the
simulated runs out.

Rows of one experiment share its runs. What a row leaves out is filled in by the rules below, never by row.
"""

import json
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from esrally_ebs.emulator.generations import instance_named
from esrally_ebs.errors import PlanError
from esrally_ebs.model import VolumeSpec
from esrally_ebs.plan import BaselineJob
from esrally_ebs.simulate import SimulatedInstance, SimulatedVolume
from esrally_ebs.units import GIB, KIB, MIB

Row = Mapping[str, Any]

# fio's own start between two runs on a volume, as the gaps of the runs of 2020 show.
_START_S = 0.4
# A row without depth, count and duration of its fio is taken as one that keeps the volume busy.
_BUSY = {"numjobs": 1, "iodepth": 64, "engine": "libaio", "runtime": 60.0}
# An NFS client reads ahead 15 MiB in requests of 1 MiB (rule 53 of amazon-ec2-utils); writes take as many.
_NFS_DEPTH = 15
# The Xen block device of 2014 takes 11 pages per request; its queue held 144 of them (Little's law: 480 ms at
# 300 IOPS, 72 ms at 2000).
_XEN_REQUEST, _XEN_QUEUE = 44 * KIB, 144
_IOS, _MOST_RUNS = 100_000, 40  # percentiles of a small job scatter: run it so often, and take the median


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The runs of an experiment: fio's JSON of each, parsed."""

    runs: tuple[Mapping[str, Any], ...]
    block_bytes: int

    def median(self, of: Any) -> float:  # noqa: ANN401 - a function of one run
        """The median over the runs of what ``of`` finds in one."""
        return statistics.median(of(run) for run in self.runs)


def key_of(row: Row) -> str:
    """The same for all rows of an experiment."""
    return json.dumps([row.get(name) for name in ("volume", "instance", "workload", "date")], sort_keys=True)


def spec_of(row: Row) -> VolumeSpec:
    """The volume of a row, with its date and instance; PlanError when the catalog does not have it."""
    volume = row["volume"]
    type_ = volume["type"].split()[0]
    size_gib = volume.get("size_gib") or volume.get("size_gb") or (100 if type_ == "gp2" else 1000)
    bought = type_ not in ("gp2", "st1", "sc1", "standard", "efs")
    throughput = volume.get("throughput_mib_s") if type_ in ("gp3", "efs") else None
    return VolumeSpec(
        name=row.get("id") or row.get("study") or "row",
        type=type_,
        size_bytes=int(size_gib * GIB),
        iops=volume.get("iops") if bought else None,
        throughput_bytes_per_s=None if throughput is None else int(throughput * MIB),
        encrypted=bool(volume.get("encrypted", False)),  # AWS's default
        date=str(row["date"])[:10] if row.get("date") else None,
        instance=_instance(row),
        stripes=volume.get("count", 1),
        mode=volume.get("mode"),
        one_zone="one zone" in str(volume.get("storage_class", "")).lower(),
    )


def _instance(row: Row) -> str | None:
    """The instance when the catalog has it; EBS shared the network of one not said to be EBS-optimized."""
    given = row.get("instance") or {}
    name = str(given.get("type", "")).split()[0] if given.get("type") else ""
    shared = f"{name}/shared"
    for candidate in (name,) if given.get("ebs_optimized") else (shared, name):
        try:
            instance_named(candidate, "row")
        except PlanError:
            continue
        return candidate
    return None


def job_of(row: Row) -> BaselineJob:
    """The fio job that does what the row's workload did."""
    workload = row["workload"]
    tool = str(workload.get("tool", ""))
    options: dict[str, Any] = {"name": "job", "rw": _direction(workload), "bs": _block(workload)}
    if tool == "dd":
        options |= {"bs": MIB, "engine": "libaio", "iodepth": _NFS_DEPTH}
        options["size"] = int(workload.get("file_gib", 1) * GIB)
    elif tool.startswith("CrystalDiskMark"):
        options |= {"engine": "libaio", "iodepth": workload.get("queues", 1), "runtime": 5.0, "size": GIB}
        options["numjobs"] = workload.get("threads", 1)
    elif tool.startswith("iotune"):
        reads = "read" if "read" in row["metric"] else "write"
        small = "iops" in row["metric"]
        options |= {"rw": f"rand{reads}" if small else reads, "bs": 4 * KIB if small else MIB}
        options |= {"engine": "libaio", "iodepth": 128, "runtime": 1.0, "size": GIB}
    else:
        options |= _fio(workload)
    return BaselineJob.model_validate(options)


def _fio(workload: Row) -> dict[str, Any]:
    if not {"numjobs", "iodepth", "time_based", "size_mib_per_job", "size"} & workload.keys():
        return {**_BUSY, "size": GIB, "rwmixread": workload.get("rwmixread", 50)}
    depth = workload.get("iodepth", 1)
    asynchronous = "aio" in str(workload.get("ioengine", "")) or "uring" in str(workload.get("ioengine", ""))
    options: dict[str, Any] = {
        "numjobs": workload.get("numjobs", 1),
        "iodepth": depth,
        "engine": "libaio" if asynchronous or depth > 1 else "psync",
        "size": _size(workload),
        "rwmixread": workload.get("rwmixread", 50),
    }
    runtime = workload.get("time_based") or workload.get("runtime")
    return options | ({"runtime": float(runtime)} if runtime else {})


def _size(workload: Row) -> int:
    if "size_mib_per_job" in workload:
        return int(workload["size_mib_per_job"] * MIB)
    found = re.match(r"\s*([\d.]+)\s*([KMGT])", str(workload.get("size", "")))
    return int(float(found[1]) * 1024 ** ("KMGT".index(found[2]) + 1)) if found else GIB


def _block(workload: Row) -> int:
    if "bs_kib" in workload:
        return int(workload["bs_kib"] * KIB)
    found = re.match(r"\s*([\d.]+)\s*([KM])i?B?", str(workload.get("bs", "")))
    return int(float(found[1]) * (KIB if found[2] == "K" else MIB)) if found else 128 * KIB


def _direction(workload: Row) -> str:
    text = str(workload.get("rw", "randread"))
    return next(
        rw for rw in ("readwrite", "randread", "randwrite", "randrw", "read", "write") if text.startswith(rw)
    )


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
    return Outcome(runs=tuple(runs), block_bytes=job.bs)


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
    found = {row["metric"]: row["value"] for row in siblings}
    for read, write in (("read_bw", "write_bw"), ("read_iops", "write_iops")):
        if read in found and write in found:
            return round(ios * found[read] / (found[read] + found[write]))
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
        found = _dd(volume, 60)
        if volume.levels()["credits"] < found["iops"]:  # less than a second's worth
            return whole, volume.clock_s - start_s
        whole = found
