"""State of virtual time's kernel, as lists or arrays of plain numbers; and fio's histogram."""

import math
from bisect import bisect_left
from collections.abc import MutableSequence, Sequence
from itertools import accumulate
from typing import NamedTuple

from esrally_ebs.volumes.emulated.law.buckets import Buckets

# The device's max_sectors_kb, unless the type allows larger I/Os (1 MiB for HDD types): larger I/Os are split
# before they arrive.
REQUEST_BYTES = 256 * 1024

# Kinds of statistics for a job's reads or writes: seconds from submission to completion of an I/O, seconds
# until its submission, both together; and I/Os per period that had any.
COMPLETION, SUBMISSION, WHOLE, RATE = range(4)
KINDS = 4
PERIOD_S = 0.5  # fio's bwavgtime and iopsavgtime

BINS = 29 * 64  # 64 per power of two of nanoseconds, like fio; the last ends at 17 s


class Devices(NamedTuple):
    """The volumes under load, single or striped, as numbers by volume."""

    first: Sequence[int]  # first bucket of its first member
    own: Sequence[int]  # buckets per member
    stripes: Sequence[int]
    chunk_bytes: Sequence[int]
    max_io_bytes: Sequence[int]
    merge_over_bytes: Sequence[int]
    least_bytes: Sequence[int]
    base_s: Sequence[float]  # service times: for reads at 2 i, for writes at 2 i + 1
    per_byte_s: Sequence[float]
    sigma: Sequence[float]
    queue: Sequence[int]  # requests that the device holds
    next_offset: MutableSequence[int]  # by a member's first bucket: where its last request ended
    paid_to: MutableSequence[int]  # likewise: offset up to which I/O has been charged


class FioJobs(NamedTuple):
    """fio jobs that begin together, as numbers by job."""

    device: Sequence[int]
    clones: Sequence[int]
    depth: Sequence[int]  # I/Os in flight per clone
    sync: Sequence[bool]  # whether latency includes the time to submit
    block_bytes: Sequence[int]
    ios_per_clone: Sequence[int]  # at most
    from_s: Sequence[float]  # I/Os done earlier than this after the job's start are not counted
    until_s: Sequence[float]  # no I/O begins later than this after the job's start
    gap_s: Sequence[float]  # least time between I/Os of a clone; 0: no rate
    sequential: Sequence[bool]
    file_bytes: Sequence[int]


class Host(NamedTuple):
    shared: int  # number of last buckets that are the instance's
    between_s: float  # from the end of an I/O to the beginning of the clone's next
    again: float  # probability that the clone with the last place in a full queue also gets the next one


class RandomDraws(NamedTuple):
    """Random numbers drawn in advance, used in order and reused from the start."""

    normals: Sequence[float]  # of the standard normal distribution
    uniforms: Sequence[float]  # of [0, 1)
    writes: Sequence[bool]  # whether each I/O is a write, jobs one after another
    first_write: Sequence[int]  # by job: index of its directions; and their number
    write_count: Sequence[int]


class Tally(NamedTuple):
    """Results of the jobs: reads of job j at 2 j, its writes at 2 j + 1."""

    bins: Sequence[MutableSequence[int]]  # I/Os by completion latency
    # Sums, sums of squares and extremes, with the kinds of a row side by side.
    total: MutableSequence[float]
    squares: MutableSequence[float]
    most: MutableSequence[float]
    least: MutableSequence[float]
    ended_s: MutableSequence[float]  # by job
    period: MutableSequence[int]  # by row: last period with I/Os, its I/Os, and the number of earlier periods
    in_period: MutableSequence[int]
    periods: MutableSequence[int]
    # By second of completion, all jobs together; empty unless requested, later seconds are not counted.
    done_in_second: MutableSequence[int]
    latency_in_second: MutableSequence[float]


class KernelState(NamedTuple):
    """Progress of processes, devices and random numbers."""

    job_of: Sequence[int]  # by process, like the following ones
    left: MutableSequence[int]
    asked_s: MutableSequence[float]  # when it began to submit
    waited: MutableSequence[bool]  # whether its submission found the queue full
    positions: MutableSequence[int]  # for reads at 2 p, for writes at 2 p + 1
    # I/Os in flight: per process, a heap of completion times from flying_first on, and their ids.
    flying_first: Sequence[int]
    flying_count: MutableSequence[int]
    done_s: MutableSequence[float]
    flight: MutableSequence[int]
    begun_s: MutableSequence[float]  # by id, like the following ones; begun, and at the device
    submitted_s: MutableSequence[float]
    write: MutableSequence[int]
    # Requests at a device: per device, a heap of completion times.
    tag_first: Sequence[int]
    tag_count: MutableSequence[int]
    tag_s: MutableSequence[float]
    tag: MutableSequence[int]
    waiting: MutableSequence[int]  # by device, room for all processes: those that found it full
    waiting_count: MutableSequence[int]
    favoured: MutableSequence[int]  # by device: the process that got the last place
    issued: MutableSequence[int]  # by job
    used: MutableSequence[int]  # normals and uniforms used so far
    event_s: MutableSequence[float]  # a heap: next time of
    event: MutableSequence[int]  # a process or, numbered after them, a device


class Volumes(NamedTuple):
    """The volumes under load, with their own and their instance's buckets."""

    buckets: Buckets
    devices: Devices
    host: Host


class Simulation(NamedTuple):
    volumes: Volumes
    load: FioJobs
    draws: RandomDraws
    tally: Tally
    state: KernelState


def bin_of(nanoseconds: float) -> int:
    if nanoseconds < 64.0:
        return max(0, int(nanoseconds))
    mantissa, exponent = math.frexp(nanoseconds)  # mantissa in [0.5, 1)
    return min(BINS - 1, (exponent - 7) * 64 + int(mantissa * 128.0))


def middle_ns(number: int) -> int:
    """The middle of a bin in nanoseconds."""
    octave, step = divmod(number, 64)
    if octave < 2:
        return number
    width = 1 << (octave - 1)
    return int((64 + step + 0.5) * width)


def percentile_ns(bins: Sequence[int], percentile: float) -> int:
    """Nanoseconds: the middle of the first bin that reaches the share, with those below it; 0 for no I/O."""
    cumulated = list(accumulate(bins))
    if not cumulated or not cumulated[-1]:
        return 0
    return middle_ns(bisect_left(cumulated, max(1, percentile / 100 * cumulated[-1])))
