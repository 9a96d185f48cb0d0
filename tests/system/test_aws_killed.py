"""``clean`` after real processes were killed (SIGKILL), one before each change that ``up`` and ``down`` make.

moto's server stands for AWS over HTTP and loop devices for volumes. The unit tests have the states between,
and every kind of arm, in memory.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from dying import killed_at
from instance_on_moto import make_instance
from moto_server import Moto
from mounted import on_loop

from esrally_ebs.aws.clients import Aws
from esrally_ebs.aws.instance import REHEARSAL_VARIABLE
from esrally_ebs.aws.provision.goal import TAG_ARM, TAG_MEMBER, TAG_OWNER, TAG_RUN, TAG_SESSION, RunOwner
from esrally_ebs.cli import main
from esrally_ebs.machine.mounts import mount_at, mounts
from esrally_ebs.machine.processes import run
from esrally_ebs.machine.resources import run_dir
from esrally_ebs.session import clean
from esrally_ebs.store import running

pytestmark = [pytest.mark.system, pytest.mark.beside]

PLAN = 'name = "killed"\n[[arm]]\nname = "a"\ntype = "gp3"\nsize = "1GiB"\n[aws]\n'
NOTHING = "nothing is left behind"


@dataclass(frozen=True)
class Account:
    """An instance on moto's server, and other people's things that look like ours."""

    api: Aws
    instance: str
    root: Path
    theirs: Mapping[str, Mapping[str, Any]]
    mount: Path

    @property
    def up(self) -> list[str]:
        return ["volumes", "up", str(self.root / "killed.toml")]

    def volumes(self) -> dict[str, Mapping[str, Any]]:
        return {raw["VolumeId"]: raw for raw in self.api.call("ec2", "DescribeVolumes")["Volumes"]}

    def check_nothing_left(self) -> None:
        assert self.volumes() == self.theirs
        assert mount_at(self.mount) is not None
        assert (self.mount / "file").read_text() == "theirs"
        assert [str(path) for path in run_dir().glob("*")] == []
        assert [line for line in loops() if str(self.root / "home") in line] == []
        assert [each.mount_point for each in mounts() if run_dir() in each.mount_point.parents] == []

    def reboot(self) -> None:
        """What a reboot makes of a run directory in memory, and of the boot that stands in the tags."""
        for path in run_dir().glob("*/*/mnt"):
            if mount_at(path) is not None:
                run(["umount", path], timeout_s=10)
        for path in sorted(run_dir().rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        earlier = RunOwner(instance=self.instance, boot="earlier", run_dir=run_dir()).tag
        for volume in self.volumes().keys() - self.theirs.keys():
            tags = [{"Key": TAG_OWNER, "Value": earlier}]
            self.api.call("ec2", "CreateTags", Resources=[volume], Tags=tags)


def loops() -> list[str]:
    return run(["losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"], timeout_s=10).splitlines()


@pytest.fixture
def account(aws: Moto, monkeypatch: pytest.MonkeyPatch, own_folders: Path) -> Iterator[Account]:
    api = Aws()
    instance, _ = make_instance(api, size_gib=8)
    monkeypatch.setenv(REHEARSAL_VARIABLE, instance)
    here = RunOwner(instance=instance, boot="b00t", run_dir=Path("/of/another/container")).tag
    ours = {TAG_SESSION: "by-hand-killed", TAG_RUN: "f" * 32, TAG_ARM: "a", TAG_MEMBER: "0", TAG_OWNER: here}
    for number, left_out in enumerate((None, TAG_RUN, TAG_OWNER)):
        tags = [{"Key": name, "Value": value} for name, value in ours.items() if name != left_out]
        volume = api.call(
            "ec2",
            "CreateVolume",
            AvailabilityZone="us-east-1a",
            Size=1,
            VolumeType="gp3",
            TagSpecifications=[{"ResourceType": "volume", "Tags": tags}],
        )["VolumeId"]
        device = f"/dev/sd{'hij'[number]}"
        api.call("ec2", "AttachVolume", VolumeId=volume, InstanceId=instance, Device=device)
    (own_folders / "killed.toml").write_text(PLAN)
    point = own_folders / "by-hand-killed" / "a" / "mnt"
    point.parent.mkdir(parents=True)
    volumes = api.call("ec2", "DescribeVolumes")["Volumes"]
    with on_loop(own_folders / "image", point, mib=32):
        (point / "file").write_text("theirs")
        yield Account(api, instance, own_folders, {raw["VolumeId"]: raw for raw in volumes}, point)
        take_all_down()


def take_all_down() -> None:
    """What a test that failed has left."""
    for session in running.sessions()[0]:
        clean.take_down(session)


def killed(*words: str, at: int) -> bool:
    """Whether a process of its own that ran the command was killed before the change of that number."""

    def command() -> None:
        assert main(words) == 0

    return killed_at(at, command, run_dir())


def check_clean(account: Account, capsys: pytest.CaptureFixture[str], at: int) -> None:
    """Clean brings all to nothing, and finds nothing when it is asked again."""
    for _ in range(2):
        capsys.readouterr()
        code = main(["clean"])
        out, err = capsys.readouterr()
        assert (at, code, err) == (at, 0, "")
    assert out == f"{NOTHING}\n"
    account.check_nothing_left()


def nothing_more(account: Account) -> None:
    """The run directory is as the kill left it."""


@pytest.mark.parametrize("then", [nothing_more, Account.reboot], ids=["journal kept", "tags alone"])
def test_an_up_that_is_killed_before_any_change_is_cleaned_up(
    account: Account, then: Callable[[Account], None], capsys: pytest.CaptureFixture[str]
) -> None:
    at = 0
    while killed(*account.up, at=at):
        then(account)
        check_clean(account, capsys, at)
        at += 1
    assert at >= 20  # two requests, mkfs, mount and the journal's lines about them at least
    assert main(["volumes", "down"]) == 0
    account.check_nothing_left()


def test_a_down_that_is_killed_before_any_change_is_ended_by_clean(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    at = 2  # before it makes the session its own it has not begun, and what is attached by hand stays
    while True:
        assert main(account.up) == 0
        if not killed("volumes", "down", at=at):
            break
        check_clean(account, capsys, at)
        at += 1
    assert at >= 15
    account.check_nothing_left()
