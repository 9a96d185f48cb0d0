"""The volume types: from a VolumeSpec to its Model (limits and latencies), or a PlanError.

All constants are data in ``catalog.json``, each with its source and first day. If no latency is published,
one of the model's sources is "assumed".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Literal

from esrally_ebs.catalog.generations import (
    Constants,
    constant,
    generation_of,
    instance_named,
    outside,
    who,
)
from esrally_ebs.catalog.limits import CREDITS, Accounting, Limit, Model, Service, per_second, shrunk
from esrally_ebs.errors import PlanError
from esrally_ebs.model import VolumeSpec
from esrally_ebs.units import GIB, KIB, MIB

_HDD_CREDIT_MIB_PER_GIB = 1024  # full credits allow one scan of the whole volume
# Types that an instance does not reach through EBS: its own disks, and file systems over its network.
_NOT_BY_EBS = ("local", "efs")
_DISK_BUCKET_S = 0.01  # an instance's disk saves up nothing: just enough for a queue of I/Os


def efs_limits(spec: VolumeSpec, constants: Constants) -> tuple[Limit, ...]:
    """The limits of a file system; PlanError when its mode does not exist at its date, or does not allow the
    spec.
    """
    mode = _efs_mode(spec, constants)
    seconds, read_weight = constants["bucket_s"], constants["read_weight"]
    read_iops, write_iops = _of_zone(spec, constants, "iops", constants["iops"][mode])
    read_gib, write_gib = _of_zone(spec, constants, "gib_s", constants["gib_s"][mode])
    client_mib = constants["client_mib"][mode]
    if spec.one_zone:
        client_mib = constants.get("one_zone_client_mib", client_mib)
    client = per_second("client-throughput", "bytes", client_mib * MIB, seconds)
    both = (
        Limit(name="read-iops", counts="operations", rate=read_iops, capacity=read_iops * seconds, writes=0),
        Limit(
            name="write-iops", counts="operations", rate=write_iops, capacity=write_iops * seconds, reads=0
        ),
        client,
    )
    if mode == "elastic":
        read, write = read_gib * GIB, write_gib * GIB
        return (
            *both,
            Limit(name="read-throughput", counts="bytes", rate=read, capacity=read * seconds, writes=0),
            Limit(name="throughput", counts="bytes", rate=write, capacity=write * seconds, reads=0),
        )
    size_tib = spec.size_bytes / GIB / 1024
    base = max(constants["base_least_mib"], constants["base_mib_per_tib"] * size_tib) * MIB
    if mode == "provisioned":
        bought = _efs_provisioned(spec, constants["provisioned_mib"], write_gib)
        if bought >= min(base, write_gib * GIB):  # else it bursts as if nothing were bought
            return (*both, _metered("throughput", bought, seconds, read_weight))
    burst = max(constants["burst_least_mib"], constants["burst_mib_per_tib"] * size_tib) * MIB
    credits_bytes = constants["credits_tib"] * max(1.0, size_tib) * 1024 * GIB
    return (
        *both,
        _metered("throughput", min(burst, write_gib * GIB), seconds, read_weight),
        _metered(CREDITS, base, credits_bytes / base, read_weight),
    )


def _metered(name: str, rate: float, seconds: float, read_weight: float) -> Limit:
    return Limit(name=name, counts="bytes", rate=rate, capacity=rate * seconds, reads=read_weight)


def _of_zone(
    spec: VolumeSpec, constants: Constants, name: str, regional: tuple[float, float]
) -> tuple[float, float]:
    """Reads and writes of a limit that all One Zone file systems share, whatever their mode."""
    one_zone: tuple[float, float] = constants.get(f"one_zone_{name}", regional)
    return one_zone if spec.one_zone else regional


def efs_mode(spec: VolumeSpec) -> str:
    """A file system's throughput mode: the spec's; else provisioned if throughput is bought; else the newest
    other mode at its date.
    """
    if spec.mode is None and spec.throughput_bytes_per_s is not None:
        return "provisioned"
    modes: Sequence[str] = generation_of(spec).constants["modes"]
    return spec.mode or next(mode for mode in reversed(modes) if mode != "provisioned")


def _efs_mode(spec: VolumeSpec, constants: Constants) -> str:
    mode = efs_mode(spec)
    if mode not in constants["modes"]:
        known = " or ".join(constants["modes"])
        raise PlanError(f"{who(spec)}: no mode {mode!r} at its date; use {known}, or change date", key="mode")
    if spec.one_zone and not constants["one_zone"]:
        raise PlanError(
            f"{who(spec)}: there was no One Zone at its date; remove one_zone or change date", key="one_zone"
        )
    if spec.iops is not None:
        raise PlanError(f"{who(spec)}: operations follow from the mode; remove iops", key="iops")
    if mode != "provisioned" and spec.throughput_bytes_per_s is not None:
        raise PlanError(
            f"{who(spec)}: throughput follows from mode {mode!r}; remove it or use provisioned",
            key="throughput",
        )
    return mode


def _efs_provisioned(spec: VolumeSpec, bounds_mib: tuple[float, float], one_zone_gib: float) -> float:
    if spec.throughput_bytes_per_s is None:
        raise PlanError(
            f"{who(spec)}: throughput is missing; give what is provisioned, metered", key="throughput"
        )
    low, high = bounds_mib
    if spec.one_zone:
        high = min(high, one_zone_gib * GIB / MIB)
    mib = spec.throughput_bytes_per_s / MIB
    if not low <= mib <= high:
        raise PlanError(
            f"{who(spec)}: {outside(mib, low, high, 'MiB/s')}; change throughput", key="throughput"
        )
    return float(spec.throughput_bytes_per_s)


def model_for(spec: VolumeSpec) -> Model:
    """The model of a volume in the catalog.

    Raises PlanError if the type or instance is unknown, did not exist at the date, or does not allow the
    size, IOPS or throughput.
    """
    generation = generation_of(spec)
    constants = generation.constants
    _check_size(spec, constants)
    merge_over = constants.get("merge_over_kib")
    of_instance = shrunk(instance_limits(spec), spec.time_scale)  # refuses an unknown instance
    by_ebs = generation.rule not in _NOT_BY_EBS
    return Model(
        name=spec.name,
        limits=shrunk(_RULES[generation.rule](spec, constants), spec.time_scale),
        accounting=Accounting(
            max_io_bytes=constants["max_io_kib"] * KIB,
            merge_over_bytes=None if merge_over is None else merge_over * KIB,
            least_bytes=constants.get("least_bytes", 0),
        ),
        read=_read(spec, constants).slowed(spec.read_latency),
        write=_write(spec, constants),
        instance=spec.instance or "" if by_ebs else "",
        instance_limits=of_instance if by_ebs else (),
        stripes=spec.stripes,
        chunk_bytes=spec.chunk_bytes if spec.stripes > 1 else 0,
        untouched_iops=constants.get("untouched_iops"),
    )


def as_sold(spec: VolumeSpec) -> VolumeSpec:
    """The volume without settings that follow from others: AWS reports gp2's IOPS, which follow its size."""
    return replace(spec, iops=None) if spec.type == "gp2" else spec


