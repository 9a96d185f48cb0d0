"""The small session of the golden reports, made by hand through the store, and its pieces."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from small_plan import small_plan
from stored import ROW, sample_of

from esrally_ebs.model import BaselineRow, Event, Kind, Sample, State, TelemetryPoint, Volume, VolumeSpec
from esrally_ebs.store import SessionFolder

MIB = 1024**2
START = 1_700_000_000.0
ARMS = ("gp2", "gp3")
ROUNDS = 6
# task to (seconds on gp2, ratio of gp3 to gp2, how much rounds of one arm differ)
TASKS = {
    "range_field_big_range": (0.060, 1.10, 0.002),
    "range_field_small_range": (0.028, 1.00, 0.002),
    "range_field_disjunction_small_range_small_term_query": (0.090, 1.04, 0.05),
}


def arm(name: str, kind: Kind = Kind.EMULATED) -> Volume:
    return Volume(
        spec=VolumeSpec(
            name=name,
            type=name,
            size_bytes=100 * 1024**3,
            iops=3000 if name == "gp3" else None,
            throughput_bytes_per_s=128 * MIB if name == "gp3" else None,
        ),
        kind=kind,
        mount=Path("/mnt") / name,
        device=f"loop{ARMS.index(name)}",
        filesystem="xfs",
        readahead_bytes=131072,
        scheduler="none",
    )


def samples(rounds: int = ROUNDS) -> list[Sample]:
    made = []
    at = START
    for round_ in range(1, rounds + 1):
        for task, (seconds, ratio, noise) in TASKS.items():
            for name in ARMS if round_ % 2 else ARMS[::-1]:
                wobble = 1 + noise * (((round_ * (3 if name == "gp2" else 5)) % 7) - 3) / 3
                for request in range(5):
                    service = (
                        seconds * (ratio if name == "gp3" else 1) * wobble * (1 + 0.01 * ((request * 2) % 5))
                    )
                    made.append(sample(name, round_, task, at, service))
                    at += 1.0
    return made


def sample(name: str, round_: int, task: str, at: float, service: float, **changes: Any) -> Sample:  # noqa: ANN401
    fields = {
        "session": "golden",
        "arm": name,
        "round": round_,
        "task": task,
        "operation": task,
        "started_s": at,
        "hits": 1000 + len(task),
        "took_s": service - 0.002,
        "resident_before": 0.0005,
    }
    return sample_of(service, **{**fields, **changes})


def fio(name: str, round_: int, op: str, iops: float) -> BaselineRow:
    base = {"gp2": 1.0, "gp3": 1.1}[name] * {"read": 418e-6, "write": 1032e-6}[op]
    rates = {"iops": iops, "bandwidth_bytes_per_s": iops * ROW.bs_bytes}
    times = {"mean_s": base, "p50_s": base, "p90_s": base * 1.2, "p99_s": base * 1.5, "p999_s": base * 2}
    return replace(ROW, arm=name, round=round_, job="seq-rw-16k-x2", op=op, **rates, **times)


def telemetry() -> list[TelemetryPoint]:
    made = []
    for name in ARMS:
        for second in range(10):
            at = START + second + 0.5
            values = {"device.queue_depth": 0.5, "device.read_await_s": 4e-4, "device.reads_per_s": 100.0}
            if name == "gp2":
                values |= {"emulator.credits": 5.4e6 - 1000 * second, "emulator.credits_capacity": 5.4e6}
            values["emulator.waited_s.iops"] = 0.25 * second
            made += [
                TelemetryPoint(arm=name, device="loop0", at_s=at, metric=metric, value=value, unit="")
                for metric, value in values.items()
            ]
    return made


def observed() -> list[Event]:
    """A request reads 10 x 100 KiB at 1 ms; of each of gp3's big range 0.6 ms is waiting for throughput."""
    made = []
    for one in samples():
        waited = 0.006 if one.arm == "gp3" and one.task == "range_field_big_range" else 0.0
        begin = dict.fromkeys(("device.reads", "device.read_bytes", "device.read_s"), 1000.0)
        begin |= dict.fromkeys(
            ("device.write_s", "device.weighted_s", "emulator.waited_s.throughput"), 1000.0
        )
        grown = {"device.reads": 10, "device.read_bytes": 1_024_000, "device.read_s": 0.01}
        grown |= {"device.weighted_s": 0.01, "emulator.waited_s.throughput": waited}
        fields = {"task": one.task, "round": one.round, "requests": 1, "started_s": one.started_s}
        fields |= {"begin": begin, "end": {name: v + grown.get(name, 0.0) for name, v in begin.items()}}
        made.append(Event(at_s=one.started_s + one.service_time_s, kind="io", arm=one.arm, fields=fields))
    return made


def make(home: Path, rows: list[Sample], *, arms: list[Volume] | None = None, **plan: Any) -> Path:  # noqa: ANN401
    tables: dict[str, Any] = {
        "name": "gp2-vs-gp3",
        "race": {"track": "noaa-ebs"},
        "cache": {"mode": "cold", "drop_every": 1, "max_resident": 0.01},
        "design": {"margin": 0.05, "confidence": 0.95},
        **plan,
    }
    folder = SessionFolder.create(home, "golden", kind="race", plan=small_plan(**tables), started_at=START)
    folder.update(
        arms=arms or [arm(name) for name in ARMS],
        environment={
            "kernel": "6.1.0",
            "memory_bytes": 8 * 1024**3,
            "nodes": {n: {"version": "8.8.2"} for n in ARMS},
        },
        dataset={"documents": 1000, "bytes": 300 * MIB, "hash": "0123456789abcdef", "segments": []},
    )
    with folder.part_writer("samples") as writer:
        writer.add(rows)
    return folder.path


def record(home: Path) -> Path:
    """The session of the golden files."""
    path = make(home, samples())
    folder = SessionFolder(path)
    folder.rows_baseline(
        [
            fio(name, round_, op, iops * scale)
            for name, iops in (("gp2", 1353.0), ("gp3", 1439.0))
            for op in ("read", "write")
            for round_, scale in ((0, 1.0), (1, 0.98))
        ]
    )
    with folder.part_writer("telemetry") as writer:
        writer.add(telemetry())
    for number, name in enumerate(ARMS * 3):
        fields = {
            "before": 0.8,
            "after": 0.0005 * number,
            "attempts": 1 + (number == 3),
            "refill_s": 0.5 * number,
            "seconds": 0.1,
        }
        folder.event(Event(at_s=START + number, kind="drop", arm=name, fields=fields))
    for name, seconds in (("attach volumes", 2.5), ("start nodes", 9.25)):
        folder.event(Event(at_s=START, kind="stage", fields={"name": name, "seconds": seconds}))
    for event in observed():
        folder.event(event)
    folder.event(Event(at_s=START + 9, kind="limiter-begin", arm="gp3", fields={"limit": "throughput"}))
    pause = {"text": "Pause Full", "seconds": 0.1}  # in the last request of gp2's first block, of 60 ms each
    folder.event(Event(at_s=START + 4.1, kind="gc", arm="gp2", fields=pause))
    folder.add_warning("two other processes were busy")
    folder.finish(State.COMPLETE, ended_at=START + 600)
    return path
