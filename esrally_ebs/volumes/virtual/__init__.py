"""Runs fio jobs on volumes of the catalog in virtual time: the emulator's limits and latencies, no sleeping.

A volume keeps its buckets from job to job, and an instance its clock and its own buckets, as real ones do. Of
the computer only the time between two I/Os and a block device's queue are modelled: no file system, no layout
of fio's file.
"""

import functools
import math
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from esrally_ebs.catalog.limits import Limit, Model, of_each
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.errors import PlanError
from esrally_ebs.model import VolumeSpec
from esrally_ebs.plan import BaselineJob
from esrally_ebs.units import format_bytes
from esrally_ebs.volumes.emulated.law.buckets import Buckets, buckets_of, fill, seconds_until_full
from esrally_ebs.volumes.virtual import kernel, machine_code
from esrally_ebs.volumes.virtual.arrays import arrays, beginning, devices_of, empty_tally, joined, lists
from esrally_ebs.volumes.virtual.output import fio_json
from esrally_ebs.volumes.virtual.state import FioJobs, Host, RandomDraws, Simulation, Volumes
from esrally_ebs.volumes.virtual.transfer import requests_of

# Time of fio and the kernel from the end of an I/O to the beginning of the clone's next: in the 2021
# article's 16 KiB rows with two jobs, latencies leave that much unexplained, 5 us on gp2 and 7 us on gp3.
BETWEEN_S = 6e-6
# With this and the queue of emulated/law/queue.py, latencies of published runs of 16 clones with 16 I/Os each
# (2020) are reproduced: see docs/internals/emulation.md.
AGAIN = 0.87
_MANY_REQUESTS = 200_000  # from here on, compiling pays off

Kernel = Callable[..., float]
_POOL = 1 << 18  # draws, reused from the start when used up
_ENDLESS = 1 << 62


class SimulatedInstance:
    """A computer with volumes: their common clock, and their shared limits."""

    def __init__(self, limits: tuple[Limit, ...] = ()) -> None:
        self.limits = limits
        self.buckets = buckets_of(limits, 0.0)
        self.clock_s = 0.0


class SimulatedVolume:
    """One volume of the catalog, or several striped; results are the same for the same ``seed``."""

    def __init__(self, spec: VolumeSpec, *, seed: int = 1, instance: SimulatedInstance | None = None) -> None:
        """Full buckets, credits as in the spec; on an instance of its own unless one is given.

        Raises PlanError if the type does not allow the spec.
        """
        self.spec = spec
        self.model: Model = model_for(spec)
        self.seed = seed
        self.instance = instance or SimulatedInstance(self.model.instance_limits)
        self.limits = of_each(self.model.limits, self.model.stripes)
        self.buckets = buckets_of(self.limits, self.instance.clock_s)
        self._scale_credits(spec.credits)

    @property
    def clock_s(self) -> float:
        return self.instance.clock_s

    def levels(self) -> dict[str, float]:
        """Tokens in each bucket, including the instance's; negative: debt."""
        limits = self.limits + self.instance.limits
        return {limit.name: level for limit, level in zip(limits, self._filled(), strict=True)}

    def rest(self, seconds: float) -> None:
        """Let time pass without I/O, for all volumes of the instance."""
        self.instance.clock_s += seconds

    def refill(self) -> float:
        """Rest until all buckets except credits are full, as a session does; returns the seconds.

        As in a session, a volume that began without credits has none again.
        """
        seconds = seconds_until_full(self.limits + self.instance.limits, self._filled())
        self.rest(seconds)
        if not self.spec.credits:
            self._filled()
            self._scale_credits(0.0)
        return seconds

    def run(
        self,
        job: BaselineJob,
        *,
        reads: int | None = None,
        compiled: bool | None = None,
        seconds: int = 0,
        untouched: bool = False,
    ) -> str:
        """Run one fio job from now on; returns fio's output for it, as JSON text.

        A mix's directions are drawn per I/O, or have exactly ``reads`` reads. ``compiled`` selects the
        kernel; by default, large jobs use the compiled one. The job's first ``seconds`` are also counted
        singly, under ``per_second``. ``untouched``: no block was ever written, which mattered in 2014.
        """
        task = VolumeJob(volume=self, job=job, reads=reads, untouched=untouched)
        (text,) = run_together([task], compiled=compiled, seconds=seconds)
        return text

    def _scale_credits(self, share: float) -> None:
        for i, limit in enumerate(self.limits):
            if limit.of_credits:
                self.buckets.levels[i] *= share

    def _filled(self) -> list[float]:
        fill(self.buckets, self.clock_s)
        fill(self.instance.buckets, self.clock_s)
        return [*self.buckets.levels, *self.instance.buckets.levels]


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeJob:
    """A job on a volume, with options of ``SimulatedVolume.run``."""

    volume: SimulatedVolume
    job: BaselineJob
    reads: int | None = None  # number of reads in a mix; None: drawn
    untouched: bool = False


def simulated_volumes(specs: Sequence[VolumeSpec], *, seed: int = 1) -> list[SimulatedVolume]:
    """A volume for each spec; those with the same instance share its limits and clock."""
    instances: dict[str, SimulatedInstance] = {}
    volumes = []
    for spec in specs:
        name = model_for(spec).instance
        volume = SimulatedVolume(spec, seed=seed, instance=instances.get(name))
        if name:
            instances.setdefault(name, volume.instance)
        volumes.append(volume)
    return volumes


