"""What an arm's volume has done since it was attached: a volume in, one flat snapshot of counters out.

Two snapshots, right before a request and right after it, say exactly what the request did: no second has to
be divided between a request and what came before it.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from esrally_ebs.machine.diskstats import parse_diskstats
from esrally_ebs.machine.proc_stat import PROC_STAT, ReadText, parse_proc_stat
from esrally_ebs.model import Volume
from esrally_ebs.telemetry.sources import DISKSTATS, Limiters, ReadState

IN_FLIGHT = "device.in_flight"
# Of /proc/diskstats; all but the last only grow.
_DEVICE = ("reads", "read_bytes", "read_s", "writes", "written_bytes", "write_s", "weighted_s", "in_flight")
# How metrics of an emulated volume's state begin: what grows while a limiter holds I/O back, what is left of
# a burst, and how long so many I/Os were to take.
_EMULATOR = (
    "emulator.waited_s.",
    "emulator.credits",
    "emulator.target_s.",
    "emulator.reads",
    "emulator.writes",
)

# Further counters of a real volume by metric: how long a limit was exceeded, ``ebs.exceeded_s.<limit>``.
ReadMore = Callable[[Volume], Mapping[str, float]]


def snapshot(
    volume: Volume,
    *,
    read_state: ReadState,
    processor_time: Path | None = None,
    read_text: ReadText = Path.read_text,
    read_more: ReadMore = lambda volume: {},
) -> dict[str, float]:
    """Counters of the device (``device.*``), of the last ones below it (``lowest.*``), of an emulated volume
    (``emulator.*``), of the machine's processors (``processor.*``) and of what the node used of them
    (``node.processor_s``) now.

    A source that fails is left out: whoever subtracts two snapshots sees that it is missing.
    """
    counters: dict[str, float] = {}
    for read in (
        partial(_processors, read_text),
        partial(_node, processor_time, read_text),
        partial(_emulator, volume, read_state),
        partial(read_more, volume),
        partial(device_counters, volume, read_text),
    ):
        try:
            counters.update(read())
        except Exception:  # noqa: BLE001 - a request is never lost because it could not be explained
            continue
    return counters


def _processors(read_text: ReadText) -> Mapping[str, float]:
    now = parse_proc_stat(read_text(PROC_STAT), str(PROC_STAT))
    return {"processor.busy_s": now.busy_s, "processor.stolen_s": now.stolen_s}


def _node(file: Path | None, read_text: ReadText) -> Mapping[str, float]:
    """cpuacct.usage has nanoseconds (control groups of version 1), cpu.stat microseconds (version 2)."""
    if file is None:
        return {}
    words = read_text(file).split()
    used_s = int(words[0]) / 1e9 if len(words) == 1 else int(words[words.index("usage_usec") + 1]) / 1e6
    return {"node.processor_s": used_s}


def device_counters(volume: Volume, read_text: ReadText = Path.read_text) -> Mapping[str, float]:
    """What the volume's device has done, ``device.*``; nothing for a volume without one."""
    if volume.device is None:
        return {}
    disks = parse_diskstats(read_text(DISKSTATS), str(DISKSTATS))
    counters = {f"device.{name}": float(getattr(disks[volume.device], name)) for name in _DEVICE}
    if volume.lowest:
        counters["lowest.read_bytes"] = float(sum(disks[name].read_bytes for name in volume.lowest))
    return counters


def _emulator(volume: Volume, read_state: ReadState) -> Mapping[str, float]:
    if volume.control is None:
        return {}
    values = Limiters(volume.control, read_state).read(0.0)
    kept = [value for value in values if value.metric.startswith(_EMULATOR)]
    return {value.metric: value.value for value in kept if value.metric != "emulator.credits_capacity"}
