"""The nouns of a comparison as frozen records: facts only, base units, no I/O.

Seconds since the epoch are named ``*_at``; durations ``*_s``; sizes ``*_bytes``.
"""

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import ConfigDict, Field

from esrally_ebs.errors import PlanError
from esrally_ebs.units import GIB, KIB, MAX_BYTES, Bytes, Rate, parse_seconds

NAME = r"^[a-z0-9][a-z0-9-]{0,30}$"  # a name becomes a directory, a container and a Rally task
REGION = r"^[a-z]{2,4}(-[a-z]+)+-[0-9]+$"
SNAPSHOT = r"^snap-[0-9a-f]{8,17}$"
DATE = r"^[0-9]{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12][0-9]|3[01]))?)?$"
SSH = (  # a destination that ssh cannot take for an option
    r"^(ssh://([A-Za-z0-9_][A-Za-z0-9_.@:%-]{0,99}@)?([A-Za-z0-9_][A-Za-z0-9_.-]{0,252}|\[[0-9A-Za-z:.%]+\])"
    r"(:[0-9]{1,5})?|[A-Za-z0-9_][A-Za-z0-9_.@:%-]{0,252})$"
)
ENGINE = r"^(unix:///[!-~]{1,95}|[A-Za-z0-9][A-Za-z0-9_.+-]{0,99})$"  # a host or context of Docker's client
MAX_TIME_SCALE = 10_000
MAX_READ_LATENCY = 1000  # times the usual latency
MAX_DOCUMENTS = 2**31 - 1 - 128  # as Lucene numbers them in one shard (IndexWriter.MAX_DOCS)
# Steal above this share of the processor time asked for is warned of; a quiet cloud has some per mille.
STEAL_TO_WARN_OF = 0.02

_VERSION = "8.8.2"  # of Elasticsearch, unless ES_IMAGE names another
OFFICIAL_REPOSITORY = "docker.elastic.co/elasticsearch/elasticsearch"
OFFICIAL_IMAGE = f"{OFFICIAL_REPOSITORY}:{_VERSION}"
LOCAL_IMAGE = f"esrally-ebs/elasticsearch:{_VERSION}"  # made by compose/image/build.sh
MIN_MAPS = 262_144  # vm.max_map_count required of a node that others reach (its bootstrap check)
NODE_USER = 1000  # "elasticsearch" in the official image and in ours
BY_HAND = "by-hand"  # prefix of session names that only 'volumes up' and 'down' use
MAX_SESSION_NAME = 81  # characters
SESSION = rf"^[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_SESSION_NAME - 1}}}$"


def session_name(text: str, *, by_hand: bool = False) -> str:
    """Check and return a session's name: it becomes a folder that is removed, a label, a part of other names.

    ``by_hand`` allows the names of volumes that the user attached. Raises PlanError for any other text.
    """
    if not re.fullmatch(SESSION, text):
        raise PlanError(
            f"session {text!r}: is not a name; use up to {MAX_SESSION_NAME} letters, digits and ._- (not"
            " first)"
        )
    if text.startswith(BY_HAND) and not by_hand:
        raise PlanError(f"session {text!r}: names that begin so are for 'volumes up'; use another")
    return text


def short_name(session: str) -> str:
    """First characters of a session's name, lower case, with a hash, since several may begin alike."""
    begin = re.sub(r"[^a-z0-9]", "-", session_name(session, by_hand=True)[:8].lower())
    return f"{begin}-{hashlib.sha256(session.encode()).hexdigest()[:8]}"


_SECRET = re.compile(r"secret|passw|passphrase|credential|(access|api|private).?key|token$", re.IGNORECASE)


def names_secret(name: str) -> bool:
    """Whether a variable or setting of this name is likely to hold a password, a key or a token."""
    return bool(_SECRET.search(name))


def refuse_secrets(params: Mapping[str, object], where: str) -> None:
    """Raise PlanError for a node parameter that looks like a secret; the message leaves its value out."""
    options = (word.partition("=")[0] for word in str(params.get("java_opts", "")).split())
    for name in (*params, *options):
        if names_secret(name):
            raise PlanError(
                f"{where}: {name} looks like a secret, which session.json and the container's environment "
                "would show; leave it out, or put it into the keystore of your own image (ES_IMAGE)"
            )


class Kind(StrEnum):
    """What an arm really is; every output must say ``EMULATED``."""

    EMULATED = "emulated"
    EBS = "ebs"
    EFS = "efs"
    INSTANCE_STORE = "instance-store"
    DIRECTORY = "directory"


class Phase(StrEnum):
    """Whether a request warms code, is counted, or runs beside requests that are counted."""

    WARMUP = "warmup"
    MEASURE = "measure"
    BESIDE = "beside"  # a write while a search is measured; not measured itself


class Work(StrEnum):
    """What is measured in a block."""

    FIO = "fio"
    BRING_BACK = "bring-back"  # not measured: the arm gets the same bytes again
    START = "start"  # not measured: all nodes are started anew
    INDEXING = "indexing"
    SEARCH = "search"


