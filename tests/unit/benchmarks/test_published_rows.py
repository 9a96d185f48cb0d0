"""How benchmarks/published.py understands rows of published measurements that it has not seen."""

from typing import Any

import published
import published_metrics as metrics
import published_rows as rows
import pytest

KIB, MIB, GIB = 1024, 1024**2, 1024**3


def row(workload: dict[str, Any], volume: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "volume": {"type": "gp3", "size_gib": 500, **(volume or {})},
        "workload": {"tool": "fio", "rw": "randread", **workload},
        "metric": "iops",
        "unit": "IOPS",
        "value": 3000,
        "date": "2024-05",
        **more,
    }


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        ({"bs": "4k"}, {"bs": 4 * KIB}),
        ({"bs": "16 KiB"}, {"bs": 16 * KIB}),
        ({"bs": "1m"}, {"bs": MIB}),
        ({"bs_kib": 8}, {"bs": 8 * KIB}),
        ({}, {"bs": 4 * KIB, "iodepth": 64, "runtime": 60}),  # fio's block; busy, as nothing else is said
        ({"iodepth": 32}, {"engine": "libaio", "iodepth": 32, "runtime": None}),
        ({"iodepth": 32, "ioengine": "sync"}, {"engine": "psync"}),
        ({"iodepth": 1, "ioengine": "io_uring"}, {"engine": "libaio"}),
        ({"iodepth": 4, "time_based": True, "runtime": 120}, {"runtime": 120}),
        ({"iodepth": 4, "time_based": 10}, {"runtime": 10}),
        ({"iodepth": 4, "runtime": "2m"}, {"runtime": 120}),
        ({"iodepth": 4, "size": "10g"}, {"size": 10 * GIB}),
        ({"iodepth": 4, "size": "100%"}, {"size": GIB}),
        ({"rw": "rw"}, {"rw": "readwrite"}),
        ({"rw": "random read"}, {"rw": "randread"}),
        ({"rw": "write (sequential 100%)"}, {"rw": "write"}),
        ({"rw": "randrw 70/30"}, {"rw": "randrw", "rwmixread": 70}),
        (
            {"tool": "CrystalDiskMark", "queues": 32, "threads": 2},
            {"iodepth": 32, "numjobs": 2, "bs": 128 * KIB},
        ),
        ({"tool": "CrystalDiskMark", "rw": "read (seq)", "bs": "seq"}, {"rw": "read", "bs": 128 * KIB}),
        ({"tool": "hdparm -t", "rw": ""}, {"rw": "read", "runtime": 3}),
        (
            {"tool": "sysbench fileio", "rw": "rndrw", "threads": 16},
            {
                "rw": "randrw",
                "rwmixread": 60,
                "bs": 16 * KIB,
                "numjobs": 16,
                "engine": "psync",
                "runtime": 10,
            },
        ),
        ({"tool": "sysbench", "rw": "rndwr", "bs": "4k", "time_s": 60}, {"rw": "randwrite", "bs": 4 * KIB}),
        ({"tool": "dd", "rw": "read", "bs": "1M", "direct": 1}, {"engine": "psync", "bs": MIB}),
    ],
)
def test_words_of_a_workload_are_understood(workload: dict[str, Any], expected: dict[str, Any]) -> None:
    job = rows.job_of(row(workload))
    assert {name: getattr(job, name) for name in expected} == expected


def test_a_fast_volume_is_kept_busy_by_more_than_one_process() -> None:
    # one process does at most 167,000 I/Os a second: 256,000 take three
    volume = {"type": "io2 Block Express", "iops": 256_000, "size_gib": 1000}
    assert rows.job_of(row({}, volume)).numjobs == 3
    assert rows.job_of(row({})).numjobs == 1


