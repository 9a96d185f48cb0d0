"""What calibrating leaves behind when it is ended."""

import os
import signal
from pathlib import Path

import pytest

from esrally_ebs.volumes.emulated import calibration


def test_an_interrupt_while_the_probe_is_opened_leaves_it_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its volume could not be detached by the command that was interrupted."""
    opened = os.open

    def interrupted(*words: object) -> int:
        descriptor = opened(*words)  # type: ignore[arg-type]
        signal.raise_signal(signal.SIGINT)
        return descriptor

    monkeypatch.setattr(os, "open", interrupted)
    monkeypatch.setattr(calibration, "change", lambda *_, **__: None)
    with pytest.raises(KeyboardInterrupt):
        calibration.calibrate_in(tmp_path / "control", tmp_path)
    monkeypatch.undo()
    places = [str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    assert not any(".calibration" in place for place in places)
    assert list(tmp_path.iterdir()) == []