class State(StrEnum):
    """State of a session; a ``RUNNING`` one whose owner has died is read as ``FAILED``."""

    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsSpec:
    """``[aws]`` of a plan: how volumes are made on AWS, for the instance that this process runs on."""

    region: Annotated[str, Field(pattern=REGION)] | None = None  # None = this instance's
    snapshot: Annotated[str, Field(pattern=SNAPSHOT)] | None = None  # that every EBS volume is made from
    initialise: bool = True  # read the whole volume before it counts as attached
    stripe_with: Literal["mdadm", "lvm"] = "mdadm"


class Backend(StrEnum):
    """What attaches a volume."""

    EMULATED = "emulated"  # a loop device that is limited like a volume of the catalog
    AWS = "aws"  # a volume that is made on AWS, and deleted afterwards
    MOUNTED = "mounted"  # a file system that the user mounted
    DIRECTORY = "directory"  # no volume: a plain directory, to try the pack


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeSpec:
    """``[[arm]]`` of a plan: one volume under comparison, as requested.

    Pydantic checks values from a plan or a stored session by the annotations; code that makes a spec is
    trusted. Where a field has an alias, plans use the alias.
    """

    __pydantic_config__: ClassVar[ConfigDict] = {"populate_by_name": True}

    name: Annotated[str, Field(pattern=NAME)]
    type: str  # gp2, gp3, io2 ..., or "directory" / "mounted"
    size_bytes: Annotated[Bytes, Field(alias="size", gt=0)] = 100 * GIB
    iops: Annotated[int, Field(gt=0, le=MAX_BYTES)] | None = None
    throughput_bytes_per_s: Annotated[Rate | None, Field(alias="throughput", gt=0)] = None
    encrypted: bool = True
    mount: Path | None = None  # for real mounts and directories
    mounts: tuple[Path, ...] = ()  # likewise for an arm of several nodes: one mount each
    credits: Annotated[float, Field(ge=0, le=1)] = 1.0  # fraction of the burst bucket at the start
    # factor on the time of reads; emulated only
    read_latency: Annotated[float, Field(gt=0, le=MAX_READ_LATENCY)] = 1.0
    # standard deviation of the factor's logarithm between volumes of an arm (design.volumes)
    spread: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    date: Annotated[str, Field(pattern=DATE)] | None = None  # limits as of this date; None = the newest known
    instance: str | None = None  # EC2 type whose limits also apply; "m5.large#2" is a second instance
    stripes: Annotated[int, Field(ge=1, le=32)] = 1  # volumes of this spec striped as one (RAID 0)
    # bytes on one volume before the next, if striped
    chunk_bytes: Annotated[Bytes, Field(alias="chunk", ge=4096)] = 512 * KIB
    striped_by: Literal["device", "btrfs", "md", "lvm"] = "device"  # "device": inside the emulated device
    # speeds up buckets: how they empty and fill
    time_scale: Annotated[float, Field(ge=1, le=MAX_TIME_SCALE)] = 1.0
    mode: Literal["bursting", "provisioned", "elastic"] | None = None  # EFS
    one_zone: bool = False  # EFS: One Zone instead of Regional
    host: Annotated[str, Field(pattern=NAME)] | None = None  # its [[host]]; None = this machine
    hosts: tuple[Annotated[str, Field(pattern=NAME)], ...] = ()  # likewise for an arm of several: one each
    # Set from other tables of the plan, not from the arm's own.
    aws: AwsSpec | None = None  # the plan's [aws], for a volume to be made there
    readahead_bytes: Bytes = 128 * KIB  # the session's

    @property
    def all_hosts(self) -> tuple[str, ...]:
        """Hosts of the arm's volumes: one each, or one for all; empty = this machine."""
        return self.hosts or ((self.host,) if self.host else ())

    @property
    def backend(self) -> Backend:
        """What attaches the volume; a plug-in's type takes precedence over this."""
        if self.aws is not None:
            return Backend.AWS
        if self.type == "directory":
            return Backend.DIRECTORY
        is_mounted = self.mount is not None or self.mounts or self.type == "mounted"
        return Backend.MOUNTED if is_mounted else Backend.EMULATED


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """An attached volume: where it is mounted and what the kernel says of it."""

    spec: VolumeSpec
    kind: Kind
    mount: Path  # where a session may write: the mount point, or a directory of its own on a real mount
    device: str | None = None  # kernel name as in /proc/diskstats, e.g. "loop3"
    device_number: str | None = None  # "major:minor"
    lowest: tuple[str, ...] = ()  # lowest devices of the stack, where ``device`` is not itself the lowest
    filesystem: str = ""
    mount_options: str = ""
    readahead_bytes: Bytes | None = None
    scheduler: str | None = None
    identity: str = ""  # EBS volume id, or another unique identity
    control: Path | None = None  # the emulator's control socket


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One Elasticsearch on one arm."""

    arm: str
    container: str
    host: str
    port: int
    pid: int  # of the JVM, in the host's pid namespace
    data_dir: Path
    memory_cgroup: Path | None  # directory of its memory controller
    processor_time: Path | None = None  # file that counts its cgroup's processor time
    version: str = ""
    image: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One measured unit: a fio job or a task of the track, on one arm in one round."""

    arm: str
    cluster: str  # Rally's name for the node that serves the arm
    work: Work
    task: str  # of the track, or the fio job's name
    round: int  # from 1; 0 = before the first round. For fio: 0 at the session's start, from 1 at its end
    phase: Phase = Phase.MEASURE
    start: int = 1  # start of the nodes, counted from 1
    writes: tuple[str, ...] = ()  # for BRING_BACK: tasks that write beside the search that follows


