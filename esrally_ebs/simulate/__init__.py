"""fio jobs on a volume of the catalog in virtual time: the emulator's limits and latencies, no sleeping.

A volume keeps its buckets and its clock from job to job, as an attached one does. Of the machine there is the
time between two I/Os, and no more: no file system, no queue in the block layer, no layout of fio's file.
"""

import functools
import math
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from esrally_ebs.emulator.catalog import Model, model_for
from esrally_ebs.emulator.limits import Buckets, Limit, buckets_of, fill, seconds_until_full
from esrally_ebs.errors import PlanError
from esrally_ebs.model import VolumeSpec
from esrally_ebs.plan import BaselineJob
from esrally_ebs.simulate import kernel
from esrally_ebs.simulate.output import fio_json
from esrally_ebs.units import format_bytes

# What fio and the kernel take from the end of one I/O to the beginning of the clone's next: the latencies of
# the 2021 article leave so much open in its 16 KiB rows with two jobs, 5 us on gp2 and 7 us on gp3.
BETWEEN_S = 6e-6
_POOL = 1 << 18  # draws; used again when they are used up
_MANY_IOS = 500_000  # from here on compiling pays

Convert = Callable[[Any], Any]  # a list to what the kernel takes: an array, or the list itself
Kernel = Callable[[kernel.VolumeState, kernel.Load, kernel.Draws, kernel.Tally], float]


