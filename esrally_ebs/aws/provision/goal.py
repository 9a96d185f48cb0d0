"""What to make for an arm on AWS, and the tags that identify its volumes and file systems."""

import hashlib
import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from esrally_ebs.aws.instance import Place
from esrally_ebs.catalog import cost
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.errors import PlanError
from esrally_ebs.model import AwsSpec, VolumeSpec
from esrally_ebs.units import GIB, KIB, MIB, whole_units

TAG_SESSION = "esrally-ebs:session"
TAG_RUN = "esrally-ebs:run"  # one arm of one session; never reused
TAG_ARM = "esrally-ebs:arm"
TAG_MEMBER = "esrally-ebs:member"  # number in a stripe
TAG_SNAPSHOT = "esrally-ebs:snapshot"  # that we made it from; volumes from others are copies by somebody
TAG_OWNER = "esrally-ebs:owner"  # instance, boot and run directory of its user

Sort = Literal["ebs", "efs", "instance-store"]
_LABEL_LENGTH = 12  # of an XFS label
_NAMESPACE = uuid.UUID("6f1f7a51-2f0c-4d2c-9d0c-6a8f5a1c7e21")  # for our UUIDs; an arbitrary constant
_NOT_IN_TAGS = re.compile(r"[^A-Za-z0-9 +=._:/@-]")
_TAG_LENGTH = 256
_HASH_LENGTH = 12  # hexadecimal digits of a hash or a boot id
# AWS's names of plans' types.
EBS_TYPES = {name: name for name in ("gp2", "gp3", "io1", "io2", "st1", "sc1", "standard")}
EBS_TYPES |= {"io2-block-express": "io2", "magnetic": "standard"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOwner:
    """An instance's run directory during one boot; its tag is on everything used from there."""

    instance: str
    boot: str  # the kernel's boot_id: the same in all containers of an instance, different after each boot
    run_dir: Path

    @property
    def tag(self) -> str:
        """Value of the owner's tag, within AWS's characters and length.

        A path that is too long ends in a hash of the whole, so that two directories never share a tag.
        """
        text = f"{self.instance}:{self.boot[:_HASH_LENGTH]}:{self.run_dir}"
        if len(text) <= _TAG_LENGTH and not _NOT_IN_TAGS.search(text):
            return text
        mark = ":" + hashlib.sha256(os.fsencode(self.run_dir)).hexdigest()[:_HASH_LENGTH]
        return _NOT_IN_TAGS.sub("_", text)[: _TAG_LENGTH - len(mark)] + mark

    def wrote(self, tag: str) -> bool:
        """Whether a tag is this owner's, of any boot."""
        boot = tag.partition(":")[2].partition(":")[0]
        return tag == replace(self, boot=boot).tag


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One arm: what to make, where to mount it, and for whom."""

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
    chunk_bytes: int = 512 * KIB  # bytes on one volume before the next
    iops: int | None = None
    throughput_mib: int | None = None
    mode: Literal["bursting", "provisioned", "elastic"] | None = None  # for EFS
    one_zone: bool = False
    encrypted: bool = True
    snapshot: str | None = None
    initialise: bool = True  # read a volume from a snapshot completely before it counts as ready
    filesystem: str = "xfs"
    stripe: str = "mdadm"  # or lvm
    readahead_bytes: int | None = None

    def tags(self, member: int) -> dict[str, str]:
        return {
            "Name": f"esrally-ebs {self.arm}",
            TAG_SESSION: self.session,
            TAG_RUN: self.run,
            TAG_ARM: self.arm,
            TAG_MEMBER: str(member),
            TAG_OWNER: self.owner,
            **({TAG_SNAPSHOT: self.snapshot} if self.snapshot else {}),
        }

    def token(self, member: int) -> str:
        """Idempotency token: lets AWS recognise a repeated request."""
        return client_token(self.run, member)

    @property
    def label(self) -> str:
        """Label of the file system that we make."""
        return self.run[:_LABEL_LENGTH]

    @property
    def filesystem_uuid(self) -> str:
        """UUID of the file system that we make; any other is not ours."""
        return filesystem_uuid(self.label)

    @property
    def stripe_name(self) -> str:
        """Name of the md array or volume group."""
        return f"ebs-{self.label}"


def client_token(run: str, member: int) -> str:
    """Token for a member's creation, at most 64 characters. EFS returns it, and copies lack it."""
    return str(uuid.uuid5(_NAMESPACE, f"{run}/{member}"))


def filesystem_uuid(label: str) -> str:
    """UUID for a label: together they prove, on the disk alone, that we made the file system."""
    return str(uuid.uuid5(_NAMESPACE, f"{label}/filesystem"))


def member_uuid(label: str, serial: str) -> str:
    """UUID, as 32 digits, of LVM's physical volume on a member of our stripe."""
    return uuid.uuid5(_NAMESPACE, f"{label}/{serial}").hex


def new_goal(spec: VolumeSpec, place: Place, *, session: str, owner: str, point: Path) -> Goal:
    """The goal of an arm. Raises PlanError if AWS has no such volume."""
    sort = sort_of(spec)
    aws = spec.aws or AwsSpec()
    if sort != "instance-store":
        model_for(replace(spec, date=None, instance=None))  # with a better message than AWS's refusal
    snapshot = aws.snapshot if sort == "ebs" else None  # others cannot be made from one
    if spec.read_latency != 1:
        raise PlanError(f"volume '{spec.name}': read_latency: AWS does not slow a volume; remove it")
    if snapshot is not None and spec.stripes > 1:
        raise PlanError(f"volume '{spec.name}': a snapshot holds one volume; remove stripes, or aws.snapshot")
    rate = spec.throughput_bytes_per_s
    return Goal(
        session=session,
        arm=spec.name,
        run=uuid.uuid4().hex,
        owner=owner,
        place=place,
        sort=sort,
        type=EBS_TYPES.get(spec.type, spec.type),
        size_gib=0 if sort == "efs" else whole_units(f"volume '{spec.name}': size", spec.size_bytes, GIB),
        point=point,
        count=spec.stripes,
        chunk_bytes=spec.chunk_bytes,
        iops=spec.iops,
        throughput_mib=None if rate is None else whole_units(f"volume '{spec.name}': throughput", rate, MIB),
        encrypted=spec.encrypted,
        mode=spec.mode,
        one_zone=spec.one_zone,
        snapshot=snapshot,
        initialise=aws.initialise,
        stripe=aws.stripe_with,
        readahead_bytes=spec.readahead_bytes,
    )


def sort_of(spec: VolumeSpec) -> Sort:
    """AWS's service for volumes of this type. Raises PlanError if there is none."""
    if spec.type == "efs":
        if spec.stripes > 1:
            raise PlanError(f"volume '{spec.name}': EFS is not striped; remove stripes")
        return "efs"
    if spec.type == "instance-store":
        return "instance-store"
    if spec.type in EBS_TYPES:
        return "ebs"
    raise PlanError(
        f"volume '{spec.name}': AWS has no type {spec.type!r}; use one of"
        f" {', '.join((*EBS_TYPES, 'efs', 'instance-store'))}"
    )


def usd_an_hour(goal: Goal) -> float | None:
    """The arm's price per hour; None if the price list lacks it."""
    spec = VolumeSpec(
        name=goal.arm,
        type=goal.type,
        size_bytes=goal.size_gib * GIB,
        iops=goal.iops,
        throughput_bytes_per_s=None if goal.throughput_mib is None else goal.throughput_mib * MIB,
        stripes=goal.count,
        mode=goal.mode,
        one_zone=goal.one_zone,
    )
    try:
        return cost.monthly(spec, goal.place.region).usd / cost.HOURS_A_MONTH
    except PlanError:
        return None


def tags_of(pairs: object) -> Mapping[str, str]:
    """AWS's list of ``{"Key", "Value"}`` as a mapping."""
    return {tag["Key"]: tag["Value"] for tag in pairs} if isinstance(pairs, list) else {}


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """The reverse of ``tags_of``."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]
