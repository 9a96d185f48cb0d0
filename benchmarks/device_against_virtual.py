"""The same plan on emulated devices and in virtual time: IOPS and median latency of every job, and the ratio.

    python benchmarks/device_against_virtual.py [PLAN [JOB ...]]

Needs root and fio. By default the jobs of ``gp2-vs-gp3`` that take seconds, in about two minutes: three runs
of each on the device, as a session makes them (buckets full, file laid out), and 25 in virtual time; medians.
In virtual time as many I/Os of a mix are reads as on the device, since that is fio's toss of a coin.
"""

import json
import os
import statistics
import sys
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from esrally_ebs.machine.resources import plan_path
from esrally_ebs.model import BaselineRow, Volume
from esrally_ebs.plan import BaselineJob, load_plan
from esrally_ebs.session import clean
from esrally_ebs.store import running
from esrally_ebs.volumes.backends import attach, detach, wait_refilled
from esrally_ebs.volumes.baseline import rows_of, run_job
from esrally_ebs.volumes.emulated.control import change
from esrally_ebs.volumes.virtual import SimulatedVolume

_PLAN = "gp2-vs-gp3"
_JOBS = ("seq-rw-16k-x2", "seq-rw-256k-x2", "cold-search-4k", "cold-search-16k")
_DEVICE_RUNS, _VIRTUAL_RUNS = 3, 25
_IOPS_TOLERANCE, _P50_TOLERANCE = 0.03, 0.08


class Figures(NamedTuple):
    """One run: operations a second of both directions together, and the median latency of each."""

    iops: float
    p50_us: dict[str, float]


def main() -> None:
    """Measure, simulate, and print the table."""
    name, *wanted = sys.argv[1:] or [_PLAN, *_JOBS]
    plan = load_plan(plan_path(name))
    jobs = [job for job in plan.baseline if job.name in wanted or not wanted]
    print(f"{'arm':<8}{'job':<20}{'figure':<14}{'device':>10}{'virtual':>10}{'off by':>9}")
    outside = 0
    directory = running.begin(f"device-{os.getpid()}")  # so that nobody's clean takes it for abandoned
    try:
        for spec in plan.arm:
            volume = attach(spec, directory / spec.name)
            outside += sum(_compared(volume, job) for job in jobs)
            detach(directory / spec.name)
    finally:
        clean.take_down(directory.name)
    print(f"outside {_IOPS_TOLERANCE:.0%} of IOPS or {_P50_TOLERANCE:.0%} of p50: {outside}")


def _compared(volume: Volume, job: BaselineJob) -> int:
    texts = [_on_device(volume, job) for _ in range(_DEVICE_RUNS)]
    reads = None
    if job.rw in ("readwrite", "randrw") and job.runtime is None:
        reads = json.loads(texts[0])["jobs"][0]["read"]["total_ios"]
    simulated = [
        SimulatedVolume(volume.spec, seed=seed).run(job, reads=reads) for seed in range(1, 1 + _VIRTUAL_RUNS)
    ]
    device, virtual = (
        [_figures(rows_of(text, job, volume.spec.name, 0)) for text in runs] for runs in (texts, simulated)
    )
    outside = _row(volume, job, "IOPS", [f.iops for f in device], [f.iops for f in virtual], _IOPS_TOLERANCE)
    for op in device[0].p50_us:
        ours, theirs = ([figures.p50_us[op] for figures in runs] for runs in (device, virtual))
        outside += _row(volume, job, f"{op} p50 us", ours, theirs, _P50_TOLERANCE)
    return outside


def _on_device(volume: Volume, job: BaselineJob) -> str:
    assert volume.control is not None
    change(volume.control, credits=1.0)
    pid_file = volume.control.parent / "fio.pid"
    text, _ = run_job(job, volume, pid_file=pid_file, refill=partial(wait_refilled, volume))
    pid_file.unlink(missing_ok=True)
    return text


def _figures(rows: Sequence[BaselineRow]) -> Figures:
    return Figures(sum(row.iops for row in rows), {row.op: row.p50_s * 1e6 for row in rows})


def _row(
    volume: Volume, job: BaselineJob, what: str, ours: list[float], theirs: list[float], tolerance: float
) -> int:
    device, virtual = statistics.median(ours), statistics.median(theirs)
    error = device / virtual - 1
    mark = "*" if abs(error) > tolerance else ""
    print(
        f"{volume.spec.name:<8}{job.name:<20}{what:<14}{device:>10,.0f}{virtual:>10,.0f}{error:>+9.1%}{mark}",
        flush=True,
    )
    return abs(error) > tolerance


if __name__ == "__main__":
    main()
