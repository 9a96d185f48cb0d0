"""Guards: is what is about to be measured what the user thinks it is? Facts in, named checks out.

Pure: whoever reads machine and AWS hands in Facts. A check that is not ok stops the session when its severity
is STOP, unless the user accepts it by its name, which is then on record.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from esrally_ebs.analysis.comparable import LATENESS, REACH
from esrally_ebs.checks import same_settings, surroundings, volume_state
from esrally_ebs.checks.facts import ArmFacts, ClockFacts, Facts, InstanceFacts, is_real
from esrally_ebs.errors import PlanError, near
from esrally_ebs.model import Check

__all__ = [
    "NAMES",
    "ArmFacts",
    "ClockFacts",
    "Facts",
    "InstanceFacts",
    "check_names",
    "guard",
    "is_real",
]

_GUARDS: Mapping[str, Callable[[Facts], Check | None]] = {
    "identity": surroundings.identity,
    "root-device": volume_state.root_device,
    "caches-below": volume_state.caches_below,
    "size": same_settings.size,
    "filesystem": same_settings.filesystem,
    "mount-options": same_settings.mount_options,
    "readahead": same_settings.readahead,
    "scheduler": same_settings.scheduler,
    "encryption": same_settings.encryption,
    "burst-balance": volume_state.burst_balance,
    "gp3-throughput": volume_state.gp3_throughput,
    "initialised": volume_state.initialised,
    "modification": volume_state.modification,
    "instance-limit": surroundings.instance_limit,
    "instance-burst": surroundings.instance_burst,
    "other-io": surroundings.other_io,
    "clock": surroundings.clock,
}
NAMES = (*_GUARDS, LATENESS, REACH)  # that a plan may accept


def guard(facts: Facts) -> list[Check]:
    """One check per guard that has something to look at, those that the plan accepts marked so."""
    checks = (look(facts) for look in _GUARDS.values())
    return [
        replace(check, accepted=not check.ok and check.name in facts.plan.accept)
        for check in checks
        if check is not None
    ]


def check_names(accepted: Collection[str]) -> None:
    """PlanError when one of the accepted names is no check's that may be accepted."""
    for name in accepted:
        if name not in NAMES:
            raise PlanError(f"no check is named {name!r}; use one of {', '.join(NAMES)}{near(name, NAMES)}")
