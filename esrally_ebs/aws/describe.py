"""What AWS says of volumes, file systems and instances: read-only calls in, records in base units out.

Everything here is of the policy ``policies/identity.json``.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from esrally_ebs.aws.clients import Api, items
from esrally_ebs.aws.records import EbsVolume, FileSystem, InstanceLimits
from esrally_ebs.units import GIB, MIB

_MBIT = 1_000_000 / 8  # EC2 gives instance bandwidth in Mbit/s, decimal


def volumes_where(api: Api, filter_: str, *values: str) -> Iterator[Mapping[str, Any]]:
    """Volumes as AWS tells of them, by one of DescribeVolumes' filters; none for what is not there."""
    return items(
        api, "ec2", "DescribeVolumes", "Volumes", Filters=[{"Name": filter_, "Values": list(values)}]
    )


def describe_volumes(api: Api, ids: Sequence[str]) -> dict[str, EbsVolume]:
    """Volumes by id as they are provisioned. Raises AwsError, also for an id that is not there."""
    answers = items(api, "ec2", "DescribeVolumes", "Volumes", VolumeIds=list(ids))
    return {answer["VolumeId"]: _volume(answer) for answer in answers}


def describe_modifications(api: Api, ids: Sequence[str]) -> dict[str, tuple[str, float | None]]:
    """State and progress (a fraction) of each volume's latest modification, if it ever had one.

    Asked by filter: to ask for a volume that was never modified is an error. Raises AwsError.
    """
    answers = items(
        api,
        "ec2",
        "DescribeVolumesModifications",
        "VolumesModifications",
        Filters=[{"Name": "volume-id", "Values": list(ids)}],
    )
    latest = {answer["VolumeId"]: answer for answer in sorted(answers, key=_started)}
    return {
        volume: (answer.get("ModificationState", ""), _fraction(answer.get("Progress")))
        for volume, answer in latest.items()
    }


def describe_initialisation(api: Api, ids: Sequence[str]) -> dict[str, float]:
    """How much (a fraction) of volumes made from snapshots has been read from them; told since 2025.

    Empty for volumes of which AWS does not say. Raises AwsError.
    """
    answers = items(api, "ec2", "DescribeVolumeStatus", "VolumeStatuses", VolumeIds=list(ids))
    return {
        answer["VolumeId"]: answer["InitializationStatusDetails"]["Progress"] / 100
        for answer in answers
        if "Progress" in answer.get("InitializationStatusDetails", {})
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


def _started(modification: Mapping[str, Any]) -> str:
    return str(modification.get("StartTime", ""))


def _fraction(percent: int | None) -> float | None:
    return None if percent is None else percent / 100
