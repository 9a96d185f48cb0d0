"""Measures the time that the path to an emulated volume takes, to subtract it from every wait.

The daemon is told how long to hold each I/O. Direct I/Os on a file of the mounted file system then take that
time plus the path's: system call, file system, loop device, FUSE, wake-ups, and copies. Copies grow with the
I/O, so a small and a large size give a line: seconds per I/O and seconds per byte. I/Os beside others take
longer than alone, since processors and daemon serve both; this is measured separately, with reads and writes
mixed by two threads.

A copy also takes longer from some memory than from other, by up to 10 us for 110 KiB. A new volume can be
measured on a small file only; one with data is measured again where the data are (``calibrate_on_data``).
Without that, one of two equal volumes read up to 2.5 % slower for a whole session. The error of this
measurement, too, lasts for a whole session, and no round can show it: so it takes seconds, and returns how
large the error may be.
"""

import contextlib
import itertools
import math
import mmap
import os
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from esrally_ebs.machine.signals import interrupts_later
from esrally_ebs.units import KIB
from esrally_ebs.volumes.emulated.control import change
from esrally_ebs.volumes.emulated.daemon.admission import NO_OVERHEAD, spread_over

Line = tuple[float, float]  # seconds, seconds per byte
Overhead = tuple[tuple[Line, Line], tuple[Line, Line]]  # alone, then beside others; each for reads and writes
ReadErrors = dict[int, float]  # by bytes of a read: standard error of its time (s)

_SIZES = _SMALL_BYTES, _LARGE_BYTES = 16 * KIB, 256 * KIB
_SLOTS = 16
_ALONE_S = (400e-6, 400e-6)  # longer than the path itself, and typical of service times
_BESIDE_S = (300e-6, 500e-6)  # varied, so that I/Os do not fall into step
_ROUNDS, _ROUNDS_OF_READS = 20, 160
_PER_BLOCK = 8  # I/Os of each thread
MAX_PATH_S = 250e-6  # a longer path means that the machine is under load
_SEED = 1
_OPS = _READ, _WRITE = 0, 1


def calibrate_in(control: Path, mount: Path) -> Overhead:
    """``calibrate`` with a temporary file in a mounted file system."""
    with _probe_in(mount) as probe:
        return calibrate(control, probe)


def calibrate(control: Path, probe: Path) -> Overhead:
    """Measure, set and return the overhead of reads and writes on a file or an empty device.

    Overwrites the first 4 MiB of ``probe``; takes about half a second. Blocks of every kind alternate, and
    the median of each kind counts: typical of the whole time, without what other work adds now and then.
    """
    with _opened(control, probe, ()) as path:
        return _measured([path])[0]


def calibrate_on_data(mounts: Mapping[Path, Path]) -> dict[Path, ReadErrors]:
    """Recalibrate volumes with data, in turn, with reads of their data; takes 3 s for each.

    ``mounts``: control socket to mount. Returns the error of reads by control socket; a volume without a file
    of 4 MiB keeps its calibration.
    """
    with contextlib.ExitStack() as stack:
        paths = []
        for control, mount in mounts.items():
            if files := _large_files(mount):
                probe = stack.enter_context(_probe_in(mount))
                paths.append(stack.enter_context(_opened(control, probe, files)))
        _measured(paths, _ROUNDS_OF_READS)
        return {path.control: path.read_errors() for path in paths}


def _large_files(mount: Path) -> list[Path]:
    files = (Path(folder) / name for folder, _, names in os.walk(mount) for name in names)
    return [file for file in files if file.is_file() and file.stat().st_size >= _SLOTS * _LARGE_BYTES]


@contextmanager
def _probe_in(mount: Path) -> Iterator[Path]:
    probe = mount / ".calibration"
    try:
        yield probe
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()


def _measured(paths: Sequence["_Path"], rounds_of_reads: int = 0) -> list[Overhead]:
    for ops in (*[_OPS] * _ROUNDS, *[(_READ,)] * rounds_of_reads):
        for path in paths:
            path.measure(ops)
    overheads = [path.overhead() for path in paths]
    for path, overhead in zip(paths, overheads, strict=True):
        change(path.control, fixed_latency_s=None, unlimited=False, overhead=overhead)
    return overheads


