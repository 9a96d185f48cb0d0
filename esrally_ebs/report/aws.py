"""What AWS reports and counts: the arms' volumes, limits exceeded by task, CloudWatch's minutes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from esrally_ebs.analysis.profile import EXCEEDED
from esrally_ebs.analysis.rounds import Floats
from esrally_ebs.report.conditions import series_of, turns_of
from esrally_ebs.report.model import NOTHING, Cell, Table, Value, plain_range, quantity, table_of, word
from esrally_ebs.store.session import Session
from esrally_ebs.units import MIB, format_bytes

_CLOUDWATCH = "cloudwatch."
_SAMPLE_S = 1.0  # a request's excess shows in the sample after it


def tables(session: Session) -> tuple[Table | None, ...]:
    return _volumes(session.aws), _exceeded(session), _minutes(session)


def _volumes(aws: Mapping[str, Any]) -> Table:
    cells: dict[str, tuple[Cell, ...]] = {}
    for arm, record in aws.get("arms", {}).items():
        cells |= {f"{arm} {one['volume_id']}": _volume(one) for one in record["volumes"]}
        if system := record["file_system"]:
            cells[f"{arm} {system['file_system_id']}"] = _file_system(system)
    titles = ("type", "size", "provisioned", "encrypted", "from snapshot", "state")
    rows = {item: dict(zip(titles, own, strict=True)) for item, own in cells.items()}
    return table_of("aws", "What AWS says of the arms", "volume", rows, *_instance(aws), left=True)


def _volume(volume: Mapping[str, Any]) -> tuple[Cell, ...]:
    throughput, iops = volume["throughput_bytes_per_s"], volume["iops"]
    provisioned = [f"{iops:,} IOPS"] if iops else []
    provisioned += [f"{throughput / MIB:.0f} MiB/s"] if throughput else []
    state = ", ".join(filter(None, [volume["state"], volume["modification"]]))
    return (
        word("type", volume["type"]),
        Cell(text=format_bytes(volume["size_bytes"]), facts={"size_bytes": volume["size_bytes"]}),
        Cell(text=", ".join(provisioned) or "-", facts={"iops": iops, "throughput_bytes_per_s": throughput}),
        Cell(text="yes" if volume["encrypted"] else "no", facts={"encrypted": volume["encrypted"]}),
        word("snapshot", volume["snapshot_id"]),
        word("state", state),
    )


def _file_system(system: Mapping[str, Any]) -> tuple[Cell, ...]:
    rate = system["provisioned_bytes_per_s"]
    return (
        word("type", f"EFS, {system['throughput_mode']}"),
        Cell(text=format_bytes(system["size_bytes"]), facts={"size_bytes": system["size_bytes"]}),
        quantity("throughput_bytes_per_s", rate, f"{(rate or 0) / MIB:.0f} MiB/s"),
        Cell(text="yes" if system["encrypted"] else "no", facts={"encrypted": system["encrypted"]}),
        NOTHING,
        word("state", system["state"]),
    )


def _instance(aws: Mapping[str, Any]) -> tuple[str, ...]:
    limits = aws.get("limits")
    notes = [f"Not known: {reason}." for reason in aws.get("unknown", ())]
    if limits:
        base = f"{limits['baseline_iops']:,} IOPS, {limits['baseline_bytes_per_s'] / MIB:.0f} MiB/s"
        most = f"{limits['maximum_iops']:,} IOPS, {limits['maximum_bytes_per_s'] / MIB:.0f} MiB/s"
        notes.insert(0, f"All volumes of {limits['instance_type']} together: {base}; at most {most}.")
    return tuple(notes)


def _exceeded(session: Session) -> Table | None:
    """Seconds that limits were exceeded during each task's measured requests."""
    known = {node: _metrics(session.telemetry, node, EXCEEDED) for node in session.nodes}
    if not any(known.values()):
        return None
    blocks = turns_of(session.samples)
    rows = {
        task: {node: _cell(known[node], blocks.get((arm, task), ())) for node, arm in session.nodes.items()}
        for _, task in blocks
    }
    return table_of(
        "exceeded",
        "Limits exceeded while measured requests ran",
        "task",
        rows,
        "Of the volumes' own counters, once a second; several volumes of an arm are added up.",
        left=True,
    )


def _metrics(telemetry: pa.Table, arm: str, prefix: str) -> dict[str, tuple[Floats, Floats]]:
    """Times and values of an arm's metrics with this prefix, by the rest of their names."""
    names = {str(name) for name in telemetry["metric"].unique().to_pylist() if str(name).startswith(prefix)}
    series = {name.removeprefix(prefix): series_of(telemetry, arm, name) for name in sorted(names)}
    return {name: (at, values) for name, (at, values) in series.items() if len(at)}


def _cell(limits: Mapping[str, tuple[Floats, Floats]], spans: Sequence[tuple[float, float]]) -> Cell:
    if not limits or not spans:
        return NOTHING
    seconds = sum(end - start for start, end in spans)
    grown = {limit: _grown(at, values, spans) for limit, (at, values) in limits.items()}
    facts: dict[str, Value] = {
        f"{limit.replace('-', '_')}_exceeded_s": value for limit, value in grown.items()
    }
    shares = [f"{limit} {value:.1f} s ({value / seconds:.0%})" for limit, value in grown.items() if value > 0]
    return Cell(text=", ".join(shares) or "none", facts=facts)


def _grown(at: Floats, values: Floats, spans: Iterable[tuple[float, float]]) -> float:
    """Growth of a counter during the spans: from the sample before each to the one after it."""
    total = 0.0
    for start, end in spans:
        before = max(0, int(np.searchsorted(at, start, side="right")) - 1)
        after = min(len(at) - 1, int(np.searchsorted(at, end + _SAMPLE_S, side="right")) - 1)
        total += max(0.0, float(values[after] - values[before])) if after > before else 0.0
    return total


def _minutes(session: Session) -> Table:
    known = {node: _metrics(session.telemetry, node, _CLOUDWATCH) for node in session.nodes}
    names = sorted({name for series in known.values() for name in series})
    rows = {
        name.replace("_", " "): {node: _range(name, series.get(name)) for node, series in known.items()}
        for name in names
    }
    note = "Lowest to highest minute, of all volumes of an arm; the instance's are the same on every arm."
    return table_of("cloudwatch", "CloudWatch's minutes of the session", "metric", rows, note)


def _range(name: str, series: tuple[Floats, Floats] | None) -> Cell:
    if series is None:
        return NOTHING
    low, high = float(series[1].min()), float(series[1].max())
    return Cell(text=plain_range(low, high), facts={f"{name}_min": low, f"{name}_max": high})
