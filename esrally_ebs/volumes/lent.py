"""Lends a directory of the user's to a node: binds it below the session's directory, and gives it back later.

A repository of snapshots is lent read-only, and keeps its owner. The directory is passed as a descriptor, so
that nobody can exchange it.
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
    """A volume whose data directory is the one of ``descriptor``. Raises SetupError unless ``owner`` owns it.

    A ``read_only`` one may be another user's, if everything in it is the owner's or readable by all.
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
    """Raise SetupError for files of others that not all may read: a node's container has group 0."""
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
    """Give everything in it back to its owner, and unbind it."""
    record = read_record(directory)
    point = directory / _MOUNT / _DATA
    while record is not None and mount_at(point) is not None:
        try:
            if record.owner not in (None, NODE_USER):  # the node's lies on an arm, whose volume may have died
                # skips files with a second name: they may belong to another user who has the node's uid
                give_tree(point, record.owner, of=NODE_USER, linked=False)
        finally:
            run(["umount", "--no-canonicalize", point], timeout_s=_UNMOUNT_S)
    for path in (point, point.parent):
        if path.is_dir():
            path.rmdir()
    drop_record(directory)


def _bind(source: str, point: Path, flags: int) -> None:
    # not by mount(8), which would look up the source by name
    if _libc.mount(source.encode(), str(point).encode(), None, flags, None):
        error = ctypes.get_errno()
        raise SetupError(f"{point}: cannot be bound: {os.strerror(error)}; see the kernel log")
