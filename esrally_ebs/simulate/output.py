"""What a job did in virtual time as the JSON that fio writes, so that one parser and one report serve both.

The figures are those of fio with ``--group_reporting``: runtimes in whole milliseconds, percentiles in the
middle of the bin that they fall in.
"""

import json
from collections.abc import Mapping
from typing import Any

from esrally_ebs import __version__
from esrally_ebs.plan import BaselineJob
from esrally_ebs.simulate.histogram import percentile_ns
from esrally_ebs.simulate.state import Tally

# What fio prints unless it is asked for others.
PERCENTILES = (1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.5, 99.9, 99.95, 99.99)
VERSION = f"fio-3.x (not run: simulated in virtual time by esrally_ebs {__version__})"


def fio_json(job: BaselineJob, number: int, tally: Tally, waited_s: Mapping[str, float]) -> str:
    """The JSON text of the job that has this number in the tally; ``waited_s`` are the seconds that I/Os
    waited because of each limit.

    ``per_second``, when it was counted: I/Os done in each second and their latencies added up.
    """
    runtime_ms = max(1, -int(-float(tally.ended_s[number]) * 1000 // 1))
    options = job.model_dump(mode="json", exclude={"name", "repeat"}, exclude_none=True)
    record = {
        "jobname": job.name,
        "error": 0,
        "job options": {key: str(value) for key, value in options.items()},
        "read": _direction(2 * number, tally, job.bs, runtime_ms),
        "write": _direction(2 * number + 1, tally, job.bs, runtime_ms),
    }
    document: dict[str, Any] = {
        "fio version": VERSION,
        "jobs": [record],
        "limits": {"waited_s": dict(waited_s)},
    }
    if len(tally.done_in_second):
        document["per_second"] = {
            "ios": [int(count) for count in tally.done_in_second],
            "latency_s": [float(seconds) for seconds in tally.latency_in_second],
        }
    return json.dumps(document, indent=2) + "\n"


def _direction(row: int, tally: Tally, block_bytes: int, runtime_ms: int) -> dict[str, Any]:
    bins = [int(count) for count in tally.bins[row]]
    ios = sum(bins)
    runtime_s = runtime_ms / 1000
    mean_s = float(tally.total_s[row]) / ios if ios else 0.0
    return {
        "io_bytes": ios * block_bytes,
        "bw_bytes": int(ios * block_bytes / runtime_s),
        "bw": int(ios * block_bytes / runtime_s / 1024),
        "iops": ios / runtime_s,
        "runtime": runtime_ms if ios else 0,
        "total_ios": ios,
        "clat_ns": {
            "min": round(float(tally.least_s[row]) * 1e9) if ios else 0,
            "max": round(float(tally.most_s[row]) * 1e9),
            "mean": mean_s * 1e9,
            "N": ios,
            "percentile": {f"{p:.6f}": percentile_ns(bins, p) for p in PERCENTILES} if ios else {},
        },
    }