def known_model(spec: VolumeSpec) -> Model | None:
    """Like ``model_for``; None for volumes of records and mounts that this catalog does not know or allow."""
    try:
        return model_for(as_sold(spec))
    except PlanError:
        return None


def large_enough(spec: VolumeSpec) -> VolumeSpec:
    """The volume with IOPS raised to what its throughput requires, and size to what they require.

    Unchanged if no IOPS are bought.
    """
    if spec.iops is None:
        return spec
    try:
        generation = generation_of(spec)
    except PlanError:
        return spec
    constants, iops = generation.constants, spec.iops
    if generation.rule == "provisioned" and spec.throughput_bytes_per_s:
        iops = max(iops, ceil(spec.throughput_bytes_per_s / MIB / constants["throughput_mib_per_iops"]))
    least_gib = constants["size_gib"][0]
    if iops > constants.get("iops_included", 0):
        least_gib = max(least_gib, ceil(iops / constants["iops_per_gib"]))
    return replace(spec, iops=iops, size_bytes=max(spec.size_bytes, least_gib * GIB))


def most_sold(spec: VolumeSpec, type_: str) -> VolumeSpec | None:
    """The volume as this type, with the most that is sold at its size; None if it is not sold."""
    other = replace(spec, type=type_, iops=None, throughput_bytes_per_s=None)
    try:
        generation, is_xen = generation_of(other), _is_xen(spec)
    except PlanError:
        return None
    constants = generation.constants
    if generation.rule in ("provisioned", "by-iops"):
        of_size = max(
            constants.get("iops_included", 0), int(constants["iops_per_gib"] * spec.size_bytes / GIB)
        )
        of_instance = constants.get("xen_iops", of_size) if is_xen else of_size
        other = replace(other, iops=min(constants["iops"][1], of_size, of_instance))
    if generation.rule == "provisioned":
        mib = min(constants["throughput_mib"][1], constants["throughput_mib_per_iops"] * (other.iops or 0))
        other = replace(other, throughput_bytes_per_s=int(mib * MIB))
    return None if known_model(other) is None else other


def _read(spec: VolumeSpec, constants: Constants) -> Service:
    plain = not spec.encrypted and "read_plain" in constants
    return Service(**constants["read_plain" if plain else "read"])


def _write(spec: VolumeSpec, constants: Constants) -> Service:
    one_zone = spec.one_zone and "write_one_zone" in constants
    return Service(**constants["write_one_zone" if one_zone else "write"])


