"""A session of one task on arms ``a`` and ``b`` that never touched a disk, for tests of the gate."""

from pathlib import Path

from sample_rows import row, table
from small_plan import small_plan

from esrally_ebs.model import Kind, State, Volume, VolumeSpec
from esrally_ebs.store.encoding import BASELINE, TELEMETRY
from esrally_ebs.store.session import Session


def session(ratio: float = 1.0, *, arms: tuple[str, ...] = ("a", "b"), **changes: object) -> Session:
    rows = [
        row(arm=arm, round=round_, service_time_s=seconds * (1 + 0.001 * request))
        for arm, seconds in ((arm, 0.1 * ratio if arm == "b" else 0.1) for arm in arms)
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
        "samples": table(*rows),
        "baseline": BASELINE.empty_table(),
        "telemetry": TELEMETRY.empty_table(),
        "events": (),
    }
    return Session(**{**whole, **changes})  # type: ignore[arg-type]