@contextmanager
def _opened(control: Path, probe: Path, data: Sequence[Path]) -> Iterator["_Path"]:
    """Files of a volume with overhead and limits switched off; ``data`` are read instead of the probe."""
    change(control, overhead=NO_OVERHEAD, unlimited=True)
    with contextlib.ExitStack() as stack:

        def opened(file: Path, flags: int) -> int:
            with interrupts_later():  # one in between would leave it open, and its volume attached
                descriptor = os.open(file, flags | os.O_DIRECT | os.O_NOFOLLOW, 0o600)
                stack.callback(os.close, descriptor)
            return descriptor

        written = opened(probe, os.O_RDWR | os.O_CREAT)
        memory = {size: stack.enter_context(mmap.mmap(-1, size)) for size in _SIZES}  # page-aligned
        for slot in range(_SLOTS):
            os.pwrite(written, memory[_LARGE_BYTES], slot * _LARGE_BYTES)
        os.fsync(written)
        read = {opened(file, os.O_RDONLY): file.stat().st_size // _LARGE_BYTES for file in data}
        pool = stack.enter_context(ThreadPoolExecutor(2))
        yield _Path(control, written, read or {written: _SLOTS}, memory, pool)


def _nothing() -> dict[tuple[int, int], list[float]]:
    return {(op, size): [] for op in _OPS for size in _SIZES}


@dataclass(frozen=True)
class _Path:
    """Files of one volume; times I/Os on them in blocks."""

    control: Path
    _written: int  # descriptor for writes
    _read: Mapping[int, int]  # descriptor for reads -> number of large slots in the file
    _memory: Mapping[int, mmap.mmap]
    _pool: ThreadPoolExecutor
    _chance: random.Random = field(default_factory=lambda: random.Random(_SEED))
    _alone: dict[tuple[int, int], list[float]] = field(default_factory=_nothing)
    _beside: dict[tuple[int, int], list[float]] = field(default_factory=_nothing)

    def measure(self, ops: Sequence[int]) -> None:
        """Time a block of each kind: I/Os of each direction alone, then mixed beside others."""
        change(self.control, fixed_latency_s=_ALONE_S, unlimited=False)
        for op, size in itertools.product(ops, _SIZES):
            self._alone[op, size].extend(s - _ALONE_S[0] for _, _, s in self._timed([op] * _PER_BLOCK, size))
        for size in _SIZES:
            self._block_beside(ops, size)

    def overhead(self) -> Overhead:
        """Overhead alone and beside others, each for reads and writes."""
        return _lines(self._alone), _lines(self._beside)

    def read_errors(self) -> ReadErrors:
        """Standard error by read size; the larger one of reads alone and beside others."""
        kinds = self._alone, self._beside
        return {size: max(_error_of_median(kind[_READ, size]) for kind in kinds) for size in _SIZES}

    def _block_beside(self, ops: Sequence[int], size: int) -> None:
        """I/Os of two threads, in the order in which they began."""
        change(self.control, fixed_latency_s=_BESIDE_S)
        orders = [self._chance.choices(ops, k=_PER_BLOCK) for _ in range(2)]
        with interrupts_later():  # one while a thread starts would leave it at work on closed descriptors
            both = list(self._pool.map(lambda order: self._timed(order, size), orders))
        held_s = spread_over(*_BESIDE_S)
        for _, op, seconds in sorted(itertools.chain(*both)):
            self._beside[op, size].append(seconds - next(held_s))

    def _timed(self, order: Sequence[int], size: int) -> list[tuple[float, int, float]]:
        """Sequential I/Os: begin, direction and duration of each."""
        timed = []
        memory = self._memory[size]
        for op in order:
            descriptor, slot = self._place(op)
            offset = slot * _LARGE_BYTES
            start = time.perf_counter()
            if op == _WRITE:
                os.pwrite(descriptor, memory, offset)
            else:
                os.preadv(descriptor, (memory,), offset)
            timed.append((start, op, time.perf_counter() - start))
        return timed

    def _place(self, op: int) -> tuple[int, int]:
        """A descriptor and a slot of its file; for reads, every slot of every file is equally likely."""
        if op == _WRITE:
            return self._written, self._chance.randrange(_SLOTS)
        (descriptor,) = self._chance.choices(list(self._read), weights=list(self._read.values()))
        return descriptor, self._chance.randrange(self._read[descriptor])


def _error_of_median(values: Sequence[float]) -> float:
    """Standard error of the median, for a normal distribution as wide as their middle two thirds."""
    sixths = statistics.quantiles(values, n=6)
    return math.sqrt(math.pi / 2 / len(values)) * (sixths[-1] - sixths[0]) / 2


def _lines(measured: Mapping[tuple[int, int], Sequence[float]]) -> tuple[Line, Line]:
    """Lines for reads and writes through the overheads of a small and a large I/O; never falling."""
    typical = {kind: min(MAX_PATH_S, max(0.0, statistics.median(s))) for kind, s in measured.items()}
    lines = []
    for op in _OPS:
        small_s, large_s = (typical[op, size] for size in _SIZES)
        per_byte = max(0.0, large_s - small_s) / (_LARGE_BYTES - _SMALL_BYTES)
        lines.append((max(0.0, small_s - per_byte * _SMALL_BYTES), per_byte))
    return lines[_READ], lines[_WRITE]
