"""One fio job into the record: fio's rows, and the volume's counters right before and right after it."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import golden_session
import pytest
from small_plan import small_plan

from esrally_ebs.analysis.profile import FIO, profiles_of, read_windows
from esrally_ebs.plan import BaselineJob
from esrally_ebs.session import measure
from esrally_ebs.store import SessionFolder
from esrally_ebs.store.context import Arm, Member

JOB = BaselineJob(name="j", rw="read", bs=16384, numjobs=1)


def test_the_counters_of_a_job_leave_its_layout_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = SessionFolder.create(tmp_path, "s", kind="baseline", plan=small_plan())
    counters = {"device.reads": 5.0, "emulator.reads": 5.0, "emulator.waited_s.iops": 1.0}

    def does(reads: float, waited_s: float) -> None:
        counters["device.reads"] += reads
        counters["emulator.reads"] += reads
        counters["emulator.waited_s.iops"] += waited_s

    def run_job(*_: object, refill: Callable[[], float], **__: object) -> tuple[str, list[Any]]:
        does(1000, 9.0)  # the layout of fio's file
        refill()
        does(64, 0.25)
        return "{}", [golden_session.fio("gp2", 0, "read", 1000.0)]

    monkeypatch.setattr(measure, "snapshot", lambda volume, **_: dict(counters))
    monkeypatch.setattr(measure, "wait_refilled", lambda volume, clock: 0.0)
    monkeypatch.setattr(measure.baseline, "run_job", run_job)
    context: Any = SimpleNamespace(folder=folder.path, fio_pid_file=tmp_path / "pid")
    arm = Arm(name="gp2", cluster="default", members=(Member(volume=golden_session.arm("gp2")),))

    measure.measure_baseline(context, arm, JOB, 1)

    profiles = profiles_of(read_windows(folder.events(), FIO)[0])
    assert profiles["j", "gp2"][1].grown == {
        "device.reads": 64,
        "emulator.reads": 64,
        "emulator.waited_s.iops": 0.25,
    }
    (note,) = [event for event in folder.events() if event.kind == "baseline"]
    assert note.fields["waited_s"] == {"iops": 0.25}
