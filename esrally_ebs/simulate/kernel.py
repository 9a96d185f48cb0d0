"""The event loop of virtual time: fio jobs against volumes' buckets and latencies, no sleeping.

Plain numbers and sequences in and out, so that the very same functions run as Python (a small job, at once)
and compiled by numba (a large one, after some seconds of compiling), with equal results.

A process of fio with an asynchronous engine does one thing at a time: it submits until its depth is in flight
and from then on takes one completion for each submission. A device holds so many requests; who finds its
queue full stands still until a place is free, and takes no completions meanwhile. What fio prints as latency
then is not the device's: with depth d and n processes it is n (d - 1) I/Os divided by their rate, and
published runs show just that number (63 of 1 x 64, 1020 of 4 x 256, 242 of 16 x 16).
"""

import heapq
from collections.abc import Callable
from typing import Any

from esrally_ebs.emulator.latency import drawn_s
from esrally_ebs.emulator.limits import Buckets, admit, charged_bytes, operations_of
from esrally_ebs.simulate.histogram import bin_of
from esrally_ebs.simulate.state import REQUEST_BYTES, Devices, Draws, Load, Machine, Progress, Tally


def begin(devices: Devices, load: Load) -> Progress:
    """Every process about to submit its first I/O."""
    job_of = [job for job in range(len(load.clones)) for _ in range(load.clones[job])]
    tags = [[0.0] for _ in devices.own]
    waiting = [[0] for _ in devices.own]
    flying = [[(0.0, 0.0, 0)] for _ in job_of]
    for device in range(len(tags)):
        tags[device].clear()
        waiting[device].clear()
    for process in range(len(flying)):
        flying[process].clear()
    members = 0
    for device in range(len(devices.own)):
        members = max(members, devices.first[device] + devices.own[device] * devices.stripes[device])
    return Progress(
        job_of=job_of,
        left=[load.ios_per_clone[job] for job in job_of],
        asked_s=[0.0 for _ in job_of],
        waited=[False for _ in job_of],
        positions=[0 for _ in range(2 * len(job_of))],
        last_write=[-1 for _ in job_of],
        flying=flying,
        tags=tags,
        waiting=waiting,
        favoured=[-1 for _ in devices.own],
        next_offset=[-1 for _ in range(members + 1)],
        issued=[0 for _ in load.clones],
        used=[0, 0],
    )


