"""The volume types: a VolumeSpec in, its Model (limits and latencies) out, or a message that says what to
change.

All constants are data in ``catalog.json``, each with its source and the day from which it held; where no
published latency exists the model says that its latencies are assumed.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from esrally_ebs.emulator.accounting import Accounting
from esrally_ebs.emulator.generations import Constants, generation_of, volume_types
from esrally_ebs.emulator.instances import instance_limits
from esrally_ebs.emulator.latency import Service
from esrally_ebs.emulator.limits import Limit, shrunk
from esrally_ebs.emulator.rules import limits_for
from esrally_ebs.model import VolumeSpec
from esrally_ebs.units import KIB

__all__ = ["Model", "model_for", "volume_types"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """How one volume behaves, and where we know it from."""

    name: str
    type: str
    limits: tuple[Limit, ...]  # of the volume; of each, when it is striped
    accounting: Accounting
    read: Service
    write: Service
    dated: str = ""  # the day from which these limits held
    sources: tuple[str, ...] = ()
    latency_assumed: bool = False
    instance: str = ""  # which instance it is attached to; "" = none that limits it
    instance_limits: tuple[Limit, ...] = ()  # of all volumes of that instance together
    stripes: int = 1  # volumes that are one
    chunk_bytes: int = 0  # of one volume before the next one's, when striped
    untouched_iops: float | None = None  # of blocks that were never written, where that mattered

    def to_json(self) -> dict[str, Any]:
        """Plain values, for the daemon's settings and for a session's record."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """What ``to_json`` gave."""
        parts = {
            "limits": tuple(Limit(**limit) for limit in fields["limits"]),
            "accounting": Accounting(**fields["accounting"]),
            "read": Service(**fields["read"]),
            "write": Service(**fields["write"]),
            "sources": tuple(fields["sources"]),
            "instance_limits": tuple(Limit(**limit) for limit in fields["instance_limits"]),
        }
        return cls(**{**fields, **parts})


def model_for(spec: VolumeSpec) -> Model:
    """The model of a volume of the catalog.

    Raises PlanError when the type or instance is unknown, did not exist at the date, or does not allow the
    size, IOPS or throughput asked for.
    """
    generation = generation_of(spec)
    constants = generation.constants
    merge_over = constants.get("merge_over_kib")
    return Model(
        name=spec.name,
        type=generation.type,
        limits=shrunk(limits_for(generation.rule, spec, constants), spec.time_scale),
        accounting=Accounting(
            max_io_bytes=constants["max_io_kib"] * KIB,
            merge_over_bytes=None if merge_over is None else merge_over * KIB,
            least_bytes=constants.get("least_bytes", 0),
        ),
        read=_read(spec, constants).slowed(spec.read_latency),
        write=_write(spec, constants),
        dated=generation.since,
        sources=generation.sources,
        latency_assumed="read" in generation.assumed or "write" in generation.assumed,
        instance=spec.instance or "",
        instance_limits=() if generation.rule == "local" else shrunk(instance_limits(spec), spec.time_scale),
        stripes=spec.stripes,
        chunk_bytes=spec.chunk_bytes if spec.stripes > 1 else 0,
        untouched_iops=constants.get("untouched_iops"),
    )


def _read(spec: VolumeSpec, constants: Constants) -> Service:
    plain = not spec.encrypted and "read_plain" in constants
    return Service(**constants["read_plain" if plain else "read"])


def _write(spec: VolumeSpec, constants: Constants) -> Service:
    one_zone = spec.one_zone and "write_one_zone" in constants
    return Service(**constants["write_one_zone" if one_zone else "write"])
