"""The event loop of virtual time: fio jobs against volumes' buckets and latencies, without sleeping.

Takes and returns plain numbers and sequences, so that the same functions run as Python (small jobs, at once)
and compiled by numba (large ones, after some seconds of compiling), with equal results.

A fio process with an asynchronous engine does one thing at a time: it submits until its depth is in flight;
from then on, it takes one completion for each submission. A device holds a limited number of requests. A
process that finds the queue full stops until a place is free, and takes no completions meanwhile. The latency
that fio prints is then not the device's: with depth d and n processes it is n (d - 1) I/Os divided by their
rate, and published runs show just that number (63 for 1 x 64, 1020 for 4 x 256, 242 for 16 x 16).
"""

from esrally_ebs.volumes.virtual.state import (
    COMPLETION,
    KINDS,
    PERIOD_S,
    RATE,
    SUBMISSION,
    WHOLE,
    KernelState,
    Simulation,
    Tally,
    bin_of,
)
from esrally_ebs.volumes.virtual.transfer import (
    merged_part,
    next_offset,
    pop,
    push,
    requests_of,
    settle,
    transfer,
    uniform,
)


def measure(tally: Tally, at: int, value: float) -> None:
    """Add one value to a kind's statistics."""
    tally.total[at] += value
    tally.squares[at] += value * value
    tally.most[at] = max(tally.most[at], value)
    tally.least[at] = min(tally.least[at], value)


def record(tally: Tally, row: int, waited_s: float, took_s: float, done_s: float, from_s: float) -> None:
    """Count one I/O, done ``done_s`` after the start; it waited to be submitted, then took ``took_s``.

    Nothing before ``from_s`` is counted, and half seconds begin there, as fio's do after a ramp_time.
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


def submit(sim: Simulation, process: int, now_s: float) -> None:
    """Submit one I/O of a process."""
    load, draws, state = sim.load, sim.draws, sim.state
    job = state.job_of[process]
    toss = state.issued[job] % draws.write_count[job]
    write = 1 if draws.writes[draws.first_write[job] + toss] else 0
    state.issued[job] += 1
    state.left[process] -= 1
    saved = merged_part(sim, process)
    offset = next_offset(sim, process, write)
    size, device = load.block_bytes[job], load.device[job]
    took_s = transfer(sim, device, write, offset, size, saved, now_s)
    asked_s = state.asked_s[process]
    first, count = state.flying_first[process], state.flying_count[process]
    flight = push(state.done_s, state.flight, first, count, now_s + took_s)
    state.flying_count[process] = count + 1
    state.begun_s[flight] = asked_s
    state.submitted_s[flight] = asked_s if load.sync[job] else now_s
    state.write[flight] = write


def fits(sim: Simulation, process: int, now_s: float) -> bool:
    """Whether the device has room for another I/O of this process."""
    devices, load, state = sim.volumes.devices, sim.load, sim.state
    job = state.job_of[process]
    device = load.device[job]
    first, count = state.tag_first[device], state.tag_count[device]
    while count > 0 and state.tag_s[first] <= now_s:
        pop(state.tag_s, state.tag, first, count)
        count -= 1
    state.tag_count[device] = count
    needed = requests_of(devices, device, load.block_bytes[job])
    return count + needed <= devices.queue[device] or count == 0


def chosen(sim: Simulation, device: int) -> int:
    """Pick the process that gets a free place, and take it off the list: often the last one again, as it is
    already running, otherwise any.
    """
    draws, state = sim.draws, sim.state
    first, count = device * len(state.job_of), state.waiting_count[device]
    index = 0
    if count > 1:
        again = uniform(state, draws) < sim.volumes.host.again
        index = int(uniform(state, draws) * count)
        for other in range(count):
            if again and state.waiting[first + other] == state.favoured[device]:
                index = other
    process = state.waiting[first + index]
    state.waiting[first + index] = state.waiting[first + count - 1]
    state.waiting_count[device] = count - 1
    state.favoured[device] = process
    return process


def next_s(sim: Simulation, process: int, now_s: float) -> float:
    """When a process that has just submitted acts next."""
    load, host, state = sim.load, sim.volumes.host, sim.state
    job = state.job_of[process]
    more = state.left[process] > 0 and now_s < load.until_s[job]
    if more and state.flying_count[process] < load.depth[job]:
        return now_s + host.between_s
    return max(now_s, state.done_s[state.flying_first[process]]) + host.between_s


def take(sim: Simulation, process: int, done_s: float) -> None:
    """Take a process's first completion."""
    state = sim.state
    first, count = state.flying_first[process], state.flying_count[process]
    flight = pop(state.done_s, state.flight, first, count)
    state.flying_count[process] = count - 1
    job = state.job_of[process]
    row = 2 * job + state.write[flight]
    submitted_s = state.submitted_s[flight]
    waited_s = submitted_s - state.begun_s[flight]
    record(sim.tally, row, waited_s, done_s - submitted_s, done_s, sim.load.from_s[job])


