"""Finds the disks that hold a mount's data: through partitions, md, LVM, encryption, btrfs, loop devices.

From a Mount and the kernel's trees to a Stack. Asks nothing of AWS, and needs no root.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from esrally_ebs.machine.kernel_trees import Roots, text
from esrally_ebs.machine.procfs import SECTOR_BYTES, Mount, parse_mountinfo
from esrally_ebs.units import KIB

EBS_MODEL = "Amazon Elastic Block Store"
LOCAL_MODEL = "Amazon EC2 NVMe Instance Storage"
_SERIAL = re.compile(r"vol-?([0-9a-f]{8}|[0-9a-f]{17})")
_BY_ID = re.compile(r"nvme-Amazon_Elastic_Block_Store_(vol[0-9a-f]+)(?:-ns-1|_1)?")
_XEN = re.compile(r"(?:xvd|sd|hd)[a-z]{1,2}\d*")
_CHOSEN = re.compile(r"\[(.+?)\]")
_KEEPS = {
    "zfs": "ZFS keeps blocks in its own cache (ARC)",
    "overlay": "what the layers of an overlay lie on cannot be seen",
    "tmpfs": "a tmpfs is memory",
    "ramfs": "a ramfs is memory",
    "fuse": "what a FUSE file system keeps in its process cannot be seen",
    "virtiofs": "the host keeps the files of virtiofs in its memory",
    "9p": "the host keeps the files of 9p in its memory",
    "fuseblk": "what a FUSE file system keeps in its process cannot be seen",
}
_REMOTE = ("nfs", "ceph", "cifs", "smb", "lustre")  # clients, whose pages are evicted like a disk's
_KEEPING_DEVICES = (
    (re.compile(r"(zram|ram|nullb)\d+"), "{} is memory"),
    (re.compile(r"(nbd|ublkb)\d+"), "what the process that serves {} keeps cannot be seen"),
    (re.compile(r"zd\d+"), "ZFS keeps blocks of {} in its own cache (ARC)"),
)
# LVM's names for the parts of a cached volume
_LVM_CACHE = re.compile(r"_(cdata|cmeta|corig|cvol|cpool|wcorig)(-|$)")


class Sort(StrEnum):
    """Kind of a disk, as far as this machine can tell."""

    EBS = "ebs"
    INSTANCE_STORE = "instance-store"
    XEN = "xen"  # EBS or instance store: only the instance's block-device mapping tells
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    name: str  # kernel name, e.g. nvme1n1
    sort: Sort
    volume_id: str = ""  # vol-...; "" if nothing here tells
    known_by: str = ""  # source of the id
    size_bytes: int | None = None
    partition: str = ""  # the partition in use, if only one is


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A file system and the devices below it."""

    mount: Mount
    device: str | None  # kernel name of the topmost device; None for NFS and the like
    layers: tuple[str, ...]  # from the top: "raid0 md0", "lvm dm-0", "partition nvme1n1p1"
    disks: tuple[Disk, ...]
    readahead_bytes: int | None
    scheduler: str | None
    beneath: frozenset[str] = frozenset()  # disks with the files of loop devices, by kernel name
    caches: tuple[str, ...] = ()  # layers that may answer a read from memory or a faster disk
    lowest: tuple[str, ...] = ()  # the lowest devices, by kernel name; reads must reach them

    @property
    def names(self) -> frozenset[str]:
        return frozenset(disk.name for disk in self.disks)


def mounts_of(roots: Roots) -> list[Mount]:
    source = roots.proc / "self" / "mountinfo"
    return parse_mountinfo(source.read_text(errors="surrogateescape"), str(source))


def innermost(path: Path, mounts: Sequence[Mount]) -> Mount | None:
    """The mount that ``path`` is on, the topmost of several at one mount point; None if there is none."""
    holding = [mount for mount in reversed(mounts) if path.is_relative_to(mount.mount_point)]
    return max(holding, key=lambda mount: len(mount.mount_point.parts), default=None)


