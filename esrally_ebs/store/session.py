"""A session folder's contents as frozen records: no I/O, so that analysis runs anywhere."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NotRequired

import pyarrow as pa
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic does not accept Python 3.11's own

from esrally_ebs.errors import FormatError
from esrally_ebs.model import SESSION, Check, Event, Kind, State, Volume
from esrally_ebs.plan import Plan
from esrally_ebs.store.encoding import Time, first_problem, plain

FORMAT = 1
PRICES = "prices.json"  # the user's price list, as it was when the session began
EDITED = "was it edited by hand? restore it from a copy"


class _EbsVolume(TypedDict):
    volume_id: str
    type: str
    size_bytes: int
    iops: int | None
    throughput_bytes_per_s: float | None
    encrypted: bool
    state: str
    snapshot_id: str
    modification: str | None


class _FileSystem(TypedDict):
    file_system_id: str
    throughput_mode: str
    provisioned_bytes_per_s: float | None
    encrypted: bool
    size_bytes: int
    state: str


class _AwsArm(TypedDict):
    volume_ids: tuple[str, ...]
    file_system_id: str
    volumes: NotRequired[tuple[_EbsVolume, ...]]
    file_system: NotRequired[_FileSystem | None]


class _Instance(TypedDict, total=False):
    instance_id: str
    region: str | None


class _Limits(TypedDict):
    instance_type: str
    baseline_iops: int
    baseline_bytes_per_s: float
    maximum_iops: int
    maximum_bytes_per_s: float


class _Aws(TypedDict, total=False):
    arms: dict[str, _AwsArm]
    instance: _Instance | None
    limits: _Limits | None
    unknown: tuple[str, ...]


class _Environment(TypedDict, total=False):
    """The parts of a session's environment that are read; it has more."""

    nodes: dict[str, dict[str, Any]]
    aws: _Aws | None
    hosts: dict[str, dict[str, Any]]  # data hosts, if arms are on other machines
    tasks: dict[str, dict[str, Any]]  # load of each task: clients, rate, schedule, if not the default


_ENVIRONMENT = TypeAdapter(_Environment)


def _checked(environment: Mapping[str, Any]) -> Mapping[str, Any]:
    _ENVIRONMENT.validate_python(environment)
    return environment


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, identified uniquely on any machine and across reboots."""

    pid: int
    start_ticks: int
    boot_id: str
    pid_namespace: str = ""  # "": that of whoever reads it, as in earlier releases


NOBODY = Owner(pid=0, start_ticks=0, boot_id="")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """``session.json``: everything about a session that is in no table."""

    format: int = FORMAT
    id: Annotated[str, Field(pattern=SESSION)]
    kind: str  # race | baseline | simulate ...
    state: State = State.RUNNING
    reason: str = ""  # why it failed or was cancelled, else ""
    owner: Owner = NOBODY
    started_at: Time
    ended_at: Time | None = None
    plan: Plan
    arms: tuple[Volume, ...] = ()
    environment: Annotated[Mapping[str, Any], AfterValidator(_checked)] = field(default_factory=dict)
    dataset: Mapping[str, Any] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def arm_names(self) -> tuple[str, ...]:
        return tuple(arm.spec.name for arm in self.arms)

    @property
    def nodes(self) -> dict[str, str]:
        """Node (or volume) names as in telemetry, to their arms."""
        return {name: arm.spec.name for arm in self.arms for name in self.plan.node_names(arm.spec.name)}

    @property
    def emulated(self) -> bool:
        """Whether any arm is emulated; then every output says so."""
        return any(arm.kind is Kind.EMULATED for arm in self.arms)

    @property
    def aws(self) -> Mapping[str, Any]:
        """What AWS says of real arms; empty elsewhere."""
        aws: Mapping[str, Any] = self.environment.get("aws") or {}
        return aws

    @property
    def instance(self) -> Mapping[str, Any]:
        """The instance of real arms on AWS; empty elsewhere."""
        return self.aws.get("instance") or {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Session(SessionRecord):
    """One session as recorded; the tables have the columns of DESIGN's session folder."""

    path: Path
    samples: pa.Table
    baseline: pa.Table
    telemetry: pa.Table
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """One line in the list of sessions; unreadable ones are failed, with the reason."""

    id: str
    kind: str = ""
    state: State = State.FAILED
    reason: str
    started_at: float | None = None
    ended_at: float | None = None
    plan: str = ""
    arms: tuple[str, ...] = ()
    emulated: bool = False
    path: Path


_RECORD = TypeAdapter(SessionRecord)


def parse_record(document: Any, source: str) -> SessionRecord:  # noqa: ANN401 - whatever the file holds
    """A record from JSON values. Raises FormatError, with version or key, if this release cannot read it."""
    if not isinstance(document, dict):
        raise FormatError(f"{source}: not an object; {EDITED}")
    version = document.get("format")
    if version != FORMAT:
        raise FormatError(
            f"{source}: format version {version} is not readable here (this release reads {FORMAT}); "
            "use the release of esrally_ebs that wrote it"
        )
    try:
        return _RECORD.validate_python(document)
    except ValidationError as error:
        raise FormatError(f"{source}: {first_problem(error)}; {EDITED}") from error


def document_of(record: SessionRecord) -> dict[str, Any]:
    """The record as JSON values, for ``parse_record``."""
    return {**plain(record), "plan": record.plan.record()}


def changed(record: SessionRecord, changes: Mapping[str, Any], source: str) -> SessionRecord:
    """The record with changed keys, checked as when read."""
    return parse_record({**document_of(record), **plain(changes)}, source)
