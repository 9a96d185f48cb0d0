"""``esrally-ebs run``: a plan with a race becomes an ``esrally race``, one without a session of fio alone."""

import json
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import setproctitle

from esrally_ebs.measure import measure_baseline
from esrally_ebs.plan import Plan, load_plan
from esrally_ebs.resources import plan_path, resource
from esrally_ebs.session import Live
from esrally_ebs.system import run_in_terminal


def run_plan(name: str, overrides: Mapping[str, Any], *, say: Callable[[str], None]) -> int:
    """Run the session that a plan describes; returns the exit code."""
    path = plan_path(name)
    plan = load_plan(path, overrides)
    if plan.race is not None:
        return _race(path, plan, overrides)
    say(_measure(plan, say))
    return 0


def _race(path: Path, plan: Plan, overrides: Mapping[str, Any]) -> int:
    assert plan.race is not None
    params = json.dumps({"plan": str(path), "set": dict(overrides)})
    command = [
        str(Path(sys.executable).with_name("esrally")),
        "race",
        f"--track-path={resource('tracks') / plan.race.track}",
        f"--track-params={params}",
        *([f"--challenge={plan.race.challenge}"] if plan.race.challenge else []),
    ]
    # Rally refuses to race while a python process has "esrally" in its command line, and we would be one.
    setproctitle.setproctitle(f"ebs-run {plan.name}")
    return run_in_terminal(command)


def _measure(plan: Plan, say: Callable[[str], None]) -> str:
    live = Live(str(uuid.uuid4()))
    context = live.start(plan, clusters={arm.name: arm.name for arm in plan.arm}, say=say)
    try:
        for round_ in (0, 1):
            for job in plan.baseline:
                for arm in context.arms:
                    if round_ == 0 or job.repeat:
                        say(f"fio {job.name} on {arm.name}")
                        measure_baseline(context, arm, job, round_)
        return live.complete()
    except BaseException as error:
        live.fail(error)
        raise
