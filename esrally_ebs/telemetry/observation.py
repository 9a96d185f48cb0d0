"""Observes a request: records the volume's counters right before and right after it, as an ``io`` event.

Counters are absolute, so that overlapping requests of several clients can be joined later without counting
anything twice.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

from esrally_ebs.errors import EbsError
from esrally_ebs.machine.procfs import DISKSTATS, ReadText, parse_diskstats, processor_counters
from esrally_ebs.model import Block, Event, Phase, Volume
from esrally_ebs.store import SessionFolder
from esrally_ebs.store.context import Member
from esrally_ebs.telemetry.sources import EbsStatistics, ReadPage, ReadState, ebs_statistics, limiters
from esrally_ebs.volumes.emulated.control import read_state

IN_FLIGHT = "device.in_flight"
# In /proc/diskstats; all but the last only grow.
_DEVICE = ("reads", "read_bytes", "read_s", "writes", "written_bytes", "write_s", "weighted_s", "in_flight")
# Prefixes of metrics from an emulated volume's state: growing waits for limiters, what is left of a burst,
# and how long I/Os should have taken.
_EMULATOR = (
    "emulator.waited_s.",
    "emulator.credits",
    "emulator.target_s.",
    "emulator.reads",
    "emulator.writes",
)

# Further counters of real volumes, by metric: seconds that a limit was exceeded, ``ebs.exceeded_s.<limit>``.
ReadMore = Callable[[Volume], Mapping[str, float]]

# Warm requests are many and alike: one per this many seconds is enough. In races of benchmarks/overhead.py,
# observed ones were twice as often among the slowest: they must stay well below 1 %.
_INTERVAL_S = 2.0
_SETTLE_S = 0.001
_SETTLE_TIMES = 5


def snapshot(
    volume: Volume,
    *,
    read_state: ReadState,
    processor_time: Path | None = None,
    read_text: ReadText = Path.read_text,
    read_more: ReadMore = lambda volume: {},
) -> dict[str, float]:
    """Current counters of the device (``device.*``), of the lowest devices below it (``lowest.*``), of an
    emulated volume (``emulator.*``), of the machine's processors (``processor.*``) and the node's use of them
    (``node.processor_s``).

    Leaves out a source that fails; subtracting two snapshots shows that it is missing.
    """
    counters: dict[str, float] = {}
    for read in (
        _processors,
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


def _processors() -> Mapping[str, float]:
    now = processor_counters()
    return {"processor.busy_s": now.busy_s, "processor.stolen_s": now.stolen_s}


def _node(file: Path | None, read_text: ReadText) -> Mapping[str, float]:
    """A node's processor time: cpuacct.usage is in nanoseconds (cgroups 1), cpu.stat in microseconds (2)."""
    if file is None:
        return {}
    words = read_text(file).split()
    used_s = int(words[0]) / 1e9 if len(words) == 1 else int(words[words.index("usage_usec") + 1]) / 1e6
    return {"node.processor_s": used_s}


def device_counters(volume: Volume, read_text: ReadText = Path.read_text) -> Mapping[str, float]:
    """Counters of the volume's device, ``device.*``; empty for a volume without one."""
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
    values = limiters(volume.control, read_state)
    kept = [value for value in values if value.metric.startswith(_EMULATOR)]
    return {value.metric: value.value for value in kept if value.metric != "emulator.credits_capacity"}


class ObservationInterval:
    def __init__(self) -> None:
        self._last = float("-inf")

    def is_over(self, *, every: bool) -> bool:
        """Whether to observe this request: always if ``every``, else after a pause."""
        now = time.monotonic()
        if not every and now - self._last < _INTERVAL_S:
            return False
        self._last = now
        return True


@asynccontextmanager
async def observe(
    members: Sequence[Member],
    folder: SessionFolder,
    block: Block,
    *,
    read_page: ReadPage | None = None,
    counters: Callable[[], list[dict[str, float]]] | None = None,
) -> AsyncIterator[dict[str, Any]]:
    """Record an arm's volumes and its nodes' processor time during the block.

    Yields further fields of that event, to be filled in.

    Counters of several members are added up; each node's own are under ``nodes``. What runs beside a measured
    search makes an event of a kind of its own. A block that fails leaves no record. ``read_page`` is as in
    ``ebs_statistics``; ``counters`` reads those of members on another machine, while other clients continue.
    """

    async def read() -> list[dict[str, float]]:
        if counters:
            return await asyncio.to_thread(counters)
        return counters_of(members, read_page)  # faster than changing threads

    begin = await read()
    started = time.time()
    more: dict[str, Any] = {}
    yield more
    ended = time.time()
    end = await _settled(read)
    fields: dict[str, Any] = {
        "task": block.task,
        "round": block.round,
        "requests": 1,
        "started_s": started,
        "begin": _added_up(begin, members),
        "end": _added_up(end, members),
        **more,
    }
    if len(members) > 1:
        names = [member.volume.spec.name for member in members]
        both = zip(begin, end, strict=True)
        fields["nodes"] = {
            name: {"begin": first, "end": last} for name, (first, last) in zip(names, both, strict=True)
        }
    kind = "beside" if block.phase is Phase.BESIDE else "io"
    folder.event(Event(at_s=ended, kind=kind, arm=block.arm, fields=fields))


async def _settled(read: Callable[[], Awaitable[list[dict[str, float]]]]) -> list[dict[str, float]]:
    """Counters once nothing is in flight: a request's readahead belongs to it.

    Processor counters are those at its answer: afterwards processors work for other requests.
    """
    first = now = await read()
    for _ in range(_SETTLE_TIMES - 1):
        if not any(each.get(IN_FLIGHT) for each in now):
            break
        await asyncio.sleep(_SETTLE_S)
        now = await read()
    return [
        {**last, **{name: value for name, value in at_once.items() if "processor" in name}}
        for last, at_once in zip(now, first, strict=True)
    ]


def counters_of(members: Sequence[Member], read_page: ReadPage | None = None) -> list[dict[str, float]]:
    return [
        snapshot(
            member.volume,
            read_state=read_state,
            processor_time=member.node.processor_time if member.node else None,
            read_more=partial(_exceeded, read_page),
        )
        for member in members
    ]


def _added_up(counters: Sequence[Mapping[str, float]], members: Sequence[Member]) -> dict[str, float]:
    """Sum of counters that all have; machine-wide processor counters are common to all nodes."""
    machines = {member.volume.spec.host: each for member, each in zip(members, counters, strict=True)}
    return {
        name: sum(each[name] for each in (machines.values() if name.startswith("processor.") else counters))
        for name in counters[0]
        if all(name in each for each in counters)
    }


def _exceeded(read_page: ReadPage | None, volume: Volume) -> dict[str, float]:
    """Seconds that an EBS volume's limits have been exceeded; empty for other volumes."""
    statistics = _statistics(volume, read_page)
    values = [] if statistics is None else statistics.read(time.monotonic())
    return {value.metric: value.value for value in values if value.metric.startswith("ebs.exceeded_s.")}


@cache
def _statistics(volume: Volume, read_page: ReadPage | None) -> EbsStatistics | None:
    """A volume's statistics, looked up once; per-second telemetry reports why there are none."""
    try:
        return ebs_statistics(volume, read_page=read_page)
    except (EbsError, OSError):
        return None
