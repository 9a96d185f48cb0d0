"""``/proc/stat``: text in, what the processors did since the machine started out (kernel: proc)."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from esrally_ebs.errors import FormatError

PROC_STAT = Path("/proc/stat")
ReadText = Callable[[Path], str]  # of a file of the kernel's

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_NAMES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_BUSY = ("user", "nice", "system", "irq", "softirq")  # user has guests in it


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorCounters:
    """Seconds of all processors together; they only grow."""

    busy_s: float
    stolen_s: float  # ready to run, but the host gave the processor to somebody else
    total_s: float  # idle time and waiting for I/O included


def parse_proc_stat(text: str, source: str) -> ProcessorCounters:
    """The line of all processors. ``source`` names the text in messages; FormatError without such a line."""
    words = text.partition("\n")[0].split()
    ticks = words[1 : len(_NAMES) + 1]
    if words[:1] != ["cpu"] or len(ticks) < len(_NAMES) or not all(word.isdigit() for word in ticks):
        raise FormatError(
            f"{source}:1: is not the line of all processors (cpu, 8 numbers); is it /proc/stat?"
        )
    seconds = {name: int(word) / _TICKS_PER_S for name, word in zip(_NAMES, ticks, strict=True)}
    return ProcessorCounters(
        busy_s=sum(seconds[name] for name in _BUSY),
        stolen_s=seconds["steal"],
        total_s=sum(seconds.values()),
    )
