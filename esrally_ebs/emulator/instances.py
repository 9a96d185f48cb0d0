"""What an EC2 instance lets through to all its volumes together: a VolumeSpec in, limits out."""

from typing import Literal

from esrally_ebs.emulator.generations import constant, instance_named, who
from esrally_ebs.emulator.limits import CREDITS, Limit, per_second
from esrally_ebs.model import VolumeSpec


def instance_limits(spec: VolumeSpec) -> tuple[Limit, ...]:
    """What the spec's instance lets through to all its volumes together; none without an instance.

    An instance whose baseline is below its maximum reaches the maximum for 30 minutes; how its credits come
    back is not published, and taken to be as gp2's do: at the baseline.
    """
    if spec.instance is None:
        return ()
    entry = instance_named(spec.instance, who(spec))
    (base_mb, base_iops), (most_mb, most_iops) = entry["baseline"], entry["maximum"]
    limits = _with_burst("throughput", "bytes", base_mb * 1e6, most_mb * 1e6)
    if entry.get("hypervisor") == "xen":
        # Published IOPS of these are their bandwidth at 16 KiB: 9,300 of 4 KiB were measured on "8,000".
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
