"""What an arm on AWS shall become, and by which tags all that is made for it is told from anything else."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from esrally_ebs.emulator.catalog import model_for, volume_types
from esrally_ebs.errors import PlanError
from esrally_ebs.model import AwsSpec, VolumeSpec
from esrally_ebs.units import GIB, KIB, MIB

TAG_SESSION = "esrally-ebs:session"
TAG_RUN = "esrally-ebs:run"  # one arm of one session, once: never used again
TAG_ARM = "esrally-ebs:arm"
TAG_MEMBER = "esrally-ebs:member"  # its number in a stripe
TAG_OWNER = "esrally-ebs:owner"  # instance, boot and run directory that it is used from

Sort = Literal["ebs", "efs", "instance-store"]
_LABEL = 12
_NAMESPACE = uuid.UUID("6f1f7a51-2f0c-4d2c-9d0c-6a8f5a1c7e21")  # of our uuids: any constant


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The instance that the arms are for."""

    instance: str
    zone: str
    region: str
    subnet: str = ""  # EFS alone needs these two
    security_groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One arm: what to make, where to mount it, and as whose."""

    session: str
    arm: str
    run: str
    owner: str
    place: Place
    sort: Sort
    type: str
    size_gib: int  # of each member; 0 for EFS
    point: Path
    count: int = 1
    chunk_bytes: int = 512 * KIB  # of one volume before the next one's
    iops: int | None = None
    throughput_mib: int | None = None
    mode: str | None = None  # of EFS: bursting, provisioned or elastic
    one_zone: bool = False
    encrypted: bool = True
    snapshot: str | None = None
    initialise: bool = True  # read all of a volume made from a snapshot before it counts as ready
    filesystem: str = "xfs"
    stripe: str = "mdadm"  # or lvm
    readahead_bytes: int | None = None

    def tags(self, member: int) -> dict[str, str]:
        """The tags of the arm's member of that number."""
        return {
            "Name": f"esrally-ebs {self.arm}",
            TAG_SESSION: self.session,
            TAG_RUN: self.run,
            TAG_ARM: self.arm,
            TAG_MEMBER: str(member),
            TAG_OWNER: self.owner,
        }

    def token(self, member: int) -> str:
        """What makes a repeated request the same request for AWS; at most 64 characters."""
        return str(uuid.uuid5(_NAMESPACE, f"{self.run}/{member}"))

    @property
    def label(self) -> str:
        """The label of the file system that we make; XFS takes 12 characters."""
        return self.run[:_LABEL]

    @property
    def filesystem_uuid(self) -> str:
        """The UUID of the file system that we make: another one is not ours."""
        return filesystem_uuid(self.label)

    @property
    def stripe_name(self) -> str:
        """The name of the md array or of the volume group."""
        return f"ebs-{self.label}"


def filesystem_uuid(label: str) -> str:
    """The UUID that goes with a label: together they prove on the disk alone who made the file system."""
    return str(uuid.uuid5(_NAMESPACE, f"{label}/filesystem"))


def new_goal(spec: VolumeSpec, place: Place, *, session: str, owner: str, point: Path) -> Goal:
    """The goal of an arm; PlanError when AWS has no such volume."""
    sort = sort_of(spec)
    made = spec.aws or AwsSpec()
    if sort == "ebs" and spec.type in volume_types():
        model_for(replace(spec, date=None, instance=None))  # what AWS would refuse, in better words
    snapshot = made.snapshot if sort == "ebs" else None  # the others cannot be made from one
    if spec.read_latency != 1:
        raise PlanError(f"volume '{spec.name}': read_latency: AWS does not slow a volume; remove it")
    if snapshot is not None and spec.stripes > 1:
        raise PlanError(f"volume '{spec.name}': a snapshot holds one volume; remove stripes, or aws.snapshot")
    return Goal(
        session=session,
        arm=spec.name,
        run=uuid.uuid4().hex,
        owner=owner,
        place=place,
        sort=sort,
        type=_EBS_TYPES.get(spec.type, spec.type),
        size_gib=0 if sort == "efs" else _whole(spec, "size", spec.size_bytes, GIB),
        point=point,
        count=spec.stripes,
        chunk_bytes=spec.chunk_bytes,
        iops=spec.iops,
        throughput_mib=_throughput(spec),
        encrypted=spec.encrypted,
        mode=spec.mode,
        one_zone=spec.one_zone,
        snapshot=snapshot,
        initialise=made.initialise,
        stripe=made.stripe_with,
        readahead_bytes=spec.readahead_bytes,
    )


def sort_of(spec: VolumeSpec) -> Sort:
    """Which of AWS's services holds a volume of this type; PlanError when none does."""
    if spec.type in ("efs", "instance-store"):
        if spec.type == "efs" and spec.stripes > 1:
            raise PlanError(f"volume '{spec.name}': EFS is not striped; remove stripes")
        return "efs" if spec.type == "efs" else "instance-store"
    if spec.type in _EBS_TYPES:
        return "ebs"
    raise PlanError(
        f"volume '{spec.name}': AWS has no type {spec.type!r}; use one of"
        f" {', '.join((*_EBS_TYPES, 'efs', 'instance-store'))}"
    )


# The types that plans know, as AWS calls them.
_EBS_TYPES = {name: name for name in ("gp2", "gp3", "io1", "io2", "st1", "sc1", "standard")}
_EBS_TYPES |= {"io2-block-express": "io2", "magnetic": "standard"}


def tags_of(listed: object) -> Mapping[str, str]:
    """AWS's list of ``{"Key", "Value"}`` as a mapping."""
    return {tag["Key"]: tag["Value"] for tag in listed} if isinstance(listed, list) else {}


def _throughput(spec: VolumeSpec) -> int | None:
    given = spec.throughput_bytes_per_s
    return None if given is None else _whole(spec, "throughput", given, MIB)


def _whole(spec: VolumeSpec, what: str, value: int, unit: int) -> int:
    if value % unit:
        name = "GiB" if unit == GIB else "MiB/s"
        raise PlanError(
            f"volume '{spec.name}': {what}: AWS takes whole {name}, not {value / unit:g}; round it"
        )
    return value // unit
