"""Whose session is it, and does that process still live? The one part of the store that asks the machine."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from esrally_ebs.system import Process


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that cannot be mistaken for another, on this or any machine, before or after a reboot."""

    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def here(cls) -> Self:
        """This process."""
        process = Process.of(os.getpid())
        return cls(os.getpid(), process.start_ticks if process else 0, _boot_id())

    @classmethod
    def parse(cls, table: Mapping[str, Any]) -> Self:
        """As stored in ``session.json``."""
        return cls(int(table["pid"]), int(table["start_ticks"]), str(table["boot_id"]))

    @property
    def alive(self) -> bool:
        """True while that very process runs on this very machine."""
        return self.boot_id == _boot_id() and Process(self.pid, self.start_ticks).alive


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux: nothing was ever run here
        return ""
