"""What one boot shows: systemd, a user with sudo, NVMe disks by serial, EBS, instance store, stripes, NFS."""

import logging
from pathlib import Path

from guest_aws import PYTEST, instance_of_guest
from moto_server import Moto
from virtual_machine import DISKS, Disk, VirtualMachine
from volumes_of_guest import volumes_of_guest

from esrally_ebs.aws.clients import Aws

_DISKS = (
    *DISKS,
    Disk(name="a", serial="vol0123456789abcdef0"),
    Disk(name="b", serial="vol0123456789abcdef1"),
    Disk(name="foreign", serial="vol0fedcba9876543210", mib=64),
)
_LIMIT_S = 1500.0


def test_what_a_guest_tests_in_one_boot(aws: Moto, tmp_path: Path) -> None:
    api, machine = Aws(), VirtualMachine(tmp_path, _DISKS)
    names = sorted(f"tests/guest/{path.name}" for path in Path(__file__).parent.glob("guest_*.py"))
    with instance_of_guest(api) as (instance, _, sudo):
        command = f"{sudo} {PYTEST} {' '.join(names)}"
        with machine.booted(command), volumes_of_guest(machine, api, instance):
            logging.getLogger(__name__).info(machine.wait(_LIMIT_S))
        assert not [volume for volume in api.call("ec2", "DescribeVolumes")["Volumes"] if volume.get("Tags")]
