"""Directories of our own: made with mode 0700, and looked at before they are used.

A directory with a well-known name, such as ``/dev/shm/esrally-ebs``, belongs to whoever makes it first. If
another user does, that user may replace what root writes there, by a link to a disk for example.
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
    """Make ``path`` with mode 0700, or check that it is this user's own and no other may write to it.

    Parents that are missing are made alike; those that are there are the caller's to choose. Raises
    SetupError, naming the path, when it is a link, another user's, or may be written to by others.
    """
    if not path.parent.exists():
        private_directory(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    require_private(path, os.geteuid())
    return path


def require_private(path: Path, *owners: int) -> None:
    """Raise SetupError unless ``path`` is a directory of one of these users, and no other may write to it."""
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
    """The descriptor of a folder, each opened below the one before it; OSError where one is a link."""
    with ExitStack() as stack:
        folder: int | None = None
        for part in parts:
            folder = os.open(part, _FOLDER, dir_fd=folder)
            stack.callback(os.close, folder)
        assert folder is not None
        yield folder


def give_tree(path: Path, user: int, *, of: int | None = None, linked: bool = True) -> None:
    """Give a directory and all in it to a user (and the group 0), following no link.

    Each name is looked up below the descriptor of its directory: nobody can put another place under it. Only
    what is that user's is given if ``of`` names one: others' files may have been put there; and, unless
    ``linked``, no file that has a second name, which may lie elsewhere.
    """
    for _, folders, files, descriptor in os.fwalk(path):
        for name in (*folders, *files):
            _give(name, user, of, descriptor, linked=linked)
    _give(str(path), user, of, None, linked=linked)


def _give(name: str, user: int, of: int | None, folder: int | None, *, linked: bool) -> None:
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        status = os.fstat(handle)  # of the very file that is given
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1 and not linked:
            return
        if not stat.S_ISLNK(status.st_mode):
            if status.st_uid != user and of in (None, status.st_uid):
                os.chown(f"/proc/self/fd/{handle}", user, 0)
        elif of is None:  # a link itself can only be named
            os.chown(name, user, 0, dir_fd=folder, follow_symlinks=False)
    finally:
        os.close(handle)


def require_unchangeable(path: Path, *, name: str = "") -> None:
    """Raise SetupError, after ``name``, where others may exchange a part of a path below which root works.

    What is not there yet is not looked at; links are followed, and what they stand in is looked at as well.
    """
    for place in dict.fromkeys((*path.parents, path.resolve(), *path.resolve().parents)):
        if place.exists() and (others := _may_be_replaced_by(place)):
            raise SetupError(
                f"{name}{place} may be changed by {others}, while root works below it: have it be root's"
                f" (chown root {place} && chmod 0755 {place})"
            )


def _may_be_replaced_by(path: Path) -> str:
    """Who else than root and the user of this command may rename what is in a directory; empty for nobody."""
    status, user = path.stat(), caller()
    if status.st_uid not in (0, os.geteuid(), user.uid if user else 0):
        return f"user {status.st_uid}, who owns it"
    if status.st_mode & _OTHERS_MAY_WRITE and not status.st_mode & stat.S_ISVTX:
        return "whoever is let in by its mode, which lets others write"
    return ""
