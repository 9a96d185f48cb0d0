"""Volumes that a person attaches and detaches: arms without a session."""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from esrally_ebs.aws import modify as modify_volume
from esrally_ebs.aws.clients import Aws, configured_region
from esrally_ebs.aws.identity import Identity, candidates, identify
from esrally_ebs.aws.instance import region_here
from esrally_ebs.catalog.cost import Usage, price_list
from esrally_ebs.catalog.limits import Limit, of_each
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.machine.kernel_trees import Roots
from esrally_ebs.machine.mounts import mount_at, users_of
from esrally_ebs.machine.processes import SYSTEM_CLOCK
from esrally_ebs.machine.resources import plan_path, run_dir
from esrally_ebs.model import BY_HAND, Backend, Kind, Volume, VolumeSpec
from esrally_ebs.plan import load_plan
from esrally_ebs.session import clean
from esrally_ebs.session.asking import Say, say_nothing
from esrally_ebs.session.migration import volume_of
from esrally_ebs.store import running
from esrally_ebs.store.context import FILE, Arm, Context, Member, load_context
from esrally_ebs.units import GIB, MIB, parse_bytes, parse_rate, whole_units
from esrally_ebs.volumes import backends as volumes
from esrally_ebs.volumes.emulated.control import LimiterState, read_state
from esrally_ebs.volumes.emulated.control import change as control_volume
from esrally_ebs.volumes.record import read_record

_PREFIX = f"{BY_HAND}-"
_BY_ID = "the id of the volume, vol-..."


def up(plan_name: str, overrides: Mapping[str, Any] | None = None, *, say: Say = say_nothing) -> list[Volume]:
    """Attach all arms of a plan; on an error, detach those already attached and say what stays.

    Continues what a killed ``up`` began on AWS; other arms that it left are attached anew.
    """
    plan = load_plan(plan_path(plan_name), overrides)
    plan.require_local("'volumes up'")
    volumes.check_mounts(plan)
    session = f"{_PREFIX}{plan.name}"
    if running.owner_lives(session):
        raise SetupError(
            f"plan {plan.name}: its volumes are attached already; 'esrally-ebs volumes down' detaches them"
        )
    # take over what a killed 'up' left
    run = running.folder_of(session) if running.claim(session) else running.begin(session)
    try:
        _detach_others(run, {spec.name for arm in plan.arm for spec in plan.volumes_of(arm)}, say)
        arms = tuple(
            Arm(
                name=arm.name,
                cluster=arm.name,
                members=tuple(
                    Member(volume=_attach(spec, run / spec.name, say)) for spec in plan.volumes_of(arm)
                ),
            )
            for arm in plan.arm
        )
        Context(session=session, folder=run, run=run, plan=plan, arms=arms).save()
        running.hand_over(session)
    except BaseException:
        _undo(session, say)
        raise
    return [volume for arm in arms for volume in arm.volumes]


def _detach_others(run: Path, names: Collection[str], say: Say) -> None:
    """Detach what a killed ``up`` left that the plan no longer has; on AWS it would go on costing."""
    for left in clean.arm_folders(run):
        if "_" not in left.name and left.name not in names:
            say(f"volume {left.name}: the plan no longer has it, so it is detached")
            volumes.detach(left)


def _undo(session: str, say: Say) -> None:
    """Detach what a failed ``up`` attached, and say what stays, even if Ctrl-C is pressed again."""
    problems = ["what was not yet detached, as this was cut short; run 'esrally-ebs clean'"]
    try:
        problems = clean.take_down(session)
    finally:
        with suppress(OSError):  # nobody listens any more; the first error matters
            for problem in problems:
                say(f"left behind: {problem}")


