"""Builds the kernel's state from models and buckets: lists for Python, arrays for the compiled kernel."""

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from esrally_ebs.catalog.limits import Model
from esrally_ebs.volumes.emulated.law.buckets import Buckets, fill
from esrally_ebs.volumes.emulated.law.queue import places
from esrally_ebs.volumes.virtual.state import BINS, KINDS, Devices, FioJobs, KernelState, Tally
from esrally_ebs.volumes.virtual.transfer import requests_of

_Columns = TypeVar("_Columns", bound="tuple[Any, ...]")


def lists(columns: _Columns) -> _Columns:
    """A named tuple with every column as a list."""
    return type(columns)(*(c if isinstance(c, list) else c.tolist() for c in columns))


def arrays(columns: _Columns) -> _Columns:
    """A named tuple with every column as an array."""
    return type(columns)(*map(np.asarray, columns))


def joined(parts: Sequence[Buckets], now: float) -> Buckets:
    """Several buckets in one, as of ``now``, which is the kernel's time 0."""
    for part in parts:
        fill(part, now)
    whole = Buckets(*([value for part in columns for value in part] for columns in zip(*parts, strict=True)))
    none = [0.0] * len(whole.levels)
    return whole._replace(filled_s=none, waited_s=list(none))


def devices_of(models: Sequence[Model]) -> Devices:
    """Devices for volumes whose buckets follow one another."""
    counts = [len(model.limits) * model.stripes for model in models]
    services = [service for model in models for service in (model.read, model.write)]
    accounts = [model.accounting for model in models]
    return Devices(
        first=[sum(counts[:i]) for i in range(len(models))],
        own=[len(model.limits) for model in models],
        stripes=[model.stripes for model in models],
        chunk_bytes=[model.chunk_bytes for model in models],
        max_io_bytes=[account.max_io_bytes for account in accounts],
        merge_over_bytes=[account.merges_over for account in accounts],
        least_bytes=[account.least_bytes for account in accounts],
        base_s=[service.line_s()[0] for service in services],
        per_byte_s=[service.line_s()[1] for service in services],
        sigma=[float(service.sigma) for service in services],
        queue=[places(model) for model in models],
        next_offset=[-1] * (sum(counts) + 1),  # one more, for a last volume without limits
        paid_to=[-1] * (sum(counts) + 1),
    )


def empty_tally(jobs: int, seconds: int) -> Tally:
    rows = 2 * jobs
    return Tally(
        bins=[[0] * BINS for _ in range(rows)],
        total=[0.0] * (KINDS * rows),
        squares=[0.0] * (KINDS * rows),
        most=[0.0] * (KINDS * rows),
        least=[math.inf] * (KINDS * rows),
        ended_s=[0.0] * jobs,
        period=[0] * rows,
        in_period=[0] * rows,
        periods=[0] * rows,
        done_in_second=np.zeros(seconds, dtype=np.int64),  # type: ignore[arg-type]
        latency_in_second=np.zeros(seconds),  # type: ignore[arg-type]
    )


def beginning(devices: Devices, load: FioJobs) -> KernelState:
    """State with every process about to submit its first I/O."""
    job_of = [job for job, clones in enumerate(load.clones) for _ in range(clones)]
    processes, count = len(job_of), len(devices.own)
    flying = [int(load.depth[job]) for job in job_of]
    tags = [_most_requests(devices, load, device) for device in range(count)]
    return KernelState(
        job_of=job_of,
        left=[load.ios_per_clone[job] for job in job_of],
        asked_s=[0.0] * processes,
        waited=[False] * processes,
        positions=[0] * (2 * processes),
        flying_first=[sum(flying[:process]) for process in range(processes)],
        flying_count=[0] * processes,
        done_s=[0.0] * sum(flying),
        flight=list(range(sum(flying))),
        begun_s=[0.0] * sum(flying),
        submitted_s=[0.0] * sum(flying),
        write=[0] * sum(flying),
        tag_first=[sum(tags[:device]) for device in range(count)],
        tag_count=[0] * count,
        tag_s=[0.0] * sum(tags),
        tag=[0] * sum(tags),
        waiting=[0] * (count * processes),
        waiting_count=[0] * count,
        favoured=[-1] * count,
        issued=[0] * len(load.clones),
        used=[0, 0],
        event_s=[0.0] * (processes + count),
        event=list(range(processes + count)),
    )


def _most_requests(devices: Devices, load: FioJobs, device: int) -> int:
    """Upper bound of requests at a device: one that finds room for ``requests_of`` many may need one more,
    and one more for each chunk that is no multiple of a request.
    """
    most = max(requests_of(devices, device, block) for block in load.block_bytes)
    return devices.queue[device] + 2 * most + 1
