"""Looking: an arm's history in, everything that its next step depends on out."""

from collections.abc import Mapping
from typing import Any

from esrally_ebs.aws.clients import Api, AwsError
from esrally_ebs.aws.describe import volumes_where
from esrally_ebs.aws.provision.goal import TAG_MEMBER, TAG_RUN, tags_of
from esrally_ebs.aws.provision.journal import History
from esrally_ebs.aws.provision.machine import Machine
from esrally_ebs.aws.provision.seen import (
    Seen,
    SeenDevice,
    SeenFileSystem,
    SeenMachine,
    SeenTarget,
    SeenVolume,
    Wanted,
)
from esrally_ebs.units import GIB


def look(api: Api, machine: Machine, history: History, *, at_s: float) -> Seen:
    """What there is of an arm now."""
    if history.goal.sort == "efs":
        return Seen(
            at_s=at_s,
            file_system=_file_system(api, history),
            machine=machine.look(Wanted(point=history.goal.point, sizes={})),
        )
    if history.goal.sort == "instance-store":
        return Seen(at_s=at_s, machine=_disks(machine, history))
    volumes = tuple(_volumes(api, history))
    unattached = any(not volume.instance for volume in volumes)
    return Seen(
        at_s=at_s,
        volumes=volumes,
        names_in_use=_names_in_use(api, history.goal.place.instance) if unattached else frozenset(),
        machine=machine.look(_wanted(history, volumes)),
    )


def _seen_volume(raw: Mapping[str, Any]) -> SeenVolume:
    """One volume of ``DescribeVolumes``."""
    attachments = raw.get("Attachments") or [{}]
    return SeenVolume(
        id=raw["VolumeId"],
        state=raw["State"],
        size_gib=raw["Size"],
        tags=tags_of(raw.get("Tags")),
        instance=attachments[0].get("InstanceId", ""),
        attachment=attachments[0].get("State", ""),
    )


def _volumes(api: Api, history: History) -> list[SeenVolume]:
    """Those with the arm's tag, and those that we know by their ids whatever tags they have."""
    found = [_seen_volume(raw) for raw in volumes_where(api, f"tag:{TAG_RUN}", history.goal.run)]
    missing = set(history.ids("create", "VolumeId")) - {volume.id for volume in found}
    if missing:  # by a filter, as an id that is gone would be an error
        found += [_seen_volume(raw) for raw in volumes_where(api, "volume-id", *sorted(missing))]
    return found


def _names_in_use(api: Api, instance: str) -> frozenset[str]:
    return frozenset(
        attachment["Device"]
        for raw in volumes_where(api, "attachment.instance-id", instance)
        for attachment in raw.get("Attachments", ())
    )


def _wanted(history: History, volumes: tuple[SeenVolume, ...]) -> Wanted:
    goal = history.goal
    here = [
        volume
        for volume in volumes
        if volume.instance == goal.place.instance
        and not history.is_copy(volume.tags.get(TAG_MEMBER), volume.id)
    ]
    return Wanted(
        point=goal.point,
        sizes={volume.id: volume.size_gib * GIB for volume in here if volume.tags.get(TAG_RUN) == goal.run},
        stripe=goal.stripe_name if goal.count > 1 else "",
    )


def _disks(machine: Machine, history: History) -> SeenMachine:
    goal, taken = history.goal, history.done("claim")
    serials: list[str] = list(taken["serials"]) if taken else []
    return machine.look(
        Wanted(
            point=goal.point,
            sizes=dict.fromkeys(serials, 0),
            disks=taken is None,
            stripe=goal.stripe_name if goal.count > 1 else "",
        )
    )


def _file_system(api: Api, history: History) -> SeenFileSystem | None:
    token = history.goal.token(0)
    try:
        answer = api.call("efs", "DescribeFileSystems", CreationToken=token)
    except AwsError as error:
        if error.code == "FileSystemNotFound":
            return None
        raise
    if not answer["FileSystems"]:
        return None
    raw = answer["FileSystems"][0]
    targets = api.call("efs", "DescribeMountTargets", FileSystemId=raw["FileSystemId"])["MountTargets"]
    return SeenFileSystem(
        id=raw["FileSystemId"],
        state=raw["LifeCycleState"],
        tags=tags_of(raw.get("Tags")),
        targets=tuple(
            SeenTarget(
                id=target["MountTargetId"],
                state=target["LifeCycleState"],
                address=target.get("IpAddress", ""),
            )
            for target in targets
            if target["LifeCycleState"] != "deleted"
        ),
    )


def target_of(seen: Seen) -> SeenDevice | None:
    """What an arm's file system is on; None for EFS."""
    devices = list(seen.machine.devices.values())
    return seen.machine.array or (devices[0] if devices else None)