def stack_of(mount: Mount, roots: Roots) -> Stack:
    """The devices below ``mount``; no disks for a file system without devices."""
    nodes = _nodes(mount, roots)
    descent = _Descent(roots)
    descent.caches += _caches_of(mount, nodes)
    disks: dict[str, Disk] = {}
    for node in nodes:
        for disk in descent.disks_below(node):
            disks.setdefault(disk.name, disk)
    top = nodes[0] if nodes else None
    # A file system without a device, such as NFS, has its readahead in its own backing device info.
    queue = disk_of(top) / "queue" if top else roots.sys / "class" / "bdi" / mount.device_number
    readahead = text(queue / "read_ahead_kb")
    # Arrays have no scheduler: requests wait in their disks' queues.
    chosen = {scheduler_of(roots.sys / "class" / "block" / name) for name in disks} - {""}
    return Stack(
        mount=mount,
        device=top.name if top else None,
        layers=tuple(dict.fromkeys(descent.layers)),
        disks=tuple(disks.values()),
        readahead_bytes=int(readahead) * KIB if readahead.isdigit() else None,
        scheduler=", ".join(sorted(chosen)) or None,
        beneath=frozenset(descent.beneath),
        caches=tuple(dict.fromkeys(descent.caches)),
        lowest=tuple(dict.fromkeys(descent.lowest)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestQueue:
    """A disk whose requests the kernel traces one by one, and the part of it that a file system uses."""

    name: str  # of the disk
    number: str  # "major:minor" of the disk
    first_sector: int  # of 512 bytes
    end_sector: int
    is_part: bool  # whether it is a partition
    is_mount: bool  # whether the file system is directly on it, not on an array, LVM or the like


def request_queues(mount: Mount, roots: Roots) -> tuple[RequestQueue, ...]:
    """The topmost devices below a mount that have requests; empty if there are none.

    Arrays, LVM and encryption pass I/O on without requests of their own; their disks have the requests.
    """
    nodes = _nodes(mount, roots)
    queues: dict[str, RequestQueue] = {}
    below = [(node, True) for node in nodes]
    while below:
        node, is_mount = below.pop(0)
        disk = disk_of(node)
        if not (disk / "mq").is_dir():
            below += [(path.resolve(), False) for path in sorted((disk / "slaves").glob("*"))]
            continue
        first, sectors = (int(text(node / name) or 0) for name in ("start", "size"))
        queues[node.name] = RequestQueue(
            name=disk.name,
            number=text(disk / "dev"),
            first_sector=first,
            end_sector=first + sectors,
            is_part=node != disk,
            is_mount=is_mount,
        )
    return tuple(queues.values())


def _caches_of(mount: Mount, nodes: Sequence[Path]) -> list[str]:
    """Caches of a file system beyond the page cache, which evicting does not empty."""
    where, kind = mount.mount_point, mount.filesystem
    if kind.startswith(_REMOTE):
        on_disk = "fsc" in mount.super_options.split(",")
        return [f"{where}: {kind} keeps files on a local disk (fsc)"] if on_disk else []
    reason = _KEEPS.get(kind.partition(".")[0])
    if not reason and not nodes:
        reason = f"what lies below {kind} cannot be seen"
    return [f"{where}: {reason}"] if reason else []


def scheduler_of(disk: Path) -> str:
    """A disk's I/O scheduler in sysfs; "" if unknown."""
    schedulers = text(disk / "queue" / "scheduler")
    chosen = _CHOSEN.search(schedulers)
    return chosen[1] if chosen else schedulers  # without brackets if it is the only one


def _nodes(mount: Mount, roots: Roots) -> list[Path]:
    """Device nodes (in sysfs) of a file system; several for btrfs."""
    link = roots.sys / "dev" / "block" / mount.device_number
    if link.exists():
        return [link.resolve()]
    if not mount.source.startswith("/dev/"):
        return []
    name = _kernel_name(mount.source, roots)  # btrfs: the number has no device, the source is one of several
    for members in sorted((roots.sys / "fs" / "btrfs").glob("*/devices")):
        names = sorted(path.name for path in members.iterdir())
        if name in names:
            return [(members / member).resolve() for member in names]
    node = roots.sys / "class" / "block" / name
    return [node.resolve()] if node.exists() else []


def _kernel_name(device: str, roots: Roots) -> str:
    """``dm-0`` for ``/dev/mapper/vg-data`` or ``/dev/vg/data``, which link to it."""
    name = (roots.dev / device.removeprefix("/dev/")).resolve().name
    mapped = (roots.sys / "class" / "block").glob("dm-*")
    by_name = {text(path / "dm" / "name"): path.name for path in mapped}
    return by_name.get(name, name)  # containers may lack the link


def disk_of(node: Path) -> Path:
    """The whole disk of a device in sysfs, as a partition uses its disk's queue."""
    return node.parent if (node / "partition").exists() else node


class _Descent:
    """Walks down from a device to its disks; notes each layer, and each that caches."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self.layers: list[str] = []
        self.caches: list[str] = []
        self.beneath: set[str] = set()  # disks with the files of loop devices
        self.lowest: list[str] = []

    def disks_below(self, node: Path) -> Iterator[Disk]:
        partition = node.name if (node / "partition").exists() else ""
        if partition:
            self.layers.append(f"partition {partition}")
        disk = disk_of(node)
        members = [path.resolve() for path in sorted((disk / "slaves").glob("*"))]
        if members:
            kind = text(disk / "md" / "level") or text(disk / "dm" / "uuid").split("-")[0].lower()
            self.layers.append(f"{kind or 'device-mapper'} {disk.name}")
            self._note_cache(disk, members)
        for member in members:
            yield from self.disks_below(member)
        if not members:
            if not self._below_loop(disk):
                self.lowest.append(disk.name)
                kept = (how.format(disk.name) for what, how in _KEEPING_DEVICES if what.fullmatch(disk.name))
                self.caches += kept
            yield _disk(disk, partition, self._roots)

    def _below_loop(self, disk: Path) -> bool:
        """Note what a loop device's file or device is on; returns whether it has one, unlike disks."""
        backing = text(disk / "loop" / "backing_file")
        if not backing:
            return False
        self.layers.append(f"loop {disk.name} on {backing}")
        device = self._roots.sys / "class" / "block" / _kernel_name(backing, self._roots)
        is_device = backing.rpartition("/")[0] in ("/dev", "/dev/mapper") and device.exists()
        holding = None if is_device else innermost(Path(backing), mounts_of(self._roots))
        nodes = [device.resolve()] if is_device else _nodes(holding, self._roots) if holding else []
        is_direct = text(disk / "loop" / "dio") == "1"
        # btrfs reads compressed files through the page cache, even with direct I/O
        compresses = holding and holding.filesystem == "btrfs" and "compress" in holding.super_options
        if not is_direct or compresses:
            why = "btrfs compresses it" if is_direct else "direct I/O is off"
            self.caches.append(f"{disk.name} reads {backing} through the page cache ({why})")
        for node in nodes:
            self.beneath.update(lower.name for lower in self.disks_below(node))
        if holding:
            self.caches += _caches_of(holding, nodes)
        return bool(nodes)

    def _note_cache(self, disk: Path, members: Sequence[Path]) -> None:
        mode = text(disk / "bcache" / "cache_mode")
        if mode and "[none]" not in mode:
            self.caches.append(f"{disk.name} is a bcache device ({mode})")
        parts = [name for member in members if _LVM_CACHE.search(name := text(member / "dm" / "name"))]
        if parts:
            self.caches.append(f"{disk.name} is a cached LVM volume (over {', '.join(parts)})")
        if (disk / "dm").is_dir() and len(members) > 1 and not text(disk / "dm" / "uuid"):
            # made by dmsetup: sysfs does not distinguish a dm-cache from a stripe
            names = ", ".join(member.name for member in members)
            self.caches.append(f"{disk.name} may be a dm-cache (over {names}), as no uuid says what made it")


def _disk(disk: Path, partition: str, roots: Roots) -> Disk:
    sectors = text(disk / "size")
    model, serial = text(disk / "device" / "model"), text(disk / "device" / "serial")
    volume, known_by = volume_id(serial), "NVMe serial"
    if not volume:
        volume, known_by = _by_id(disk.name, roots)
    return Disk(
        name=disk.name,
        sort=_sort(disk.name, model, volume),
        volume_id=volume,
        known_by=known_by if volume else "",
        size_bytes=int(sectors) * SECTOR_BYTES if sectors.isdigit() else None,
        partition=partition,
    )


def volume_id(serial: str) -> str:
    """An EBS volume's serial with its dash, ``vol0123...`` as ``vol-0123...``; "" for any other serial."""
    match = _SERIAL.fullmatch(serial)
    return f"vol-{match[1]}" if match else ""


def _by_id(name: str, roots: Roots) -> tuple[str, str]:
    """The id in udev's link to the disk, if sysfs has no serial (in some containers)."""
    folder = roots.dev / "disk" / "by-id"
    for link in sorted(folder.glob("nvme-Amazon_Elastic_Block_Store_vol*")):
        match = _BY_ID.fullmatch(link.name)  # not a partition's link
        if match and link.resolve().name == name and volume_id(match[1]):
            return volume_id(match[1]), str(link)
    return "", ""


def _sort(name: str, model: str, volume: str) -> Sort:
    if volume or model == EBS_MODEL:
        return Sort.EBS
    if model == LOCAL_MODEL:
        return Sort.INSTANCE_STORE
    # PV guests have xvda1 as a separate disk; Xen's disks have no model.
    return Sort.XEN if not model and _XEN.fullmatch(name) else Sort.OTHER
