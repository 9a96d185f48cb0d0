"""Runs plans: by ``esrally race``, without a race as a session of fio alone, or in virtual time.

The last needs no root, engine or device: only the volume models, and the store where a session is recorded.
"""

import itertools
import json
import platform
import site
import sys
import sysconfig
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import esrally_ebs
from esrally_ebs.aws.clients import Aws
from esrally_ebs.aws.instance import region_here
from esrally_ebs.checks import preflight
from esrally_ebs.checks.requirements import running_races
from esrally_ebs.errors import PlanError, SetupError, near
from esrally_ebs.machine.processes import SYSTEM_CLOCK, Clock, be_called, run_in_terminal
from esrally_ebs.machine.resources import home, plan_path, resource
from esrally_ebs.model import Kind, Volume, parse_bound
from esrally_ebs.plan import ModifyPlan, Plan, load_plan
from esrally_ebs.session import migration
from esrally_ebs.session.measure import Prepare, measure_baseline
from esrally_ebs.session.protocol import LiveSession, blocks, jobs_of, last_pass
from esrally_ebs.session.steps import MachineSteps, conclude
from esrally_ebs.store import SessionFolder, load_session
from esrally_ebs.store.context import Context
from esrally_ebs.store.encoding import baseline_of
from esrally_ebs.volumes import backends as volumes
from esrally_ebs.volumes.baseline import rows_of
from esrally_ebs.volumes.virtual import (
    SimulatedVolume,
    VolumeJob,
    check_room,
    groups,
    run_together,
    simulated_volumes,
)

_CANCELLED = 130  # exit code of a cancelled race, as in shells
_GOING_S, _LOOK_S = 10.0, 0.2  # for the last race's processes to end


def run_plan(name: str, overrides: Mapping[str, Any], *, say: Callable[[str], None]) -> int:
    """Run the session that a plan describes; returns the exit code."""
    path = plan_path(name)
    plan = load_plan(path, overrides)
    if plan.race is not None:
        return _race(path, plan, overrides, str(uuid.uuid4()))
    if not plan.baseline:
        raise PlanError(
            f"{path}: has no [race] and no [[baseline]], so nothing would be measured; add [race] for"
            " searches, or a fio job"
        )
    folder, text = measure_plan(plan, say)
    say(text)
    say(f"The report is {folder / 'report.html'}")
    return 0


def run_knee(
    name: str,
    latency: str,
    overrides: Mapping[str, Any],
    tasks: Sequence[str],
    *,
    complain: Callable[[str], None],
) -> int:
    """Race a plan in search of the rate that keeps ``latency``, with these tasks or all; its exit code.

    A plan with cold caches gets steady ones, unless ``overrides`` set a mode.
    """
    parse_bound(latency, "--latency")
    path = plan_path(name)
    if "cache.mode" not in overrides and load_plan(path, overrides).cache.mode == "cold":
        complain(
            "caches are steady here, not cold: to drop them before each query would delay those that are due"
        )
        overrides = {**overrides, "cache.mode": "steady"}
    overrides = {**overrides, "design.knee": latency}
    return _race(path, load_plan(path, overrides), overrides, str(uuid.uuid4()), tasks)


def run_sessions(
    name: str, overrides: Mapping[str, Any], count: int, *, complain: Callable[[str], None]
) -> tuple[list[str], int]:
    """Race a plan ``count`` times, each with its own seed; returns ids of complete sessions and an exit code.

    The code is that of the first session that failed, else 0. Later sessions still run, except after Ctrl-C
    or if the very first fails: its cause would fail them, too.
    """
    path = plan_path(name)
    plan = load_plan(path, overrides)
    if plan.race is None:
        raise PlanError(f"{path}: has no [race], and fio alone gets no verdict; leave out --sessions")
    if plan.design.knee is not None or len(plan.arm) < 2:
        why = "looks for a knee, at rates of each arm's own" if plan.design.knee else "has one arm"
        raise PlanError(f"{path}: {why}, so sessions get no verdict on how arms differ; leave out --sessions")
    complete: list[str] = []
    failed = 0
    for number in range(count):
        session = str(uuid.uuid4())
        code = _race(path, plan, {**overrides, "design.seed": plan.design.seed + number}, session)
        if not code:
            complete.append(session)
            continue
        failed = failed or code
        complain(f"session {number + 1} of {count} failed with exit code {code}: {session}")
        if not complete or code == _CANCELLED:
            break
    return complete, failed


def _race(
    path: Path, plan: Plan, overrides: Mapping[str, Any], session: str, tasks: Sequence[str] = ()
) -> int:
    assert plan.race is not None
    tracks = {folder.parent.name: folder.parent for folder in resource("tracks").glob("*/track.json")}
    track = tracks.get(plan.race.track)
    if track is None:  # also for a path to a track: a plan of somebody else's must not decide what is run
        raise PlanError(
            f"{path}: race.track: there is no {resource('tracks') / plan.race.track}; name a track that is"
            f" in {resource('tracks')}{near(plan.race.track, tracks)}"
        )
    preflight.check_plan(plan)
    params = json.dumps({"plan": str(path), "set": dict(overrides)})
    challenge = [f"--challenge={plan.race.challenge}"] if plan.race.challenge else []
    included = [f"--include-tasks={','.join(tasks)}"] if tasks else []
    flags = [
        f"--race-id={session}",
        f"--track-path={track}",
        f"--track-params={params}",
        *challenge,
        *included,
    ]
    return call_rally(flags, plan.name)


