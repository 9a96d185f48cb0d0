"""Volumes that a person attaches and detaches: the same arms as a session's, owned by nobody but the person."""

from esrally_ebs import clean, volumes
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
    directory = clean.write_owner(session, by_hand=True)
    try:
        attached = [volumes.attach(spec, directory / spec.name) for spec in plan.specs()]
        volumes.require_distinct(attached)
    except BaseException:
        clean.take_down(session)
        raise
    return attached


def attached() -> list[Volume]:
    """Every arm that is attached now, by hand or by a session."""
    return [volume for path in sorted(run_dir().glob("*/*")) if (volume := volumes.read(path)) is not None]


def down() -> list[str]:
    """Detach what ``up`` attached; returns the names of the plans."""
    names = []
    for directory in sorted(run_dir().glob(f"{_PREFIX}*")):
        problems = clean.take_down(directory.name)
        if problems:
            raise SetupError("; ".join(problems))
        names.append(directory.name.removeprefix(_PREFIX))
    return names
