"""Steps for an arm's devices: initialise, stripe, format, mount; and the same undone.

A device is written to only if it has the serial of a volume that we created (or is a disk of the instance
that we took while it was blank) and is empty, or has only what we began to put there.
"""

from collections.abc import Iterable
from dataclasses import replace

from esrally_ebs.aws.provision.host import HIDDEN_HOLDER, ArmDevice
from esrally_ebs.aws.provision.journal import History
from esrally_ebs.aws.provision.state import ArmState, HostWork, Note, Step, Wait, in_order, refuse

# A snapshot may be a stranger's: these options give its contents no rights.
_OTHER_OPTIONS = "noatime,nosuid,nodev,noexec"
_OPTIONS = {"xfs": f"{_OTHER_OPTIONS},nouuid"}  # two volumes of one snapshot have the same UUID
_FILE_SYSTEMS = ("xfs", "ext4", "ext3", "ext2", "btrfs")  # neither partitions nor part of an array
_HIDDEN_S = 30.0


def _initialise(history: History, state: ArmState) -> Step | None:
    goal = history.goal
    if goal.snapshot is None or not goal.initialise:
        return None
    for device in state.devices:
        key = f"initialise/{device.serial}"
        if history.done(key) is None:
            there = {"serial": device.serial, "device": str(device.path), "size": device.size_bytes}
            return HostWork(key, "initialise", there)
    return None


def _stripe(history: History, state: ArmState) -> Step | None:
    goal, devices = history.goal, state.devices
    is_ours = state.host.array is not None and history.begun("stripe") and not _of_others(history, devices)
    if goal.count == 1 or is_ours:
        return None  # else an array is of a session that has taken the same disks
    for device in devices:
        if not device.blank or device.mounts or device.holders:
            refuse(history, f"{device.path} ({device.serial}) is not empty; take the arm down and try again")
    made = {"kind": goal.stripe, "name": goal.stripe_name, "label": goal.label, "chunk": goal.chunk_bytes}
    paths = {device.serial: str(device.path) for device in devices}
    return HostWork("stripe", "stripe", {**made, "devices": paths})


def _format(history: History, state: ArmState) -> Step | None:
    goal, target = history.goal, _target(history, state)
    ours = target.uuid == goal.filesystem_uuid
    if goal.snapshot is not None or (ours and history.done("format") is not None):
        return None
    begun = history.pending("format")  # interrupted: what is there is ours
    users = [*map(str, target.mounts), *target.holders]
    if users:
        refuse(history, f"{target.path} ({target.serial}) is used by {', '.join(users)}; it is not formatted")
    if not (target.blank or (begun and (ours or not target.signature))):
        refuse(
            history,
            f"{target.path} ({target.serial}) holds {target.signature or 'data'} that we did not make;"
            " it is not formatted",
        )
    there = {"serial": target.serial, "device": str(target.path), "size": target.size_bytes}
    made = {"filesystem": goal.filesystem, "uuid": goal.filesystem_uuid, "label": goal.label}
    return HostWork("format", "mkfs", {**there, **made, "begun": begun})


def _mount(history: History, state: ArmState) -> Step | None:
    goal, target = history.goal, _target(history, state)
    if goal.point in target.mounts:
        return None
    if state.host.mounted:
        refuse(history, f"{goal.point}: {state.host.mounted} is mounted there already; unmount it")
    if target.signature not in _FILE_SYSTEMS:
        refuse(
            history,
            f"{target.path} holds {target.signature or 'no file system'}; use a snapshot of a volume that is"
            " a file system from its first block on",
        )
    options = _OPTIONS.get(target.signature, _OTHER_OPTIONS)
    how = {"filesystem": target.signature, "options": options, "readahead": goal.readahead_bytes}
    return HostWork("mount", "mount", {"source": str(target.path), "point": str(goal.point), **how})


def _unmount(history: History, state: ArmState) -> Step | None:
    point = history.goal.point
    array = [state.host.array] if state.host.array else []
    for device in (*array, *state.devices):
        others = [mount for mount in device.mounts if mount != point]
        if others:
            refuse(history, f"{device.path} is also mounted at {others[0]}; unmount it there")
        if device.mounts:
            return HostWork("unmount", "unmount", {"point": str(point)})
    return None


