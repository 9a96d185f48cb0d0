"""Runs a study's jobs in virtual time (on devices: ``devices``), and derives figures from the runs."""

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from esrally_ebs.model import VolumeSpec, of_any
from esrally_ebs.plan import BaselineJob, Plan
from esrally_ebs.report.model import Curve, Plot, curve_through
from esrally_ebs.volumes.fio import FioDirection, parse_fio
from esrally_ebs.volumes.virtual import SimulatedInstance, SimulatedVolume

# Percentiles of a small job's thousand I/Os vary by some per cent, so it is repeated more often.
_SMALL_IOS = 200_000
PREWARM = "prewarm"
_FASTER = 1.2  # relative to the baseline: a second that includes some of the burst
_RUNS = 3  # of a job with a runtime, or with many I/Os
_LEAST_RUNS = 5  # of a small job


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    arm: str
    job: str
    block_bytes: int
    directions: tuple[FioDirection, ...]
    waited_s: Mapping[str, float]  # by limit: seconds that I/Os waited for it, added up over all I/Os
    per_second: Sequence[tuple[int, float]] = ()  # per second: I/Os done, and their latencies added up

    @property
    def ios(self) -> int:
        return sum(direction.ios for direction in self.directions)

    @property
    def latency_s(self) -> float:
        """Latencies of all I/Os, added up."""
        return sum(direction.ios * direction.mean_s for direction in self.directions)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPhase:
    """A period under load, second by second."""

    name: str
    start_s: int  # on the study's clock
    seconds: Sequence[tuple[int, float]]  # per second: I/Os done, and their latencies added up

    def burst_s(self, baseline: float) -> float:
        """Seconds above the baseline: I/Os in excess of it, divided by those of a median fast second."""
        fast = [done for done, _ in self.seconds if done > _FASTER * baseline]
        if not fast:
            return 0.0
        return sum(done - baseline for done in fast) / (statistics.median(fast) - baseline)

    def part(self, begin_s: int, end_s: int) -> "LoadPhase":
        """A part of its seconds."""
        return replace(self, start_s=self.start_s + begin_s, seconds=self.seconds[begin_s:end_s])

    @property
    def iops(self) -> float:
        """I/Os in a median second."""
        return float(statistics.median(done for done, _ in self.seconds))

    @property
    def await_s(self) -> float:
        """Mean latency, as sar's await."""
        done = sum(count for count, _ in self.seconds)
        return sum(latency for _, latency in self.seconds) / done


