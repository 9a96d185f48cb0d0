"""How long a report of many requests takes, and how much memory: a session of 10 million made up, then read.

    python benchmarks/scale.py [--samples 10000000]

A folder with samples of eight tasks on two arms in ten rounds is written (log-normal times, the columns of a
real session), then reported by the command that a user runs, in a process of its own. Must reach: 10 s and
2 GiB on two cores, the HTML below 5 MB. Wall time and the process's largest resident set are printed.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from esrally_ebs.machine.resources import plan_path
from esrally_ebs.model import Kind, State, Volume, VolumeSpec
from esrally_ebs.plan import load_plan
from esrally_ebs.store import SessionFolder
from esrally_ebs.store.encoding import SAMPLES
from esrally_ebs.store.parts import write_table

TASKS, ROUNDS, ARMS = 8, 10, ("gp2", "gp3")
SECONDS, BYTES, PAGE_BYTES = 10.0, 2 * 1024**3, 5e6


def samples(count: int) -> pa.Table:
    """So many requests, evenly over tasks, rounds and arms, in the order of a session."""
    draw = np.random.default_rng(1)
    number = np.arange(count)
    block = number * (TASKS * ROUNDS * len(ARMS)) // count
    arm, task, round_ = block % 2, block // 2 % TASKS, block // (2 * TASKS) + 1
    times = 0.03 * (1 + 0.1 * task) * np.where(arm == 0, 1.0, 0.95) * np.exp(draw.normal(0, 0.3, count))
    texts = {
        "session": (np.zeros(count, np.int32), ["scale"]),
        "arm": (arm.astype(np.int32), list(ARMS)),
        "task": (task.astype(np.int32), [f"task-{n}" for n in range(TASKS)]),
        "operation": (task.astype(np.int32), [f"task-{n}" for n in range(TASKS)]),
        "phase": (np.zeros(count, np.int32), ["measure"]),
    }
    numbers = {
        "round": round_,
        "iteration": np.ones(count),
        "client": np.zeros(count),
        "started_s": 1.7e9 + number * 1e-3,
        "service_time_s": times,
        "latency_s": times,
        "processing_time_s": times * 1.01,
        "ops": np.ones(count),
        "success": np.ones(count, bool),
        "hits": 1000 + task,
        "took_s": times * 0.9,
        "resident_before": np.zeros(count),
    }
    columns = []
    for field in SAMPLES:
        if field.name in texts:
            codes, words = texts[field.name]
            columns.append(pa.DictionaryArray.from_arrays(pa.array(codes), words).cast(field.type))
        else:
            columns.append(pa.array(numbers[field.name]).cast(field.type))
    return pa.Table.from_arrays(columns, schema=SAMPLES)


def write_session(home: Path, count: int) -> Path:
    """The folder of a complete session."""
    plan = load_plan(plan_path("gp2-vs-gp3"), {"design.rounds": ROUNDS})
    folder = SessionFolder.create(home, "scale", kind="race", plan=plan)
    (folder.path / "samples").mkdir()
    write_table(folder.path / "samples" / "part-0.parquet", samples(count))
    arms = [
        Volume(
            spec=VolumeSpec(name=arm, type=arm, size_bytes=100 * 1024**3),
            kind=Kind.EMULATED,
            mount=Path("/mnt") / arm,
        )
        for arm in ARMS
    ]
    folder.update(arms=arms)
    folder.finish(State.COMPLETE)
    return folder.path


def report(folder: Path, form: str) -> tuple[float, float, float, int]:
    """Seconds by the clock and on CPUs, largest resident set and the report's size in bytes."""
    output = folder / f"out.{form}"
    words = ["-m", "esrally_ebs", "report", str(folder), "--format", form, "--output", str(output)]
    began = time.monotonic()
    pid = os.posix_spawn(sys.executable, [sys.executable, *words], os.environ)
    _, status, used = os.wait4(pid, 0)
    seconds = time.monotonic() - began
    if status:
        raise SystemExit(f"{' '.join(words)}: ended with {os.waitstatus_to_exitcode(status)}")
    if form == "text" and "against" not in output.read_text():
        raise SystemExit("the report compares nothing: the samples were not read")
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, output.stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--samples", type=int, default=10_000_000)
    words = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ebs-scale-") as directory:
        began = time.monotonic()
        folder = write_session(Path(directory), words.samples)
        on_disk = sum(file.stat().st_size for file in (folder / "samples").iterdir())
        print(
            f"{words.samples:,} samples, {on_disk / 1e6:.0f} MB, written in {time.monotonic() - began:.0f} s"
        )
        for form in ("text", "html"):
            seconds, busy_s, most, size = report(folder, form)
            print(
                f"{form:5} {seconds:5.1f} s (limit {SECONDS:.0f}), {busy_s:5.1f} s of CPU, "
                f"{most / 1024**2:6.0f} MiB (limit {BYTES / 1024**2:.0f}), "
                f"{size / 1e6:.2f} MB (HTML: limit {PAGE_BYTES / 1e6:.0f})"
            )


if __name__ == "__main__":
    main()
