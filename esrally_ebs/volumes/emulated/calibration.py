"""What the path to an emulated volume costs by itself, measured before it counts and timed off every wait.

The daemon is told for how long to hold each I/O; direct I/Os on a file of the mounted file system then take
that time plus the path's own: system call, file system, loop device, FUSE, wake-ups, and copies. Copies grow
with the I/O, so a small and a large size give a line: seconds per I/O and seconds per byte. I/Os beside
others take longer than alone, as the processors and the daemon have both to serve, so that is measured apart,
with reads and writes mixed by two threads.

A copy also takes longer from some memory than from other, by up to 10 us for 110 KiB. A new volume can only
be measured on a small file; one that holds data is measured again where they are (``calibrate_on_data``).
Without that, of two alike volumes one read up to 2.5 % slower for a whole session. By as much as that measure
is off, reads are off for a whole session, too, which no round of it can tell: so it takes seconds, and says
how much that may be.
"""

import contextlib
import itertools
import math
import mmap
import os
import random
import signal
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from esrally_ebs.units import KIB
from esrally_ebs.volumes.emulated.control import change
from esrally_ebs.volumes.emulated.daemon.admission import NO_OVERHEAD, spread_over

Line = tuple[float, float]  # seconds, seconds per byte
Overhead = tuple[tuple[Line, Line], tuple[Line, Line]]  # alone and beside others, of reads and of writes
ReadErrors = dict[int, float]  # by bytes of a read: standard error of what it is off by, s

_SIZES = _SMALL_BYTES, _LARGE_BYTES = 16 * KIB, 256 * KIB
_SLOTS = 16
_ALONE_S = (400e-6, 400e-6)  # longer than the path itself, and in the range of the services to come
_BESIDE_S = (300e-6, 500e-6)  # any time between, so that I/Os do not fall into step
_ROUNDS, _ROUNDS_OF_READS = 20, 160
_PER_BLOCK = 8  # I/Os of each thread
MAX_PATH_S = 250e-6  # more than this is a machine under load, not a path
_SEED = 1
_OPS = _READ, _WRITE = 0, 1


def calibrate_in(control: Path, mount: Path) -> Overhead:
    """``calibrate`` with a file of its own in a mounted file system."""
    with _probe_in(mount) as probe:
        return calibrate(control, probe)


def calibrate(control: Path, probe: Path) -> Overhead:
    """Measure and set the overhead of reads and of writes on a file or an empty device; returns it.

    The first 4 MiB of ``probe`` are overwritten. Takes about half a second. Blocks of every kind take turns,
    and of each kind the median counts: what is typical of the whole time, without what other work adds now
    and then.
    """
    with _opened(control, probe, ()) as path:
        return _measured([path])[0]


def calibrate_on_data(mounts: Mapping[Path, Path]) -> dict[Path, ReadErrors]:
    """``calibrate`` again volumes that hold data, by turns, with reads of their data; takes 3 s for each.

    ``mounts``: control socket to mount. By control socket, what reads may be off by; a volume without a file
    of 4 MiB keeps what it has.
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
    """The way to a volume, without overhead timed off; ``data``: files to read instead of the probe."""
    change(control, overhead=NO_OVERHEAD, unlimited=True)
    with contextlib.ExitStack() as stack:

        def opened(file: Path, flags: int) -> int:
            # an interrupt in between would leave it open, and its volume attached
            usual = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
            try:
                descriptor = os.open(file, flags | os.O_DIRECT | os.O_NOFOLLOW, 0o600)
                stack.callback(os.close, descriptor)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, usual)
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
    """The way to one volume's files, whose I/Os are timed in blocks."""

    control: Path
    _written: int  # descriptor of what is written to
    _read: Mapping[int, int]  # descriptor of what is read -> how many places of the large size it has
    _memory: Mapping[int, mmap.mmap]
    _pool: ThreadPoolExecutor
    _chance: random.Random = field(default_factory=lambda: random.Random(_SEED))
    _alone: dict[tuple[int, int], list[float]] = field(default_factory=_nothing)
    _beside: dict[tuple[int, int], list[float]] = field(default_factory=_nothing)

    def measure(self, ops: Sequence[int]) -> None:
        """A block of each kind: I/Os of one direction alone, and of these directions beside others."""
        change(self.control, fixed_latency_s=_ALONE_S, unlimited=False)
        for op, size in itertools.product(ops, _SIZES):
            self._alone[op, size].extend(s - _ALONE_S[0] for _, _, s in self._timed([op] * _PER_BLOCK, size))
        for size in _SIZES:
            self._block_beside(ops, size)

    def overhead(self) -> Overhead:
        """Alone and beside others, of reads and of writes."""
        return _lines(self._alone), _lines(self._beside)

    def read_errors(self) -> ReadErrors:
        """Of the less certain of reads alone and beside others."""
        kinds = self._alone, self._beside
        return {size: max(_error_of_median(kind[_READ, size]) for kind in kinds) for size in _SIZES}

    def _block_beside(self, ops: Sequence[int], size: int) -> None:
        """I/Os of two threads, which come to the daemon in the order in which they begin."""
        change(self.control, fixed_latency_s=_BESIDE_S)
        orders = [self._chance.choices(ops, k=_PER_BLOCK) for _ in range(2)]
        both = self._pool.map(lambda order: self._timed(order, size), orders)
        held_s = spread_over(*_BESIDE_S)
        for _, op, seconds in sorted(itertools.chain(*both)):
            self._beside[op, size].append(seconds - next(held_s))

    def _timed(self, order: Sequence[int], size: int) -> list[tuple[float, int, float]]:
        """One I/O after the other: when each began, which it was, what it took."""
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
        """A descriptor and a slot of its file; of what is read, every slot of every file as likely."""
        if op == _WRITE:
            return self._written, self._chance.randrange(_SLOTS)
        (descriptor,) = self._chance.choices(list(self._read), weights=list(self._read.values()))
        return descriptor, self._chance.randrange(self._read[descriptor])


def _error_of_median(values: Sequence[float]) -> float:
    """That of a normal distribution as wide as their middle two thirds."""
    sixths = statistics.quantiles(values, n=6)
    return math.sqrt(math.pi / 2 / len(values)) * (sixths[-1] - sixths[0]) / 2


def _lines(measured: Mapping[tuple[int, int], Sequence[float]]) -> tuple[Line, Line]:
    """Of reads and of writes, through the overhead of a small and of a large I/O; lines that do not fall."""
    typical = {kind: min(MAX_PATH_S, max(0.0, statistics.median(s))) for kind, s in measured.items()}
    lines = []
    for op in _OPS:
        small_s, large_s = (typical[op, size] for size in _SIZES)
        per_byte = max(0.0, large_s - small_s) / (_LARGE_BYTES - _SMALL_BYTES)
        lines.append((max(0.0, small_s - per_byte * _SMALL_BYTES), per_byte))
    return lines[_READ], lines[_WRITE]