def dry_run(plan_name: str, overrides: Mapping[str, Any] | None = None) -> list[str]:
    """What ``up``, and ``down`` after it, would do on AWS, and the cost of an hour; one line each."""
    plan = load_plan(plan_path(plan_name), overrides)
    plan.require_local("'volumes up'")
    specs = [spec for arm in plan.arm for spec in plan.volumes_of(arm)]
    prices = price_list(str(plan.cost.prices) if plan.cost.prices else None)
    of_each = 1 / plan.node.count  # [cost] gives the traffic of a whole arm
    used = Usage(read_bytes=round(plan.cost.read * of_each), written_bytes=round(plan.cost.written * of_each))
    return volumes.dry_run(specs, f"{_PREFIX}{plan.name}", prices, used)


def _attach(spec: VolumeSpec, directory: Path, say: Say) -> Volume:
    for caveat in volumes.caveats(spec):
        say(caveat)
    left = read_record(directory)  # by an 'up' that was killed
    goes_on = spec.backend is Backend.AWS and (left is None or left.backend == Backend.AWS)
    if directory.exists() and not goes_on:
        volumes.detach(directory)
    return volumes.attach(spec, directory, say=say)


def attached() -> list[Volume]:
    """All arms that are attached now, by hand or by a running session.

    Raises SetupError if the record of them is cut, or of another release, or the run directory another
    user's.
    """
    return [
        volume
        for name in running.sessions()[0]
        if (path := run_dir() / name / FILE).exists()
        for arm in load_context(path).arms
        for volume in arm.volumes
    ]


def is_mounted(volume: Volume) -> bool:
    """False for an emulated volume here that a reboot ended; the record of it may be on disk still."""
    is_here = volume.kind is Kind.EMULATED and volume.spec.host is None
    return not is_here or mount_at(volume.mount) is not None


def mounts(used: Iterable[Path] = ()) -> list[Identity]:
    """This machine's mounts that could be an arm and that no path in ``used`` is on.

    A path counts for its innermost mount only, since all paths are below / as well. Does not call AWS.
    """
    roots = Roots()
    numbers = {identify(path, roots).stack.mount.device_number for path in used}
    return [mount for mount in candidates(roots) if mount.stack.mount.device_number not in numbers]


def change(
    *, type_: str | None, size: str | None, iops: int | None, throughput: str | None
) -> modify_volume.VolumeChange:
    """The change that command line options describe. Raises PlanError for none, or an unreadable value."""
    if not (type_ or size or iops or throughput):
        raise PlanError("volumes modify: to what? give --type, --size, --iops or --throughput")
    return modify_volume.VolumeChange(
        type=type_,
        size_gib=None if size is None else whole_units(f"--size {size}", parse_bytes(size), GIB),
        iops=iops,
        throughput_mib=None
        if throughput is None
        else whole_units(f"--throughput {throughput}", parse_rate(throughput), MIB),
    )


def modify(
    name: str,
    wanted: modify_volume.VolumeChange,
    *,
    not_ours: bool = False,
    wait: bool = True,
    say: Say = say_nothing,
) -> None:
    """Change the EBS volume of an attached arm, or any volume by its id, in place, and follow the change.

    Raises PlanError if there is no such arm, its type does not allow the change, or the volume is not ours
    and ``not_ours`` does not confirm it; SetupError if AWS refuses.
    """
    volume = name if name.startswith("vol-") else volume_of(_attached_as(name, _BY_ID))
    api = Aws(configured_region() or region_here())
    now, ours = modify_volume.settings_of(api, volume, volumes.this_owner())
    if not (ours or not_ours):
        raise PlanError(
            f"{volume}: this pack has not made it; add --not-ours if it is to be changed all the same"
        )
    target = modify_volume.target_of(now, wanted)
    last = modify_volume.progress_of(api, volume)
    for warning in modify_volume.check_free(volume, last, at_s=SYSTEM_CLOCK.epoch()):
        say(warning)
    since = modify_volume.begin(api, volume, now, target)
    say(f"{volume}: from {now.text} to {target.text}")
    if not wait:
        return
    modify_volume.follow(
        api, volume, each=lambda got: say(f"{volume}: {got.state}, {got.percent} %"), since=since
    )
    if target.size_gib > now.size_gib:
        point = _mount_of(name)
        nowhere = f"{volume}: is mounted nowhere here; its file system has its size"
        say(volumes.grow(point) if point else nowhere)