def record(tally: Tally, row: int, took_s: float, done_s: float) -> None:
    """Count one I/O that was done at ``done_s`` after the start."""
    tally.bins[row][bin_of(took_s * 1e9)] += 1
    tally.total_s[row] += took_s
    tally.most_s[row] = max(tally.most_s[row], took_s)
    tally.least_s[row] = min(tally.least_s[row], took_s)
    tally.ended_s[row // 2] = max(tally.ended_s[row // 2], done_s)
    second = int(done_s)
    if second < len(tally.done_in_second):
        tally.done_in_second[second] += 1
        tally.latency_in_second[second] += took_s


def uniform(progress: Progress, draws: Draws) -> float:
    """The next draw from [0, 1)."""
    at = progress.used[1]
    progress.used[1] = at + 1
    return draws.uniforms[at % len(draws.uniforms)]


def next_offset(progress: Progress, load: Load, draws: Draws, process: int, write: int) -> int:
    """Where a process's next I/O goes; every job has a file of its own."""
    job = progress.job_of[process]
    blocks = max(1, load.file_bytes[job] // load.block_bytes[job])
    if load.sequential[job]:
        block = progress.positions[2 * process + write]
        progress.positions[2 * process + write] = block + 1 if block + 1 < blocks else 0
    else:
        block = int(uniform(progress, draws) * blocks)
    return (job << 45) + block * load.block_bytes[job]


def length_of(devices: Devices, device: int, offset: int, left: int) -> int:
    """The bytes of the request that an I/O begins with: no more than a request, or a chunk, holds."""
    if devices.stripes[device] == 1:
        return min(left, REQUEST_BYTES)
    chunk = devices.chunk_bytes[device]
    return min(left, REQUEST_BYTES, chunk - offset % chunk)


def transfer(
    buckets: Buckets,
    devices: Devices,
    machine: Machine,
    progress: Progress,
    draws: Draws,
    device: int,
    write: int,
    offset: int,
    size: int,
    saved: float,
    now_s: float,
) -> float:
    """The seconds that one I/O takes: as long as the slowest of the requests that it is split into.

    ``saved`` of its one operation is part of the I/O before, with which it was merged.
    """
    took_s = 0.0
    end = offset + size
    while offset < end:
        length = length_of(devices, device, offset, end - offset)
        member = 0
        at = offset
        if devices.stripes[device] > 1:
            chunk = offset // devices.chunk_bytes[device]
            member = chunk % devices.stripes[device]
            at = chunk // devices.stripes[device] * devices.chunk_bytes[device]
            at += offset % devices.chunk_bytes[device]
        first = devices.first[device] + member * devices.own[device]
        continues = progress.next_offset[first] == at
        progress.next_offset[first] = at + length
        most, over = devices.max_io_bytes[device], devices.merge_over_bytes[device]
        wait_s = admit(
            buckets,
            first,
            first + devices.own[device],
            machine.shared,
            write,
            operations_of(length, most) - saved,
            max(charged_bytes(length, continues, most, over), devices.least_bytes[device]),
            now_s,
        )
        service = 2 * device + write
        median_s = devices.base_s[service] + devices.per_byte_s[service] * length
        normal = draws.normals[progress.used[0] % len(draws.normals)]
        progress.used[0] += 1
        request_s = wait_s + drawn_s(median_s, devices.sigma[service], normal)
        heapq.heappush(progress.tags[device], now_s + request_s)
        took_s = max(took_s, request_s)
        offset += length
    return took_s


def merged_part(progress: Progress, devices: Devices, load: Load, machine: Machine, process: int) -> float:
    """What of a sequential I/O's operation is part of the one before: it waits in the queue beside it."""
    job = progress.job_of[process]
    size, device = load.block_bytes[job], load.device[job]
    beside = load.sequential[job] and not load.sync[job] and progress.waited[process]
    if not beside or devices.merge_over_bytes[device] >= 0 or size >= devices.max_io_bytes[device]:
        return 0.0
    return min(machine.merged, 1.0 - size / devices.max_io_bytes[device])


def submit(
    buckets: Buckets,
    devices: Devices,
    load: Load,
    machine: Machine,
    draws: Draws,
    progress: Progress,
    process: int,
    now_s: float,
) -> None:
    """One I/O of a process on its way."""
    job = progress.job_of[process]
    toss = progress.issued[job] % draws.write_count[job]
    write = 1 if draws.writes[draws.first_write[job] + toss] else 0
    progress.issued[job] += 1
    progress.left[process] -= 1
    saved = 0.0
    if progress.last_write[process] == write:
        saved = merged_part(progress, devices, load, machine, process)
    progress.last_write[process] = write
    offset = next_offset(progress, load, draws, process, write)
    size, device = load.block_bytes[job], load.device[job]
    took_s = transfer(buckets, devices, machine, progress, draws, device, write, offset, size, saved, now_s)
    begun_s = progress.asked_s[process] if load.sync[job] else now_s
    heapq.heappush(progress.flying[process], (now_s + took_s, begun_s, write))


def fits(devices: Devices, load: Load, progress: Progress, process: int, now_s: float) -> bool:
    """Whether the device has room for one more I/O of this process."""
    job = progress.job_of[process]
    tags, queue = progress.tags[load.device[job]], devices.queue[load.device[job]]
    while len(tags) > 0 and tags[0] <= now_s:
        heapq.heappop(tags)
    needed = -(-load.block_bytes[job] // REQUEST_BYTES)
    return len(tags) + needed <= queue or len(tags) == 0


def chosen(progress: Progress, draws: Draws, machine: Machine, device: int) -> int:
    """Which of the processes that wait for a place gets it, taken off the list: often the same one again, as
    it runs already, and otherwise any.
    """
    waiting = progress.waiting[device]
    index = 0
    if len(waiting) > 1:
        again = uniform(progress, draws) < machine.again
        index = int(uniform(progress, draws) * len(waiting))
        if again and progress.favoured[device] in waiting:
            index = waiting.index(progress.favoured[device])
    process = waiting.pop(index)
    progress.favoured[device] = process
    return process


def next_s(progress: Progress, load: Load, machine: Machine, process: int, now_s: float) -> float:
    """When a process that has just submitted does its next thing."""
    flying = progress.flying[process]
    job = progress.job_of[process]
    more = progress.left[process] > 0 and now_s < load.until_s[job]
    if more and len(flying) < load.depth[job]:
        return now_s + machine.between_s
    return max(now_s, flying[0][0]) + machine.between_s


def wake(
    buckets: Buckets,
    devices: Devices,
    load: Load,
    machine: Machine,
    draws: Draws,
    progress: Progress,
    events: list[tuple[float, int]],
    device: int,
    now_s: float,
) -> None:
    """A place in a device's queue is free: let in who waits."""
    waiting = progress.waiting[device]
    while len(waiting) > 0 and fits(devices, load, progress, waiting[0], now_s):
        process = chosen(progress, draws, machine, device)
        submit(buckets, devices, load, machine, draws, progress, process, now_s)
        heapq.heappush(events, (next_s(progress, load, machine, process, now_s), process))
    if len(waiting) > 0:
        heapq.heappush(events, (progress.tags[device][0], -1 - device))


def step(
    buckets: Buckets,
    devices: Devices,
    load: Load,
    machine: Machine,
    draws: Draws,
    progress: Progress,
    tally: Tally,
    process: int,
    now_s: float,
) -> float:
    """A process takes a completion, if it must, and submits, if it may; when it is its turn again, or -1 when
    it waits for a place in the queue, or -2 when it is done.
    """
    job = progress.job_of[process]
    flying = progress.flying[process]
    more = progress.left[process] > 0 and now_s < load.until_s[job]
    if len(flying) > 0 and (not more or len(flying) == load.depth[job]):
        _, begun_s, write = heapq.heappop(flying)
        done_s = now_s - machine.between_s
        record(tally, 2 * job + write, done_s - begun_s, done_s)
    if not more:
        return max(now_s, flying[0][0] + machine.between_s) if len(flying) > 0 else -2.0
    progress.asked_s[process] = now_s
    progress.waited[process] = not fits(devices, load, progress, process, now_s)
    if progress.waited[process]:
        return -1.0
    submit(buckets, devices, load, machine, draws, progress, process, now_s)
    return next_s(progress, load, machine, process, now_s)


def serve(
    buckets: Buckets, devices: Devices, load: Load, machine: Machine, draws: Draws, tally: Tally
) -> float:
    """Run the jobs on buckets whose levels are those of this moment; the seconds until all I/Os are done."""
    progress = begin(devices, load)
    events = [(0.0, process) for process in range(len(progress.job_of))]
    while len(events) > 0:
        now_s, who = events[0]
        if who < 0:
            heapq.heappop(events)
            wake(buckets, devices, load, machine, draws, progress, events, -1 - who, now_s)
            continue
        again_s = step(buckets, devices, load, machine, draws, progress, tally, who, now_s)
        if again_s >= 0.0:
            heapq.heapreplace(events, (again_s, who))
            continue
        heapq.heappop(events)
        if again_s == -1.0:
            device = load.device[progress.job_of[who]]
            progress.waiting[device].append(who)
            if len(progress.waiting[device]) == 1:
                heapq.heappush(events, (progress.tags[device][0], -1 - device))
    return max(tally.ended_s)


def compiled() -> Callable[..., float]:
    """``serve`` as machine code; takes some seconds, once per process."""
    # only here: a job of less than a second in Python does not wait for numba
    from numba import njit
    from numba.extending import register_jitable

    parts: tuple[Callable[..., Any], ...] = (
        admit,
        charged_bytes,
        operations_of,
        drawn_s,
        bin_of,
        begin,
        record,
        uniform,
        next_offset,
        length_of,
        transfer,
        merged_part,
        submit,
        fits,
        chosen,
        next_s,
        wake,
        step,
    )
    for function in parts:
        register_jitable(function)
    kernel: Any = njit(serve)
    return kernel  # type: ignore[no-any-return]
