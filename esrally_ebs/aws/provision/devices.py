"""The steps of an arm's devices: initialise, stripe, format, mount; and the same undone.

A device is written to only when it carries the serial of a volume that we created (or is a disk of the
instance that we took while it was blank) and holds nothing, or only what we ourselves began to put there.
"""

from esrally_ebs.aws.provision.journal import History
from esrally_ebs.aws.provision.seen import Seen, SeenDevice
from esrally_ebs.aws.provision.steps import Step, Work, first_step, refuse

_OPTIONS = {"xfs": "noatime,nouuid"}  # two volumes of one snapshot have one UUID
_OTHER_OPTIONS = "noatime"
_FILE_SYSTEMS = ("xfs", "ext4", "ext3", "ext2", "btrfs")  # not partitions, or a part of an array
_MEMBERS = ("linux_raid_member", "LVM2_member")


def devices_up(history: History, seen: Seen) -> Step | None:
    """The next step from bare devices to a mounted file system."""
    return first_step((_initialise, _stripe, _format, _mount), history, seen)


def devices_down(history: History, seen: Seen) -> Step | None:
    """The next step back to devices that nothing uses; they may be gone already."""
    return first_step((_unmount, _unstripe, _check_holders, _wipe), history, seen)


def _initialise(history: History, seen: Seen) -> Step | None:
    goal = history.goal
    if goal.snapshot is None or not goal.initialise:
        return None
    for device in _devices(seen):
        key = f"initialise/{device.serial}"
        if history.done(key) is None:
            return Work(
                key=key,
                operation="initialise",
                arguments={"serial": device.serial, "device": str(device.path), "size": device.size_bytes},
            )
    return None


def _stripe(history: History, seen: Seen) -> Step | None:
    goal = history.goal
    if goal.count == 1 or seen.machine.array is not None:
        return None
    devices = _devices(seen)
    for device in devices:
        if not device.blank or device.mounts or device.holders:
            refuse(
                history,
                f"{device.path} ({device.serial}) is not empty; take the arm down and try again",
            )
    return Work(
        key="stripe",
        operation="stripe",
        arguments={
            "kind": goal.stripe,
            "name": goal.stripe_name,
            "chunk": goal.chunk_bytes,
            "devices": {device.serial: str(device.path) for device in devices},
        },
    )


def _format(history: History, seen: Seen) -> Step | None:
    goal, target = history.goal, _target(history, seen)
    ours = target.uuid == goal.filesystem_uuid
    if goal.snapshot is not None or (ours and history.done("format") is not None):
        return None
    begun = history.intent("format") is not None  # and broken off: what is there, we began
    users = [*map(str, target.mounts), *target.holders]
    if users:
        refuse(history, f"{target.path} ({target.serial}) is used by {', '.join(users)}; it is not formatted")
    if not (target.blank or (begun and (ours or not target.signature))):
        refuse(
            history,
            f"{target.path} ({target.serial}) holds {target.signature or 'data'} that we did not make;"
            " it is not formatted",
        )
    return Work(
        key="format",
        operation="mkfs",
        arguments={
            "serial": target.serial,
            "device": str(target.path),
            "size": target.size_bytes,
            "filesystem": goal.filesystem,
            "uuid": goal.filesystem_uuid,
            "label": goal.label,
            "begun": begun,
        },
    )


def _mount(history: History, seen: Seen) -> Step | None:
    goal, target = history.goal, _target(history, seen)
    if goal.point in target.mounts:
        return None
    if seen.machine.mounted:
        refuse(history, f"{goal.point}: {seen.machine.mounted} is mounted there already; unmount it")
    if target.signature not in _FILE_SYSTEMS:
        refuse(
            history,
            f"{target.path} holds {target.signature or 'no file system'}; use a snapshot of a volume that is"
            " a file system from its first block on",
        )
    return Work(
        key="mount",
        operation="mount",
        arguments={
            "source": str(target.path),
            "point": str(goal.point),
            "filesystem": target.signature,
            "options": _OPTIONS.get(target.signature, _OTHER_OPTIONS),
            "readahead": goal.readahead_bytes,
        },
    )


def _unmount(history: History, seen: Seen) -> Step | None:
    point = history.goal.point
    for device in (*([seen.machine.array] if seen.machine.array else []), *_devices(seen)):
        others = [mount for mount in device.mounts if mount != point]
        if others:
            refuse(history, f"{device.path} is also mounted at {others[0]}; unmount it there")
        if device.mounts:
            return Work(key="unmount", operation="unmount", arguments={"point": str(point)})
    return None


def _unstripe(history: History, seen: Seen) -> Step | None:
    if seen.machine.array is None:
        return None
    path = seen.machine.array.path
    if seen.machine.array.holders:
        refuse(history, f"{path} is used by {', '.join(seen.machine.array.holders)}; end that first")
    return Work(
        key="unstripe",
        operation="unstripe",
        arguments={
            "kind": "lvm" if path.name.startswith("dm-") else "mdadm",  # a journal made anew knows neither
            "name": history.goal.stripe_name,
            "array": str(path),
            "devices": {device.serial: str(device.path) for device in _devices(seen)},
        },
    )


def _check_holders(history: History, seen: Seen) -> Step | None:
    for device in _devices(seen):
        if device.holders:
            refuse(history, f"{device.path} is used by {', '.join(device.holders)}; end that first")
    return None


def _wipe(history: History, seen: Seen) -> Step | None:
    """A disk of the instance stays: what we made on it goes. Volumes are deleted with all they hold."""
    if history.goal.sort != "instance-store":
        return None
    written = history.asked("stripe") or history.asked("format")  # to a disk that was blank when we took it
    for device in _devices(seen):
        part = history.asked("stripe") and device.signature in _MEMBERS
        unsigned = written and not device.signature and not device.blank
        if device.uuid == history.goal.filesystem_uuid or part or unsigned:
            return Work(
                key="wipe",
                operation="wipe",
                arguments={"serial": device.serial, "device": str(device.path), "uuid": device.uuid},
            )
    return None


def _devices(seen: Seen) -> list[SeenDevice]:
    return [seen.machine.devices[serial] for serial in sorted(seen.machine.devices)]


def _target(history: History, seen: Seen) -> SeenDevice:
    """What the file system is on."""
    if seen.machine.array is not None:
        return seen.machine.array
    if history.goal.count > 1:
        refuse(history, "its stripe is gone; take the arm down and try again")
    return _devices(seen)[0]