class SimulatedVolume:
    """One volume of the catalog; the same ``seed`` gives the same figures."""

    def __init__(self, spec: VolumeSpec, *, seed: int = 1) -> None:
        """Full buckets, and credits as the spec says; PlanError when the type does not allow the spec."""
        self.spec = spec
        self.model: Model = model_for(spec)
        self.clock_s = 0.0
        self._seed = seed
        self._limits: tuple[Limit, ...] = self.model.limits + self.model.instance_limits
        self._buckets = buckets_of(self._limits, 0.0)
        for i, limit in enumerate(self.model.limits):
            if limit.of_credits:
                self._buckets.levels[i] *= spec.credits

    def levels(self) -> dict[str, float]:
        """Tokens in each bucket, negative while in debt."""
        fill(self._buckets, self.clock_s)
        return {limit.name: level for limit, level in zip(self._limits, self._buckets.levels, strict=True)}

    def rest(self, seconds: float) -> None:
        """Let time pass without I/O."""
        self.clock_s += seconds

    def refill(self) -> float:
        """Rest until all buckets but the credits are full, as a session does; the seconds it took."""
        seconds = seconds_until_full(self._limits, list(self.levels().values()))
        self.rest(seconds)
        return seconds

    def run(
        self,
        job: BaselineJob,
        *,
        reads: int | None = None,
        compiled: bool | None = None,
        seconds: int = 0,
    ) -> str:
        """Run one fio job from now on; what fio would have written, as JSON text.

        A mix is drawn I/O by I/O with even chances, or dealt with exactly ``reads`` reads. ``compiled``
        chooses the kernel; by default a large job takes the compiled one. The first ``seconds`` of the job
        are also counted one by one, under ``per_second``. Raises PlanError for a job that does no I/O.
        """
        load = load_of(job)
        if compiled is None:
            compiled = self._most_ios(load) > _MANY_IOS
        convert: Convert = np.asarray if compiled else list
        draws = self._draws(job, load, reads)
        state = self._state(convert)
        tally = kernel.Tally(
            bins=convert([[0] * kernel.BINS, [0] * kernel.BINS]),
            total_s=convert([0.0, 0.0]),
            most_s=convert([0.0, 0.0]),
            least_s=convert([math.inf, math.inf]),
            done_in_second=_zeros(0, seconds, compiled),
            latency_in_second=_zeros(0.0, seconds, compiled),
        )
        serve: Kernel = _compiled() if compiled else kernel.serve
        ended_s = float(serve(state, load, kernel.Draws(*draws) if compiled else _plain(*draws), tally))
        self._take_over(state.buckets, ended_s)
        return fio_json(
            job.name,
            job.model_dump(mode="json", exclude={"name", "repeat"}, exclude_none=True),
            job.bs,
            tally,
            ended_s,
            {limit.name: float(w) for limit, w in zip(self._limits, state.buckets.waited_s, strict=True)},
        )

    def _most_ios(self, load: kernel.Load) -> float:
        """No job does more I/Os than this."""
        bounds = [float(load.clones * load.ios_per_clone)]
        if math.isfinite(load.until_s):
            for limit, level in zip(self._limits, self._buckets.levels, strict=True):
                size = 1 if limit.counts == "operations" else load.block_bytes
                bounds.append((level + limit.rate * load.until_s) / size + load.clones * load.depth)
        return min(bounds)

    def _state(self, convert: Convert) -> kernel.VolumeState:
        """The volume at the job's start, which is time 0 to the kernel."""
        fill(self._buckets, self.clock_s)
        none = [0.0] * len(self._limits)
        buckets = self._buckets._replace(filled_s=none, waited_s=list(none))
        accounting = self.model.accounting
        services = (self.model.read, self.model.write)
        merge_over = accounting.merge_over_bytes
        return kernel.VolumeState(
            buckets=Buckets(*map(convert, buckets)),
            max_io_bytes=accounting.max_io_bytes,
            merge_over_bytes=-1 if merge_over is None else merge_over,
            least_bytes=accounting.least_bytes,
            base_s=convert([service.line_s()[0] for service in services]),
            per_byte_s=convert([service.line_s()[1] for service in services]),
            sigma=convert([service.sigma for service in services]),
        )

    def _take_over(self, buckets: Buckets, ended_s: float) -> None:
        """What a job left of the buckets, from its own time to the volume's."""
        fill(buckets, ended_s)
        self.clock_s += ended_s
        self._buckets.levels[:] = [float(level) for level in buckets.levels]
        self._buckets.filled_s[:] = [self.clock_s] * len(self._limits)

    def _draws(self, job: BaselineJob, load: kernel.Load, reads: int | None) -> tuple[Any, Any]:
        """Arrays of standard normal numbers and of directions."""
        requests = load.clones * load.ios_per_clone * -(-load.block_bytes // kernel.DEVICE_REQUEST_BYTES)
        normals = self._generator(self.spec.name, job.name).standard_normal(min(_POOL, requests))
        if job.rw not in ("readwrite", "randrw"):
            return normals, np.array(["write" in job.rw])
        # fio tosses its coin alike in every run, so all arms get the same reads and writes.
        coin = self._generator(job.name)
        if reads is None:
            return normals, coin.random(min(_POOL - 1, requests)) < 0.5
        return normals, coin.permutation(np.arange(load.clones * load.ios_per_clone) >= reads)

    def _generator(self, *of: str) -> np.random.Generator:
        return np.random.default_rng([self._seed, *(zlib.crc32(name.encode()) for name in of)])


def load_of(job: BaselineJob) -> kernel.Load:
    """A job of a plan as numbers; a job with a runtime goes round its file until the time is up."""
    if job.bs > job.size:
        raise PlanError(
            f"baseline {job.name}: blocks of {format_bytes(job.bs)} do not fit into {format_bytes(job.size)};"
            " raise size or lower bs"
        )
    return kernel.Load(
        clones=job.numjobs,
        depth=1 if job.engine == "psync" else job.iodepth,
        block_bytes=job.bs,
        ios_per_clone=job.size // job.bs if job.runtime is None else 1 << 62,
        until_s=math.inf if job.runtime is None else job.runtime,
        sequential=not job.rw.startswith("rand"),
        file_bytes=job.size,
        between_s=BETWEEN_S,
    )


def _zeros(zero: float, count: int, compiled: bool) -> Any:  # noqa: ANN401 - an array or a list
    # numba must see the type of the elements even where there are none
    return np.full(count, zero) if compiled else [zero] * count


def _plain(normals: Any, writes: Any) -> kernel.Draws:  # noqa: ANN401 - numpy arrays
    return kernel.Draws(normals.tolist(), writes.tolist())


@functools.cache
def _compiled() -> Kernel:
    return kernel.compiled()
