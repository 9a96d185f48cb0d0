"""Writes results of virtual time as fio's JSON, so that one parser and one report serve both.

Figures are as with fio's ``--group_reporting``: runtimes in whole milliseconds, percentiles as the middle of
their bin, rates by half seconds. What is not simulated, such as processor time, is left out.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from esrally_ebs.plan import BaselineJob
from esrally_ebs.volumes.virtual.arrays import empty_tally
from esrally_ebs.volumes.virtual.state import (
    COMPLETION,
    KINDS,
    PERIOD_S,
    RATE,
    SUBMISSION,
    WHOLE,
    Tally,
    middle_ns,
    percentile_ns,
)

# fio's default percentiles
PERCENTILES = (1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.5, 99.9, 99.95, 99.99)
VERSION = "fio-3.x (not run: simulated in virtual time by esrally_ebs)"
_EDGES = (2, 4, 10, 20, 50, 100, 250, 500, 750, 1000)  # upper edges of fio's shares by latency, in each unit
_UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000}
_NO_TIME = {"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0}


def fio_json(job: BaselineJob, number: int, tally: Tally, waited_s: Mapping[str, float]) -> str:
    """The JSON text of job ``number`` of the tally. ``waited_s``: seconds that I/Os waited for each limit,
    including the ramp_time, which nothing else counts.

    ``per_second``, if counted: I/Os done in each second, and their latencies added up.
    """
    ended_s = float(tally.ended_s[number])
    runtime_ms = max(1, -int(-(ended_s - job.ramp_time) * 1000 // 1))
    record = {
        "jobname": job.name,
        "groupid": 0,
        "error": 0,
        "eta": 0,
        "elapsed": math.ceil(ended_s),
        "job options": {key: str(value) for key, value in {"name": job.name, **job.options()}.items()},
        "read": _direction(2 * number, tally, job, runtime_ms),
        "write": _direction(2 * number + 1, tally, job, runtime_ms),
        "trim": _direction(0, empty_tally(1, 0), job, runtime_ms),
        "sync": {"total_ios": 0, "lat_ns": _NO_TIME},
        **_shares([int(a) + int(b) for a, b in zip(*tally.bins[2 * number : 2 * number + 2], strict=True)]),
    }
    document: dict[str, Any] = {
        "fio version": VERSION,
        "jobs": [record],
        "disk_util": [],
        "limits": {"waited_s": dict(waited_s)},
    }
    if len(tally.done_in_second):
        document["per_second"] = {
            "ios": [int(ios) for ios in tally.done_in_second],
            "latency_s": [float(seconds) for seconds in tally.latency_in_second],
        }
    return json.dumps(document, indent=1)


def _direction(row: int, tally: Tally, job: BaselineJob, runtime_ms: int) -> dict[str, Any]:
    bins = [int(count) for count in tally.bins[row]]
    ios = sum(bins)
    runtime_s = runtime_ms / 1000
    percentiles = {"percentile": {f"{p:.6f}": percentile_ns(bins, p) for p in PERCENTILES}} if ios else {}
    first = KINDS * row
    return {
        "io_bytes": ios * job.bs,
        "io_kbytes": ios * job.bs // 1024,
        "bw_bytes": int(ios * job.bs / runtime_s),
        "bw": int(ios * job.bs / runtime_s / 1024),
        "iops": ios / runtime_s,
        "runtime": runtime_ms if ios else 0,
        "total_ios": ios,
        "short_ios": 0,
        "drop_ios": 0,
        # like fio, which measures no submission time for engines that return when the I/O is done
        "slat_ns": _spread(tally, first + SUBMISSION, 0 if job.is_blocking else ios),
        "clat_ns": {**_spread(tally, first + COMPLETION, ios), **percentiles},
        "lat_ns": _spread(tally, first + WHOLE, ios),
        **_samples(tally, row, job.bs / 1024, ios / runtime_s),
    }


def _spread(tally: Tally, at: int, count: int) -> dict[str, float]:
    """Statistics of a kind of times in nanoseconds, as fio writes them."""
    if not count:
        return _NO_TIME
    mean, deviation = _mean_and_deviation(tally, at, count)
    return {
        "min": round(float(tally.least[at]) * 1e9),
        "max": round(float(tally.most[at]) * 1e9),
        "mean": mean * 1e9,
        "stddev": deviation * 1e9,
        "N": count,
    }


def _samples(tally: Tally, row: int, block_kib: float, iops: float) -> dict[str, float]:
    """Statistics of rates in I/Os and KiB per second, over all ended half seconds with I/Os."""
    at, count = KINDS * row + RATE, int(tally.periods[row])
    low = high = mean = deviation = 0.0
    if count:
        low, high = float(tally.least[at]) / PERIOD_S, float(tally.most[at]) / PERIOD_S
        mean, deviation = (value / PERIOD_S for value in _mean_and_deviation(tally, at, count))
    return {
        "bw_min": int(low * block_kib),
        "bw_max": int(high * block_kib),
        "bw_agg": min(100.0, 100 * mean / iops) if iops else 0.0,
        "bw_mean": mean * block_kib,
        "bw_dev": deviation * block_kib,
        "bw_samples": count,
        "iops_min": int(low),
        "iops_max": int(high),
        "iops_mean": mean,
        "iops_stddev": deviation,
        "iops_samples": count,
    }


def _mean_and_deviation(tally: Tally, at: int, count: int) -> tuple[float, float]:
    mean = float(tally.total[at]) / count
    if count == 1:
        return mean, 0.0
    return mean, math.sqrt(max(0.0, float(tally.squares[at]) - count * mean * mean) / (count - 1))


def _shares(bins: Sequence[int]) -> dict[str, dict[str, float]]:
    """Percentage of all I/Os in each bin, up to and including its edge."""
    edges = [(edge * factor, unit, str(edge)) for unit, factor in _UNITS.items() for edge in _EDGES]
    edges.append((2_000_000_000, "ms", "2000"))
    shares: dict[str, dict[str, float]] = {f"latency_{unit}": {} for unit in _UNITS}
    for _, unit, name in edges:
        shares[f"latency_{unit}"][name] = 0.0
    shares["latency_ms"][">=2000"] = 0.0
    share = 100 / max(1, sum(bins))
    for number, count in enumerate(bins):
        if count:
            at_ns = middle_ns(number)
            _, unit, name = next((edge for edge in edges if at_ns < edge[0]), (0, "ms", ">=2000"))
            shares[f"latency_{unit}"][name] += count * share
    return shares
