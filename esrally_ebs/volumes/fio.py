"""Parses the JSON of fio 3.x: one record per job and direction.

Latencies are completion latencies (``clat_ns``), which is what fio prints as percentiles and what published
tables show; for the synchronous engine the time to submit is part of them.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from esrally_ebs.errors import FormatError

PERCENTILES = (50.0, 90.0, 99.0, 99.9)  # to request by --percentile_list
_DIRECTIONS = ("read", "write")
_NS = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class FioDirection:
    """Reads or writes of one job (of all its clones with ``group_reporting``)."""

    job: str
    op: str  # read | write
    ios: int
    iops: float
    bandwidth_bytes_per_s: float
    mean_s: float
    p50_s: float
    p90_s: float
    p99_s: float
    p999_s: float


def parse_fio(text: str, source: str) -> list[FioDirection]:
    """One record per job and direction with any I/O, in fio's order; ignores notes before the JSON.

    ``source`` names the text in messages. Raises FormatError if it is not JSON of fio 3.x, lacks a figure, or
    a job ended with an error.
    """
    document = _document(text, source)
    version = document.get("fio version", "none")
    if not str(version).startswith("fio-3."):
        raise FormatError(f"{source}: written by version {version!r}; fio 3.x is needed")
    try:
        return [record for job in document["jobs"] for record in _directions(job, source)]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(
            f"{source}: lacks a figure that fio 3.x writes: {error!r}; is it cut short?"
        ) from error


def _document(text: str, source: str) -> dict[str, Any]:
    try:
        # fio writes notes about its options before the JSON.
        document: dict[str, Any] = json.loads(text[text.index("{") :])
    except ValueError as error:
        raise FormatError(
            f"{source}: not the JSON of fio ({error}); run it with --output-format=json"
        ) from error
    return document


def _directions(job: Mapping[str, Any], source: str) -> list[FioDirection]:
    name = job["jobname"]
    if job["error"]:
        raise FormatError(
            f"{source}: job {name} ended with: {os.strerror(job['error'])}; mend that and run it again"
        )
    directions = [_direction(name, op, job[op]) for op in _DIRECTIONS if job[op]["total_ios"]]
    if not directions:
        raise FormatError(f"{source}: job {name} did no I/O; look at its size and rw")
    return directions


def _direction(job: str, op: str, figures: Mapping[str, Any]) -> FioDirection:
    latency = figures["clat_ns"]
    p50, p90, p99, p999 = (float(latency["percentile"][f"{p:.6f}"]) * _NS for p in PERCENTILES)
    return FioDirection(
        job=job,
        op=op,
        ios=int(figures["total_ios"]),
        iops=float(figures["iops"]),
        bandwidth_bytes_per_s=float(figures["bw_bytes"]),
        mean_s=float(latency["mean"]) * _NS,
        p50_s=p50,
        p90_s=p90,
        p99_s=p99,
        p999_s=p999,
    )
