"""Lends what is one user's to another: a user's directory to a node, an arm's volume to the caller by sudo.

A directory is bound below the session's, and given back later.
A repository of snapshots is lent read-only, and keeps its owner. The directory is passed as a descriptor, so
that nobody can exchange it.
"""

import ctypes
import os
import stat
from pathlib import Path

from esrally_ebs.errors import SetupError
from esrally_ebs.machine.caller import Caller
from esrally_ebs.machine.mounts import mount_at, unmounted
from esrally_ebs.machine.private import give_tree, make_folder, opened_below
from esrally_ebs.machine.processes import run
from esrally_ebs.model import NODE_USER, Backend, Kind, Volume, VolumeSpec
from esrally_ebs.volumes.emulated.control import sockets_of
from esrally_ebs.volumes.record import Record, drop_record, read_record, write_record

_MOUNT, _DATA = "mnt", "elasticsearch"
_MS_BIND, _MS_REMOUNT, _MS_NOSUID_NODEV_NOEXEC, _MS_RDONLY = 4096, 32, 14, 1
_UNMOUNT_S = 60.0
_OWN_FOLDERS = ("elasticsearch", "fio")  # on an arm's volume: filled by the caller's processes
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
                # not those of a user of the node's number, which somebody has moved or linked here
                give_tree(point, record.owner, of=NODE_USER, back=True)
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


def let_in(volume: Volume, caller: Caller) -> None:
    """Let the caller's processes write to an arm, and read and set its limiters.

    Raises SetupError if its volume is no longer mounted.
    """
    for socket in () if volume.control is None else sockets_of(volume.control):
        os.chown(socket, caller.uid, caller.gid, follow_symlinks=False)
    if volume.spec.backend is Backend.AWS and mount_at(volume.mount) is None:
        # the root of a snapshot's file system, which may be closed to the caller, or another's to change
        os.chown(volume.mount.parent, 0, caller.gid)
        volume.mount.parent.chmod(0o710)
    with opened_below(volume.mount) as folder:
        if (gone := unmounted(volume)) is not None:
            raise SetupError(gone)
        for name in _OWN_FOLDERS:
            make_folder(name, caller.uid, caller.gid, parent=folder)
