"""Changes an EBS volume in place (Elastic Volumes): checks, requests and follows the change.

A change goes through ``modifying`` (settings move) and ``optimizing`` (data move; performance is between old
and new settings) to ``completed``, within minutes to more than a day.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from esrally_ebs.aws.clients import Api, AwsError
from esrally_ebs.aws.describe import modifications_of, volumes_where
from esrally_ebs.aws.provision.goal import EBS_TYPES, TAG_OWNER, TAG_RUN, RunOwner, tags_of
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.errors import PlanError, SetupError, near
from esrally_ebs.machine.processes import SYSTEM_CLOCK, Clock
from esrally_ebs.model import VolumeSpec
from esrally_ebs.units import GIB, MIB

UNDER_WAY = ("modifying", "optimizing")
_COOL_DOWN_S = 6 * 3600.0  # between changes, until AWS allowed four in 24 hours on 2026-01-15
_POLL_S = 15.0
_PATIENCE_S = 600.0  # for polls that AWS refuses or that fail to reach it


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A volume's settings; None if its type lacks one."""

    type: str
    size_gib: int
    iops: int | None = None
    throughput_mib: int | None = None

    @property
    def text(self) -> str:
        more = [f"{self.iops} IOPS"] if self.iops else []
        more += [f"{self.throughput_mib} MiB/s"] if self.throughput_mib else []
        return ", ".join([f"{self.type} of {self.size_gib} GiB", *more])


@dataclass(frozen=True, slots=True, kw_only=True)
class ModificationProgress:
    state: str  # modifying | optimizing | completed | failed
    percent: int
    began_at: float | None = None  # seconds since the epoch
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeChange:
    """A requested change: only given settings change."""

    type: str | None = None
    size_gib: int | None = None
    iops: int | None = None
    throughput_mib: int | None = None


def target_of(now: Settings, change: VolumeChange) -> Settings:
    """Settings after the change, including values that AWS would fill in.

    From gp2 to gp3, each is the higher of both types', as documented by AWS. Raises PlanError if the type
    does not allow it, the volume would shrink, or settings bought for io1 or io2 would be lost without
    notice.
    """
    type_ = _type_of(now.type if change.type is None else change.type)
    same = type_ == now.type
    iops = change.iops or (now.iops if same and type_ != "gp2" else None)
    rate = change.throughput_mib or (now.throughput_mib if same else None)
    size = change.size_gib or now.size_gib
    if type_ == "gp3" and not same:
        base_iops, base_mib = _included("gp3", now.size_gib)
        if now.type in ("io1", "io2") and not (iops and rate):
            raise PlanError(
                f"from {now.text} to gp3: AWS would give it {base_iops:,} IOPS and {base_mib} MiB/s then;"
                " give both iops and throughput"
            )
        gp2_iops, gp2_mib = _included("gp2", now.size_gib) if now.type == "gp2" else (0, 0)
        iops = iops or max(base_iops, gp2_iops)
        rate = rate or max(base_mib, gp2_mib)
    target = Settings(type=type_, size_gib=size, iops=iops, throughput_mib=rate)
    if size < now.size_gib:
        raise PlanError(f"size: a volume cannot shrink from {now.size_gib} to {size} GiB; make a smaller one")
    if target == (replace(now, iops=None) if type_ == "gp2" else now):  # gp2's IOPS follow from its size
        raise PlanError(f"the volume is {now.text} already; nothing is to be changed")
    model_for(_spec(target))
    return target


def check_free(volume: str, last: ModificationProgress | None, *, at_s: float) -> tuple[str, ...]:
    """Warnings before a change. Raises SetupError during an earlier one, when AWS would refuse."""
    if last is None:
        return ()
    if last.state in UNDER_WAY:
        raise SetupError(
            f"{volume}: an earlier change is still {last.state} ({last.percent} %); wait until it has"
            " completed"
        )
    if last.began_at is not None and at_s - last.began_at < _COOL_DOWN_S:
        hours = (at_s - last.began_at) / 3600
        return (
            f"{volume}: changed {hours:.1f} hours ago; AWS allows four changes in 24 hours (until 2026-01-15:"
            " one in 6 hours) and may refuse this one",
        )
    return ()


def settings_of(api: Api, volume: str, owner: RunOwner | None) -> tuple[Settings, bool]:
    """A volume's settings, and whether this owner made it (others use this pack, too).

    Raises SetupError if there is no such volume.
    """
    raw = next(iter(volumes_where(api, "volume-id", volume)), None)
    if raw is None:
        raise SetupError(f"{volume}: AWS knows no such volume in this region; set AWS_REGION")
    settings = Settings(
        type=raw["VolumeType"],
        size_gib=raw["Size"],
        iops=raw.get("Iops"),
        throughput_mib=raw.get("Throughput"),
    )
    tags = tags_of(raw.get("Tags"))
    return settings, TAG_RUN in tags and owner is not None and owner.wrote(tags.get(TAG_OWNER, ""))


def progress_of(api: Api, volume: str) -> ModificationProgress | None:
    """The volume's latest change; None if it never was changed."""
    raw = _latest(api, volume)
    return None if raw is None else _progress(raw)


