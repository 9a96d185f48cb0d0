"""The five studies: published figures beside ours, in virtual time or on devices.

Each has a plan and a data file in ``pipelines/`` and a module here for what only it shows.
"""

from collections.abc import Callable, Mapping

from esrally_ebs.catalog.cost import PriceList
from esrally_ebs.errors import PlanError, near
from esrally_ebs.machine.resources import resource
from esrally_ebs.plan import load_plan
from esrally_ebs.store import Session
from esrally_ebs.studies import burst, efs, nikkei, striping, tuning
from esrally_ebs.studies.devices import DeviceRunner
from esrally_ebs.studies.published import Inputs, Parts, Result, Runner, Study, compare, parse_study
from esrally_ebs.studies.runs import VirtualRunner

__all__ = ["DeviceRunner", "Runner", "VirtualRunner", "names", "read_study", "run_study"]

_PARTS: Mapping[str, Callable[[Inputs], Parts]] = {
    "nikkei-2021": nikkei.run,
    "burst-2014": burst.run,
    "tuning-2023": tuning.run,
    "striping-2015": striping.run,
    "efs-2022": efs.run,
}


def names() -> tuple[str, ...]:
    return tuple(_PARTS)


def read_study(name: str) -> Study:
    """An article's published data. Raises PlanError for an unknown study."""
    if name not in _PARTS:
        raise PlanError(f"study {name!r}: not known; there is {', '.join(_PARTS)}{near(name, _PARTS)}")
    path = resource("pipelines") / f"{name}.json"
    return parse_study(path.read_text(), path.name)


def run_study(name: str, runner: Runner, prices: PriceList, *, session: Session | None = None) -> Result:
    """Run a study's plan, and compare all published figures with it.

    ``session``: a recorded race to show beside the published one (nikkei-2021). Raises PlanError for an
    unknown study, and errors of running its jobs.
    """
    study = read_study(name)
    plan = load_plan(resource("pipelines") / f"{name}.toml")
    parts = _PARTS[name](Inputs(study=study, plan=plan, runner=runner, prices=prices, session=session))
    return Result(study=study, how=runner.how, figures=compare(study, parts.observed), parts=parts)
