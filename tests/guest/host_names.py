"""Volumes whose devices have one another's names after a reboot: `clean` removes ours, and no other."""

from pathlib import Path

from guest_aws import PYTEST, instance_of_guest
from moto_server import Moto
from virtual_machine import VirtualMachine
from volumes_of_guest import volumes_of_guest

from esrally_ebs.aws.clients import Aws

_LIMIT_S = 1200.0


def test_names_that_swap(aws: Moto, tmp_path: Path) -> None:
    api, machine = Aws(), VirtualMachine(tmp_path, ())
    with instance_of_guest(api) as (instance, theirs, sudo):
        (machine.share / "theirs").write_text(theirs)
        for test, backwards in (("before", False), ("after", True)):
            command = f"{sudo} {PYTEST} tests/guest/names.py::test_{test}"
            with (
                machine.booted(command, services=False),
                volumes_of_guest(machine, api, instance, backwards=backwards),
            ):
                machine.wait(_LIMIT_S)
        volumes = api.call("ec2", "DescribeVolumes")["Volumes"]
        attached = [volume["VolumeId"] for volume in volumes if volume["Attachments"]]
    assert theirs in attached
    assert not [volume for volume in volumes if volume.get("Tags")]
