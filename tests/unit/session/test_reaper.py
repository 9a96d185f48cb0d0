"""The reaper's wait."""

import subprocess
import sys
from pathlib import Path

import pytest

from esrally_ebs.errors import SetupError
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


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")  # as it is meant to be
def test_who_starts_it_can_wait_until_it_watches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ESRALLY_EBS_RUN", str(tmp_path / "run"))
    with subprocess.Popen(["sleep", "60"]) as watched:
        wait = reaper.start("s", tmp_path, [watched.pid])
        wait()
        watched.kill()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(SetupError, match="the session's reaper did not start"):
        reaper.start("s", tmp_path, [])()
