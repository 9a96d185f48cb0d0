"""Whether devices are idle and the clock is synchronised: by counters of a second and adjtimex(2)."""

import ctypes
from collections.abc import Iterable, Mapping
from typing import Any

from esrally_ebs.checks.facts import Activity
from esrally_ebs.machine.diskstats import DiskCounters, parse_diskstats
from esrally_ebs.machine.kernel_trees import Roots
from esrally_ebs.machine.processes import SYSTEM_CLOCK, Clock

_UNSYNCHRONISED_US = 16_000_000  # the kernel's NTP_PHASE_LIMIT


class _Timex(ctypes.Structure):
    """``struct timex`` of adjtimex(2) as far as it is read; all zeros asks, and sets nothing."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),  # microseconds
        ("rest", ctypes.c_byte * 256),  # more than the kernel writes
    )


def watch(
    groups: Mapping[str, Iterable[str]], roots: Roots, *, seconds: float = 1.0, clock: Clock = SYSTEM_CLOCK
) -> dict[str, Activity]:
    """Requests and bytes of each group of disks (kernel names) during ``seconds``; none for unknown disks."""
    before, start = _counters(roots), clock.monotonic()
    clock.sleep(seconds)
    now, took = _counters(roots), clock.monotonic() - start
    activity = {}
    for name, disks in groups.items():
        counters = [(before[disk], now[disk]) for disk in disks if disk in before and disk in now]
        if counters:
            activity[name] = Activity(
                seconds=took,
                requests=sum(new.reads + new.writes - old.reads - old.writes for old, new in counters),
                bytes=sum(_bytes(new) - _bytes(old) for old, new in counters),
            )
    return activity


def clock_is_synchronised(libc: Any = None) -> bool | None:  # noqa: ANN401 - C has no types
    """Whether the kernel's clock is kept to a reference; None where the kernel does not say.

    Whoever keeps it sets its greatest error, which grows by 0.5 ms a second to 16 s, the value of a clock
    that nobody keeps. The flag STA_UNSYNC says less: chrony sets it, too, unless it has ``rtcsync``,
    to keep the kernel from the hardware's clock (systemd's timedated passes over it for that reason).
    """
    timex = _Timex()
    try:
        state = (libc or ctypes.CDLL(None)).adjtimex(ctypes.byref(timex))
    except AttributeError:
        return None
    return None if state < 0 else bool(timex.maxerror < _UNSYNCHRONISED_US)


def _counters(roots: Roots) -> Mapping[str, DiskCounters]:
    source = roots.proc / "diskstats"
    return parse_diskstats(source.read_text(), str(source))


def _bytes(counters: DiskCounters) -> int:
    return round(counters.read_bytes + counters.written_bytes)
