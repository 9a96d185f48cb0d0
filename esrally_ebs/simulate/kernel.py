"""The event loop of virtual time: fio jobs against volumes' buckets and latencies, no sleeping.

Plain numbers and sequences in and out, so that the very same functions run as Python (a small job, at once)
and compiled by numba (a large one, after some seconds of compiling), with equal results.

A process of fio with an asynchronous engine does one thing at a time: it submits until its depth is in flight
and from then on takes one completion for each submission. A device holds so many requests; who finds its
queue full stands still until a place is free, and takes no completions meanwhile. What fio prints as latency
then is not the device's: with depth d and n processes it is n (d - 1) I/Os divided by their rate, and
published runs show just that number (63 of 1 x 64, 1020 of 4 x 256, 242 of 16 x 16).
"""

from esrally_ebs.emulator.limits import Buckets
from esrally_ebs.simulate.heap import pop, push, settle
from esrally_ebs.simulate.histogram import bin_of
from esrally_ebs.simulate.state import (
    COMPLETION,
    KINDS,
    PERIOD_S,
    RATE,
    SUBMISSION,
    WHOLE,
    Devices,
    Draws,
    Load,
    Machine,
    Progress,
    Tally,
)
from esrally_ebs.simulate.transfer import merged_part, next_offset, requests_of, transfer, uniform


def measure(tally: Tally, at: int, value: float) -> None:
    """Count one figure of a kind."""
    tally.total[at] += value
    tally.squares[at] += value * value
    tally.most[at] = max(tally.most[at], value)
    tally.least[at] = min(tally.least[at], value)


