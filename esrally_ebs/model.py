"""The nouns of a comparison as frozen records: facts only, base units, no I/O.

Seconds since the epoch are named ``*_at``; durations ``*_s``; sizes ``*_bytes``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any


class Kind(StrEnum):
    """What an arm really is; ``EMULATED`` must be said in every output."""

    EMULATED = "emulated"
    EBS = "ebs"
    EFS = "efs"
    INSTANCE_STORE = "instance-store"
    DIRECTORY = "directory"


class Phase(StrEnum):
    """Whether a request was meant to warm code or to be counted."""

    WARMUP = "warmup"
    MEASURE = "measure"


class State(StrEnum):
    """Life of a session; a ``RUNNING`` one whose owner has died is read as ``FAILED``."""

    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsSpec:
    """How a volume that is to be made on AWS is made; the plan's ``[aws]``."""

    region: str | None = None  # None = this instance's
    snapshot: str | None = None  # that every EBS volume is made from
    initialise: bool = True  # read all of such a volume before it counts as attached
    stripe_with: str = "mdadm"  # or lvm


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeSpec:
    """What the plan asks for: one arm's volume."""

    name: str
    type: str  # gp2, gp3, io2 ..., or "directory" / "mounted"
    size_bytes: int
    iops: int | None = None
    throughput_bytes_per_s: int | None = None
    encrypted: bool = True
    mount: Path | None = None  # for real mounts and directories
    aws: AwsSpec | None = None  # to be made on AWS rather than emulated
    credits: float = 1.0  # fraction of the burst bucket at the start
    readahead_bytes: int = 128 * 1024
    date: str | None = None  # whose limits hold: "2015", "2015-07" or "2015-07-15"; None = the newest known
    instance: str | None = None  # EC2 type whose limits hold too; "m5.large#2" is another than "m5.large"
    stripes: int = 1  # this many volumes of this spec as one (RAID 0)
    chunk_bytes: int = 512 * 1024  # of one volume before the next one's, when striped
    striped_by: str = "device"  # "device": within the emulated device; or by the kernel's btrfs, md or lvm
    time_scale: float = 1.0  # how many times as fast as real ones an emulated volume's buckets empty and fill
    mode: str | None = None  # EFS: bursting, provisioned or elastic
    one_zone: bool = False  # EFS: One Zone instead of Regional
    read_latency: float = 1.0  # factor on the service time of reads that the type has; emulated only


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """An attached volume: where it is mounted and what the kernel says of it."""

    spec: VolumeSpec
    kind: Kind
    mount: Path  # where a session may write: the mount point, or a directory of its own on a real mount
    device: str | None = None  # kernel name as in /proc/diskstats, e.g. "loop3"
    device_number: str | None = None  # "major:minor"
    filesystem: str = ""
    mount_options: str = ""
    readahead_bytes: int | None = None
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
    version: str = ""
    image: str = ""


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
    round: int  # 0 = start of the session, 1 = its end
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


class Severity(StrEnum):
    """What it means that a check is not ok."""

    STOP = "stop"  # the comparison would be of something else than the volumes
    WARN = "warn"  # it must be known to whoever reads the figures
    UNKNOWN = "unknown"  # nobody could tell


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A named check with its evidence."""

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
        """Its outcome in one word."""
        if self.ok or self.forbids:
            return "ok" if self.ok else "FAILED"
        return "accepted" if self.accepted else "warning" if self.severity is Severity.WARN else "unknown"
