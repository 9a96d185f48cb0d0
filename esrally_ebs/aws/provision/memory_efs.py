"""EFS in memory: file systems and mount targets, with the same states and refusals as AWS's."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from esrally_ebs.aws.clients import AwsError, action_of
from esrally_ebs.system import Clock

_Answer = Mapping[str, Any]


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

    def _DescribeFileSystems(
        self,
        *,
        CreationToken: str | None = None,
    ) -> _Answer:
        now = self._clock.epoch()
        found = [
            {
                "FileSystemId": fs.id,
                "CreationToken": fs.token,
                "LifeCycleState": "creating" if now < fs.created_s + self._takes_s else "available",
                "Tags": fs.tags,
            }
            for fs in self.file_systems.values()
            if fs.deleted_s is None
            and now >= fs.created_s + self._listed_after_s
            and CreationToken in (None, fs.token)
        ]
        return {"FileSystems": found}

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
