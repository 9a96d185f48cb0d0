"""What the kernel of virtual time works on, as lists or arrays of plain numbers; and fio's histogram."""

import math
from bisect import bisect_left
from collections.abc import MutableSequence, Sequence
from itertools import accumulate
from typing import NamedTuple

from esrally_ebs.volumes.emulated.law.buckets import Buckets

# The device's max_sectors_kb, unless an I/O of the type is larger (1 MiB of HDD types): larger I/Os are split
# before they arrive.
REQUEST_BYTES = 256 * 1024

# What fio tells of the reads, or the writes, of a job. Of an I/O the seconds from submission to completion,
# those until it was submitted, and both together; and the I/Os of each period that had any.
COMPLETION, SUBMISSION, WHOLE, RATE = range(4)
KINDS = 4
PERIOD_S = 0.5  # fio's bwavgtime and iopsavgtime

BINS = 29 * 64  # 64 to each power of two of nanoseconds, as fio has them; the last ends at 17 s


class Devices(NamedTuple):
    """The volumes under load, each alone or striped, as numbers by volume."""

    first: Sequence[int]  # the first bucket of the first member
    own: Sequence[int]  # buckets of each member
    stripes: Sequence[int]
    chunk_bytes: Sequence[int]
    max_io_bytes: Sequence[int]
    merge_over_bytes: Sequence[int]
    least_bytes: Sequence[int]
    base_s: Sequence[float]  # service times: of reads at 2 i, of writes at 2 i + 1
    per_byte_s: Sequence[float]
    sigma: Sequence[float]
    queue: Sequence[int]  # requests that the device holds
    next_offset: MutableSequence[int]  # by the first bucket of a member: where its last request ended
    paid_to: MutableSequence[int]  # likewise: the end of what was charged, there or beyond


class FioJobs(NamedTuple):
    """fio jobs that begin together, as numbers by job."""

    device: Sequence[int]
    clones: Sequence[int]
    depth: Sequence[int]  # I/Os that each clone keeps in flight
    sync: Sequence[bool]  # whether the time to submit is part of the latency
    block_bytes: Sequence[int]
    ios_per_clone: Sequence[int]  # at most
    from_s: Sequence[float]  # what is done earlier than this after the job's start is not counted
    until_s: Sequence[float]  # no I/O is begun later than this after the job's start
    gap_s: Sequence[float]  # from one I/O of a clone to its next, at least; 0 = no rate is asked for
    sequential: Sequence[bool]
    file_bytes: Sequence[int]


class Host(NamedTuple):
    shared: int  # so many of the last buckets are the instance's
    between_s: float  # from the end of an I/O to the beginning of the clone's next
    again: float  # how probably the clone that got the last place in a full queue gets the next one, too


class RandomDraws(NamedTuple):
    """Chance, drawn beforehand and used in order, from the start again when it is used up."""

    normals: Sequence[float]  # of the standard normal distribution
    uniforms: Sequence[float]  # of [0, 1)
    writes: Sequence[bool]  # the direction of each I/O, of all jobs one after the other
    first_write: Sequence[int]  # by job: where its directions begin, and how many there are
    write_count: Sequence[int]


class Tally(NamedTuple):
    """What became of the jobs; of the reads of job j at 2 j, of its writes at 2 j + 1."""

    bins: Sequence[MutableSequence[int]]  # I/Os by completion latency
    # Of each kind of figure, the kinds of one row beside each other: added up, their squares, the extremes.
    total: MutableSequence[float]
    squares: MutableSequence[float]
    most: MutableSequence[float]
    least: MutableSequence[float]
    ended_s: MutableSequence[float]  # by job
    period: MutableSequence[int]  # by row: the last period with I/Os, how many, and the periods before it
    in_period: MutableSequence[int]
    periods: MutableSequence[int]
    # By the second in which they were done, all together; empty when nobody asked, the rest is not counted.
    done_in_second: MutableSequence[int]
    latency_in_second: MutableSequence[float]


class KernelState(NamedTuple):
    """Where the processes, the devices and chance stand."""

    job_of: Sequence[int]  # by process, as are the next ones
    left: MutableSequence[int]
    asked_s: MutableSequence[float]  # when it began to submit
    waited: MutableSequence[bool]  # whether its submission found the queue full
    positions: MutableSequence[int]  # of reads at 2 p, of writes at 2 p + 1
    # I/Os in flight: by process a heap of when they are done, from flying_first on, and what they are.
    flying_first: Sequence[int]
    flying_count: MutableSequence[int]
    done_s: MutableSequence[float]
    flight: MutableSequence[int]
    begun_s: MutableSequence[float]  # by flight, as are the next ones; begun, and with the device
    submitted_s: MutableSequence[float]
    write: MutableSequence[int]
    # Requests that a device holds: by device a heap of when they are done.
    tag_first: Sequence[int]
    tag_count: MutableSequence[int]
    tag_s: MutableSequence[float]
    tag: MutableSequence[int]
    waiting: MutableSequence[int]  # by device, as many as there are processes: those that found it full
    waiting_count: MutableSequence[int]
    favoured: MutableSequence[int]  # by device: the process that got the last place
    issued: MutableSequence[int]  # by job
    used: MutableSequence[int]  # normals and uniforms
    event_s: MutableSequence[float]  # a heap: when it is the turn of
    event: MutableSequence[int]  # a process, or, counted on from them, a device


class Volumes(NamedTuple):
    """The volumes under load, with what is in their buckets and their instance's."""

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
    """Nanoseconds: the middle of the first bin that, with those below it, holds the share; 0 for no I/O."""
    cumulated = list(accumulate(bins))
    if not cumulated or not cumulated[-1]:
        return 0
    return middle_ns(bisect_left(cumulated, max(1, percentile / 100 * cumulated[-1])))
