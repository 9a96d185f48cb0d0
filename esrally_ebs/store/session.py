"""What a session folder holds, as frozen records: no I/O, so that analysis runs on any machine."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

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


def parse_arms(document: Mapping[str, Any]) -> tuple[Volume, ...]:
    """The arms of ``session.json``."""
    return tuple(parse_volume(table) for table in document.get("arms", ()))


def parse_checks(document: Mapping[str, Any]) -> tuple[Check, ...]:
    """The checks of ``session.json``."""
    return tuple(
        Check(**{**table, "severity": Severity(table.get("severity", "stop"))})
        for table in document.get("checks", ())
    )
