"""The page cache: system calls that Python lacks, and how much of a directory is in it."""

import ctypes
import errno
import mmap
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from esrally_ebs.errors import SetupError
from esrally_ebs.machine.mounts import mount_holding

PAGE_BYTES = mmap.PAGESIZE
FileId = tuple[int, int]  # st_dev, st_ino

# Numbers of the generic system call table (the same on every architecture since 5.1) and linux/mman.h.
_PROCESS_MADVISE = 440
_CACHESTAT = 451
_MADV_PAGEOUT = 21
_CHUNK = 1 << 30  # one call may not advise 2 GiB or more
_MAX_OPEN = 512  # files and folders; of 1,024 descriptors that a process has by default
_TICK_NS = 2_000_000_000  # times of change are whole seconds on some file systems (ext3, NFS servers)

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


def page_out(process: int, start: int, length: int) -> None:
    """Page out a range of the process behind a pidfd, but for what is unmapped or locked.

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
            return
        advised += done


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
    """What the page cache holds of the files under ``directory``.

    Raises SetupError when the directory cannot be read.
    """
    with Files(directory) as files:
        return files.residency()


# By folder: its device and inode and when it changed last, and what is in it: not read again while it is so.
_listed: dict[str, tuple[tuple[int, int, int] | None, list[tuple[str, bool]]]] = {}
_kept: set[int] = set()  # descriptors of all that are counted at once, one directory in each thread


class Files:
    """The files under a directory, kept open from one count of their pages to the next, as far as they may.

    What is open stays in memory when names and inodes are dropped. To look it all up again takes six reads
    of the volume, one after the other, and that right before the request that is to find it idle.
    """

    def __init__(self, directory: Path) -> None:
        """Raises SetupError when there is none."""
        # An overlay's files have their pages in the layers below, which only mincore(2) sees.
        self._pages = pages_in_core if _is_on_overlay(directory) else cached_pages
        self._directory = directory
        # by descriptor, or by path where it is not kept open, when each changed last (ns)
        self._folders: dict[int | str, int] = {}
        self._files: dict[str, int] = {}
        self._closed_files: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        own = [one for one in (*self._folders, *self._files.values()) if isinstance(one, int)]
        _kept.difference_update(own)
        for descriptor in own:
            os.close(descriptor)
        self._folders, self._files, self._closed_files = {}, {}, []

    def residency(self) -> Residency:
        """What the page cache holds now: by cachestat(2) where the kernel has it.

        Raises SetupError when the directory cannot be read.
        """
        if not self._folders or any(_changed_ns(one) != at for one, at in self._folders.items()):
            self.__exit__()
            self._open_below(str(self._directory))
        resident: dict[str, FileId] = {}
        resident_bytes = total_bytes = 0
        for path, descriptor in self._opened():
            facts = os.fstat(descriptor)
            if not facts.st_size:
                continue
            total_bytes += facts.st_size
            if count := self._pages(descriptor, facts.st_size):
                resident[path] = (facts.st_dev, facts.st_ino)
                # The last page counts only as far as the file goes.
                resident_bytes += min(count * PAGE_BYTES, facts.st_size)
        return Residency(total_bytes=total_bytes, resident=resident, resident_bytes=resident_bytes)

    def _open_below(self, folder: str) -> None:
        """Paths are text: a ``Path`` takes as long as a file's facts."""
        descriptor = _open(folder, os.O_PATH | os.O_DIRECTORY)  # opened to be read, XFS would read it ahead
        if descriptor is None:
            return
        facts = os.fstat(descriptor)
        was = facts.st_dev, facts.st_ino, facts.st_ctime_ns
        is_past = facts.st_ctime_ns < time.time_ns() - _TICK_NS  # else what comes next may have the same time
        changed_ns = facts.st_ctime_ns if is_past else -1
        if len(_kept) < _MAX_OPEN:
            _kept.add(descriptor)
            self._folders[descriptor] = changed_ns
        else:
            os.close(descriptor)
            self._folders[folder] = changed_ns
        listed, names = _listed.get(folder, (None, []))
        if listed != was or not is_past:
            names = _names_in(folder)
            _listed[folder] = was if is_past else None, names
        for name, is_folder in names:
            path = f"{folder}/{name}"
            if is_folder:
                self._open_below(path)
            else:
                self._open_file(path)

    def _open_file(self, path: str) -> None:
        if len(_kept) >= _MAX_OPEN:
            self._closed_files.append(path)
        elif (file := _open(path)) is not None:
            if stat.S_ISREG(os.fstat(file).st_mode):
                _kept.add(file)
                self._files[path] = file
            else:
                os.close(file)

    def _opened(self) -> Iterator[tuple[str, int]]:
        yield from self._files.items()
        for path in self._closed_files:
            with opened(path) as descriptor:
                if descriptor is not None and stat.S_ISREG(os.fstat(descriptor).st_mode):
                    yield path, descriptor


def _changed_ns(folder: int | str) -> int:
    """When a folder changed last (ns); 0 for one that is gone."""
    try:
        return os.stat(folder).st_ctime_ns  # noqa: PTH116 - or a descriptor
    except OSError:
        return 0


def _names_in(folder: str) -> list[tuple[str, bool]]:
    """The names in a folder, each with whether it is a folder itself; none where it cannot be opened."""
    with opened(folder) as descriptor:
        if descriptor is None:
            return []
        with os.scandir(descriptor) as entries:
            return [(one.name, one.is_dir(follow_symlinks=False)) for one in entries]


def _is_on_overlay(directory: Path) -> bool:
    if not directory.is_dir():
        raise SetupError(f"{directory}: not a directory; give the index's directory on the arm's mount")
    if os.major(directory.stat().st_dev):  # a block device's; what mounts there are takes a while to read
        return False
    return mount_holding(directory).filesystem == "overlay"


@contextmanager
def opened(path: str | Path) -> Iterator[int | None]:
    """A read-only descriptor of ``path``, or None for what is no longer there or cannot hold pages."""
    descriptor = _open(path)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _open(path: str | Path, flags: int = os.O_NONBLOCK) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags)
    except (FileNotFoundError, NotADirectoryError):  # a merge removed it meanwhile
        return None
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):  # a symbolic link, a socket
            raise SetupError(f"{path}: {error.strerror}; run as the owner of the index or as root") from error
        return None