def _mount_of(name: str) -> Path | None:
    """Where an attached arm, or a volume given by its id, is mounted on this machine."""
    if not name.startswith("vol-"):
        return _attached_as(name, _BY_ID).mount
    points = [each.mount_point for each in candidates(Roots()) if name in each.volume_ids]
    return points[0] if points else None


def limiters(name: str) -> LimiterState:
    """Levels of the limiters of an attached emulated arm, by its name or mount; else PlanError."""
    return read_state(_control_of(name))


def limits_of(name: str) -> tuple[str, Mapping[str, Limit]]:
    """Type of an attached emulated arm and its limits by name (rates in base units)."""
    spec = _attached_as(name, "its mount").spec
    model = model_for(spec)
    limits = (*of_each(model.limits, model.stripes), *model.instance_limits)
    if spec.striped_by != "device":  # then each volume has a daemon, with the instance's limits, too
        limits = of_each((*model.limits, *model.instance_limits), model.stripes)
    return spec.type, {limit.name: limit for limit in limits}


def set_limiters(name: str, **settings: float) -> LimiterState:
    """Change the limiters of an attached emulated arm as ``control.change`` does; returns their new state.

    Raises PlanError for credits of a volume that has none.
    """
    control = _control_of(name)
    if "credits" in settings and read_state(control).credits is None:
        raise PlanError(f"arm {name}: --credits: its type has no burst credits; gp2, st1, sc1 and EFS have")
    return control_volume(control, **settings)


def _control_of(name: str) -> Path:
    volume = _attached_as(name, "its mount")
    if volume.control is None:
        raise PlanError(f"arm {name}: it is {volume.kind}, and only emulated volumes have limiters to ask")
    return volume.control


def _attached_as(name: str, otherwise: str) -> Volume:
    arms = [volume for volume in attached() if name == volume.spec.name or Path(name) == volume.mount]
    if not arms:
        raise PlanError(f"arm {name}: not attached; 'esrally-ebs volumes list' shows the arms that are")
    if len(arms) > 1:
        raise PlanError(f"arm {name}: {len(arms)} are attached; give {otherwise}")
    return arms[0]


def down(plan_name: str | None = None) -> list[str]:
    """Detach what ``up`` attached, for one plan or all; returns the names of the plans.

    Raises SetupError, changing nothing, while another ``up`` or ``down`` works on one of them or a process
    uses a mount. Also raises it when something stays, after detaching all others.
    """
    wanted = _PREFIX if plan_name is None else f"{_PREFIX}{load_plan(plan_path(plan_name)).name}"
    sessions = [
        name
        for name in running.sessions()[0]
        if name == wanted or (plan_name is None and name.startswith(wanted))
    ]
    for name in sessions:
        if (other := running.other_at(name)) is not None:
            raise SetupError(
                f"nothing was detached: process {other.pid} attaches or detaches the volumes of "
                f"{name.removeprefix(_PREFIX)}; wait for its end, or end it"
            )
    _require_unused(sessions)
    names, problems = [], []
    for session in sessions:
        remaining = clean.take_down(session)
        problems += remaining
        if not remaining:
            names.append(session.removeprefix(_PREFIX))
    if problems:
        raise SetupError("; ".join(problems))
    return names


def _require_unused(sessions: Iterable[str]) -> None:
    """Raise SetupError with every mount of these sessions that is in use, and the processes that use it."""
    mount_points: list[Path] = []
    for name in sessions:
        with suppress(SetupError):  # missing or cut: this must not prevent detaching
            arms = load_context(run_dir() / name / FILE).arms
            mount_points += [volume.mount for arm in arms for volume in arm.volumes]
    used: list[str] = []
    for point in mount_points:
        with suppress(OSError):  # it only gives errors (daemon killed): it can be detached
            if mount_at(point) is not None and (users := users_of(point)):
                used.append(f"{point} is used by {', '.join(users)}")
    if used:
        raise SetupError(f"nothing was detached: {'; '.join(used)}; end them and run 'volumes down' again")
