"""AWS, one instance and time for tests, other people's things among ours, and a fault at a chosen moment.

A fault is one of four, at one of the moments at which the pack acts on the outside: a call of AWS, a piece of
work on the machine, a line of the journal.
"""

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from memory_aws import MemoryAws
from memory_host import MemoryHost

from esrally_ebs.aws.clients import AwsError, action_of
from esrally_ebs.aws.instance import Place
from esrally_ebs.aws.provision.execute import Executor
from esrally_ebs.aws.provision.goal import Goal
from esrally_ebs.aws.provision.journal import Journal, JournalEntry
from esrally_ebs.errors import SetupError
from esrally_ebs.machine.processes import Clock

HERE, THERE = "i-here", "i-there"
FAULTS = ("before", "after", "killed before", "killed after")


class Killed(BaseException):
    """kill -9: nothing of the process runs on."""


class World:
    """AWS, one instance, and time; other people's things among ours. ``fault`` strikes at one moment."""

    def __init__(self, directory: Path, goal: Goal) -> None:
        self.now = 1_000_000.0
        self.clock = Clock(monotonic=lambda: self.now, sleep=self._sleep, epoch=lambda: self.now)
        self.aws = MemoryAws(self.clock)
        self.aws.instances = {HERE, THERE}
        self.machine = MemoryHost(self.aws, HERE, disks=("AWS1", "AWS2", "AWS3"))
        self.machine.disks["AWS1"] = ("ext4", "theirs")
        self.goal, self.directory = goal, directory
        self.moments: list[bool] = []  # one per moment that passed: whether it only looked
        self.fault: tuple[int, str] | None = None
        self._put_theirs()
        self.theirs, self._their_ids = self._theirs(), self.ids()

    def start(self) -> None:
        Journal(self.directory, sync=lambda file: None).begin(self.goal, self.now)

    def executor(self) -> Executor:
        """What a process that begins now works with: it knows the directory alone."""
        return Executor(api=_Faulty(self), host=_Faulty(self), journal=_FaultyJournal(self), clock=self.clock)

    def acts(self, act: Callable[[], Any], error: Exception, *, looks: bool = False) -> Any:  # noqa: ANN401
        """Do something to the world, unless its moment is that of the fault."""
        kind = self.fault[1] if self.fault and self.fault[0] == len(self.moments) else ""
        self.moments.append(looks)
        if kind.endswith("before"):
            raise Killed if kind.startswith("killed") else error
        outcome = act()
        if kind.endswith("after"):
            raise Killed if kind.startswith("killed") else error
        return outcome

    def left(self) -> list[str]:
        """All of ours that is still there: on AWS, on the machine."""
        self._sleep(60)  # what is being deleted goes
        return sorted(self.ids() - self._their_ids)

    def ids(self) -> set[str]:
        """Whatever there is on AWS and on the machine: volumes, file systems, mounts, disks with content."""
        volumes = [v["VolumeId"] for v in self.aws.call("ec2", "DescribeVolumes")["Volumes"]]
        systems = [fs["FileSystemId"] for fs in self.aws.call("efs", "DescribeFileSystems")["FileSystems"]]
        mounts = [str(point) for point in self.machine.mounts]
        disks = [serial for serial, content in self.machine.disks.items() if content != ("", "")]
        array = [self.machine.array[0]] if self.machine.array else []
        return {*volumes, *systems, *mounts, *disks, *array, *self.machine.written}

    def untouched(self) -> bool:
        """Whether everything of other people's is as it was."""
        return self._theirs() == self.theirs

    def _put_theirs(self) -> None:
        for instance in (HERE, THERE):
            volume_id = self.aws.call(
                "ec2",
                "CreateVolume",
                Size=8,
                VolumeType="gp2",
                ClientToken=instance,
                TagSpecifications=[{"Tags": [{"Key": "Name", "Value": f"esrally-ebs {self.goal.arm}"}]}],
            )["VolumeId"]
            self.now += 10
            self.aws.call("ec2", "AttachVolume", VolumeId=volume_id, InstanceId=instance, Device="/dev/sdf")
            self.aws.volumes[volume_id].signature = "xfs"
        self.machine.mounts[Path("/data")] = "vol-00000000000000001"
        self.now += 10

    def _theirs(self) -> object:
        volumes = [self.aws.volumes[f"vol-{number:017x}"] for number in (1, 2)]
        return copy.deepcopy((volumes, self.machine.mounts.get(Path("/data")), self.machine.disks["AWS1"]))

    def _sleep(self, seconds: float) -> None:
        self.now += seconds


class _Faulty:
    """AWS and the machine of a world, struck by its fault."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.look = world.machine.look

    def call(self, service: str, operation: str, **params: Any) -> Mapping[str, Any]:  # noqa: ANN401
        error = AwsError(action_of(service, operation), "ReadTimeoutError", "no answer")
        answer: Mapping[str, Any] = self._world.acts(
            lambda: self._world.aws.call(service, operation, **params),
            error,
            looks=operation.startswith("Describe"),
        )
        return answer

    def do(self, operation: str, arguments: Mapping[str, Any]) -> None:
        self._world.acts(
            lambda: self._world.machine.do(operation, arguments), SetupError(f"{operation}: broken off")
        )


class _FaultyJournal(Journal):
    """A journal whose disk may fail; killed after means that half a line was written."""

    def __init__(self, world: World) -> None:
        super().__init__(world.directory, sync=lambda file: None)
        self._world = world

    def append(self, entry: JournalEntry) -> None:
        try:
            self._world.acts(lambda: super(_FaultyJournal, self).append(entry), SetupError("disk full"))
        except Killed:
            if self._world.fault and self._world.fault[1] == "killed before":
                with self.path.open("a") as file:
                    file.write('{"key": "create/0", "sta')
            raise


def ebs(**more: Any) -> Goal:  # noqa: ANN401 - of Goal
    fields = {"sort": "ebs", "type": "gp3", "size_gib": 10, "point": Path("/run/a/mnt")} | more
    return Goal(
        session="s",
        arm="a",
        run="0123456789abcdef",
        owner=f"{HERE}:/run",
        place=Place(instance=HERE, zone="us-east-1a", region="us-east-1", subnet="subnet-1"),
        **fields,
    )


GOALS = {
    "one volume": ebs(),
    "a volume of a snapshot": ebs(snapshot="snap-1"),
    "a stripe of two": ebs(count=2),
    "EFS": ebs(sort="efs", type="efs", size_gib=0),
    "a disk of the instance": ebs(sort="instance-store", type="instance-store", size_gib=0),
    "a stripe of disks": ebs(sort="instance-store", type="instance-store", size_gib=0, count=2),
}
