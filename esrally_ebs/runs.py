"""``esrally-ebs run``: a plan with a race becomes an ``esrally race``, one without a session of fio alone."""

import json
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import setproctitle

from esrally_ebs import migration
from esrally_ebs.aws.clients import Aws
from esrally_ebs.aws.modify import Change
from esrally_ebs.aws.provision.place import region_here
from esrally_ebs.context import Arm, Context
from esrally_ebs.errors import PlanError
from esrally_ebs.measure import Prepare, measure_baseline
from esrally_ebs.plan import BaselineJob, ModifyPlan, Plan, load_plan
from esrally_ebs.resources import plan_path, resource
from esrally_ebs.session import Live
from esrally_ebs.store import SessionFolder, load_session
from esrally_ebs.store.encoding import baseline_of
from esrally_ebs.system import run_in_terminal
from esrally_ebs.units import GIB, MIB


def run_plan(name: str, overrides: Mapping[str, Any], *, say: Callable[[str], None]) -> int:
    """Run the session that a plan describes; returns the exit code."""
    path = plan_path(name)
    plan = load_plan(path, overrides)
    if plan.race is not None:
        return _race(path, plan, overrides)
    _, text = measure_plan(plan, say)
    say(text)
    return 0


def _race(path: Path, plan: Plan, overrides: Mapping[str, Any]) -> int:
    assert plan.race is not None
    track = resource("tracks") / plan.race.track
    if not (track / "track.json").is_file():
        raise PlanError(
            f"{path}: race.track: there is no {track}; name a track that is in {resource('tracks')}"
        )
    params = json.dumps({"plan": str(path), "set": dict(overrides)})
    command = [
        str(Path(sys.executable).with_name("esrally")),
        "race",
        f"--track-path={track}",
        f"--track-params={params}",
        *([f"--challenge={plan.race.challenge}"] if plan.race.challenge else []),
    ]
    # Rally refuses to race while a python process has "esrally" in its command line, and we would be one.
    setproctitle.setproctitle(f"ebs-run {plan.name}")
    return run_in_terminal(command)


def measure_plan(
    plan: Plan,
    say: Callable[[str], None],
    *,
    prepare: Prepare | None = None,
    beside: Callable[[Context], AbstractContextManager[object]] = nullcontext,
) -> tuple[Path, str]:
    """A session of fio alone; its folder, and its report as text.

    ``prepare`` is called right before each job; ``beside`` runs from the first job to the last.
    """
    live = Live(str(uuid.uuid4()))
    context = live.start(plan, clusters={arm.name: arm.name for arm in plan.arm}, say=say)
    try:
        if plan.modify is not None:
            migrated = _migrate(context, plan, plan.modify, say)
            return context.folder, f"{live.complete()}\n{migrated}"
        with beside(context):
            for round_, job, arm in _turns(plan, context):
                say(f"fio {job.name} on {arm.name}")
                measure_baseline(context, arm, job, round_, prepare=prepare)
        return context.folder, live.complete()
    except BaseException as error:
        live.fail(error)
        raise


def _turns(plan: Plan, context: Context) -> Iterator[tuple[int, BaselineJob, Arm]]:
    """Every job on every arm, and at the end again those that are to be repeated."""
    for round_ in (0, 1):
        for job in plan.baseline:
            if round_ == 0 or job.repeat:
                for arm in context.arms:
                    yield round_, job, arm


def _migrate(context: Context, plan: Plan, wanted: ModifyPlan, say: Callable[[str], None]) -> str:
    """Change an arm in place, measuring on the way; the latencies by phase as text."""
    arm, folder = context.arm(wanted.arm), SessionFolder(context.folder)

    def measure(round_: int) -> None:
        for job in plan.baseline:
            say(f"fio {job.name} on {arm.name}, pass {round_}")
            measure_baseline(context, arm, job, round_)

    region = arm.volume.spec.aws.region if arm.volume.spec.aws else None
    migration.Migration(
        api=Aws(region or region_here()),
        volume=migration.volume_of(arm.volume),
        arm=arm.name,
        change=Change(
            type=wanted.type,
            size_gib=None if wanted.size is None else wanted.size // GIB,
            iops=wanted.iops,
            throughput_mib=None if wanted.throughput is None else wanted.throughput // MIB,
        ),
        passes=wanted.passes,
        measure=measure,
        record=folder.event,
    ).run()
    text = migration.summary(folder.events(), baseline_of(load_session(context.folder).baseline))
    folder.write_file("modification.txt", text + "\n")
    return text
