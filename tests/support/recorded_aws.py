"""AWS with given answers: an operation without one is refused, as a policy would. Unit tests use it."""

from collections.abc import Callable
from typing import Any

from esrally_ebs.aws.clients import Api, AwsError, action_of

ID_GP2, ID_GP3 = "vol-0123456789abcdef0", "vol-0123456789abcdef1"
METADATA = {
    "instance-id": "i-0123456789abcdef0",
    "instance-type": "r5.large",
    "placement/availability-zone": "eu-west-1b",
    "placement/region": "eu-west-1",
}
GP3 = {
    "VolumeId": ID_GP3,
    "VolumeType": "gp3",
    "Size": 500,
    "Iops": 3000,
    "Throughput": 125,
    "State": "in-use",
    "Encrypted": True,
}
GP2 = {
    "VolumeId": ID_GP2,
    "VolumeType": "gp2",
    "Size": 500,
    "Iops": 1500,
    "State": "in-use",
    "Encrypted": True,
}
LIMITS = {
    "BaselineIops": 3600,
    "BaselineBandwidthInMbps": 650,
    "MaximumIops": 18750,
    "MaximumBandwidthInMbps": 4750,
}
ALL: dict[str, Any] = {
    "DescribeVolumes": {"Volumes": [GP2, GP3]},
    "DescribeVolumesModifications": {"VolumesModifications": []},
    "DescribeInstanceTypes": {"InstanceTypes": [{"EbsInfo": {"EbsOptimizedInfo": LIMITS}}]},
}


class RecordedAws:
    """Answers by operation; ``actions`` are the IAM actions that were asked for."""

    def __init__(self, **answers: Any) -> None:  # noqa: ANN401 - JSON
        self.answers = answers
        self.region: str | None = None
        self.actions: list[str] = []
        self._on_call: Callable[[str], None] = self.actions.append

    def make(self, region: str | None, on_call: Callable[[str], None]) -> Api:
        """What a survey makes its way to AWS with."""
        self.region, self._on_call = region, on_call
        return self

    def call(self, service: str, operation: str, **params: object) -> dict[str, Any]:
        """The answer, or what its function gives for the parameters."""
        action = action_of(service, operation)
        self._on_call(action)
        self.actions.append(action)
        if operation not in self.answers:
            raise AwsError(action, "UnauthorizedOperation", "not allowed")
        answer = self.answers[operation]
        fields: dict[str, Any] = answer(**params) if callable(answer) else answer
        return fields
