"""The steps of an arm of EBS volumes: create, attach, then the steps of its devices; down in reverse."""

from collections.abc import Iterator

from esrally_ebs.aws.provision.devices import devices_down, devices_up
from esrally_ebs.aws.provision.goal import TAG_ARM, TAG_MEMBER, TAG_RUN, Goal
from esrally_ebs.aws.provision.journal import History
from esrally_ebs.aws.provision.seen import Seen, SeenVolume
from esrally_ebs.aws.provision.steps import (
    APPEAR_S,
    ATTACH_S,
    SETTLE_S,
    Call,
    Note,
    Step,
    Wait,
    delete,
    first_step,
    may_settle,
    refuse,
)
from esrally_ebs.units import GIB

_NAMES = (*(f"/dev/sd{letter}" for letter in "fghijklmnop"), *(f"/dev/xvdb{chr(c)}" for c in range(97, 123)))
_NOT_FOUND = "InvalidVolume.NotFound"
# A name that was taken meanwhile; the attachment that we never heard of; a volume that is listed already, and
# not yet known wherever it is attached.
_TAKEN = frozenset({"InvalidParameterValue", "InvalidDevice.InUse"})
_ATTACH_AGAIN = _TAKEN | {"VolumeInUse", "IncorrectState", _NOT_FOUND}


def up(history: History, seen: Seen) -> Step | None:
    """The next step towards an attached, formatted and mounted arm."""
    return first_step((_create, _wait_created, _attach, _appear, devices_up), history, seen)


def down(history: History, seen: Seen) -> Step | None:
    """The next step towards nothing; never one on a volume that was not created for this very arm."""
    return first_step((devices_down, _detach, _delete, _settle), history, seen)


def create_parameters(goal: Goal, member: int) -> dict[str, object]:
    """The parameters of ``CreateVolume``; the same for every repetition."""
    wanted = {
        "SnapshotId": goal.snapshot,
        "Iops": goal.iops,
        "Throughput": goal.throughput_mib,
    }
    tags = [{"Key": key, "Value": value} for key, value in goal.tags(member).items()]
    return {
        "AvailabilityZone": goal.place.zone,
        "VolumeType": goal.type,
        "Size": goal.size_gib,
        "Encrypted": goal.encrypted,
        **{name: value for name, value in wanted.items() if value is not None},
        "ClientToken": goal.token(member),
        "TagSpecifications": [{"ResourceType": "volume", "Tags": tags}],
    }


def _create(history: History, seen: Seen) -> Step | None:
    for member in range(history.goal.count):
        key = f"create/{member}"
        volume = _volume(history, seen, member)
        known = history.done(key)
        if volume is None and known is not None:
            return Wait(text=f"volume {known['VolumeId']} to be listed", limit_s=APPEAR_S)
        if volume is None:
            return Call(
                key=key,
                service="ec2",
                operation="CreateVolume",
                parameters=create_parameters(history.goal, member),
                keeps=("VolumeId",),
            )
        if known is None:  # it was created, but we never heard so
            return Note(key=key, fields={"VolumeId": volume.id})
    return None


def _wait_created(history: History, seen: Seen) -> Step | None:
    for volume in _members(history, seen):
        if volume.state == "creating":
            return Wait(text=f"volume {volume.id} to be created", limit_s=ATTACH_S)
        if volume.state not in ("available", "in-use"):
            refuse(history, f"volume {volume.id} is in state {volume.state!r}; take the arm down, try again")
    return None


def _attach(history: History, seen: Seen) -> Step | None:
    goal = history.goal
    for member, volume in enumerate(_members(history, seen)):
        if not volume.instance:
            return Call(
                key=f"attach/{member}",
                service="ec2",
                operation="AttachVolume",
                parameters={
                    "VolumeId": volume.id,
                    "InstanceId": goal.place.instance,
                    "Device": _free_name(history, seen),
                },
                go_on_after=_ATTACH_AGAIN,
            )
        _check_instance(history, volume)
        if volume.attachment != "attached":
            return Wait(text=f"volume {volume.id} to be attached", limit_s=ATTACH_S)
    return None