def _unstripe(history: History, state: ArmState) -> Step | None:
    if state.host.array is None:
        return None
    path = state.host.array.path
    if state.host.array.holders:
        return _wait_or_refuse(history, state.host.array)
    kind = "lvm" if path.name.startswith("dm-") else "mdadm"  # a journal made anew knows neither
    made = {"kind": kind, "name": history.goal.stripe_name, "array": str(path)}
    paths = {device.serial: str(device.path) for device in state.devices}
    return HostWork("unstripe", "unstripe", {**made, "devices": paths})


def _check_holders(history: History, state: ArmState) -> Step | None:
    for device in state.devices:
        if device.holders:
            return _wait_or_refuse(history, device)
    return None


def _wait_or_refuse(history: History, device: ArmDevice) -> Step:
    """Wait for a starting container: it copies the mount table, and briefly holds what is unmounted here."""
    if device.holders != (HIDDEN_HOLDER,):
        refuse(history, f"{device.path} is used by {', '.join(device.holders)}; end that first")
    return Wait(text=f"what uses {device.path}: {HIDDEN_HOLDER}", limit_s=_HIDDEN_S, advice="end that")


def _wipe(history: History, state: ArmState) -> Step | None:
    """Remove what we made from an instance's disk, which stays. Volumes are deleted with their contents."""
    if history.goal.sort != "instance-store":
        return None
    for device in state.devices:
        key = f"wipe/{device.serial}"
        # a stripe's data may be where "blank" does not look: only a completed wipe counts
        unsigned = not device.signature and not (device.blank and history.done(key) is not None)
        if device.uuid == history.goal.filesystem_uuid or unsigned:
            there = {"serial": device.serial, "device": str(device.path), "uuid": device.uuid}
            return HostWork(key, "wipe", there)
    return None


def devices_down(history: History, state: ArmState) -> Step | None:
    """The next step back to devices that nothing uses; they may be gone already.

    Disks of the instance to which nothing was written were only claimed: others may have taken them since.
    Those that others have written to are theirs, and so is an array of them.
    """
    if history.goal.sort == "instance-store":
        if not (history.begun("stripe") or history.begun("format")):
            return None
        theirs = _of_others(history, state.devices)
        own = {serial: device for serial, device in state.host.devices.items() if device not in theirs}
        state = replace(
            state, host=replace(state.host, devices=own, array=None if theirs else state.host.array)
        )
    return _down(history, state)


def _of_others(history: History, devices: Iterable[ArmDevice]) -> list[ArmDevice]:
    """Devices whose contents have another UUID than this arm's, and that are not its mount."""
    goal = history.goal
    return [
        device
        for device in devices
        if device.signature and device.uuid != goal.filesystem_uuid and goal.point not in device.mounts
    ]


def _target(history: History, state: ArmState) -> ArmDevice:
    """The device of the file system."""
    if history.goal.count > 1 and state.host.array is None:
        refuse(history, "its stripe is gone; take the arm down and try again")
    if state.target is None:
        refuse(history, "its disk is gone; take the arm down and try again")
    return state.target


def _claim(history: History, state: ArmState) -> Step | None:
    """Choose blank disks of the instance."""
    if history.done("claim") is not None:
        return None
    count = history.goal.count
    free = [disk for disk in state.host.disks if disk.blank and not disk.mounts and not disk.holders]
    if len(free) < count:
        refuse(
            history,
            f"{len(free)} blank instance store disks are free here, {count} needed; use an instance type with"
            " disks, or empty one (wipefs -a, then blkdiscard -z) that may be used",
        )
    return Note(key="claim", fields={"serials": [disk.serial for disk in free[:count]]})


# The next step from bare devices to a mounted file system.
devices_up = in_order(_initialise, _stripe, _format, _mount)
_down = in_order(_unmount, _unstripe, _check_holders, _wipe)
# The next step towards mounted disks of the instance; the way back is that of all devices.
local_up = in_order(_claim, devices_up)
