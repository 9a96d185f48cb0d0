"""EBS detailed performance statistics (NVMe log page 0xD0): parses bytes or a tool's JSON into a LogPage.

Layout as in ``ebsnvme`` (amazon-ec2-utils) and the ``amzn`` plug-in of nvme-cli: little endian, 4096 bytes
(the further 4096 of an instance store, by I/O size, are not read). Counters run from attach to detach (an
instance store's from the instance's start); times are microseconds, as the device counts them.
"""

import ctypes
import errno
import fcntl
import json
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esrally_ebs.errors import FormatError, SetupError
from esrally_ebs.machine.processes import run as run_tool
from esrally_ebs.machine.processes import which as find_tool

PAGE_BYTES = 4096

_MAGIC = frozenset({0x3C23B510, 0xEC2C0D7E})  # EBS's, and an instance store's
_HEAD = struct.Struct("<2I11Q")  # magic, version, then the eleven counters
_HISTOGRAMS = (512, 2056)  # offsets of the reads' and the writes'
_BIN = struct.Struct("<2Q2I")  # lower, upper, count, reserved
_MAX_BINS = 64

COUNTERS = (
    "total_read_ops",
    "total_write_ops",
    "total_read_bytes",
    "total_write_bytes",
    "total_read_time",
    "total_write_time",
    "ebs_volume_performance_exceeded_iops",
    "ebs_volume_performance_exceeded_tp",
    "ec2_instance_ebs_performance_exceeded_iops",
    "ec2_instance_ebs_performance_exceeded_tp",
    "volume_queue_length",
)
_OTHER_NAMES = {  # in newer releases of nvme-cli
    "ec2_instance_ebs_performance_exceeded_iops": "ec2_instance_performance_exceeded_iops",
    "ec2_instance_ebs_performance_exceeded_tp": "ec2_instance_performance_exceeded_tp",
}


@dataclass(frozen=True, slots=True)
class Bin:
    """I/Os that took from ``lower_us`` to ``upper_us``."""

    lower_us: int
    upper_us: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPage:
    """The whole page: counters under the names of Amazon's own tool, and latency histograms."""

    counters: Mapping[str, int]  # COUNTERS; *_time and *_exceeded_* in us; the queue length is of this moment
    reads: tuple[Bin, ...]
    writes: tuple[Bin, ...]


def parse_log_page(page: bytes, source: str) -> LogPage:
    """Parse a device's answer; ``source`` names it in messages.

    Raises FormatError for other bytes: too short, another magic, impossible bins.
    """
    if len(page) < PAGE_BYTES:
        raise _broken(source, f"{len(page)} bytes, a page has {PAGE_BYTES}")
    magic, _, *counters = _HEAD.unpack_from(page)
    if magic not in _MAGIC:
        raise _broken(
            source, f"it begins with 0x{magic:08X}, not with the mark of EBS or of an instance store"
        )
    reads, writes = (_histogram(page, offset, source) for offset in _HISTOGRAMS)
    return LogPage(counters=dict(zip(COUNTERS, counters, strict=True)), reads=reads, writes=writes)


