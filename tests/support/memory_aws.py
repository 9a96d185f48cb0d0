"""EC2's volumes and EFS in memory: the same states, delays and refusals as AWS's.

Time is the clock's: a volume takes a while to be created, attached and listed, as on AWS.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from esrally_ebs.aws.clients import AwsError, action_of
from esrally_ebs.machine.processes import Clock

_Answer = Mapping[str, Any]
_OPTIMIZES_S = 3600.0


@dataclass(slots=True, kw_only=True)
class _Volume:
    """Everything about one volume; times are of the clock, None = has not happened."""

    id: str
    number: int
    size_gib: int
    type: str
    tags: list[dict[str, str]]
    token: str
    created_s: float
    iops: int | None = None
    throughput: int | None = None
    snapshot: str = ""
    instance: str = ""
    device: str = ""
    attached_s: float = 0.0
    detached_s: float | None = None
    deleted_s: float | None = None
    modified_s: float | None = None
    before: Mapping[str, Any] = field(default_factory=dict)
    signature: str = ""  # what is on it
    uuid: str = ""
    ends_with_instance: bool = False


class MemoryAws:
    """EC2's volumes, and EFS, answering ``call`` as ``clients.Aws`` does."""

    def __init__(self, clock: Clock, *, listed_after_s: float = 5.0, takes_s: float = 4.0) -> None:
        self.volumes: dict[str, _Volume] = {}
        self.efs = MemoryEfs(clock, takes_s=takes_s, listed_after_s=listed_after_s)
        self.instances: set[str] = set()
        self._clock = clock
        self._listed_after_s = listed_after_s
        self._takes_s = takes_s
        self._numbers = itertools.count(1)

    def call(self, service: str, operation: str, **params: Any) -> _Answer:  # noqa: ANN401
        """One answer; AwsError with AWS's own codes for what AWS refuses."""
        if service == "efs":
            return self.efs.call(operation, **params)
        self._action = action_of(service, operation)
        if params.pop("DryRun", False):
            raise self._refusal("DryRunOperation")
        answer: _Answer = getattr(self, f"_{service}_{operation}")(**params)
        return answer

    def attached(self, instance: str) -> list[_Volume]:
        """The volumes whose devices an instance has."""
        now = self._clock.epoch()
        return [
            volume
            for volume in self.volumes.values()
            if volume.instance == instance and volume.detached_s is None and now >= volume.attached_s + 1
        ]

    def _ec2_CreateVolume(self, **params: Any) -> _Answer:  # noqa: ANN401 - named as AWS names it
        for volume in self.volumes.values():
            if volume.token == params["ClientToken"]:
                return {"VolumeId": volume.id}
        number = next(self._numbers)
        volume = _Volume(
            id=f"vol-{number:017x}",
            number=number,
            size_gib=params["Size"],
            type=params["VolumeType"],
            iops=params.get("Iops"),
            throughput=params.get("Throughput"),
            snapshot=params.get("SnapshotId", ""),
            tags=list(params["TagSpecifications"][0]["Tags"]),
            token=params["ClientToken"],
            created_s=self._clock.epoch(),
            signature="xfs" if "SnapshotId" in params else "",
            uuid="of-the-snapshot" if "SnapshotId" in params else "",
        )
        self.volumes[volume.id] = volume
        return {"VolumeId": volume.id}

    def _ec2_DescribeVolumes(self, *, Filters: Sequence[Mapping[str, Any]] = ()) -> _Answer:
        now = self._clock.epoch()
        listed = [
            self._described(volume)
            for volume in self.volumes.values()
            if volume.created_s + self._listed_after_s <= now and not self._gone(volume)
        ]
        return {"Volumes": [raw for raw in listed if all(_matches(raw, wanted) for wanted in Filters)]}

    def _ec2_AttachVolume(self, *, VolumeId: str, InstanceId: str, Device: str) -> _Answer:
        volume = self._volume(VolumeId)
        if self._state(volume) != "available":
            raise self._refusal("IncorrectState" if not volume.instance else "VolumeInUse")
        if any(other.device == Device for other in self.attached(InstanceId)):
            raise self._refusal("InvalidParameterValue")
        volume.instance, volume.device = InstanceId, Device
        volume.attached_s, volume.detached_s = self._clock.epoch() + self._takes_s, None
        return {"State": "attaching"}

    def _ec2_ModifyInstanceAttribute(
        self, *, InstanceId: str, BlockDeviceMappings: Sequence[Mapping[str, Any]]
    ) -> _Answer:
        (mapping,) = BlockDeviceMappings
        volume = self._volume(mapping["Ebs"]["VolumeId"])
        if (volume.instance, volume.device) != (InstanceId, mapping["DeviceName"]):
            raise self._refusal("InvalidInstanceAttributeValue")
        volume.ends_with_instance = mapping["Ebs"]["DeleteOnTermination"]
        return {}

    def _ec2_DetachVolume(self, *, VolumeId: str, InstanceId: str) -> _Answer:
        volume = self._volume(VolumeId)
        if volume.instance != InstanceId or volume.detached_s is not None:
            raise self._refusal("IncorrectState")
        volume.detached_s = self._clock.epoch()
        return {"State": "detaching"}

    def _ec2_DeleteVolume(self, *, VolumeId: str) -> _Answer:
        volume = self._volume(VolumeId)
        if self._state(volume) not in ("available", "error"):
            raise self._refusal("VolumeInUse" if volume.instance else "IncorrectState")
        volume.deleted_s = self._clock.epoch()
        return {}

    def _ec2_DescribeInstances(self, *, Filters: Sequence[Mapping[str, Any]]) -> _Answer:
        wanted = set(Filters[0]["Values"])
        listed = [
            {
                "InstanceId": instance,
                "State": {"Name": "running"},
                "Placement": {"AvailabilityZone": "us-east-1a"},
                "SubnetId": "subnet-1",
            }
            for instance in wanted & self.instances
        ]
        return {"Reservations": [{"Instances": listed}]}

    def _ec2_ModifyVolume(self, *, VolumeId: str, **params: Any) -> _Answer:  # noqa: ANN401
        volume = self._volume(VolumeId)
        if volume.modified_s is not None and self._modification(volume) not in ("completed", "failed"):
            raise self._refusal("IncorrectModificationState")
        volume.before = _settings("Original", volume)
        volume.type = params.get("VolumeType", volume.type)
        volume.size_gib = params.get("Size", volume.size_gib)
        volume.iops = params.get("Iops")
        volume.throughput = params.get("Throughput")
        volume.modified_s = self._clock.epoch()
        return {"VolumeModification": self._modified(volume)}

    def _ec2_DescribeVolumesModifications(self, *, Filters: Sequence[Mapping[str, Any]]) -> _Answer:
        of = Filters[0]["Values"]
        modified = [v for v in self.volumes.values() if v.id in of and v.modified_s is not None]
        return {"VolumesModifications": [self._modified(volume) for volume in modified]}

    def _volume(self, volume_id: str) -> _Volume:
        volume = self.volumes.get(volume_id)
        if volume is None or self._gone(volume):
            raise self._refusal("InvalidVolume.NotFound")
        self._state(volume)
        return volume

    def _gone(self, volume: _Volume) -> bool:
        return volume.deleted_s is not None and self._clock.epoch() >= volume.deleted_s + self._takes_s

    def _state(self, volume: _Volume) -> str:
        now = self._clock.epoch()
        if volume.deleted_s is not None:
            return "deleting"
        if now < volume.created_s + self._takes_s:
            return "creating"
        if volume.detached_s is not None and now >= volume.detached_s + self._takes_s:
            volume.instance, volume.device, volume.detached_s = "", "", None
        return "in-use" if volume.instance else "available"

    def _described(self, volume: _Volume) -> dict[str, Any]:
        state = self._state(volume)
        attachments = []
        if volume.instance:
            attaching = self._clock.epoch() < volume.attached_s
            word = "detaching" if volume.detached_s is not None else "attaching" if attaching else "attached"
            attachments = [{"InstanceId": volume.instance, "Device": volume.device, "State": word}]
        return {
            "VolumeId": volume.id,
            "State": state,
            "Size": volume.size_gib,
            "VolumeType": volume.type,
            "Iops": volume.iops,
            "Throughput": volume.throughput,
            "Tags": volume.tags,
            "SnapshotId": volume.snapshot,
            "CreateTime": datetime.fromtimestamp(volume.created_s, UTC),
            "Attachments": attachments,
        }

    def _modification(self, volume: _Volume) -> str:
        assert volume.modified_s is not None
        passed = self._clock.epoch() - volume.modified_s
        if passed < self._takes_s:
            return "modifying"
        return "optimizing" if passed < _OPTIMIZES_S else "completed"

    def _modified(self, volume: _Volume) -> dict[str, Any]:
        assert volume.modified_s is not None
        passed = self._clock.epoch() - volume.modified_s
        return {
            "VolumeId": volume.id,
            "ModificationState": self._modification(volume),
            "Progress": min(100, int(100 * passed / _OPTIMIZES_S)),
            **volume.before,
            **_settings("Target", volume),
        }

    def _refusal(self, code: str) -> AwsError:
        return AwsError(self._action, code, f"{code}: as AWS would say")


