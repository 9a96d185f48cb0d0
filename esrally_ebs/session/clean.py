"""Take a session down by what is in its run directory: the only way in which anything of ours is removed.

Used at a race's end, by the reaper after a crash, and by ``esrally-ebs clean``. Idempotent.
"""

import os
import re
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from shlex import quote

from esrally_ebs import node
from esrally_ebs.errors import SetupError
from esrally_ebs.machine.caller import caller
from esrally_ebs.machine.mounts import mount_at
from esrally_ebs.machine.processes import SYSTEM_CLOCK, Process, argv_of, booted_at_s, shares_mounts, which
from esrally_ebs.machine.resources import home
from esrally_ebs.model import short_name
from esrally_ebs.store import running
from esrally_ebs.store.context import FILES, FIO_PID, NOTES, OF_CALLER
from esrally_ebs.telemetry import block_trace
from esrally_ebs.volumes import backends as volumes

_FIO_GRACE_S = 2.0
_LINE_SIGNS = 80
_UNFINISHED = re.compile(r"[0-9a-f-]{16,}\.[a-z0-9-]{1,8}-[0-9a-f]{8}\.unfinished")  # as dataset.py names it


def take_down(session: str) -> list[str]:
    """Remove a session's processes, containers, mounts, loop devices, images and tracing.

    Every step is tried even if others fail. Returns one line per thing that could not be removed.
    """
    directory = running.folder_of(session)
    steps: list[Callable[[], None]] = [
        partial(node.remove, session),
        partial(remove_unfinished, session, home()),
    ]
    if running.is_ours(session):
        running.claim_by_hand(session)
        notes = directory / OF_CALLER
        ends = [partial(_end_fio, folder / FIO_PID) for folder in (directory, notes)]
        steps[:0] = [*ends, partial(block_trace.remove_trace, session)]
        steps += [partial(volumes.detach, arm) for arm in arm_folders(directory) if arm != notes]
        steps.append(partial(_remove_notes, notes))
    problems: list[str] = []
    for step in steps:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - whatever one step meets must not keep the others
            problems.append(str(error) or repr(error))
    try:
        return problems or running.remove(session, FILES)
    except OSError as error:
        return [f"{error.filename}: {error.strerror}; see what uses it, and run 'esrally-ebs clean'"]
    except SetupError as error:
        return [str(error)]


def arm_folders(directory: Path) -> list[Path]:
    """A session's folders. Names with an underscore are not arms and come first: they may lie on an arm.

    No folder is opened: root may not enter what a user has mounted on their own.
    """
    folders: list[Path] = []
    with suppress(FileNotFoundError), os.scandir(directory) as entries:  # another may take it down, too
        folders += [Path(entry) for entry in entries if entry.is_dir(follow_symlinks=False)]
    return sorted(folders, key=lambda path: ("_" not in path.name, path.name))


def _remove_notes(folder: Path) -> None:
    """Remove the caller's processes' files and their folder, unless the caller put others there."""
    if mount_at(folder) is not None:
        raise SetupError(
            f"{folder}: the user has mounted something there; run 'umount {folder}' and 'esrally-ebs clean'"
        )
    if folder.is_dir():
        for name in NOTES:
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()


def remove_unfinished(session: str, home: Path) -> None:
    """Remove an unfinished index of this session."""
    _remove_all(_unfinished_of(session, home))


def _unfinished_of(session: str, home: Path) -> Iterator[Path]:
    """Unfinished indices of the session, by the names that dataset.py gives."""
    return (home / "datasets").glob(f"*.{short_name(session)}.unfinished")


def _end_fio(pid_file: Path) -> None:
    """End exactly the fio that a job noted: same pid, start time, command and our mounts.

    It must belong to the user who wrote the note: else that user could have root kill another's process.
    """
    try:
        descriptor = os.open(pid_file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor) as file:
            owner = os.fstat(descriptor).st_uid
            pid, start_ticks = (int(word) for word in file.read(_LINE_SIGNS).split())
        if Path(f"/proc/{pid}").stat().st_uid != owner:
            return
    except (OSError, ValueError):
        return
    process = Process(pid, start_ticks)
    if not process.alive or argv_of(pid)[:1] != ["fio"] or not shares_mounts(pid):
        return
    os.killpg(pid, signal.SIGKILL)  # run_job starts fio in its own process group
    SYSTEM_CLOCK.wait_until(lambda: not process.alive, limit_s=_FIO_GRACE_S, poll_s=0.05)


