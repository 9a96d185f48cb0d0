"""What the path to an emulated volume costs by itself, measured once at the start and taken off every wait.

The daemon is told to hold every I/O for a fixed time; single direct I/Os of 16 KiB on a file of the mounted
file system then take that time plus the path's own: system call, file system, loop device, FUSE, wake-ups.
"""

import contextlib
import mmap
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from esrally_ebs.emulator.control import change

_PROBE_BYTES = 16 * 1024
_SLOTS = 64
_HELD_S = 400e-6  # longer than the path itself, and in the range of the services to come
_BLOCKS = 5
_PER_BLOCK = 60
_MOST_S = 120e-6  # more than this is a machine under load, not a path


def calibrate(control: Path, mount: Path) -> tuple[float, float]:
    """Measure and set the overhead of reads and of writes; returns both in seconds.

    Takes about 0.5 s. Of each block the fast quarter counts, and of the blocks the fastest, as other work on
    the machine only ever adds.
    """
    change(control, overhead_read_s=0.0, overhead_write_s=0.0, unlimited=True)
    probe = mount / ".calibration"
    buffer = mmap.mmap(-1, _PROBE_BYTES)  # direct I/O needs page-aligned memory
    descriptor = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
    try:
        for slot in range(_SLOTS):
            os.pwrite(descriptor, buffer, slot * _PROBE_BYTES)
        os.fsync(descriptor)
        change(control, fixed_latency_s=_HELD_S, unlimited=False)
        read_s = _overhead(lambda offset: os.preadv(descriptor, [buffer], offset))
        write_s = _overhead(lambda offset: os.pwrite(descriptor, buffer, offset))
    finally:
        os.close(descriptor)
        buffer.close()
        with contextlib.suppress(OSError):
            probe.unlink()
    change(control, fixed_latency_s=None, overhead_read_s=read_s, overhead_write_s=write_s)
    return read_s, write_s


def _overhead(transfer: Callable[[int], int]) -> float:
    blocks = [[_seconds(transfer, number) for number in range(_PER_BLOCK)] for _ in range(_BLOCKS)]
    fastest = min(statistics.quantiles(block)[0] for block in blocks)
    return min(_MOST_S, max(0.0, fastest - _HELD_S))


def _seconds(transfer: Callable[[int], int], number: int) -> float:
    offset = number % _SLOTS * _PROBE_BYTES
    start = time.perf_counter()
    transfer(offset)
    return time.perf_counter() - start
