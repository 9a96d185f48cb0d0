"""Guards check that the user measures what they think they measure: from facts to named checks.

Pure: callers read machine and AWS, and pass Facts. A failed check with severity STOP stops the session,
unless the user accepts it by name, which is recorded. Guards on the volumes themselves are in
``volume_state``; these are about differences between arms, and about the volumes' surroundings.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from esrally_ebs.analysis.comparable import REACH
from esrally_ebs.analysis.lateness import LATENESS
from esrally_ebs.checks import volume_state
from esrally_ebs.checks.facts import Activity, ArmFacts, Facts, bad, good, listed, unknown
from esrally_ebs.errors import PlanError, near
from esrally_ebs.model import Check, Kind, Severity
from esrally_ebs.units import KIB, MIB, format_bytes

_EFS_READAHEAD_BYTES = 15_360 * KIB  # amazon-ec2-utils, udev rule 53: for every NFS mount
_SIZES_ALIKE = 0.02  # file systems of the same size reserve slightly different amounts
# Options specific to one mount: addresses, ports and what mkfs found out about the device.
_OWN_OPTIONS = (
    *("addr=", "clientaddr=", "mountaddr=", "port=", "sunit=", "swidth=", "stripe=", "subvol", "fsid="),
    "logbsize=",  # XFS: depends on a stripe's chunk, up to 256 KiB
)
_STOP_REQUESTS_PER_S, _STOP_BYTES_PER_S = 100, 10 * MIB  # by others: no figure would be the volume's own
_SOME_REQUESTS_PER_S, _SOME_BYTES_PER_S = 5, MIB
_CLOCK_OFF_S = 2.0  # AWS gives whole seconds, and the answer took some time
_COMPARE = "compare the volumes' own settings with the instance's limits"
_LARGER = "take a larger instance, or volumes with lower limits"


def size(facts: Facts) -> Check | None:
    """Arms of different sizes: the speed of gp2, st1 and sc1 follows from the size."""
    sizes = {arm.name: _size(arm) for arm in _disks(facts)}
    if len(sizes) < 2:
        return None
    sizes_text = listed(f"{name} {format_bytes(bytes_)}" for name, bytes_ in sizes.items())
    if max(sizes.values()) > min(sizes.values()) * (1 + _SIZES_ALIKE):
        text = f"arms differ in size: {sizes_text}"
        mend = "take volumes of one size unless size is what you compare"
        return bad("size", text, mend, value=sizes_text, severity=Severity.WARN)
    return good("size", sizes_text, "arms have the same size")


def filesystem(facts: Facts) -> Check | None:
    return _same(
        "filesystem", _disks(facts), lambda arm: arm.volume.filesystem, "make the same one on every arm"
    )


def mount_options(facts: Facts) -> Check | None:
    """Different mount options, except those specific to a mount."""
    return _same("mount-options", _disks(facts), _options, "remount with the same options")


def readahead(facts: Facts) -> Check | None:
    """Different readahead; EFS should have Amazon's value, not a disk's."""
    mend = "blockdev --setra gives disks the same one"
    of_disks = _same("readahead", _disks(facts), lambda arm: _kib(arm.volume.readahead_bytes), mend)
    if of_disks is not None and of_disks.forbids:
        return of_disks
    for arm in facts.arms:
        ahead = arm.volume.readahead_bytes
        if arm.volume.kind is Kind.EFS and ahead is not None and ahead != _EFS_READAHEAD_BYTES:
            text = f"{arm.name}: EFS reads ahead {ahead // KIB} KiB, Amazon Linux sets 15360"
            mend = "install amazon-ec2-utils, or write 15360 to /sys/class/bdi/<device>/read_ahead_kb"
            return bad("readahead", text, mend, value=f"{ahead // KIB} KiB", severity=Severity.WARN)
    return of_disks


def scheduler(facts: Facts) -> Check | None:
    mend = "write one and the same to /sys/block/<device>/queue/scheduler"
    return _same("scheduler", _disks(facts), lambda arm: arm.volume.scheduler or "", mend)


def encryption(facts: Facts) -> Check | None:
    mend = "make both volumes encrypted, or neither: a snapshot can be copied with encryption"
    return _same("encryption", facts.arms, _encrypted, mend)


def _same(name: str, arms: Sequence[ArmFacts], of: Callable[[ArmFacts], str], mend: str) -> Check | None:
    """A property that all arms should share; an arm whose value is unknown does not forbid a comparison."""
    values: Mapping[str, str] = {arm.name: value for arm in arms if (value := of(arm))}
    if len(values) < 2:
        return None
    what = name.replace("-", " ")
    values_text = listed(f"{arm} {value}" for arm, value in values.items())
    if len(set(values.values())) > 1:
        return bad(name, f"arms differ in {what}: {values_text}", mend, value=values_text)
    untold = [arm.name for arm in arms if arm.name not in values]
    if untold:
        return unknown(name, f"not known whether {listed(untold)} has the same {what} as {values_text}", mend)
    return good(name, next(iter(values.values())), f"arms have the same {what}")


def _disks(facts: Facts) -> list[ArmFacts]:
    """Arms with devices; network file systems have none."""
    return [arm for arm in facts.arms if arm.volume.kind is not Kind.EFS]


def _size(arm: ArmFacts) -> int:
    total = sum(member.size_bytes for member in arm.members)
    is_whole = total and len(arm.members) == len(arm.volume_ids)
    return total if is_whole else arm.volume.spec.size_bytes * arm.volume.spec.stripes


def _options(arm: ArmFacts) -> str:
    words = set(arm.volume.mount_options.split(","))
    return listed(sorted(word for word in words if not word.startswith(_OWN_OPTIONS)))


def _kib(count: int | None) -> str:
    return "" if count is None else f"{count // KIB} KiB"


def _encrypted(arm: ArmFacts) -> str:
    if arm.file_system is not None:
        return "yes" if arm.file_system.encrypted else "no"
    if not arm.members or len(arm.members) < len(arm.volume_ids):
        return ""
    states = {member.encrypted for member in arm.members}
    return "in part" if len(states) > 1 else "yes" if states == {True} else "no"


def instance_limit(facts: Facts) -> Check | None:
    """If the instance limits one arm, or all together, the instance would be measured."""
    if facts.instance is None:
        return None
    limits, single, together = facts.instance.limits, [], []
    for what, most in (("iops", limits.maximum_iops), ("throughput", limits.maximum_bytes_per_s)):
        rates = _rates(facts, what)
        single += [
            f"{name} {_shown(what, rate)} of {_shown(what, most)}" for name, rate in rates if rate > most
        ]
        total = sum(rate for _, rate in rates)
        if total > most:
            together.append(f"{_shown(what, total)} of {_shown(what, most)}")
    who = limits.instance_type
    if single:
        return bad(
            "instance-limit", f"{who} lets through less than an arm's volumes: {listed(single)}", _LARGER
        )
    if together:
        text = f"{who} lets through less than all arms together, which take turns: {listed(together)}"
        return bad("instance-limit", text, _LARGER, severity=Severity.WARN)
    if _without_model(facts):
        return unknown("instance-limit", f"not known what {_without_model(facts)} can do", _COMPARE)
    return good("instance-limit", who, f"{who} lets through what all arms can do together")


def instance_burst(facts: Facts) -> Check | None:
    """Arms that need more than the instance's baseline live on its burst: 30 minutes in 24 hours."""
    if facts.instance is None:
        return None
    limits = facts.instance.limits
    if not limits.bursts:
        return good("instance-burst", "no", f"{limits.instance_type} has no burst")
    needs = [
        f"{name} {_shown(what, rate)} of {_shown(what, base)}"
        for what, base in (("iops", limits.baseline_iops), ("throughput", limits.baseline_bytes_per_s))
        for name, rate in _rates(facts, what)
        if rate > base
    ]
    if not needs and _without_model(facts):
        return unknown("instance-burst", f"not known what {_without_model(facts)} can do", _COMPARE)
    if not needs:
        return good("instance-burst", "no", f"no arm needs more than {limits.instance_type}'s baseline")
    text = f"above {limits.instance_type}'s baseline, on its burst: {listed(needs)}"
    balances = [b for b in (facts.instance.io_balance, facts.instance.byte_balance) if b is not None]
    if balances and min(balances) < 1.0:
        return bad("instance-burst", f"{text}; {min(balances):.0%} of its credits are left", _LARGER)
    return bad(
        "instance-burst", text, f"measure for less than 30 minutes, or {_LARGER}", severity=Severity.WARN
    )


