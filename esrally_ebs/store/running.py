"""The run directory: a folder per session with its owner, and a mark that the directory is ours.

Anything without both belongs to somebody else, whatever its name. A session's folder appears complete, its
owner changes atomically, and both changes need the directory's lock.
"""

import errno
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.machine.private import private_directory, require_private, require_unchangeable
from esrally_ebs.machine.processes import Process, pid_namespace
from esrally_ebs.machine.resources import run_dir
from esrally_ebs.model import BY_HAND, session_name
from esrally_ebs.store.files import locked
from esrally_ebs.units import MIB

MARK = ".esrally-ebs"  # in the run directory while anything of ours is there
OWNER = "owner"  # in each session's folder: "pid start_ticks pid_namespace" or BY_HAND, and a checksum
_NEW = ".new-"  # prefix of a session's folder that has no owner yet, or no longer
_PART = ".owner.part"
_ROOM_BYTES, _ROOM_FILES = MIB, 100  # for a session's notes on what it has attached
_MARK_TEXT = "esrally-ebs made this directory: 'esrally-ebs clean' removes what killed sessions left in it\n"


def folder_of(session: str) -> Path:
    """Path of a session's folder, existing or not. Raises PlanError for an invalid name."""
    return run_dir() / session_name(session, by_hand=True)


def _trusted() -> Path:
    """The run directory. Raises SetupError if any but root and this user may change it or its contents."""
    with suppress(FileNotFoundError):
        require_private(run_dir(), 0, os.geteuid())
    require_unchangeable(run_dir())
    return run_dir()


def begin(session: str) -> Path:
    """Make a session's folder, owned by this process from the first moment.

    Raises SetupError if it exists, cannot be made, or the run directory is somebody else's.
    """
    folder = folder_of(session)
    try:
        if _trusted().exists() and run_dir().stat().st_uid != os.geteuid():
            raise PermissionError(errno.EACCES, "is root's")
        _require_room(private_directory(run_dir()))
        with locked(run_dir()):
            _mark()
            if os.path.lexists(folder):
                raise SetupError(
                    f"{folder}: this session runs, or was killed; take another id, or run 'esrally-ebs clean'"
                )
            new = folder.with_name(f"{_NEW}{session}")
            _remove_new(new)
            new.mkdir(mode=0o700)
            (new / OWNER).write_text(_sealed(_me()))
            new.rename(folder)
    except OSError as error:
        next_step = "make room there" if error.errno == errno.ENOSPC else "run as root"
        raise SetupError(
            f"{folder}: {error.strerror}; {next_step} or set ESRALLY_EBS_RUN to a directory of your own"
        ) from error
    return folder


def _require_room(directory: Path) -> None:
    """Raise OSError if there is no room for notes; file systems without a limit report 0 of 0."""
    room = os.statvfs(directory)
    lacks_bytes = room.f_blocks and room.f_bfree * room.f_frsize < _ROOM_BYTES
    if lacks_bytes or (room.f_files and room.f_ffree < _ROOM_FILES):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def claim(session: str) -> bool:
    """Take over a session whose owner has died; returns False if that is alive, or everything is gone."""
    if not _trusted().is_dir():
        return False
    with locked(run_dir()):
        if not is_ours(session) or owner_lives(session):
            return False
        with suppress(OSError):  # on a full disk two may take it down at once, which is safe
            _write_owner(session, _me())
        return True


def claim_by_hand(session: str) -> None:
    """Take over what the user attached by hand, so that ``clean`` continues if this process is killed."""
    with suppress(OSError, SetupError):  # no such session; or a full disk, which changes nothing
        if _owner(folder_of(session)) == BY_HAND:
            _write_owner(session, _me())


def hand_over(session: str) -> None:
    """Give the session to the user: it stays when this process ends."""
    _write_owner(session, BY_HAND)


def owner_lives(session: str) -> bool:
    """Whether the process in ``owner`` is running; volumes attached by hand count as owned.

    Raises SetupError if ``owner`` is damaged, or of a container that is not seen from here: the session may
    be running.
    """
    folder = folder_of(session)
    try:
        _trusted()
        owner = _owner(folder)
        return owner == BY_HAND or _lives(owner, folder)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise SetupError(
            f"{folder}: {error.strerror}; it is another user's, run as that user or as root"
        ) from error


def abandoned_elsewhere(paths: Iterable[Path]) -> list[Path]:
    """Other run directories with such a path in a session whose owner is seen to have died."""
    directories: set[Path] = set()
    for folder in {folder for path in paths for folder in path.parents}:
        with suppress(OSError, SetupError):
            if (
                folder.parent != run_dir().resolve()
                and all(_is(stat.S_ISREG, mark) for mark in (folder.parent / MARK, folder / OWNER))
                and (owner := _owner(folder)) != BY_HAND
                and not _lives(owner, folder)
            ):
                directories.add(folder.parent)
    return sorted(directories)


def lacks_owner(folder: Path) -> bool:
    """Whether a session's folder is gone, or somebody deleted its ``owner``; False if that is not seen."""
    try:
        (folder / OWNER).lstat()
    except OSError as error:
        return isinstance(error, FileNotFoundError | NotADirectoryError)
    return False