def record(tally: Tally, row: int, waited_s: float, took_s: float, done_s: float, from_s: float) -> None:
    """Count one I/O, done ``done_s`` after the start: it waited to be submitted, and then took so long.

    Before ``from_s`` nothing is counted, and half seconds begin there, as fio's do after a ramp_time.
    """
    tally.ended_s[row // 2] = max(tally.ended_s[row // 2], done_s)
    if done_s < from_s:
        return
    tally.bins[row][bin_of(took_s * 1e9)] += 1
    measure(tally, KINDS * row + COMPLETION, took_s)
    measure(tally, KINDS * row + SUBMISSION, waited_s)
    measure(tally, KINDS * row + WHOLE, waited_s + took_s)
    period = int((done_s - from_s) / PERIOD_S)
    if period != tally.period[row]:
        if tally.in_period[row] > 0:
            measure(tally, KINDS * row + RATE, float(tally.in_period[row]))
            tally.periods[row] += 1
        tally.period[row] = period
        tally.in_period[row] = 0
    tally.in_period[row] += 1
    second = int(done_s)
    if second < len(tally.done_in_second):
        tally.done_in_second[second] += 1
        tally.latency_in_second[second] += took_s


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
    saved = merged_part(progress, devices, load, process)
    offset = next_offset(progress, load, draws, process, write)
    size, device = load.block_bytes[job], load.device[job]
    took_s = transfer(buckets, devices, machine, progress, draws, device, write, offset, size, saved, now_s)
    asked_s = progress.asked_s[process]
    first, count = progress.flying_first[process], progress.flying_count[process]
    flight = push(progress.done_s, progress.flight, first, count, now_s + took_s)
    progress.flying_count[process] = count + 1
    progress.begun_s[flight] = asked_s
    progress.submitted_s[flight] = asked_s if load.sync[job] else now_s
    progress.write[flight] = write


def fits(devices: Devices, load: Load, progress: Progress, process: int, now_s: float) -> bool:
    """Whether the device has room for one more I/O of this process."""
    job = progress.job_of[process]
    device = load.device[job]
    first, count = progress.tag_first[device], progress.tag_count[device]
    while count > 0 and progress.tag_s[first] <= now_s:
        pop(progress.tag_s, progress.tag, first, count)
        count -= 1
    progress.tag_count[device] = count
    needed = requests_of(devices, device, load.block_bytes[job])
    return count + needed <= devices.queue[device] or count == 0


def chosen(progress: Progress, draws: Draws, machine: Machine, device: int) -> int:
    """Which of the processes that wait for a place gets it, taken off the list: often the same one again, as
    it runs already, and otherwise any.
    """
    first, count = device * len(progress.job_of), progress.waiting_count[device]
    index = 0
    if count > 1:
        again = uniform(progress, draws) < machine.again
        index = int(uniform(progress, draws) * count)
        for other in range(count):
            if again and progress.waiting[first + other] == progress.favoured[device]:
                index = other
    process = progress.waiting[first + index]
    progress.waiting[first + index] = progress.waiting[first + count - 1]
    progress.waiting_count[device] = count - 1
    progress.favoured[device] = process
    return process


def next_s(progress: Progress, load: Load, machine: Machine, process: int, now_s: float) -> float:
    """When a process that has just submitted does its next thing."""
    job = progress.job_of[process]
    more = progress.left[process] > 0 and now_s < load.until_s[job]
    if more and progress.flying_count[process] < load.depth[job]:
        return now_s + machine.between_s
    return max(now_s, progress.done_s[progress.flying_first[process]]) + machine.between_s


def take(progress: Progress, load: Load, tally: Tally, process: int, done_s: float) -> None:
    """A process takes its first completion."""
    first, count = progress.flying_first[process], progress.flying_count[process]
    flight = pop(progress.done_s, progress.flight, first, count)
    progress.flying_count[process] = count - 1
    job = progress.job_of[process]
    row = 2 * job + progress.write[flight]
    submitted_s = progress.submitted_s[flight]
    waited_s = submitted_s - progress.begun_s[flight]
    record(tally, row, waited_s, done_s - submitted_s, done_s, load.from_s[job])


def wake(
    buckets: Buckets,
    devices: Devices,
    load: Load,
    machine: Machine,
    draws: Draws,
    progress: Progress,
    events: int,
    device: int,
    now_s: float,
) -> int:
    """Places in a device's queue are free: let in who waits; the number of events then."""
    first = device * len(progress.job_of)
    while progress.waiting_count[device] > 0 and fits(
        devices, load, progress, progress.waiting[first], now_s
    ):
        process = chosen(progress, draws, machine, device)
        submit(buckets, devices, load, machine, draws, progress, process, now_s)
        events = plan(progress, events, next_s(progress, load, machine, process, now_s), process)
    if progress.waiting_count[device] > 0:
        events = plan_device(progress, events, device)
    return events


def plan(progress: Progress, events: int, at_s: float, who: int) -> int:
    """Give a process or device its next turn; the number of events then."""
    progress.event[events] = who
    push(progress.event_s, progress.event, 0, events, at_s)
    return events + 1


def plan_device(progress: Progress, events: int, device: int) -> int:
    """Give a device its turn when a place in its queue will be free; the number of events then."""
    at_s = progress.tag_s[progress.tag_first[device]]
    return plan(progress, events, at_s, len(progress.job_of) + device)


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
    more = progress.left[process] > 0 and now_s < load.until_s[job]
    flying = progress.flying_count[process]
    if flying > 0 and (not more or flying == load.depth[job]):
        take(progress, load, tally, process, now_s - machine.between_s)
        flying -= 1
    if not more:
        if flying == 0:
            return -2.0
        return max(now_s, progress.done_s[progress.flying_first[process]] + machine.between_s)
    progress.asked_s[process] = now_s
    progress.waited[process] = not fits(devices, load, progress, process, now_s)
    if progress.waited[process]:
        return -1.0
    submit(buckets, devices, load, machine, draws, progress, process, now_s)
    return next_s(progress, load, machine, process, now_s)


def serve(
    buckets: Buckets,
    devices: Devices,
    load: Load,
    machine: Machine,
    draws: Draws,
    tally: Tally,
    progress: Progress,
) -> float:
    """Run the jobs on buckets whose levels are those of this moment; the seconds until all I/Os are done."""
    processes = len(progress.job_of)
    events = processes
    while events > 0:
        now_s, who = progress.event_s[0], progress.event[0]
        if who >= processes:
            pop(progress.event_s, progress.event, 0, events)
            events = wake(
                buckets, devices, load, machine, draws, progress, events - 1, who - processes, now_s
            )
            continue
        again_s = step(buckets, devices, load, machine, draws, progress, tally, who, now_s)
        if again_s >= 0.0:
            settle(progress.event_s, progress.event, 0, events, again_s, who)
            continue
        pop(progress.event_s, progress.event, 0, events)
        events -= 1
        if again_s == -1.0:
            device = load.device[progress.job_of[who]]
            progress.waiting[device * processes + progress.waiting_count[device]] = who
            progress.waiting_count[device] += 1
            if progress.waiting_count[device] == 1:
                events = plan_device(progress, events, device)
    return max(tally.ended_s)
