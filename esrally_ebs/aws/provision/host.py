"""This machine's side: what an arm's devices contain, and the few operations on them.

The executor needs an ``ArmHost``: ``LinuxHost`` is this machine; on ``LoopHost``, loop devices stand for
volumes. Every write first checks again that the device is still the same.
"""

import contextlib
import errno
import json
import mmap
import os
import struct
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from esrally_ebs.aws.provision.goal import filesystem_uuid, member_uuid
from esrally_ebs.errors import CommandError, SetupError
from esrally_ebs.machine.disks import EBS_MODEL, LOCAL_MODEL, mounts_of, volume_id
from esrally_ebs.machine.kernel_trees import Roots, text
from esrally_ebs.machine.processes import run
from esrally_ebs.machine.procfs import SECTOR_BYTES
from esrally_ebs.units import GIB, KIB, MIB

_TOOL_S = 60.0
_FORMAT_S = 600.0
_SLOWEST_BYTES_PER_S = 100 * MIB  # for writing zeros to an instance's disk
_SAMPLED_PLACES = 64  # evenly spread over a device, besides both ends
_SAMPLE = 64 * KIB
_CHUNK = MIB
_FIRST = 4 * KIB  # of a device, written at once
# Place on a stripe's member that LVM (clears 2 KiB) and md (begins at 4 KiB) leave alone.
_MARK_AT = 2 * KIB
# Place on a formatted device: mkfs.xfs first clears 128 KiB, and on a stripe its root is at a chunk's begin.
_MARK_BESIDE_XFS = 1020 * KIB
_MARK = struct.Struct("16s12s")  # UUID and label
_READERS = 32  # one stream does not fill a volume's queue

ReadProgress = Callable[[int, int], None]  # bytes done, bytes in total
HIDDEN_HOLDER = "what this process does not see (a mount in another container, swap)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmDevice:
    serial: str  # the volume's id, or the instance disk's serial; an array's name
    path: Path
    size_bytes: int
    signature: str = ""  # type of its contents; "partitions" if it has some
    uuid: str = ""
    label: str = ""
    blank: bool = False  # no signature, and zeros wherever it was checked
    mounts: tuple[Path, ...] = ()
    holders: tuple[str, ...] = ()  # arrays and groups with it, or other users


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    devices: Mapping[str, ArmDevice] = field(default_factory=dict)  # by serial, those that exist so far
    disks: tuple[ArmDevice, ...] = ()  # instance store, if the arm has not chosen a disk yet
    array: ArmDevice | None = None
    mounted: str = ""  # source of the mount at the arm's mount point


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceQuery:
    point: Path
    # the arm's devices: bytes by serial; None: any size
    sizes: Mapping[str, int | None] = field(default_factory=dict)
    disks: bool = False  # whether any disk of the instance may be chosen
    stripe: str = ""  # the name of the array, if the arm has one
    contents: bool = True  # whether to read what devices hold, which one that has failed does not give


