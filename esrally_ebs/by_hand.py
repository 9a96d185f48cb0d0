"""Volumes that a person attaches and detaches: a session's arms without a session."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from esrally_ebs import clean, volumes
from esrally_ebs.context import FILE, Arm, Context, load_context
from esrally_ebs.errors import SetupError
from esrally_ebs.model import Volume, VolumeSpec
from esrally_ebs.plan import load_plan
from esrally_ebs.resources import plan_path, run_dir

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
    if spec.aws is None:
        volumes.detach(directory)  # of an 'up' that was killed; nothing otherwise
    return volumes.attach(spec, directory, say=say)


def attached() -> list[Volume]:
    """Every arm that is attached now, by hand or by a running session."""
    contexts = [load_context(path) for path in sorted(run_dir().glob(f"*/{FILE}"))]
    return [arm.volume for context in contexts for arm in context.arms]


def down() -> list[str]:
    """Detach what ``up`` attached; returns the names of the plans."""
    names = []
    for run in sorted(run_dir().glob(f"{_PREFIX}*")):
        problems = clean.take_down(run.name)
        if problems:
            raise SetupError("; ".join(problems))
        names.append(run.name.removeprefix(_PREFIX))
    return names
