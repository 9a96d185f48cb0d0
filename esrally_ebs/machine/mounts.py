"""What the kernel knows of a mount: from a path to its file system, device, readahead and scheduler."""

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

from esrally_ebs.errors import SetupError
from esrally_ebs.machine.disks import disk_of, innermost, mounts_of, scheduler_of, stack_of
from esrally_ebs.machine.kernel_trees import Roots, text
from esrally_ebs.machine.procfs import Mount
from esrally_ebs.model import Kind, Volume, VolumeSpec
from esrally_ebs.units import KIB

_DEVICES = Path("/sys/dev/block")
_WRITTEN = ("elasticsearch", "fio")  # folders that nodes and jobs write on our volumes


def mounts() -> list[Mount]:
    """All mounts that this process sees, in the kernel's order."""
    return mounts_of(Roots())


def mount_at(path: Path) -> Mount | None:
    """The mount with exactly this mount point, the topmost of several; None if there is none.

    Directories on the path may be links, as in /var/run; ``path`` itself must not.
    """
    point = Path(os.path.realpath(path.parent), path.name)
    stacked = [mount for mount in mounts() if mount.mount_point == point]
    return stacked[-1] if stacked else None


def mount_holding(path: Path) -> Mount:
    """The mount that ``path`` is on; it need not exist."""
    mount = innermost(path.resolve(), mounts())
    if mount is None:
        raise SetupError(f"{path}: on no mount of /proc/self/mountinfo; is /proc mounted?")
    return mount


def remove_mount_point(point: Path) -> None:
    """Remove a mount point that we made, with what we wrote beneath it after others had unmounted its volume.

    Raises OSError if it is still a mount point, or has somebody else's files.
    """
    if not any(mount.mount_point.is_relative_to(point) for mount in mounts()):
        for name in _WRITTEN:
            shutil.rmtree(point / name, ignore_errors=True)
    point.rmdir()


def unmounted(volume: Volume) -> str | None:
    """A message if a volume is no longer at its mount point; None if it is.

    Misses volumes without a block device (EFS, btrfs) on another file system of the same kind.
    """
    mount = mount_holding(volume.mount)
    number = volume.device_number or mount.device_number
    if not volume.filesystem or (number, volume.filesystem) == (mount.device_number, mount.filesystem):
        return None
    return (
        f"arm {volume.spec.name}: its volume is no longer mounted at {volume.mount}, which lies on "
        f"{mount.source} ({mount.filesystem}) now; mount it again and start anew"
    )


def users_of(mount_point: Path) -> list[str]:
    """Processes with a file, mapping or working directory on that file system: "java (pid 123)" each.

    Includes processes in containers, whatever the mount's path there; those of other users only for root.
    """
    return [f"{text(Path(f'/proc/{pid}/comm'))} (pid {pid})" for pid in pids_using(mount_point)]


def pids_using(mount_point: Path) -> list[int]:
    """Pids of those processes."""
    device = mount_point.stat().st_dev
    mapped = f" {os.major(device):02x}:{os.minor(device):02x} "
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _uses(entry, device, mapped)
    ]


def _uses(process: Path, device: int, mapped: str) -> bool:
    with contextlib.suppress(OSError):  # it has ended, or may not be read
        if any(
            _is_on(link, device) for link in (process / "cwd", process / "root", *(process / "fd").iterdir())
        ):
            return True
        return mapped in (process / "maps").read_text(errors="replace")
    return False


def _is_on(link: Path, device: int) -> bool:
    with contextlib.suppress(OSError):  # closed meanwhile
        return link.stat().st_dev == device
    return False


def describe(
    spec: VolumeSpec, where: Path, kind: Kind, *, identity: str = "", control: Path | None = None
) -> Volume:
    """The Volume at ``where``, with everything that the kernel knows of it."""
    mount = mount_holding(where)
    facts: dict[str, Any] = {}
    link = _DEVICES / mount.device_number
    if link.exists():  # not for tmpfs, overlay and NFS: they have no device
        node = link.resolve()  # the partition's, if it is one
        disk, lowest = disk_of(node), stack_of(mount, Roots()).lowest
        readahead = text(disk / "queue" / "read_ahead_kb")
        facts = {
            "device": node.name,
            "device_number": mount.device_number,
            "lowest": () if lowest == (disk.name,) else lowest,
            "readahead_bytes": int(readahead) * KIB if readahead else None,
            "scheduler": scheduler_of(disk) or None,
        }
    return Volume(
        spec=spec,
        kind=kind,
        mount=where,
        filesystem=mount.filesystem,
        mount_options=",".join(filter(None, (mount.options, mount.super_options))),
        identity=identity,
        control=control,
        **facts,
    )
