"""The line of all processors in /proc/stat: this kernel's own, a made one, and what is none."""

import os
from pathlib import Path

import pytest

from esrally_ebs.errors import FormatError
from esrally_ebs.machine.procfs import parse_proc_stat

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def test_busy_is_all_but_idle_waiting_and_stolen_time() -> None:
    times = parse_proc_stat("cpu  100 20 30 4000 500 6 7 80 9 10\ncpu0 1 1 1 1 1 1 1 1 1 1\n", "stat")

    assert times.busy_s == pytest.approx((100 + 20 + 30 + 6 + 7) * TICK_S)
    assert times.stolen_s == pytest.approx(80 * TICK_S)
    assert times.total_s == pytest.approx((143 + 20 + 4000 + 500 + 80) * TICK_S)  # guests are users' time


def test_this_machines_own_file_is_understood() -> None:
    times = parse_proc_stat(Path("/proc/stat").read_text(), "/proc/stat")

    assert times.busy_s > 0
    assert times.stolen_s >= 0


@pytest.mark.parametrize("text", ["", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3 4 5 6 7", "cpu 1 2 3 4 5 6 7 x"])
def test_what_is_not_that_line_is_named(text: str) -> None:
    with pytest.raises(FormatError, match=r"^stat:1: "):
        parse_proc_stat(text, "stat")
