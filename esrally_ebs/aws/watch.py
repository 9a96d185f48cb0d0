"""What this machine shows only when it is watched for a while, or asked in C: idle devices, the clock."""

import ctypes
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from esrally_ebs.aws.roots import Roots
from esrally_ebs.formats.diskstats import DiskCounters, parse_diskstats
from esrally_ebs.system import SYSTEM_CLOCK, Clock

_TIMEX_BYTES = 256  # struct timex has 208 on 64 bits; adjtimex(2) writes no further
_STATUS = struct.Struct("i")
_STATUS_AT = 40
_UNSYNCHRONISED = 0x40  # STA_UNSYNC


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What devices did in a time."""

    seconds: float
    requests: int
    bytes: int


def watch(
    groups: Mapping[str, Iterable[str]], roots: Roots, *, seconds: float = 1.0, clock: Clock = SYSTEM_CLOCK
) -> dict[str, Activity]:
    """Requests and bytes of each group of disks (kernel names) during ``seconds``; none for unknown disks."""
    before, start = _counters(roots), clock.monotonic()
    clock.sleep(seconds)
    now, took = _counters(roots), clock.monotonic() - start
    found = {}
    for name, disks in groups.items():
        seen = [(before[disk], now[disk]) for disk in disks if disk in before and disk in now]
        if seen:
            found[name] = Activity(
                seconds=took,
                requests=sum(new.reads + new.writes - old.reads - old.writes for old, new in seen),
                bytes=sum(_bytes(new) - _bytes(old) for old, new in seen),
            )
    return found


def clock_is_synchronised() -> bool | None:
    """Whether the kernel's clock is held to a reference; None where the kernel does not say."""
    buffer = ctypes.create_string_buffer(_TIMEX_BYTES)  # all zeros: asks, and sets nothing
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(buffer)
    except (OSError, AttributeError):
        return None
    if state < 0:
        return None
    (status,) = _STATUS.unpack_from(buffer.raw, _STATUS_AT)
    return not status & _UNSYNCHRONISED


def _counters(roots: Roots) -> Mapping[str, DiskCounters]:
    source = roots.proc / "diskstats"
    return parse_diskstats(source.read_text(), str(source))


def _bytes(counters: DiskCounters) -> int:
    return round(counters.read_bytes + counters.written_bytes)