def _appear(history: History, seen: Seen) -> Step | None:
    for volume in _members(history, seen):
        device = seen.machine.devices.get(volume.id)
        if device is None:
            return Wait(text=f"the device of volume {volume.id} to appear", limit_s=APPEAR_S)
        if device.size_bytes != volume.size_gib * GIB:
            refuse(
                history,
                f"{device.path} has {device.size_bytes} bytes, volume {volume.id} {volume.size_gib} GiB;"
                " it is not touched",
            )
    return None


def _detach(history: History, seen: Seen) -> Step | None:
    for volume in _ours(history, seen):
        if not volume.instance:
            continue
        _check_instance(history, volume)
        if volume.attachment in ("attaching", "detaching", "busy"):
            return Wait(text=f"volume {volume.id}, which is {volume.attachment}", limit_s=ATTACH_S)
        return Call(
            key=f"detach/{volume.id}",
            service="ec2",
            operation="DetachVolume",
            parameters={"VolumeId": volume.id, "InstanceId": history.goal.place.instance},
            go_on_after=frozenset({"IncorrectState", _NOT_FOUND, "InvalidAttachment.NotFound"}),
        )
    return None


def _delete(history: History, seen: Seen) -> Step | None:
    ours = _ours(history, seen)
    if not ours:
        return None
    return delete(
        "volume",
        ours[0].id,
        ours[0].state,
        service="ec2",
        operation="DeleteVolume",
        go_on_after={_NOT_FOUND, "VolumeInUse", "IncorrectState"},
    )


def _settle(history: History, seen: Seen) -> Step | None:
    """A volume whose creation has just been asked for may be there without being listed yet."""
    for member in range(history.goal.count):
        asked = history.intent(f"create/{member}")
        known = history.done(f"create/{member}")
        if asked is None or (known is not None and history.done(f"delete/{known['VolumeId']}") is not None):
            continue
        if may_settle(asked.at_s, seen):
            return Wait(text="a volume that may have been created", limit_s=2 * SETTLE_S)
    return None


def _members(history: History, seen: Seen) -> Iterator[SeenVolume]:
    for member in range(history.goal.count):
        volume = _volume(history, seen, member)
        if volume is not None:
            yield volume


def _volume(history: History, seen: Seen, member: int) -> SeenVolume | None:
    """The member's volume: the one whose id we wrote down, or that we asked for and never heard of."""
    known = history.done(f"create/{member}")
    found = [volume for volume in _ours(history, seen) if volume.tags[TAG_MEMBER] == str(member)]
    if known is not None:
        found = [volume for volume in found if volume.id == known["VolumeId"]]
    return found[0] if found else None


def _ours(history: History, seen: Seen) -> list[SeenVolume]:
    """The volumes that were created for this arm: by our tags, and because we asked for them."""
    known = history.ids("create", "VolumeId")
    ours = []
    for volume in sorted(seen.volumes, key=lambda volume: volume.id):
        if volume.state == "deleted":
            continue
        tagged = volume.tags.get(TAG_RUN) == history.goal.run
        if volume.id in known and not tagged:
            refuse(history, f"volume {volume.id} has lost its tag {TAG_RUN}; remove it by hand if it is ours")
        member = volume.tags.get(TAG_MEMBER)
        if not tagged or volume.tags.get(TAG_ARM) != history.goal.arm:
            continue
        if history.asked(f"create/{member}") and not history.is_copy(member, volume.id):
            ours.append(volume)
    return ours


def _check_instance(history: History, volume: SeenVolume) -> None:
    if volume.instance != history.goal.place.instance:
        refuse(
            history,
            f"volume {volume.id} was attached to instance {volume.instance} by someone else; detach it there",
        )


def _free_name(history: History, seen: Seen) -> str:
    refused = {
        fields["parameters"]["Device"]
        for member in range(history.goal.count)
        for fields in history.refusals(f"attach/{member}", _TAKEN)
    }
    free = [name for name in _NAMES if name not in seen.names_in_use and name not in refused]
    if not free:
        refuse(history, "no device name is left on this instance; detach a volume, or use a larger instance")
    return free[0]
