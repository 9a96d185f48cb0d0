"""How long the report of a large session takes, how much memory, and how large its HTML is.

Records a session of so many simulated requests (eight tasks, two arms, ten rounds) in a temporary folder and
reports on it in a process of its own, from the start of Python to the last format:

    python benchmarks/report_scale.py --requests 10_000_000
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from esrally_ebs.model import Kind, State, Volume, VolumeSpec
from esrally_ebs.store import SessionFolder
from esrally_ebs.store.encoding import SAMPLES
from esrally_ebs.store.parts import write_table

TASKS, ARMS, ROUNDS = 8, ("gp2", "gp3"), 10


def record(home: Path, requests: int) -> Path:
    """A complete session of log-normal service times, each round in a part of its own."""
    plan = {"name": "scale", "race": {"track": "noaa-ebs"}, "cache": {"mode": "cold", "drop_every": 1}}
    folder = SessionFolder.create(home, "scale", kind="race", plan=plan, started_at=0.0)
    folder.update(arms=[_arm(name) for name in ARMS])
    (folder.path / "samples").mkdir()
    source = np.random.default_rng(1)
    per_block = requests // (TASKS * len(ARMS) * ROUNDS)
    for round_ in range(1, ROUNDS + 1):
        blocks = [_block(source, round_, task, arm, per_block) for task in range(TASKS) for arm in ARMS]
        table = pa.concat_tables(blocks).unify_dictionaries()
        write_table(folder.path / "samples" / f"part-{round_:03d}.parquet", table)
    folder.finish(State.COMPLETE, ended_at=3600.0)
    return folder.path


def _arm(name: str) -> Volume:
    spec = VolumeSpec(name=name, type=name, size_bytes=100 * 1024**3)
    return Volume(spec=spec, kind=Kind.EMULATED, mount=Path("/mnt"))


def _block(source: np.random.Generator, round_: int, task: int, arm: str, requests: int) -> pa.Table:
    scale = (0.02 + 0.01 * task) * (0.9 if arm == "gp3" else 1.0)
    times = scale * np.exp(source.normal(0, 0.2, requests))
    texts = {"session": "scale", "arm": arm, "task": f"task-{task}", "operation": "search"}
    numbers = {"round": round_, "iteration": 1, "client": 0, "ops": 1.0, "success": True, "hits": task}
    columns = {
        **{name: [text] for name, text in (texts | {"phase": "measure"}).items()},
        **{name: [value] for name, value in (numbers | {"resident_before": 0.0}).items()},
    }
    place = np.zeros(requests, np.int32)
    repeated = {
        name: pa.array(value, SAMPLES.field(name).type).take(pa.array(place))
        for name, value in columns.items()
    }
    repeated["started_s"] = pa.array(np.linspace(round_ * 100.0, round_ * 100 + 90.0, requests))
    for name in ("service_time_s", "latency_s", "processing_time_s", "took_s"):
        repeated[name] = pa.array(times)
    return pa.table([repeated[name] for name in SAMPLES.names], schema=SAMPLES)


def report(path: Path) -> None:
    """All five formats of the session, as the command makes them."""
    from esrally_ebs import report as reports
    from esrally_ebs.store import load_session

    built = reports.build(load_session(path, sample_columns=list(reports.SAMPLE_COLUMNS)))
    sizes = {form: len(render(built)) for form, render in reports.RENDERERS.items()}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{peak / 1024**3:.2f} GiB at most; HTML {sizes['html'] / 1e6:.2f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000_000)
    parser.add_argument("--session", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.session:
        report(given.session)
        return
    with tempfile.TemporaryDirectory() as home:
        path = record(Path(home), given.requests)
        began = time.monotonic()
        subprocess.run([sys.executable, __file__, "--session", str(path)], check=True)
        print(f"{given.requests:,} requests: {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
