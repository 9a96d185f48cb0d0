"""The page cache: system calls that Python lacks, and how much of a directory is cached."""

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

import numpy as np

from esrally_ebs.errors import SetupError
from esrally_ebs.machine.mounts import mount_holding

PAGE_BYTES = mmap.PAGESIZE
FileId = tuple[int, int]  # st_dev, st_ino

# Numbers of the generic system call table (the same on all architectures since 5.1), and of linux/mman.h.
_PROCESS_MADVISE = 440
_CACHESTAT = 451
_MADV_PAGEOUT = 21
_CHUNK = 1 << 30  # a call must advise less than 2 GiB
_MAX_OPEN = 512  # files and folders; a process has 1,024 descriptors by default
_TICK_NS = 2_000_000_000  # some file systems (ext3, NFS servers) have change times in whole seconds

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]


def cached_pages(descriptor: int, size: int) -> int:
    """Cached pages of a file of ``size`` bytes: cachestat(2), or mincore(2) before Linux 6.5."""
    counts = (ctypes.c_uint64 * 5)()  # the first: cached
    window = (ctypes.c_uint64 * 2)(0, size)  # offset, length
    if _libc.syscall(_CACHESTAT, descriptor, window, counts, 0) == 0:
        return int(counts[0])
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EOPNOTSUPP):
        return pages_in_core(descriptor, size)
    raise SetupError(f"cachestat: {os.strerror(number)}; run as the owner of the index or as root")


def pages_in_core(descriptor: int, size: int) -> int:
    """Likewise by mincore(2), which works on every kernel but maps the file first."""
    pages = np.zeros(-(-size // PAGE_BYTES), np.uint8)
    try:
        with mmap.mmap(descriptor, size, prot=mmap.PROT_READ) as mapped:
            address = np.frombuffer(mapped, np.uint8).ctypes.data
            failed = _libc.mincore(address, size, pages.ctypes.data)
    except ValueError as error:
        raise SetupError(f"mmap: {error}: a file shrank while it was looked at; try again") from error
    except OSError as error:
        raise SetupError(f"mmap: {error}; raise the limit on address space (ulimit -v)") from error
    if failed:
        raise SetupError(
            f"mincore: {os.strerror(ctypes.get_errno())}; run as the owner of the index or as root"
        )
    return int((pages & 1).sum())  # the other bits are not defined


def page_out(process: int, start: int, length: int) -> None:
    """Page out a range of the process behind a pidfd, except unmapped or locked pages.

    Raises ProcessLookupError if the process is gone, SetupError if a right or the kernel's support is
    missing.
    """
    advised = 0
    while advised < length:
        part = (ctypes.c_size_t * 2)(start + advised, min(length - advised, _CHUNK))  # an iovec
        done = _libc.syscall(
            _PROCESS_MADVISE, process, part, ctypes.c_size_t(1), _MADV_PAGEOUT, ctypes.c_uint(0)
        )
        if done <= 0:
            _refused(ctypes.get_errno())
            return
        advised += done


def _refused(number: int) -> None:
    """Raise for errors of the whole process; failures of one range show in the residency."""
    if number == errno.ESRCH:
        raise ProcessLookupError(number, os.strerror(number))
    if number == errno.ENOSYS:
        raise SetupError("the kernel has no process_madvise(2); use Linux 5.10 or newer, or cache:warm")
    if number in (errno.EPERM, errno.EACCES):
        raise SetupError("process_madvise: not permitted; run as root with CAP_SYS_NICE and CAP_SYS_PTRACE")


def sync_filesystem(descriptor: int) -> None:
    """Write all dirty pages of an open file's file system (syncfs(2)). Raises OSError."""
    if _libc.syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@dataclass(frozen=True, slots=True, kw_only=True)
class Residency:
    """How much of a directory's files is in the page cache."""

    total_bytes: int
    resident: Mapping[str, FileId]  # files with a cached page, by path
    resident_bytes: int

    @property
    def fraction(self) -> float:
        """0.0 (cold) to 1.0; an empty directory is cold."""
        return self.resident_bytes / self.total_bytes if self.total_bytes else 0.0


def residency(directory: Path) -> Residency:
    """Page cache contents of the files under ``directory``.

    Raises SetupError if the directory cannot be read.
    """
    with Files(directory) as files:
        return files.residency()


# By folder: device, inode and change time, and its contents, which are not read again while these are the
# same.
_listed: dict[str, tuple[tuple[int, int, int] | None, list[tuple[str, bool]]]] = {}
_kept: set[int] = set()  # open descriptors of all directories being counted, one per thread


class Files:
    """Files under a directory, kept open between counts of their pages, as far as descriptors allow.

    Open files stay in memory when names and inodes are dropped. Looking all of them up again would take six
    reads of the volume, one after another, right before the request that must find it idle.
    """

    def __init__(self, directory: Path) -> None:
        """Raises SetupError if there is no such directory."""
        # An overlay's pages belong to the layers below, which only mincore(2) sees.
        self._pages = pages_in_core if _is_on_overlay(directory) else cached_pages
        self._directory = directory
        # change time (ns) by descriptor, or by path if not kept open
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
        """Current page cache contents, by cachestat(2) if the kernel has it.

        Raises SetupError if the directory cannot be read.
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
                # The last page counts up to the file's end.
                resident_bytes += min(count * PAGE_BYTES, facts.st_size)
        return Residency(total_bytes=total_bytes, resident=resident, resident_bytes=resident_bytes)

    def _open_below(self, folder: str) -> None:
        """Open a folder's files, recursively. Paths are text: making a ``Path`` takes as long as fstat."""
        descriptor = _open(folder, os.O_PATH | os.O_DIRECTORY)  # to be read, XFS would read it ahead
        if descriptor is None:
            return
        facts = os.fstat(descriptor)
        was = facts.st_dev, facts.st_ino, facts.st_ctime_ns
        is_past = facts.st_ctime_ns < time.time_ns() - _TICK_NS  # else a later change may have the same time
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
    """A folder's last change (ns); 0 if it is gone."""
    try:
        return os.stat(folder).st_ctime_ns  # noqa: PTH116 - or a descriptor
    except OSError:
        return 0


def _names_in(folder: str) -> list[tuple[str, bool]]:
    """Names in a folder, and whether each is a folder; empty if it cannot be opened."""
    with opened(folder) as descriptor:
        if descriptor is None:
            return []
        with os.scandir(descriptor) as entries:
            return [(one.name, one.is_dir(follow_symlinks=False)) for one in entries]


def _is_on_overlay(directory: Path) -> bool:
    if not directory.is_dir():
        raise SetupError(f"{directory}: not a directory; give the index's directory on the arm's mount")
    if os.major(directory.stat().st_dev):  # a block device, not overlay; parsing the mounts takes a while
        return False
    return mount_holding(directory).filesystem == "overlay"


@contextmanager
def opened(path: str | Path) -> Iterator[int | None]:
    """A read-only descriptor of ``path``; None if it is gone or cannot have pages."""
    descriptor = _open(path)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _open(path: str | Path, flags: int = os.O_NONBLOCK) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags)
    except (FileNotFoundError, NotADirectoryError):  # removed by a merge meanwhile
        return None
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):  # a symbolic link, a socket
            raise SetupError(f"{path}: {error.strerror}; run as the owner of the index or as root") from error
        return None
