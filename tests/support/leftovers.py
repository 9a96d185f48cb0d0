"""Finds what emulated volumes left behind anywhere on the machine that provably is ours."""

from dataclasses import dataclass
from pathlib import Path

from esrally_ebs.machine.mounts import mounts
from esrally_ebs.machine.resources import run_dir
from esrally_ebs.volumes.emulated import release
from esrally_ebs.volumes.emulated.daemon.process import MOUNT_SOURCE
from esrally_ebs.volumes.record import RECORD_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Something of ours on this machine; ``release.detach(directory)`` removes it."""

    directory: Path  # the directory of the volume that it belongs to
    text: str


def leftovers() -> tuple[Leftover, ...]:
    """All that emulated volumes of this run directory have on the machine, also those in use now.

    The caller knows which are in use. Volumes of another run directory (``$ESRALLY_EBS_RUN``) are not seen.
    """
    root = run_dir()
    remains = [(path.parent, f"volume {path.parent}") for path in sorted(root.glob(f"*/*/{RECORD_NAME}"))]
    remains += [
        (mount.mount_point.parent, f"mount {mount.mount_point}")
        for mount in mounts()
        if mount.source == MOUNT_SOURCE and mount.filesystem == "fuse"
    ]
    remains += [(disk.parent, f"loop device /dev/{name}") for name, disk in release._loops()]
    daemons = release._daemons(lambda where: where.is_relative_to(root))
    remains += [(where, f"daemon pid {process.pid}") for process, where in daemons]
    remains += [
        (root / image.parent.name / image.stem, f"image {image}")
        for images in release.image_roots()
        for image in sorted(images.glob("*/*.img"))
    ]
    return tuple(
        Leftover(directory=_whole(where), text=text) for where, text in remains if where.is_relative_to(root)
    )


def _whole(directory: Path) -> Path:
    """The directory of the volume that this one is striped into, or this one."""
    return directory.parent if (directory.parent / RECORD_NAME).exists() else directory
