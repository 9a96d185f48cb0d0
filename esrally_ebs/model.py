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
SSH = (  # a destination, and never an option of ssh
    r"^(ssh://([A-Za-z0-9_][A-Za-z0-9_.@:%-]{0,99}@)?([A-Za-z0-9_][A-Za-z0-9_.-]{0,252}|\[[0-9A-Za-z:.%]+\])"
    r"(:[0-9]{1,5})?|[A-Za-z0-9_][A-Za-z0-9_.@:%-]{0,252})$"
)
ENGINE = (
    r"^(unix:///[!-~]{1,95}|[A-Za-z0-9][A-Za-z0-9_.+-]{0,99})$"  # of Docker, as its client there knows it
)
MAX_TIME_SCALE = 10_000
MAX_READ_LATENCY = 1000  # times the usual one
MAX_DOCUMENTS = 2**31 - 1 - 128  # as Lucene numbers them in one shard (IndexWriter.MAX_DOCS)
# Above this share of the time asked for a machine is not its own; a quiet cloud has some per mille of steal.
STEAL_TO_WARN_OF = 0.02

NODE_USER = 1000  # "elasticsearch" in the official image and in ours
BY_HAND = "by-hand"  # begins the names of sessions that only 'volumes up' and 'down' begin and end
MAX_SESSION_NAME = 81  # characters
SESSION = rf"^[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_SESSION_NAME - 1}}}$"


def session_name(text: str, *, by_hand: bool = False) -> str:
    """The name of a session, checked: it becomes a folder that is removed, a label, a part of other names.

    ``by_hand`` says whether volumes that the user attached may be meant. Raises PlanError for any other text.
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
    """How a session's name begins, for people, and a hash of it, as several may begin so; in lower case."""
    begin = re.sub(r"[^a-z0-9]", "-", session_name(session, by_hand=True)[:8].lower())
    return f"{begin}-{hashlib.sha256(session.encode()).hexdigest()[:8]}"


_SECRET = re.compile(r"secret|passw|passphrase|credential|(access|api|private).?key|token$", re.IGNORECASE)


def names_secret(name: str) -> bool:
    """Whether a variable or setting of this name is likely to hold a password, a key or a token."""
    return bool(_SECRET.search(name))


def refuse_secrets(params: Mapping[str, object], where: str) -> None:
    """Raise PlanError, without the value, for a parameter of a node that looks like a secret."""
    options = (word.partition("=")[0] for word in str(params.get("java_opts", "")).split())
    for name in (*params, *options):
        if names_secret(name):
            raise PlanError(
                f"{where}: {name} looks like a secret, which session.json and the container's environment "
                "would show; leave it out, or put it into the keystore of your own image (ES_IMAGE)"
            )


class Kind(StrEnum):
    """What an arm really is; ``EMULATED`` must be said in every output."""

    EMULATED = "emulated"
    EBS = "ebs"
    EFS = "efs"
    INSTANCE_STORE = "instance-store"
    DIRECTORY = "directory"


class Phase(StrEnum):
    """Whether a request was meant to warm code, to be counted, or to run beside those that are."""

    WARMUP = "warmup"
    MEASURE = "measure"
    BESIDE = "beside"  # of writes while a search is measured: what it is measured beside, and not itself


class Work(StrEnum):
    """What is measured in a block."""

    FIO = "fio"
    BRING_BACK = "bring-back"  # not measured: the arm gets the same bytes again
    START = "start"  # not measured: all nodes are started anew
    INDEXING = "indexing"
    SEARCH = "search"


class State(StrEnum):
    """Life of a session; a ``RUNNING`` one whose owner has died is read as ``FAILED``."""

    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsSpec:
    """``[aws]`` of a plan: how volumes are made on AWS, on the instance that this runs on."""

    region: Annotated[str, Field(pattern=REGION)] | None = None  # None = this instance's
    snapshot: Annotated[str, Field(pattern=SNAPSHOT)] | None = None  # that every EBS volume is made from
    initialise: bool = True  # read all of such a volume before it counts as attached
    stripe_with: Literal["mdadm", "lvm"] = "mdadm"