def instance_limits(spec: VolumeSpec) -> tuple[Limit, ...]:
    """Limits of the spec's instance for all its EBS volumes together; empty without an instance.

    An instance with a baseline below its maximum reaches the maximum for 30 minutes. How its credits come
    back is not published, and assumed to be as for gp2: at the baseline.
    """
    if spec.instance is None:
        return ()
    entry = instance_named(spec.instance, who(spec))
    (base_mb, base_iops), (most_mb, most_iops) = entry["baseline"], entry["maximum"]
    limits = _with_burst("throughput", "bytes", base_mb * 1e6, most_mb * 1e6)
    if entry.get("hypervisor") == "xen":
        # Their published IOPS are their bandwidth at 16 KiB: 9,300 of 4 KiB were measured on "8,000".
        return limits
    return limits + _with_burst("iops", "operations", base_iops, most_iops)


def _with_burst(
    name: str, counts: Literal["operations", "bytes"], base: float, most: float
) -> tuple[Limit, ...]:
    what = per_second(f"instance-{name}", counts, most, constant("instance_bucket_s"))
    if base >= most:
        return (what,)
    capacity = (most - base) * constant("instance_burst_s")
    return what, Limit(name=f"instance-{name}-{CREDITS}", counts=what.counts, rate=base, capacity=capacity)


def _by_size(spec: VolumeSpec, constants: Constants) -> tuple[Limit, ...]:
    """gp2: IOPS follow from the size; small volumes burst while credits last."""
    size_gib = spec.size_bytes / GIB
    low, high = constants["iops"]
    base = min(high, max(low, constants["iops_per_gib"] * size_gib))
    if spec.iops is not None or spec.throughput_bytes_per_s is not None:
        raise PlanError(
            f"{who(spec)}: IOPS and throughput follow from the size ({base:,.0f} IOPS at {size_gib:g} GiB);"
            " remove iops and throughput, or use gp3",
            key="throughput" if spec.iops is None else "iops",
        )
    throughput = next(mib for up_to_gib, mib in constants["throughput_mib"] if size_gib <= up_to_gib)
    seconds = constants["bucket_s"]
    bytes_limit = per_second("throughput", "bytes", throughput * MIB, seconds)
    if size_gib >= constants["burst_below_gib"]:
        return (per_second("iops", "operations", base, seconds), bytes_limit)
    # Two buckets, and the longer wait: switching the rate by "credits left" would hover above the baseline.
    credit = Limit(name=CREDITS, counts="operations", rate=base, capacity=constants["credits"])
    return (per_second("iops", "operations", constants["burst_iops"], seconds), bytes_limit, credit)


def _provisioned(spec: VolumeSpec, constants: Constants) -> tuple[Limit, ...]:
    """gp3: IOPS and throughput are bought independently of each other and of the size."""
    iops = spec.iops or constants["iops_included"]
    _check_iops(spec, constants, iops, free=constants["iops_included"])
    included = constants["throughput_included_mib"]
    throughput = (spec.throughput_bytes_per_s or included * MIB) / MIB
    low, high = constants["throughput_mib"]
    if not low <= throughput <= high:
        raise PlanError(
            f"{who(spec)}: {outside(throughput, low, high, 'MiB/s')}; change throughput", key="throughput"
        )
    per_iops = constants["throughput_mib_per_iops"]
    if throughput > per_iops * iops:
        raise PlanError(
            f"{who(spec)}: {throughput:g} MiB/s needs at least {ceil(throughput / per_iops):,} IOPS"
            f" ({per_iops} MiB/s per IOPS); raise iops or lower throughput",
            key="throughput",
        )
    return _bought(iops, throughput, constants["bucket_s"])


def _by_iops(spec: VolumeSpec, constants: Constants) -> tuple[Limit, ...]:
    """io1 and io2: IOPS are bought; throughput follows from them."""
    if spec.throughput_bytes_per_s is not None:
        raise PlanError(f"{who(spec)}: throughput follows from iops; remove throughput", key="throughput")
    iops = _required_iops(spec, constants)
    throughput = next(
        min(most_mib, mib_per_iops * iops)
        for up_to, mib_per_iops, most_mib in constants["throughput_mib_per_iops"]
        if iops <= up_to
    )
    return _bought(iops, throughput, constants["bucket_s"])


def _bought(iops: float, throughput_mib: float, seconds: float) -> tuple[Limit, ...]:
    return (
        per_second("iops", "operations", iops, seconds),
        per_second("throughput", "bytes", throughput_mib * MIB, seconds),
    )