def wake(sim: Simulation, events: int, device: int, now_s: float) -> int:
    """Places in a device's queue are free: admit waiting processes; returns the number of events."""
    state = sim.state
    first = device * len(state.job_of)
    while state.waiting_count[device] > 0 and fits(sim, state.waiting[first], now_s):
        process = chosen(sim, device)
        submit(sim, process, now_s)
        events = plan(state, events, next_s(sim, process, now_s), process)
    if state.waiting_count[device] > 0:
        events = plan_device(state, events, device)
    return events


def plan(state: KernelState, events: int, at_s: float, who: int) -> int:
    """Schedule a process or device; returns the number of events."""
    state.event[events] = who
    push(state.event_s, state.event, 0, events, at_s)
    return events + 1


def plan_device(state: KernelState, events: int, device: int) -> int:
    """Schedule a device for when a place in its queue will be free; returns the number of events."""
    at_s = state.tag_s[state.tag_first[device]]
    return plan(state, events, at_s, len(state.job_of) + device)


def rests_until(sim: Simulation, process: int, now_s: float) -> float:
    """When a process with a rate may submit again; -1 if it may now.

    The n-th I/O is due n gaps after the start, so late ones are caught up. Before fio sleeps it waits for all
    I/Os in flight (with ``io_submit_mode=inline``), so only late processes have several. It sleeps no longer
    than the job's runtime, which includes the sleep.
    """
    load, host, state = sim.load, sim.volumes.host, sim.state
    job = state.job_of[process]
    first = state.flying_first[process]
    while state.flying_count[process] > 0 and state.done_s[first] + host.between_s <= now_s:
        take(sim, process, state.done_s[first])
    due_s = (load.ios_per_clone[job] - state.left[process]) * load.gap_s[job]
    if now_s >= due_s:
        return -1.0
    if state.flying_count[process] > 0:
        return state.done_s[first] + host.between_s
    if due_s < load.until_s[job]:
        return due_s
    sim.tally.ended_s[job] = load.until_s[job]
    return load.until_s[job]


def step(sim: Simulation, process: int, now_s: float) -> float:
    """Let a process take a completion if it must, and submit if it may. Returns its next time, -1 if it waits
    for a place in the queue, or -2 if it is done.
    """
    load, host, state = sim.load, sim.volumes.host, sim.state
    job = state.job_of[process]
    more = state.left[process] > 0 and now_s < load.until_s[job]
    if more and load.gap_s[job] > 0.0:
        rests_s = rests_until(sim, process, now_s)
        if rests_s >= 0.0:
            return rests_s
    flying = state.flying_count[process]
    if flying > 0 and (not more or flying == load.depth[job]):
        done_s = state.done_s[state.flying_first[process]]
        if now_s < done_s + host.between_s:  # came to submit, but the time has run out
            return done_s + host.between_s
        take(sim, process, now_s - host.between_s)
        flying -= 1
    if not more:
        if flying == 0:
            return -2.0
        return max(now_s, state.done_s[state.flying_first[process]] + host.between_s)
    state.asked_s[process] = now_s
    state.waited[process] = not fits(sim, process, now_s)
    if state.waited[process]:
        return -1.0
    submit(sim, process, now_s)
    return next_s(sim, process, now_s)


def serve(sim: Simulation) -> float:
    """Run the jobs on buckets with current levels; returns the seconds until all I/Os are done."""
    state = sim.state
    processes = len(state.job_of)
    events = processes
    while events > 0:
        now_s, who = state.event_s[0], state.event[0]
        if who >= processes:
            pop(state.event_s, state.event, 0, events)
            events = wake(sim, events - 1, who - processes, now_s)
            continue
        again_s = step(sim, who, now_s)
        if again_s >= 0.0:
            settle(state.event_s, state.event, 0, events, again_s, who)
            continue
        pop(state.event_s, state.event, 0, events)
        events -= 1
        if again_s == -1.0:
            device = sim.load.device[state.job_of[who]]
            state.waiting[device * processes + state.waiting_count[device]] = who
            state.waiting_count[device] += 1
            if state.waiting_count[device] == 1:
                events = plan_device(state, events, device)
    return max(sim.tally.ended_s)
