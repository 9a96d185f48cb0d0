"""A session of one task on arms ``a`` and ``b`` that never touched a disk, for tests of the gate."""

from pathlib import Path

import pyarrow as pa
from small_plan import small_plan

from esrally_ebs.model import Kind, Phase, State, Volume, VolumeSpec
from esrally_ebs.store.encoding import BASELINE, SAMPLES, TELEMETRY
from esrally_ebs.store.session import Session


def session(ratio: float = 1.0, *, arms: tuple[str, ...] = ("a", "b"), **changes: object) -> Session:
    rows = [
        {
            **dict.fromkeys(SAMPLES.names, 0.0),
            "session": "s",
            "arm": arm,
            "round": round_,
            "task": "t",
            "operation": "t",
            "phase": Phase.MEASURE.value,
            "iteration": 1,
            "client": 0,
            "service_time_s": 0.1 * (ratio if arm == "b" else 1.0) * (1 + 0.001 * request),
            "success": True,
            "hits": 5,
        }
        for arm in arms
        for round_ in range(1, 7)
        for request in range(5)
    ]
    whole = {
        "id": "0123",
        "path": Path(),
        "kind": "race",
        "state": State.COMPLETE,
        "reason": "",
        "started_at": 0.0,
        "ended_at": 1.0,
        "plan": small_plan(race={}),
        "arms": tuple(
            Volume(
                spec=VolumeSpec(name=name, type="gp3", size_bytes=1), kind=Kind.EMULATED, mount=Path("/mnt")
            )
            for name in arms
        ),
        "environment": {},
        "dataset": {},
        "checks": (),
        "warnings": (),
        "samples": pa.Table.from_pylist(rows, schema=SAMPLES),
        "baseline": BASELINE.empty_table(),
        "telemetry": TELEMETRY.empty_table(),
        "events": (),
    }
    return Session(**{**whole, **changes})  # type: ignore[arg-type]
