"""An instance in memory on which the pack's own commands run, so that they can be killed at any moment.

AWS and the machine are in memory; files, commands and all that lies between are the pack's own. Among ours
stand other people's things that look as much like ours as they can.
"""

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from aws_world import HERE, THERE, Killed, World, ebs
from dying import Doomed
from fake_machine import FakeMachine
from typer.main import get_command

from esrally_ebs.aws.provision.execute import Executor
from esrally_ebs.aws.provision.goal import TAG_ARM, TAG_MEMBER, TAG_OWNER, TAG_RUN, TAG_SESSION
from esrally_ebs.aws.provision.host import ArmDevice, DeviceQuery, HostState
from esrally_ebs.aws.provision.journal import Journal
from esrally_ebs.cli import app_of, main
from esrally_ebs.machine.processes import Process
from esrally_ebs.machine.resources import run_dir
from esrally_ebs.volumes import aws as backend

SESSION = "by-hand-killed"
_TWO_ARMS = '[[arm]]\nname = "a"\ntype = "gp2"\nsize = "10GiB"\n[[arm]]\nname = "b"\ntype = "gp3"\n{}'
_ARM = '[[arm]]\nname = "a"\ntype = "{}"\nsize = "10GiB"\n{}'
PLANS = {
    "two volumes": _TWO_ARMS.format('size = "10GiB"\n[aws]\n'),
    "a volume of a snapshot": _ARM.format("gp3", '[aws]\nsnapshot = "snap-01234567"\n'),
    "a stripe of two": _ARM.format("gp3", "stripes = 2\n[aws]\n"),
    "EFS": _ARM.format("efs", "[aws]\n"),
    "a disk of the instance": _ARM.format("instance-store", "[aws]\n"),
    "a stripe of disks": _ARM.format("instance-store", "stripes = 2\n[aws]\n"),
}


# Both made once: thousands of commands are run, and to make these took more than half of their time.
_entry_points = cache(entry_points)


@cache
def _commands(word: str) -> Callable[..., object]:
    return get_command(app_of([word]))


def _die() -> None:
    raise Killed


