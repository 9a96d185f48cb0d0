"""Volumes that a person attaches and detaches: a session's arms without a session."""

from esrally_ebs import clean, volumes
from esrally_ebs.context import FILE, Arm, Context, load_context
from esrally_ebs.errors import SetupError
from esrally_ebs.model import Volume
from esrally_ebs.plan import load_plan
from esrally_ebs.resources import plan_path, run_dir

_PREFIX = "by-hand-"


def up(plan_name: str) -> list[Volume]:
    """Attach all arms of a plan; on an error those already attached are detached again."""
    plan = load_plan(plan_path(plan_name))
    session = f"{_PREFIX}{plan.name}"
    if (run_dir() / session).exists():
        raise SetupError(
            f"plan {plan.name}: its volumes are attached already; 'esrally-ebs volumes down' detaches them"
        )
    run = clean.write_owner(session, by_hand=True)
    try:
        volumes.check_distinct(plan.specs())
        attached = [volumes.attach(spec, run / spec.name) for spec in plan.specs()]
        arms = tuple(Arm(name=v.spec.name, cluster=v.spec.name, volume=v, node=None) for v in attached)
        Context(session=session, folder=run, run=run, plan=plan, arms=arms).save()
    except BaseException:
        clean.take_down(session)
        raise
    return attached


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
