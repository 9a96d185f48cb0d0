"""Files to lines: regular files only, opened read-only, gzip unpacked, lines of bounded length.

Also how files and lines begin that are no log's, with what to do about it.
"""

import errno
import gzip
import io
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Final, cast

from esrally_ebs.errors import FormatError, PlanError

MAX_LINE_BYTES: Final = 16 << 20
TOO_LONG: Final = b"\x00too long\n"  # replaces a longer line; no format has it
_GZIP: Final = b"\x1f\x8b"
_BOM: Final = b"\xef\xbb\xbf"  # written before UTF-8 by some editors and shells; within files put together
_BUFFER_BYTES: Final = 128 << 10
BEGINNING_BYTES: Final = 64 << 10

_NO_LINES: Final = (  # how files begin that have no line for each entry, and what to do
    (
        re.compile(rb'\x28\xb5\x2f\xfd|BZh\d|\xfd7zXZ|PK\x03\x04|\x1f[\x8b\x9d]|\x04"M\x18|(?s:.{257})ustar'),
        "packed, and not by gzip alone; unpack it",
    ),
    (
        re.compile(rb"\xff\xfe|\xfe\xff|[^\0]\0[^\0]\0|\0[^\0]\0[^\0]"),
        "UTF-16; write it as UTF-8: iconv -f UTF-16 -t UTF-8",
    ),
    (  # its last entry has no comma behind it
        re.compile(rb"\s*\[\s*\n"),
        "one list in JSON; write a line for each entry: jq -rc '.[]'",
    ),
)

NOT_READ: Final = (  # how lines of unreadable formats begin, and what to do
    (
        re.compile(rb"\[[^]]*\]\[[A-Z ]+\]\[(i\.s\.s\.|index\.search\.slowlog\.)"),
        "a slow log of lines cut off, or of a layout of yours; give it as its node wrote it, in JSON",
    ),
    (
        re.compile(rb'\{.*"elasticsearch\.querylog\.search_type" *:'),
        "a log of ES|QL's queries, which are not raced; give a log of searches",
    ),
    (re.compile(rb"\s*\{\s*\Z"), "JSON over several lines; write one line for each entry: jq -c ."),
    (
        re.compile(rb'\{(.*, *)?"log" *: *"'),
        "a container's log, of lines in parts; put them together: jq -rj .log (of Fluent Bit: jq -r .log)",
    ),
    (
        re.compile(rb"\S+ std(out|err) [FP] "),
        "a container's log; take off the first three words of each line, and the end of one in parts (P): "
        """awk '{e = $3 == "P" ? "" : "\\n"; sub(/^[^ ]+ [^ ]+ [^ ]+ /, ""); printf "%s%s", $0, e}'""",
    ),
    (re.compile(rb'"?@timestamp"?,'), "a table (CSV); export it as JSON, one line for each entry"),
    (
        re.compile(rb'[^{]+\{"(@timestamp|type)" *: *"'),
        "a log with something before each line; take it off: sed 's/^[^{]*//'",
    ),
    (
        re.compile(rb"[^[{]+(\[\d+\]: )?\[[^]]*\]\[[A-Z ]+\]\[(i\.s\.s\.|index\.search|c\w*\.s\w*\.r)"),
        r"a slow log with something before each line; take it off: sed -E 's/^[^[]*(\[[0-9]+\]: )?//'",
    ),
)


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
        status = os.fstat(self._raw.fileno())
        self.size, self.written_us = status.st_size, status.st_mtime_ns // 1000

    def close(self) -> None:
        self._file.close()
        self._raw.close()

    def require_lines(self) -> None:
        """Raise FormatError, which says how to make lines of it, for a log that is none of lines of text."""
        for pattern, what in _NO_LINES:
            if self.beginning and pattern.match(self.beginning):
                raise FormatError(f"{self.path}: is {what}")

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
                yield line.removeprefix(_BOM)
            if self.line == 0 and self.beginning is None:  # what failed once reads as if it ended there
                raise EOFError("its beginning is cut off")
        except (OSError, EOFError, zlib.error) as error:
            raise FormatError(
                f"{self.path}: cannot be read after line {self.line}: {error}; "
                "is the file whole? copy it anew"
            ) from error


def without_nuls(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Lines from behind the NUL bytes that full disks and crashes leave; a line of these alone stays."""
    for line in lines:
        behind = line.rpartition(b"\0")[2]
        yield line if line is TOO_LONG or not behind.strip() else behind


def next_step(error: OSError, usual: str) -> str:
    """What to do about an error of a file; ``usual``, unless there are too many files open."""
    return "allow more open files: ulimit -n 10000" if error.errno == errno.EMFILE else usual


def _beginning(file: "io.BufferedReader[Any]") -> bytes | None:
    """The first bytes; b"" for an empty file, None if unreadable, which reading reports."""
    try:
        return file.peek(1)[:BEGINNING_BYTES]
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