def _matches(raw: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    name, values = wanted["Name"], wanted["Values"]
    if name.startswith("tag:"):
        tags = {tag["Key"]: tag["Value"] for tag in raw["Tags"]}
        return tags.get(name.removeprefix("tag:")) in values
    if name == "tag-key":
        return any(tag["Key"] in values for tag in raw["Tags"])
    if name == "volume-id":
        return raw["VolumeId"] in values
    assert name == "attachment.instance-id"
    return any(attachment["InstanceId"] in values for attachment in raw["Attachments"])


def _settings(prefix: str, volume: _Volume) -> dict[str, Any]:
    return {
        f"{prefix}VolumeType": volume.type,
        f"{prefix}Size": volume.size_gib,
        f"{prefix}Iops": volume.iops,
        f"{prefix}Throughput": volume.throughput,
    }


@dataclass(slots=True, kw_only=True)
class _FileSystem:
    id: str
    token: str
    tags: list[dict[str, str]]
    created_s: float
    deleted_s: float | None = None
    target_s: float | None = None


class MemoryEfs:
    """Answers the calls of EFS that the pack makes."""

    def __init__(self, clock: Clock, *, takes_s: float, listed_after_s: float) -> None:
        self.file_systems: dict[str, _FileSystem] = {}
        self._clock = clock
        self._takes_s = takes_s
        self._listed_after_s = listed_after_s
        self._numbers = itertools.count(1)

    def call(self, operation: str, **params: Any) -> _Answer:  # noqa: ANN401
        """One answer; AwsError with EFS's own codes for what it refuses."""
        self._action = action_of("efs", operation)
        answer: _Answer = getattr(self, f"_{operation}")(**params)
        return answer

    def _CreateFileSystem(self, **params: Any) -> _Answer:  # noqa: ANN401
        if any(fs.token == params["CreationToken"] for fs in self.file_systems.values()):
            raise self._refusal("FileSystemAlreadyExists")
        made = _FileSystem(
            id=f"fs-{next(self._numbers):017x}",
            token=params["CreationToken"],
            tags=list(params["Tags"]),
            created_s=self._clock.epoch(),
        )
        self.file_systems[made.id] = made
        return {"FileSystemId": made.id}

    def _DescribeFileSystems(self, *, CreationToken: str | None = None) -> _Answer:
        now = self._clock.epoch()
        listed = [
            {
                "FileSystemId": fs.id,
                "CreationToken": fs.token,
                "CreationTime": datetime.fromtimestamp(fs.created_s, UTC),
                "LifeCycleState": "creating" if now < fs.created_s + self._takes_s else "available",
                "Tags": fs.tags,
            }
            for fs in self.file_systems.values()
            if fs.deleted_s is None
            and now >= fs.created_s + self._listed_after_s
            and CreationToken in (None, fs.token)
        ]
        return {"FileSystems": listed}

    def _CreateMountTarget(self, *, FileSystemId: str, **params: Any) -> _Answer:  # noqa: ANN401
        made = self.file_systems[FileSystemId]
        if made.target_s is not None:
            raise self._refusal("MountTargetConflict")
        made.target_s = self._clock.epoch()
        return {"MountTargetId": f"fsmt-{made.id}"}

    def _DescribeMountTargets(self, *, FileSystemId: str) -> _Answer:
        made = self.file_systems[FileSystemId]
        if made.target_s is None:
            return {"MountTargets": []}
        state = "creating" if self._clock.epoch() < made.target_s + self._takes_s else "available"
        target = {"MountTargetId": f"fsmt-{made.id}", "LifeCycleState": state, "IpAddress": "10.0.0.9"}
        return {"MountTargets": [target]}

    def _DeleteMountTarget(self, *, MountTargetId: str) -> _Answer:
        made = self.file_systems.get(MountTargetId.removeprefix("fsmt-"))
        if made is None or made.target_s is None:
            raise self._refusal("MountTargetNotFound")
        made.target_s = None
        return {}

    def _DeleteFileSystem(self, *, FileSystemId: str) -> _Answer:
        made = self.file_systems.get(FileSystemId)
        if made is None or made.deleted_s is not None:
            raise self._refusal("FileSystemNotFound")
        if made.target_s is not None:
            raise self._refusal("FileSystemInUse")
        made.deleted_s = self._clock.epoch()
        return {}

    def _refusal(self, code: str) -> AwsError:
        return AwsError(self._action, code, f"{code}: as AWS would say")