class Request(NamedTuple):
    """One request of a block; a NamedTuple, the fastest class to create, as every request needs one."""

    block: Block
    number: int  # from 1, of one client
    is_observed: bool = True  # now and then


class TimedRequest(NamedTuple):
    """A logged search and when it was served, as precisely as the log says: often to the millisecond."""

    began_s: float  # since the epoch
    took_s: float
    template: str  # same for queries that differ only in literals
    hits: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One request; a row of ``samples/*.parquet``."""

    session: str
    arm: str
    round: int  # 0 = before the first round (warm-up, indexing)
    task: str
    operation: str
    phase: Phase
    iteration: int  # 1 = the first request since the drop
    client: int
    started_s: float  # seconds since the epoch
    service_time_s: float
    latency_s: float
    processing_time_s: float
    ops: float
    success: bool
    hits: int | None
    took_s: float | None
    resident_before: float | None  # fraction of the index's bytes in the page cache


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineRow:
    """One direction of one fio job on one arm; a row of ``baseline.parquet``."""

    arm: str
    round: int  # 0 = start of the session; from 1 = the passes at its end
    job: str
    op: str  # read | write
    bs_bytes: int
    numjobs: int
    iodepth: int
    iops: float
    bandwidth_bytes_per_s: float
    mean_s: float
    p50_s: float
    p90_s: float
    p99_s: float
    p999_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryPoint:
    """One value of one metric at one second; a row of ``telemetry/*.parquet``."""

    arm: str
    device: str
    at_s: float  # seconds since the epoch
    metric: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of ``events.jsonl``: a drop, a limiter or credit event, a fault, a stage."""

    at_s: float
    kind: str
    arm: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_time(self) -> bool:
        """Whether its time is a finite number; events may come from other writers."""
        return _finite(self.at_s) is not None

    def number(self, name: str) -> float | None:
        """A field that is a finite number; None for anything else."""
        return _finite(self.fields.get(name))

    def numbers(self, name: str) -> list[float]:
        """The finite numbers in a list field; [] for anything else."""
        value = self.fields.get(name)
        return [each for each in map(_finite, value) if each is not None] if isinstance(value, list) else []


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer of 400 digits
        return None
    return number if math.isfinite(number) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A bound on the latency of requests, such as ``p99=100ms``."""

    percentile: float
    seconds: float

    @property
    def name(self) -> str:
        return f"p{self.percentile:g}"

    @property
    def allowed(self) -> float:
        """Share of requests that may exceed the bound."""
        return 1 - self.percentile / 100

    def __str__(self) -> str:
        return f"{self.name} of {self.seconds * 1e3:.12g} ms"


def parse_bound(text: str, what: str) -> Bound:
    """Parse text such as ``p99=100ms``. Raises PlanError, beginning with ``what``, for anything else."""
    name, _, time = (part.strip() for part in text.partition("="))
    percentile = float(name[1:]) if re.fullmatch(r"p[0-9]{2}(\.[0-9]{1,2})?", name) else 0.0
    if not 50 <= percentile <= 99.9 or not time:
        raise PlanError(
            f"{what} {text}: write pNN=TIME, a percentile from p50 to p99.9 and a time, for example p99=100ms"
        )
    if re.fullmatch(r"[0-9.]+", time):
        raise PlanError(f"{what} {text}: {time} of what? write the unit, for example {name}={time}ms")
    seconds = parse_seconds(time, what=f"{what} {name}")
    if seconds <= 0:
        raise PlanError(f"{what} {text}: no request takes no time; write for example {name}=100ms")
    return Bound(percentile=percentile, seconds=seconds)


def of_any(name: str) -> str:
    """A limit's name without the number of its striped volume: ``iops`` for ``3-iops``."""
    return re.sub(r"^\d+-", "", name)


class Severity(StrEnum):
    """What a failed check means."""

    STOP = "stop"  # the comparison would measure something else than the volumes
    WARN = "warn"  # readers of the figures must know it
    UNKNOWN = "unknown"  # could not be determined


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    name: str
    ok: bool
    value: str
    text: str
    severity: Severity = Severity.STOP
    mend: str = ""  # what to do when the check fails
    accepted: bool = False  # the user accepted it by name, so it does not stop the session

    @property
    def forbids(self) -> bool:
        """Whether this check forbids any comparison."""
        return not self.ok and self.severity is Severity.STOP and not self.accepted

    @property
    def mark(self) -> str:
        if self.ok or self.forbids:
            return "ok" if self.ok else "FAILED"
        return "accepted" if self.accepted else "warning" if self.severity is Severity.WARN else "unknown"
