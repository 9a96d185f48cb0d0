"""``/proc/<pid>/maps``: text in, one record per mapping out (proc_pid_maps(5))."""

import re
from collections.abc import Collection
from dataclasses import dataclass

from esrally_ebs.errors import FormatError

_LINE = re.compile(
    r"([0-9a-f]+)-([0-9a-f]+) [-rwxsp]{4} ([0-9a-f]+) ([0-9a-f]+):([0-9a-f]+) ([0-9]+)(?: +(.*))?\Z"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """One range of a process's address space; ``inode`` is 0 when no file is behind it."""

    start: int
    end: int
    offset: int
    device_number: str  # "major:minor", of the file system (on btrfs not what stat(2) says)
    inode: int
    path: str  # as the process sees it; " (deleted)" may follow

    @property
    def length(self) -> int:
        """Bytes of address space."""
        return self.end - self.start


def parse_maps(text: str, source: str, inodes: Collection[int] | None = None) -> list[Mapping]:
    """All mappings in address order, or those of files with these ``inodes``: of a JVM's thousand lines few.

    ``source`` names the text in messages. Raises FormatError for a line that is not of this form.
    """
    wanted = None if inodes is None else {*map(str, inodes), ""}
    # Not splitlines: a name may hold what that takes for the end of a line.
    lines = enumerate(text.split("\n"), 1)
    return [
        _mapping(line, f"{source}:{number}")
        for number, line in lines
        if line and (wanted is None or "".join(line.split(" ", 5)[4:5]) in wanted)
    ]


def _mapping(line: str, where: str) -> Mapping:
    match = _LINE.match(line)
    if match is None:
        raise FormatError(f"{where}: {line!r} is not a line of maps; give the text of /proc/<pid>/maps")
    return Mapping(
        start=int(match[1], 16),
        end=int(match[2], 16),
        offset=int(match[3], 16),
        device_number=f"{int(match[4], 16)}:{int(match[5], 16)}",
        inode=int(match[6]),
        path=match[7] or "",
    )
