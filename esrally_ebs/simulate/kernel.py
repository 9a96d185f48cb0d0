"""The event loop of virtual time: one fio job against one volume's buckets and latencies, no sleeping.

Plain numbers and sequences in and out, so that the very same functions run as Python (a small job, at once)
and compiled by numba (a large one, after some seconds of compiling), with equal results.
"""

import heapq
import math
from collections.abc import Callable, MutableSequence, Sequence
from typing import Any, NamedTuple

from esrally_ebs.emulator.latency import drawn_s
from esrally_ebs.emulator.limits import Buckets, admit, charged_bytes, operations_of

DEVICE_REQUEST_BYTES = (
    256 * 1024
)  # the emulated device's max_sectors_kb: larger I/Os are split before they arrive
BINS = 29 * 64  # of latency: 64 to each power of two of nanoseconds, as fio has them


class VolumeState(NamedTuple):
    """A volume's buckets, which a job changes, and its service times by direction (read, write)."""

    buckets: Buckets
    max_io_bytes: int
    merge_over_bytes: int
    least_bytes: int
    base_s: Sequence[float]
    per_byte_s: Sequence[float]
    sigma: Sequence[float]


class Load(NamedTuple):
    """A fio job as numbers."""

    clones: int
    depth: int  # I/Os that each clone keeps in flight
    block_bytes: int
    ios_per_clone: int  # at most
    until_s: float  # no I/O is begun later than this after the job's start
    sequential: bool
    file_bytes: int
    between_s: float  # what the machine takes from the end of an I/O to the beginning of the next


class Draws(NamedTuple):
    """Chance, drawn beforehand and used in order, from the start again when it is used up."""

    normals: Sequence[float]  # of the standard normal distribution
    writes: Sequence[bool]  # the direction of each I/O


class Tally(NamedTuple):
    """What became of a job, by direction (read, write)."""

    bins: Sequence[MutableSequence[int]]  # I/Os by latency
    total_s: MutableSequence[float]  # latencies added up
    most_s: MutableSequence[float]
    least_s: MutableSequence[float]
    # Both directions, by the second in which they were done; seconds beyond the last place do not count.
    done_in_second: MutableSequence[int] = ()  # type: ignore[assignment]
    latency_in_second: MutableSequence[float] = ()  # type: ignore[assignment]


def bin_of(nanoseconds: float) -> int:
    """The bin of a latency."""
    if nanoseconds < 64.0:
        return max(0, int(nanoseconds))
    mantissa, exponent = math.frexp(nanoseconds)  # mantissa in [0.5, 1)
    return min(BINS - 1, (exponent - 7) * 64 + int(mantissa * 128.0))


def record(tally: Tally, write: int, took_s: float, done_s: float) -> None:
    """Count one I/O that was done at ``done_s`` after the job's start."""
    tally.bins[write][bin_of(took_s * 1e9)] += 1
    tally.total_s[write] += took_s
    tally.most_s[write] = max(tally.most_s[write], took_s)
    tally.least_s[write] = min(tally.least_s[write], took_s)
    second = int(done_s)
    if second < len(tally.done_in_second):
        tally.done_in_second[second] += 1
        tally.latency_in_second[second] += took_s


def transfer(
    volume: VolumeState,
    draws: Draws,
    block_bytes: int,
    write: int,
    issued: int,
    continues: bool,
    now_s: float,
) -> float:
    """The seconds that one I/O takes: as long as the slowest of the requests that it is split into."""
    took_s = 0.0
    requests = -(-block_bytes // DEVICE_REQUEST_BYTES)
    for request in range(requests):
        size = min(DEVICE_REQUEST_BYTES, block_bytes - request * DEVICE_REQUEST_BYTES)
        merges = continues or request > 0
        charged = charged_bytes(size, merges, volume.max_io_bytes, volume.merge_over_bytes)
        wait_s = admit(
            volume.buckets,
            0,
            len(volume.buckets.rates),
            0,
            write,
            operations_of(size, volume.max_io_bytes),
            max(charged, volume.least_bytes),
            now_s,
        )
        median_s = volume.base_s[write] + volume.per_byte_s[write] * size
        normal = draws.normals[(issued * requests + request) % len(draws.normals)]
        took_s = max(took_s, wait_s + drawn_s(median_s, volume.sigma[write], normal))
    return took_s


def serve(volume: VolumeState, load: Load, draws: Draws, tally: Tally) -> float:
    """Run the job on a volume whose levels are those of this moment; the seconds until all I/Os are done."""
    slots = [(0.0, slot) for slot in range(load.clones * load.depth)]  # when each is free to begin an I/O
    left = [load.ios_per_clone for _ in range(load.clones)]
    positions = [0 for _ in range(2 * load.clones)]  # each clone reads and writes from positions of its own
    blocks = max(1, load.file_bytes // load.block_bytes)
    issued = 0
    now_s = 0.0
    end_of_last = -1
    while len(slots) > 0:
        now_s, slot = slots[0]
        clone = slot // load.depth
        if left[clone] == 0 or now_s >= load.until_s:
            heapq.heappop(slots)
            continue
        left[clone] -= 1
        write = 1 if draws.writes[issued % len(draws.writes)] else 0
        offset = -2  # a random I/O never goes on where the last one ended
        if load.sequential:
            offset = positions[2 * clone + write] % blocks * load.block_bytes
            positions[2 * clone + write] += 1
        continues = offset == end_of_last
        took_s = transfer(volume, draws, load.block_bytes, write, issued, continues, now_s)
        record(tally, write, took_s, now_s + took_s)
        heapq.heapreplace(slots, (now_s + took_s + load.between_s, slot))
        issued += 1
        end_of_last = offset + load.block_bytes if load.sequential else -1
    return now_s


def compiled() -> Callable[[VolumeState, Load, Draws, Tally], float]:
    """``serve`` as machine code; takes some seconds, once per process."""
    # only here: a job of less than a second in Python does not wait for numba
    from numba import njit
    from numba.extending import register_jitable

    for function in (admit, charged_bytes, operations_of, drawn_s, bin_of, record, transfer):
        register_jitable(function)
    kernel: Any = njit(serve)
    return kernel  # type: ignore[no-any-return]
