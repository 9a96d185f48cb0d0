"""Guards on what is around the volumes: the instance's limits, other I/O, the clock, what is unknown."""

from esrally_ebs.checks.facts import Activity, ArmFacts, Facts
from esrally_ebs.checks.finding import bad, good, listed, unknown
from esrally_ebs.model import Check, Kind, Severity
from esrally_ebs.units import MIB

_STOP_REQUESTS_PER_S, _STOP_BYTES_PER_S = 100, 10 * MIB  # of others: no figure would be the volume's own
_SOME_REQUESTS_PER_S, _SOME_BYTES_PER_S = 5, MIB
_CLOCK_OFF_S = 2.0  # AWS tells whole seconds, and the answer took its time
_COMPARE = "compare the volumes' own settings with the instance's limits"
_LARGER = "take a larger instance, or volumes with lower limits"


def instance_limit(facts: Facts) -> Check | None:
    """An instance that one arm alone could saturate, or all of them together, would be what is measured."""
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
    """Somebody else's requests on an arm's devices."""
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
    """A clock that is off puts CloudWatch's minutes beside the wrong requests."""
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
    """What could not be found out about the arms."""
    if facts.unknown:
        text = listed(facts.unknown)
        return unknown("identity", text, "guards that need it could not look; see docs/aws.md")
    on_aws = _on_aws(facts)
    return good("identity", "", listed(_described(arm) for arm in on_aws)) if on_aws else None


def _on_aws(facts: Facts) -> list[ArmFacts]:
    return [arm for arm in facts.arms if arm.volume_ids or arm.file_system]


def _described(arm: ArmFacts) -> str:
    volumes = listed(f"{each.volume_id} ({each.type})" for each in arm.members)
    mode = (
        f"{arm.file_system.file_system_id} (EFS, {arm.file_system.throughput_mode})"
        if arm.file_system
        else ""
    )
    return f"{arm.name} is {volumes or mode or arm.volume.identity}"


def _without_model(facts: Facts) -> str:
    """The arms on EBS that are not known, or beyond the catalog."""
    on_ebs = [arm for arm in facts.arms if arm.volume.kind is Kind.EBS or arm.volume_ids]
    return listed(arm.name for arm in on_ebs if not arm.models)


def _rates(facts: Facts, what: str) -> list[tuple[str, float]]:
    return [(arm.name, rate) for arm in facts.arms if (rate := arm.rate(what)) is not None]


def _shown(what: str, rate: float) -> str:
    return f"{rate:,.0f} IOPS" if what == "iops" else f"{rate / MIB:,.0f} MiB/s"


def _above(io: Activity, requests_per_s: float, bytes_per_s: float) -> bool:
    return io.requests > requests_per_s * io.seconds or io.bytes > bytes_per_s * io.seconds
