"""A plan's requirements on this machine, checked before anything is started."""

import os

from esrally_ebs.analysis.multiplicity import needed_rounds
from esrally_ebs.analysis.sequential import confidence_of
from esrally_ebs.analysis.summary import MIN_ROUNDS
from esrally_ebs.aws.modify import Settings, VolumeChange, target_of
from esrally_ebs.aws.provision.goal import EBS_TYPES, sort_of
from esrally_ebs.catalog.cost import price_list
from esrally_ebs.checks.guards import check_names
from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.machine.caller import KEEPER
from esrally_ebs.machine.processes import is_root, which
from esrally_ebs.machine.resources import home, named_in_text
from esrally_ebs.model import Backend, VolumeSpec
from esrally_ebs.plan import DesignPlan, ModifyPlan, Plan
from esrally_ebs.plan.tables import MAX_STEP_S
from esrally_ebs.units import GIB, MIB, number_of
from esrally_ebs.volumes.backends import check_mounts


def check_plan(plan: Plan) -> None:
    """Check everything in a plan that depends on more than its file: names of checks, files, mounts, jobs.

    Nothing has begun yet, and refused plans leave no session. Raises PlanError with file and key; SetupError
    for a mount that is read-only or full.
    """
    with plan.naming("accept"):
        check_names(plan.accept)
    check_mounts(plan)
    if plan.cost.prices is not None:
        with plan.naming("cost.prices"):
            price_list(str(plan.cost.prices))
    for number, job in enumerate(plan.baseline):
        with plan.naming(f"baseline.{number}.stonewall"):
            if not job.stonewall:
                raise PlanError(f"{job.name}: jobs run together only in virtual time; remove it")
    with plan.naming("design.knee"):
        _check_knee(plan.design)
    if (wanted := plan.modify) is not None:
        with plan.naming("modify"):
            _check_change(wanted, next(arm for arm in plan.arm if arm.name == wanted.arm))


def _check_knee(design: DesignPlan) -> None:
    """Raise PlanError for a bound that hardly any rate breaks before a step ends."""
    if design.bound is not None and design.bound.seconds > design.step:
        way = 'set design.step = "10m"' if design.bound.seconds <= MAX_STEP_S else "no step is that long"
        raise PlanError(f"{design.knee}: a step of {design.step:g} s ends before a query is late; {way}")


def _check_change(wanted: ModifyPlan, arm: VolumeSpec) -> None:
    """Raise PlanError for an arm that cannot be changed in place, or not to this; AWS checks mounts later."""
    if arm.backend is Backend.MOUNTED:
        return
    if arm.backend is not Backend.AWS or sort_of(arm) != "ebs" or arm.stripes > 1:
        raise PlanError(
            f"only one EBS volume is changed in place, and {arm.name} is none; make it one with [aws], or"
            " give its mount",
            key="arm",
        )
    rate = arm.throughput_bytes_per_s
    now = Settings(
        type=EBS_TYPES[arm.type],
        size_gib=arm.size_bytes // GIB,
        iops=arm.iops,
        throughput_mib=None if rate is None else rate // MIB,
    )
    target_of(now, change_of(wanted))


def change_of(wanted: ModifyPlan) -> VolumeChange:
    return VolumeChange(
        type=wanted.type,
        size_gib=None if wanted.size is None else wanted.size // GIB,
        iops=wanted.iops,
        throughput_mib=None if wanted.throughput is None else wanted.throughput // MIB,
    )


def require_rounds(plan: Plan, searches: int) -> None:
    """Raise PlanError, with the needed number, if the rounds are too few to show any difference between arms.

    Fewer rounds than any verdict needs are a rehearsal, which the report says.
    """
    design = plan.design
    if len(plan.arm) < 2 or not searches or design.knee is not None or design.most_rounds < MIN_ROUNDS:
        return
    if design.starts > 1 or design.volumes > 1:  # means over these have no least p value
        return
    needed = needed_rounds(len(plan.arm), searches, confidence_of(design))
    if design.most_rounds < needed:
        key = "max_rounds" if design.is_auto else "rounds"
        raise PlanError(
            f"design.{key}: {design.most_rounds} rounds can tell no difference between {len(plan.arm)} arms "
            f"on {number_of(searches, 'task')} at {design.confidence:.4g}; {needed} are needed: "
            f"set {key} = {needed}"
        )


def require(plan: Plan, *, with_nodes: bool) -> None:
    """Raise SetupError for the first missing requirement, with how to get it."""
    named_in_text("ESRALLY_EBS_HOME", home())
    emulated = [arm.name for arm in plan.arm if arm.backend is Backend.EMULATED]
    has_root = is_root() or KEEPER in os.environ
    if emulated and not has_root:
        raise SetupError(
            f"arm {emulated[0]}: an emulated volume needs root; run as root or use real mounts: mount = in "
            "the plan, of esrally race --track-params='volumes:name=/mount;name=/mount'"
        )
    if with_nodes and plan.cache.mode != "warm" and not has_root:
        raise SetupError(
            "cache: evicting a node's pages needs root; run as root or set cache.mode = 'warm', of "
            "esrally race --track-params=cache:warm"
        )
    if plan.baseline and which("fio") is None:
        raise SetupError(
            "fio: not found; install it (apt-get install fio) or take [[baseline]] out of the plan"
        )
    if emulated and which("mkfs.xfs") is None:
        raise SetupError("mkfs.xfs: not found; install it (apt-get install xfsprogs)")
