"""The last I/Os of a volume, kept in memory while it works and written out when asked for."""

import mmap
import struct
import time
from pathlib import Path

CAPACITY = 1 << 20  # I/Os; 40 MiB, of which only what is used is taken
# When it came and when its answer was due (monotonic, s); what of that a limit made it wait, and what the
# path takes besides (s); where, how many bytes, and whether it was a write.
RECORD = struct.Struct("<ddffQII")
HEAD = struct.Struct("<Qd")  # I/Os ever, and what to add to a monotonic time for seconds since the epoch


class TraceRing:
    """A ring of ``CAPACITY`` I/Os in the order in which they were answered; the oldest are overwritten."""

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
        """Write all that is kept, after its head. Raises OSError."""
        size = min(self._count, CAPACITY) * RECORD.size
        with path.open("wb") as file:
            file.write(HEAD.pack(self._count, time.time() - time.monotonic()))
            file.write(memoryview(self._ring)[:size])