def clean() -> Iterator[tuple[str, list[str]]]:
    """Take down every session whose owner has died: its name, and a line per thing that stays.

    After a reboot the run directory is gone: then files that only it listed are removed, too. Skips a session
    that another ``clean`` is already taking down.
    """
    user = caller()
    for session in running.sessions()[0]:
        try:
            claimed = running.claim(session)
        except SetupError as error:
            yield session, [str(error)]
            continue
        if claimed:
            problems = take_down(session)
            if user is not None:
                user.do(partial(remove_unfinished, session, home(user.home)))
            yield session, problems
    running.drop_unborn()
    yield from ((str(path), []) for path in _remove_of_earlier_boots())


def clean_nodes() -> Iterator[tuple[str, list[str]]]:
    """Likewise for sessions of which only nodes are left.

    Raises SetupError if an installed engine does not answer: a killed engine leaves its containers running.
    """
    try:
        with_nodes = node.leftovers()
    except SetupError:
        if which("docker"):
            raise
        return
    for session in with_nodes:
        if not running.is_ours(session):
            yield session, take_down(session)


def name_elsewhere() -> Iterator[str]:
    """A line for what killed sessions left in each other run directory, with the command that removes it."""
    disks, nodes = volumes.mounted_disks(), node.folders_elsewhere()
    lost_nodes = {folder for folder in nodes if running.lacks_owner(folder)}
    lost_disks = {disk for disk in disks if all(map(running.lacks_owner, disk.parents))}
    if lost_nodes or lost_disks:  # those that are still there: sessions end meanwhile
        lost_nodes.intersection_update(node.folders_elsewhere())
        lost_disks.intersection_update(volumes.mounted_disks())
    dead = running.abandoned_elsewhere([*disks, *(folder / "node" for folder in nodes)])
    for directory in sorted({*dead, *(folder.parent for folder in lost_nodes)}):
        yield f"{directory}: has volumes or nodes of a killed session; remove them: {_command(directory)}"
    for session in sorted({volumes.session_of(disk) for disk in lost_disks}):
        mark, owner = (quote(str(path)) for path in (session.parent / running.MARK, session / running.OWNER))
        yield (
            f"{session}: its records were deleted, and volumes are mounted there; if that session runs no "
            f"more: touch {mark}; echo 0 0 > {owner}; {_command(session.parent)}"
        )


def _command(directory: Path) -> str:
    return f"ESRALLY_EBS_RUN={quote(str(directory))} esrally-ebs clean"


def _remove_of_earlier_boots() -> list[Path]:
    """Remove images and unfinished indices that sessions of earlier boots left; returns what stays."""
    booted_s = booted_at_s()
    unfinished = _unfinished_before(booted_s, home())
    _remove_all(unfinished)
    if (user := caller()) is not None:  # whose sessions and indices are in the user's own home
        own = _unfinished_before(booted_s, home(user.home))
        user.do(partial(_remove_all, own))  # so that a link there cannot make root remove others'
        unfinished += own
    return [*(path for path in unfinished if not path.exists()), *volumes.sweep_images(booted_s)]


def _unfinished_before(booted_s: float, home: Path) -> list[Path]:
    # a clock set since then makes folders of running sessions look older than this boot
    of_now = [path for one in running.sessions()[0] for path in _unfinished_of(one, home)]
    folders: list[Path] = []
    for path in (home / "datasets").glob("*"):
        with suppress(FileNotFoundError):  # finished, or removed, meanwhile
            if _UNFINISHED.fullmatch(path.name) and path.lstat().st_ctime < booted_s and path not in of_now:
                folders.append(path)
    return folders


def _remove_all(folders: Iterable[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