def begin(api: Api, volume: str, now: Settings, target: Settings) -> float | None:
    """Request the change; returns when AWS began it, if AWS says so.

    Raises SetupError, with the next step, if AWS refuses.
    """
    parameters: dict[str, Any] = {"VolumeType": target.type} if target.type != now.type else {}
    parameters |= {"Size": target.size_gib} if target.size_gib != now.size_gib else {}
    parameters |= {"Iops": target.iops} if target.iops and target.type != "gp2" else {}
    if target.throughput_mib and target.type == "gp3":
        parameters["Throughput"] = target.throughput_mib
    try:
        answer = api.call("ec2", "ModifyVolume", VolumeId=volume, **parameters)
    except AwsError as error:
        if error.code == "VolumeModificationRateExceeded":
            raise SetupError(
                f"{volume}: changed too often: AWS allows four changes in 24 hours (until 2026-01-15 one in 6"
                " hours); try again later"
            ) from error
        # The SDK repeats unanswered calls; by then the change may be under way.
        if error.code == "IncorrectModificationState" or error.unanswered:
            begun = _under_way_to(api, volume, target)
            if begun is not None:
                return begun.began_at
        raise
    return _began(answer.get("VolumeModification", {}))


def follow(
    api: Api,
    volume: str,
    *,
    clock: Clock = SYSTEM_CLOCK,
    each: Callable[[ModificationProgress], None],
    since: float | None = None,
) -> ModificationProgress:
    """Poll the change until it is completed; ``each`` gets every answer, and may take its time.

    ``since`` is ``begin``'s result. Raises SetupError if the change failed (the volume then is as it was).
    """
    while True:
        progress = progress_since(api, volume, since, clock=clock)
        each(progress)
        if progress.state == "completed":
            return progress
        if progress.state == "failed":
            raise SetupError(
                f"{volume}: AWS gave the change up ({progress.message or 'no reason given'}); the volume is"
                " as it was, ask for it again"
            )
        clock.sleep(_POLL_S)


def progress_since(
    api: Api, volume: str, since: float | None, *, clock: Clock = SYSTEM_CLOCK
) -> ModificationProgress:
    """Progress of the change that began at ``since``; AWS may still describe an earlier one.

    Failed polls are repeated for at most ten minutes, unless they are not allowed; then AwsError.
    """
    give_up_s = clock.monotonic() + _PATIENCE_S
    while True:
        try:
            latest = progress_of(api, volume)
            break
        except AwsError as error:
            if error.denied or clock.monotonic() > give_up_s:
                raise
            clock.sleep(_POLL_S)
    # AWS gives a change's begin in whole seconds
    if latest is None or (since is not None and (latest.began_at or since) < since - 1):
        return ModificationProgress(state="modifying", percent=0)
    return latest


def _under_way_to(api: Api, volume: str, target: Settings) -> ModificationProgress | None:
    """The change under way, if it leads to ``target``."""
    raw = _latest(api, volume)
    if raw is None or raw["ModificationState"] not in UNDER_WAY:
        return None
    leads_to = (raw.get("TargetVolumeType"), raw.get("TargetSize"))
    rates = ((target.iops, raw.get("TargetIops")), (target.throughput_mib, raw.get("TargetThroughput")))
    same_rates = all(goal in (None, actual) for goal, actual in rates)
    return _progress(raw) if same_rates and leads_to == (target.type, target.size_gib) else None


def _latest(api: Api, volume: str) -> Mapping[str, Any] | None:
    modifications = modifications_of(api, [volume])
    return modifications[-1] if modifications else None


def _progress(raw: Mapping[str, Any]) -> ModificationProgress:
    return ModificationProgress(
        state=raw["ModificationState"],
        percent=int(raw.get("Progress", 0)),
        began_at=_began(raw),
        message=raw.get("StatusMessage", ""),
    )


def _began(raw: Mapping[str, Any]) -> float | None:
    began = raw.get("StartTime")
    return began.timestamp() if isinstance(began, datetime) else None


def _type_of(name: str) -> str:
    """AWS's name of an EBS volume type. Raises PlanError for other types."""
    if name not in EBS_TYPES:
        raise PlanError(
            f"EBS has no type {name!r}; use one of {', '.join(EBS_TYPES)}{near(name, EBS_TYPES)}", key="type"
        )
    return EBS_TYPES[name]


def _included(type_: str, size_gib: int) -> tuple[int, int]:
    """Sustained IOPS and MiB/s included in a gp2 or gp3 of this size."""
    limits = model_for(_spec(Settings(type=type_, size_gib=size_gib))).limits
    iops, rate = (
        min(limit.rate for limit in limits if limit.counts == kind) for kind in ("operations", "bytes")
    )
    return round(iops), round(rate / MIB)


def _spec(target: Settings) -> VolumeSpec:
    rate = target.throughput_mib
    return VolumeSpec(
        name="target",
        type=target.type,
        size_bytes=target.size_gib * GIB,
        iops=target.iops,
        throughput_bytes_per_s=None if rate is None else rate * MIB,
    )
