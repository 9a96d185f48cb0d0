"""Whether this machine can stripe emulated volumes in the way that a plan asks for."""

import shutil
from pathlib import Path

from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.model import VolumeSpec

# What shows that the kernel has it: a file, and a word in it.
_IN_KERNEL = {
    "btrfs": (Path("/proc/filesystems"), "btrfs"),
    "md": (Path("/proc/mdstat"), "Personalities"),
    "lvm": (Path("/proc/devices"), "device-mapper"),
}


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
