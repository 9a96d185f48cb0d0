"""The side of this machine: what an arm's devices hold, and the few things that are done to them.

``Machine`` is what the executor needs; ``LinuxMachine`` is this machine. What writes looks once more, right
before it writes, whether the device is still the one that was looked at.
"""

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from esrally_ebs.aws.disks import EBS_MODEL, LOCAL_MODEL, SECTOR_BYTES, mounts_of, volume_id
from esrally_ebs.aws.provision.blocks import is_blank, is_held, read_through
from esrally_ebs.aws.provision.seen import SeenDevice, SeenMachine, Wanted
from esrally_ebs.aws.roots import Roots, text
from esrally_ebs.errors import CommandError, SetupError
from esrally_ebs.system import run
from esrally_ebs.units import KIB, MIB

_QUICK_S = 60.0
_FORMAT_S = 600.0
_SLOWEST_BYTES_PER_S = 100 * MIB  # of zeros written to a disk of the instance

Progress = Callable[[int, int], None]  # bytes done, bytes in all


class Machine(Protocol):
    """This machine, or a stand-in."""

    def look(self, wanted: Wanted) -> SeenMachine:
        """What is there of an arm; SetupError when it cannot be looked at."""

    def do(self, operation: str, arguments: Mapping[str, Any]) -> None:
        """One thing done, or SetupError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinuxMachine:
    """This machine, through sysfs and the usual tools; needs root."""

    roots: Roots = field(default_factory=Roots)
    run: Callable[..., str] = run
    is_held: Callable[[Path], bool] = is_held
    progress: Progress = lambda done, total: None

    def look(self, wanted: Wanted) -> SeenMachine:
        """All devices whose serial is wanted, with what they hold."""
        found = {serial: name for name, serial, _ in self._disks() if serial in wanted.sizes}
        devices = {serial: self.describe(serial, name) for serial, name in found.items()}
        local = [(name, serial) for name, serial, model in self._disks() if model == LOCAL_MODEL]
        return SeenMachine(
            devices=devices,
            disks=tuple(self.describe(serial, name) for name, serial in local) if wanted.disks else (),
            array=self.array(wanted.stripe, set(found.values())) if wanted.stripe and found else None,
            mounted=self.mounted_at(wanted.point),
        )

    def do(self, operation: str, arguments: Mapping[str, Any]) -> None:
        """See the functions of the same names."""
        {
            "initialise": self._initialise,
            "stripe": self._stripe,
            "unstripe": self._unstripe,
            "mkfs": self._mkfs,
            "mount": self._mount,
            "unmount": self._unmount,
            "wipe": self._wipe,
        }[operation](arguments)

    def describe(self, serial: str, name: str) -> SeenDevice:
        """The device of that kernel name."""
        node, path = self.roots.sys / "block" / name, self.roots.dev / name
        if not path.exists():
            raise SetupError(
                f"{path}: is not there though the kernel has it; start a container with --privileged"
                " --volume /dev:/dev"
            )
        size = int((node / "size").read_text()) * SECTOR_BYTES
        signature, uuid, label = self._signature(path, node)
        parts = [node, *_partitions(node)]  # what uses a partition uses the device
        numbers = {text(part / "dev") for part in parts}
        mounts = [mount.mount_point for mount in mounts_of(self.roots) if mount.device_number in numbers]
        holders = {entry.name for part in parts for entry in _entries(part / "holders")}
        if not mounts and not holders and self.is_held(path):
            holders = {"what this process does not see (a mount in another container, swap)"}
        return SeenDevice(
            serial=serial,
            path=path,
            size_bytes=size,
            signature=signature,
            uuid=uuid,
            label=label,
            blank=not signature and is_blank(path, size),
            mounts=tuple(mounts),
            holders=tuple(sorted(holders)),
        )

    def array(self, name: str, members: set[str]) -> SeenDevice | None:
        """The array or logical volume that is made of exactly these devices."""
        for node in _entries(self.roots.sys / "block"):
            if members and {entry.name for entry in _entries(node / "slaves")} == members:
                return self.describe(name, node.name)
        return None

    def on_disks(self) -> list[tuple[SeenDevice, list[str]]]:
        """What disks of the instance hold, alone or as one array, with the serials of these disks."""
        serials = {name: serial for name, serial, model in self._disks() if model == LOCAL_MODEL}
        held = [(self.describe(serial, name), [serial]) for name, serial in serials.items()]
        for node in _entries(self.roots.sys / "block"):
            members = {entry.name for entry in _entries(node / "slaves")}
            if members and members <= serials.keys():
                held.append((self.describe(node.name, node.name), sorted(serials[name] for name in members)))
        return held

    def mounted_at(self, point: Path) -> str:
        """The source of the topmost mount at a path."""
        found = [mount.source for mount in mounts_of(self.roots) if mount.mount_point == point]
        return found[-1] if found else ""

    def _disks(self) -> list[tuple[str, str, str]]:
        """Kernel name, serial and model of every NVMe disk of Amazon's."""
        found = []
        for node in _entries(self.roots.sys / "block"):
            model, serial = text(node / "device" / "model"), text(node / "device" / "serial")
            if model in (EBS_MODEL, LOCAL_MODEL) and serial:
                found.append((node.name, volume_id(serial) or serial, model))
        return found

    def _signature(self, path: Path, node: Path) -> tuple[str, str, str]:
        """Type, UUID and label of what stands first on the device, a table of partitions before all else."""
        if _partitions(node):
            return "partitions", "", ""
        told = self.run(["wipefs", "--no-act", "--json", path], timeout_s=_QUICK_S)
        found = json.loads(told)["signatures"] if told.strip() else []
        first = found[0] if found else {}
        return first.get("type") or "", first.get("uuid") or "", first.get("label") or ""

    def _again(self, arguments: Mapping[str, Any]) -> SeenDevice:
        """The device as it is now; SetupError unless it is still the one that the step is about."""
        path = Path(arguments["device"])
        node = self.roots.sys / "block" / path.name
        known = {name: serial for name, serial, _ in self._disks()}
        if known.get(path.name, arguments["serial"]) != arguments["serial"] or not node.exists():
            raise SetupError(
                f"{path}: is not {arguments['serial']} any more; it is not touched, run the command again"
            )
        return self.describe(arguments["serial"], path.name)

    def _initialise(self, arguments: Mapping[str, Any]) -> None:
        device = self._again(arguments)
        read_through(device.path, device.size_bytes, self.progress)

    def _stripe(self, arguments: Mapping[str, Any]) -> None:
        devices, name = arguments["devices"], arguments["name"]
        for serial, device in devices.items():
            if not self._again({"serial": serial, "device": device}).blank:
                raise SetupError(f"{device}: is not empty any more; it is not touched")
        chunk_kib = arguments["chunk"] // KIB
        for argv in stripe_commands(arguments["kind"], name, list(devices.values()), chunk_kib):
            self.run(argv, timeout_s=_QUICK_S)

    def _unstripe(self, arguments: Mapping[str, Any]) -> None:
        devices = list(arguments["devices"].values())
        for argv in unstripe_commands(arguments["kind"], arguments["name"], arguments["array"], devices):
            self.run(argv, timeout_s=_QUICK_S)

    def _mkfs(self, arguments: Mapping[str, Any]) -> None:
        device = self._again(arguments)
        ours = device.uuid == arguments["uuid"] or (arguments["begun"] and not device.signature)
        in_use = device.mounts or device.holders
        if device.size_bytes != arguments["size"] or in_use or not (device.blank or ours):
            raise SetupError(f"{device.path}: is not empty any more; it is not formatted")
        force = [] if device.blank else ["-f"]
        uuid = f"uuid={arguments['uuid']}"
        label = ["-L", arguments["label"]]
        self.run(["mkfs.xfs", "-q", "-K", *force, "-m", uuid, *label, device.path], timeout_s=_FORMAT_S)

    def _mount(self, arguments: Mapping[str, Any]) -> None:
        point, source = Path(arguments["point"]), arguments["source"]
        point.mkdir(parents=True, exist_ok=True)
        if arguments["readahead"] is not None:
            queue = self.roots.sys / "block" / Path(source).name / "queue" / "read_ahead_kb"
            queue.write_text(str(arguments["readahead"] // 1024))
        argv = ["mount", "-t", arguments["filesystem"], "-o", arguments["options"], source, point]
        try:
            self.run(argv, timeout_s=_QUICK_S)
        except CommandError as error:
            if arguments["filesystem"] != "nfs4":
                raise
            raise SetupError(f"{error}; the instance's security groups must let NFS (TCP 2049) in") from error

    def _unmount(self, arguments: Mapping[str, Any]) -> None:
        self.run(["umount", arguments["point"]], timeout_s=_FORMAT_S)

    def _wipe(self, arguments: Mapping[str, Any]) -> None:
        device = self._again(arguments)
        if device.uuid != arguments["uuid"] or device.mounts or device.holders:
            raise SetupError(f"{device.path}: does not hold our file system any more; it is not wiped")
        self.run(["wipefs", "--all", "--quiet", device.path], timeout_s=_QUICK_S)
        limit_s = _FORMAT_S + device.size_bytes / _SLOWEST_BYTES_PER_S
        with contextlib.suppress(SetupError):  # a disk that cannot discard can be written to
            self.run(["blkdiscard", device.path], timeout_s=limit_s)
        if not is_blank(device.path, device.size_bytes):
            self.run(["blkdiscard", "--zeroout", device.path], timeout_s=limit_s)


def stripe_commands(kind: str, name: str, devices: list[str], chunk_kib: int) -> list[list[str]]:
    """What makes one device (RAID 0) of several."""
    count = str(len(devices))
    if kind == "lvm":
        layout = ["--type", "striped", "--stripes", count, "--stripesize", f"{chunk_kib}k"]
        return [
            ["vgcreate", name, *devices],
            ["lvcreate", "--yes", *layout, "--extents", "100%FREE", "--name", "arm", name],
        ]
    layout = ["--level=0", f"--raid-devices={count}", f"--chunk={chunk_kib}K"]
    return [["mdadm", "--create", f"/dev/md/{name}", "--run", *layout, f"--name={name}", *devices]]


def unstripe_commands(kind: str, name: str, array: str, devices: list[str]) -> list[list[str]]:
    """The reverse of ``stripe_commands``."""
    if kind == "lvm":
        return [["vgremove", "--force", "--yes", name], ["pvremove", "--yes", *devices]]
    return [["mdadm", "--stop", array], ["mdadm", "--zero-superblock", *devices]]


def _partitions(node: Path) -> list[Path]:
    return [entry for entry in _entries(node) if (entry / "partition").exists()]


def _entries(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.is_dir() else []
