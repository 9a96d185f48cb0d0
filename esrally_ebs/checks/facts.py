"""Input and output of guards: facts about arms, instance and machine before a session, and checks.

None or an empty tuple is "not known", never "no".
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from esrally_ebs.aws.describe import EbsVolume, FileSystem, InstanceLimits
from esrally_ebs.catalog.limits import Model
from esrally_ebs.catalog.volume_types import known_model
from esrally_ebs.model import Backend, Check, Severity, Volume, VolumeSpec
from esrally_ebs.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    seconds: float
    requests: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFacts:
    volume: Volume  # as attached: file system, mount options, readahead, scheduler
    root: bool | None = False  # whether the system runs from one of its disks
    volume_ids: tuple[str, ...] = ()  # the EBS volumes below it
    members: tuple[EbsVolume, ...] = ()  # those described by AWS
    file_system: FileSystem | None = None  # of EFS
    balances: Mapping[str, float] = field(default_factory=dict)  # volume id -> BurstBalance, a fraction
    credit_bytes: float | None = None  # BurstCreditBalance of EFS
    activity: Activity | None = None  # on its devices before anything of ours used them
    caches: tuple[str, ...] = ()  # below its file system, beyond the reach of evicting the node's pages

    @property
    def name(self) -> str:
        return self.volume.spec.name

    @property
    def models(self) -> tuple[Model, ...]:
        """Models of all its volumes; empty unless all are known and in the catalog."""
        if len(self.members) < len(self.volume_ids):
            return ()
        # AWS may have raised limits since
        specs = (VolumeSpec(name=each.volume_id, **settings_of(each)) for each in self.members)
        known = tuple(filter(None, map(known_model, specs)))
        return known if len(known) == len(self.members) else ()

    @property
    def bursting(self) -> Model | None:
        """Model of its EFS file system if that lives on burst credits; None for any other arm.

        Counts everything stored as earning credits, though data in a colder class do not.
        """
        system = self.file_system
        if system is None or system.throughput_mode != "bursting":
            return None
        spec = VolumeSpec(
            name=system.file_system_id,
            type="efs",
            size_bytes=system.size_bytes,
            mode="bursting",
            one_zone=bool(system.zone),
        )
        return known_model(spec)

    def rate(self, limit: str) -> float | None:
        """``iops`` or ``throughput`` (bytes per second) of all its volumes together, including bursts."""
        rates = [each.rate for model in self.models for each in model.limits if each.name == limit]
        return sum(rates) if rates else None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceFacts:
    """The instance: limits and balances common to all its volumes."""

    limits: InstanceLimits
    io_balance: float | None = None  # EBSIOBalance%, EBSByteBalance% as fractions
    byte_balance: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockFacts:
    synchronised: bool | None = None  # according to the kernel
    off_s: float | None = None  # against AWS's clock, which gives whole seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that guards look at."""

    plan: Plan  # what is to be done with the arms
    arms: tuple[ArmFacts, ...]
    instance: InstanceFacts | None = None
    clock: ClockFacts = ClockFacts()
    unknown: tuple[str, ...] = ()  # facts that could not be found out, and why


def is_real(volume: Volume) -> bool:
    """Whether an arm is on a real mount: neither emulated nor a plain directory."""
    return volume.spec.backend in (Backend.AWS, Backend.MOUNTED)


def settings_of(member: EbsVolume) -> dict[str, Any]:
    """An EBS volume's settings, by the fields of a VolumeSpec."""
    names = ("type", "size_bytes", "iops", "throughput_bytes_per_s", "encrypted")
    return {name: getattr(member, name) for name in names}


def good(name: str, value: str, text: str) -> Check:
    return Check(name=name, ok=True, value=value, text=text)


def bad(name: str, text: str, mend: str, *, value: str = "", severity: Severity = Severity.STOP) -> Check:
    """A failed check: ``text`` is the evidence, ``mend`` the next step."""
    return Check(name=name, ok=False, value=value, text=f"{text}; {mend}", severity=severity, mend=mend)


def unknown(name: str, text: str, mend: str) -> Check:
    return bad(name, text, mend, value="unknown", severity=Severity.UNKNOWN)


def listed(parts: Iterable[str]) -> str:
    return ", ".join(parts)
