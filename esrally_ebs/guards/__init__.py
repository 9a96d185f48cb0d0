"""Guards: is what is about to be measured what the user thinks it is? Facts in, named checks out.

Pure: whoever reads machine and AWS hands in Facts. A check that is not ok stops the session when its severity
is STOP, unless the user accepts it by its name, which is then on record.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from esrally_ebs.errors import PlanError
from esrally_ebs.guards import alike, machine, volumes
from esrally_ebs.guards.facts import ArmFacts, ClockFacts, Facts, InstanceFacts, Watched, is_real
from esrally_ebs.model import Check

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

_GUARDS: Mapping[str, Callable[[Facts], Check | None]] = {
    "identity": machine.identity,
    "root-device": volumes.root_device,
    "size": alike.size,
    "filesystem": alike.filesystem,
    "mount-options": alike.mount_options,
    "readahead": alike.readahead,
    "scheduler": alike.scheduler,
    "encryption": alike.encryption,
    "burst-balance": volumes.burst_balance,
    "gp3-throughput": volumes.gp3_throughput,
    "initialised": volumes.initialised,
    "modification": volumes.modification,
    "instance-limit": machine.instance_limit,
    "instance-burst": machine.instance_burst,
    "other-io": machine.other_io,
    "clock": machine.clock,
}
NAMES = tuple(_GUARDS)


def guard(facts: Facts) -> list[Check]:
    """One check per guard that has something to look at, those that the plan accepts marked so."""
    found = (look(facts) for look in _GUARDS.values())
    return [
        replace(check, accepted=not check.ok and check.name in facts.plan.accept)
        for check in found
        if check is not None
    ]


def check_names(accepted: Collection[str]) -> None:
    """PlanError when one of the accepted names is no guard's."""
    for name in accepted:
        if name not in NAMES:
            raise PlanError(f"accept: no check is named {name!r}; use one of {', '.join(NAMES)}")
