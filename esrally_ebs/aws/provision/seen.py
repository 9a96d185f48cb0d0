"""What is there now: volumes and file systems by AWS, devices and mounts by the kernel."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenVolume:
    """An EBS volume."""

    id: str
    state: str  # creating | available | in-use | deleting | deleted | error
    size_gib: int
    tags: Mapping[str, str]
    instance: str = ""  # that it is attached to
    attachment: str = ""  # attaching | attached | detaching | busy


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenFileSystem:
    """An EFS file system."""

    id: str
    state: str  # creating | available | updating | deleting | deleted | error
    tags: Mapping[str, str]
    targets: tuple["SeenTarget", ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTarget:
    """A mount target of an EFS file system."""

    id: str
    state: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenDevice:
    """A block device of this machine."""

    serial: str  # the volume's id, or the serial of a disk of the instance; an array's name
    path: Path
    size_bytes: int
    signature: str = ""  # of a file system or anything else that has one; "partitions" when it has some
    uuid: str = ""
    label: str = ""
    blank: bool = False  # no signature, and zero wherever it was looked at
    mounts: tuple[Path, ...] = ()
    holders: tuple[str, ...] = ()  # arrays and groups that it is a part of, or whatever else uses it


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenMachine:
    """What an arm has on this machine."""

    devices: Mapping[str, SeenDevice] = field(default_factory=dict)  # by serial; of ours those that appeared
    disks: tuple[SeenDevice, ...] = ()  # instance store, for an arm that has not chosen one
    array: SeenDevice | None = None
    mounted: str = ""  # the source of what is mounted at the arm's mount point


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to look for on this machine."""

    point: Path
    sizes: Mapping[str, int]  # bytes by serial, of what is attached or taken
    disks: bool = False  # whether any disk of the instance may be taken
    stripe: str = ""  # the name of the array, if the arm has one


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Everything that the next step depends on."""

    at_s: float
    since_s: float = 0.0  # since when whoever looks has had the arm for itself: what was asked before is over
    volumes: tuple[SeenVolume, ...] = ()
    names_in_use: frozenset[str] = frozenset()  # /dev/sdf ... of this instance
    file_system: SeenFileSystem | None = None
    machine: SeenMachine = field(default_factory=SeenMachine)
