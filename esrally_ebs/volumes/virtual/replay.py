"""Recorded requests again, on another volume, in virtual time: what each would have taken there.

A request is a thread that computes, issues I/Os, and stands still until I/Os are done that it needs. What it
computes stays the same on any volume, and so does what it needs before what; see ``Thread``.
"""

import functools
from collections.abc import Callable, MutableSequence, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from esrally_ebs.catalog.limits import Model, of_any, of_each
from esrally_ebs.volumes.emulated.law.buckets import Buckets, buckets_of
from esrally_ebs.volumes.virtual import machine_code
from esrally_ebs.volumes.virtual.arrays import arrays, devices_of
from esrally_ebs.volumes.virtual.state import Host, Volumes
from esrally_ebs.volumes.virtual.transfer import length_of, request

Column = npt.NDArray[Any]


class Thread(NamedTuple):
    """Requests one after the other as events, each an I/O or the end of a request, as columns by event.

    An event comes ``compute_s`` after the one before it, and ``after_s`` after each I/O that it needs is
    done: those are ``needed[first_needed[e]]`` up to ``needed[first_needed[e + 1]]``, excluded.
    """

    offset: Column
    size: Column  # bytes; 0 for the end of a request
    write: Column
    path_s: Column  # what of the volume's time the path to it takes up; inf for what is in memory
    compute_s: Column
    first_needed: Column  # one more than there are events
    needed: Column  # events
    after_s: Column  # by place in ``needed``
    rest_s: Column  # by request: idle before it
    refilled: Column  # by request: whether all buckets but the credits were full when it began


class Replayed(NamedTuple):
    """What became of the requests on one volume."""

    latency_s: Column  # by request
    limit_s: dict[str, float]  # by limit: I/Os' waits, of all requests
    done_s: Column  # by event: when its I/O was done


def refill(buckets: Buckets, of_credits: Sequence[bool], now_s: float) -> None:
    """Fill all buckets but the credits."""
    for i in range(len(buckets.levels)):
        if not of_credits[i]:
            buckets.levels[i] = buckets.capacities[i]
            buckets.filled_s[i] = now_s


def io_s(thread: Thread, volumes: Volumes, normals: Sequence[float], event: int, now_s: float) -> float:
    """The seconds that an I/O takes, as long as the slowest request that it is split into."""
    offset = thread.offset[event]
    end = offset + thread.size[event]
    normal = normals[event % len(normals)]
    took_s = 0.0
    while offset < end:
        length = length_of(volumes.devices, 0, offset, end - offset)
        one_s = request(volumes, 0, thread.write[event], offset, length, 0.0, normal, now_s)
        took_s = max(took_s, one_s)
        offset += length
    return took_s


def run(
    thread: Thread,
    volumes: Volumes,
    of_credits: Sequence[bool],
    normals: Sequence[float],
    done_s: MutableSequence[float],
    latency_s: MutableSequence[float],
) -> float:
    """Replay all requests, whose latencies are filled in; when the last one ends."""
    now_s = began_s = thread.rest_s[0]
    number = 0
    refill(volumes.buckets, of_credits, now_s)
    for event in range(len(thread.size)):
        now_s += thread.compute_s[event]
        for place in range(thread.first_needed[event], thread.first_needed[event + 1]):
            now_s = max(now_s, done_s[thread.needed[place]] + thread.after_s[place])
        if thread.size[event] > 0:
            done_s[event] = -np.inf  # nobody waits for what is in memory, or for how it comes from the volume
            if thread.path_s[event] < np.inf:
                took_s = io_s(thread, volumes, normals, event, now_s)
                done_s[event] = now_s + max(0.0, took_s - thread.path_s[event])
            continue
        latency_s[number] = now_s - began_s
        number += 1
        if number < len(thread.rest_s):
            now_s += thread.rest_s[number]
            began_s = now_s
            if thread.refilled[number]:
                refill(volumes.buckets, of_credits, now_s)
    return float(now_s)


def replay(thread: Thread, model: Model, *, credits: float = 1.0, seed: int = 1) -> Replayed:
    """Replay requests on a volume whose buckets are full and whose credits are at this fraction.

    The same ``seed`` draws the same luck for each I/O on every volume.
    """
    limits = of_each(model.limits, model.stripes) + model.instance_limits
    buckets = buckets_of(limits, 0.0)
    for i, limit in enumerate(limits):
        if limit.of_credits and not limit.name.startswith("instance"):
            buckets.levels[i] *= credits
    requests = len(thread.rest_s)
    normals = np.random.default_rng(seed).standard_normal(max(1, min(len(thread.size), 1 << 18)))
    latency_s, done_s = np.zeros(requests), np.zeros(len(thread.size))
    buckets = arrays(buckets)
    _compiled()(
        thread,
        Volumes(buckets, arrays(devices_of([model])), Host(len(model.instance_limits), 0.0, 0.0)),
        np.array([limit.of_credits for limit in limits]),
        normals,
        done_s,
        latency_s,
    )
    by_limit: dict[str, float] = {}
    for limit, seconds in zip(limits, buckets.waited_s, strict=True):
        name = of_any(limit.name)
        by_limit[name] = by_limit.get(name, 0.0) + float(seconds)
    return Replayed(latency_s, by_limit, done_s)


@functools.cache
def _compiled() -> Callable[..., Any]:
    return machine_code.compiled(run, (refill, io_s))
