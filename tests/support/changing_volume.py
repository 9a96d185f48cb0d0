"""A volume in memory that is changed in place, and AWS that breaks off while it is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memory_aws import MemoryAws

from esrally_ebs.aws.clients import AwsError
from esrally_ebs.aws.provision.goal import TAG_OWNER, TAG_RUN, RunOwner, tag_list
from esrally_ebs.machine.processes import Clock

OWNER = RunOwner(instance="i-here", boot="b00t1", run_dir=Path("/run/s"))


class World:
    """One gp2 volume of 100 GiB in memory, and time that only passes when something takes it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.clock = Clock(monotonic=lambda: self.now, sleep=self.passes, epoch=lambda: self.now)
        self.aws = MemoryAws(self.clock)
        self.volume = self.aws.call(
            "ec2",
            "CreateVolume",
            Size=100,
            VolumeType="gp2",
            Iops=300,
            ClientToken="",
            TagSpecifications=[{"Tags": tag_list({TAG_RUN: "1", TAG_OWNER: OWNER.tag})}],
        )["VolumeId"]
        self.now = 100.0

    def passes(self, seconds: float) -> None:
        self.now += seconds


class Breaking:
    """A world whose next call of one operation gets no answer, or ``fails`` of them."""

    def __init__(self, world: World, code: str, operation: str, *, takes_effect: bool = False) -> None:
        self._world, self._code, self._operation = world, code, operation
        self._takes_effect, self.fails = takes_effect, 1

    def call(self, service: str, operation: str, **params: Any) -> Mapping[str, Any]:  # noqa: ANN401
        if operation != self._operation or not self.fails:
            return self._world.aws.call(service, operation, **params)
        self.fails -= 1
        if self._takes_effect:
            self._world.aws.call(service, operation, **params)
        raise AwsError(f"{service}:{operation}", self._code, "no")
