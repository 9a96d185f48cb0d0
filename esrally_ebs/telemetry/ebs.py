"""A telemetry source: the EBS performance statistics of an arm's volumes, as they grew since the last second.

Several volumes of one arm are added up. ``ebs.exceeded_s.<limit>`` alone does not tell growth: it is the time
since the volume was attached for which more was asked than it, or its instance, lets through.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from esrally_ebs.aws.ebs_statistics import Bin, LogPage, StatisticsReader
from esrally_ebs.aws.identity import identify
from esrally_ebs.errors import MeasurementError
from esrally_ebs.machine.disks import Sort
from esrally_ebs.machine.kernel_trees import Roots
from esrally_ebs.model import Kind, Volume
from esrally_ebs.telemetry.sources import Value

EXCEEDED: Mapping[str, str] = {  # limit, named as the emulator names it -> counter, in us
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


ReadPage = Callable[[str, int], LogPage]  # the page now, of an arm's disk of that number, from 0


class EbsStatistics:
    """Growth of all counters and of those bins that grew, and the queue of this moment."""

    def __init__(self, readers: Sequence[Callable[[], LogPage]]) -> None:
        """``readers`` give one volume's page of this moment each."""
        self._readers = readers
        self._before: list[LogPage] | None = None

    def read(self, now_s: float) -> list[Value]:
        """The queue and what was exceeded from the first call on, growth from the second on."""
        before, self._before = self._before, None  # after a failure growth begins anew
        now = [read() for read in self._readers]
        self._before = now
        queue = sum(page.counters["volume_queue_length"] for page in now)
        values = [Value("ebs.queue_length", queue, "")]
        for limit, counter in EXCEEDED.items():
            exceeded_us = sum(page.counters[counter] for page in now)
            values.append(Value(f"ebs.exceeded_s.{limit}", exceeded_us / 1e6, "s"))
        if before is not None:
            values += _growth(before, now)
        return values


def ebs_statistics(
    volume: Volume, roots: Roots | None = None, *, read_page: ReadPage | None = None
) -> EbsStatistics | None:
    """The source for an arm; None when none of its disks has such statistics.

    ``read_page`` is who reads them; None: this process, which must be root.
    """
    readers = [
        partial(read_page, volume.spec.name, number) if read_page is not None else reader.read
        for number, reader in enumerate(readers_of(volume, roots))
    ]
    return EbsStatistics(readers) if readers else None


def readers_of(volume: Volume, roots: Roots | None = None) -> list[StatisticsReader]:
    """One for each disk of an arm that has such statistics; found without root, which reading needs."""
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
        if min(grown) < 0:  # of any member: the growth of the others would hide it in the sum
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
            count = (each.count - counts.get(edges, 0)) % 2**32  # 32 bits: it goes round on a busy volume
            if count:
                grown[edges] = grown.get(edges, 0) + count
    for (lower, upper), count in grown.items():
        yield Value(f"{metric}.{lower}-{upper}", count, "")