class VirtualRunner:
    """Virtual time: every job on its own volume, with full buckets."""

    virtual = True
    scale = 1  # divides the plan's credits and seconds in phases

    def __init__(self) -> None:
        self._counts: list[int] = []

    @property
    def how(self) -> str:
        """How the figures were made, in one line for people."""
        least, most = min(self._counts, default=1), max(self._counts, default=1)
        runs = f"{least} to {most} runs" if least < most else f"{most} runs" if most > 1 else "one run"
        return f"simulated in virtual time from the volume models, emulated arms; median of {runs} of a job"

    def jobs(self, plan: Plan, reads: Mapping[str, float]) -> list[Run]:
        """Each job on each arm; ``reads``, by job: number of its I/Os that are reads, or a share below 1."""
        return [
            run
            for spec in plan.arm
            for job in plan.baseline
            for run in self._of_job(spec, job, reads.get(job.name))
        ]

    def phases(self, plan: Plan) -> list[LoadPhase]:
        """The jobs on the first arm one after another, with their rests, observed every second.

        A job called prewarm gets blocks that were never written.
        """
        volume = SimulatedVolume(plan.arm[0])
        phases = []
        for job in plan.baseline:
            volume.rest(job.rest)
            start_s = round(volume.clock_s)
            seconds = int(job.runtime or 0)
            run = simulated_on(volume, job, seconds=seconds, untouched=job.name == PREWARM)
            phases.append(LoadPhase(name=job.name, start_s=start_s, seconds=run.per_second))
        return phases

    def _of_job(self, spec: VolumeSpec, job: BaselineJob, reads: float | None) -> Iterator[Run]:
        ios = job.numjobs * job.size // job.bs
        small = job.runtime is None and ios < _SMALL_IOS
        runs = max(_LEAST_RUNS, -(-_SMALL_IOS // ios)) if small else _RUNS
        if job.runtime is None and job.bs * ios > 1 << 36:
            runs = 1  # with 64 GiB, chance is negligible
        self._counts.append(runs)
        for number in range(1, 1 + runs):
            yield simulated(spec, job, number=number, reads=reads)


def simulated(
    spec: VolumeSpec,
    job: BaselineJob,
    *,
    number: int = 1,
    reads: float | None = None,
    instance: SimulatedInstance | None = None,
    compiled: bool | None = True,
) -> Run:
    """One job in virtual time on its own volume."""
    volume = SimulatedVolume(spec, seed=number, instance=instance)
    return simulated_on(volume, job, reads=reads, compiled=compiled)


def simulated_on(
    volume: SimulatedVolume,
    job: BaselineJob,
    *,
    reads: float | None = None,
    seconds: int = 0,
    untouched: bool = False,
    compiled: bool | None = True,
) -> Run:
    """One job in virtual time on a volume in its current state; ``seconds`` of it are also counted singly.
    Always compiled, as all runs of a study share the time of compiling.
    """
    text = volume.run(job, reads=_count(job, reads), compiled=compiled, seconds=seconds, untouched=untouched)
    return run_of(text, volume.spec.name, job)


def run_of(text: str, arm: str, job: BaselineJob, waited_s: Mapping[str, float] | None = None) -> Run:
    """A run from fio's real or simulated output; waits that it lacks are in ``waited_s``."""
    document: Mapping[str, Any] = json.loads(text[text.index("{") :])
    counted = document.get("per_second", {"ios": (), "latency_s": ()})
    return Run(
        arm=arm,
        job=job.name,
        block_bytes=job.bs,
        directions=tuple(parse_fio(text, f"fio job {job.name} on {arm}")),
        waited_s=_unstriped(waited_s or document.get("limits", {}).get("waited_s", {})),
        per_second=list(zip(counted["ios"], counted["latency_s"], strict=True)),
    )


def _count(job: BaselineJob, reads: float | None) -> int | None:
    if reads is None or job.runtime is not None:
        return None
    total = job.numjobs * job.size // job.bs
    return round(reads * total) if reads < 1 else int(reads)


def _unstriped(waited_s: Mapping[str, float]) -> dict[str, float]:
    """Waits for the limits of striped volumes, added up by limit."""
    together: dict[str, float] = {}
    for name, seconds in waited_s.items():
        together[of_any(name)] = together.get(of_any(name), 0.0) + seconds
    return together


def grouped(runs: Iterable[Run]) -> dict[tuple[str, str], list[Run]]:
    """Runs by arm and job, in order of appearance."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.arm, run.job), []).append(run)
    return groups


def observed(runs: Iterable[Run]) -> dict[tuple[str, str, str], float]:
    """By arm, job and kind: IOPS, throughput and await over both directions, and of each direction."""
    figures: dict[tuple[str, str, str], float] = {}
    for (arm, job), group in grouped(runs).items():
        figures[arm, job, "iops"] = statistics.median(iops_of(run) for run in group)
        figures[arm, job, "bandwidth"] = statistics.median(bandwidth_of(run) for run in group)
        figures[arm, job, "await"] = statistics.median(run.latency_s / run.ios for run in group)
        for op in dict.fromkeys(direction.op for run in group for direction in run.directions):
            own = [direction for run in group for direction in run.directions if direction.op == op]
            figures[arm, job, f"{op}_bandwidth"] = statistics.median(of.bandwidth_bytes_per_s for of in own)
            figures[arm, job, f"{op}_p50"] = statistics.median(of.p50_s for of in own)
            figures[arm, job, f"{op}_p90"] = statistics.median(of.p90_s for of in own)
    return figures


def marks(
    name: str,
    keys: Sequence[tuple[str, str, str]],
    figures: Mapping[tuple[str, str, str], float],
    unit: float,
) -> Curve:
    """A mark for each existing figure at its key's place; ``unit`` is in base units."""
    points = ((float(place), figures[key] / unit) for place, key in enumerate(keys) if key in figures)
    return curve_through(name, points, "marks")


def plot_of_jobs(
    plan: Plan, figures: Mapping[tuple[str, str, str], float], figure: str, title: str, up: str, unit: float
) -> Plot:
    """One figure for all of the plan's jobs, as a curve of marks per arm."""
    jobs = [job.name for job in plan.baseline]
    curves = tuple(
        marks(arm.name, [(arm.name, job, figure) for job in jobs], figures, unit) for arm in plan.arm
    )
    return Plot(title=title, across="job", up=up, curves=curves, places=tuple(jobs))


def iops_of(run: Run) -> float:
    """IOPS, reads and writes together."""
    return sum(direction.iops for direction in run.directions)


def bandwidth_of(run: Run) -> float:
    """Bytes per second, reads and writes together."""
    return sum(direction.bandwidth_bytes_per_s for direction in run.directions)
