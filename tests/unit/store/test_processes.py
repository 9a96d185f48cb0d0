"""A session folder that several processes write, or whose process is killed."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from esrally_ebs.model import Event, State
from esrally_ebs.store import SessionFolder, list_sessions, load_session


def test_another_process_may_write_at_the_same_time(folder: SessionFolder) -> None:
    code = f"""
        from pathlib import Path
        from esrally_ebs.model import Event
        from esrally_ebs.store import SessionFolder
        folder = SessionFolder(Path({str(folder.path)!r}))
        for number in range(50):
            folder.event(Event(at_s=number, kind="child", fields={{"text": "x" * 500}}))
            folder.add_warning(f"child {{number % 5}}")
    """
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)])
    for number in range(50):
        folder.event(Event(at_s=number, kind="parent", fields={"text": "y" * 500}))
        folder.add_warning(f"parent {number % 5}")
    assert child.wait(timeout=20) == 0
    session = load_session(folder.path)
    assert sum(event.kind == "child" for event in session.events) == 50
    assert sum(event.kind == "parent" for event in session.events) == 50
    assert len(session.warnings) == 10


def test_a_killed_session_is_listed_as_failed_and_loses_less_than_five_seconds(tmp_path: Path) -> None:
    code = f"""
        import sys, time
        from pathlib import Path
        sys.path.insert(0, {str(Path(__file__).parents[2] / "support")!r})
        from dataclasses import replace
        from esrally_ebs.store import SessionFolder
        from small_plan import small_plan
        from stored import SAMPLE
        folder = SessionFolder.create(Path({str(tmp_path)!r}), "killed", kind="race", plan=small_plan())
        writer = folder.part_writer("samples")
        while True:
            writer.add([replace(SAMPLE, started_s=time.time())])
            print("row", flush=True)
            time.sleep(0.01)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        running = list_sessions(tmp_path)
        parts = tmp_path / "sessions" / "killed" / "samples"
        while not any(parts.glob("part-*")) and child.poll() is None:
            time.sleep(0.02)
        time.sleep(0.5)  # half-way to the next flush
        killed_at = time.time()
        os.kill(child.pid, signal.SIGKILL)
    assert [(one.id, one.state) for one in running] == [("killed", State.RUNNING)]
    summary = list_sessions(tmp_path)[0]
    assert (summary.state, summary.reason) == (State.FAILED, "its process ended without saying so")
    session = load_session(summary.path)
    assert session.state is State.FAILED
    last = max(session.samples["started_s"].to_pylist())
    assert killed_at - last < 5.0
