"""Records that tests write, or change: an arm, a sample, a row of fio."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from esrally_ebs.model import BaselineRow, Kind, Phase, Sample, Volume, VolumeSpec

GP2 = Volume(
    spec=VolumeSpec(name="gp2", type="gp2", size_bytes=100 * 1024**3),
    kind=Kind.EMULATED,
    mount=Path("/mnt/gp2"),
    control=Path("/run/x.sock"),
)
SAMPLE = Sample(
    session="s",
    arm="gp2",
    round=1,
    task="range_field_big_range",
    operation="search",
    phase=Phase.MEASURE,
    iteration=1,
    client=0,
    started_s=1.5,
    service_time_s=0.02,
    latency_s=0.021,
    processing_time_s=0.022,
    ops=1.0,
    success=True,
    hits=7,
    took_s=None,
    resident_before=0.001,
)
ROW = BaselineRow(
    arm="gp2",
    round=0,
    job="seq",
    op="read",
    bs_bytes=16384,
    numjobs=2,
    iodepth=1,
    iops=1353.0,
    bandwidth_bytes_per_s=22e6,
    mean_s=4e-4,
    p50_s=4.2e-4,
    p90_s=5e-4,
    p99_s=7e-4,
    p999_s=9e-4,
)


def sample_of(seconds: float, **changes: Any) -> Sample:  # noqa: ANN401
    """A request that took so long, by whatever it is measured."""
    times = dict.fromkeys(("service_time_s", "latency_s", "processing_time_s"), seconds)
    return replace(SAMPLE, **{**times, **changes})
