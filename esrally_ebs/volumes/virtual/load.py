"""A plan's fio jobs as the numbers that the kernel works on."""

import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from esrally_ebs.errors import PlanError
from esrally_ebs.model import VolumeSpec
from esrally_ebs.plan import BaselineJob
from esrally_ebs.units import format_bytes
from esrally_ebs.volumes.virtual.state import FioJobs, RandomDraws

_POOL = 1 << 18  # draws; used again when they are used up
_ENDLESS = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Whose chance it is: latencies are drawn per arm and job, the coin of a mix per job alone."""

    job: BaselineJob
    arm: str
    reads: int | None  # how many of a mix's I/Os are reads; None = tossed


def groups(jobs: Iterable[BaselineJob]) -> list[list[BaselineJob]]:
    """Jobs that run together: one without ``stonewall`` begins with the one before it."""
    together: list[list[BaselineJob]] = []
    for job in jobs:
        if job.stonewall or not together:
            together.append([])
        together[-1].append(job)
    return together


def load_of(jobs: Sequence[BaselineJob], devices: Sequence[int]) -> FioJobs:
    """Jobs that begin together, each on the device beside it; one with a runtime goes round its file until
    the time is up.
    """
    return FioJobs(
        device=list(devices),
        clones=[job.numjobs for job in jobs],
        depth=[job.in_flight for job in jobs],
        sync=[job.is_blocking for job in jobs],
        block_bytes=[job.bs for job in jobs],
        ios_per_clone=[job.size // job.bs if job.runtime is None else _ENDLESS for job in jobs],
        from_s=[job.ramp_time for job in jobs],
        until_s=[math.inf if job.lasts_s is None else job.lasts_s for job in jobs],
        gap_s=[job.gap_s for job in jobs],
        sequential=[not job.rw.startswith("rand") for job in jobs],
        file_bytes=[job.size for job in jobs],
    )


def draws_of(drawn: Sequence[Drawn], seed: int, most_ios: float, requests: float) -> RandomDraws:
    """Chance for jobs that begin together and do no more than ``most_ios``, and these of as many requests, as
    arrays; the same seed gives the same.
    """
    first = drawn[0]
    latencies = _generator(seed, first.arm, first.job.name)
    writes = [_directions(of, seed) for of in drawn]
    counts = [len(directions) for directions in writes]
    columns: Sequence[Any] = (
        latencies.standard_normal(int(min(_POOL, requests))),
        latencies.random(int(min(_POOL - 1, 2 * most_ios))),
        np.concatenate(writes),
        np.cumsum([0, *counts[:-1]]),
        np.array(counts),
    )
    return RandomDraws(*columns)


def check_room(job: BaselineJob, volume: VolumeSpec) -> None:
    """Refuse a job whose files, one of each clone, do not fit on the volume; PlanError."""
    files, room = job.numjobs * job.size, volume.stripes * volume.size_bytes
    if files > room:
        raise PlanError(
            f"baseline {job.name}: {job.numjobs} x {format_bytes(job.size)} do not fit on arm {volume.name}"
            f" of {format_bytes(room)}; lower size or numjobs"
        )


def ios_of(job: BaselineJob) -> int:
    """How many I/Os a job does, endless for one with a runtime."""
    return job.numjobs * (job.size // job.bs) if job.runtime is None else _ENDLESS


def _directions(of: Drawn, seed: int) -> Any:  # noqa: ANN401 - a numpy array
    job = of.job
    if not job.is_mix:
        return np.array(["write" in job.rw])
    # fio tosses its coin alike in every run, so all arms get the same reads and writes.
    coin = _generator(seed, job.name)
    if of.reads is None:
        return coin.random(min(_POOL - 1, ios_of(job))) >= job.rwmixread / 100
    return coin.permutation(np.arange(ios_of(job)) >= of.reads)


def _generator(seed: int, *of: str) -> np.random.Generator:
    return np.random.default_rng([seed, *(zlib.crc32(name.encode()) for name in of)])
