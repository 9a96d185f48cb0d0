"""``/proc/self/mountinfo``: text in, one record per mount out (proc_pid_mountinfo(5))."""

import re
from dataclasses import dataclass
from pathlib import Path

from esrally_ebs.errors import FormatError

# The kernel writes space, tab, newline, backslash and # in names as \040 and so on.
_ESCAPE = re.compile(r"\\([0-7]{3})")
_ID = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One mount as one process sees it."""

    device_number: str  # "major:minor" of the file system's device
    root: str  # the directory of the file system that is mounted
    mount_point: Path
    options: str  # of this mount, e.g. "rw,noatime"
    filesystem: str
    source: str  # e.g. "/dev/loop3"
    super_options: str  # of the file system, e.g. "rw,attr2"

    @property
    def read_only(self) -> bool:
        """Whether the mount or the file system below it refuses writes."""
        return "ro" in self.options.split(",") or "ro" in self.super_options.split(",")


def parse_mountinfo(text: str, source: str) -> list[Mount]:
    """All mounts in the kernel's order: of two at one mount point the later one hides the earlier.

    ``source`` names the text in messages. Raises FormatError for a line that is not of this form.
    """
    # Not splitlines: a name may hold what that takes for the end of a line.
    lines = enumerate(text.split("\n"), 1)
    return [_mount(line, f"{source}:{number}") for number, line in lines if line]


def _mount(line: str, where: str) -> Mount:
    # Any number of optional fields ("shared:1") stands before the lone dash.
    left, dash, right = line.partition(" - ")
    head = left.split(" ")
    tail = right.split(" ")
    if not dash or len(head) < 6 or len(tail) < 2 or not all(_ID.fullmatch(word) for word in head[:2]):
        raise FormatError(
            f"{where}: {line!r} is not a line of mountinfo; give the text of /proc/self/mountinfo"
        )
    return Mount(
        device_number=head[2],
        root=_decoded(head[3]),
        mount_point=Path(_decoded(head[4])),
        options=head[5],
        filesystem=_decoded(tail[0]),
        source=_decoded(tail[1]),
        super_options=" ".join(tail[2:]),
    )


def _decoded(name: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), name)
