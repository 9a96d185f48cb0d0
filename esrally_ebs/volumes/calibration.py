"""What the path to an emulated volume costs by itself, measured once at the start and taken off every wait.

The daemon is told to hold every I/O for some time and adds up for how long; direct I/Os on a file of the
mounted file system then take that time plus the path's own: system call, file system, loop device, FUSE,
wake-ups, and copies. Copies grow with the I/O, so a small and a large size give a line: seconds per I/O and
seconds per byte. I/Os beside others take longer than alone, as the processors and the daemon have both to
serve, so that is measured apart, with reads and writes mixed by two threads.
"""

import contextlib
import mmap
import os
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from esrally_ebs.emulator.admission import NO_OVERHEAD
from esrally_ebs.emulator.control import change, read_state
from esrally_ebs.units import KIB

Line = tuple[float, float]  # seconds, seconds per byte
Overhead = tuple[tuple[Line, Line], tuple[Line, Line]]  # alone and beside others, of reads and of writes

_SIZES = _SMALL_BYTES, _LARGE_BYTES = 16 * KIB, 256 * KIB
_SLOTS = 16
_ALONE_S = (400e-6, 400e-6)  # longer than the path itself, and in the range of the services to come
_BESIDE_S = (300e-6, 500e-6)  # any time between, so that I/Os do not fall into step
_ROUNDS = 20
_PER_BLOCK = 8  # I/Os of each thread
_MOST_S = 250e-6  # more than this is a machine under load, not a path
_SEED = 1
_OPS = _READ, _WRITE = 0, 1
_NAMES = ("read", "write")


def calibrate_in(control: Path, mount: Path) -> Overhead:
    """``calibrate`` with a file of its own in a mounted file system."""
    probe = mount / ".calibration"
    probe.touch(mode=0o600)
    try:
        return calibrate(control, probe)
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()


def calibrate(control: Path, probe: Path) -> Overhead:
    """Measure and set the overhead of reads and of writes on a file or an empty device; returns it.

    The first 4 MiB of ``probe`` are overwritten. Takes about a second. Blocks of every kind take turns, and
    of each kind the median counts: what is typical of the whole second, without what other work adds now and
    then.
    """
    change(control, overhead=NO_OVERHEAD, unlimited=True)
    with contextlib.ExitStack() as stack:
        descriptor = os.open(probe, os.O_RDWR | os.O_DIRECT)
        stack.callback(os.close, descriptor)
        memory = {size: stack.enter_context(mmap.mmap(-1, size)) for size in _SIZES}  # page-aligned
        for slot in range(_SLOTS):
            os.pwrite(descriptor, memory[_LARGE_BYTES], slot * _LARGE_BYTES)
        os.fsync(descriptor)
        pool = stack.enter_context(ThreadPoolExecutor(2))
        overhead = _Path(control, descriptor, memory, pool).overhead()
    change(control, fixed_latency_s=None, unlimited=False, overhead=overhead)
    return overhead


class _Path:
    """The way to one file, whose I/Os are timed in blocks."""

    def __init__(
        self, control: Path, descriptor: int, memory: Mapping[int, mmap.mmap], pool: ThreadPoolExecutor
    ) -> None:
        self._control = control
        self._descriptor = descriptor
        self._memory = memory
        self._pool = pool
        self._chance = random.Random(_SEED)

    def overhead(self) -> Overhead:
        """Alone and beside others, of reads and of writes."""
        alone: dict[tuple[int, int], list[float]] = {(op, size): [] for op in _OPS for size in _SIZES}
        beside: dict[tuple[int, int], list[float]] = {(op, size): [] for op in _OPS for size in _SIZES}
        for _ in range(_ROUNDS):
            change(self._control, fixed_latency_s=_ALONE_S, unlimited=False)
            for op, size in alone:
                alone[op, size] += [s - _ALONE_S[0] for _, s in self._timed([op] * _PER_BLOCK, size)]
            change(self._control, fixed_latency_s=_BESIDE_S)
            for size in _SIZES:
                for op, seconds in self._block_beside(size):
                    beside[op, size].append(seconds)
        return _lines(alone), _lines(beside)

    def _block_beside(self, size: int) -> list[tuple[int, float]]:
        """What an average read and an average write of two threads took longer than they were held."""
        before = read_state(self._control).target_s
        orders = [self._chance.choices(_OPS, k=_PER_BLOCK) for _ in range(2)]
        taken = [
            one for part in self._pool.map(lambda order: self._timed(order, size), orders) for one in part
        ]
        after = read_state(self._control).target_s
        means = []
        for op, name in zip(_OPS, _NAMES, strict=True):
            seconds = [s for kind, s in taken if kind == op]
            if seconds:
                means.append((op, (sum(seconds) - (after[name] - before[name])) / len(seconds)))
        return means

    def _timed(self, order: Sequence[int], size: int) -> list[tuple[int, float]]:
        """One I/O after the other."""
        taken = []
        memory = self._memory[size]
        for op in order:
            offset = self._chance.randrange(_SLOTS) * _LARGE_BYTES
            start = time.perf_counter()
            if op == _WRITE:
                os.pwrite(self._descriptor, memory, offset)
            else:
                os.preadv(self._descriptor, (memory,), offset)
            taken.append((op, time.perf_counter() - start))
        return taken


def _lines(found: Mapping[tuple[int, int], Sequence[float]]) -> tuple[Line, Line]:
    """Of reads and of writes, through the overhead of a small and of a large I/O; lines that do not fall."""
    typical = {kind: min(_MOST_S, max(0.0, statistics.median(s))) for kind, s in found.items()}
    lines = []
    for op in _OPS:
        small_s, large_s = (typical[op, size] for size in _SIZES)
        per_byte = max(0.0, large_s - small_s) / (_LARGE_BYTES - _SMALL_BYTES)
        lines.append((max(0.0, small_s - per_byte * _SMALL_BYTES), per_byte))
    return lines[_READ], lines[_WRITE]
