"""Files that are whole or absent: atomic replacement, one-write lines, a lock that dies with its holder.

A session folder may be somebody else's, so nothing here follows a link, waits for a pipe, or reads without
bounds.
"""

import errno
import fcntl
import os
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, NoReturn

from esrally_ebs.errors import FormatError, SetupError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_PATIENCE_S = 60.0  # for a lock; merging parts takes the longest
_POLL_S = 0.02


def cannot_write(path: Path, error: OSError) -> NoReturn:
    """Turn a failed write into one line that says what to do."""
    if error.errno in _FULL:
        raise SetupError(
            f"{path}: the disk is full; free some space or set ESRALLY_EBS_HOME to another disk "
            "(what was written before is readable)"
        ) from error
    raise SetupError(
        f"{path}: cannot be written: {error.strerror or error}; check the folder's rights"
    ) from error


def open_file(path: Path, max_bytes: int) -> BufferedReader:
    """Open a regular file of at most ``max_bytes`` for reading.

    Raises OSError, and FormatError for a link, a pipe, a device, a directory or a larger file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise FormatError(f"{path}: a link; put the file itself in its place") from error
        if error.errno == errno.ENXIO:
            raise FormatError(f"{path}: not a file; remove it") from error
        raise
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_size <= max_bytes:
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISREG(status.st_mode):
        raise FormatError(f"{path}: {status.st_size:,} bytes; a session writes at most {max_bytes:,} there")
    raise FormatError(f"{path}: not a file; remove it")


def make_directory(path: Path) -> None:
    """Make a directory, or see that what is there is one and no link to one."""
    try:
        path.mkdir(exist_ok=True)
        if not stat.S_ISDIR(path.lstat().st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "a link, not a directory")
    except OSError as error:
        cannot_write(path, error)


@contextmanager
def aside(path: Path, *, sync: bool = False) -> Iterator[BinaryIO]:
    """A new file that takes the place of ``path`` when the block ends well, or vanishes. Raises OSError.

    Its name starts with a dot and ends in ``.tmp``, so no reader takes it for data. ``sync`` also forces it
    to the disk before it takes its name: a power cut would leave a name without data. Not for large files
    while something is measured: a flush disturbs the disk, which may be the one under measurement.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with temporary.open("x+b") as file:
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing(path: Path, *, sync: bool = False) -> Iterator[BinaryIO]:
    """As ``aside``, for files of the pack's own: what fails is a SetupError."""
    try:
        with aside(path, sync=sync) as file:
            yield file
    except OSError as error:
        cannot_write(path, error)


def write_text(path: Path, text: str, *, sync: bool = False) -> None:
    """Write a whole text file atomically."""
    with replacing(path, sync=sync) as file:
        file.write(_encoded(text))


def append_line(path: Path, line: str) -> None:
    """Append one line in one write, so that lines of several processes never mix."""
    data = _encoded(line + "\n")
    try:
        descriptor = os.open(
            path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644
        )
        try:
            written = os.write(descriptor, data)
        finally:
            os.close(descriptor)
    except OSError as error:
        cannot_write(path, error)
    if written < len(data):  # a regular file takes less only when the disk is full
        cannot_write(path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


def _encoded(text: str) -> bytes:
    # bytes of a path that are no UTF-8 become \udcXX, which JSON reads back as they were
    return text.encode("utf-8", "backslashreplace")


class _Stopped(Exception):
    """The first file that could not be copied."""


def copy_tree(
    source: Path, target: Path, *, without: str = "", go_on: Callable[[], object] = lambda: None
) -> None:
    """Copy a folder with all in it but the files called ``without``; OSError for the first that fails.

    ``go_on`` is called before each file, and may raise an error of ours to end it. ``shutil.copytree`` by
    itself would try all others on a full disk or a dead mount, too, and say all that in one error.
    """

    def copy(path: str, to: str) -> str:
        go_on()
        try:
            return shutil.copy2(path, to, follow_symlinks=False)
        except OSError as error:
            raise _Stopped(error) from error

    left_out = shutil.ignore_patterns(without)  # of an empty one nothing
    try:
        shutil.copytree(
            source, target, symlinks=True, ignore=left_out, copy_function=copy, dirs_exist_ok=True
        )
    except _Stopped as stopped:
        raise stopped.args[0] from None
    except shutil.Error as error:  # of folders
        raise OSError(error.args[0][0][2]) from None


def sync_folder(folder: Path, synced: dict[str, int], *, of: int | None = None) -> None:
    """Force all files below a folder to the disk, where a power cut leaves them.

    ``synced`` is what earlier calls have forced, by path and time of change; only the rest is. Folders and
    files of others than the user ``of`` are left alone, where it names one.
    """
    for place, folders, names in os.walk(folder):
        if of not in (None, _owner(place)):
            folders.clear()
            continue
        for path in (*(f"{place}/{name}" for name in names), place):  # names are on disk with their directory
            with suppress(OSError):  # gone meanwhile; what a disk refuses is its writer's to say
                changed_ns = os.lstat(path).st_ctime_ns
                if synced.get(path) != changed_ns:
                    _sync(path, of)
                    synced[path] = changed_ns


def _owner(path: str) -> int | None:
    try:
        return os.lstat(path).st_uid
    except OSError:
        return None


def _sync(path: str, of: int | None) -> None:
    # looked at before it is opened: to open a device may start something, a watchdog for example
    handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        is_file = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
        if not is_file or of not in (None, status.st_uid):
            return
        descriptor = os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    finally:
        os.close(handle)


@contextmanager
def locked(folder: Path, *, shared: bool = False, patience_s: float = _PATIENCE_S) -> Iterator[None]:
    """Hold the folder's lock; the kernel lets go of it when the holder dies.

    A file system without locks (a folder copied to some network share) is read without one. Raises SetupError
    when another process holds it for too long: whoever may read the folder can.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        cannot_write(folder, error)
    try:
        try:
            if not _take_lock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, patience_s):
                raise SetupError(
                    f"{folder}: another process has locked it for {patience_s:g} s; see which with 'lslocks',"
                    " end it, and start again"
                )
        except OSError as error:
            if not shared:
                cannot_write(folder, error)
        yield
    finally:
        os.close(descriptor)


def _take_lock(descriptor: int, how: int, patience_s: float) -> bool:
    until = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(_POLL_S)
        else:
            return True