def other_io(facts: Facts) -> Check | None:
    watched = [(arm.name, arm.activity) for arm in facts.arms if arm.activity is not None]
    if not watched:
        return None
    busy = [(name, io) for name, io in watched if _above(io, _SOME_REQUESTS_PER_S, _SOME_BYTES_PER_S)]
    if not busy:
        return good("other-io", "none", "nothing else used the arms' devices before the session")
    heavy = any(_above(io, _STOP_REQUESTS_PER_S, _STOP_BYTES_PER_S) for _, io in busy)
    rates = listed(
        f"{name} {io.requests / io.seconds:.0f} requests/s, {io.bytes / io.seconds / MIB:.1f} MiB/s"
        for name, io in busy
    )
    severity = Severity.STOP if heavy else Severity.WARN
    return bad(
        "other-io", f"in use by others: {rates}", "end what uses it (iotop, fuser -vm)", severity=severity
    )


def clock(facts: Facts) -> Check | None:
    """With a wrong clock, CloudWatch's minutes would be matched with the wrong requests."""
    off, synchronised = facts.clock.off_s, facts.clock.synchronised
    mend = "synchronise it with chrony (169.254.169.123 on EC2)"
    if off is not None and abs(off) > _CLOCK_OFF_S:
        return bad("clock", f"the clock is {off:+.0f} s off AWS's", mend, value=f"{off:+.0f} s")
    if synchronised is False:
        text = "the kernel says that the clock is not synchronised"
        return bad("clock", text, mend, severity=Severity.WARN)
    if synchronised is None and off is None:
        text = "neither the kernel nor AWS told whether the clock is right"
        return unknown("clock", text, mend) if _on_aws(facts) else None
    if synchronised is None:
        return good("clock", f"{off:+.0f} s", "the clock agrees with AWS's, which tells whole seconds")
    return good("clock", "", "the clock is synchronised")


