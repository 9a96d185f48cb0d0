"""Under what conditions it was measured: volumes, coldness, waits, credits, machine."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from esrally_ebs.causes.told import number_of
from esrally_ebs.model import Event, Volume
from esrally_ebs.report.model import NOTHING, Cell, Column, Row, Table, Value, quantity
from esrally_ebs.report.stages import stages_table
from esrally_ebs.store.session import Session
from esrally_ebs.units import MIB, format_bytes, format_seconds

Floats = npt.NDArray[np.float64]


def tables(session: Session) -> list[Table]:
    """All tables of conditions for which the session has data."""
    arms = [arm.spec.name for arm in session.arms]
    made = (
        _coldness(session.events, arms),
        _credits(session.telemetry, arms),
        stages_table(session),
        environment(session),
    )
    return [table for table in made if table is not None]


def arms_table(arms: Sequence[Volume]) -> Table | None:
    """What is compared."""
    if not arms:
        return None
    return Table(
        key="arms",
        title="Arms",
        item_title="arm",
        columns=tuple(
            Column(title=title, subject=title, left=True)
            for title in ("kind", "type", "size", "provisioned", "device", "file system", "readahead")
        ),
        rows=tuple(Row(item=arm.spec.name, cells=_arm_cells(arm)) for arm in arms),
    )


def _arm_cells(arm: Volume) -> tuple[Cell, ...]:
    spec = arm.spec
    provisioned = [f"{spec.iops} IOPS"] if spec.iops else []
    if spec.throughput_bytes_per_s:
        provisioned.append(f"{spec.throughput_bytes_per_s / MIB:.0f} MiB/s")
    if spec.read_latency != 1:
        provisioned.append(f"reads take {spec.read_latency:g} times as long")
    readahead = arm.readahead_bytes
    return (
        Cell(text=arm.kind.value, facts={"kind": arm.kind.value}),
        Cell(text=spec.type, facts={"type": spec.type}),
        Cell(text=format_bytes(spec.size_bytes), facts={"size_bytes": spec.size_bytes}),
        Cell(
            text=", ".join(provisioned) or f"as {spec.type} has it",
            facts={"iops": spec.iops, "throughput_bytes_per_s": spec.throughput_bytes_per_s},
        ),
        Cell(text=arm.device or "-", facts={"device": arm.device}),
        Cell(text=arm.filesystem or "-", facts={"filesystem": arm.filesystem}),
        quantity("readahead_bytes", readahead, format_bytes(readahead or 0)),
    )


def _coldness(events: Sequence[Event], arms: Sequence[str]) -> Table | None:
    drops = [event for event in events if event.kind == "drop" and number_of(event, "after") is not None]
    if not drops:
        return None
    return Table(
        key="coldness",
        title="Coldness: page cache before measured requests",
        item_title="arm",
        columns=tuple(
            Column(title=title, subject=title)
            for title in (
                "drops",
                "resident, mean",
                "resident, most",
                "retries",
                "refill waits",
                "waited in all",
            )
        ),
        rows=tuple(_coldness_row(arm, [drop for drop in drops if drop.arm == arm]) for arm in arms),
        notes=("Resident is the fraction of the index's bytes that was cached right after the drop.",),
    )


def _coldness_row(arm: str, drops: Sequence[Event]) -> Row:
    if not drops:
        return Row(item=arm, cells=(quantity("drops", 0, "0"), *[NOTHING] * 5))
    after = [number_of(drop, "after") or 0.0 for drop in drops]
    retries = sum(int(number_of(drop, "attempts") or 1) - 1 for drop in drops)
    waits = [number_of(drop, "refill_s") or 0.0 for drop in drops]
    mean, most = sum(after) / len(after), max(after)
    waited = sum(wait > 0 for wait in waits)
    return Row(
        item=arm,
        cells=(
            quantity("drops", len(drops), str(len(drops))),
            quantity("resident_mean", mean, f"{mean:.2%}"),
            quantity("resident_max", most, f"{most:.2%}"),
            quantity("retries", retries, str(retries)),
            quantity("refill_waits", waited, str(waited)),
            quantity("refill_s", sum(waits), format_seconds(sum(waits))),
        ),
    )


def _credits(telemetry: pa.Table, arms: Sequence[str]) -> Table | None:
    rows = []
    for arm in arms:
        _, levels = _series(telemetry, arm, "emulator.credits")
        _, capacities = _series(telemetry, arm, "emulator.credits_capacity")
        if len(levels):
            rows.append(Row(item=arm, cells=_credit_cells(levels, capacities)))
    if not rows:
        return None
    return Table(
        key="credits",
        title="Burst credits",
        item_title="arm",
        columns=tuple(
            Column(title=t, subject=t) for t in ("at start", "lowest", "at end", "spent", "of bucket")
        ),
        rows=tuple(rows),
        notes=(
            "Spent adds up what left the bucket between two seconds, so refilling in between hides some.",
        ),
    )


def _credit_cells(levels: Floats, capacities: Floats) -> tuple[Cell, ...]:
    spent = float(-np.minimum(np.diff(levels), 0).sum())
    share = spent / capacities[-1] if len(capacities) and capacities[-1] else None
    numbers = {
        "credits_start": levels[0],
        "credits_lowest": levels.min(),
        "credits_end": levels[-1],
        "credits_spent": spent,
    }
    cells = [quantity(metric, float(value), f"{value:,.0f}") for metric, value in numbers.items()]
    return (*cells, quantity("fraction_spent", share, f"{share or 0:.2%}"))


def _series(telemetry: pa.Table, arm: str, metric: str) -> tuple[Floats, Floats]:
    """Times and values of one metric of one arm."""
    mask = pc.and_(
        pc.equal(telemetry["arm"].cast(pa.string()), arm),
        pc.equal(telemetry["metric"].cast(pa.string()), metric),
    )
    own = telemetry.filter(mask).sort_by("at_s")
    return own["at_s"].to_numpy(), own["value"].to_numpy()


def environment(session: Session) -> Table | None:
    """Machine, software and dataset, one line each; what was not found out is left out."""
    facts: dict[str, Value] = {}
    _flatten(facts, "", {key: value for key, value in session.environment.items() if key != "aws"})
    dataset = {key: session.dataset.get(key) for key in ("documents", "bytes", "hash")}
    _flatten(facts, "dataset", dataset)
    if not facts:
        return None
    return Table(
        key="environment",
        title="Environment",
        item_title="what",
        columns=(Column(title="value", subject="session", left=True),),
        rows=tuple(
            Row(item=name, cells=(Cell(text=_readable(name, value), facts={"value": value}),))
            for name, value in facts.items()
        ),
    )


def _flatten(facts: dict[str, Value], prefix: str, value: Any) -> None:  # noqa: ANN401 - JSON
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _flatten(facts, f"{prefix} {key}".strip(), inner)
    elif isinstance(value, list | tuple):
        facts[prefix] = ", ".join(str(item) for item in value)
    elif value is not None and value != "":
        facts[prefix] = value


def _readable(name: str, value: Value) -> str:
    is_size = name.endswith(("_bytes", " bytes")) and isinstance(value, int | float)
    return format_bytes(float(value)) if is_size and value is not None else str(value)
