"""Guards against arms that differ in something else than the volume that is to be compared."""

from collections.abc import Callable, Mapping, Sequence

from esrally_ebs.checks.facts import ArmFacts, Facts
from esrally_ebs.checks.finding import bad, good, listed, unknown
from esrally_ebs.model import Check, Kind, Severity
from esrally_ebs.units import KIB, format_bytes

_EFS_READAHEAD_BYTES = 15_360 * KIB  # amazon-ec2-utils, udev rule 53: of every NFS mount
_SIZES_ALIKE = 0.02  # file systems of one size differ by what they keep for themselves
# Of one mount only: addresses, ports and what mkfs found of the device.
_OWN_OPTIONS = (
    "addr=",
    "clientaddr=",
    "mountaddr=",
    "port=",
    "sunit=",
    "swidth=",
    "stripe=",
    "subvol",
    "fsid=",
)


def size(facts: Facts) -> Check | None:
    """Arms of different sizes: gp2, st1 and sc1 are as fast as they are large."""
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
    """Different file systems."""
    return _same(
        "filesystem", _disks(facts), lambda arm: arm.volume.filesystem, "make the same one on every arm"
    )


def mount_options(facts: Facts) -> Check | None:
    """Different mount options, but for those that are each mount's own."""
    return _same("mount-options", _disks(facts), _options, "remount with the same options")


def readahead(facts: Facts) -> Check | None:
    """Different readahead; EFS is expected to have what Amazon gives it, not what disks have."""
    for arm in facts.arms:
        ahead = arm.volume.readahead_bytes
        if arm.volume.kind is Kind.EFS and ahead is not None and ahead != _EFS_READAHEAD_BYTES:
            text = f"{arm.name}: EFS reads ahead {ahead // KIB} KiB, Amazon Linux sets 15360"
            mend = "install amazon-ec2-utils, or write 15360 to /sys/class/bdi/<device>/read_ahead_kb"
            return bad("readahead", text, mend, value=f"{ahead // KIB} KiB", severity=Severity.WARN)
    mend = "blockdev --setra gives disks the same one"
    return _same("readahead", _disks(facts), lambda arm: _kib(arm.volume.readahead_bytes), mend)


def scheduler(facts: Facts) -> Check | None:
    """Different I/O schedulers."""
    mend = "write one and the same to /sys/block/<device>/queue/scheduler"
    return _same("scheduler", _disks(facts), lambda arm: arm.volume.scheduler or "", mend)


def encryption(facts: Facts) -> Check | None:
    """One arm encrypted and the other not."""
    mend = "make both volumes encrypted, or neither: a snapshot can be copied with encryption"
    return _same("encryption", facts.arms, _encrypted, mend)


def _same(name: str, arms: Sequence[ArmFacts], of: Callable[[ArmFacts], str], mend: str) -> Check | None:
    """What all arms should share; an arm that does not tell is no reason not to compare the others."""
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
    """Arms with a device of their own: a file system over the network is another kind of thing altogether."""
    return [arm for arm in facts.arms if arm.volume.kind is not Kind.EFS]


def _size(arm: ArmFacts) -> int:
    total = sum(member.size_bytes for member in arm.members)
    return total if total and len(arm.members) == len(arm.volume_ids) else arm.volume.spec.size_bytes


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
