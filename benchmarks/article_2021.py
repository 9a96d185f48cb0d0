"""The eight rows of the article of 2021 on emulated devices: every published figure, ours, and the error.

    python benchmarks/article_2021.py runs.jsonl [2 | 16]

Needs root and fio. Each call measures all rows once (about 80 s), or only those of 2 or of 16 jobs, adds them
to the file, and prints the medians of all that it holds. Buckets and credits are full at the start of each
row, and the file exists. The rows of two jobs have the machine for themselves; those of sixteen run on both
volumes side by side.
"""

import json
import os
import statistics
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from esrally_ebs.machine.processes import run
from esrally_ebs.model import Volume, VolumeSpec
from esrally_ebs.session import clean
from esrally_ebs.store import running
from esrally_ebs.studies import read_study
from esrally_ebs.units import GIB, MIB
from esrally_ebs.volumes.backends import attach
from esrally_ebs.volumes.emulated.control import change
from esrally_ebs.volumes.fio import PERCENTILES, parse_fio

FIGURES = ("IOPS", "read KiB/s", "write KiB/s", "read p50", "read p90", "write p50", "write p90")  # us
_KINDS = ("iops", "read_bandwidth", "write_bandwidth", "read_p50", "read_p90", "write_p50", "write_p90")
_TWO, _SIXTEEN = 2, 16  # jobs
# Which I/Os of a mix are reads is fio's toss of a coin, the same in every run with one seed: chance of the
# load and no property of a volume. Of two jobs these seeds (by block size in KiB) make as many I/Os reads as
# the article's throughput says of its own: 8,300 of 16,384 (its own: 8,302), and 539 of 1,024. Of sixteen
# jobs' many I/Os half are reads in the article, as with fio's own seed.
_COINS = {16: 71, 256: 60}

Row = tuple[str, int, int]  # type, block size in KiB, jobs


def _published() -> tuple[dict[Row, tuple[float, ...]], tuple[float, ...]]:
    """The article's rows of encrypted volumes, and the tolerance of each figure."""
    rows: dict[Row, dict[str, float]] = {}
    tolerances: dict[str, float] = {}
    for figure in read_study("nikkei-2021").figures:
        if figure.arm in ("gp2", "gp3") and figure.job:
            _, _, block, jobs = figure.job.split("-")  # seq-rw-16k-x2
            thousands = 1000 if figure.kind.unit == "MB/s" else 1  # what it calls MB/s are thousand KiB/s
            row = rows.setdefault((figure.arm, int(block[:-1]), int(jobs[1:])), {})
            row[figure.kind.key] = figure.low * thousands
            tolerances[figure.kind.key] = figure.kind.tolerance
    published = {row: tuple(figures[kind] for kind in _KINDS) for row, figures in rows.items()}
    return published, tuple(tolerances[kind] for kind in _KINDS)


PUBLISHED, TOLERANCES = _published()


def main() -> None:
    """Measure once, keep it, print the medians so far."""
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
        sys.exit("usage: article_2021.py FILE [2 | 16]  (what is measured is kept in FILE, a row per line)")
    kept = Path(sys.argv[1])
    jobs = {int(word) for word in sys.argv[2:]} or {_TWO, _SIXTEEN}
    with kept.open("a") as file:
        for row, figures in _measure(jobs).items():
            file.write(json.dumps([*row, *figures]) + "\n")
    measured: dict[Row, list[list[float]]] = {row: [] for row in PUBLISHED}
    for line in kept.read_text().splitlines():
        type_, block_kib, of_jobs, *kept_figures = json.loads(line)
        measured[type_, block_kib, of_jobs].append(kept_figures)
    _print_table(measured)


def _measure(jobs: set[int]) -> Mapping[Row, tuple[float, ...]]:
    specs = (
        VolumeSpec(name="gp2", type="gp2", size_bytes=100 * GIB),
        VolumeSpec(name="gp3", type="gp3", size_bytes=100 * GIB, iops=3000, throughput_bytes_per_s=128 * MIB),
    )
    directory = running.begin(f"article-{os.getpid()}")  # so that nobody's clean takes it for abandoned
    with ExitStack() as stack:
        stack.callback(clean.take_down, directory.name)
        volumes = {s.name: attach(s, directory / s.name) for s in specs}
        for volume in volumes.values():
            change(volume.control, unlimited=True)
            _fio(volume, "write", 1024, 1)
            change(volume.control, unlimited=False)
        two = {row: _row(volumes[row[0]], row) for row in PUBLISHED if row[2] in jobs & {_TWO}}
        sixteen: dict[Row, tuple[float, ...]] = {}
        with ThreadPoolExecutor(len(volumes)) as pool:
            for block in (256, 16) if _SIXTEEN in jobs else ():
                rows = [(name, block, _SIXTEEN) for name in volumes]
                sixteen.update(zip(rows, pool.map(lambda row: _row(volumes[row[0]], row), rows), strict=True))
    return two | sixteen


def _row(volume: Volume, row: Row) -> tuple[float, ...]:
    _, block_kib, jobs = row
    change(volume.control, refill=True, credits=1.0)
    read, write = parse_fio(_fio(volume, "readwrite", block_kib, jobs), f"fio on {volume.mount}")
    rates = (read.iops + write.iops, read.bandwidth_bytes_per_s / 1024, write.bandwidth_bytes_per_s / 1024)
    return (*rates, *(s * 1e6 for s in (read.p50_s, read.p90_s, write.p50_s, write.p90_s)))


def _fio(volume: Volume, rw: str, block_kib: int, jobs: int) -> str:
    words = ["fio", "--name=bench", f"--filename={volume.mount}/fio-bench", f"--rw={rw}", "--size=128m"]
    shape = [f"--bs={block_kib}k", f"--numjobs={jobs}", "--direct=1", "--group_reporting"]
    percentiles = f"--percentile_list={':'.join(str(p) for p in PERCENTILES)}"
    toss = [f"--randseed={_COINS[block_kib]}"] if jobs == _TWO else []
    return run([*words, *shape, *toss, percentiles, "--output-format=json"], timeout_s=120)


def _print_table(measured: Mapping[Row, list[list[float]]]) -> None:
    print("published, ours (median), error; * outside its tolerance; latencies in us")
    print(f"{'type':<5}{'KiB':>4}{'jobs':>5}{'runs':>5}" + "".join(f"{figure:>25}" for figure in FIGURES))
    outside = 0
    for row, runs in measured.items():
        cells = []
        for i, (theirs, tolerance) in enumerate(zip(PUBLISHED[row], TOLERANCES, strict=True)):
            if not runs:
                continue
            ours = statistics.median(figures[i] for figures in runs)
            error = ours / theirs - 1
            outside += abs(error) > tolerance
            mark = "*" if abs(error) > tolerance else " "
            cells.append(f"{theirs:>9,}{ours:>9,.0f}{error:>+6.1%}{mark}")
        print(f"{row[0]:<5}{row[1]:>4}{row[2]:>5}{len(runs):>5}" + "".join(cells))
    print(f"outside: {outside} of {len(PUBLISHED) * len(FIGURES)}")


if __name__ == "__main__":
    main()
