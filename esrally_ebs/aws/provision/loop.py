"""A machine on which loop devices stand for volumes, to rehearse against a stand-in of AWS.

``ESRALLY_EBS_REHEARSE_AWS=i-...`` chooses it, with AWS_ENDPOINT_URL on loopback (moto's server). File
systems, mounts and refusals are real; only the device of a volume is a sparse file of its size.
"""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esrally_ebs.aws.provision.machine import LinuxMachine, Machine
from esrally_ebs.aws.provision.seen import SeenMachine, Wanted
from esrally_ebs.system import run

_QUICK_S = 30.0


@dataclass(frozen=True, slots=True)
class LoopMachine(Machine):
    """LinuxMachine for what is attached: a loop device per volume, gone when the volume is detached."""

    folder: Path  # of the files; one per volume, named by its id
    linux: LinuxMachine

    def look(self, wanted: Wanted) -> SeenMachine:
        """Make the devices of what is attached appear and those of others go, then look."""
        attached = self._attached()
        for serial in attached.keys() - wanted.sizes.keys():
            run(["losetup", "--detach", attached[serial]], timeout_s=_QUICK_S)
            (self.folder / serial).unlink()
            with contextlib.suppress(OSError):  # others of the arm are there
                self.folder.rmdir()
        for serial in wanted.sizes.keys() - attached.keys():
            self._appear(serial, wanted.sizes[serial])
        devices = {serial: Path(device).name for serial, device in self._attached().items()}
        return SeenMachine(
            devices={serial: self.linux.describe(serial, name) for serial, name in devices.items()},
            mounted=self.linux.mounted_at(wanted.point),
        )

    def do(self, operation: str, arguments: Mapping[str, Any]) -> None:
        """As LinuxMachine."""
        self.linux.do(operation, arguments)

    def _appear(self, serial: str, size: int) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / serial).open("ab") as file:
            file.truncate(size)
        run(["losetup", "--find", "--direct-io=on", self.folder / serial], timeout_s=_QUICK_S)

    def _attached(self) -> dict[str, str]:
        """Loop device by serial, as the kernel has them: a table of our own would outlive a crash wrongly."""
        listed = run(["losetup", "--list", "--json", "--output", "NAME,BACK-FILE"], timeout_s=_QUICK_S)
        found = json.loads(listed)["loopdevices"] if listed.strip() else []
        here = self.folder.resolve()
        return {
            Path(loop["back-file"]).name: loop["name"]
            for loop in found
            if loop["back-file"] and Path(loop["back-file"]).parent == here
        }
