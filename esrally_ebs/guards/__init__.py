"""Guards: is what is about to be measured what the user thinks it is? Facts and a plan in, named checks out.

Pure: whoever reads machine and AWS hands in Facts. A check that is not ok stops the session when its severity
is STOP, unless the user accepts it by its name, which is then on record.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from esrally_ebs.errors import PlanError
from esrally_ebs.guards import alike, machine, volumes
from esrally_ebs.guards.facts import ArmFacts, ClockFacts, Facts, InstanceFacts, Watched, is_real
from esrally_ebs.model import Check
from esrally_ebs.plan import Plan

__all__ = [
    "NAMES",
    "ArmFacts",
    "ClockFacts",
    "Facts",
    "InstanceFacts",
    "Watched",
    "check_names",
    "guard",
    "is_real",
]

_GUARDS: Mapping[str, Callable[[Facts, Plan], Check | None]] = {
    "identity": lambda facts, plan: machine.identity(facts),
    "root-device": lambda facts, plan: volumes.root_device(facts),
    "size": lambda facts, plan: alike.size(facts),
    "filesystem": lambda facts, plan: alike.filesystem(facts),
    "mount-options": lambda facts, plan: alike.mount_options(facts),
    "readahead": lambda facts, plan: alike.readahead(facts),
    "scheduler": lambda facts, plan: alike.scheduler(facts),
    "encryption": lambda facts, plan: alike.encryption(facts),
    "burst-balance": volumes.burst_balance,
    "gp3-throughput": lambda facts, plan: volumes.gp3_throughput(facts),
    "initialised": lambda facts, plan: volumes.initialised(facts),
    "modification": lambda facts, plan: volumes.modification(facts),
    "instance-limit": lambda facts, plan: machine.instance_limit(facts),
    "instance-burst": lambda facts, plan: machine.instance_burst(facts),
    "other-io": lambda facts, plan: machine.other_io(facts),
    "clock": lambda facts, plan: machine.clock(facts),
}
NAMES = tuple(_GUARDS)


def guard(facts: Facts, plan: Plan) -> list[Check]:
    """One check per guard that has something to look at, those that the plan accepts marked so."""
    found = (look(facts, plan) for look in _GUARDS.values())
    return [
        replace(check, accepted=not check.ok and check.name in plan.accept)
        for check in found
        if check is not None
    ]


def check_names(accepted: Collection[str]) -> None:
    """PlanError when one of the accepted names is no guard's."""
    for name in accepted:
        if name not in NAMES:
            raise PlanError(f"accept: no check is named {name!r}; use one of {', '.join(NAMES)}")
