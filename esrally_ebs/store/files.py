"""Files that are complete or absent: atomic replacement, lines in one write, locks that die with holders.

A session folder may be somebody else's: nothing here follows links, blocks on pipes, or reads without limit.
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
_PATIENCE_S = 60.0  # for a lock; merging parts takes longest
_POLL_S = 0.02


def cannot_write(path: Path, error: OSError) -> NoReturn:
    """Raise SetupError for a failed write, in one line with the next step."""
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

    Raises OSError; FormatError for a link, pipe, device, directory or larger file.
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
    """Make a directory, or check that an existing one is no link."""
    try:
        path.mkdir(exist_ok=True)
        if not stat.S_ISDIR(path.lstat().st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "a link, not a directory")
    except OSError as error:
        cannot_write(path, error)


@contextmanager
def aside(path: Path, *, sync: bool = False) -> Iterator[BinaryIO]:
    """A new file that replaces ``path`` if the block succeeds, else disappears. Raises OSError.

    Its name begins with a dot and ends in ``.tmp``, so that no reader takes it for data. ``sync`` forces its
    data to disk before the renaming: else a power cut could leave a name without data. Not for large files
    during measurements: flushing disturbs the disk, which may be the measured one.
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
    """Like ``aside``, for the pack's own files: failures raise SetupError."""
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
    """Append a line in one write, so that lines of several processes never mix."""
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
    if written < len(data):  # a regular file takes less only if the disk is full
        cannot_write(path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


def _encoded(text: str) -> bytes:
    # bytes of paths that are not UTF-8 become \udcXX, and JSON restores them
    return text.encode("utf-8", "backslashreplace")


class _Stopped(Exception):
    """The first file that could not be copied."""


def copy_tree(
    source: Path, target: Path, *, without: str = "", go_on: Callable[[], object] = lambda: None
) -> None:
    """Copy a folder except files named ``without``. Raises OSError for the first failure.

    ``go_on`` is called before each file, and may raise an error of ours to stop. On a full disk or dead
    mount, ``shutil.copytree`` alone would try all other files, and report all failures in one error.
    """

    def copy(path: str, to: str) -> str:
        go_on()
        try:
            return shutil.copy2(path, to, follow_symlinks=False)
        except OSError as error:
            raise _Stopped(error) from error

    left_out = shutil.ignore_patterns(without)  # with an empty name, nothing
    try:
        shutil.copytree(
            source, target, symlinks=True, ignore=left_out, copy_function=copy, dirs_exist_ok=True
        )
    except _Stopped as stopped:
        raise stopped.args[0] from None
    except shutil.Error as error:  # for folders
        raise OSError(error.args[0][0][2]) from None


def sync_folder(folder: Path, synced: dict[str, int], *, of: int | None = None) -> None:
    """Force all files below a folder to disk, where they survive a power cut.

    ``synced`` has files of earlier calls, by path and change time, which are skipped. If ``of`` is given,
    other users' folders and files are skipped, too.
    """
    for place, folders, names in os.walk(folder):
        if of not in (None, _owner(place)):
            folders.clear()
            continue
        for path in (*(f"{place}/{name}" for name in names), place):  # a directory's sync saves its names
            with suppress(OSError):  # gone meanwhile; errors of the disk are for the writer to report
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
    # checked before opening: opening a device may start something, such as a watchdog
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
    """Hold the folder's lock; the kernel releases it when the holder dies.

    Without a lock if the file system has none (a folder copied to a network share). Raises SetupError if
    another process holds it for too long: any reader of the folder may.
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
