"""The page cache: system calls that Python lacks, and how much of a directory is in it."""

import ctypes
import errno
import mmap
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from esrally_ebs.errors import SetupError
from esrally_ebs.machine.mounts import mount_holding

PAGE_BYTES = mmap.PAGESIZE
FileId = tuple[int, int]  # st_dev, st_ino

# Numbers of the generic system call table (the same on every architecture since 5.1) and linux/mman.h.
_PROCESS_MADVISE = 440
_CACHESTAT = 451
_MADV_PAGEOUT = 21
_CHUNK = 1 << 30  # one call may not advise 2 GiB or more

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _CachestatRange(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Cachestat(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recent")
    )


def cached_pages(descriptor: int, size: int) -> int:
    """Pages of a file of ``size`` bytes in the page cache: cachestat(2), or mincore(2) before Linux 6.5."""
    counts = _Cachestat()
    window = _CachestatRange(0, size)
    if _libc.syscall(_CACHESTAT, descriptor, ctypes.byref(window), ctypes.byref(counts), 0) == 0:
        return int(counts.cached)
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EOPNOTSUPP):
        return pages_in_core(descriptor, size)
    raise SetupError(f"cachestat: {os.strerror(number)}; run as the owner of the index or as root")


def pages_in_core(descriptor: int, size: int) -> int:
    """The same by mincore(2), which works on every kernel but maps the file first."""
    address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if address == ctypes.c_void_p(-1).value:
        raise SetupError(
            f"mmap: {os.strerror(ctypes.get_errno())}; raise the limit on address space (ulimit -v)"
        )
    try:
        pages = ctypes.create_string_buffer(-(-size // PAGE_BYTES))
        if _libc.mincore(address, size, pages) != 0:
            raise SetupError(
                f"mincore: {os.strerror(ctypes.get_errno())}; run as the owner of the index or as root"
            )
        # Only the lowest bit of each byte is defined.
        raw = pages.raw
        return sum(raw.count(byte) for byte in set(raw) if byte & 1)
    finally:
        _libc.munmap(address, size)


def page_out(process: int, start: int, length: int) -> int:
    """Page out a range of the process behind a pidfd; bytes advised: fewer where it is unmapped or locked.

    Raises ProcessLookupError when the process is gone, SetupError when right or kernel are missing.
    """
    advised = 0
    while advised < length:
        part = _Iovec(start + advised, min(length - advised, _CHUNK))
        done = _libc.syscall(
            _PROCESS_MADVISE, process, ctypes.byref(part), ctypes.c_size_t(1), _MADV_PAGEOUT, ctypes.c_uint(0)
        )
        if done <= 0:
            _refused(ctypes.get_errno())
            break
        advised += done
    return advised


def _refused(number: int) -> None:
    """Raise for what concerns the whole process; what is wrong with one range shows in the residency."""
    if number == errno.ESRCH:
        raise ProcessLookupError(number, os.strerror(number))
    if number == errno.ENOSYS:
        raise SetupError("the kernel has no process_madvise(2); use Linux 5.10 or newer, or cache:warm")
    if number in (errno.EPERM, errno.EACCES):
        raise SetupError("process_madvise: not permitted; run as root with CAP_SYS_NICE and CAP_SYS_PTRACE")


def sync_filesystem(descriptor: int) -> None:
    """Write all dirty pages of the file system that holds an open file (syncfs(2)); raises OSError."""
    if _libc.syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@dataclass(frozen=True, slots=True, kw_only=True)
class Residency:
    """How much of a directory's files is in the page cache."""

    total_bytes: int
    resident: Mapping[str, FileId]  # by their paths, those of which a page is
    resident_bytes: int

    @property
    def fraction(self) -> float:
        """0.0 (cold) to 1.0; an empty directory is cold."""
        return self.resident_bytes / self.total_bytes if self.total_bytes else 0.0


def residency(directory: Path) -> Residency:
    """What the page cache holds of the files under ``directory``: by cachestat(2) where the kernel has it.

    An overlay's files have their pages in the layers below, which only mincore(2) sees. Raises SetupError
    when the directory cannot be read.
    """
    pages = pages_in_core if _is_on_overlay(directory) else cached_pages
    resident: dict[str, FileId] = {}
    resident_bytes = total_bytes = 0
    for path, descriptor, facts in _open_files(directory):
        total_bytes += facts.st_size
        if count := pages(descriptor, facts.st_size):
            resident[path] = (facts.st_dev, facts.st_ino)
            # The last page counts only as far as the file goes.
            resident_bytes += min(count * PAGE_BYTES, facts.st_size)
    return Residency(total_bytes=total_bytes, resident=resident, resident_bytes=resident_bytes)


def _is_on_overlay(directory: Path) -> bool:
    if not directory.is_dir():
        raise SetupError(f"{directory}: not a directory; give the index's directory on the arm's mount")
    if os.major(directory.stat().st_dev):  # a block device's; what mounts there are takes a while to read
        return False
    return mount_holding(directory).filesystem == "overlay"


def _open_files(directory: Path) -> Iterator[tuple[str, int, os.stat_result]]:
    """Path, descriptor (closed when the next is asked for) and facts of each regular file with content.

    Paths are text: a ``Path`` takes as long as a file's facts, and this is done before each cold request.
    """
    for folder, _, names in os.walk(directory):
        for path in (f"{folder}/{name}" for name in names):
            with opened(path) as descriptor:
                if descriptor is None:
                    continue
                facts = os.fstat(descriptor)
                if stat.S_ISREG(facts.st_mode) and facts.st_size:
                    yield path, descriptor, facts


@contextmanager
def opened(path: str | Path) -> Iterator[int | None]:
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
