"""Requests in the order of their times, more of them than memory holds.

Lines are sorted in runs of RUN_BYTES; each run goes to one temporary file, which has no name and so is gone
with the process; at the end the runs are merged. What happened at the same microsecond keeps the log's order.
"""

import heapq
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

RUN_BYTES: Final = 24 << 20
_READ_BYTES: Final = 128 << 10
_TIME_DIGITS: Final = 18
_PREFIX: Final = _TIME_DIGITS + 12  # time and position in the log


class Ordering:
    """Takes ``(microseconds, line)``; gives them back by time. ``folder`` has room for all lines."""

    def __init__(self, folder: Path, *, run_bytes: int = RUN_BYTES) -> None:
        self.count = 0
        self._run: list[bytes] = []
        self._size = 0
        self._run_bytes = run_bytes
        self._ends = [0]
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by close()

    def close(self) -> None:
        self._file.close()

    def add(self, at_us: int, line: str) -> None:
        """One line with its end; ``at_us`` is 0 or more and has at most 18 digits."""
        row = f"{at_us:018d}{self.count:012d}{line}".encode()
        self.count += 1
        self._run.append(row)
        self._size += len(row)
        if self._size >= self._run_bytes:
            self._spill()

    def rows(self) -> Iterator[tuple[int, bytes]]:
        """Every time and line, in order; to be called once."""
        self._run.sort()
        runs = [self._read(start, end) for start, end in zip(self._ends, self._ends[1:], strict=False)]
        for row in heapq.merge(*runs, self._run) if runs else self._run:
            yield int(row[:_TIME_DIGITS]), row[_PREFIX:]

    def _spill(self) -> None:
        self._run.sort()
        self._file.writelines(self._run)
        self._file.flush()
        self._ends.append(self._file.tell())
        self._run.clear()
        self._size = 0

    def _read(self, start: int, end: int) -> Iterator[bytes]:
        """The lines of one run."""
        pending = b""
        while start < end:
            chunk = os.pread(self._file.fileno(), min(_READ_BYTES, end - start), start)
            start += len(chunk)
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                yield line + b"\n"
