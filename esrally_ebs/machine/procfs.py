"""Parses files with the kernel's counters.

``/proc/diskstats``, ``/proc/<pid>/maps``, ``/proc/net/tcp``, and a cgroup's ``memory.stat``.
``source`` names the text in messages; FormatError for any other form. Sources: the kernel's admin-guide
(iostats, cgroups), proc(5), Documentation/networking/proc_net_tcp, include/net/tcp_states.h.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import psutil

from esrally_ebs.errors import FormatError

# The kernel escapes space, tab, newline, backslash and # in names as \040 and so on.
_ESCAPE = re.compile(r"\\([0-7]{3})")
_ID = re.compile(r"[0-9]{1,18}")

# Version 1 has a group's own pages and, as total_*, includes groups below; version 2 has only the latter.
_MEMORY_V1 = ("total_cache", "total_rss", "total_mapped_file", "total_pgmajfault")
_MEMORY_V2 = ("file", "anon", "file_mapped", "pgmajfault")
_MAPS_LINE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) [-rwxsp]{4} [0-9a-f]+ [0-9a-f]+:[0-9a-f]+ [0-9]+( +.*)?\Z")
ESTABLISHED, CLOSE_WAIT = 0x01, 0x08  # states of a TCP socket
SECTOR_BYTES = 512  # the kernel's unit, whatever the disk's sectors are
_DISK_FIELDS = 14  # since Linux 2.6; discards (4.18) and flushes (5.5) follow
DISKSTATS = Path("/proc/diskstats")
ReadText = Callable[[Path], str]  # reads a kernel file


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One mount as seen by a process."""

    device_number: str  # "major:minor" of the file system's device
    root: str  # the file system's directory that is mounted
    mount_point: Path
    options: str  # of this mount: "rw,noatime"
    filesystem: str
    source: str  # e.g. "/dev/loop3"
    super_options: str  # of the file system: "rw,attr2"

    @property
    def read_only(self) -> bool:
        return "ro" in self.options.split(",") or "ro" in self.super_options.split(",")


def parse_mountinfo(text: str, source: str) -> list[Mount]:
    """All mounts in the kernel's order: a later one hides earlier ones at the same mount point.

    ``source`` names the text in messages. Raises FormatError for a line of another form.
    """
    # Not splitlines: names may contain characters that it splits at.
    lines = enumerate(text.split("\n"), 1)
    return [_mount(line, f"{source}:{number}") for number, line in lines if line]


def _mount(line: str, where: str) -> Mount:
    # Any number of optional fields ("shared:1") comes before a single dash.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCounters:
    """Memory of a control group and those below it, under version 1's names."""

    cache_bytes: int  # page cache, including shared memory
    rss_bytes: int  # anonymous memory: heap and stacks
    mapped_file_bytes: int  # part of the cache that processes have mapped
    major_faults: int  # since the group was created


def parse_memory_stat(text: str, source: str) -> MemoryCounters:
    """These four figures from either version of cgroups. Raises FormatError if one is missing."""
    values: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        key, _, value = line.partition(" ")
        if not value.isdigit():
            raise FormatError(
                f"{source}:{number}: {line!r} is not a line of memory.stat; give a cgroup's file"
            )
        values[key] = int(value)
    for names in (_MEMORY_V1, _MEMORY_V2):
        if all(name in values for name in names):
            cache, rss, mapped, faults = (values[name] for name in names)
            return MemoryCounters(
                cache_bytes=cache, rss_bytes=rss, mapped_file_bytes=mapped, major_faults=faults
            )
    raise FormatError(
        f"{source}: has neither {', '.join(_MEMORY_V1)} (cgroup v1) nor {', '.join(_MEMORY_V2)} (v2); is it "
        "memory.stat?"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    start: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.start


def parse_maps(text: str, source: str, inodes: Collection[int]) -> list[Mapping]:
    """The mappings of ``inodes`` in address order: few of a JVM's thousand."""
    wanted = {*map(str, inodes), ""}
    # Not splitlines: names may contain characters that it splits at.
    lines = enumerate(text.split("\n"), 1)
    return [
        _mapping(line, f"{source}:{number}")
        for number, line in lines
        if line and "".join(line.split(" ", 5)[4:5]) in wanted
    ]


def _mapping(line: str, where: str) -> Mapping:
    match = _MAPS_LINE.match(line)
    if match is None:
        raise FormatError(f"{where}: {line!r} is not a line of maps; give the text of /proc/<pid>/maps")
    return Mapping(start=int(match[1], 16), end=int(match[2], 16))


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpSocket:
    """One end of a connection, or a listener; includes connections that no process has accepted."""

    local_port: int
    state: int
    unread_bytes: int  # sent by the peer and not read yet; for a listener, connections waiting


def parse_tcp(text: str, source: str) -> list[TcpSocket]:
    sockets = []
    for number, line in enumerate(text.splitlines()[1:], start=2):
        words = line.split()
        try:
            state = int(words[3], 16)
            unread = int(words[4].split(":")[1], 16)
            port = int(words[1].split(":")[1], 16)
        except (IndexError, ValueError) as error:
            raise FormatError(f"{source}:{number}: not a line of /proc/net/tcp: {line!r}") from error
        # The end of a connection counts as one byte to read.
        end = 1 if state == CLOSE_WAIT and unread else 0
        sockets.append(TcpSocket(local_port=port, state=state, unread_bytes=unread - end))
    return sockets


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskCounters:
    """One device's activity since it appeared; all but ``in_flight`` only grow (and may wrap)."""

    device: str  # kernel name, e.g. "loop3"
    reads: int  # completed requests
    read_bytes: int
    read_s: float  # time of all reads from queueing to completion, added up
    writes: int
    written_bytes: int
    write_s: float
    in_flight: int
    weighted_s: float  # integral of requests in flight over time: its rate is the mean queue depth


def parse_diskstats(text: str, source: str) -> dict[str, DiskCounters]:
    parsed = (_disk_counters(line, f"{source}:{number}") for number, line in enumerate(text.splitlines(), 1))
    return {counters.device: counters for counters in parsed}


def _disk_counters(line: str, where: str) -> DiskCounters:
    words = line.split()
    if len(words) < _DISK_FIELDS or not all(word.isdigit() for word in words[:2] + words[3:_DISK_FIELDS]):
        raise FormatError(f"{where}: {line!r} is not a line of diskstats; give the text of /proc/diskstats")
    n = [int(word) for word in words[3:_DISK_FIELDS]]
    return DiskCounters(
        device=words[2],
        reads=n[0],
        read_bytes=n[2] * SECTOR_BYTES,
        read_s=n[3] / 1000,
        writes=n[4],
        written_bytes=n[6] * SECTOR_BYTES,
        write_s=n[7] / 1000,
        in_flight=n[8],
        weighted_s=n[10] / 1000,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorCounters:
    """Seconds over all processors; they only grow."""

    busy_s: float
    stolen_s: float  # ready to run, while the host gave the processor to others
    total_s: float  # including idle time and waiting for I/O


def processor_counters() -> ProcessorCounters:
    now = psutil.cpu_times()
    busy_s = now.user + now.nice + now.system + now.irq + now.softirq  # user includes guests
    idle_s = now.idle + now.iowait
    return ProcessorCounters(busy_s=busy_s, stolen_s=now.steal, total_s=busy_s + now.steal + idle_s)