def _hdd(spec: VolumeSpec, constants: Constants) -> tuple[Limit, ...]:
    """st1 and sc1: throughput follows from the size, with bursts on credits."""
    _refuse_bought(spec)
    size_tib = spec.size_bytes / GIB / 1024
    base = min(constants["base_max_mib"], constants["base_mib_per_tib"] * size_tib) * MIB
    burst = min(constants["burst_max_mib"], constants["burst_mib_per_tib"] * size_tib) * MIB
    full = spec.size_bytes / GIB * _HDD_CREDIT_MIB_PER_GIB * MIB
    return (
        per_second("throughput", "bytes", burst, constants["bucket_s"]),
        Limit(name=CREDITS, counts="bytes", rate=base, capacity=full),
    )


def _magnetic(spec: VolumeSpec, constants: Constants) -> tuple[Limit, ...]:
    """standard: about 100 IOPS on average, some hundreds for a while."""
    _refuse_bought(spec)
    seconds = constants["bucket_s"]
    return (
        per_second("iops", "operations", constants["burst_iops"], seconds),
        per_second("throughput", "bytes", constants["throughput_mib"] * MIB, seconds),
        Limit(name=CREDITS, counts="operations", rate=constants["iops"], capacity=constants["credits"]),
    )


def _local(spec: VolumeSpec, constants: Constants) -> tuple[Limit, ...]:
    """An instance's disks: known for some instance types, otherwise given by the plan.

    AWS documents operations of 4 KiB, over all disks of the instance; bytes follow from these unless given.
    """
    store = None if spec.instance is None else instance_named(spec.instance, who(spec)).get("store")
    given = store if spec.iops is None else None
    if given is None:
        reads = writes = float(_required_iops(spec, constants))
    else:
        reads, writes = (each / spec.stripes for each in given["iops"][0])
    bytes_per_s = [each * constants["bytes_per_operation"] for each in (reads, writes)]
    if spec.throughput_bytes_per_s is not None:
        bytes_per_s = [float(spec.throughput_bytes_per_s)] * 2
    elif given is not None and "mb_per_s" in given:
        bytes_per_s = [1e6 * mb / spec.stripes for mb in given["mb_per_s"][0]]
    return _of_disk("iops", "operations", reads, writes), _of_disk("throughput", "bytes", *bytes_per_s)


def _of_disk(name: str, counts: Literal["operations", "bytes"], read: float, write: float) -> Limit:
    """One bucket for both directions, as a disk cannot read while it writes; it saves up next to nothing."""
    return Limit(name=name, counts=counts, rate=read, capacity=read * _DISK_BUCKET_S, writes=read / write)


def _refuse_bought(spec: VolumeSpec) -> None:
    if spec.iops is not None or spec.throughput_bytes_per_s is not None:
        key = "throughput" if spec.iops is None else "iops"
        raise PlanError(f"{who(spec)}: throughput follows from the size; remove iops and throughput", key=key)


def _check_size(spec: VolumeSpec, constants: Constants) -> None:
    low, high = constants["size_gib"]
    size_gib = spec.size_bytes / GIB
    if not low <= size_gib <= high:
        raise PlanError(f"{who(spec)}: {outside(size_gib, low, high, 'GiB')}; change size", key="size")


def _required_iops(spec: VolumeSpec, constants: Constants) -> int:
    if spec.iops is None:
        low, high = constants["iops"]
        raise PlanError(f"{who(spec)}: iops is missing; give iops from {low:,} to {high:,}", key="iops")
    _check_iops(spec, constants, spec.iops, free=0)
    return spec.iops


def _check_iops(spec: VolumeSpec, constants: Constants, iops: int, *, free: int) -> None:
    low, high = constants["iops"]
    if not low <= iops <= high:
        raise PlanError(f"{who(spec)}: {iops:,} IOPS is outside {low:,} to {high:,}; change iops", key="iops")
    on_xen = constants.get("xen_iops")
    if on_xen is not None and iops > on_xen and _is_xen(spec):
        raise PlanError(
            f"{who(spec)}: {iops:,} IOPS is more than {on_xen:,}, which is what {spec.instance} reaches,"
            " as it is not of the Nitro system; lower iops or change instance",
            key="iops",
        )
    per_gib = constants.get("iops_per_gib")
    if per_gib is not None and iops > max(free, per_gib * spec.size_bytes / GIB):
        raise PlanError(
            f"{who(spec)}: {iops:,} IOPS needs at least {-(-iops // per_gib):,} GiB"
            f" ({per_gib:,} IOPS per GiB); raise size or lower iops",
            key="iops",
        )


def _is_xen(spec: VolumeSpec) -> bool:
    return spec.instance is not None and instance_named(spec.instance, who(spec)).get("hypervisor") == "xen"


_RULES: Mapping[str, Callable[[VolumeSpec, Constants], tuple[Limit, ...]]] = {
    "by-size": _by_size,
    "provisioned": _provisioned,
    "by-iops": _by_iops,
    "hdd": _hdd,
    "magnetic": _magnetic,
    "local": _local,
    "efs": efs_limits,
}
