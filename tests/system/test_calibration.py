"""Emulated volumes calibrated where their data are, on the real kernel; all is gone after each test."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from attached import open_volume
from emulated_arms import control_of, daemon_of, lay_out, spec_of

from esrally_ebs.errors import SetupError
from esrally_ebs.volumes import backends as volumes
from esrally_ebs.volumes.emulated.control import read_state

pytestmark = pytest.mark.system


def test_a_volume_is_calibrated_again_by_reads_of_its_data_and_one_without_is_left_alone(
    arms: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_from: set[str] = set()
    preadv = os.preadv

    def watched(descriptor: int, *more: Any) -> int:  # noqa: ANN401 - passed on as it is
        read_from.add(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        return preadv(descriptor, *more)

    monkeypatch.setattr(os, "preadv", watched)
    with open_volume(spec_of("a"), arms / "a") as full, open_volume(spec_of("b"), arms / "b") as empty:
        read_from.clear()  # what attaching read
        lay_out(full, 64)
        (data,) = (file for file in full.mount.iterdir() if file.is_file())
        before = data.read_bytes()
        counts = [read_state(control_of(volume)).reads for volume in (full, empty)]

        errors = volumes.calibrate_on_data([full, empty])

        states = [read_state(control_of(volume)) for volume in (full, empty)]
        grown = [state.reads - count for state, count in zip(states, counts, strict=True)]
        assert read_from == {str(data)}
        assert errors.keys() == {"a"}
        assert all(0 < error_s < 50e-6 for error_s in errors["a"].values())
        assert grown[0] > 1000
        assert grown[1] == 0
        assert not any(state.unlimited for state in states)
        assert list(full.mount.iterdir()) == [data]
        with data.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            assert file.read() == before


def test_a_volume_that_dies_before_or_while_it_is_calibrated_is_one_line(arms: Path) -> None:
    with open_volume(spec_of(), arms / "a") as volume:
        lay_out(volume, 64)
        with ThreadPoolExecutor(1) as pool:
            calibrating = pool.submit(volumes.calibrate_on_data, [volume])
            time.sleep(0.5)
            daemon_of(volume).signal(signal.SIGKILL)
            with pytest.raises(SetupError, match=r"while they were calibrated|does not answer"):
                calibrating.result(timeout=30)
        with pytest.raises(SetupError, match=r"while they were calibrated|does not answer"):
            volumes.calibrate_on_data([volume])
