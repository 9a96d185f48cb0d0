"""What calibrating leaves behind when it is ended."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from esrally_ebs.volumes.emulated import calibration


def test_an_interrupt_while_the_probe_is_opened_leaves_it_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its volume could not be detached by the interrupted command, whichever thread got the signal."""
    opened, done = os.open, threading.Event()
    another = threading.Thread(target=done.wait)

    def interrupted(*words: object) -> int:
        descriptor = opened(*words)  # type: ignore[arg-type]
        assert another.ident is not None
        signal.pthread_kill(another.ident, signal.SIGINT)
        time.sleep(0.05)  # until it has come
        return descriptor

    monkeypatch.setattr(os, "open", interrupted)
    monkeypatch.setattr(calibration, "change", lambda *_, **__: None)
    another.start()
    with pytest.raises(KeyboardInterrupt):
        calibration.calibrate_in(tmp_path / "control", tmp_path)
    done.set()
    monkeypatch.undo()
    places = [str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    assert not any(".calibration" in place for place in places)
    assert list(tmp_path.iterdir()) == []
