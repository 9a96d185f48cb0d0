"""A directory of the user's, lent to a node: bound below the session's directory, and given back after it.

Comes as a descriptor, so that nobody can put another directory in its place.
"""

import ctypes
import os
import stat
from pathlib import Path

from esrally_ebs.errors import SetupError
from esrally_ebs.machine.mounts import mount_at
from esrally_ebs.machine.private import give_tree
from esrally_ebs.machine.processes import run
from esrally_ebs.model import NODE_USER, Kind, Volume, VolumeSpec
from esrally_ebs.volumes.record import Record, drop_record, read_record, write_record

_MOUNT, _DATA = "mnt", "elasticsearch"
_MS_BIND, _MS_REMOUNT, _MS_NOSUID_NODEV_NOEXEC = 4096, 32, 14
_UNMOUNT_S = 60.0
_libc = ctypes.CDLL(None, use_errno=True)


def lend(descriptor: int, directory: Path, *, name: str, owner: int) -> Volume:
    """The volume whose data directory is that of ``descriptor``; SetupError unless it is ``owner``'s."""
    status = os.fstat(descriptor)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != owner:
        raise SetupError(f"{name}: what was lent is no directory of user {owner}; see who changed it")
    write_record(directory, Record(backend="lent", name=name, type="directory", owner=owner))
    point = directory / _MOUNT / _DATA
    try:
        point.mkdir(parents=True)
        _bind(f"/proc/self/fd/{descriptor}", point, _MS_BIND)
        _bind("", point, _MS_BIND | _MS_REMOUNT | _MS_NOSUID_NODEV_NOEXEC)
    except BaseException:
        detach(directory)
        raise
    spec = VolumeSpec(name=name, type="directory", size_bytes=0)
    return Volume(spec=spec, kind=Kind.DIRECTORY, mount=directory / _MOUNT)


def detach(directory: Path) -> None:
    """Give all of it back to its owner, and unbind it."""
    record = read_record(directory)
    point = directory / _MOUNT / _DATA
    while record is not None and record.owner is not None and mount_at(point) is not None:
        try:
            if record.owner != NODE_USER:  # else it lies on an arm, whose volume may have died
                give_tree(point, record.owner, of=NODE_USER)
        finally:
            run(["umount", "--no-canonicalize", point], timeout_s=_UNMOUNT_S)
    for path in (point, point.parent):
        if path.is_dir():
            path.rmdir()
    drop_record(directory)


def _bind(source: str, point: Path, flags: int) -> None:
    # not mount(8), which would look the source up by its name
    if _libc.mount(source.encode(), str(point).encode(), None, flags, None):
        error = ctypes.get_errno()
        raise SetupError(f"{point}: cannot be bound: {os.strerror(error)}; see the kernel log")
