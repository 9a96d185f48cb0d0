"""Reads EBS performance statistics of a disk: by ioctl, or by the tools that may when the ioctl is refused.

A StatisticsReader keeps its device open: once a second costs one ioctl of 4 KiB. AWS asks for no more than
that.
"""

import ctypes
import errno
import fcntl
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

from esrally_ebs import system
from esrally_ebs.errors import SetupError
from esrally_ebs.formats.ebs_log_page import (
    DETAILED_BYTES,
    PAGE_BYTES,
    LogPage,
    parse_log_page,
    parse_stats_json,
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
    """One disk's log page, each time that it is asked for."""

    def __init__(
        self,
        device: Path,
        *,
        detailed: bool = False,
        ioctl: Ioctl = fcntl.ioctl,
        run: Callable[..., str] = system.run,
        which: Callable[[str], str | None] = shutil.which,
    ) -> None:
        """``detailed`` asks for the larger page of an instance store."""
        self._device = device
        self._bytes = DETAILED_BYTES if detailed else PAGE_BYTES
        self._ioctl = ioctl
        self._run = run
        self._which = which
        self._descriptor: int | None = None
        self._tool: list[str] | None = None

    def read(self) -> LogPage:
        """The page now.

        Raises SetupError when neither ioctl nor a tool gives it, FormatError for a page that is none.
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
        """Let go of the device."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _page(self) -> bytes:
        if self._descriptor is None:
            self._descriptor = os.open(self._device, os.O_RDONLY | os.O_CLOEXEC)
        page = ctypes.create_string_buffer(self._bytes)
        command = bytearray(command_for(ctypes.addressof(page), self._bytes))
        status = self._ioctl(self._descriptor, ADMIN_COMMAND, command)
        if status:  # the device's own: it has no such page
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


def command_for(address: int, length: int) -> bytes:
    """Get Log Page 0xD0 of ``length`` bytes to ``address``, as the kernel takes it."""
    dwords = length // 4 - 1  # counted from 0
    return COMMAND.pack(
        _GET_LOG_PAGE, 0, 0, _NAMESPACE, 0, 0, 0, address, 0, length, _LOG_PAGE | dwords << 16, *[0] * 5, 0, 0
    )
