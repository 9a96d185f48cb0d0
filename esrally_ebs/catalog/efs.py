"""How EFS limits follow from what is stored and the throughput mode: metered throughput, of which a byte read
costs a third, operations by direction, and a cap per client.
"""

from esrally_ebs.catalog.generations import Constants, generation_of, outside, who
from esrally_ebs.catalog.limits import CREDITS, Limit, per_second
from esrally_ebs.errors import PlanError
from esrally_ebs.model import VolumeSpec
from esrally_ebs.units import GIB, MIB


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
    if mode == "provisioned":
        bought = _efs_provisioned(spec, constants["provisioned_mib"], write_gib)
        return (*both, _metered("throughput", bought, seconds, read_weight))
    size_tib = spec.size_bytes / GIB / 1024
    base = max(constants["base_least_mib"], constants["base_mib_per_tib"] * size_tib) * MIB
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
    """Reads and writes of a limit that One Zone file systems have in common whatever their mode."""
    one_zone: tuple[float, float] = constants.get(f"one_zone_{name}", regional)
    return one_zone if spec.one_zone else regional


def efs_mode(spec: VolumeSpec) -> str:
    """The throughput mode of a file system: the spec's, else the newest that there was at its date."""
    return spec.mode or str(generation_of(spec).constants["modes"][-1])


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
            f"{who(spec)}: {outside(mib, low, high, 'MiB/s')}; change throughput",
            key="throughput",
        )
    return float(spec.throughput_bytes_per_s)
