"""The volume types: a VolumeSpec in, its Model (limits and latencies) out, or a message that says what to
change.

All constants are data in ``catalog.json``, each type with the sources of its limits and of its latencies;
where no published latency exists the type says that its latencies are assumed.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

from esrally_ebs.emulator.latency import Service
from esrally_ebs.emulator.limits import CREDITS, Accounting, Limit, per_second
from esrally_ebs.errors import PlanError
from esrally_ebs.model import VolumeSpec
from esrally_ebs.units import GIB, KIB, MIB

_Entry = Mapping[str, Any]
_HDD_CREDIT_MIB_PER_GIB = 1024  # a full bucket of credits is one scan of the whole volume


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """How one volume behaves, and where we know it from."""

    name: str
    type: str
    limits: tuple[Limit, ...]
    accounting: Accounting
    read: Service
    write: Service
    dated: str = ""  # the day whose limits these are
    sources: tuple[str, ...] = ()
    latency_assumed: bool = False

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
        }
        return cls(**{**fields, **parts})


def volume_types() -> tuple[str, ...]:
    """The types that can be emulated."""
    return tuple(_catalog()["types"])


def model_for(spec: VolumeSpec) -> Model:
    """The model of a volume of the catalog.

    Raises PlanError when the type is unknown or does not allow the size, IOPS or throughput asked for.
    """
    catalog = _catalog()
    entry = catalog["types"].get(spec.type)
    if entry is None:
        raise PlanError(
            f"volume '{spec.name}': no type {spec.type!r}; use one of {', '.join(volume_types())}"
        )
    _check_size(spec, entry)
    merge_over = entry.get("merge_over_kib")
    return Model(
        name=spec.name,
        type=spec.type,
        limits=_RULES[entry["rule"]](spec, entry),
        accounting=Accounting(
            max_io_bytes=entry["max_io_kib"] * KIB,
            merge_over_bytes=None if merge_over is None else merge_over * KIB,
        ),
        read=Service(**entry["read"]),
        write=Service(**entry["write"]),
        dated=catalog["dated"],
        sources=tuple(catalog["sources"][key] for key in entry["limits_from"] + entry["latency_from"]),
        latency_assumed=entry["latency_assumed"],
    )


@cache
def _catalog() -> _Entry:
    parsed: _Entry = json.loads(Path(__file__).with_name("catalog.json").read_text())
    return parsed


def _by_size(spec: VolumeSpec, entry: _Entry) -> tuple[Limit, ...]:
    """gp2: IOPS follow from the size; small volumes burst as long as credits last."""
    size_gib = spec.size_bytes / GIB
    low, high = entry["iops"]
    base = min(high, max(low, entry["iops_per_gib"] * size_gib))
    if spec.iops is not None or spec.throughput_bytes_per_s is not None:
        raise PlanError(
            f"{_who(spec)}: IOPS and throughput follow from the size ({base:,.0f} IOPS at {size_gib:g} GiB);"
            " remove iops and throughput, or use gp3"
        )
    small, large = entry["throughput_mib"]
    throughput = small if size_gib <= entry["small_up_to_gib"] else large
    bytes_limit = per_second("throughput", "bytes", throughput * MIB)
    if size_gib >= entry["burst_below_gib"]:
        return (per_second("iops", "operations", base), bytes_limit)
    # Two buckets and the larger wait: a rate switched by "credits left" would hover above the baseline.
    credit = Limit(name=CREDITS, counts="operations", rate=base, capacity=entry["credits"])
    return (per_second("iops", "operations", entry["burst_iops"]), bytes_limit, credit)


def _provisioned(spec: VolumeSpec, entry: _Entry) -> tuple[Limit, ...]:
    """gp3: IOPS and throughput are bought apart from each other and from the size."""
    iops = spec.iops or entry["iops_included"]
    _check_iops(spec, entry, iops, free=entry["iops_included"])
    included = entry["throughput_included_mib"]
    throughput = (spec.throughput_bytes_per_s or included * MIB) / MIB
    low, high = entry["throughput_mib"]
    if not low <= throughput <= high:
        raise PlanError(
            f"{_who(spec)}: {throughput:g} MiB/s is outside {low:,} to {high:,} MiB/s; change throughput"
        )
    per_iops = entry["throughput_mib_per_iops"]
    if throughput > per_iops * iops:
        raise PlanError(
            f"{_who(spec)}: {throughput:g} MiB/s needs at least {throughput / per_iops:,.0f} IOPS"
            f" ({per_iops} MiB/s per IOPS); raise iops or lower throughput"
        )
    return (per_second("iops", "operations", iops), per_second("throughput", "bytes", throughput * MIB))


def _by_iops(spec: VolumeSpec, entry: _Entry) -> tuple[Limit, ...]:
    """io1 and io2: IOPS are bought, and throughput follows from them."""
    if spec.throughput_bytes_per_s is not None:
        raise PlanError(f"{_who(spec)}: throughput follows from iops; remove throughput")
    iops = _required_iops(spec, entry)
    for up_to, mib_per_iops, most_mib in entry["throughput_mib_per_iops"]:
        if iops <= up_to:
            throughput = min(most_mib, mib_per_iops * iops)
            break
    return (per_second("iops", "operations", iops), per_second("throughput", "bytes", throughput * MIB))


def _hdd(spec: VolumeSpec, entry: _Entry) -> tuple[Limit, ...]:
    """st1 and sc1: throughput follows from the size; credits let it burst."""
    if spec.iops is not None or spec.throughput_bytes_per_s is not None:
        raise PlanError(f"{_who(spec)}: throughput follows from the size; remove iops and throughput")
    size_tib = spec.size_bytes / GIB / 1024
    base = min(entry["base_max_mib"], entry["base_mib_per_tib"] * size_tib) * MIB
    burst = min(entry["burst_max_mib"], entry["burst_mib_per_tib"] * size_tib) * MIB
    full = spec.size_bytes / GIB * _HDD_CREDIT_MIB_PER_GIB * MIB
    return (
        per_second("throughput", "bytes", burst),
        Limit(name=CREDITS, counts="bytes", rate=base, capacity=full),
    )


def _local(spec: VolumeSpec, entry: _Entry) -> tuple[Limit, ...]:
    """Disks of the instance: what they do depends on the instance, so the plan must say it."""
    iops = per_second("iops", "operations", _required_iops(spec, entry))
    if spec.throughput_bytes_per_s is None:
        return (iops,)
    return (iops, per_second("throughput", "bytes", spec.throughput_bytes_per_s))


_RULES: Mapping[str, Callable[[VolumeSpec, _Entry], tuple[Limit, ...]]] = {
    "by-size": _by_size,
    "provisioned": _provisioned,
    "by-iops": _by_iops,
    "hdd": _hdd,
    "local": _local,
}


def _who(spec: VolumeSpec) -> str:
    return f"{spec.type} volume '{spec.name}'"


def _check_size(spec: VolumeSpec, entry: _Entry) -> None:
    low, high = entry["size_gib"]
    size_gib = spec.size_bytes / GIB
    if not low <= size_gib <= high:
        raise PlanError(f"{_who(spec)}: {size_gib:g} GiB is outside {low:,} to {high:,} GiB; change size")


def _required_iops(spec: VolumeSpec, entry: _Entry) -> int:
    if spec.iops is None:
        low, high = entry["iops"]
        raise PlanError(f"{_who(spec)}: iops is missing; give iops from {low:,} to {high:,}")
    _check_iops(spec, entry, spec.iops, free=0)
    return spec.iops


def _check_iops(spec: VolumeSpec, entry: _Entry, iops: int, *, free: int) -> None:
    low, high = entry["iops"]
    if not low <= iops <= high:
        raise PlanError(f"{_who(spec)}: {iops:,} IOPS is outside {low:,} to {high:,}; change iops")
    per_gib = entry.get("iops_per_gib")
    if per_gib is not None and iops > max(free, per_gib * spec.size_bytes / GIB):
        raise PlanError(
            f"{_who(spec)}: {iops:,} IOPS needs at least {-(-iops // per_gib):,} GiB"
            f" ({per_gib:,} IOPS per GiB); raise size or lower iops"
        )