def call_rally(
    flags: Sequence[str], name: str, env: Mapping[str, str] | None = None, clock: Clock = SYSTEM_CLOCK
) -> int:
    """Run ``esrally race`` with these flags and variables after any earlier race has ended; its exit code."""
    # Rally refuses to race while a python process has "esrally" in its command line, as this one has.
    be_called(f"ebs-run {name}")
    # Rally also refuses to race beside another Rally.
    clock.wait_until(lambda: not running_races(), limit_s=_GOING_S, poll_s=_LOOK_S)
    return run_in_terminal([str(_rally()), "race", *flags], env)


def _rally() -> Path:
    """Path of Rally's command, where pip puts it: this environment, /usr/local, or the user's own."""
    own = (Path(sys.executable).parent, Path(sysconfig.get_path("scripts")), Path(site.getuserbase(), "bin"))
    commands = [folder / "esrally" for folder in own]
    return next((command for command in commands if command.exists()), commands[0])


def measure_plan(
    plan: Plan,
    say: Callable[[str], None],
    *,
    prepare: Prepare | None = None,
    beside: Callable[[Context], AbstractContextManager[object]] = nullcontext,
) -> tuple[Path, str]:
    """Run a session of fio alone; returns its folder and its report as text.

    Calls ``prepare`` right before each job; ``beside`` runs from the first job to the last.
    """
    steps = MachineSteps(str(uuid.uuid4()), plan, say=say)
    live = LiveSession(steps)
    context = live.prepare()
    try:
        if plan.modify is not None:
            migrated = _migrate(context, plan, plan.modify, say)
            return context.folder, f"{live.complete()}\n{migrated}"
        with beside(context):
            jobs = {job.name: job for job in plan.baseline}
            listed = list(blocks(plan))
            for number, block in enumerate(listed, start=1):
                say(f"fio {block.task} on {block.arm}: {number} of {len(listed)}")
                job, arm = jobs[block.task], context.arm(block.arm)
                if steps.hosts is not None:
                    steps.hosts.measure(arm.name, job, block.round)
                else:
                    measure_baseline(context, arm, job, block.round, prepare=prepare)
        return context.folder, live.complete()
    except BaseException as error:
        live.fail(error)
        raise


def _migrate(context: Context, plan: Plan, wanted: ModifyPlan, say: Callable[[str], None]) -> str:
    """Change an arm in place and measure meanwhile; returns the latencies by phase as text."""
    arm, folder = context.arm(wanted.arm), SessionFolder(context.folder)

    def measure(round_: int) -> None:
        for job in plan.baseline:
            say(f"fio {job.name} on {arm.name}, pass {round_}")
            measure_baseline(context, arm, job, round_)

    region = arm.volume.spec.aws.region if arm.volume.spec.aws else None
    migration.Migration(
        api=Aws(region or region_here()),
        volume=migration.volume_of(arm.volume),
        owner=volumes.this_owner(),
        arm=arm.name,
        change=preflight.change_of(wanted),
        passes=wanted.passes,
        measure=measure,
        record=folder.event,
    ).run()
    text = migration.summary(folder.events(), baseline_of(load_session(context.folder).baseline))
    folder.write_file("modification.txt", text + "\n")
    if wanted.size is not None:
        try:
            say(volumes.grow(arm.volume.mount))
        except SetupError as error:  # all is measured; only root grows it
            folder.add_warning(f"arm {arm.name}: its file system has its old size: {error}")
    return text


def simulate_plan(name: str, overrides: Mapping[str, Any], *, say: Callable[[str], None]) -> str:
    """Simulate the fio jobs of a plan and record them as a session; returns its report as text."""
    plan = load_plan(plan_path(name), overrides)
    if not plan.baseline:
        raise PlanError(f"{name}: has no [[baseline]], so there is no I/O to simulate; add a fio job")
    volumes = simulated_volumes(plan.arm, seed=plan.design.seed)
    for volume, job in itertools.product(volumes, plan.baseline):
        check_room(job, volume.spec)
    folder = SessionFolder.create(home(), str(uuid.uuid4()), kind="simulate", plan=plan)
    with folder.failing_with():
        folder.update(
            arms=[Volume(spec=arm, kind=Kind.EMULATED, mount=Path("virtual-time")) for arm in plan.arm],
            environment={"esrally_ebs": esrally_ebs.__version__, "python": platform.python_version()},
        )
        _record(folder, plan, volumes, say)
        text, _ = conclude(folder)  # nothing forbids comparing models: no machine differs
    say(f"every job's JSON, as fio writes it: {folder.path / 'baseline'}")
    return text


def _record(
    folder: SessionFolder, plan: Plan, volumes: Sequence[SimulatedVolume], say: Callable[[str], None]
) -> None:
    """Record all jobs; those that begin together run on a volume with full buckets."""
    listed = [
        (round_, together, volume)
        for round_ in range(last_pass(plan) + 1)
        for together in groups(jobs_of(plan, round_))
        for volume in volumes
    ]
    for number, (round_, together, volume) in enumerate(listed, start=1):
        arm, jobs = volume.spec.name, ", ".join(job.name for job in together)
        say(f"fio {jobs} on {arm} (virtual time): {number} of {len(listed)}")
        refill_s = volume.refill()
        volume.rest(max(job.rest for job in together))
        begun_s = volume.clock_s
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
