"""Files that are whole or absent: atomic replacement, one-write lines, a lock that dies with its holder."""

import errno
import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from esrally_ebs.errors import SetupError

_FULL = (errno.ENOSPC, errno.EDQUOT)


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


@contextmanager
def replacing(path: Path, *, sync: bool = False) -> Iterator[Path]:
    """A temporary neighbour of ``path`` that takes its place when the block ends well, or vanishes.

    Its name starts with a dot and ends in ``.tmp``, so no reader takes it for data. ``sync`` also forces it
    to the disk: only for small files, because a flush disturbs the disk that may be under measurement.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        yield temporary
        if sync:
            _fsync(temporary)
        temporary.replace(path)
    except OSError as error:
        cannot_write(path, error)
    finally:
        temporary.unlink(missing_ok=True)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str, *, sync: bool = False) -> None:
    """Write a whole text file atomically."""
    with replacing(path, sync=sync) as temporary:
        temporary.write_text(text, encoding="utf-8")


def append_line(path: Path, line: str) -> None:
    """Append one line in one write, so that lines of several processes never mix."""
    data = line.encode() + b"\n"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            written = os.write(descriptor, data)
        finally:
            os.close(descriptor)
    except OSError as error:
        cannot_write(path, error)
    if written < len(data):  # a regular file takes less only when the disk is full
        cannot_write(path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


@contextmanager
def locked(folder: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold the folder's lock; the kernel lets go of it when the holder dies.

    A file system without locks (a folder copied to some network share) is read without one.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        cannot_write(folder, error)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        except OSError as error:
            if not shared:
                cannot_write(folder, error)
        yield
    finally:
        os.close(descriptor)
