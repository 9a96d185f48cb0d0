"""Before a session: whether this machine's processors and devices are idle, and its clock is right.

Steal only shows on a machine that asks for processors. So all processors are kept busy for a second, at the
lowest priority: everything else has precedence, and is noticed.
"""

import ctypes
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from esrally_ebs.checks.facts import Activity, bad, good, unknown
from esrally_ebs.machine.kernel_trees import Roots
from esrally_ebs.machine.processes import SYSTEM_CLOCK, Clock
from esrally_ebs.machine.procfs import DiskCounters, ProcessorCounters, parse_diskstats, processor_counters
from esrally_ebs.model import STEAL_TO_WARN_OF, Check, Severity

_UNSYNCHRONISED_US = 16_000_000  # the kernel's NTP_PHASE_LIMIT
_NAME = "processors"
_PART_S = 0.5
_PARTS = 2  # processes that just start up are in only one of them
_OTHERS_TO_WARN_OF = 0.20  # share of the machine
_OWN_MACHINE = "measure on a machine whose processors are its own"
_END_OTHERS = "end what uses them (top), or wait for it"
_BLOCK = bytes(2**20)  # to hash: takes about a millisecond, during which no other thread is blocked


def watch(
    groups: Mapping[str, Iterable[str]], roots: Roots, *, seconds: float = 1.0, clock: Clock = SYSTEM_CLOCK
) -> dict[str, Activity]:
    """Requests and bytes of each group of disks (kernel names) during ``seconds``; 0 for unknown disks."""
    before, start = _disk_counters(roots), clock.monotonic()
    clock.sleep(seconds)
    now, took = _disk_counters(roots), clock.monotonic() - start
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
    """Whether the kernel's clock is synchronised; None if the kernel does not say.

    Synchronising sets the clock's maximum error; without it, the error grows by 0.5 ms per second to 16 s,
    the value of an unsynchronised clock. The flag STA_UNSYNC says less: chrony without ``rtcsync`` sets it,
    too, to keep the kernel from writing the hardware clock (systemd's timedated ignores it for that reason).
    """
    timex = (ctypes.c_long * 64)()  # modes (0: to read only), offset, freq, maxerror (us), and others
    try:
        state = (libc or ctypes.CDLL(None)).adjtimex(timex)
    except AttributeError:
        return None
    return None if state < 0 else timex[3] < _UNSYNCHRONISED_US


def _disk_counters(roots: Roots) -> Mapping[str, DiskCounters]:
    source = roots.proc / "diskstats"
    return parse_diskstats(source.read_text(), str(source))


def _bytes(counters: DiskCounters) -> int:
    return round(counters.read_bytes + counters.written_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    asked_s: float  # by all processes
    stolen_s: float
    others_s: float  # used by processes other than this one
    total_s: float  # over all processors


def _own_s() -> float:
    """Processor time of this process and of children that it has waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def check_processors(
    *,
    counters: Callable[[], ProcessorCounters] = processor_counters,
    watch: Callable[[float], None] | None = None,
    own_s: Callable[[], float] = _own_s,
) -> Check:
    """Keep all processors busy, and see who else uses them. Takes a second; never forbids anything.

    ``watch`` spends the seconds that it is given; ``own_s`` returns this process's processor time so far.
    """
    ask = watch or _ask_for_all
    try:
        return judge([_stretch(counters, ask, own_s) for _ in range(_PARTS)])
    except OSError as error:
        return unknown(_NAME, f"could not tell: {error}", "read /proc/stat where this runs")


def judge(parts: Sequence[Stretch]) -> Check:
    """Steal over all parts, and the least of others' use in a part."""
    asked_s = sum(part.asked_s for part in parts)
    stolen = sum(part.stolen_s for part in parts) / asked_s if asked_s else 0.0
    others = min(part.others_s / part.total_s if part.total_s else 0.0 for part in parts)
    value = f"steal {stolen:.0%}, others {others:.0%}"
    wrong, mend = [], []
    if stolen > STEAL_TO_WARN_OF:
        wrong.append(f"the host keeps {stolen:.0%} of the processor time that this machine asks for (steal)")
        mend.append(_OWN_MACHINE)
    if others > _OTHERS_TO_WARN_OF:
        wrong.append(f"other processes use {others:.0%} of this machine's processors")
        mend.append(_END_OTHERS)
    if not wrong:
        return good(_NAME, value, "the processors are this machine's own and free")
    text = f"{', and '.join(wrong)}: service times hold waits that no volume causes"
    return bad(_NAME, text, "; ".join(mend), value=value, severity=Severity.WARN)


def _stretch(
    counters: Callable[[], ProcessorCounters], ask: Callable[[float], None], own_s: Callable[[], float]
) -> Stretch:
    before, own_before_s = counters(), own_s()
    ask(_PART_S)
    after, own_after_s = counters(), own_s()
    busy_s, stolen_s = after.busy_s - before.busy_s, after.stolen_s - before.stolen_s
    return Stretch(
        asked_s=busy_s + stolen_s,
        stolen_s=stolen_s,
        others_s=max(0.0, busy_s - (own_after_s - own_before_s)),
        total_s=after.total_s - before.total_s,
    )


def _ask_for_all(seconds: float) -> None:
    count = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(_ask_for_one, [time.monotonic() + seconds] * count))


def _ask_for_one(until_s: float) -> None:
    # Only this thread's, which ends with its pool: no right is needed to raise it again.
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
    while time.monotonic() < until_s:
        hashlib.sha256(_BLOCK)
