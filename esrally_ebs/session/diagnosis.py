"""Why an arm stopped working: looks at its volume's daemon, its mount and its node; gives one line."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from esrally_ebs import node
from esrally_ebs.errors import EbsError, SetupError
from esrally_ebs.machine.processes import Process
from esrally_ebs.store.context import Arm
from esrally_ebs.units import MIB, format_bytes
from esrally_ebs.volumes.emulated.control import read_state
from esrally_ebs.volumes.record import read_record

_ROOM_BYTES = MIB
_ENGINE_LAG_S = 3.0
_DYING_S = 1.0  # a killed process closes its connections before it is gone


def explain(error: Exception, arm: Arm, others: Sequence[Arm] = ()) -> EbsError | None:
    """The error to report: what is broken on this arm, else ``error`` if it is ours, else None.

    ``others`` are arms that have their indices on the same node, which ends when a volume of theirs dies.
    """
    broken = cause(arm, others)
    if broken is not None:
        return SetupError(broken)
    return error if isinstance(error, EbsError) else None


def cause(arm: Arm, others: Sequence[Arm] = ()) -> str | None:
    """What is broken on this arm, or on others of its node, and what to do; None when all of it works."""
    volumes = (_volume(each) or _room(each) for each in (arm, *others))
    return next(filter(None, volumes), None) or _node(arm)


def _volume(arm: Arm) -> str | None:
    if arm.volume.control is None:
        return None
    try:
        read_state(arm.volume.control)
    except EbsError:
        return (
            f"arm {arm.name}: its emulated volume has died (its daemon does not answer); start the race again"
        )
    return None


def _room(arm: Arm) -> str | None:
    places: list[tuple[str, Path]] = [("volume", arm.volume.mount)]
    record = read_record(arm.volume.control.parent) if arm.volume.control else None
    places += [("the backing store", path) for path in (record.created if record else ()) if path.is_file()]
    for what, path in places:
        try:
            filesystem = os.statvfs(path)
        except OSError as error:
            return f"arm {arm.name}: {path}: {error.strerror}; its volume has failed, start the race again"
        free = filesystem.f_bavail * filesystem.f_frsize
        if free < _ROOM_BYTES:
            return f"arm {arm.name}: {what} {path} is full ({format_bytes(free)} left); make room there"
    return None


def _node(arm: Arm) -> str | None:
    if arm.node is None:
        return None
    died = node.death(arm.node)
    began = time.monotonic()
    while died is None and time.monotonic() < began + _ENGINE_LAG_S:
        if Process.of(arm.node.pid) is not None and time.monotonic() > began + _DYING_S:
            break
        time.sleep(0.1)  # the engine hears of a killed process a moment later
        died = node.death(arm.node)
    whose = "the node of all arms" if arm.suffix else f"arm {arm.name}: its node"
    return f"{whose} has died: {died}; start the race again" if died else None
