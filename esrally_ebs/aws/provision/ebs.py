"""Steps for an arm of EBS volumes: create, attach, then its devices' steps; down in reverse."""

from collections.abc import Iterator, Mapping
from typing import Any

from esrally_ebs.aws.provision.devices import devices_down, devices_up
from esrally_ebs.aws.provision.goal import TAG_ARM, TAG_MEMBER, TAG_RUN, Goal, tag_list
from esrally_ebs.aws.provision.journal import History
from esrally_ebs.aws.provision.state import (
    APPEAR_S,
    ATTACH_S,
    ArmState,
    Call,
    Note,
    Step,
    VolumeState,
    Wait,
    delete,
    in_order,
    refuse,
    settle,
)
from esrally_ebs.units import GIB

_NAMES = (*(f"/dev/sd{letter}" for letter in "fghijklmnop"), *(f"/dev/xvdb{chr(c)}" for c in range(97, 123)))
_NOT_FOUND = "InvalidVolume.NotFound"
_RIGHTS = "rights/{}"  # key of a permission check
# The name was taken meanwhile; or an attachment succeeded unheard; or a listed volume is not known yet where
# it is attached.
_NAME_IN_USE = frozenset({"InvalidParameterValue", "InvalidDevice.InUse"})
_ATTACH_AGAIN = _NAME_IN_USE | {"VolumeInUse", "IncorrectState", _NOT_FOUND}


def create_parameters(goal: Goal, member: int) -> dict[str, object]:
    """Parameters of ``CreateVolume``, identical in every repetition."""
    options = {"SnapshotId": goal.snapshot, "Iops": goal.iops, "Throughput": goal.throughput_mib}
    return {
        "AvailabilityZone": goal.place.zone,
        "VolumeType": goal.type,
        "Size": goal.size_gib,
        "Encrypted": goal.encrypted,
        **{name: value for name, value in options.items() if value is not None},
        "ClientToken": goal.token(member),
        "TagSpecifications": [{"ResourceType": "volume", "Tags": tag_list(goal.tags(member))}],
    }


def _create(history: History, state: ArmState) -> Step | None:
    for member in range(history.goal.count):
        step = _create_member(history, state, member)
        if step is None and member == 0:
            step = _ask_for_rights(history, state)
        if step is not None:
            return step
    return None


def _create_member(history: History, state: ArmState, member: int) -> Step | None:
    key = f"create/{member}"
    volume, known = _volume(history, state, member), history.done(key)
    if volume is not None:  # if not recorded, it was created but the answer was lost
        return Note(key=key, fields={"VolumeId": volume.id}) if known is None else None
    if known is not None:
        name = known.get("KmsKeyId") or "the account's key for EBS"
        return Wait(
            text=f"volume {known['VolumeId']} to be listed",
            limit_s=APPEAR_S,
            advice=f"AWS takes a volume away again whose key ({name}) the role may not use: allow it"
            " kms:CreateGrant, kms:Decrypt and kms:GenerateDataKeyWithoutPlaintext",
        )
    parameters = create_parameters(history.goal, member)
    if not history.begun(key) and history.done(_RIGHTS.format("CreateVolume")) is None:
        return _ask_for_right("CreateVolume", parameters)
    keeps = ("VolumeId", "KmsKeyId")
    return Call(key, "ec2", "CreateVolume", parameters, keeps=keeps)


def _ask_for_rights(history: History, state: ArmState) -> Step | None:
    """Check permissions with the first volume, before making others: else a role that may create but not
    delete leaves several.
    """
    volume = _volume(history, state, 0)
    if volume is None or volume.instance:
        return None
    there = {"VolumeId": volume.id, "InstanceId": history.goal.place.instance}
    for operation, parameters in (
        ("DeleteVolume", {"VolumeId": volume.id}),
        ("AttachVolume", {**there, "Device": _free_name(history, state)}),
        ("DetachVolume", there),
    ):
        if history.done(_RIGHTS.format(operation)) is None:
            return _ask_for_right(operation, parameters)
    return None


def _ask_for_right(operation: str, parameters: Mapping[str, Any]) -> Call:
    return Call(_RIGHTS.format(operation), "ec2", operation, {**parameters, "DryRun": True})


def _wait_created(history: History, state: ArmState) -> Step | None:
    for volume in _members(history, state):
        if volume.state == "creating":
            return Wait(text=f"volume {volume.id} to be created", limit_s=ATTACH_S)
        if volume.state not in ("available", "in-use"):
            refuse(history, f"volume {volume.id} is in state {volume.state!r}; take the arm down, try again")
    return None


def _attach(history: History, state: ArmState) -> Step | None:
    for member, volume in enumerate(_members(history, state)):
        if not volume.instance:
            there = {"VolumeId": volume.id, "InstanceId": history.goal.place.instance}
            parameters = {**there, "Device": _free_name(history, state)}
            return Call(f"attach/{member}", "ec2", "AttachVolume", parameters, go_on_after=_ATTACH_AGAIN)
        _check_instance(history, volume)
        if volume.attachment != "attached":
            return Wait(text=f"volume {volume.id} to be attached", limit_s=ATTACH_S)
    return None