class Instance:
    """One EC2 instance; ``doomed`` is the process that the next command is."""

    def __init__(self, root: Path, plan: str, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.doomed = Doomed(root, _die)
        self._world = World(root, ebs())
        self.aws, self.machine = self._world.aws, self._world.machine
        self._files = FakeMachine(root / "files")
        self._boot("b00t1")
        self._put_others()
        self._theirs = self._world.ids()
        self._as_they_were = copy.deepcopy(self._others())
        (root / "killed.toml").write_text(f'name = "killed"\n{plan}')
        patch.setenv("ESRALLY_EBS_RUN", str(root / "run"))
        patch.setenv("ESRALLY_EBS_HOME", str(root / "home"))
        patch.setenv("AWS_REGION", "us-east-1")
        patch.setenv("PATH", "")  # no engine, so no containers
        for name, stands_for in {
            "Aws": lambda region: _Calls(self),
            "LinuxHost": lambda **_: _Works(self),
            "Executor": partial(Executor, clock=self._world.clock),
            "Journal": partial(Journal, sync=lambda file: None),
            "SYSTEM_CLOCK": self._world.clock,
            "Roots": lambda: self._files.roots,
            "on_aws": lambda roots=None: True,
            "instance_here": lambda roots=None: HERE,
            "is_root": lambda: True,
            "check_tools": lambda spec: None,
        }.items():
            patch.setattr(backend, name, stands_for)
        patch.setitem(backend.sweep.__kwdefaults__, "clock", self._world.clock)  # bound where it is defined
        patch.setattr("esrally_ebs.cli.app_of", lambda words: _commands(words[0]))
        patch.setattr("esrally_ebs.plan.plan.entry_points", _entry_points)

    def command(self, *words: str, dies_at: int | None = None, torn: bool = False) -> int | None:
        """Run a command; its exit code, None when it was killed at that moment."""
        self.doomed = Doomed(self.root / "run", _die, at=dies_at, torn=torn)
        try:
            with self.doomed:
                return main([str(self.root / "killed.toml") if word == "PLAN" else word for word in words])
        except Killed:
            self._bury()
            return None

    def reboot(self) -> None:
        """The mounts of fstab come again and no others, arrays of volumes are gone; it takes a minute."""
        self._boot("b00t2")
        for point in run_dir().glob("*/*/mnt"):
            _take_files_away(point)
        self.machine.mounts = {
            point: of for point, of in self.machine.mounts.items() if str(point) in self._theirs
        }
        if self.machine.array is not None and not self.machine.disks.keys() & self.machine.array[1]:
            self.machine.array = None
        self._world.now += 60

    def pass_time(self, seconds: float) -> None:
        """Nothing happens meanwhile."""
        self._world.now += seconds

    def left(self) -> list[str]:
        """All of ours that there is: on AWS, on the machine, in the run directory."""
        self._world.now += 60  # what is being deleted goes
        kept = sorted(str(path) for path in run_dir().rglob("*")) if run_dir().exists() else []
        return sorted(self._world.ids() - self._theirs) + kept

    def untouched(self) -> bool:
        """Whether everything of other people's is as it was."""
        return self._others() == self._as_they_were

    def _boot(self, name: str) -> None:
        self._files.write("proc/sys/kernel/random/boot_id", name)

    def _bury(self) -> None:
        """The pid of a killed process is nobody's, or another's; here the test has it, which lives on."""
        me = Process.of(os.getpid())
        assert me is not None
        for owner in run_dir().glob("*/owner"):
            if owner.read_text().startswith(f"{me.pid} {me.start_ticks} "):
                owner.write_text(f"{me.pid} {me.start_ticks - 1}")

    def _others(self) -> object:
        mounts = {point: of for point, of in self.machine.mounts.items() if str(point) in self._theirs}
        volumes = [self.aws.volumes[name] for name in self.aws.volumes if name in self._theirs]
        systems = [
            self.aws.efs.file_systems[name] for name in self.aws.efs.file_systems if name in self._theirs
        ]
        return volumes, systems, mounts, self.machine.disks["AWS1"]

    def _put_others(self) -> None:
        """What must be left alone however much it looks like ours; the world has put some already."""
        # of an earlier boot: with one tag more, or a better one, each would be what a reboot has left
        earlier = f"{HERE}:b00t0:{self.root / 'run'}"
        ours = {TAG_SESSION: SESSION, TAG_RUN: "f" * 32, TAG_ARM: "a", TAG_MEMBER: "0", TAG_OWNER: earlier}
        of_another_instance = ours | {TAG_OWNER: f"{THERE}:b00t1:{self.root / 'run'}"}
        looks: Sequence[tuple[Mapping[str, str], str]] = (
            (ours | {TAG_OWNER: f"{HERE}:b00t0:/of/another/container"}, HERE),
            (of_another_instance, THERE),
            (of_another_instance | {TAG_RUN: "e" * 32}, ""),
            ({name: value for name, value in ours.items() if name != TAG_RUN}, HERE),
            ({name: value for name, value in ours.items() if name != TAG_OWNER}, ""),
            ({name.upper(): value for name, value in ours.items()}, ""),
            (ours | {TAG_SESSION: "../../etc", TAG_RUN: "d" * 32}, ""),
            (ours | {TAG_MEMBER: "first", TAG_RUN: "c" * 32}, HERE),
        )
        for number, (tags, instance) in enumerate(looks):
            listed = [{"Key": name, "Value": value} for name, value in tags.items()]
            volume = self.aws.call(
                "ec2",
                "CreateVolume",
                Size=10,
                VolumeType="gp3",
                ClientToken=f"theirs {number}",
                TagSpecifications=[{"Tags": listed}],
            )["VolumeId"]
            self._world.now += 10
            if instance:
                device = f"/dev/sd{'ghijklmn'[number]}"
                self.aws.call("ec2", "AttachVolume", VolumeId=volume, InstanceId=instance, Device=device)
            self.aws.volumes[volume].signature = "xfs"
            self.machine.mounts[Path(f"/srv/{number}")] = volume
        shared = [{"Key": name, "Value": value} for name, value in of_another_instance.items()]
        self.aws.call("efs", "CreateFileSystem", CreationToken="theirs", Tags=shared)
        self._world.now += 60


class _Calls:
    """AWS as the doomed process calls it."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def call(self, service: str, operation: str, **params: Any) -> Mapping[str, Any]:  # noqa: ANN401
        doomed = self._instance.doomed
        doomed.lives() if operation.startswith("Describe") else doomed.before(operation)
        return self._instance.aws.call(service, operation, **params)


class _Works:
    """The machine as the doomed process works on it; a mount has a directory, and its files go with it."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def look(self, wanted: DeviceQuery) -> HostState:
        self._instance.doomed.lives()
        return self._instance.machine.look(wanted)

    def on_disks(self) -> list[tuple[ArmDevice, list[str]]]:
        return self._instance.machine.on_disks()

    def do(self, operation: str, arguments: Mapping[str, Any]) -> None:
        self._instance.doomed.before(operation)
        if operation == "mount":
            Path(arguments["point"]).mkdir(parents=True, exist_ok=True)
        self._instance.machine.do(operation, arguments)
        if operation == "unmount":
            with self._instance.doomed.unseen():
                _take_files_away(Path(arguments["point"]))


def _take_files_away(point: Path) -> None:
    """They were on the device, and here they are in the directory."""
    for path in point.iterdir():
        path.rmdir()
