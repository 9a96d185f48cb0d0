"""Finds out why an arm stopped working, from its volume's daemon, its mount and its node; gives one line."""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from esrally_ebs import node
from esrally_ebs.errors import EbsError, SetupError
from esrally_ebs.machine.mounts import unmounted
from esrally_ebs.machine.processes import Process
from esrally_ebs.model import Node, Volume
from esrally_ebs.store.context import Arm
from esrally_ebs.units import MIB, format_bytes
from esrally_ebs.volumes.emulated.control import read_state
from esrally_ebs.volumes.record import read_record

_ROOM_BYTES = MIB
_ENGINE_LAG_S = 3.0
_DYING_S = 1.0  # a killed process closes its connections before it disappears


def explain(error: Exception, broken: str | None) -> EbsError | None:
    """The error to report: ``broken`` if there is one, else ``error`` if it is an EbsError, else None."""
    if broken is not None:
        return SetupError(broken)
    return error if isinstance(error, EbsError) else None


def cause(arm: Arm, others: Sequence[Arm] = ()) -> str | None:
    """What is broken on this arm or on ``others``, and what to do; None if nothing is.

    ``others`` share the arm's node, which dies when one of their volumes does.
    """
    volumes = (volume for each in (arm, *others) for volume in each.volumes)
    broken = (_volume(volume) or _room(volume) for volume in volumes)
    return next(filter(None, broken), None) or next(
        filter(None, (_node(arm, node) for node in arm.nodes)), None
    )


def require_nodes(arm: Arm) -> None:
    """Raise SetupError if a node of an arm's cluster has died: replicas on others would answer instead."""
    of_cluster = (node for node in arm.nodes if _is_one_of_several(arm, node))
    if not all(Path(f"/proc/{node.pid}").exists() for node in of_cluster):
        raise SetupError(f"arm {arm.name}: one of its nodes has died; start the race again")


def _is_one_of_several(arm: Arm, its: Node) -> bool:
    """Whether the arm is a cluster, maybe over several hosts: then nodes have names of their own."""
    return its.arm != arm.name


def _volume(volume: Volume) -> str | None:
    try:
        if volume.control is not None:
            read_state(volume.control)
    except EbsError:
        return (
            f"arm {volume.spec.name}: its emulated volume has died (its daemon does not answer);"
            " start the race again"
        )
    return unmounted(volume)


def _room(volume: Volume) -> str | None:
    name = volume.spec.name
    places: list[tuple[str, Path]] = [("volume", volume.mount)]
    record = read_record(volume.control.parent) if volume.control else None
    places += [("the backing store", path) for path in (record.created if record else ()) if path.is_file()]
    for what, path in places:
        try:
            free = shutil.disk_usage(path).free
        except OSError as error:
            return f"arm {name}: {path}: {error.strerror}; its volume has failed, start the race again"
        if free < _ROOM_BYTES:
            return f"arm {name}: {what} {path} is full ({format_bytes(free)} left); make room there"
    return None


def _node(arm: Arm, its: Node) -> str | None:
    died = node.death(its)
    began = time.monotonic()
    while died is None and time.monotonic() < began + _ENGINE_LAG_S:
        if Process.of(its.pid) is not None and time.monotonic() > began + _DYING_S:
            break
        time.sleep(0.1)  # the engine learns of a killed process a moment later
        died = node.death(its)
    own = f"its node {its.arm}" if _is_one_of_several(arm, its) else "its node"
    whose = "the node of all arms" if arm.suffix else f"arm {arm.name}: {own}"
    return f"{whose} has died: {died}; start the race again" if died else None
