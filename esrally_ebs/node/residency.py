"""How much of a directory is in the page cache: a directory in, a Residency out."""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from esrally_ebs.errors import SetupError
from esrally_ebs.machine.mounts import mount_holding
from esrally_ebs.node.page_cache import PAGE_BYTES, cached_pages, pages_in_core


@dataclass(frozen=True, slots=True, kw_only=True)
class Residency:
    """How much of a directory's files is in the page cache."""

    resident_bytes: int
    total_bytes: int

    @property
    def fraction(self) -> float:
        """0.0 (cold) to 1.0; an empty directory is cold."""
        return self.resident_bytes / self.total_bytes if self.total_bytes else 0.0


def residency(directory: Path) -> Residency:
    """What the page cache holds of the files under ``directory``: by cachestat(2) where the kernel has it.

    An overlay's files have their pages in the layers below, which only mincore(2) sees. Raises SetupError
    when the directory cannot be read.
    """
    on_overlay = mount_holding(directory).filesystem == "overlay"
    return _measured(directory, pages_in_core if on_overlay else cached_pages)


def residency_by_mincore(directory: Path) -> Residency:
    """The same by mincore(2) alone: what older kernels use, and the check of the other."""
    return _measured(directory, pages_in_core)


def open_files(directory: Path) -> Iterator[tuple[int, os.stat_result]]:
    """Descriptor (closed when the next one is asked for) and facts of each regular file with content."""
    if not directory.is_dir():
        raise SetupError(f"{directory}: not a directory; give the index's directory on the arm's mount")
    for folder, _, names in os.walk(directory):
        for name in names:
            with opened(Path(folder, name)) as descriptor:
                if descriptor is None:
                    continue
                facts = os.fstat(descriptor)
                if stat.S_ISREG(facts.st_mode) and facts.st_size:
                    yield descriptor, facts


@contextmanager
def opened(path: Path) -> Iterator[int | None]:
    """A read-only descriptor of ``path``, or None for what is no longer there or cannot hold pages."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:  # a merge removed it meanwhile
        yield None
        return
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):  # a symbolic link, a socket
            raise SetupError(f"{path}: {error.strerror}; run as the owner of the index or as root") from error
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _measured(directory: Path, pages: Callable[[int, int], int]) -> Residency:
    resident = total = 0
    for descriptor, facts in open_files(directory):
        # The last page counts only as far as the file goes.
        resident += min(pages(descriptor, facts.st_size) * PAGE_BYTES, facts.st_size)
        total += facts.st_size
    return Residency(resident_bytes=resident, total_bytes=total)
