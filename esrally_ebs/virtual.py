"""Virtual time for people: a plan's fio jobs simulated into a session folder, or beside published figures.

No root, no engine, no device: only the volume models, and the store where a session is recorded.
"""

import platform
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from esrally_ebs import __version__, published
from esrally_ebs.baseline import rows_of
from esrally_ebs.conclusion import conclude
from esrally_ebs.errors import PlanError
from esrally_ebs.model import BaselineRow, Event, Kind, State, Volume, VolumeSpec
from esrally_ebs.plan import BaselineJob, Plan, load_plan
from esrally_ebs.resources import home, plan_path, resource
from esrally_ebs.simulate import SimulatedVolume
from esrally_ebs.store import SessionFolder

# Percentiles of the thousand I/Os of a small job scatter by some per cent, so it is run more often.
_STUDY_IOS = 200_000
_STUDY_RUNS = 5  # at least


def simulate_plan(name: str, overrides: Mapping[str, Any], *, say: Callable[[str], None]) -> str:
    """Simulate the fio jobs of a plan and record them as a session; returns its report as text."""
    plan = load_plan(plan_path(name), overrides)
    if not plan.baseline:
        raise PlanError(f"{name}: has no [[baseline]], so there is no I/O to simulate; add a fio job")
    volumes = [SimulatedVolume(spec, seed=plan.design.seed) for spec in plan.specs()]
    folder = SessionFolder.create(
        home(), str(uuid.uuid4()), kind="simulate", plan=plan.model_dump(mode="json")
    )
    try:
        folder.update(
            arms=[_arm(volume) for volume in volumes],
            environment={"esrally_ebs": __version__, "python": platform.python_version()},
        )
        _record(folder, plan, volumes, say)
        text, _ = conclude(folder)  # arms of one model each: there is no machine that could differ
    except BaseException as error:
        cancelled = isinstance(error, KeyboardInterrupt)
        folder.finish(State.CANCELLED if cancelled else State.FAILED, reason=str(error) or repr(error))
        raise
    return text


def _arm(volume: SimulatedVolume) -> Volume:
    return Volume(spec=volume.spec, kind=Kind.EMULATED, mount=Path("virtual-time"))


def _record(
    folder: SessionFolder, plan: Plan, volumes: Sequence[SimulatedVolume], say: Callable[[str], None]
) -> None:
    for round_ in (0, 1):
        for job in plan.baseline:
            for volume in volumes:
                if round_ == 0 or job.repeat:
                    say(f"fio {job.name} on {volume.spec.name} (virtual time)")
                    _record_job(folder, job, volume, round_)


def _record_job(folder: SessionFolder, job: BaselineJob, volume: SimulatedVolume, round_: int) -> None:
    refill_s = volume.refill()
    begun_s = volume.clock_s
    text = volume.run(job)
    folder.write_baseline(round_, volume.spec.name, job.name, text)
    folder.rows_baseline(rows_of(text, job, volume.spec.name, round_))
    fields = {
        "job": job.name,
        "round": round_,
        "virtual_s": volume.clock_s - begun_s,
        "refill_s": refill_s,
        "levels": volume.levels(),
    }
    folder.event(Event(at_s=time.time(), kind="simulated", arm=volume.spec.name, fields=fields))


def studies() -> tuple[tuple[str, str], ...]:
    """Name and title of every study."""
    found = sorted(resource("pipelines").glob("*.json"))
    return tuple((path.stem, published.parse_study(path.read_text(), path.name).title) for path in found)


def simulate_study(name: str) -> str:
    """Every published figure of a study beside ours in virtual time, as text."""
    known = [study for study, _ in studies()]
    if name not in known:
        raise PlanError(f"study {name!r}: not known; there is {', '.join(known)}")
    path = resource("pipelines") / f"{name}.json"
    study = published.parse_study(path.read_text(), path.name)
    plan = load_plan(path.with_suffix(".toml"))
    rows = [
        row for spec in plan.specs() for job in plan.baseline for row in _study_rows(spec, job, study.reads)
    ]
    counts = {max(row.round for row in rows if row.job == job.name) for job in plan.baseline}
    how = (
        "simulated in virtual time from the volume models, emulated arms; median of"
        f" {min(counts)} to {max(counts)} runs of a job"
    )
    return published.render(study, published.compare(study, rows), plan.specs(), how)


def _study_rows(spec: VolumeSpec, job: BaselineJob, reads: Mapping[str, int]) -> Iterator[BaselineRow]:
    """The rows of many runs, each with chance of its own; their rounds count the runs."""
    ios = job.numjobs * job.size // job.bs
    for seed in range(1, 1 + max(_STUDY_RUNS, -(-_STUDY_IOS // ios))):
        # Compiled whatever the size: all runs of a study share the seconds of compiling.
        text = SimulatedVolume(spec, seed=seed).run(job, reads=reads.get(job.name), compiled=True)
        yield from rows_of(text, job, spec.name, seed)
