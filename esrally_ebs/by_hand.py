"""Volumes that a person attaches and detaches: a session's arms without a session."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from esrally_ebs import clean, volumes
from esrally_ebs.aws import modify as modify_volume
from esrally_ebs.aws.clients import Aws, configured_region
from esrally_ebs.aws.identity import Identity, candidates, identify
from esrally_ebs.aws.provision.place import region_here
from esrally_ebs.aws.roots import Roots
from esrally_ebs.context import FILE, Arm, Context, load_context
from esrally_ebs.emulator.control import LimiterState, read_state
from esrally_ebs.emulator.control import change as control_volume
from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.migration import volume_of
from esrally_ebs.model import Volume, VolumeSpec
from esrally_ebs.plan import load_plan
from esrally_ebs.resources import plan_path, run_dir
from esrally_ebs.system import SYSTEM_CLOCK
from esrally_ebs.units import GIB, MIB, parse_bytes, parse_rate

_PREFIX = "by-hand-"
Say = Callable[[str], None]


def _silent(text: str) -> None:
    """Nobody follows what takes long."""


def up(plan_name: str, overrides: Mapping[str, Any] | None = None, *, say: Say = _silent) -> list[Volume]:
    """Attach all arms of a plan; on an error those already attached are detached again.

    What an ``up`` that was killed has begun on AWS is gone on with; any other arm of it is attached anew.
    """
    plan = load_plan(plan_path(plan_name), overrides)
    session = f"{_PREFIX}{plan.name}"
    if clean.owner_lives(session):
        raise SetupError(
            f"plan {plan.name}: its volumes are attached already; 'esrally-ebs volumes down' detaches them"
        )
    run = clean.write_owner(session)
    try:
        volumes.check_distinct(plan.specs())
        attached = [_attach(spec, run / spec.name, say) for spec in plan.specs()]
        arms = tuple(Arm(name=v.spec.name, cluster=v.spec.name, volume=v, node=None) for v in attached)
        Context(session=session, folder=run, run=run, plan=plan, arms=arms).save()
        clean.hand_over(session)
    except BaseException:
        clean.take_down(session)
        raise
    return attached


def dry_run(plan_name: str, overrides: Mapping[str, Any] | None = None) -> list[str]:
    """What ``up`` would do on AWS, and ``down`` after it, and what an hour of it costs; one line each."""
    plan = load_plan(plan_path(plan_name), overrides)
    return volumes.dry_run(plan.specs(), f"{_PREFIX}{plan.name}")


def _attach(spec: VolumeSpec, directory: Path, say: Say) -> Volume:
    for caveat in volumes.caveats(spec):
        say(caveat)
    if spec.aws is None and directory.exists():
        volumes.detach(directory)  # what an 'up' that was killed has left
    return volumes.attach(spec, directory, say=say)


def attached() -> list[Volume]:
    """Every arm that is attached now, by hand or by a running session.

    Raises SetupError when what says so was cut, or is another release's.
    """
    return [arm.volume for path in sorted(run_dir().glob(f"*/{FILE}")) for arm in load_context(path).arms]


def mounts(taken: Iterable[Path] = ()) -> list[Identity]:
    """Every mount of this machine that could be an arm, with what it stands on; asks nobody.

    Without those that a path in ``taken`` is on: the innermost mount, for all paths lie below / as well.
    """
    roots = Roots()
    used = {identify(path, roots).stack.mount.device_number for path in taken}
    return [found for found in candidates(roots) if found.stack.mount.device_number not in used]


def change(
    *, type_: str | None, size: str | None, iops: int | None, throughput: str | None
) -> modify_volume.Change:
    """What is asked for in the words of the command line. Raises PlanError for one that is none."""
    return modify_volume.Change(
        type=type_,
        size_gib=None if size is None else _whole(parse_bytes(size), GIB, f"size: {size} is no whole GiB"),
        iops=iops,
        throughput_mib=None
        if throughput is None
        else _whole(parse_rate(throughput), MIB, f"throughput: {throughput} is no whole MiB/s"),
    )


def _whole(count: int, unit: int, otherwise: str) -> int:
    """How many units; PlanError when it is none, or something is left over."""
    if count < unit or count % unit:
        raise PlanError(
            f"{otherwise}, which AWS counts in; write for example {max(1, round(count / unit))}"
            f"{'GiB' if unit == GIB else 'MiB/s'}"
        )
    return count // unit


def modify(
    name: str, wanted: modify_volume.Change, *, not_ours: bool = False, wait: bool = True, say: Say = _silent
) -> None:
    """Change the EBS volume of an attached arm (or any volume, by its id) in place, and follow the change.

    Raises PlanError when it is no such arm, its type does not allow the change, or it is not ours and
    ``not_ours`` does not say that this is meant; SetupError when AWS refuses.
    """
    volume = name if name.startswith("vol-") else _volume_of(name)
    api = Aws(configured_region() or region_here())
    now, ours = modify_volume.settings_of(api, volume)
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
    if wait:
        modify_volume.follow(
            api, volume, each=lambda got: say(f"{volume}: {got.state}, {got.percent} %"), since=since
        )


def _volume_of(name: str) -> str:
    return volume_of(_attached_as(name, "the id of the volume, vol-..."))


def limiters(name: str) -> LimiterState:
    """What the limiters of an attached emulated arm hold, by its name or mount; PlanError for any other."""
    return read_state(_control_of(name))


def set_limiters(name: str, **settings: float) -> LimiterState:
    """Change the limiters of an attached emulated arm as ``control.change`` does; their state then."""
    return control_volume(_control_of(name), **settings)


def _control_of(name: str) -> Path:
    volume = _attached_as(name, "its mount")
    if volume.control is None:
        raise PlanError(f"arm {name}: it is {volume.kind}, and only emulated volumes have limiters to ask")
    return volume.control


def _attached_as(name: str, otherwise: str) -> Volume:
    found = [volume for volume in attached() if name in (volume.spec.name, str(volume.mount))]
    if not found:
        raise PlanError(f"arm {name}: not attached; 'esrally-ebs volumes list' shows the arms that are")
    if len(found) > 1:
        raise PlanError(f"arm {name}: {len(found)} are attached; give {otherwise}")
    return found[0]


def down() -> list[str]:
    """Detach what ``up`` attached; returns the names of the plans.

    Raises SetupError when something stays, after all others have been detached.
    """
    names, problems = [], []
    for run in sorted(run_dir().glob(f"{_PREFIX}*")):
        left = clean.take_down(run.name)
        problems += left
        if not left:
            names.append(run.name.removeprefix(_PREFIX))
    if problems:
        raise SetupError("; ".join(problems))
    return names