class Backend(StrEnum):
    """What attaches a volume."""

    EMULATED = "emulated"  # a loop device that is limited like a volume of the catalog
    AWS = "aws"  # a volume that is made on AWS, and deleted afterwards
    MOUNTED = "mounted"  # a file system that the user mounted
    DIRECTORY = "directory"  # no volume at all, to try the pack


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeSpec:
    """``[[arm]]`` of a plan: one volume under comparison, as it is asked for.

    Pydantic checks the values of a plan, or of a stored session, by the annotations; code that makes a spec
    is trusted. A plan writes the alias of a field that has one.
    """

    __pydantic_config__: ClassVar[ConfigDict] = {"populate_by_name": True}

    name: Annotated[str, Field(pattern=NAME)]
    type: str  # gp2, gp3, io2 ..., or "directory" / "mounted"
    size_bytes: Annotated[Bytes, Field(alias="size", gt=0)] = 100 * GIB
    iops: Annotated[int, Field(gt=0, le=MAX_BYTES)] | None = None
    throughput_bytes_per_s: Annotated[Rate | None, Field(alias="throughput", gt=0)] = None
    encrypted: bool = True
    mount: Path | None = None  # for real mounts and directories
    mounts: tuple[Path, ...] = ()  # the same for an arm of several nodes: one for each
    credits: Annotated[float, Field(ge=0, le=1)] = 1.0  # fraction of the burst bucket at the start
    read_latency: Annotated[float, Field(gt=0, le=MAX_READ_LATENCY)] = (
        1.0  # factor on the time of reads; emulated only
    )
    # of that factor between volumes of an arm (design.volumes): standard deviation of its logarithm
    spread: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    date: Annotated[str, Field(pattern=DATE)] | None = None  # whose limits hold; None = the newest known
    instance: str | None = None  # EC2 type whose limits hold too; "m5.large#2" is another than "m5.large"
    stripes: Annotated[int, Field(ge=1, le=32)] = 1  # this many volumes of this spec as one (RAID 0)
    chunk_bytes: Annotated[Bytes, Field(alias="chunk", ge=4096)] = (
        512 * KIB
    )  # of one before the next, if striped
    striped_by: Literal["device", "btrfs", "md", "lvm"] = "device"  # "device": within the emulated one
    time_scale: Annotated[float, Field(ge=1, le=MAX_TIME_SCALE)] = (
        1.0  # of buckets that fill and empty faster
    )
    mode: Literal["bursting", "provisioned", "elastic"] | None = None  # EFS
    one_zone: bool = False  # EFS: One Zone instead of Regional
    host: Annotated[str, Field(pattern=NAME)] | None = None  # the [[host]] that has it; None = this machine
    hosts: tuple[
        Annotated[str, Field(pattern=NAME)], ...
    ] = ()  # the same for an arm of several: one for each
    # What a plan's arm does not say itself.
    aws: AwsSpec | None = None  # the plan's [aws], for a volume that is to be made there
    readahead_bytes: Bytes = 128 * KIB  # the session's

    @property
    def all_hosts(self) -> tuple[str, ...]:
        """The hosts that have its volumes: one for each, or one for all; none = this machine."""
        return self.hosts or ((self.host,) if self.host else ())

    @property
    def backend(self) -> Backend:
        """What attaches it; the type of a plug-in goes before this."""
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
    lowest: tuple[str, ...] = ()  # the last devices below ``device``, where that is not the last itself
    filesystem: str = ""
    mount_options: str = ""
    readahead_bytes: Bytes | None = None
    scheduler: str | None = None
    identity: str = ""  # EBS volume id, or what else tells it from all others
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
    processor_time: Path | None = None  # what counts that of its control group
    version: str = ""
    image: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fio job or a task of the track on one arm in one round: what a session measures at a time."""

    arm: str
    cluster: str  # Rally's name for the node that serves the arm
    work: Work
    task: str  # of the track, or the fio job's name
    round: int  # from 1; 0 = before the first round. Of fio: 0 at the session's start, from 1 at its end
    phase: Phase = Phase.MEASURE
    start: int = 1  # of the nodes, counted from 1
    writes: tuple[str, ...] = ()  # of BRING_BACK: the tasks that write beside the search that follows


class Request(NamedTuple):
    """One request of a block; one is made for every request, so it is of the kind that is made fastest."""

    block: Block
    number: int  # from 1, of one client
    is_observed: bool = True  # now and then


class TimedRequest(NamedTuple):
    """When a logged search was served, as the log says it: often to the millisecond."""

    began_s: float  # since the epoch
    took_s: float
    template: str  # of queries that differ by their literals only
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
        """Whether its time is a finite number, whoever wrote it."""
        return _finite(self.at_s) is not None

    def number(self, name: str) -> float | None:
        """A field that is a finite number; None for anything else."""
        return _finite(self.fields.get(name))

    def numbers(self, name: str) -> list[float]:
        """The finite numbers in a field that is a list; none for anything else."""
        value = self.fields.get(name)
        return [each for each in map(_finite, value) if each is not None] if isinstance(value, list) else []


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # of 400 digits
        return None
    return number if math.isfinite(number) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What requests must keep, as ``p99=100ms``."""

    percentile: float
    seconds: float

    @property
    def name(self) -> str:
        return f"p{self.percentile:g}"

    @property
    def allowed(self) -> float:
        """Share of requests that may take longer."""
        return 1 - self.percentile / 100

    def __str__(self) -> str:
        return f"{self.name} of {self.seconds * 1e3:g} ms"


