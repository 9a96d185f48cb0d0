"""Whether the process that owns a session lives: what the store asks of the machine."""

import os
from dataclasses import replace
from pathlib import Path

from esrally_ebs.machine.kernel_trees import text
from esrally_ebs.machine.processes import Process
from esrally_ebs.model import State
from esrally_ebs.store.session import Owner, SessionRecord


def this_process() -> Owner:
    """The process that asks, as the owner of what it makes."""
    process = Process.of(os.getpid())
    return Owner(os.getpid(), process.start_ticks if process else 0, _boot_id())


def as_it_ended(record: SessionRecord) -> SessionRecord:
    """The record; a session whose process died without a word is failed."""
    if record.state is not State.RUNNING or _lives(record.owner):
        return record
    return replace(record, state=State.FAILED, reason="its process ended without saying so")


def _lives(owner: Owner) -> bool:
    return owner.boot_id == _boot_id() and Process(owner.pid, owner.start_ticks).alive


def _boot_id() -> str:
    return text(Path("/proc/sys/kernel/random/boot_id"))  # empty where nothing was ever run: no Linux
