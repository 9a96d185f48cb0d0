"""Instance store, alone and striped by mdadm and LVM: up, used, down, and killed before each program."""

import json
from pathlib import Path

import pytest
from dying import killed_at
from guest import foreign_disk_unchanged, local_arm

from esrally_ebs.aws.provision.execute import Executor
from esrally_ebs.aws.provision.goal import filesystem_uuid
from esrally_ebs.aws.provision.host import DeviceQuery, LinuxHost
from esrally_ebs.cli import main
from esrally_ebs.machine.processes import run

FIO = ["fio", "--name=j", "--size=16M", "--rw=randread", "--bs=16k", "--direct=1", "--output-format=json"]
ARMS = {"alone": (1, "mdadm"), "mdadm": (2, "mdadm"), "lvm": (2, "lvm")}


def check_blank() -> None:
    """All disks of the instance are as they were bought: zeros, and used by nothing."""
    disks = LinuxHost().look(DeviceQuery(point=Path("/mnt"), disks=True)).disks
    assert [(disk.blank, disk.mounts, disk.holders) for disk in disks] == [(True, (), ())] * 2


def arm(folder: Path, name: str) -> Executor:
    stripes, kind = ARMS[name]
    return local_arm(folder, stripes=stripes, stripe_with=kind)


@pytest.mark.parametrize("name", ARMS)
def test_an_arm_comes_up_is_used_and_leaves_blank_disks(tmp_path: Path, name: str) -> None:
    executor = arm(tmp_path, name)
    with foreign_disk_unchanged():
        state = executor.up()
        assert state.target is not None
        assert state.target.path.name.startswith({"alone": "nvme", "mdadm": "md", "lvm": "dm-"}[name])
        (job,) = json.loads(run([*FIO, f"--directory={tmp_path / 'mnt'}"], timeout_s=120))["jobs"]
        assert job["read"]["total_ios"] == 1024
        executor.down()
        check_blank()


def check_known() -> None:
    """Whatever is on disks now proves that we put it there, also to who has no journal of it."""
    found = [device for device, _ in LinuxHost().on_disks()]
    assert [each for each in found if not each.blank and each.uuid != filesystem_uuid(each.label)] == []


@pytest.mark.parametrize("name", ["mdadm", "lvm"])
def test_a_stripe_that_was_killed_before_any_program_goes_down(tmp_path: Path, name: str) -> None:
    at, kills = 0, 0
    with foreign_disk_unchanged():
        while True:
            executor = arm(tmp_path / str(at), name)
            up = killed_at(at, executor.up)
            check_known()
            down = not up and killed_at(at - kills, executor.down)
            check_known()
            executor.down()
            check_blank()
            kills += up
            at += 1
            if not up and not down:
                break
    assert kills >= 3  # the stripe, its file system, its mount
    assert at - kills >= 3


@pytest.mark.parametrize("assembled", [True, False])
def test_an_array_whose_making_the_power_cut_is_found_and_wiped(tmp_path: Path, assembled: bool) -> None:
    executor = arm(tmp_path, "mdadm")
    state = executor.up()
    first, second = (device.path for device in state.devices)
    assert state.target is not None
    run(["umount", tmp_path / "mnt"], timeout_s=60)
    run(["mdadm", "--stop", state.target.path], timeout_s=60)
    run(["mdadm", "--zero-superblock", second], timeout_s=60)  # as if it had not been written yet
    if assembled:
        run(["mdadm", "--incremental", "--run", first], timeout_s=60)
    executor.journal.remove()
    assert main(["clean"]) == 0
    check_blank()
