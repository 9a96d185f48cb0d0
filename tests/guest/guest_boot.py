"""The guest itself: systemd, a user without root, disks that are known by their serials."""

from pathlib import Path

import pytest

from esrally_ebs.aws.provision.host import DeviceQuery, LinuxHost
from esrally_ebs.cli import main
from esrally_ebs.machine.processes import run
from esrally_ebs.units import GIB

ATTACHED = ("vol-0123456789abcdef0", "vol-0123456789abcdef1")


def test_systemd_is_the_first_process() -> None:
    assert Path("/proc/1/comm").read_text() == "systemd\n"
    assert run(["passwd", "--status", "root"], timeout_s=10).split()[1] != "P"  # no password to log in with


def test_doctor_says_what_is_missing_here(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 3
    assert "docker" in capfd.readouterr().out.lower()


def test_ebs_volumes_are_known_by_the_serials_of_their_nvme_devices() -> None:
    state = LinuxHost().look(DeviceQuery(point=Path("/mnt"), sizes=dict.fromkeys(ATTACHED), disks=True))
    assert set(state.devices) == set(ATTACHED)
    assert {device.size_bytes for device in state.devices.values()} == {GIB}
    assert all(device.blank for device in state.devices.values())
    assert [disk.serial for disk in state.disks] == ["AWS00000000000000001", "AWS00000000000000002"]
