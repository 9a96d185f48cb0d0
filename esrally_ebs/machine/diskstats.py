"""``/proc/diskstats``: text in, the counters of each block device out (kernel: admin-guide/iostats)."""

from dataclasses import dataclass

from esrally_ebs.errors import FormatError
from esrally_ebs.machine.disks import SECTOR_BYTES

_FIELDS = 14  # since Linux 2.6; discards (4.18) and flushes (5.5) come after


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskCounters:
    """What one device has done since it appeared; all but ``in_flight`` only ever grow (and may wrap)."""

    device: str  # kernel name, e.g. "loop3"
    reads: int  # requests completed
    read_bytes: int
    read_s: float  # time of all reads added up, from queueing to completion
    writes: int
    written_bytes: int
    write_s: float
    in_flight: int
    busy_s: float  # time during which at least one request was in flight
    weighted_s: float  # in-flight requests integrated over time: its rate is the mean queue depth


def parse_diskstats(text: str, source: str) -> dict[str, DiskCounters]:
    """Counters by kernel device name.

    ``source`` names the text in messages. Raises FormatError for a line that is not of this form.
    """
    parsed = (_counters(line, f"{source}:{number}") for number, line in enumerate(text.splitlines(), 1))
    return {counters.device: counters for counters in parsed}


def _counters(line: str, where: str) -> DiskCounters:
    words = line.split()
    if len(words) < _FIELDS or not all(word.isdigit() for word in words[:2] + words[3:_FIELDS]):
        raise FormatError(f"{where}: {line!r} is not a line of diskstats; give the text of /proc/diskstats")
    n = [int(word) for word in words[3:_FIELDS]]
    return DiskCounters(
        device=words[2],
        reads=n[0],
        read_bytes=n[2] * SECTOR_BYTES,
        read_s=n[3] / 1000,
        writes=n[4],
        written_bytes=n[6] * SECTOR_BYTES,
        write_s=n[7] / 1000,
        in_flight=n[8],
        busy_s=n[9] / 1000,
        weighted_s=n[10] / 1000,
    )