def is_blank(device: Path, size: int, *, start: int = 0) -> bool:
    """Whether the first and last MiB from ``start`` on, and 64 places between, are all zeros.

    New EBS volumes read as zeros; data without a signature (a raw database) do not.
    """
    places = [(start, MIB), (max(start, size - MIB), MIB)]
    places += [
        (start + (size - start) * place // _SAMPLED_PLACES // _SAMPLE * _SAMPLE, _SAMPLE)
        for place in range(_SAMPLED_PLACES)
    ]
    try:
        with device.open("rb", buffering=0) as file:
            return not any(any(os.pread(file.fileno(), length, at)) for at, length in places)
    except OSError as error:
        raise _unreadable(device, error) from error


def _unreadable(device: Path, error: OSError) -> SetupError:
    step = "run as root" if isinstance(error, PermissionError) else "see the kernel log; has the disk failed?"
    return SetupError(f"{device}: {error.strerror}; {step}")


def mark(device: Path, label: str, at: int = _MARK_AT) -> None:
    """Write our label and UUID on a device: they identify it before a file system does, and afterwards."""
    _put(device, _MARK.pack(uuid.UUID(filesystem_uuid(label)).bytes, label.encode()), at)


def _put(device: Path, content: bytes, at: int) -> None:
    handle = os.open(device, os.O_WRONLY | os.O_DSYNC | os.O_CLOEXEC)
    try:
        os.pwrite(handle, content, at)
    finally:
        os.close(handle)


def _marked(device: Path, *places: int) -> str:
    """The first label at one of these places with its UUID; "" if there is none."""
    try:
        with device.open("rb", buffering=0) as file:
            marks = [os.pread(file.fileno(), _MARK.size, at) for at in places]
    except OSError as error:
        raise _unreadable(device, error) from error
    for mark in marks:
        id_, raw = _MARK.unpack(mark.ljust(_MARK.size, b"\0"))
        label = str(raw, "ascii", errors="replace")
        if str(uuid.UUID(bytes=id_)) == filesystem_uuid(label):
            return label
    return ""


@contextlib.contextmanager
def _to_itself(device: Path) -> Iterator[None]:
    """Open the device exclusively: else udev would reassemble a stripe after each write."""
    try:
        handle = os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC)
    except OSError as error:
        raise SetupError(f"{device}: {error.strerror}; run the command again") from error
    try:
        yield
    finally:
        os.close(handle)


def is_in_use(device: Path) -> bool:
    """Whether something uses the device exclusively, such as a mount anywhere on this machine.

    No list that this process can read has other containers' mounts; the kernel still refuses.
    """
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        return error.errno == errno.EBUSY
    return False


def read_through(device: Path, size: int, progress: ReadProgress) -> None:
    """Read every block once, past the page cache, so that all of it comes from the snapshot.

    Calls ``progress(done, size)`` after each GiB. Raises SetupError if the device fails.
    """
    handle = os.open(device, os.O_RDONLY | os.O_DIRECT | os.O_EXCL)  # for hours; it shows as in use meanwhile
    try:
        with ThreadPoolExecutor(_READERS) as pool:
            for start in range(0, size, GIB):
                end = min(size, start + GIB)
                list(pool.map(lambda offset: _read(handle, offset), range(start, end, _CHUNK)))
                progress(end, size)
    except OSError as error:
        raise SetupError(f"{device}: {error.strerror} while it was read; is it still attached?") from error
    finally:
        os.close(handle)