@pytest.mark.parametrize(
    "workload", [{"tool": "esrally"}, {"rw": "trim"}, {"bs": "large"}, {"runtime": "a while", "iodepth": 1}]
)
def test_words_that_are_not_understood_are_refused_rather_than_guessed(workload: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(workload))):
        rows.job_of(row(workload))


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        ({"type": "EBS gp3", "iops": "4,000 (bought)"}, {"type": "gp3", "iops": 4000}),
        (
            {"type": "io2 Block Express", "iops": 64_000, "size_gib": None, "size_tib": 2},
            {"size_bytes": 2048 * GIB, "type": "io2-block-express"},
        ),
        ({"type": "gp2", "size_gib": None, "baseline_iops": 6000}, {"size_bytes": 2000 * GIB, "iops": None}),
        ({"type": "NVMe instance store"}, {"type": "instance-store"}),
        ({"type": "efs", "size_gib": None, "stored_gib": "100 -> 200"}, {"size_bytes": 1000 * GIB}),
        (
            {"type": "efs", "mode": "Elastic", "storage_class": "One Zone"},
            {"mode": "elastic", "one_zone": True},
        ),
    ],
)
def test_words_of_a_volume_are_understood(volume: dict[str, Any], expected: dict[str, Any]) -> None:
    spec = rows.spec_of(row({}, volume))
    assert {name: getattr(spec, name) for name in expected} == expected


def test_a_mirror_is_no_stripe() -> None:
    assert rows.spec_of(row({}, {"count": 2, "raid": 0})).stripes == 2
    for level in (1, "RAID 10"):
        with pytest.raises(ValueError, match=f"4 volumes with RAID {level}"):
            rows.spec_of(row({}, {"count": 4, "raid": level}))


def test_a_figure_after_the_burst_is_of_a_volume_without_credits() -> None:
    assert rows.spec_of(row({}, metric="post_burst_iops")).credits == 0
    assert rows.spec_of(row({}, metric="burst_iops")).credits == 1


@pytest.mark.parametrize(
    ("metric", "sides", "what", "percentile"),
    [
        ("read_clat_p999", ("read",), "latency", 99.9),
        ("lat_p99.5", ("read", "write"), "latency", 99.5),
        ("write_lat_avg", ("write",), "latency", None),
        ("p99_latency", ("read", "write"), "latency", 99),
        ("median_latency", ("read", "write"), "latency", 50),
        ("iops_total_read_plus_write", ("read", "write"), "iops", None),
        ("seq_write_throughput", ("write",), "bandwidth", None),
        ("total_ios", ("read", "write"), "total_ios", None),
    ],
)
def test_metrics_are_read_off(
    metric: str, sides: tuple[str, ...], what: str, percentile: float | None
) -> None:
    reading = metrics.reading_of(metric)
    assert (reading.sides, reading.what, reading.percentile) == (sides, what, percentile)


@pytest.mark.parametrize("metric", ["clat_stdev", "slat_mean", "clat_max", "cpu"])
def test_metrics_that_a_result_does_not_hold_are_refused(metric: str) -> None:
    with pytest.raises(ValueError, match=metric):
        metrics.reading_of(metric)


@pytest.mark.parametrize(("unit", "factor"), [("MB/s", 1e6), ("Mb/s", 125e3), ("MiB/s (approx)", MIB)])
def test_bits_are_no_bytes(unit: str, factor: float) -> None:
    assert metrics.unit_of({"unit": unit}, metrics.BYTES) == factor
    with pytest.raises(ValueError, match=r"MiB\?"):
        metrics.unit_of({"unit": "MiB?"}, metrics.BYTES)


def test_a_row_that_is_not_understood_counts_as_a_miss() -> None:
    # what a file system of 100 GiB may burst at
    efs = {"type": "efs", "mode": "bursting", "size_gib": 100}
    good = row({}, efs, metric="PermittedThroughput", unit="MiB/s", value=100)
    verdicts = published.judge([good, row({"rw": "trim"})])
    assert [(verdict.ok, verdict.counted) for verdict in verdicts] == [(True, True), (False, True)]
    assert "not understood" in verdicts[1].why