def other_at(session: str) -> Process | None:
    """Another process now attaching or detaching a session's volumes, by its number here; None without one.

    Raises SetupError for one of a container that is not seen from here.
    """
    folder = folder_of(session)
    try:
        owner = _owner(folder)
    except (OSError, SetupError):  # missing or damaged: must not prevent detaching
        return None
    if owner in (BY_HAND, _me()) or not _lives(owner, folder):
        return None
    process, namespace = _process(owner)
    return process.here(namespace)


def _process(owner: str) -> tuple[Process, str]:
    """An owner's process, and its PID namespace; "" in earlier releases."""
    pid, start_ticks, *namespace = owner.split()
    return Process(int(pid), int(start_ticks)), "".join(namespace)


def _lives(owner: str, folder: Path) -> bool:
    """Whether the process runs. Raises SetupError if that is not seen from here."""
    if not owner:
        return False
    process, namespace = _process(owner)
    if (is_alive := process.alive_in(namespace)) is None:
        raise SetupError(
            f"{folder / OWNER}: names a process of another container, which is not seen from here; run this "
            "outside of containers, or, if that session runs no more, write '0 0' into it"
        )
    return is_alive


def is_ours(session: str) -> bool:
    """Whether a folder with our marks exists."""
    folder = folder_of(session)
    return (
        _is(stat.S_ISREG, _trusted() / MARK)
        and _is(stat.S_ISDIR, folder)
        and _is(stat.S_ISREG, folder / OWNER)
    )


def sessions() -> tuple[list[str], list[str]]:
    """Names of sessions with a folder of ours, and of everything else in the run directory.

    Raises PermissionError if only another user, such as root, may look.
    """
    ours: list[str] = []
    others: list[str] = []
    for path in sorted(_trusted().iterdir()) if run_dir().exists() else ():
        if path.name != MARK and not path.name.startswith(_NEW):
            (ours if _is_session(path.name) else others).append(path.name)
    return ours, others


def drop_unborn() -> None:
    """Remove leftovers of processes killed while making or removing a session's folder."""
    if _is(stat.S_ISREG, _trusted() / MARK):
        with locked(run_dir()):
            for new in run_dir().glob(f"{_NEW}*"):
                _remove_new(new)
            _unmark()


def remove(session: str, names: Iterable[str]) -> list[str]:
    """Remove a session's folder and its files ``names``; if there is more in it, it stays: one line."""
    folder = folder_of(session)
    if not _trusted().is_dir():
        return []
    with locked(run_dir()):
        if not is_ours(session):
            return []
        for name in (*names, _PART):
            (folder / name).unlink(missing_ok=True)
        left = sorted(path.name for path in folder.iterdir() if path.name != OWNER)
        if left:
            return [f"{folder}: not removed, as it holds {', '.join(left)}; see what that is, and remove it"]
        new = folder.with_name(f"{_NEW}{session}")
        folder.rename(new)
        _remove_new(new)
        _unmark()
    return []


def await_removal() -> None:
    """Wait for a process that is removing a session's folder: the folder goes before the directory's mark."""
    with suppress(SetupError), locked(run_dir()):
        pass


def _mark() -> None:
    mark = run_dir() / MARK
    if _is(stat.S_ISREG, mark):
        return
    if any(run_dir().iterdir()):
        raise SetupError(
            f"{run_dir()}: holds files of somebody else's; set ESRALLY_EBS_RUN to an empty directory"
        )
    mark.write_text(_MARK_TEXT)


def _unmark() -> None:
    """Remove the mark once the directory is empty; later sessions set it again."""
    if all(path.name == MARK for path in run_dir().iterdir()):
        (run_dir() / MARK).unlink(missing_ok=True)


def _remove_new(new: Path) -> None:
    if _is(stat.S_ISDIR, new):
        (new / OWNER).unlink(missing_ok=True)
        with suppress(OSError):  # has other contents, not ours
            new.rmdir()


def _write_owner(session: str, text: str) -> None:
    part = folder_of(session) / _PART
    part.write_text(_sealed(text))
    part.replace(part.with_name(OWNER))


def _sealed(text: str) -> str:
    return f"{text} crc32={zlib.crc32(text.encode()):08x}"


def _owner(folder: Path) -> str:
    """Contents of ``owner``; "" if a full disk truncated it. Earlier releases wrote no checksum."""
    text = (folder / OWNER).read_text(errors="replace").removesuffix("\n")
    owner = text.partition(" crc32=")[0]
    form = rf"([0-9]+( [0-9]+){{1,2}}|{BY_HAND})?"
    if text not in (owner, _sealed(owner)) or not re.fullmatch(form, owner):
        raise SetupError(
            f"{folder / OWNER}: not as it was written; if that session runs no more, write '0 0' into it "
            "and run 'esrally-ebs clean'"
        )
    return owner


def _me() -> str:
    me = Process.of(os.getpid())
    assert me is not None
    return f"{me.pid} {me.start_ticks} {pid_namespace()}".rstrip()


def _is_session(name: str) -> bool:
    try:
        return is_ours(name)
    except (PlanError, OSError):
        return False


def _is(kind: Callable[[int], bool], path: Path) -> bool:
    """Whether the path itself, not a link's target, is of that kind."""
    try:
        return kind(path.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
