"""Our own directories: made with mode 0700, and checked before use.

A directory with a well-known name, such as ``/dev/shm/esrally-ebs``, belongs to whoever makes it first. If
that is another user, they could replace files that root writes there, by a link to a disk for example.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from esrally_ebs.errors import SetupError
from esrally_ebs.machine.caller import caller

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def private_directory(path: Path) -> Path:
    """Make ``path`` with mode 0700, or check that it is this user's and nobody else may write to it.

    Missing parents are made likewise; existing ones are the caller's responsibility. Raises SetupError,
    naming the path, if it is a link, another user's, or writable for others.
    """
    if not path.parent.exists():
        private_directory(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    require_private(path, os.geteuid())
    return path


def require_private(path: Path, *owners: int) -> None:
    """Raise SetupError unless ``path`` is a directory of one of these users that no other may write to."""
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        what = "link" if stat.S_ISLNK(status.st_mode) else "file"
        raise SetupError(f"{path}: is a {what}, and no directory of ours; see whose it is before removing it")
    if status.st_uid not in owners:
        raise SetupError(f"{path}: belongs to user {status.st_uid}; see what is in it, and remove it")
    if status.st_mode & _OTHERS_MAY_WRITE:
        raise SetupError(f"{path}: others may write to it; run chmod 0700 {path} once you know what is in it")


@contextmanager
def opened_below(*parts: str | Path) -> Iterator[int]:
    """Descriptor of a folder; each is opened relative to the one before. Raises OSError if one is a link."""
    with ExitStack() as stack:
        folder: int | None = None
        for part in parts:
            folder = os.open(part, _FOLDER, dir_fd=folder)
            stack.callback(os.close, folder)
        assert folder is not None
        yield folder


def give_tree(path: Path, user: int, *, of: int | None = None, back: bool = False) -> None:
    """Change the owner of a directory and all in it to ``user`` (and group 0), following no link.

    Names are looked up below their directory's descriptor, so nobody can exchange a place. If ``of`` is
    given, only that user's files are changed, as others' may have been planted. ``back`` undoes this: leaves
    files of other groups, as none was given, and those with a second name, which may be elsewhere.
    """
    for _, folders, files, descriptor in os.fwalk(path):
        for name in (*folders, *files):
            _give(name, user, of, descriptor, back=back)
    _give(str(path), user, of, None, back=back)


def _give(name: str, user: int, of: int | None, folder: int | None, *, back: bool) -> None:
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        status = os.fstat(handle)  # of exactly the file to be changed
        is_linked = stat.S_ISREG(status.st_mode) and status.st_nlink > 1
        if back and (is_linked or status.st_gid != 0):
            return
        if not stat.S_ISLNK(status.st_mode):
            if status.st_uid != user and of in (None, status.st_uid):
                os.chown(f"/proc/self/fd/{handle}", user, 0)
        elif of is None:  # a link can only be changed by name
            os.chown(name, user, 0, dir_fd=folder, follow_symlinks=False)
    finally:
        os.close(handle)


def make_folder(path: str | Path, uid: int, gid: int, *, parent: int | None = None) -> None:
    """Make a directory for one user alone, below the descriptor ``parent`` if there is one."""
    os.mkdir(path, 0o700, dir_fd=parent)
    os.chown(path, uid, gid, dir_fd=parent, follow_symlinks=False)


def require_unchangeable(path: Path, *, name: str = "") -> None:
    """Raise SetupError, beginning with ``name``, if others could exchange part of a path used by root.

    Ignores parts that do not exist yet; follows links, and checks the directories that these are in.
    """
    for place in dict.fromkeys((*path.parents, path.resolve(), *path.resolve().parents)):
        if place.exists() and (others := _may_be_replaced_by(place)):
            raise SetupError(
                f"{name}{place} may be changed by {others}, while root works below it: have it be root's"
                f" (chown root {place} && chmod 0755 {place})"
            )


def _may_be_replaced_by(path: Path) -> str:
    """Users other than root and the command's who may rename entries of a directory; "" for none."""
    status, user = path.stat(), caller()
    if status.st_uid not in (0, os.geteuid(), user.uid if user else 0):
        return f"user {status.st_uid}, who owns it"
    if status.st_mode & _OTHERS_MAY_WRITE and not status.st_mode & stat.S_ISVTX:
        return "whoever is let in by its mode, which lets others write"
    return ""