def parse_bound(text: str, what: str) -> Bound:
    """``p99=100ms``. Raises PlanError, which begins with ``what``, for anything else."""
    name, _, time = (part.strip() for part in text.partition("="))
    percentile = float(name[1:]) if re.fullmatch(r"p[0-9]{2}(\.[0-9]{1,2})?", name) else 0.0
    if not 50 <= percentile <= 99.9 or not time:
        raise PlanError(
            f"{what} {text}: write a percentile from p50 to p99.9 and a time, for example p99=100ms"
        )
    if re.fullmatch(r"[0-9.]+", time):
        raise PlanError(f"{what} {text}: {time} of what? write the unit, for example {name}={time}ms")
    seconds = parse_seconds(time, what=f"{what} {name}")
    if seconds <= 0:
        raise PlanError(f"{what} {text}: no request takes no time; write for example {name}=100ms")
    return Bound(percentile=percentile, seconds=seconds)


def of_any(name: str) -> str:
    """The name of a limit whichever of striped volumes it is of: ``iops`` for ``3-iops``."""
    return re.sub(r"^\d+-", "", name)


class Severity(StrEnum):
    """What it means that a check is not ok."""

    STOP = "stop"  # the comparison would be of something else than the volumes
    WARN = "warn"  # it must be known to whoever reads the figures
    UNKNOWN = "unknown"  # nobody could tell


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    name: str
    ok: bool
    value: str
    text: str
    severity: Severity = Severity.STOP
    mend: str = ""  # what to do when it is not ok
    accepted: bool = False  # the user said, by its name, that it shall not stop the session

    @property
    def forbids(self) -> bool:
        """Whether nothing may be compared because of it."""
        return not self.ok and self.severity is Severity.STOP and not self.accepted

    @property
    def mark(self) -> str:
        if self.ok or self.forbids:
            return "ok" if self.ok else "FAILED"
        return "accepted" if self.accepted else "warning" if self.severity is Severity.WARN else "unknown"
