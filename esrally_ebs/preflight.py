"""What a plan needs of this machine, checked before anything is started."""

import shutil

from esrally_ebs.errors import SetupError
from esrally_ebs.guards import check_names
from esrally_ebs.plan import Plan
from esrally_ebs.system import is_root

_REAL = ("mounted", "directory")


def require(plan: Plan, *, with_nodes: bool) -> None:
    """Raise SetupError that names the first thing missing and how to get it, PlanError for a wrong name."""
    check_names(plan.accept)
    emulated = [arm.name for arm in plan.arm if arm.type not in _REAL]
    if emulated and not is_root():
        raise SetupError(
            f"arm {emulated[0]}: an emulated volume needs root; run as root or use real mounts with "
            "--track-params='volumes:name=/mount;name=/mount'"
        )
    if with_nodes and plan.cache.mode == "cold" and not is_root():
        raise SetupError(
            "cache: evicting a node's pages needs root; run as root or say --track-params=cache:warm"
        )
    if plan.baseline and shutil.which("fio") is None:
        raise SetupError(
            "fio: not found; install it (apt-get install fio) or take [[baseline]] out of the plan"
        )
    if emulated and shutil.which("mkfs.xfs") is None:
        raise SetupError("mkfs.xfs: not found; install it (apt-get install xfsprogs)")
