"""The buckets of one instance in one page of memory that the daemons of all its volumes share.

A file in the session's run directory, mapped by each daemon: level and time of the last filling, by limit.
Each I/O holds a record lock on it for the few microseconds of its admission; the kernel gives a lock back
when its holder dies, and a half-done update is then off by one I/O at most.
"""

import fcntl
import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NUMBER = struct.Struct("d")


class InstancePage:
    """The shared numbers, and the lock around them."""

    def __init__(self, path: Path, initial: list[float]) -> None:
        """Map the page; the first to come makes it, with ``initial``."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        size = len(initial) * _NUMBER.size
        with self._locked():
            if os.fstat(self._descriptor).st_size != size:
                os.truncate(self._descriptor, 0)
                os.pwrite(self._descriptor, b"".join(map(_NUMBER.pack, initial)), 0)
            self._numbers = memoryview(mmap.mmap(self._descriptor, size)).cast("d")

    @contextmanager
    def numbers(self) -> "Iterator[memoryview[float]]":
        """The shared numbers, which nobody else reads or changes meanwhile."""
        with self._locked():
            yield self._numbers

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)
