"""Records to JSON and Arrow and back; the one place that knows column names, types and their order."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import pyarrow as pa
from pydantic import TypeAdapter

from esrally_ebs.errors import FormatError
from esrally_ebs.model import BaselineRow, Event, Phase, Sample, TelemetryPoint, Volume

_TEXT = pa.dictionary(pa.int32(), pa.string())  # few values, many rows

SAMPLES = pa.schema(
    [
        ("session", _TEXT),
        ("arm", _TEXT),
        ("round", pa.int32()),
        ("task", _TEXT),
        ("operation", _TEXT),
        ("phase", _TEXT),
        ("iteration", pa.int32()),
        ("client", pa.int32()),
        ("started_s", pa.float64()),
        ("service_time_s", pa.float64()),
        ("latency_s", pa.float64()),
        ("processing_time_s", pa.float64()),
        ("ops", pa.float64()),
        ("success", pa.bool_()),
        ("hits", pa.int64()),
        ("took_s", pa.float64()),
        ("resident_before", pa.float64()),
    ]
)
BASELINE = pa.schema(
    [
        ("arm", pa.string()),
        ("round", pa.int32()),
        ("job", pa.string()),
        ("op", pa.string()),
        ("bs_bytes", pa.int64()),
        ("numjobs", pa.int32()),
        ("iodepth", pa.int32()),
        *[(name, pa.float64()) for name in ("iops", "bandwidth_bytes_per_s")],
        *[(name, pa.float64()) for name in ("mean_s", "p50_s", "p90_s", "p99_s", "p999_s")],
    ]
)
TELEMETRY = pa.schema(
    [
        ("arm", _TEXT),
        ("device", _TEXT),
        ("at_s", pa.float64()),
        ("metric", _TEXT),
        ("value", pa.float64()),
        ("unit", _TEXT),
    ]
)

Row = Sample | BaselineRow | TelemetryPoint


def to_table(rows: Iterable[Row], schema: pa.Schema) -> pa.Table:
    """Records to a table with exactly the columns of ``schema``."""
    held = list(rows)
    columns = [
        pa.array([getattr(row, name) for row in held], type=schema.field(name).type) for name in schema.names
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def samples_of(table: pa.Table) -> tuple[Sample, ...]:
    """The rows of a samples table as records."""
    return tuple(Sample(**{**row, "phase": Phase(row["phase"])}) for row in table.to_pylist())


def baseline_of(table: pa.Table) -> tuple[BaselineRow, ...]:
    """The rows of ``baseline.parquet`` as records."""
    return tuple(BaselineRow(**row) for row in table.to_pylist())


def telemetry_of(table: pa.Table) -> tuple[TelemetryPoint, ...]:
    """The rows of a telemetry table as records."""
    return tuple(TelemetryPoint(**row) for row in table.to_pylist())


def plain(value: Any) -> Any:  # noqa: ANN401 - any record or value in, plain JSON values out
    """Dataclasses, paths, enums, tuples and mappings as plain JSON values; a NaN becomes null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return _scalar(value)


def _scalar(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | None) else str(value)


def dump(value: Any, *, indent: int | None = None) -> str:  # noqa: ANN401
    """Any record or value as JSON text."""
    return json.dumps(plain(value), indent=indent, ensure_ascii=False)


_VOLUME = TypeAdapter(Volume)


def parse_volume(table: Mapping[str, Any]) -> Volume:
    """An arm as ``plain`` wrote it; keys that this release does not know are passed over.

    Raises ValueError for a value of another type.
    """
    return _VOLUME.validate_python(table)


def dump_event(event: Event) -> str:
    """One line of ``events.jsonl``, without its end."""
    return dump({"at_s": event.at_s, "kind": event.kind, "arm": event.arm, **_own_keys(event.fields)})


def _own_keys(extra: Mapping[str, Any]) -> Mapping[str, Any]:
    clash = sorted({"at_s", "kind", "arm"} & set(extra))
    if clash:
        raise FormatError(f"event field {clash[0]!r} has the name of a column; give it another name")
    return extra


def parse_event(line: str, source: str) -> Event:
    """An event from its line; FormatError that names ``source`` when it is not one."""
    try:
        table = json.loads(line)
        return Event(at_s=table.pop("at_s"), kind=table.pop("kind"), arm=table.pop("arm"), fields=table)
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise FormatError(f"{source}: not an event; was the session cut there?") from error
