"""Keeps the last I/Os of a volume in memory, and writes them out on request."""

import mmap
import struct
import time
from pathlib import Path

CAPACITY = 1 << 20  # I/Os; 40 MiB, of which only what is used takes memory
# Arrival and due time of the answer (monotonic, s); wait for a limit and time of the path (s); offset, bytes,
# whether it was a write.
RECORD = struct.Struct("<ddffQII")
HEAD = struct.Struct("<Qd")  # number of I/Os ever; what to add to monotonic times to get epoch seconds


class TraceRing:
    """A ring of the last ``CAPACITY`` I/Os in the order of their answers."""

    def __init__(self) -> None:
        self._ring = mmap.mmap(-1, CAPACITY * RECORD.size)
        self._count = 0

    def add(
        self, at_s: float, done_s: float, queue_s: float, path_s: float, offset: int, size: int, write: bool
    ) -> None:
        place = self._count % CAPACITY * RECORD.size
        RECORD.pack_into(self._ring, place, at_s, done_s, queue_s, path_s, offset, size, write)
        self._count += 1

    def save(self, path: Path) -> None:
        """Write the head and all I/Os that are kept. Raises OSError."""
        size = min(self._count, CAPACITY) * RECORD.size
        with path.open("wb") as file:
            file.write(HEAD.pack(self._count, time.time() - time.monotonic()))
            file.write(memoryview(self._ring)[:size])
