"""Facts of arms for the tests of guards: two volumes that are alike, and how one of them differs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from esrally_ebs.aws.describe import EbsVolume, FileSystem
from esrally_ebs.checks.facts import ArmFacts, Facts
from esrally_ebs.checks.guards import guard
from esrally_ebs.model import Check, Kind, Severity, Volume, VolumeSpec
from esrally_ebs.plan import Plan, parse_plan

GIB, MIB, KIB = 1024**3, 1024**2, 1024
ARMS = '[[arm]]\nname = "a"\ntype = "mounted"\nmount = "/mnt/a"\n'
PLAN = parse_plan(f'name = "p"\n{ARMS}', "p.toml")


def volume(number: int = 0, **changes: Any) -> EbsVolume:  # noqa: ANN401
    """A gp3 of 100 GiB as it comes."""
    made = EbsVolume(
        volume_id=f"vol-{number:017x}",
        type="gp3",
        size_bytes=100 * GIB,
        iops=3000,
        throughput_bytes_per_s=125 * MIB,
        encrypted=True,
        state="in-use",
        modification="",
    )
    return replace(made, **changes)


def gp2(number: int = 1, gib: int = 500, **changes: Any) -> EbsVolume:  # noqa: ANN401
    base = {"type": "gp2", "size_bytes": gib * GIB, "iops": max(100, 3 * gib), "throughput_bytes_per_s": None}
    return volume(number, **{**base, **changes})


def efs(mode: str = "bursting", gib: int = 1024, **changes: Any) -> FileSystem:  # noqa: ANN401
    """A regional EFS file system that holds that much."""
    made = FileSystem(
        file_system_id="fs-1",
        throughput_mode=mode,
        performance_mode="generalPurpose",
        provisioned_bytes_per_s=None,
        encrypted=True,
        size_bytes=gib * GIB,
        zone="",
        state="available",
    )
    return replace(made, **changes)


def arm(name: str, *members: EbsVolume, kind: Kind = Kind.EBS, **changes: Any) -> ArmFacts:  # noqa: ANN401
    known = ("root", "balances", "activity", "file_system", "credit_bytes", "caches")
    facts = {key: changes.pop(key) for key in known if key in changes}
    described = Volume(
        spec=VolumeSpec(
            name=name, type="mounted", size_bytes=sum(m.size_bytes for m in members) or 100 * GIB
        ),
        kind=kind,
        mount=Path("/mnt") / name,
        device=None if kind is Kind.EFS else f"nvme{name}n1",
        filesystem="xfs",
        mount_options="rw,noatime",
        readahead_bytes=128 * KIB,
        scheduler="none",
    )
    ids = tuple(member.volume_id for member in members)
    return ArmFacts(volume=replace(described, **changes), volume_ids=ids, members=members, **facts)


def check_of(name: str, *arms: ArmFacts, plan: Plan = PLAN, **facts: Any) -> Check | None:  # noqa: ANN401
    checks = {check.name: check for check in guard(Facts(plan=plan, arms=arms, **facts))}
    return checks.get(name)


def stopped(name: str, *arms: ArmFacts, severity: Severity = Severity.STOP, **facts: Any) -> str:  # noqa: ANN401
    """The text of the check, which must not be ok and must say how it is mended."""
    check = check_of(name, *arms, **facts)
    assert check is not None
    assert (check.ok, check.severity, bool(check.mend)) == (False, severity, True)
    return check.text


def fine(name: str, *arms: ArmFacts, **facts: Any) -> bool:  # noqa: ANN401
    check = check_of(name, *arms, **facts)
    return check is not None and check.ok


ALIKE = (arm("a", volume(0)), arm("b", volume(1)))
