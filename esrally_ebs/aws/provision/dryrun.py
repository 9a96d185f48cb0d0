"""What ``volumes up`` and ``down`` would do on AWS: every call with its parameters, and what an hour costs.

It is the real executor that runs, on AWS and a machine in memory; nothing is asked of anybody.
"""

import itertools
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from esrally_ebs import cost
from esrally_ebs.aws.provision.execute import Executor
from esrally_ebs.aws.provision.goal import Goal, Place, new_goal
from esrally_ebs.aws.provision.journal import Journal
from esrally_ebs.aws.provision.memory import MemoryAws
from esrally_ebs.aws.provision.memory_machine import MemoryMachine
from esrally_ebs.aws.provision.sweep import Owner
from esrally_ebs.errors import PlanError
from esrally_ebs.model import VolumeSpec
from esrally_ebs.system import Clock

_HOURS = 730  # of a month, as AWS counts


def dry_run(specs: Sequence[VolumeSpec], place: Place, *, session: str, run: Path) -> list[str]:
    """One line per call and per piece of work, up and down, then the price of each arm.

    Reading calls (Describe...) are left out. Raises PlanError for what AWS does not have.
    """
    world = _World(place)
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        executors = []
        for spec in specs:
            goal = new_goal(
                spec,
                place,
                session=session,
                owner=Owner(instance=place.instance, boot="dry-run", run_dir=run.parent).tag,
                point=run / spec.name / "mnt",
            )
            executors.append(world.executor(_told(goal), Path(folder) / spec.name))
        for executor in executors:
            executor.up()
        lines += ["up:", *world.take(), "down:"]
        for executor in reversed(executors):
            executor.down()
        lines += world.take()
    return [*lines, "price:", *prices(specs, place.region)]


def prices(specs: Sequence[VolumeSpec], region: str) -> list[str]:
    """What each arm costs an hour, and all together; why not, where the price list has no price."""
    lines, total = [], 0.0
    for spec in specs:
        mode = "elastic" if spec.type == "efs" and spec.mode is None else spec.mode
        try:
            price = cost.monthly(replace(spec, mode=mode), region)
        except PlanError as error:
            lines.append(f"  {spec.name}: not known: {error}")
            continue
        total += price.usd / _HOURS
        doubt = f"; not verified: {', '.join(price.unverified)}" if price.unverified else ""
        lines.append(
            f"  {spec.name}: {price.usd / _HOURS:.4f} USD an hour ({price.usd:.2f} a month, {region},"
            f" prices of {price.dated}{doubt})"
        )
    return [
        *lines,
        f"  all with a price: {total:.4f} USD an hour; EBS bills at least a minute, by the second",
    ]


def _told(goal: Goal) -> Goal:
    """A run that says of itself that it is none."""
    return replace(goal, run=f"dry-run-{goal.arm}")


class _World:
    """AWS and a machine in memory that write down what is asked of them."""

    def __init__(self, place: Place) -> None:
        now = itertools.count()
        passed = [0.0]

        def sleep(seconds: float) -> None:
            passed[0] += seconds

        self._clock = Clock(
            monotonic=lambda: passed[0], sleep=sleep, epoch=lambda: passed[0] + next(now) * 1e-6
        )
        self._aws = MemoryAws(self._clock)
        self._machine = MemoryMachine(self._aws, place.instance, disks=[f"AWS{n}" for n in range(32)])
        self._lines: list[str] = []
        self.look = self._machine.look

    def executor(self, goal: Goal, directory: Path) -> Executor:
        """One arm's executor in this world."""
        journal = Journal(directory)
        journal.begin(goal, 0.0)
        return Executor(api=self, machine=self, journal=journal, clock=self._clock)

    def call(self, service: str, operation: str, **params: Any) -> Mapping[str, Any]:  # noqa: ANN401
        """As Aws."""
        if not operation.startswith("Describe"):
            self._lines.append(f"  {service} {operation} {json.dumps(params)}")
        return self._aws.call(service, operation, **params)

    def do(self, operation: str, arguments: Mapping[str, Any]) -> None:
        """As Machine."""
        self._lines.append(f"  machine {operation} {json.dumps(dict(arguments))}")
        self._machine.do(operation, arguments)

    def take(self) -> list[str]:
        """The lines since the last time."""
        lines, self._lines = self._lines, []
        return lines
