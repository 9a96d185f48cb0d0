"""Sources of telemetry: a block device, a memory cgroup, an emulated volume's limiters, EBS.

A source returns its values at each call, or raises.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

from esrally_ebs.aws.ebs_statistics import Bin, LogPage, StatisticsReader
from esrally_ebs.aws.identity import identify
from esrally_ebs.errors import MeasurementError
from esrally_ebs.machine.disks import Sort
from esrally_ebs.machine.kernel_trees import Roots
from esrally_ebs.machine.procfs import (
    DISKSTATS,
    DiskCounters,
    MemoryCounters,
    ReadText,
    parse_diskstats,
    parse_memory_stat,
)
from esrally_ebs.model import Kind, Node, Volume

ReadState = Callable[[Path], object]
ReadWork = Callable[[Node], Mapping[str, Mapping[str, float]]]

_TIMES_WRAP_S = 2**32 / 1000  # printed in 32-bit milliseconds: 64 I/Os in flight wrap them in 18.6 hours

EXCEEDED: Mapping[str, str] = {  # limit, under the emulator's name -> counter in us
    "iops": "ebs_volume_performance_exceeded_iops",
    "throughput": "ebs_volume_performance_exceeded_tp",
    "instance-iops": "ec2_instance_ebs_performance_exceeded_iops",
    "instance-throughput": "ec2_instance_ebs_performance_exceeded_tp",
}
_GROWING = (
    ("ebs.reads", "total_read_ops", 1.0, ""),
    ("ebs.writes", "total_write_ops", 1.0, ""),
    ("ebs.read_bytes", "total_read_bytes", 1.0, "B"),
    ("ebs.write_bytes", "total_write_bytes", 1.0, "B"),
    ("ebs.read_time_s", "total_read_time", 1e-6, "s"),
    ("ebs.write_time_s", "total_write_time", 1e-6, "s"),
)


ReadPage = Callable[[str, int], LogPage]  # current page of an arm's disk, numbered from 0


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    metric: str
    value: float
    unit: str


# Values at that time of the monotonic clock; rates need an earlier call.
Source = Callable[[float], list[Value]]


class Device:
    """Rates and waits of one block device, from the growth of its counters between calls."""

    def __init__(self, device: str, read_text: ReadText) -> None:
        self._device = device
        self._read_text = read_text
        self._before: tuple[float, DiskCounters] | None = None

    def read(self, now_s: float) -> list[Value]:
        """``in_flight`` at every call, the rest from the second call on."""
        before, self._before = self._before, None  # rates restart after a failure
        now = parse_diskstats(self._read_text(DISKSTATS), str(DISKSTATS)).get(self._device)
        if now is None:
            raise MeasurementError(f"{DISKSTATS}: device {self._device} has gone; is the arm still attached?")
        self._before = (now_s, now)
        values = [Value("device.in_flight", now.in_flight, "")]
        if before is not None and now_s > before[0]:
            values += _rates(before[1], now, now_s - before[0])
        return values


def _rates(before: DiskCounters, now: DiskCounters, interval_s: float) -> Iterator[Value]:
    reads = now.reads - before.reads
    writes = now.writes - before.writes
    if reads < 0 or writes < 0:
        raise MeasurementError(
            f"{DISKSTATS}: device {now.device} has begun anew; was the arm attached again?"
        )
    yield Value("device.reads_per_s", reads / interval_s, "1/s")
    yield Value("device.writes_per_s", writes / interval_s, "1/s")
    yield Value("device.read_bytes_per_s", (now.read_bytes - before.read_bytes) / interval_s, "B/s")
    yield Value("device.write_bytes_per_s", (now.written_bytes - before.written_bytes) / interval_s, "B/s")
    weighted_s, read_s, write_s = (
        (getattr(now, name) - getattr(before, name)) % _TIMES_WRAP_S
        for name in ("weighted_s", "read_s", "write_s")
    )
    yield Value("device.queue_depth", weighted_s / interval_s, "")
    if reads:  # without requests there is no wait, not one of 0
        yield Value("device.read_await_s", read_s / reads, "s")
    if writes:
        yield Value("device.write_await_s", write_s / writes, "s")


class Memory:
    def __init__(self, cgroup: Path, read_text: ReadText) -> None:
        self._path = cgroup / "memory.stat"
        self._read_text = read_text
        self._before: tuple[float, MemoryCounters] | None = None

    def read(self, now_s: float) -> list[Value]:
        """Sizes at every call, the rate of major faults from the second call on."""
        before, self._before = self._before, None
        now = parse_memory_stat(self._read_text(self._path), str(self._path))
        self._before = (now_s, now)
        values = [
            Value("memory.cache_bytes", now.cache_bytes, "B"),
            Value("memory.mapped_file_bytes", now.mapped_file_bytes, "B"),
            Value("memory.rss_bytes", now.rss_bytes, "B"),
        ]
        if before is not None and now_s > before[0]:
            faults = now.major_faults - before[1].major_faults
            values.append(Value("memory.major_faults_per_s", faults / (now_s - before[0]), "1/s"))
        return values


def limiters(control: Path, read_state: ReadState) -> list[Value]:
    """All numbers in an emulated volume's state, named by their paths: ``emulator.levels.iops``."""
    return list(_numbers(("emulator",), read_state(control)))


