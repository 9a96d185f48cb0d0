"""The reaper's wait."""

import subprocess

import pytest

from esrally_ebs.machine.processes import Process
from esrally_ebs.session import reaper


def test_records_are_forced_to_disk_until_a_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaper, "_SYNC_EVERY_S", 0.01)
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    process = Process.of(child.pid)
    assert process is not None
    calls: list[int] = []

    def meanwhile() -> None:
        calls.append(1)
        if len(calls) == 3:
            child.communicate(b"")

    assert reaper.watch([process], meanwhile) == process
    assert len(calls) == 3
