"""Volumes, file systems and instance types as described by AWS: read-only calls, records in base units.

All calls are in ``policies/identity.json``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from esrally_ebs.aws.clients import Api
from esrally_ebs.units import GIB, MIB

_MBIT = 1_000_000 / 8  # EC2 gives instance bandwidth in decimal Mbit/s


@dataclass(frozen=True, slots=True, kw_only=True)
class EbsVolume:
    """One EBS volume's provisioned settings and current state."""

    volume_id: str
    type: str
    size_bytes: int
    iops: int | None  # None for types without (st1, sc1, standard)
    throughput_bytes_per_s: int | None  # gp3 only
    encrypted: bool
    state: str  # in-use, available ...
    snapshot_id: str = ""  # the snapshot that it was made from
    fast_restored: bool = False
    initialised: float | None = None  # fraction; None if AWS does not say
    modification: str | None = None  # modifying, optimizing, completed, failed; "": none; None: unknown
    modified: float | None = None  # progress of the modification, a fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystem:
    file_system_id: str
    throughput_mode: str  # bursting, provisioned, elastic
    performance_mode: str
    provisioned_bytes_per_s: int | None
    encrypted: bool
    size_bytes: int
    zone: str  # for a One Zone file system; "" for a regional one
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLimits:
    """What an instance type can transfer to and from all its EBS volumes together."""

    instance_type: str
    baseline_iops: int
    baseline_bytes_per_s: float
    maximum_iops: int  # if above the baseline: for 30 minutes at least once in 24 hours
    maximum_bytes_per_s: float

    @property
    def bursts(self) -> bool:
        """Whether the maximum is a burst."""
        return self.maximum_iops > self.baseline_iops or self.maximum_bytes_per_s > self.baseline_bytes_per_s


def volumes_where(api: Api, name: str, *values: str) -> list[Mapping[str, Any]]:
    """Volumes as described by AWS, by a filter of DescribeVolumes; empty if there are none."""
    filters = [{"Name": name, "Values": list(values)}]
    volumes: list[Mapping[str, Any]] = api.call("ec2", "DescribeVolumes", Filters=filters)["Volumes"]
    return volumes


def modifications_of(api: Api, ids: Sequence[str]) -> list[Mapping[str, Any]]:
    """Each volume's modifications as described by AWS, oldest first; empty if never modified.

    Uses a filter: asking by the id of a volume that was never modified is an error.
    """
    filters = [{"Name": "volume-id", "Values": list(ids)}]
    raw = api.call("ec2", "DescribeVolumesModifications", Filters=filters)["VolumesModifications"]
    return sorted(raw, key=lambda modification: str(modification.get("StartTime", "")))


def describe_volumes(api: Api, ids: Sequence[str]) -> dict[str, EbsVolume]:
    """Provisioned volumes by id. Raises AwsError, also for an id that does not exist."""
    volumes = api.call("ec2", "DescribeVolumes", VolumeIds=list(ids))["Volumes"]
    return {raw["VolumeId"]: _volume(raw) for raw in volumes}


def describe_modifications(api: Api, ids: Sequence[str]) -> dict[str, tuple[str, float | None]]:
    """State and progress (a fraction) of each volume's latest modification, if there was one.

    Raises AwsError.
    """
    return {
        raw["VolumeId"]: (raw.get("ModificationState", ""), _fraction(raw.get("Progress")))
        for raw in modifications_of(api, ids)
    }


def describe_initialisation(api: Api, ids: Sequence[str]) -> dict[str, float]:
    """Share of each volume that has been read from its snapshot; AWS reports this since 2025.

    Leaves out volumes for which AWS does not say. Raises AwsError.
    """
    statuses = api.call("ec2", "DescribeVolumeStatus", VolumeIds=list(ids))["VolumeStatuses"]
    return {
        raw["VolumeId"]: raw["InitializationStatusDetails"]["Progress"] / 100
        for raw in statuses
        if "Progress" in raw.get("InitializationStatusDetails", {})
    }


def describe_file_system(api: Api, file_system_id: str) -> FileSystem:
    """One EFS file system. Raises AwsError."""
    answer = api.call("efs", "DescribeFileSystems", FileSystemId=file_system_id)["FileSystems"][0]
    provisioned = answer.get("ProvisionedThroughputInMibps")
    return FileSystem(
        file_system_id=answer["FileSystemId"],
        throughput_mode=answer.get("ThroughputMode", ""),
        performance_mode=answer.get("PerformanceMode", ""),
        provisioned_bytes_per_s=None if provisioned is None else round(provisioned * MIB),
        encrypted=bool(answer.get("Encrypted")),
        size_bytes=int(answer.get("SizeInBytes", {}).get("Value", 0)),
        zone=answer.get("AvailabilityZoneName", ""),
        state=answer.get("LifeCycleState", ""),
    )


def describe_instance_type(api: Api, instance_type: str) -> InstanceLimits | None:
    """An instance type's EBS limits; None if AWS publishes none (old types). Raises AwsError."""
    answer = api.call("ec2", "DescribeInstanceTypes", InstanceTypes=[instance_type])["InstanceTypes"][0]
    info = answer.get("EbsInfo", {}).get("EbsOptimizedInfo")
    if not info:
        return None
    return InstanceLimits(
        instance_type=instance_type,
        baseline_iops=info["BaselineIops"],
        baseline_bytes_per_s=info["BaselineBandwidthInMbps"] * _MBIT,
        maximum_iops=info["MaximumIops"],
        maximum_bytes_per_s=info["MaximumBandwidthInMbps"] * _MBIT,
    )


def device_mapping(api: Api, instance_id: str) -> dict[str, str]:
    """Device name (``/dev/sdf``) to volume id for everything attached. Raises AwsError."""
    reservations = api.call("ec2", "DescribeInstances", InstanceIds=[instance_id])["Reservations"]
    return {
        mapping["DeviceName"]: mapping["Ebs"]["VolumeId"]
        for reservation in reservations
        for instance in reservation["Instances"]
        for mapping in instance.get("BlockDeviceMappings", ())
        if "Ebs" in mapping
    }


def _volume(answer: Mapping[str, Any]) -> EbsVolume:
    throughput = answer.get("Throughput")
    return EbsVolume(
        volume_id=answer["VolumeId"],
        type=answer["VolumeType"],
        size_bytes=answer["Size"] * GIB,
        iops=answer.get("Iops"),
        throughput_bytes_per_s=throughput * MIB if throughput else None,
        encrypted=bool(answer.get("Encrypted")),
        state=answer["State"],
        snapshot_id=answer.get("SnapshotId") or "",
        fast_restored=bool(answer.get("FastRestored")),
    )


def _fraction(percent: int | None) -> float | None:
    return None if percent is None else percent / 100
