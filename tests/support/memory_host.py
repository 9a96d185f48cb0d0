"""An instance in memory: the devices of the volumes that MemoryAws has attached to it, and its own disks."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from memory_aws import MemoryAws

from esrally_ebs.aws.provision.goal import filesystem_uuid
from esrally_ebs.aws.provision.host import ArmDevice, DeviceQuery, HostState
from esrally_ebs.errors import SetupError
from esrally_ebs.units import GIB


class MemoryHost:
    """An instance whose devices are the volumes attached to it in a MemoryAws."""

    def __init__(self, aws: MemoryAws, instance: str, disks: Iterable[str] = ()) -> None:
        self._aws = aws
        self._instance = instance
        self.disks = {serial: ("", "") for serial in disks}  # signature and UUID of the instance's own
        self.written: set[str] = set()  # those of them that do not read as zeros, signature or none
        self.mounts: dict[Path, str] = {}  # mount point -> serial, array or NFS source
        self.array: tuple[str, tuple[str, ...]] | None = None  # name and serials
        self._on_array = ("", "")
        self._labels: dict[str, str] = {}  # by the UUID of their file systems

    def look(self, query: DeviceQuery) -> HostState:
        """As LinuxHost."""
        array, every = None, self._devices()
        if query.stripe and self.array is not None and every.keys() & query.sizes == set(self.array[1]):
            array = self._device(self.array[0], *self._on_array, size=0, path=Path("/dev/md0"))
        source = self.mounts.get(query.point, "")
        return HostState(
            devices={serial: device for serial, device in every.items() if serial in query.sizes},
            disks=tuple(every[serial] for serial in self.disks) if query.disks else (),
            array=array,
            mounted=str(every[source].path) if source in every else source,
        )

    def on_disks(self) -> list[tuple[ArmDevice, list[str]]]:
        """As LinuxHost."""
        every = self._devices()
        listed = [(every[serial], [serial]) for serial in self.disks]
        if self.array is not None and self.disks.keys() >= set(self.array[1]):
            content = self._on_array if self._on_array[0] else ("", self.disks[self.array[1][0]][1])
            array = self._device(self.array[0], *content, size=0, path=Path("/dev/md0"))
            listed.append((array, sorted(self.array[1])))
        return listed

    def do(self, operation: str, arguments: Mapping[str, Any]) -> None:
        """As LinuxHost; an AssertionError for what must never be asked of it."""
        getattr(self, f"_{operation}")(arguments)

    def _devices(self) -> dict[str, ArmDevice]:
        devices = {
            volume.id: self._device(
                volume.id,
                volume.signature,
                volume.uuid,
                size=volume.size_gib * GIB,
                path=Path(f"/dev/nvme{volume.number}n1"),
            )
            for volume in self._aws.attached(self._instance)
        }
        for number, (serial, content) in enumerate(self.disks.items()):
            devices[serial] = self._device(
                serial, *content, size=GIB, path=Path(f"/dev/nvme{900 + number}n1")
            )
        return devices

    def _device(self, serial: str, signature: str, uuid: str, *, size: int, path: Path) -> ArmDevice:
        return ArmDevice(
            serial=serial,
            path=path,
            size_bytes=size,
            signature=signature,
            uuid=uuid,
            label=self._labels.get(uuid, ""),
            blank=not signature and serial not in self.written,
            mounts=tuple(point for point, source in self.mounts.items() if source == serial),
            holders=("md0",) if self.array is not None and serial in self.array[1] else (),
        )

    def _initialise(self, arguments: Mapping[str, Any]) -> None:
        assert self._aws.volumes[arguments["serial"]].snapshot

    def _stripe(self, arguments: Mapping[str, Any]) -> None:
        for serial in arguments["devices"]:
            assert self._devices()[serial].blank, f"{serial} is not empty"
            self._put(serial, "linux_raid_member", filesystem_uuid(arguments["label"]))
        self._labels[filesystem_uuid(arguments["label"])] = arguments["label"]
        self.array, self._on_array = (arguments["name"], tuple(arguments["devices"])), ("", "")

    def _unstripe(self, arguments: Mapping[str, Any]) -> None:
        assert self.array is not None
        assert self.array[0] == arguments["name"]
        self.array = None

    def _mkfs(self, arguments: Mapping[str, Any]) -> None:
        serial, made = arguments["serial"], (arguments["filesystem"], arguments["uuid"])
        self._labels[arguments["uuid"]] = arguments["label"]
        if self.array is not None and serial == self.array[0]:
            assert self._on_array in (("", ""), made), "the array is not empty"
            self._on_array = made
            self.written |= self.disks.keys() & self.array[1]
            return
        device = self._devices()[serial]
        assert device.blank or device.uuid == made[1], f"{serial} holds {device.signature}"
        self._put(serial, *made)
        self.written |= self.disks.keys() & {serial}

    def _mount(self, arguments: Mapping[str, Any]) -> None:
        by_path = {str(device.path): serial for serial, device in self._devices().items()}
        if self.array is not None:
            by_path["/dev/md0"] = self.array[0]
        source = by_path.get(arguments["source"], arguments["source"])
        self.mounts[Path(arguments["point"])] = source

    def _unmount(self, arguments: Mapping[str, Any]) -> None:
        if self.mounts.pop(Path(arguments["point"]), None) is None:
            raise SetupError(f"umount: {arguments['point']}: not mounted")

    def _wipe(self, arguments: Mapping[str, Any]) -> None:
        assert self.disks[arguments["serial"]][1] == arguments["uuid"]
        self._put(arguments["serial"], "", "")
        self.written.discard(arguments["serial"])

    def _put(self, serial: str, signature: str, uuid: str) -> None:
        if serial in self.disks:
            self.disks[serial] = (signature, uuid)
        else:
            volume = self._aws.volumes[serial]
            volume.signature, volume.uuid = signature, uuid
