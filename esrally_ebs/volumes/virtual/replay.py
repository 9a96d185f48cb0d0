"""Replays recorded requests on another volume in virtual time: how long each would have taken there.

A request is a thread that computes, issues I/Os, and waits until the I/Os that it needs are done. What it
computes and what it needs stay the same on any volume; see ``Thread``. Requests come one after another, as
recorded, or at their due times, whatever became of those before (``Load``).
"""

import functools
import math
from collections.abc import Callable, MutableSequence, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from esrally_ebs.catalog.limits import Model, of_each
from esrally_ebs.model import of_any
from esrally_ebs.volumes.emulated.law.buckets import Buckets, buckets_of
from esrally_ebs.volumes.virtual import machine_code
from esrally_ebs.volumes.virtual.arrays import arrays, devices_of
from esrally_ebs.volumes.virtual.state import Host, Volumes
from esrally_ebs.volumes.virtual.transfer import length_of, pop, push, request, settle

Column = npt.NDArray[Any]


class Thread(NamedTuple):
    """Consecutive requests as events, each an I/O or the end of a request; one column entry per event.

    An event comes ``compute_s`` after the one before, and ``after_s`` after each I/O that it needs is done:
    these I/Os are ``needed[first_needed[e]:first_needed[e + 1]]``.
    """

    offset: Column
    size: Column  # bytes; 0 for the end of a request
    write: Column
    path_s: Column  # part of the volume's time that the path takes; inf for I/Os answered from memory
    compute_s: Column
    first_needed: Column  # one entry more than events
    needed: Column  # events
    after_s: Column  # aligned with ``needed``
    rest_s: Column  # by request: idle time before it
    refilled: Column  # by request: whether all buckets except credits were full at its beginning


# Warm-up: seconds of requests before those that count (a bucket holds one second), and their largest number.
_BEFORE_S, _MOST_BEFORE = 10.0, 5000
_PARTS_APART = 100_003  # distance of random draws for an I/O's parts, far from those of neighbouring I/Os


class Load(NamedTuple):
    """Requests that arrive at random (Poisson), and the cores that compute them."""

    per_s: float
    cores: int


class Replayed(NamedTuple):
    latency_s: Column  # by request
    limit_s: dict[str, float]  # by limit: waits of all requests' I/Os
    # By limit: I/Os' demand as a share of its rate, while requests came if there was a load.
    used: dict[str, float]
    done_s: Column  # by event: when its I/O was done


def refill(buckets: Buckets, levels: Sequence[float], now_s: float) -> None:
    """Set the buckets to these levels; a negative one leaves its bucket as it is."""
    for i in range(len(levels)):
        if levels[i] >= 0.0:
            buckets.levels[i] = levels[i]
            buckets.filled_s[i] = now_s


def io_s(thread: Thread, volumes: Volumes, normals: Sequence[float], event: int, now_s: float) -> float:
    """Seconds that an I/O takes: those of the slowest request that it is split into."""
    offset = thread.offset[event]
    end = offset + thread.size[event]
    draw = event
    waited_s = took_s = 0.0
    while offset < end:
        length = length_of(volumes.devices, 0, offset, end - offset)
        normal = normals[draw % len(normals)]
        wait_s, one_s = request(volumes, 0, thread.write[event], offset, length, 0.0, normal, now_s, waited_s)
        waited_s, took_s = max(waited_s, wait_s), max(took_s, one_s)
        offset += length
        draw += _PARTS_APART
    return took_s


def issue(
    thread: Thread,
    volumes: Volumes,
    normals: Sequence[float],
    done_s: MutableSequence[float],
    event: int,
    now_s: float,
) -> None:
    """Issue the event's I/O, and set when it is done."""
    done_s[event] = -np.inf  # nobody waits for I/Os in memory, nor for the copy that is read from the volume
    if thread.path_s[event] < np.inf:
        took_s = io_s(thread, volumes, normals, event, now_s)
        done_s[event] = now_s + max(0.0, took_s - thread.path_s[event])


def needed_s(thread: Thread, done_s: Sequence[float], event: int) -> float:
    """Earliest time that the event's needed I/Os allow."""
    latest_s = -np.inf
    for place in range(thread.first_needed[event], thread.first_needed[event + 1]):
        latest_s = max(latest_s, done_s[thread.needed[place]] + thread.after_s[place])
    return latest_s


def run(
    thread: Thread,
    volumes: Volumes,
    filled_to: Sequence[float],
    normals: Sequence[float],
    done_s: MutableSequence[float],
    latency_s: MutableSequence[float],
) -> float:
    """Replay all requests, filling in their latencies; returns when the last one ends."""
    now_s = began_s = thread.rest_s[0]
    number = 0
    refill(volumes.buckets, filled_to, now_s)
    for event in range(len(thread.size)):
        now_s = max(now_s + thread.compute_s[event], needed_s(thread, done_s, event))
        if thread.size[event] > 0:
            issue(thread, volumes, normals, done_s, event, now_s)
            continue
        latency_s[number] = now_s - began_s
        number += 1
        if number < len(thread.rest_s):
            now_s += thread.rest_s[number]
            began_s = now_s
            if thread.refilled[number]:
                refill(volumes.buckets, filled_to, now_s)
    return float(now_s)


class Flight(NamedTuple):
    """Requests being served, by place; ``next_s`` and ``place`` are a heap."""

    next_s: MutableSequence[float]  # when a place acts next, earliest first
    place: MutableSequence[int]  # the place of that time
    request: MutableSequence[int]  # from here on, indexed by place
    event: MutableSequence[int]
    began_s: MutableSequence[float]
    computes: MutableSequence[bool]  # whether it waits for a core next; else its computing is done


