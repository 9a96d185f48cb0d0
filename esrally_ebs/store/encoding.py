"""Converts records to JSON and Arrow and back; only here are column names, types and order known."""

import json
import math
import re
import zlib
from collections.abc import Iterable
from typing import Annotated, Any, NoReturn

import pyarrow as pa
from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from esrally_ebs.errors import FormatError
from esrally_ebs.model import BaselineRow, Event, Sample, TelemetryPoint

MAX_TIME = 253_402_300_800  # the year 10,000, beyond calendars here
Time = Annotated[float, Field(ge=0, lt=MAX_TIME, allow_inf_nan=False)]
MAX_IO_BYTES = 2**32  # the kernel counts an I/O's bytes in 32 bits
_MAX_INTEGER = 2**63  # first integer beyond signed 64 bits
_TEXT = pa.dictionary(pa.int32(), pa.string())  # few distinct values in many rows

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
TRACE = pa.schema(
    [
        ("arm", _TEXT),
        ("device", _TEXT),
        ("at_s", pa.float64()),
        ("done_s", pa.float64()),
        ("offset", pa.int64()),
        ("bytes", pa.int64()),
        ("op", _TEXT),
        ("queue_s", pa.float64()),  # wait for a limit, as far as known
        ("path_s", pa.float64()),  # the path's part of done_s - at_s
        ("ahead", pa.bool_()),  # whether readahead; null: unknown
        ("thread", pa.int64()),  # thread that issued it, if known
        ("waiter", pa.int64()),  # thread that slept until it was done, if known
        ("slept_s", pa.float64()),  # begin of the sleep
        ("woken_s", pa.float64()),  # end of the sleep
    ]
)
MAY_BE_MISSING = frozenset(
    {"hits", "took_s", "resident_before", "done_s", "queue_s", "ahead", "thread"}
    | {"waiter", "slept_s", "woken_s"}
)  # nullable columns; all others have a value in each row


def to_table(rows: Iterable[Sample | BaselineRow | TelemetryPoint], schema: pa.Schema) -> pa.Table:
    """Convert records to a table with exactly the schema's columns."""
    records = list(rows)
    columns = [
        pa.array([getattr(record, name) for record in records], type=schema.field(name).type)
        for name in schema.names
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def baseline_of(table: pa.Table) -> tuple[BaselineRow, ...]:
    """The rows of ``baseline.parquet`` as records."""
    return tuple(BaselineRow(**row) for row in table.to_pylist())


def plain(value: Any) -> Any:  # noqa: ANN401 - any record or value in, plain JSON values out
    """Convert records, paths, enums, tuples and mappings to plain JSON values; NaN becomes null."""
    return to_jsonable_python(value, by_alias=False, inf_nan_mode="null", fallback=str)


def dump(value: Any, *, indent: int | None = None) -> str:  # noqa: ANN401
    """Any record or value as JSON text."""
    return json.dumps(plain(value), indent=indent, ensure_ascii=False)


_SEAL = re.compile(r',\s*"crc32": "([0-9a-f]{8})"\s*}\s*\Z')
_SEAL_SIGNS = 80  # more characters than any seal has at a file's end


def seal(text: str) -> str:
    """A JSON object's text with an added key ``crc32``, over all bytes before it."""
    body = text[:-1].rstrip()
    return f'{body},{text[len(body) : -1] or " "}"crc32": "{_crc32(body)}"}}'


def parse_sealed(text: str, source: str) -> Any:  # noqa: ANN401
    """Like parse_json, after checking and removing the seal; earlier releases wrote none.

    Raises FormatError, naming ``source``, if the text is not what was sealed.
    """
    seal = _SEAL.search(text, max(0, len(text) - _SEAL_SIGNS))
    if seal and _crc32(text[: seal.start()]) != seal[1]:
        raise FormatError(
            f"{source}: its checksum does not fit: a disk changed it; restore it from a copy, or remove its "
            "key crc32 if it was you who changed it"
        )
    values = parse_json(text)
    if seal:
        del values["crc32"]
    return values


def _crc32(text: str) -> str:
    return f"{zlib.crc32(text.encode('utf-8', 'backslashreplace')):08x}"  # encoded as by files.write_text


def parse_json(text: str) -> Any:  # noqa: ANN401
    """Parse JSON into plain values. Raises ValueError for deep nesting, NaN, and numbers beyond 64 bits."""
    try:
        return json.loads(text, parse_int=_integer, parse_float=_finite, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _integer(text: str) -> int:
    if len(text) > 20 or abs(int(text)) >= _MAX_INTEGER:
        _refuse(text)
    return int(text)


def _finite(text: str) -> float:
    return float(text) if math.isfinite(float(text)) else _refuse(text)


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text[:20]}{'...' if len(text) > 20 else ''} is no number of 64 bits")


def first_problem(error: ValidationError) -> str:
    """Place and kind of a record's first error, in one line."""
    problem = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in problem["loc"])
    value = repr(problem["input"])
    return f"{where}: {value[:60]} does not fit its format ({problem['msg']})"


_EVENT = TypeAdapter(Event)
_TIME = TypeAdapter(Time)


def dump_event(event: Event) -> str:
    """A line of ``events.jsonl``, without its line end."""
    columns = {"at_s": event.at_s, "kind": event.kind, "arm": event.arm}
    if clash := sorted({*columns, "crc32"} & event.fields.keys()):
        raise FormatError(f"event field {clash[0]!r} has the name of a column; give it another name")
    return seal(dump({**columns, **event.fields}))


def parse_event(line: str, source: str) -> Event:
    """Parse an event from its line. Raises FormatError, naming ``source``, for anything else."""
    try:
        fields = parse_sealed(line, source)
        columns = {"at_s": _TIME.validate_python(fields.pop("at_s"))}
        columns |= {"kind": fields.pop("kind"), "arm": fields.pop("arm"), "fields": fields}
        return _EVENT.validate_python(columns)
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise FormatError(f"{source}: not an event; was the session cut there?") from error
