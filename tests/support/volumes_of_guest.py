"""What EC2 does with a guest: volumes that moto calls attached become NVMe disks of it, and go again."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from virtual_machine import VirtualMachine

from esrally_ebs.aws.clients import Aws
from esrally_ebs.aws.describe import volumes_where
from esrally_ebs.units import GIB

_LOOKS_EVERY_S = 0.2


@contextmanager
def volumes_of_guest(
    machine: VirtualMachine, api: Aws, instance: str, *, backwards: bool = False
) -> Iterator[None]:
    """Plug and unplug disks until the block ends; a volume that was attached before keeps what is on it.

    ``backwards``: those that are attached at the start come in the reverse order, with other names.
    """
    over = threading.Event()
    failures: list[BaseException] = []

    def follow() -> None:
        present: set[str] = set()
        try:
            while not over.wait(_LOOKS_EVERY_S):
                _follow(machine, _attached(api, instance), present, backwards=backwards)
        except BaseException as error:  # noqa: BLE001 - raised where the block ends
            failures.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        if failures:
            raise failures[0]


def _attached(api: Aws, instance: str) -> dict[str, int]:
    """Size in bytes by the id of each volume, in the order of their creation."""
    raw = sorted(
        volumes_where(api, "attachment.instance-id", instance), key=lambda volume: volume["CreateTime"]
    )
    return {volume["VolumeId"]: volume["Size"] * GIB for volume in raw}


def _follow(machine: VirtualMachine, attached: dict[str, int], present: set[str], *, backwards: bool) -> None:
    """Make the guest have what is attached; ``present`` is what it has."""
    for volume in present - attached.keys():
        machine.detach(volume)
    new = [volume for volume in attached if volume not in present]
    for volume in reversed(new) if backwards else new:
        machine.attach(volume, volume.replace("-", ""), attached[volume])
    present.clear()
    present.update(attached)
