"""A directory of the user's, lent to a node: bound below the session's directory, and given back after it.

A repository of snapshots is lent for reading alone, and keeps its owner. The directory is passed as a
descriptor, so that nobody can put another one in its place.
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
_MS_BIND, _MS_REMOUNT, _MS_NOSUID_NODEV_NOEXEC, _MS_RDONLY = 4096, 32, 14, 1
_UNMOUNT_S = 60.0
_libc = ctypes.CDLL(None, use_errno=True)


def lend(descriptor: int, directory: Path, *, name: str, owner: int, read_only: bool = False) -> Volume:
    """The volume whose data directory is that of ``descriptor``; SetupError unless it is ``owner``'s.

    One that is ``read_only`` need not be, where everybody may read all that is in it and not the owner's.
    """
    status = os.fstat(descriptor)
    if not stat.S_ISDIR(status.st_mode) or (status.st_uid != owner and not read_only):
        raise SetupError(f"{name}: what was lent is no directory of user {owner}; see who changed it")
    if read_only:
        _require_open_to_all(descriptor, owner)
    to_give = None if read_only else owner
    write_record(directory, Record(backend="lent", name=name, type="directory", owner=to_give))
    point = directory / _MOUNT / _DATA
    try:
        point.mkdir(parents=True)
        _bind(f"/proc/self/fd/{descriptor}", point, _MS_BIND)
        rights = _MS_NOSUID_NODEV_NOEXEC | (_MS_RDONLY if read_only else 0)
        _bind("", point, _MS_BIND | _MS_REMOUNT | rights)
    except BaseException:
        detach(directory)
        raise
    spec = VolumeSpec(name=name, type="directory", size_bytes=0)
    return Volume(spec=spec, kind=Kind.DIRECTORY, mount=directory / _MOUNT)


def _require_open_to_all(descriptor: int, owner: int) -> None:
    """A node's container has the group 0: it must see nothing there that the owner may not read."""
    for below, folders, names, folder in os.fwalk(".", dir_fd=descriptor):
        for name in (".", *folders, *names):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            needed = 0o5 if stat.S_ISDIR(status.st_mode) else 0o4
            if status.st_uid != owner and status.st_mode & needed != needed:
                raise SetupError(
                    f"dataset.snapshot: {Path(below, name)} in the repository is of user {status.st_uid} and"
                    f" not for all to read; give a copy that is of user {owner} (cp -r)"
                )


def detach(directory: Path) -> None:
    """Give all of it back to its owner, and unbind it."""
    record = read_record(directory)
    point = directory / _MOUNT / _DATA
    while record is not None and mount_at(point) is not None:
        try:
            if record.owner not in (None, NODE_USER):  # the node's lies on an arm, whose volume may have died
                # no second name of a file of whoever on this machine has the node's number
                give_tree(point, record.owner, of=NODE_USER, linked=False)
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
