"""Whether this machine can stripe emulated volumes as a plan asks, and btrfs over devices."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.machine.mounts import mounts
from esrally_ebs.machine.processes import run
from esrally_ebs.model import VolumeSpec

# What shows that the kernel has it: a file, and a word in it.
_IN_KERNEL = {
    "btrfs": (Path("/proc/filesystems"), "btrfs"),
    "md": (Path("/proc/mdstat"), "Personalities"),
    "lvm": (Path("/proc/devices"), "device-mapper"),
}
_FORMAT_S = 120.0
# Its first argument is the number of mounts to take away, the mounts follow, then the command.
_WITHOUT_MOUNTS = 'n=$1; shift; while [ "$n" -gt 0 ]; do umount --lazy "$1"; shift; n=$((n - 1)); done; "$@"'


def check_striping(spec: VolumeSpec) -> None:
    """Raise SetupError when the kernel or its tool is missing, PlanError for what only real volumes can."""
    how = spec.striped_by
    file, word = _IN_KERNEL[how]
    if not file.exists() or word not in file.read_text():
        raise SetupError(
            f"volume '{spec.name}': this kernel has no {how} ({word!r} is not in {file});"
            " use striped_by = 'device'"
        )
    if how != "btrfs":
        raise PlanError(
            f"volume '{spec.name}': emulated volumes are not striped by {how}; use striped_by = 'device' or"
            " 'btrfs', or make the array yourself and give its mount"
        )
    if shutil.which("mkfs.btrfs") is None:
        raise SetupError(f"volume '{spec.name}': mkfs.btrfs is missing; run 'apt-get install btrfs-progs'")


def mkfs_btrfs(devices: Sequence[Path], *options: str) -> None:
    """Make a btrfs over ``devices``. Raises CommandError when it cannot be made.

    mkfs.btrfs asks of every loop device that is mounted what file it is on, and gives up when one of them
    cannot say: one volume anywhere whose daemon was killed would be in the way of all others. It does not
    see such mounts here, in a mount namespace of its own; they stay for those whose they are.
    """
    dead = _mounts_that_lost_their_file()
    formatting: list[str | Path] = ["mkfs.btrfs", "-q", "-f", *options, *devices]
    if dead:
        private = ["unshare", "--mount", "--propagation=private", "sh", "-c", _WITHOUT_MOUNTS, "sh"]
        formatting = [*private, str(len(dead)), *dead, *formatting]
    run(formatting, timeout_s=_FORMAT_S)


def _mounts_that_lost_their_file() -> list[Path]:
    """Mounts of loop devices whose backing file cannot be asked, as behind a killed FUSE server."""
    lost = []
    for mount in mounts():
        loop = Path("/sys/dev/block") / mount.device_number / "loop" / "backing_file"
        try:
            Path(loop.read_text().strip()).stat()
        except FileNotFoundError:
            continue  # no loop device, or its file was deleted: both are no hindrance
        except OSError:
            lost.append(mount.mount_point)
    return lost