def _end_with_instance(history: History, state: ArmState) -> Step | None:
    """Have AWS delete the volumes when the instance ends or is taken back."""
    for member, volume in enumerate(_members(history, state)):
        key = f"end-with-instance/{member}"
        if history.done(key) is not None:
            continue
        disk = {"VolumeId": volume.id, "DeleteOnTermination": True}
        mappings = [{"DeviceName": volume.device, "Ebs": disk}]
        return Call(
            key,
            "ec2",
            "ModifyInstanceAttribute",
            {"InstanceId": volume.instance, "BlockDeviceMappings": mappings},
            optional=f"volume {volume.id} stays, and costs, if this instance is terminated meanwhile;"
            " policies/termination.json has the right to it",
        )
    return None


def _appear(history: History, state: ArmState) -> Step | None:
    for volume in _members(history, state):
        device = state.host.devices.get(volume.id)
        if device is None:
            return Wait(text=f"the device of volume {volume.id} to appear", limit_s=APPEAR_S)
        if device.size_bytes != volume.size_gib * GIB:
            refuse(
                history,
                f"{device.path} has {device.size_bytes} bytes, volume {volume.id} {volume.size_gib} GiB;"
                " it is not touched",
            )
    return None


def _detach(history: History, state: ArmState) -> Step | None:
    for volume in _ours(history, state):
        if not volume.instance:
            continue
        _check_instance(history, volume)
        if volume.attachment in ("attaching", "detaching", "busy"):
            return Wait(text=f"volume {volume.id}, which is {volume.attachment}", limit_s=ATTACH_S)
        there = {"VolumeId": volume.id, "InstanceId": history.goal.place.instance}
        gone = {"IncorrectState", _NOT_FOUND, "InvalidAttachment.NotFound"}
        return Call(f"detach/{volume.id}", "ec2", "DetachVolume", there, go_on_after=gone)
    return None


def _delete(history: History, state: ArmState) -> Step | None:
    ours, gone = _ours(history, state), {_NOT_FOUND, "VolumeInUse", "IncorrectState"}
    return delete("volume", ours[0], "ec2", "DeleteVolume", gone) if ours else None


def _settle(history: History, state: ArmState) -> Step | None:
    for member in range(history.goal.count):
        step = settle(history, state, f"create/{member}", "VolumeId", "a volume")
        if step is not None:
            return step
    return None


def _members(history: History, state: ArmState) -> Iterator[VolumeState]:
    for member in range(history.goal.count):
        volume = _volume(history, state, member)
        if volume is not None:
            yield volume


def _volume(history: History, state: ArmState, member: int) -> VolumeState | None:
    """The member's volume: of the recorded id, or requested without an answer."""
    known = history.done(f"create/{member}")
    for volume in _ours(history, state):
        is_known = known is None or known["VolumeId"] == volume.id
        if is_known and volume.tags[TAG_MEMBER] == str(member):
            return volume
    return None


def _ours(history: History, state: ArmState) -> list[VolumeState]:
    """Volumes created for this arm: with our tags, and requested by us."""
    known = history.resources
    ours = []
    for volume in sorted(state.volumes, key=lambda volume: volume.id):
        if volume.state == "deleted":
            continue
        tagged = volume.tags.get(TAG_RUN) == history.goal.run
        if volume.id in known and not tagged:
            refuse(history, f"volume {volume.id} has lost its tag {TAG_RUN}; remove it by hand if it is ours")
        member = volume.tags.get(TAG_MEMBER)
        is_copy = volume.snapshot != (history.goal.snapshot or "")  # restored, with our tags
        if not tagged or volume.tags.get(TAG_ARM) != history.goal.arm or is_copy:
            continue
        if history.begun(f"create/{member}") and not history.is_copy(member, volume.id):
            ours.append(volume)
    return ours


def _check_instance(history: History, volume: VolumeState) -> None:
    if volume.instance != history.goal.place.instance:
        refuse(
            history,
            f"volume {volume.id} was attached to instance {volume.instance} by someone else; detach it there",
        )


def _free_name(history: History, state: ArmState) -> str:
    refused = {
        fields.get("parameters", {}).get("Device")
        for member in range(history.goal.count)
        for fields in history.refusals(f"attach/{member}", _NAME_IN_USE)
    }
    free = [name for name in _NAMES if name not in state.names_in_use and name not in refused]
    if not free:
        refuse(history, "no device name is left on this instance; detach a volume, or use a larger instance")
    return free[0]


# Next step towards an attached, formatted and mounted arm.
up = in_order(_create, _wait_created, _attach, _end_with_instance, _appear, devices_up)
# Next step towards nothing; never for a volume that was not created for exactly this arm.
down = in_order(devices_down, _detach, _delete, _settle)
