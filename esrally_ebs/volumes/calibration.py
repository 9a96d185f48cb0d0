"""What the path to an emulated volume costs by itself, measured once at the start and taken off every wait.

The daemon is told to hold every I/O for a fixed time; single direct I/Os on a file of the mounted file system
then take that time plus the path's own: system call, file system, loop device, FUSE, wake-ups, and copies.
Copies grow with the I/O, so a small and a large size give a line: seconds per I/O and seconds per byte.
"""

import contextlib
import mmap
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from esrally_ebs.emulator.control import change
from esrally_ebs.units import KIB

Line = tuple[float, float]  # seconds, seconds per byte

_SMALL_BYTES, _LARGE_BYTES = 16 * KIB, 256 * KIB
_SLOTS = 16
_HELD_S = 400e-6  # longer than the path itself, and in the range of the services to come
_BLOCKS = 5
_PER_BLOCK = 60
_MOST_S = 120e-6  # for a small I/O; more than this is a machine under load, not a path
_MOST_COPYING_S = 200e-6  # for what a large one takes longer


def calibrate(control: Path, mount: Path) -> tuple[Line, Line]:
    """Measure and set the overhead of reads and of writes; returns both.

    Takes about 0.7 s. Of each block the fast quarter counts, and of the blocks the fastest, as other work on
    the machine only ever adds.
    """
    change(control, overhead_read=(0.0, 0.0), overhead_write=(0.0, 0.0), unlimited=True)
    probe = mount / ".calibration"
    memory = mmap.mmap(-1, _LARGE_BYTES)  # direct I/O needs page-aligned memory
    descriptor = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
    try:
        for slot in range(_SLOTS):
            os.pwrite(descriptor, memory, slot * _LARGE_BYTES)
        os.fsync(descriptor)
        change(control, fixed_latency_s=_HELD_S, unlimited=False)
        read = _measured(memory, lambda buffer, at: os.preadv(descriptor, (buffer,), at))
        write = _measured(memory, lambda buffer, at: os.pwrite(descriptor, buffer, at))
    finally:
        os.close(descriptor)
        memory.close()
        with contextlib.suppress(OSError):
            probe.unlink()
    change(control, fixed_latency_s=None, overhead_read=read, overhead_write=write)
    return read, write


def _measured(memory: mmap.mmap, transfer: Callable[[memoryview, int], int]) -> Line:
    with memoryview(memory) as large, large[:_SMALL_BYTES] as small:
        small_s = min(_MOST_S, max(0.0, _overhead(lambda at: transfer(small, at))))
        copying_s = min(_MOST_COPYING_S, max(0.0, _overhead(lambda at: transfer(large, at)) - small_s))
    per_byte = copying_s / (_LARGE_BYTES - _SMALL_BYTES)
    return max(0.0, small_s - per_byte * _SMALL_BYTES), per_byte


def _overhead(transfer: Callable[[int], int]) -> float:
    blocks = [[_seconds(transfer, number) for number in range(_PER_BLOCK)] for _ in range(_BLOCKS)]
    return min(statistics.quantiles(block)[0] for block in blocks) - _HELD_S


def _seconds(transfer: Callable[[int], int], number: int) -> float:
    offset = number % _SLOTS * _LARGE_BYTES
    start = time.perf_counter()
    transfer(offset)
    return time.perf_counter() - start
