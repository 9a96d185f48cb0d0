"""Virtual time for people: a plan's fio jobs simulated into a session folder.

No root, no engine, no device: only the volume models, and the store where a session is recorded.
"""

import itertools
import platform
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import esrally_ebs
from esrally_ebs.errors import PlanError
from esrally_ebs.machine.resources import home, plan_path
from esrally_ebs.model import Kind, State, Volume
from esrally_ebs.plan import BaselineJob, Plan, load_plan
from esrally_ebs.session.conclusion import conclude
from esrally_ebs.session.protocol import jobs_of, last_pass
from esrally_ebs.store import SessionFolder
from esrally_ebs.volumes.baseline import rows_of
from esrally_ebs.volumes.virtual import (
    SimulatedVolume,
    VolumeJob,
    check_room,
    groups,
    run_together,
    simulated_volumes,
)


def simulate_plan(name: str, overrides: Mapping[str, Any], *, say: Callable[[str], None]) -> str:
    """Simulate the fio jobs of a plan and record them as a session; returns its report as text."""
    plan = load_plan(plan_path(name), overrides)
    if not plan.baseline:
        raise PlanError(f"{name}: has no [[baseline]], so there is no I/O to simulate; add a fio job")
    volumes = simulated_volumes(plan.arm, seed=plan.design.seed)
    for volume, job in itertools.product(volumes, plan.baseline):
        check_room(job, volume.spec)
    folder = SessionFolder.create(home(), str(uuid.uuid4()), kind="simulate", plan=plan)
    try:
        folder.update(
            arms=[_arm(volume) for volume in volumes],
            environment={"esrally_ebs": esrally_ebs.__version__, "python": platform.python_version()},
        )
        _record(folder, plan, volumes, say)
        text, _ = conclude(folder)  # arms of one model each: there is no machine that could differ
    except BaseException as error:
        cancelled = isinstance(error, KeyboardInterrupt)
        folder.finish(State.CANCELLED if cancelled else State.FAILED, reason=str(error) or repr(error))
        raise
    say(f"every job's JSON, as fio writes it: {folder.path / 'baseline'}")
    return text


def _arm(volume: SimulatedVolume) -> Volume:
    return Volume(spec=volume.spec, kind=Kind.EMULATED, mount=Path("virtual-time"))


def _record(
    folder: SessionFolder, plan: Plan, volumes: Sequence[SimulatedVolume], say: Callable[[str], None]
) -> None:
    listed = [
        (round_, together, volume)
        for round_ in range(last_pass(plan) + 1)
        for together in groups(jobs_of(plan, round_))
        for volume in volumes
    ]
    for number, (round_, together, volume) in enumerate(listed, start=1):
        jobs = ", ".join(job.name for job in together)
        say(f"fio {jobs} on {volume.spec.name} (virtual time): {number} of {len(listed)}")
        _record_jobs(folder, together, volume, round_)


def _record_jobs(
    folder: SessionFolder, together: Sequence[BaselineJob], volume: SimulatedVolume, round_: int
) -> None:
    """Jobs that begin together, on a volume whose buckets are full."""
    refill_s = volume.refill()
    volume.rest(max(job.rest for job in together))
    begun_s = volume.clock_s
    arm = volume.spec.name
    texts = run_together([VolumeJob(volume=volume, job=job) for job in together])
    for job, text in zip(together, texts, strict=True):
        folder.write_baseline(round_, arm, job.name, text)
        folder.rows_baseline(rows_of(text, job, arm, round_))
        folder.note(
            "simulated",
            arm=arm,
            job=job.name,
            round=round_,
            virtual_s=volume.clock_s - begun_s,
            refill_s=refill_s,
            levels=volume.levels(),
        )
