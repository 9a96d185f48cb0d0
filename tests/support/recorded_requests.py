"""Requests whose I/Os were recorded on a gp3, drawn by hand: what each computes and waits for is known."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from sample_rows import row, table
from session_in_memory import session

from esrally_ebs.advice.recording import Recording, recording_of
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.model import Event, Kind, Phase, Sample, State, Volume, VolumeSpec
from esrally_ebs.store import SessionFolder
from esrally_ebs.store.encoding import TRACE
from esrally_ebs.store.session import Session
from esrally_ebs.units import GIB, KIB, MIB

GP3 = VolumeSpec(name="a", type="gp3", size_bytes=100 * GIB, iops=3000, throughput_bytes_per_s=125 * MIB)
ST1 = replace(GP3, type="st1", size_bytes=500 * GIB, iops=None, throughput_bytes_per_s=None)
COMPUTE_S, PATH_S, BLOCK = 300e-6, 100e-6, 16 * KIB
REQUESTS, IOS = 48, 30


def latencies_s(count: int) -> list[float]:
    """What the model of gp3 takes for a block, drawn here by hand."""
    read = model_for(GP3).read
    return list(read.median_s(BLOCK) * np.exp(np.random.default_rng(7).normal(0, read.sigma, count)))


def recorded(
    offsets: list[int] | None = None, slowed: Callable[[int], float] | None = None, *, wakes_s: float = PATH_S
) -> Session:
    """Requests that read ``IOS`` missing pages one after the other; six rounds on arm a.

    ``slowed``: by round, how many times as long as usual reads took; then there are eight rounds.
    ``wakes_s``: so long after a read was done its thread goes on.
    """
    samples, ios, now_s = [], [], 1e9
    rounds = 8 if slowed else 6
    drawn = iter(latencies_s(REQUESTS * IOS))
    for number in range(REQUESTS):
        began_s = now_s
        round_ = 1 + number % rounds
        for place in range(IOS):
            now_s += COMPUTE_S
            done_s = now_s + next(drawn) * (slowed(round_) if slowed else 1.0) - PATH_S
            offset = offsets[place] if offsets else (2 * place + 1) * BLOCK
            ios.append((now_s, done_s, offset))
            now_s = done_s + wakes_s
        now_s += COMPUTE_S
        one = {"round": round_, "started_s": began_s, "service_time_s": now_s - began_s}
        samples.append(row(**one, task=f"t{number // rounds % 2}"))
        now_s += 1.0
    plain = {"arm": "a", "device": "a", "bytes": BLOCK, "op": "read", "queue_s": 0.0, "path_s": PATH_S}
    trace = [{**plain, "at_s": at, "done_s": done, "offset": o, "ahead": None} for at, done, o in ios]
    arm = Volume(spec=GP3, kind=Kind.EMULATED, mount=Path("/mnt"))
    made = session(arms=("a",), samples=table(*samples))
    made = replace(made, arms=(arm,))
    return replace(made, path=Path(), telemetry=pa.Table.from_pylist(trace, schema=TRACE))


def logged(offsets: list[int] | None = None) -> Session:
    """What a query log knows of the requests, and the kernel's tracepoints of their I/Os."""
    made = recorded(offsets, wakes_s=0.0)
    rows = made.samples.to_pylist()
    for one in rows:
        ended_ms = np.floor(1e3 * (one["started_s"] + one["service_time_s"]))
        took_ms = np.floor(1e3 * one["service_time_s"])
        one.update(started_s=(ended_ms - took_ms) / 1e3, service_time_s=took_ms / 1e3)
    trace = made.telemetry.drop_columns("path_s")
    trace = trace.append_column(TRACE.field("path_s"), pa.array([0.0] * trace.num_rows))
    note = Event(at_s=0.0, kind="trace", arm="a", fields={"ios": trace.num_rows, "lost": 0, "missed": 0})
    return replace(
        made, kind="trace", samples=table(*rows), telemetry=trace.select(TRACE.names), events=(note,)
    )


def recording(of: Session) -> Recording:
    """The requests of arm a with their I/Os."""
    return recording_of(of, of.telemetry, "a")


def recording_of_cache() -> Recording:
    """Of which only the I/Os matter."""
    none = np.zeros(0)
    return Recording(
        spec=GP3,
        task=none,
        round=none,
        began_s=none,
        latency_s=none,
        pause_s=none,
        cold=none,
        ios={},
        first=none,
    )


def of_computing(latency_s: np.ndarray, rounds: int = 8) -> Recording:
    """Requests that took so long, and read nothing."""
    of, count = recording(recorded()), len(latency_s)
    return replace(
        of,
        task=np.full(count, "t"),
        round=1 + np.arange(count) * rounds // count,
        began_s=np.arange(count) * 10.0,
        latency_s=latency_s,
        pause_s=np.zeros(count),
        cold=np.zeros(count, bool),
        ios={name: column[:0] for name, column in of.ios.items()},
        first=np.zeros(count + 1, int),
    )


def folder_of(home: Path, made: Session) -> SessionFolder:
    """The session as a race leaves it."""
    folder = SessionFolder.create(home, "s1", kind="race", plan=made.plan)
    folder.update(arms=made.arms, environment=made.environment)
    with folder.part_writer("samples") as writer:
        writer.add(Sample(**{**one, "phase": Phase.MEASURE}) for one in made.samples.to_pylist())
    folder.write_trace("a", made.telemetry)
    folder.note("trace", arm="a", ios=made.telemetry.num_rows, lost=0)
    folder.finish(State.COMPLETE)
    return folder