def arrive(flight: Flight, count: int, request: int, event: int, due_s: float) -> None:
    """Add a request to ``count`` others."""
    place = push(flight.next_s, flight.place, 0, count, due_s)
    flight.request[place] = request
    flight.event[place] = event
    flight.began_s[place] = due_s
    flight.computes[place] = True


def computed_s(free_s: MutableSequence[float], seconds: float, now_s: float) -> float:
    """When the core that is free first has computed for this long."""
    if seconds <= 0.0:
        return now_s
    core = 0
    for other in range(1, len(free_s)):
        if free_s[other] < free_s[core]:
            core = other
    free_s[core] = max(now_s, free_s[core]) + seconds
    return free_s[core]


def serve(
    thread: Thread,
    volumes: Volumes,
    normals: Sequence[float],
    done_s: MutableSequence[float],
    latency_s: MutableSequence[float],
    first_event: Sequence[int],
    due_s: Sequence[float],
    order: Sequence[int],
    free_s: MutableSequence[float],
    flight: Flight,
) -> None:
    """Serve the requests of ``order`` at their due times, filling in their latencies.

    Each core computes for one request at a time, first come first served. ``free_s``: by core. If a request
    is being served twice at once, under overload, both copies wait for the same I/Os.
    """
    number, count = 0, 0
    while number < len(order) or count > 0:
        if count == 0 or (number < len(order) and due_s[number] <= flight.next_s[0]):
            arrive(flight, count, order[number], first_event[order[number]], due_s[number])
            count += 1
            number += 1
            continue
        now_s, place = flight.next_s[0], flight.place[0]
        event = flight.event[place]
        then_s = now_s
        if flight.computes[place]:
            then_s = computed_s(free_s, thread.compute_s[event], now_s)
        elif thread.size[event] > 0:
            issue(thread, volumes, normals, done_s, event, now_s)
            event += 1
            flight.event[place] = event
            then_s = max(now_s, needed_s(thread, done_s, event) - thread.compute_s[event])
        else:
            latency_s[flight.request[place]] = now_s - flight.began_s[place]
            pop(flight.next_s, flight.place, 0, count)
            count -= 1
            continue
        flight.computes[place] = not flight.computes[place]
        settle(flight.next_s, flight.place, 0, count, then_s, place)


def replay(
    thread: Thread, model: Model, *, credits: float = 1.0, seed: int = 1, load: Load | None = None
) -> Replayed:
    """Replay requests on a volume whose buckets are full at first, with this fraction of its credits.

    The same ``seed`` draws the same chance for each I/O on every volume. Under a ``load`` each request comes
    once, in random order at random times, after ten seconds of others that do not count; latencies count from
    the due times, and nothing refills buckets between requests.
    """
    limits = of_each(model.limits, model.stripes) + model.instance_limits
    buckets = buckets_of(limits, 0.0)
    own_credits = [
        i for i, limit in enumerate(limits) if limit.of_credits and not limit.name.startswith("instance")
    ]
    for i in own_credits:
        buckets.levels[i] *= credits
    requests = served = len(thread.rest_s)
    luck = np.random.default_rng(seed)
    normals = luck.standard_normal(max(1, min(len(thread.size), 1 << 18)))
    latency_s, done_s = np.zeros(requests), np.zeros(len(thread.size))
    buckets = arrays(buckets)
    volumes = Volumes(buckets, arrays(devices_of([model])), Host(len(model.instance_limits), 0.0, 0.0))
    if load is None:
        # Credits stay; of a volume without, those that came back are taken, as in a session.
        filled_to = np.where([limit.of_credits for limit in limits], -1.0, buckets.capacities)
        if not credits:
            filled_to[own_credits] = 0.0
        ended_s = _compiled()(thread, volumes, filled_to, normals, done_s, latency_s)
        seconds = ended_s - thread.rest_s[0]
    else:
        served = _serve(thread, volumes, load, luck, normals, done_s, latency_s)
        seconds = served / load.per_s
    by_limit: dict[str, float] = {}
    used: dict[str, list[float]] = {}
    for limit, waited_s, taken in zip(limits, buckets.waited_s, buckets.taken, strict=True):
        name = of_any(limit.name)
        by_limit[name] = by_limit.get(name, 0.0) + float(waited_s) * requests / served
        used.setdefault(name, []).append(float(taken) / (limit.rate * seconds) if seconds else 0.0)
    return Replayed(latency_s, by_limit, {name: fmean(used[name]) for name in used}, done_s)


def _serve(
    thread: Thread,
    volumes: Volumes,
    load: Load,
    luck: np.random.Generator,
    normals: Column,
    done_s: Column,
    latency_s: Column,
) -> int:
    """Draw the requests' order and times, and serve them; returns how many came."""
    requests = len(latency_s)
    before = min(math.ceil(_BEFORE_S * load.per_s), _MOST_BEFORE)
    passes = [luck.permutation(requests) for _ in range(1 + -(-before // requests))]
    order = np.concatenate(passes)[-requests - before :]
    due_s = luck.exponential(1 / load.per_s, len(order)).cumsum()
    first_event = np.append(0, np.flatnonzero(thread.size == 0)[:-1] + 1)
    none, zeros = [0] * len(order), [0.0] * len(order)
    flight = arrays(Flight(zeros, list(range(len(order))), none, none, zeros, [False] * len(order)))
    free_s = np.zeros(load.cores)
    _compiled_load()(thread, volumes, normals, done_s, latency_s, first_event, due_s, order, free_s, flight)
    return len(order)


@functools.cache
def _compiled() -> Callable[..., Any]:
    return machine_code.compiled(run, (refill, io_s, issue, needed_s))


@functools.cache
def _compiled_load() -> Callable[..., Any]:
    return machine_code.compiled(serve, (io_s, issue, needed_s, arrive, computed_s))
