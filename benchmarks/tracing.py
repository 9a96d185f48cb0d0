"""What ``esrally-ebs trace`` costs those whose I/Os it records, and whether it loses any.

    python benchmarks/tracing.py [PAIRS]

Needs root, and tracefs mounted. fio's threads are watched, as a node's are. First its reads, one after the
other, on an emulated gp3: so many pairs of runs (12), one of the two recorded, by turns the first or the
second; the ratio of means and percentiles in each pair, and the middle of all with its interval. Then 20,000
reads a second on a loop device, recorded. Must (issue 17): p50 at most 1.01 times, p99 at most 1.03 times as
long, no event lost, at most 0.1 of a processor.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import numpy as np
import pyarrow as pa
from mounted import on_loop
from races import be_called
from scipy.stats import bootstrap

from esrally_ebs.machine.processes import threads_of
from esrally_ebs.machine.tracefs import require_tracing
from esrally_ebs.session import manual
from esrally_ebs.telemetry.block_trace import TraceSummary, queues_of, record

PLAN = """name = "tracing"
[[arm]]
name = "gp3"
type = "gp3"
size = "100GiB"
iops = 16000
throughput = "1000MiB/s"
"""
SECONDS, LOAD_SECONDS, SIZE_MIB = 5, 10, 512


def fio(mount: Path, seconds: int, *more: str) -> dict[str, float]:
    """Random reads of 4 KiB: mean, p50 and p99 in ms, and their number a second."""
    job = ["fio", "--name=reads", f"--filename={mount / 'file'}", f"--size={SIZE_MIB}m", "--rw=randread"]
    job += ["--bs=4k", "--direct=1", "--ioengine=libaio", f"--runtime={seconds}", "--time_based", *more]
    done = subprocess.run([*job, "--output-format=json"], check=True, capture_output=True, text=True)
    read = json.loads(done.stdout)["jobs"][0]["read"]
    mean, times = read["clat_ns"]["mean"], read["clat_ns"]["percentile"]
    p50, p99 = times["50.000000"], times["99.000000"]  # to 1.6 %
    return {"mean": mean / 1e6, "p50": p50 / 1e6, "p99": p99 / 1e6, "iops": read["iops"]}


@contextmanager
def recorded(mount: Path, seconds: int) -> Iterator[list[TraceSummary]]:
    """Record meanwhile; the summary is there when the block has ended."""
    queues, _ = queues_of(mount)
    tables: list[pa.Table] = []
    made: list[TraceSummary] = []

    def run() -> None:
        watched = threads_of(os.getpid())  # and what they start
        made.append(
            record("benchmark-tracing", queues, "arm", seconds=seconds, keep=tables.append, threads=watched)
        )

    thread = threading.Thread(target=run)
    thread.start()
    yield made
    thread.join()


@contextmanager
def emulated() -> Iterator[Path]:
    """The mount of an emulated gp3."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as plan:
        plan.write(PLAN)
        plan.flush()
        (volume,) = manual.up(plan.name)
        try:
            yield volume.mount
        finally:
            manual.down(plan.name)


def ratios(mount: Path, pairs: int) -> None:
    """Print how many times as long reads take while they are recorded."""
    fio(mount, 1)
    values: dict[str, list[float]] = {"mean": [], "p50": [], "p99": []}
    for number in range(pairs):
        times = {}
        for with_trace in (number % 2 == 0, number % 2 == 1):
            if with_trace:
                with recorded(mount, SECONDS + 1):
                    times[True] = fio(mount, SECONDS, "--ioengine=psync")
            else:
                times[False] = fio(mount, SECONDS, "--ioengine=psync")
        for name, column in values.items():
            column.append(times[True][name] / times[False][name])
    for name, column in values.items():
        low, high = bootstrap((column,), np.median, n_resamples=2000, rng=1).confidence_interval
        print(f"{name}: {np.median(column):.3f} times ({low:.3f} to {high:.3f}) of {pairs} pairs")


def load(mount: Path) -> None:
    """Print what a recording of 20,000 reads a second loses and takes."""
    fio(mount, 1)
    with recorded(mount, LOAD_SECONDS + 1) as made:
        got = fio(mount, LOAD_SECONDS, "--iodepth=16", "--rate_iops=20000")
    one = made[0]
    print(
        f"{got['iops']:,.0f} reads a second: {one.ios:,} I/Os, {one.waited_for:,} slept for,"
        f" {one.lost} events lost,"
        f" {one.processor_s / LOAD_SECONDS:.3f} of a processor"
    )


def main() -> None:
    """Do both."""
    be_called("tracing")
    require_tracing()  # else nothing would be recorded, and cost nothing
    print("load of the machine:", " ".join(Path("/proc/loadavg").read_text().split()[:3]))
    with emulated() as mount:
        ratios(mount, int(sys.argv[1]) if len(sys.argv) > 1 else 12)
    image = Path("/dev/shm/benchmark-tracing")
    with tempfile.TemporaryDirectory() as folder, on_loop(image, Path(folder), mib=2 * SIZE_MIB) as mount:
        load(mount)
    print("load of the machine:", " ".join(Path("/proc/loadavg").read_text().split()[:3]))


if __name__ == "__main__":
    main()
