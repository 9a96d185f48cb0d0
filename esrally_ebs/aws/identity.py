"""Which EBS volumes, EFS or disks a mount is, from this machine alone, without calling AWS."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from esrally_ebs.errors import PlanError
from esrally_ebs.machine.disks import Disk, Sort, Stack, innermost, mounts_of, stack_of
from esrally_ebs.machine.kernel_trees import Roots
from esrally_ebs.machine.procfs import Mount
from esrally_ebs.model import Kind

_EFS_SOURCE = re.compile(r"(?:[a-z0-9-]+\.)?(fs-[0-9a-f]+)\.efs\.[a-z0-9.-]+:.*")
_ADDRESS = re.compile(r"(?:\d+\.){3}\d+:|\[[0-9a-f:]+\]:")  # a server's address instead of a name
_EFS_STATE = re.compile(r"(fs-[0-9a-f]+)\..+\.\d+")  # efs-utils: file system, mount point, port
_PORT = re.compile(r"(?:^|,)port=(\d+)(?:,|$)")
_KINDS = {Sort.EBS: Kind.EBS, Sort.INSTANCE_STORE: Kind.INSTANCE_STORE}  # of a mount all on such disks
_REAL = frozenset({"xfs", "ext4", "ext3", "ext2", "btrfs", "f2fs", "zfs", "nfs4", "nfs"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A mount and what it is on."""

    stack: Stack
    kind: Kind
    file_system_id: str = ""  # EFS: fs-...
    root: bool | None = False  # whether the system's own disk is among its disks; None if / is on none

    @property
    def mount_point(self) -> Path:
        return self.stack.mount.mount_point

    @property
    def volume_ids(self) -> tuple[str, ...]:
        """EBS volumes known so far, without repetition."""
        return tuple(dict.fromkeys(disk.volume_id for disk in self.stack.disks if disk.volume_id))

    @property
    def name(self) -> str:
        """A unique name: volume ids, a file system's id, or the mount's source."""
        return self.file_system_id or " ".join(self.volume_ids) or self.stack.mount.source


def identify(path: Path, roots: Roots) -> Identity:
    """The mount that ``path`` is on. Raises PlanError if there is none."""
    mounts = mounts_of(roots)
    mount = innermost(path, mounts)
    if mount is None:
        raise PlanError(f"{path}: on no mount; mount the volume there first")
    return _identity(mount, roots, root_disks(mounts, roots))


def candidates(roots: Roots) -> list[Identity]:
    """Mounts that could be an arm: writable file systems on disks or NFS, each device once.

    Includes the system's own mounts, marked: an arm there is possible but a bad idea.
    """
    mounts = mounts_of(roots)
    own = root_disks(mounts, roots)
    topmost = {mount.mount_point: mount for mount in mounts}  # the last one at a mount point hides the others
    whole: dict[str, Mount] = {}
    for mount in topmost.values():
        if mount.filesystem in _REAL and not mount.read_only:
            other = whole.setdefault(mount.device_number, mount)
            if len(mount.root) < len(other.root):  # bind mounts show part of a file system
                whole[mount.device_number] = mount
    return [_identity(mount, roots, own) for mount in whole.values()]


def root_disks(mounts: Sequence[Mount], roots: Roots) -> frozenset[str]:
    """Disks that the system runs from; empty if / is an overlay (a container)."""
    root = [mount for mount in mounts if mount.mount_point == Path("/")]
    return stack_of(root[-1], roots).names if root else frozenset()


def with_mapping(identity: Identity, mapping: dict[str, str]) -> Identity:
    """Fill in volume ids of Xen disks from the instance's mapping (device name to volume id)."""
    disks = tuple(_mapped(disk, mapping) for disk in identity.stack.disks)
    changed = replace(identity, stack=replace(identity.stack, disks=disks))
    is_ebs = identity.kind is Kind.EBS or (bool(disks) and all(disk.sort is Sort.EBS for disk in disks))
    return replace(changed, kind=Kind.EBS) if is_ebs else changed


def with_known(identity: Identity, words: Sequence[str]) -> Identity:
    """Add ids of volumes or a file system known to a mount's maker, if the machine shows none.

    In a rehearsal other devices stand for volumes, and no serial shows them.
    """
    volumes = [word for word in words if word.startswith("vol-")]
    systems = [word for word in words if word.startswith("fs-")]
    if systems and not identity.file_system_id:
        return replace(identity, kind=Kind.EFS, file_system_id=systems[0])
    if not volumes or identity.volume_ids:
        return identity
    disks = tuple(
        replace(disk, sort=Sort.EBS, volume_id=volume, known_by="made for this arm")
        for disk, volume in zip(identity.stack.disks, volumes, strict=False)
    )
    # in a rehearsal, the device's own layers are no property of the volume that it stands for
    stack = replace(identity.stack, disks=disks, beneath=frozenset(), caches=(), lowest=())
    return replace(
        identity, kind=Kind.EBS, stack=stack, root=False if identity.stack.beneath else identity.root
    )


def _mapped(disk: Disk, mapping: dict[str, str]) -> Disk:
    if disk.volume_id or disk.sort is not Sort.XEN:
        return disk
    wanted = {_letters(name) for name in (disk.name, disk.partition) if name}
    for device, volume in mapping.items():
        if _letters(device.removeprefix("/dev/")) in wanted:
            return replace(
                disk, sort=Sort.EBS, volume_id=volume, known_by=f"block-device mapping of {device}"
            )
    return disk


def _letters(name: str) -> str:
    """Letters of a Xen device name: the kernel has xvdf for EC2's sdf."""
    return re.sub(r"^(?:xvd|sd|hd)", "", name)


def _identity(mount: Mount, roots: Roots, own: frozenset[str]) -> Identity:
    stack = stack_of(mount, roots)
    file_system = _efs(mount, roots)
    kinds = {_KINDS.get(disk.sort, Kind.DIRECTORY) for disk in stack.disks}
    of_disks = kinds.pop() if len(kinds) == 1 else Kind.DIRECTORY
    # an address, on EC2: probably a mount target's
    by_address = mount.filesystem.startswith("nfs") and _ADDRESS.match(mount.source) is not None
    kind = Kind.EFS if file_system or (by_address and roots.on_ec2()) else of_disks
    root = bool((stack.names | stack.beneath) & own) if own else None
    return Identity(stack=stack, kind=kind, file_system_id=file_system, root=root)


def _efs(mount: Mount, roots: Roots) -> str:
    if not mount.filesystem.startswith("nfs"):
        return ""
    named = _EFS_SOURCE.fullmatch(mount.source)
    if named:
        return named[1]
    port = _PORT.search(mount.super_options)
    if port is None or not mount.source.startswith("127.0.0.1:"):
        return ""
    states = sorted((roots.run / "efs").glob(f"fs-*.{port[1]}"))  # the efs-utils tunnel with this port
    match = _EFS_STATE.fullmatch(states[0].name) if states else None
    return match[1] if match else ""