def parse_stats_json(text: str, source: str) -> LogPage:
    """Parse output of ``ebsnvme stats -j`` or ``nvme amzn stats -o json`` (same for EBS and others).

    Raises FormatError for other text.
    """
    try:
        fields = json.loads(text)
        counters = {name: _whole(_named(fields, name)) for name in COUNTERS}
        reads = _bins_of_json(fields["read_io_latency_histogram"])
        writes = _bins_of_json(fields["write_io_latency_histogram"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _broken(source, f"not the JSON of ebsnvme or nvme amzn ({error!r})") from error
    for bins in (reads, writes):
        _check_bins(bins, source)
    return LogPage(counters=counters, reads=reads, writes=writes)


def _histogram(page: bytes, offset: int, source: str) -> tuple[Bin, ...]:
    (number,) = struct.unpack_from("<Q", page, offset)
    if number > _MAX_BINS:
        raise _broken(source, f"a histogram of {number} bins at byte {offset}, there is room for {_MAX_BINS}")
    unpacked = (_BIN.unpack_from(page, offset + 8 + at * _BIN.size) for at in range(number))
    bins = tuple(Bin(lower, upper, count) for lower, upper, count, _ in unpacked)
    _check_bins(bins, source)
    return bins


def _check_bins(bins: Sequence[Bin], source: str) -> None:
    before = -1
    for bin_ in bins:
        if not before <= bin_.lower_us <= bin_.upper_us:
            raise _broken(
                source, f"a bin from {bin_.lower_us} to {bin_.upper_us} us after one to {before} us"
            )
        before = bin_.upper_us


def _named(fields: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - JSON
    return fields[name] if name in fields else fields[_OTHER_NAMES.get(name, name)]


def _bins_of_json(histogram: Mapping[str, Any]) -> tuple[Bin, ...]:
    return tuple(
        Bin(*(_whole(bin_[name]) for name in ("lower", "upper", "count"))) for bin_ in histogram["bins"]
    )


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def _broken(source: str, what: str) -> FormatError:
    return FormatError(
        f"{source}: not a page of EBS performance statistics: {what}; is it an EBS volume on Nitro?"
    )


ADMIN_COMMAND = 0xC0484E41  # NVME_IOCTL_ADMIN_CMD: read and write, 72 bytes, 'N', 0x41
# opcode, flags, reserved, nsid, cdw2, cdw3, metadata, address, metadata length, data length, cdw10 to 15,
# timeout, result: struct nvme_admin_cmd of linux/nvme_ioctl.h
COMMAND = struct.Struct("<BBHIIIQQII6III")
_GET_LOG_PAGE = 0x02
_LOG_PAGE = 0xD0
_NAMESPACE = 1
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOTTY, errno.EOPNOTSUPP})
_TOOL_S = 5.0

Ioctl = Callable[[int, int, bytearray], int]


class StatisticsReader:
    """Reads one disk's log page whenever asked."""

    def __init__(
        self,
        device: Path,
        *,
        ioctl: Ioctl = fcntl.ioctl,
        run: Callable[..., str] = run_tool,
        which: Callable[[str], str | None] = find_tool,
    ) -> None:
        self._device = device
        self._ioctl = ioctl
        self._run = run
        self._which = which
        self._descriptor: int | None = None
        self._tool: list[str] | None = None

    def read(self) -> LogPage:
        """The current page.

        Raises SetupError if neither ioctl nor a tool can read it, FormatError if it is no such page.
        """
        if self._tool is None:
            try:
                return parse_log_page(self._page(), str(self._device))
            except OSError as error:
                self.close()
                if error.errno not in _REFUSED:
                    raise SetupError(
                        f"{self._device}: its statistics cannot be read: {error.strerror}; is it attached?"
                    ) from error
                self._tool = self._other_way(error)
        text = self._run([*self._tool, self._device], timeout_s=_TOOL_S)
        return parse_stats_json(text, f"{self._tool[0]} {self._device}")

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _page(self) -> bytes:
        if self._descriptor is None:
            self._descriptor = os.open(self._device, os.O_RDONLY | os.O_CLOEXEC)
        page = ctypes.create_string_buffer(PAGE_BYTES)
        command = bytearray(command_for(ctypes.addressof(page)))
        status = self._ioctl(self._descriptor, ADMIN_COMMAND, command)
        if status:  # the device's status: it has no such page
            raise OSError(errno.EOPNOTSUPP, f"NVMe status 0x{status:X}")
        return page.raw

    def _other_way(self, refused: OSError) -> list[str]:
        for tool, *words in (("ebsnvme", "stats", "-j"), ("nvme", "amzn", "stats", "-o", "json")):
            if self._which(tool):
                return [tool, *words]
        raise SetupError(
            f"{self._device}: its statistics need root ({refused.strerror}), and neither ebsnvme nor nvme is"
            " there; run as root, or install amazon-ec2-utils"
        )


def command_for(address: int) -> bytes:
    """The kernel's command for Get Log Page 0xD0 to ``address``."""
    page = _LOG_PAGE | (PAGE_BYTES // 4 - 1) << 16  # number of 32-bit words, minus 1
    return COMMAND.pack(
        _GET_LOG_PAGE, 0, 0, _NAMESPACE, 0, 0, 0, address, 0, PAGE_BYTES, page, *[0] * 5, 0, 0
    )