def identity(facts: Facts) -> Check | None:
    """Facts about the arms that could not be found out."""
    if facts.unknown:
        text = listed(facts.unknown)
        return unknown("identity", text, "guards that need it could not look; see docs/aws.md")
    on_aws = _on_aws(facts)
    return good("identity", "", listed(_described(arm) for arm in on_aws)) if on_aws else None


def _on_aws(facts: Facts) -> list[ArmFacts]:
    return [arm for arm in facts.arms if arm.volume_ids or arm.file_system]


def _described(arm: ArmFacts) -> str:
    volumes = listed(f"{each.volume_id} ({each.type})" for each in arm.members)
    system = arm.file_system
    mode = f"{system.file_system_id} (EFS, {system.throughput_mode})" if system else ""
    return f"{arm.name} is {volumes or mode or arm.volume.identity}"


def _without_model(facts: Facts) -> str:
    """Arms on EBS that are unknown, or beyond the catalog."""
    on_ebs = [arm for arm in facts.arms if arm.volume.kind is Kind.EBS or arm.volume_ids]
    return listed(arm.name for arm in on_ebs if not arm.models)


def _rates(facts: Facts, what: str) -> list[tuple[str, float]]:
    return [(arm.name, rate) for arm in facts.arms if (rate := arm.rate(what)) is not None]


def _shown(what: str, rate: float) -> str:
    return f"{rate:,.0f} IOPS" if what == "iops" else f"{rate / MIB:,.0f} MiB/s"


def _above(io: Activity, requests_per_s: float, bytes_per_s: float) -> bool:
    return io.requests > requests_per_s * io.seconds or io.bytes > bytes_per_s * io.seconds


_GUARDS: Mapping[str, Callable[[Facts], Check | None]] = {
    "identity": identity,
    "root-device": volume_state.root_device,
    "caches-below": volume_state.caches_below,
    "size": size,
    "filesystem": filesystem,
    "mount-options": mount_options,
    "readahead": readahead,
    "scheduler": scheduler,
    "encryption": encryption,
    "burst-balance": volume_state.burst_balance,
    "gp3-throughput": volume_state.gp3_throughput,
    "initialised": volume_state.initialised,
    "modification": volume_state.modification,
    "instance-limit": instance_limit,
    "instance-burst": instance_burst,
    "other-io": other_io,
    "clock": clock,
}
NAMES = (*_GUARDS, LATENESS, REACH)  # names that a plan may accept
# Guards that compare arms, and need only facts about their volumes.
BETWEEN_ARMS = ("size", "filesystem", "mount-options", "readahead", "scheduler")


def guard(facts: Facts, names: Iterable[str] = _GUARDS) -> list[Check]:
    """A check for each guard that applies; those that the plan accepts are marked."""
    checks = (_GUARDS[name](facts) for name in names)
    return [
        replace(check, accepted=not check.ok and check.name in facts.plan.accept)
        for check in checks
        if check is not None
    ]


def check_names(accepted: Collection[str]) -> None:
    """Raise PlanError if an accepted name belongs to no check that may be accepted."""
    for name in accepted:
        if name not in NAMES:
            raise PlanError(f"no check is named {name!r}; use one of {', '.join(NAMES)}{near(name, NAMES)}")
