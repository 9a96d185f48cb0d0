"""What a session folder holds, as frozen records: no I/O, so that analysis runs on any machine."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, TypeGuard

import pyarrow as pa

from esrally_ebs.errors import FormatError
from esrally_ebs.model import Check, Event, Kind, Severity, State, Volume
from esrally_ebs.store.encoding import parse_volume

FORMAT = 1
READABLE = (1,)
ENDED_SILENTLY = "its process ended without saying so"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One session as recorded; the tables have the columns of DESIGN's session folder."""

    id: str
    path: Path
    kind: str  # race | baseline | simulate ...
    state: State
    reason: str  # why it failed or was cancelled; empty otherwise
    started_at: float
    ended_at: float | None
    plan: Mapping[str, Any]
    arms: tuple[Volume, ...]
    environment: Mapping[str, Any]
    dataset: Mapping[str, Any]
    checks: tuple[Check, ...]
    warnings: tuple[str, ...]
    samples: pa.Table
    baseline: pa.Table
    telemetry: pa.Table
    events: tuple[Event, ...]

    @property
    def emulated(self) -> bool:
        """Whether any arm is emulated; then every output says so."""
        return any(arm.kind is Kind.EMULATED for arm in self.arms)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """One line of the list of sessions."""

    id: str
    path: Path
    kind: str
    state: State
    reason: str
    started_at: float | None
    ended_at: float | None
    plan: str
    arms: tuple[str, ...]
    emulated: bool


# What every reader relies on in session.json, and the tables in its tables that reports look into.
_KINDS: Mapping[str, tuple[type, ...]] = {
    "id": (str,),
    "kind": (str,),
    "reason": (str,),
    "started_at": (int, float),
    "ended_at": (int, float, NoneType),
    "plan": (dict,),
    "arms": (list,),
    "environment": (dict,),
    "dataset": (dict,),
    "checks": (list,),
    "warnings": (list,),
}
_TABLES = (
    *(("plan", key) for key in ("race", "cache", "design", "dataset", "node", "cost")),
    ("environment", "nodes"),
)
_LAST_AT = 253_402_300_800  # the year 10,000, which no calendar here can show
# Numbers that reports divide by or turn into floats: least and most, and whether these may be.
_RANGES = (
    ("design", "margin", 0.0, 1.0, False),
    ("design", "confidence", 0.5, 1.0, False),
    ("design", "max_rounds", 1, 1_000_000, True),
    ("cache", "max_resident", 0.0, 1.0, True),
)
_MOST_TIME_SCALE = 10_000
_MOST = 2**63  # what a signed number of 64 bits does not hold


def check_format(document: Mapping[str, Any], source: str) -> None:
    """Raise FormatError, naming versions or key, when this release cannot read the document."""
    version = document.get("format")
    if version not in READABLE:
        readable = ", ".join(str(number) for number in READABLE)
        raise FormatError(
            f"{source}: format version {version} is not readable here (this release reads {readable}); "
            "use the release of esrally_ebs that wrote it"
        )
    for key, value in _misfits(document):
        text = repr(value)[:60]
        raise FormatError(f"{source}: {key}: {text} does not fit its format; was it edited by hand?")
    for key, value, allowed in _impossible(document):
        text = repr(value)[:60]
        raise FormatError(f"{source}: {key}: {text} is no number {allowed}; was it edited by hand? write one")


def _misfits(document: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Keys with a value of another type, for a reader that stops at the first: the rest relies on it."""
    for key, kinds in _KINDS.items():
        if not isinstance(document.get(key), kinds):
            yield key, document.get(key)
    for key in ("started_at", "ended_at"):
        if not 0 <= (document[key] or 0) < _LAST_AT:
            yield key, document[key]
    yield from _misfits_within(document)


def _misfits_within(document: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for part, key in _TABLES:
        value = document[part].get(key, {})
        if not (isinstance(value, dict) or (key == "race" and value is None)):
            yield f"{part}.{key}", value
    for arm, node in document["environment"].get("nodes", {}).items():
        if not isinstance(node, dict):
            yield f"environment.nodes.{arm}", node
    for index, warning in enumerate(document["warnings"]):
        if not isinstance(warning, str):
            yield f"warnings.{index}", warning


def _impossible(document: Mapping[str, Any]) -> Iterator[tuple[str, object, str]]:
    """Keys with a number that no plan and no volume has, and what it may be."""
    for part, key, least, most, ends in _RANGES:
        table = document["plan"].get(part, {})
        value = table.get(key)
        inside = _is_number(value) and (least < value < most or (ends and value in (least, most)))
        if key in table and not inside:
            words = ("from", "to") if ends else ("between", "and")
            yield f"plan.{part}.{key}", value, f"{words[0]} {least:g} {words[1]} {most:,.7g}"
    tables = {part: document[part] for part in ("environment", "dataset")}
    for index, arm in enumerate(document["arms"]):
        tables[f"arms.{index}"] = arm
        tables[f"arms.{index}.spec"] = spec = _table(_table(arm).get("spec"))
        times = spec.get("time_scale", 1)
        if not _is_number(times) or not 1 <= times <= _MOST_TIME_SCALE:
            yield f"arms.{index}.spec.time_scale", times, f"from 1 to {_MOST_TIME_SCALE:,}"
    for where, table in tables.items():
        for key, value in _table(table).items():
            if isinstance(value, int) and abs(value) >= _MOST:
                yield f"{where}.{key}", value, "of bytes or I/Os that a volume has"


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def parse_arms(document: Mapping[str, Any]) -> tuple[Volume, ...]:
    """The arms of ``session.json``."""
    return tuple(parse_volume(table) for table in document.get("arms", ()))


def parse_checks(document: Mapping[str, Any]) -> tuple[Check, ...]:
    """The checks of ``session.json``."""
    return tuple(
        Check(**{**table, "severity": Severity(table.get("severity", "stop"))})
        for table in document.get("checks", ())
    )
