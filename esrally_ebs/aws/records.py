"""Volumes, file systems and instances as AWS describes them: frozen records in base units, no I/O."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EbsVolume:
    """One EBS volume as it is provisioned, and what is going on with it."""

    volume_id: str
    type: str
    size_bytes: int
    iops: int | None  # None where the type has none to provision (st1, sc1, standard)
    throughput_bytes_per_s: int | None  # gp3 only
    encrypted: bool
    state: str  # in-use, available ...
    snapshot_id: str = ""  # what it was made from
    fast_restored: bool = False
    initialised: float | None = None  # fraction; None where AWS does not say
    modification: str | None = None  # modifying, optimizing, completed, failed, "" for none; None = not known
    modified: float | None = None  # fraction of that modification


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystem:
    """One EFS file system."""

    file_system_id: str
    throughput_mode: str  # bursting, provisioned, elastic
    performance_mode: str
    provisioned_bytes_per_s: int | None
    encrypted: bool
    size_bytes: int
    zone: str  # of a One Zone file system; empty for a regional one
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLimits:
    """What an instance type can move to and from all its EBS volumes together."""

    instance_type: str
    baseline_iops: int
    baseline_bytes_per_s: float
    maximum_iops: int  # for 30 minutes at least once in 24 hours, where it is above the baseline
    maximum_bytes_per_s: float

    @property
    def bursts(self) -> bool:
        """Whether the maximum is lent, not given."""
        return self.maximum_iops > self.baseline_iops or self.maximum_bytes_per_s > self.baseline_bytes_per_s
