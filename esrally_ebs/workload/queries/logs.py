"""Files to lines: regular files only, opened read-only, gzip unpacked, lines of bounded length."""

import errno
import gzip
import io
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final, cast

from esrally_ebs.errors import FormatError, PlanError

MAX_LINE_BYTES: Final = 16 << 20
TOO_LONG: Final = b"\x00too long\n"  # replaces a longer line; no format has it
_GZIP: Final = b"\x1f\x8b"
_BOM: Final = b"\xef\xbb\xbf"  # written before UTF-8 by some editors and shells
_BUFFER_BYTES: Final = 128 << 10
_BEGINNING_BYTES: Final = 64 << 10


class Log:
    """One log file; ``lines()`` reads it once, ``line`` is the number of the last line read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.line = 0
        self._raw = _open(path)
        packed = self._raw.peek(2)[:2] == _GZIP
        unpacked = io.BufferedReader(gzip.GzipFile(fileobj=self._raw), _BUFFER_BYTES) if packed else self._raw
        self.beginning = _beginning(unpacked)
        self._file = cast(IO[bytes], unpacked)
        self.written_us = os.fstat(self._raw.fileno()).st_mtime_ns // 1000

    def close(self) -> None:
        self._file.close()
        self._raw.close()

    def rewind(self) -> None:
        """Go back to the first line."""
        self._file.seek(0)
        self.line = 0

    def lines(self) -> Iterator[bytes]:
        """Every line with its line end; TOO_LONG if it exceeds 16 MiB. Raises FormatError for bad gzip."""
        readline = self._file.readline
        try:
            while line := readline(MAX_LINE_BYTES):
                self.line += 1
                if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
                    while (rest := readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
                        pass
                    line = TOO_LONG
                yield line.removeprefix(_BOM) if self.line == 1 else line
        except (OSError, EOFError, zlib.error) as error:
            raise FormatError(
                f"{self.path}: cannot be read after line {self.line}: {error}; "
                "is the file whole? copy it anew"
            ) from error


def next_step(error: OSError, usual: str) -> str:
    """What to do about an error of a file; ``usual``, unless there are too many files open."""
    return "allow more open files: ulimit -n 10000" if error.errno == errno.EMFILE else usual


def _beginning(file: "io.BufferedReader[Any]") -> bytes | None:
    """The first bytes; b"" for an empty file, None if unreadable, which reading reports."""
    try:
        return file.peek(1)[:_BEGINNING_BYTES]
    except (OSError, EOFError, zlib.error):
        return None


def _open(path: Path) -> io.BufferedReader:
    """Open for reading, without waiting for writers (FIFOs)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        hint = next_step(error, "name a log file that can be read")
        raise PlanError(f"{path}: {error.strerror}; {hint}") from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kind = "a directory" if stat.S_ISDIR(mode) else "no regular file"
        raise PlanError(f"{path}: is {kind}; name the log files themselves")
    return io.BufferedReader(io.FileIO(descriptor), _BUFFER_BYTES)