def _read(handle: int, offset: int) -> None:
    with mmap.mmap(-1, _CHUNK) as buffer:  # aligned for direct I/O
        os.preadv(handle, [buffer], offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinuxHost:
    """This machine, by sysfs and the usual tools; needs root."""

    roots: Roots = field(default_factory=Roots)
    run: Callable[..., str] = run
    is_in_use: Callable[[Path], bool] = is_in_use
    progress: ReadProgress = lambda done, total: None

    def look(self, query: DeviceQuery) -> HostState:
        """The devices in the query, and their contents. Raises SetupError if these cannot be read."""
        disks = self._disks()
        names = {serial: name for name, serial, _ in disks if serial in query.sizes}
        local = [(name, serial) for name, serial, model in disks if model == LOCAL_MODEL]
        members = set(names.values()) if query.stripe else set()
        return HostState(
            devices={s: self.describe(s, name, contents=query.contents) for s, name in names.items()},
            disks=tuple(self.describe(serial, name) for name, serial in local) if query.disks else (),
            array=self.array(query.stripe, members, contents=query.contents),
            mounted=self.mounted_at(query.point),
        )

    def do(self, operation: str, arguments: Mapping[str, Any]) -> None:
        """Perform one operation, by the method of that name. Raises SetupError."""
        getattr(self, f"_{operation}")(arguments)

    def describe(self, serial: str, name: str, *, contents: bool = True) -> ArmDevice:
        node, path = self.roots.sys / "block" / name, self.roots.dev / name
        if not path.exists():
            raise SetupError(
                f"{path}: is not there though the kernel has it; start a container with --privileged"
                " --volume /dev:/dev"
            )
        size = int((node / "size").read_text()) * SECTOR_BYTES
        signature, uuid, label = self._signature(serial, path, node) if size and contents else ("", "", "")
        parts = [node, *_partitions(node)]  # what uses a partition uses the device
        numbers = {text(part / "dev") for part in parts}
        mounts = [mount.mount_point for mount in mounts_of(self.roots) if mount.device_number in numbers]
        holders = {entry.name for part in parts for entry in _entries(part / "holders")}
        if not mounts and not holders and self.is_in_use(path):
            holders = {HIDDEN_HOLDER}
        return ArmDevice(
            serial=serial,
            path=path,
            size_bytes=size,
            signature=signature,
            uuid=uuid,
            label=label,
            blank=contents and not signature and is_blank(path, size),
            mounts=tuple(mounts),
            holders=tuple(sorted(holders)),
        )

    def array(self, name: str, members: set[str], *, contents: bool = True) -> ArmDevice | None:
        """The array or logical volume that is made of exactly these devices."""
        for node in _entries(self.roots.sys / "block"):
            if members and {entry.name for entry in _entries(node / "slaves")} == members:
                return self.describe(name, node.name, contents=contents)
        return None

    def on_disks(self) -> list[tuple[ArmDevice, list[str]]]:
        """Contents of the instance's disks, single or as an array, with these disks' serials.

        An array without a file system gets the label and UUID of its members' marks.
        """
        serials = {name: serial for name, serial, model in self._disks() if model == LOCAL_MODEL}
        disks = {name: self.describe(serial, name) for name, serial in serials.items()}
        devices = [(disk, [disk.serial]) for disk in disks.values()]
        for node in _entries(self.roots.sys / "block"):
            members = {entry.name for entry in _entries(node / "slaves")}
            if members and members <= serials.keys():
                array = self.describe(node.name, node.name)
                marks = {(disks[name].uuid, disks[name].label) for name in members}
                if not array.signature and len(marks) == 1:
                    ((id_, label),) = marks
                    array = replace(array, uuid=id_, label=label)
                devices.append((array, sorted(serials[name] for name in members)))
        return devices

    def mounted_at(self, point: Path) -> str:
        """Source of the topmost mount at a path."""
        sources = [mount.source for mount in mounts_of(self.roots) if mount.mount_point == point]
        return sources[-1] if sources else ""

    def _disks(self) -> list[tuple[str, str, str]]:
        """Kernel name, serial and model of every NVMe disk made by Amazon."""
        disks = []
        for node in _entries(self.roots.sys / "block"):
            model, serial = text(node / "device" / "model"), text(node / "device" / "serial")
            hidden = text(node / "hidden") == "1"  # one of several paths to a disk, without a device file
            if model in (EBS_MODEL, LOCAL_MODEL) and serial and not hidden:
                disks.append((node.name, volume_id(serial) or serial, model))
        return disks

    def _signature(self, serial: str, path: Path, node: Path) -> tuple[str, str, str]:
        """Type, UUID and label of a device's contents; those of our mark if we marked it.

        The mark alone proves nothing: contents that others have written since have another UUID.
        """
        if _partitions(node):
            return "partitions", "", ""
        output = self.run(["wipefs", "--no-act", "--json", path], timeout_s=_TOOL_S)
        signatures = json.loads(output)["signatures"] if output.strip() else []
        first = (signatures or [{}])[0]
        type_, label = first.get("type") or "", _marked(path, _MARK_AT, _MARK_BESIDE_XFS)
        ours = {_digits(filesystem_uuid(label)), member_uuid(label, serial)}  # mdadm's form, LVM's form
        if label and all(_digits(each.get("uuid") or "") in ours for each in signatures):
            return type_, filesystem_uuid(label), label
        return type_, first.get("uuid") or "", first.get("label") or ""

    def _same(self, arguments: Mapping[str, Any], *, contents: bool = True) -> ArmDevice:
        """The device as it is now. Raises SetupError unless it is still the step's."""
        path = Path(arguments["device"])
        node = self.roots.sys / "block" / path.name
        serials = {name: serial for name, serial, _ in self._disks()}
        if serials.get(path.name, arguments["serial"]) != arguments["serial"] or not node.exists():
            raise SetupError(
                f"{path}: is not {arguments['serial']} any more; it is not touched, run the command again"
            )
        return self.describe(arguments["serial"], path.name, contents=contents)

    def _initialise(self, arguments: Mapping[str, Any]) -> None:
        device = self._same(arguments)
        read_through(device.path, device.size_bytes, self.progress)

    def _stripe(self, arguments: Mapping[str, Any]) -> None:
        devices, name, label = arguments["devices"], arguments["name"], arguments["label"]
        for serial, device in devices.items():
            if not self._same({"serial": serial, "device": device}).blank:
                raise SetupError(f"{device}: is not empty any more; it is not touched")
        for device in devices.values():  # before anything that a power cut could leave there
            mark(Path(device), label)
        for argv in stripe_commands(arguments["kind"], label, name, devices, arguments["chunk"] // KIB):
            self.run(argv, timeout_s=_TOOL_S)

    def _unstripe(self, arguments: Mapping[str, Any]) -> None:
        # names change when a disk is plugged out: the superblock of another one must stay. One that has
        # failed cannot be read, but its stripe must be undone.
        pairs = ({"serial": serial, "device": path} for serial, path in arguments["devices"].items())
        devices = [str(self._same(pair, contents=False).path) for pair in pairs]
        for argv in unstripe_commands(arguments["kind"], arguments["name"], arguments["array"], devices):
            self.run(argv, timeout_s=_TOOL_S)

    def _mkfs(self, arguments: Mapping[str, Any]) -> None:
        device = self._same(arguments)
        ours = device.uuid == arguments["uuid"] or (arguments["begun"] and not device.signature)
        in_use = device.mounts or device.holders
        if device.size_bytes != arguments["size"] or in_use or not (device.blank or ours):
            raise SetupError(f"{device.path}: is not empty any more; it is not formatted")
        force = [] if device.blank else ["-f"]
        uuid = f"uuid={arguments['uuid']}"
        label = arguments["label"]
        mark(device.path, label, _MARK_BESIDE_XFS)
        self.run(["mkfs.xfs", "-q", "-K", *force, "-m", uuid, "-L", label, device.path], timeout_s=_FORMAT_S)
        if _marked(device.path, _MARK_BESIDE_XFS):  # unless the file system has overwritten it
            _put(device.path, bytes(_MARK.size), _MARK_BESIDE_XFS)

    def _mount(self, arguments: Mapping[str, Any]) -> None:
        point, source = Path(arguments["point"]), arguments["source"]
        point.mkdir(parents=True, exist_ok=True)
        if arguments["readahead"] is not None:
            queue = self.roots.sys / "block" / Path(source).name / "queue" / "read_ahead_kb"
            queue.write_text(str(arguments["readahead"] // KIB))
        argv = ["mount", "-t", arguments["filesystem"], "-o", arguments["options"], source, point]
        try:
            self.run(argv, timeout_s=_TOOL_S)
        except CommandError as error:
            if arguments["filesystem"] != "nfs4":
                raise
            raise SetupError(f"{error}; the instance's security groups must let NFS (TCP 2049) in") from error

    def _unmount(self, arguments: Mapping[str, Any]) -> None:
        self.run(["umount", arguments["point"]], timeout_s=_FORMAT_S)

    def _wipe(self, arguments: Mapping[str, Any]) -> None:
        device = self._same(arguments)
        if device.uuid != arguments["uuid"] or device.mounts or device.holders:
            raise SetupError(f"{device.path}: does not hold our file system any more; it is not wiped")
        limit_s = _FORMAT_S + device.size_bytes / _SLOWEST_BYTES_PER_S

        def discard(*options: object) -> None:
            self.run(["blkdiscard", "--force", *options, device.path], timeout_s=limit_s)

        with _to_itself(device.path):
            # wipe the first blocks last: they mark the rest as ours, even after a power cut
            if device.label:
                mark(device.path, device.label)
            with contextlib.suppress(SetupError):  # a disk without discard can still be overwritten
                discard("--offset", MIB)
            if not is_blank(device.path, device.size_bytes, start=MIB):
                discard("--zeroout", "--offset", MIB)
            discard("--zeroout", "--offset", _FIRST, "--length", MIB - _FIRST)
            discard("--zeroout", "--length", _FIRST)


def stripe_commands(
    kind: str, label: str, name: str, devices: Mapping[str, str], chunk_kib: int
) -> list[list[str]]:
    """Commands that make a stripe (RAID 0) of devices given by serial; its UUIDs and our mark identify it."""
    count, paths = str(len(devices)), list(devices.values())
    if kind == "lvm":
        layout = ["--type", "striped", "--stripes", count, "--stripesize", f"{chunk_kib}k"]
        return [
            *(
                ["pvcreate", "--yes", "--norestorefile", "--uuid", member_uuid(label, serial), path]
                for serial, path in devices.items()
            ),
            ["vgcreate", name, *paths],
            ["lvcreate", "--yes", *layout, "--extents", "100%FREE", "--name", "arm", name],
        ]
    layout = ["--level=0", f"--raid-devices={count}", f"--chunk={chunk_kib}K"]
    ours = [f"--name={name}", f"--uuid={filesystem_uuid(label)}"]
    return [["mdadm", "--create", f"/dev/md/{name}", "--run", *layout, *ours, *paths]]


def unstripe_commands(kind: str, name: str, array: str, devices: list[str]) -> list[list[str]]:
    """Commands that undo ``stripe_commands``."""
    if kind == "lvm":
        return [["vgremove", "--force", "--yes", name], ["pvremove", "--yes", *devices]]
    return [["mdadm", "--stop", array], ["mdadm", "--zero-superblock", *devices]]


@dataclass(frozen=True, slots=True)
class LoopHost:
    """LinuxHost for a rehearsal: a loop device per volume, removed when the volume is detached.

    Chosen by ``ESRALLY_EBS_REHEARSE_AWS=i-...`` with AWS_ENDPOINT_URL on loopback (moto's server). File
    systems, mounts and refusals are real; only a volume's device is a sparse file of its size.
    """

    folder: Path  # of the files; one per volume, named by its id
    linux: LinuxHost

    def look(self, query: DeviceQuery) -> HostState:
        """Create devices of attached volumes and remove those of others, then look."""
        attached = self._attached()
        for serial in attached.keys() - query.sizes.keys():
            run(["losetup", "--detach", attached[serial]], timeout_s=_TOOL_S)
            (self.folder / serial).unlink()
            with contextlib.suppress(OSError):  # other files of the arm are there
                self.folder.rmdir()
        for serial in query.sizes.keys() - attached.keys():
            size = query.sizes[serial]
            if size is not None:
                self._appear(serial, size)
        devices = {serial: Path(device).name for serial, device in self._attached().items()}
        return HostState(
            devices={
                serial: self.linux.describe(serial, name, contents=query.contents)
                for serial, name in devices.items()
            },
            mounted=self.linux.mounted_at(query.point),
        )

    def do(self, operation: str, arguments: Mapping[str, Any]) -> None:
        self.linux.do(operation, arguments)

    def _appear(self, serial: str, size: int) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / serial).open("ab") as file:
            file.truncate(size)
        run(["losetup", "--find", "--direct-io=on", self.folder / serial], timeout_s=_TOOL_S)

    def _attached(self) -> dict[str, str]:
        """Loop device by serial, from the kernel: a table of our own would be wrong after a crash."""
        output = run(["losetup", "--list", "--json", "--output", "NAME,BACK-FILE"], timeout_s=_TOOL_S)
        loops = json.loads(output)["loopdevices"] if output.strip() else []
        here = self.folder.resolve()
        return {
            Path(loop["back-file"]).name: loop["name"]
            for loop in loops
            if loop["back-file"] and Path(loop["back-file"]).parent == here
        }


ArmHost = LinuxHost | LoopHost


def _digits(uuid_: str) -> str:
    return uuid_.replace("-", "")


def _partitions(node: Path) -> list[Path]:
    return [entry for entry in _entries(node) if (entry / "partition").exists()]


def _entries(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.is_dir() else []