def run_together(tasks: Sequence[VolumeJob], *, compiled: bool | None = None, seconds: int = 0) -> list[str]:
    """Run jobs that begin together on volumes of one instance; returns fio's output of each.

    ``seconds`` are counted singly for all jobs together. Waits for the instance, or for a volume that several
    jobs use, are of all these jobs together.
    """
    volumes = list(dict.fromkeys(task.volume for task in tasks))
    instance = volumes[0].instance
    load = load_of([task.job for task in tasks], [volumes.index(task.volume) for task in tasks])
    most_ios = sum(map(_most_ios, tasks))
    devices = devices_of([volume.model for volume in volumes])
    split = max(requests_of(devices, volumes.index(task.volume), task.job.bs) for task in tasks)
    if compiled is None:
        compiled = most_ios * split > _MANY_REQUESTS
    convert = arrays if compiled else lists
    buckets = convert(joined([*(volume.buckets for volume in volumes), instance.buckets], instance.clock_s))
    _hold_back_untouched(tasks, volumes, buckets)
    tally = convert(empty_tally(len(tasks), seconds))
    serve: Kernel = _compiled() if compiled else kernel.serve
    simulation = Simulation(
        volumes=Volumes(buckets, convert(devices), Host(len(instance.limits), BETWEEN_S, AGAIN)),
        load=convert(load),
        draws=convert(_draws_of(tasks, volumes[0].seed, most_ios, most_ios * split)),
        tally=tally,
        state=convert(beginning(devices, load)),
    )
    ended_s = float(serve(simulation))
    waited = _put_back(volumes, instance, buckets, ended_s)
    return [fio_json(task.job, number, tally, waited[task.volume]) for number, task in enumerate(tasks)]


def _put_back(
    volumes: Sequence[SimulatedVolume], instance: SimulatedInstance, buckets: Buckets, ended_s: float
) -> dict[SimulatedVolume, dict[str, float]]:
    """Store the buckets' final state, moved to the instance's time; returns waits by limit."""
    fill(buckets, ended_s)
    instance.clock_s += ended_s
    levels, waits = ([float(value) for value in values] for values in (buckets.levels, buckets.waited_s))
    first = 0
    waits_by_volume: dict[SimulatedVolume, dict[str, float]] = {}
    shared = len(levels) - len(instance.limits)
    parts: Sequence[SimulatedVolume | SimulatedInstance] = (*volumes, instance)
    for part in parts:
        last = first + len(part.limits)
        part.buckets.levels[:] = levels[first:last]
        part.buckets.filled_s[:] = [instance.clock_s] * (last - first)
        if isinstance(part, SimulatedVolume):
            names = [limit.name for limit in part.limits + instance.limits]
            waits_by_volume[part] = dict(zip(names, waits[first:last] + waits[shared:], strict=True))
        first = last
    return waits_by_volume


def _hold_back_untouched(
    tasks: Sequence[VolumeJob], volumes: Sequence[SimulatedVolume], buckets: Buckets
) -> None:
    """Lower the IOPS of volumes with blocks never written, at dates when that mattered."""
    names = [limit.name for volume in volumes for limit in volume.limits]
    for task in tasks:
        most = task.volume.model.untouched_iops
        if task.untouched and most is not None:
            first = sum(len(volume.limits) for volume in volumes[: volumes.index(task.volume)])
            i = names.index("iops", first)
            buckets.rates[i] = min(buckets.rates[i], most)  # type: ignore[index]


def _most_ios(task: VolumeJob) -> float:
    """Upper bound of the I/Os that a job does."""
    job, volume = task.job, task.volume
    if job.lasts_s is None:
        return ios_of(job)
    units = [1 if limit.counts == "operations" else job.bs for limit in volume.limits]
    states = zip(volume.limits, volume.buckets.levels, units, strict=True)
    most = min((level + limit.rate * job.lasts_s) / unit for limit, level, unit in states)
    return most * volume.model.stripes + job.numjobs * job.iodepth


@functools.cache
def _compiled() -> Kernel:
    return machine_code.compiled()


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


def _draws_of(tasks: Sequence[VolumeJob], seed: int, most_ios: float, requests: float) -> RandomDraws:
    """Random numbers for jobs that begin together, as arrays, enough for ``most_ios`` I/Os of ``requests``
    each; the same seed gives the same numbers.

    Latencies are drawn per arm and job, a mix's directions per job alone.
    """
    first = tasks[0]
    latencies = _generator(seed, first.volume.spec.name, first.job.name)
    writes = [_directions(task, seed) for task in tasks]
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
    """Raise PlanError if a job's file, shared by all clones as on devices, does not fit on the volume."""
    room = volume.stripes * volume.size_bytes
    if job.size > room:
        raise PlanError(
            f"baseline {job.name}: {format_bytes(job.size)} do not fit on arm {volume.name}"
            f" of {format_bytes(room)}; lower size"
        )


def ios_of(job: BaselineJob) -> int:
    """Number of I/Os of a job; unbounded if it has a runtime."""
    return job.numjobs * (job.size // job.bs) if job.runtime is None else _ENDLESS


def _directions(task: VolumeJob, seed: int) -> Any:  # noqa: ANN401 - a numpy array
    job = task.job
    if not job.is_mix:
        return np.array(["write" in job.rw])
    # fio draws directions alike in every run, so all arms get the same reads and writes.
    coin = _generator(seed, job.name)
    if task.reads is None:
        return coin.random(min(_POOL - 1, ios_of(job))) >= job.rwmixread / 100
    return coin.permutation(np.arange(ios_of(job)) >= task.reads)


def _generator(seed: int, *of: str) -> np.random.Generator:
    return np.random.default_rng([seed, *(zlib.crc32(name.encode()) for name in of)])
