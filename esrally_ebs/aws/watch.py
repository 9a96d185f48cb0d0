"""What this machine shows only when it is watched for a while, or asked in C: idle devices, the clock."""

import ctypes
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from esrally_ebs.aws.roots import Roots
from esrally_ebs.formats.diskstats import DiskCounters, parse_diskstats
from esrally_ebs.system import SYSTEM_CLOCK, Clock

_UNHELD_US = 16_000_000  # the kernel's NTP_PHASE_LIMIT


class _Timex(ctypes.Structure):
    """``struct timex`` of adjtimex(2) as far as it is read; all zeros asks, and sets nothing."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),  # microseconds
        ("rest", ctypes.c_byte * 256),  # more than the kernel writes
    )


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


def clock_is_synchronised(libc: Any = None) -> bool | None:  # noqa: ANN401 - C has no types
    """Whether the kernel's clock is held to a reference; None where the kernel does not say.

    Whoever holds it tells the kernel its greatest error, which grows by 0.5 ms a second to 16 s, the value of
    a clock that nobody holds. The flag STA_UNSYNC says less: chrony sets it, too, unless it has ``rtcsync``,
    to keep the kernel from the hardware's clock (systemd's timedated passes over it for that reason).
    """
    told = _Timex()
    try:
        state = (libc or ctypes.CDLL(None)).adjtimex(ctypes.byref(told))
    except AttributeError:
        return None
    return None if state < 0 else bool(told.maxerror < _UNHELD_US)


def _counters(roots: Roots) -> Mapping[str, DiskCounters]:
    source = roots.proc / "diskstats"
    return parse_diskstats(source.read_text(), str(source))


def _bytes(counters: DiskCounters) -> int:
    return round(counters.read_bytes + counters.written_bytes)
