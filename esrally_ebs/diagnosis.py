"""Why an arm stopped working: looks at its volume's daemon, its mount and its node, in one line."""

from esrally_ebs import node
from esrally_ebs.context import Arm
from esrally_ebs.emulator.control import read_state
from esrally_ebs.errors import EbsError
from esrally_ebs.units import format_bytes


def cause(arm: Arm) -> str | None:
    """What is broken on this arm and what to do; None when nothing is seen."""
    return _volume(arm) or _room(arm) or _node(arm)


def _volume(arm: Arm) -> str | None:
    if arm.volume.control is None:
        return None
    try:
        read_state(arm.volume.control)
    except EbsError as error:
        return f"arm {arm.name}: its emulated volume has died ({error}); start the race again"
    return None


_ROOM_BYTES = 1024 * 1024


def _room(arm: Arm) -> str | None:
    import os

    for what, path in (("volume", arm.volume.mount), *_backing(arm)):
        try:
            found = os.statvfs(path)
        except OSError as error:
            return f"arm {arm.name}: {path} cannot be read ({error.strerror}); its volume has failed, start the race again"
        free = found.f_bavail * found.f_frsize
        if free < _ROOM_BYTES:
            return f"arm {arm.name}: {what} {path} is full ({format_bytes(free)} left); make room and start the race again"
    return None


def _backing(arm: Arm) -> list[tuple[str, object]]:
    return []


def _node(arm: Arm) -> str | None:
    if arm.node is None:
        return None
    died = node.death(arm.node)
    return (
        f"arm {arm.name}: its node {arm.node.container} has died: {died}; start the race again"
        if died
        else None
    )