def index_work(node: Node, read_work: ReadWork) -> list[Value]:
    """Merges and refreshes of a node's open indices: current ones, and totals since they were opened.

    Totals restart when indices are reopened; empty while none is open.
    """
    total = read_work(node)
    if not total:
        return []
    merges, refreshes = total["merges"], total["refresh"]
    return [
        Value("index.merging", merges["current"], ""),
        Value("index.merges", merges["total"], ""),
        Value("index.merge_s", merges["total_time_in_millis"] / 1000, "s"),
        Value("index.refreshes", refreshes["total"], ""),
        Value("index.refresh_s", refreshes["total_time_in_millis"] / 1000, "s"),
    ]


def _numbers(path: tuple[str, ...], state: object) -> Iterator[Value]:
    if isinstance(state, bool | int | float):
        yield Value(".".join(path), float(state), _unit(path))
    elif isinstance(state, Mapping):
        for name, inner in state.items():
            yield from _numbers((*path, str(name)), inner)
    elif dataclasses.is_dataclass(state):
        for field in dataclasses.fields(state):
            yield from _numbers((*path, field.name), getattr(state, field.name))


def _unit(path: tuple[str, ...]) -> str:
    """Unit of a number, which by this pack's rule ends its name."""
    for suffix, unit in (("_bytes", "B"), ("_s", "s")):
        if any(name.endswith(suffix) for name in path):
            return unit
    return "s" if path[-1].startswith("seconds_") else ""


class EbsStatistics:
    """Growth of all counters and of histogram bins, and the current queue.

    Volumes of an arm are added up. Only ``ebs.exceeded_s.<limit>`` is a total: seconds since attachment in
    which demand exceeded what the volume or its instance allows; for striped volumes the mean, as demand, and
    their instance's count, come at the same time.
    """

    def __init__(self, readers: Sequence[Callable[[], LogPage]]) -> None:
        """``readers`` read the current page of one volume each."""
        self._readers = readers
        self._before: list[LogPage] | None = None

    def read(self, now_s: float) -> list[Value]:
        """Queue and exceeded times at every call, growth from the second call on."""
        before, self._before = self._before, None  # growth restarts after a failure
        now = [read() for read in self._readers]
        self._before = now
        queue = sum(page.counters["volume_queue_length"] for page in now)
        values = [Value("ebs.queue_length", queue, "")]
        for limit, counter in EXCEEDED.items():
            exceeded_us = fmean(page.counters[counter] for page in now)
            values.append(Value(f"ebs.exceeded_s.{limit}", exceeded_us / 1e6, "s"))
        if before is not None:
            values += _growth(before, now)
        return values


def ebs_statistics(
    volume: Volume, roots: Roots | None = None, *, read_page: ReadPage | None = None
) -> EbsStatistics | None:
    """The source for an arm; None if none of its disks has such statistics.

    ``read_page`` reads them; None: this process, which must be root.
    """
    readers = [
        partial(read_page, volume.spec.name, number) if read_page is not None else reader.read
        for number, reader in enumerate(readers_of(volume, roots))
    ]
    return EbsStatistics(readers) if readers else None


def readers_of(volume: Volume, roots: Roots | None = None) -> list[StatisticsReader]:
    """A reader for each of an arm's disks with such statistics; reading, but not finding, needs root."""
    roots = roots or Roots()
    if volume.kind is Kind.EMULATED or volume.device is None:
        return []
    disks = identify(volume.mount, roots).stack.disks
    return [
        StatisticsReader(roots.dev / disk.name)
        for disk in disks
        if disk.name.startswith("nvme") and disk.sort in (Sort.EBS, Sort.INSTANCE_STORE)
    ]


def _growth(before: Sequence[LogPage], now: Sequence[LogPage]) -> Iterator[Value]:
    for metric, counter, scale, unit in _GROWING:
        grown = [new.counters[counter] - old.counters[counter] for old, new in zip(before, now, strict=True)]
        if min(grown) < 0:  # of any member: growth of others would hide it in the sum
            raise MeasurementError(f"EBS statistics: {counter} has begun anew; was a volume attached again?")
        yield Value(metric, sum(grown) * scale, unit)
    yield from _bins("ebs.reads_us", [page.reads for page in before], [page.reads for page in now])
    yield from _bins("ebs.writes_us", [page.writes for page in before], [page.writes for page in now])


def _bins(metric: str, before: Sequence[tuple[Bin, ...]], now: Sequence[tuple[Bin, ...]]) -> Iterator[Value]:
    grown: dict[tuple[int, int], int] = {}
    for old, new in zip(before, now, strict=True):
        counts = {(each.lower_us, each.upper_us): each.count for each in old}
        for each in new:
            edges = (each.lower_us, each.upper_us)
            count = (each.count - counts.get(edges, 0)) % 2**32  # 32 bits: wraps on a busy volume
            if count:
                grown[edges] = grown.get(edges, 0) + count
    for (lower, upper), count in grown.items():
        yield Value(f"{metric}.{lower}-{upper}", count, "")
