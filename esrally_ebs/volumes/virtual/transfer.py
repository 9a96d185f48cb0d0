"""Passes one I/O of virtual time through a device: its place, the requests that it is split into, and their
waits and service times.

Plain numbers and sequences, as in kernel.py, which calls this: the same functions as Python and compiled.
Heaps are parts of flat sequences: numba handles arrays many times faster than lists of tuples. A heap has its
keys and ids from index ``first`` on. A removed key's place, after the last remaining one, keeps its id, so
that the id can be reused.
"""

from collections.abc import MutableSequence

from esrally_ebs.catalog.limits import charged_bytes, operations_of
from esrally_ebs.volumes.emulated.law.buckets import charge_buckets
from esrally_ebs.volumes.emulated.law.queue import drawn_s, saved_of
from esrally_ebs.volumes.virtual.state import (
    REQUEST_BYTES,
    Devices,
    KernelState,
    RandomDraws,
    Simulation,
    Volumes,
)


def push(keys: MutableSequence[float], ids: MutableSequence[int], first: int, count: int, key: float) -> int:
    """Add a key to a heap of ``count``; it gets the id in the free place, which is returned."""
    free = ids[first + count]
    at = count
    while at > 0:
        above = (at - 1) >> 1
        if keys[first + above] <= key:
            break
        keys[first + at] = keys[first + above]
        ids[first + at] = ids[first + above]
        at = above
    keys[first + at] = key
    ids[first + at] = free
    return free


def pop(keys: MutableSequence[float], ids: MutableSequence[int], first: int, count: int) -> int:
    """Remove the least of ``count`` keys; returns its id, which stays in the free place."""
    least = ids[first]
    last = count - 1
    settle(keys, ids, first, last, keys[first + last], ids[first + last])
    ids[first + last] = least
    return least


def settle(
    keys: MutableSequence[float], ids: MutableSequence[int], first: int, count: int, key: float, id_: int
) -> None:
    """Replace the least of ``count`` keys, and its id."""
    at = 0
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        if below + 1 < count and keys[first + below + 1] < keys[first + below]:
            below += 1
        if keys[first + below] >= key:
            break
        keys[first + at] = keys[first + below]
        ids[first + at] = ids[first + below]
        at = below
    keys[first + at] = key
    ids[first + at] = id_


def uniform(state: KernelState, draws: RandomDraws) -> float:
    """The next draw from [0, 1)."""
    at = state.used[1]
    state.used[1] = at + 1
    return draws.uniforms[at % len(draws.uniforms)]


def next_offset(sim: Simulation, process: int, write: int) -> int:
    """Offset of a process's next I/O; every job has its own file."""
    load, state = sim.load, sim.state
    job = state.job_of[process]
    blocks = max(1, load.file_bytes[job] // load.block_bytes[job])
    if load.sequential[job]:
        block = state.positions[2 * process + write]
        state.positions[2 * process + write] = block + 1 if block + 1 < blocks else 0
    else:
        block = int(uniform(state, sim.draws) * blocks)
    return (job << 45) + block * load.block_bytes[job]


def length_of(devices: Devices, device: int, offset: int, left: int) -> int:
    """Bytes of an I/O's first request: at most a request, or up to the end of its chunk."""
    most = max(REQUEST_BYTES, devices.max_io_bytes[device])
    if devices.stripes[device] == 1:
        return min(left, most)
    chunk = devices.chunk_bytes[device]
    return min(left, most, chunk - offset % chunk)


def requests_of(devices: Devices, device: int, size: int) -> int:
    """Number of requests of an I/O that begins at a request's or chunk's boundary."""
    most = max(REQUEST_BYTES, devices.max_io_bytes[device])
    if devices.stripes[device] > 1:
        most = min(most, devices.chunk_bytes[device])
    return -(-size // most)


def request(
    volumes: Volumes,
    device: int,
    write: int,
    offset: int,
    length: int,
    saved: float,
    normal: float,
    now_s: float,
    beside_s: float,
) -> tuple[float, float]:
    """Wait of one request, and its whole time with a service time from a ``normal`` draw, in seconds.

    ``beside_s``: how long other requests of its I/O wait meanwhile.
    """
    devices = volumes.devices
    member = 0
    at = offset
    if devices.stripes[device] > 1:
        chunk = offset // devices.chunk_bytes[device]
        member = chunk % devices.stripes[device]
        at = chunk // devices.stripes[device] * devices.chunk_bytes[device]
        at += offset % devices.chunk_bytes[device]
    first = devices.first[device] + member * devices.own[device]
    continues = devices.next_offset[first] == at
    paid = devices.paid_to[first] - at if continues else 0
    most, over = devices.max_io_bytes[device], devices.merge_over_bytes[device]
    charged = charged_bytes(length, continues, most, over, paid)
    devices.next_offset[first] = at + length
    devices.paid_to[first] = at + max(length, charged, paid)
    wait_s = charge_buckets(
        volumes.buckets,
        first,
        first + devices.own[device],
        volumes.host.shared,
        write,
        operations_of(length, most) - saved,
        max(charged, devices.least_bytes[device]),
        now_s,
        beside_s,
    )
    service = 2 * device + write
    median_s = devices.base_s[service] + devices.per_byte_s[service] * length
    return wait_s, wait_s + drawn_s(median_s, devices.sigma[service], normal)


def transfer(
    sim: Simulation, device: int, write: int, offset: int, size: int, saved: float, now_s: float
) -> float:
    """Seconds that one I/O takes: those of the slowest of its requests.

    ``saved``: part of its one operation that belongs to the previous I/O, with which it was merged.
    """
    volumes, draws, state = sim.volumes, sim.draws, sim.state
    waited_s = took_s = 0.0
    end = offset + size
    while offset < end:
        length = length_of(volumes.devices, device, offset, end - offset)
        normal = draws.normals[state.used[0] % len(draws.normals)]
        state.used[0] += 1
        wait_s, request_s = request(volumes, device, write, offset, length, saved, normal, now_s, waited_s)
        push(state.tag_s, state.tag, state.tag_first[device], state.tag_count[device], now_s + request_s)
        state.tag_count[device] += 1
        waited_s, took_s = max(waited_s, wait_s), max(took_s, request_s)
        offset += length
    return took_s


def merged_part(sim: Simulation, process: int) -> float:
    """Part of a sequential I/O's operation that belongs to the previous one, as it waits beside that one."""
    load, state = sim.load, sim.state
    job = state.job_of[process]
    alone = not state.waited[process] or state.flying_count[process] == 0
    if alone or load.sync[job] or not load.sequential[job]:
        return 0.0
    devices, device = sim.volumes.devices, load.device[job]
    return saved_of(load.block_bytes[job], devices.max_io_bytes[device], devices.merge_over_bytes[device])
