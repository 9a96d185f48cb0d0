"""Volumes, file systems and instance types as AWS describes them: read-only calls, records in base units.

Every call here is of the policy ``policies/identity.json``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from esrally_ebs.aws.clients import Api
from esrally_ebs.units import GIB, MIB

_MBIT = 1_000_000 / 8  # EC2 gives instance bandwidth in Mbit/s, decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class EbsVolume:
    """One EBS volume as it is provisioned, and what is going on with it."""

    volume_id: str
    type: str
    size_bytes: int
    iops: int | None  # None where the type has none to provision (st1, sc1, standard)
    throughput_bytes_per_s: int | None  # gp3 only
    encrypted: bool
    state: str  # in-use, available ...
    snapshot_id: str = ""  # what it was made from
    fast_restored: bool = False
    initialised: float | None = None  # fraction; None where AWS does not say
    modification: str | None = None  # modifying, optimizing, completed, failed, "" for none; None = not known
    modified: float | None = None  # fraction of that modification


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystem:
    file_system_id: str
    throughput_mode: str  # bursting, provisioned, elastic
    performance_mode: str
    provisioned_bytes_per_s: int | None
    encrypted: bool
    size_bytes: int
    zone: str  # of a One Zone file system; empty for a regional one
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLimits:
    """What an instance type can move to and from all its EBS volumes together."""

    instance_type: str
    baseline_iops: int
    baseline_bytes_per_s: float
    maximum_iops: int  # for 30 minutes at least once in 24 hours, where it is above the baseline
    maximum_bytes_per_s: float

    @property
    def bursts(self) -> bool:
        """Whether the maximum is lent, not given."""
        return self.maximum_iops > self.baseline_iops or self.maximum_bytes_per_s > self.baseline_bytes_per_s


def volumes_where(api: Api, name: str, *values: str) -> list[Mapping[str, Any]]:
    """Volumes as AWS describes them, by one of DescribeVolumes' filters; none for what is not there."""
    filters = [{"Name": name, "Values": list(values)}]
    volumes: list[Mapping[str, Any]] = api.call("ec2", "DescribeVolumes", Filters=filters)["Volumes"]
    return volumes


def modifications_of(api: Api, ids: Sequence[str]) -> list[Mapping[str, Any]]:
    """Each volume's modifications as AWS describes them, oldest first; none for one never modified.

    By filter: to ask for a volume that was never modified is an error.
    """
    filters = [{"Name": "volume-id", "Values": list(ids)}]
    raw = api.call("ec2", "DescribeVolumesModifications", Filters=filters)["VolumesModifications"]
    return sorted(raw, key=lambda modification: str(modification.get("StartTime", "")))


def describe_volumes(api: Api, ids: Sequence[str]) -> dict[str, EbsVolume]:
    """Volumes by id as they are provisioned. Raises AwsError, also for an id that is not there."""
    volumes = api.call("ec2", "DescribeVolumes", VolumeIds=list(ids))["Volumes"]
    return {raw["VolumeId"]: _volume(raw) for raw in volumes}


def describe_modifications(api: Api, ids: Sequence[str]) -> dict[str, tuple[str, float | None]]:
    """State and progress (a fraction) of each volume's latest modification, if it ever had one.

    Raises AwsError.
    """
    return {
        raw["VolumeId"]: (raw.get("ModificationState", ""), _fraction(raw.get("Progress")))
        for raw in modifications_of(api, ids)
    }


def describe_initialisation(api: Api, ids: Sequence[str]) -> dict[str, float]:
    """How much (a fraction) of volumes made from snapshots has been read from them; AWS says so since 2025.

    Empty for volumes of which AWS does not say. Raises AwsError.
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
    """The EBS limits of an instance type; None where AWS publishes none (old types). Raises AwsError."""
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
    """Device name (``/dev/sdf``) to volume id of everything that is attached. Raises AwsError."""
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
