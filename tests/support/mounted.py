"""File systems of a test's own, mounted as root until a ``with`` ends."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from esrally_ebs.machine.processes import run
from esrally_ebs.volumes.emulated.backend import mkfs_btrfs


@contextmanager
def in_memory(point: Path, options: str) -> Iterator[Path]:
    """A tmpfs with these options (``size=20m``)."""
    point.mkdir(exist_ok=True)
    run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", point], timeout_s=10)
    try:
        yield point
    finally:
        run(["umount", point], timeout_s=10)


@contextmanager
def on_loop(image: Path, point: Path, *, mib: int, filesystem: str = "ext4") -> Iterator[Path]:
    """A new file system of that size on a loop device; its image goes, too."""
    point.mkdir(exist_ok=True)
    with image.open("wb") as file:
        file.truncate(mib << 20)
    if filesystem == "btrfs":
        mkfs_btrfs([image])
    else:
        run([f"mkfs.{filesystem}", "-q", image], timeout_s=30)
    run(["mount", "-o", "loop", image, point], timeout_s=30)
    try:
        yield point
    finally:
        run(["umount", point], timeout_s=30)
        image.unlink()
