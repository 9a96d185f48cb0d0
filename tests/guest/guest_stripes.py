"""Instance store, alone and striped by mdadm and LVM: up, used, down, and killed before each program."""

import json
from pathlib import Path

import pytest
from guest import foreign_disk_unchanged, killed_at, local_arm

from esrally_ebs.aws.provision.execute import Executor
from esrally_ebs.aws.provision.host import DeviceQuery, LinuxHost
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


@pytest.mark.parametrize("name", ["mdadm", "lvm"])
def test_a_stripe_that_was_killed_before_any_program_goes_down(tmp_path: Path, name: str) -> None:
    at, kills = 0, 0
    with foreign_disk_unchanged():
        while True:
            executor = arm(tmp_path / str(at), name)
            up = killed_at(at, executor.up)
            down = not up and killed_at(at - kills, executor.down)
            executor.down()
            check_blank()
            kills += up
            at += 1
            if not up and not down:
                break
    assert kills >= 3  # the stripe, its file system, its mount
    assert at - kills >= 3
