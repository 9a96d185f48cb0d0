"""Removes an emulated volume, given its directory alone, in whatever state its owner or its daemon died.

Idempotent: every step checks the kernel's state and does nothing if its thing is gone.
"""

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from esrally_ebs.errors import CommandError, SetupError
from esrally_ebs.machine.kernel_trees import Roots
from esrally_ebs.machine.mounts import mount_at, mounts, remove_mount_point
from esrally_ebs.machine.private import private_directory, require_private
from esrally_ebs.machine.processes import SYSTEM_CLOCK, Clock, Process, run, shares_mounts
from esrally_ebs.machine.resources import home, run_dir
from esrally_ebs.store.files import locked
from esrally_ebs.volumes.emulated import control
from esrally_ebs.volumes.emulated.daemon import process as daemon
from esrally_ebs.volumes.record import RECORD_NAME, drop_record, read_record

MOUNT_NAME = "mnt"
PAGE_SUFFIX = ".instance"  # of the page that one instance's volumes share, in their session's directory
_DEFAULT_RUN = Path("/run/esrally-ebs")
_SHARED_MEMORY = Path("/dev/shm")  # the machine's tmpfs
_UNMOUNT_S = 60.0  # a busy volume may have dirty pages, which it writes unlimited
_QUICK_S = 15.0
_END_S = 3.0
_LOOP_S = 8.0  # what starts meanwhile may have a copy of all mounts for seconds, on a starved machine
_POLL_S = 0.05
_LOOPS_NAME = "loops.json"
_BOOT = "boot"  # key of the boot's id in it, beside names of devices
_OWN_FILES = (
    control.SOCKET_NAME,
    daemon.SETTINGS_NAME,
    daemon.PROCESS_NAME,
    daemon.LOG_NAME,
    control.TRACE_NAME,
    daemon.DISK_NAME,
)


def detach(directory: Path, *, clock: Clock = SYSTEM_CLOCK) -> None:
    """Unmount, detach and remove what is left of an emulated volume; does nothing if all is gone.

    Raises SetupError, naming the cause, if something remains.
    """
    directory = directory.resolve()
    record = read_record(directory)
    daemons = _daemons_of(directory)
    if _open_up(directory):
        _settle(directory / MOUNT_NAME)
    else:
        _end(daemons, signal.SIGKILL, clock)  # from here on requests fail, so nothing below can hang
    _unmount(directory / MOUNT_NAME)
    for member in sorted(directory.glob(f"*/{RECORD_NAME}")):
        detach(member.parent, clock=clock)
    loops = _loops_of(directory)
    note_loops(directory, loops)
    for device in loops:
        _detach_loop(device)
    _end(daemons, signal.SIGTERM, clock)
    _end(_daemons_of(directory), signal.SIGKILL, clock)
    _unmount(directory / daemon.DISK_NAME)
    # the kernel releases a loop device a moment after its last user
    clock.wait_until(lambda: not _loops_of(directory), limit_s=_LOOP_S, poll_s=_POLL_S)
    images = record.created if record is not None else [image_of(root, directory) for root in image_roots()]
    remove_images(images)
    _remove_files(directory)
    left = [
        f"mount {directory / name}" for name in (MOUNT_NAME, daemon.DISK_NAME) if mount_at(directory / name)
    ]
    left += [f"loop device /dev/{name}" for name in _loops_of(directory)]
    left += [f"daemon {process.pid}" for process in _daemons_of(directory)]
    if left:
        what = "; ".join(left)
        raise SetupError(f"{directory}: still there: {what}; end what uses it and run 'esrally-ebs clean'")
    (directory / _LOOPS_NAME).unlink(missing_ok=True)
    drop_record(directory)
    if not any(directory.parent.glob(f"*/{RECORD_NAME}")):
        for page in directory.parent.glob(f"*{PAGE_SUFFIX}"):
            page.unlink(missing_ok=True)


def mounted_disks() -> list[Path]:
    """Where root has mounted daemons' files, in whatever run directory."""
    return [
        mount.mount_point
        for mount in mounts()
        # the kernel gives a user's own FUSE mounts that user's id; their names may be anything
        if (mount.filesystem, mount.source) == ("fuse", daemon.MOUNT_SOURCE)
        and "user_id=0" in mount.super_options.split(",")
    ]


def session_of(disk: Path) -> Path:
    """The session's folder that a daemon's file is in: below its arm, or below a member of a striped one."""
    return disk.parents[2 if mount_at(disk.parents[1] / MOUNT_NAME) else 1]


def note_loops(directory: Path, names: Sequence[str]) -> None:
    """Note the volume's loop devices by sequence numbers, which the kernel does not reuse until it boots."""
    if names:
        note = {_BOOT: Roots().boot_id()} | {name: _sequence_number(name) for name in names}
        with contextlib.suppress(OSError):  # disk full: while mounted, their backing file identifies them
            (directory / _LOOPS_NAME).write_text(json.dumps(note))


def image_roots() -> tuple[Path, Path]:
    """Folders of this run directory's images: in memory, and on disk if memory is short."""
    name = "esrally-ebs" if run_dir() == _DEFAULT_RUN else _joined(run_dir())
    return _SHARED_MEMORY / name, home() / "backing" / name


def image_of(root: Path, directory: Path) -> Path:
    """Default path below an image root for the image of the volume in ``directory``, by session."""
    sessions = run_dir().resolve()
    if directory.is_relative_to(sessions):
        session, *arm = directory.relative_to(sessions).parts
        return root / session / f"{'_'.join(arm)}.img"
    return root / "elsewhere" / f"{_joined(directory)}.img"


def _joined(path: Path) -> str:
    return "-".join(path.parts[1:])


def _loops() -> list[tuple[str, Path]]:
    """Every loop device in use, and the file that it was attached to."""
    loops = []
    for path in sorted(Path("/sys/block").glob("loop*/loop/backing_file")):
        with contextlib.suppress(OSError):  # detached meanwhile
            loops.append((path.parent.parent.name, _as_path(path.read_text().strip())))
    return loops


def _as_path(text: str) -> Path:
    return Path(text.removesuffix(" (deleted)"))  # the kernel marks deleted names


def _daemons(is_near: Callable[[Path], bool]) -> list[tuple[Process, Path]]:
    """Every daemon that works in a directory near ours among our mounts, with that directory.

    Skips other processes' directories: any user may have put a pipe there under our file's name.
    """
    daemons = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            where = _as_path(str((entry / "cwd").readlink()))
            process = Process.of(int(entry.name)) if is_near(where) else None
            if process is not None and shares_mounts(process.pid) and _is_daemon(process, where, entry):
                daemons.append((process, where))
    return daemons


def _is_daemon(process: Process, directory: Path, entry: Path) -> bool:
    """Whether it noted itself in its directory or, before that, has the variable that it was started with."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        noted = json.loads((directory / daemon.PROCESS_NAME).read_text())
        if process == Process(noted["pid"], noted["start_ticks"]):
            return True
    return f"{daemon.START_VARIABLE}={daemon.__name__}".encode() in (entry / "environ").read_bytes().split(
        b"\0"
    )


def _daemons_of(directory: Path) -> list[Process]:
    """Daemons of this volume, including those of its striped volumes."""
    return [process for process, _ in _daemons(lambda where: directory in (where, where.parent))]


def _loops_of(directory: Path) -> list[str]:
    """The volume's loop devices, from the note.

    Without a readable note of this boot, by their backing file, whose path means ours only if a volume's disk
    is mounted there among our mounts: in another container it may be another file.
    """
    in_use = dict(_loops())
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        noted = json.loads((directory / _LOOPS_NAME).read_text())
        if noted[_BOOT] == Roots().boot_id():
            return sorted(name for name in noted if name in in_use and _sequence_number(name) == noted[name])
    disk = directory / daemon.DISK_NAME
    mount = mount_at(disk)
    ours = mount is not None and mount.source == daemon.MOUNT_SOURCE
    return sorted(name for name, file in in_use.items() if ours and file == disk)


def _sequence_number(name: str) -> int:
    """The kernel's count of attachments since it booted: changes whenever a loop device gets another file."""
    return int((Path("/sys/block") / name / "diskseq").read_text())


def _open_up(directory: Path) -> bool:
    """Lift all limits so that dirty pages are written fast; returns whether the daemon answers."""
    socket = directory / control.SOCKET_NAME
    try:
        control.change(socket if socket.exists() else directory, unlimited=True)
    except (OSError, SetupError):  # where a socket is missing, a dead file system answers, too
        return False
    return True


def _end(processes: Sequence[Process], number: int, clock: Clock) -> None:
    for process in processes:
        process.signal(number)
    clock.wait_until(lambda: not any(process.alive for process in processes), limit_s=_END_S, poll_s=_POLL_S)


def _settle(point: Path) -> None:
    """Leave a clean file system even if copies of our mounts keep it (unshare, ip netns exec).

    Unmounting here ends it only when the copies end, after its daemon. So it is made read-only, and clean,
    now.
    """
    if (mount := mount_at(point)) is not None:
        with contextlib.suppress(CommandError, OSError):  # something is writing, or it answers with errors
            # XFS retries for ever what a full image refuses, and each sync(2) waits for that
            for retries in Path("/sys/fs/xfs", Path(mount.source).name).glob("error/metadata/*/max_retries"):
                retries.write_text("0")
            run(["mount", "--options", "remount,ro", point], timeout_s=_UNMOUNT_S)


def _unmount(point: Path) -> None:
    """Unmount all mounts at this point, lazily, from the name space alone, if one is in use; remove it.

    Copies of a mount in other name spaces end as its mount point is removed.
    """
    while mount_at(point) is not None:
        try:
            run(["umount", "--no-canonicalize", point], timeout_s=_UNMOUNT_S)
        except CommandError:
            if mount_at(point) is not None:
                run(["umount", "--lazy", "--no-canonicalize", point], timeout_s=_QUICK_S)
    with contextlib.suppress(OSError):  # missing; or a daemon's disk, a file
        remove_mount_point(point)


def _detach_loop(name: str) -> None:
    with contextlib.suppress(CommandError):  # already gone; or found again among the leftovers
        run(["losetup", "--detach", f"/dev/{name}"], timeout_s=_QUICK_S)


def sweep_images(booted_at_s: float) -> list[Path]:
    """Remove images on disk of volumes that a reboot ended, and their directories in /run; returns them.

    Images of this boot may be in use in another container, whose run directory may have the same name.
    """
    gone: list[Path] = []
    images = list(image_roots()[1].glob("*/*.img"))
    if not images:
        return gone
    with locked(private_directory(run_dir())):  # so that no session begins, and makes one of that name anew
        for image in images:
            with contextlib.suppress(FileNotFoundError):  # removed by its session meanwhile
                of_session = (run_dir() / image.parent.name).exists()  # after the clock was set it looks old
                if image.lstat().st_ctime < booted_at_s and not of_session:
                    _remove_image(image)
                    gone.append(image)
    return [image for image in gone if not image.exists()]


def remove_images(images: Iterable[Path]) -> None:
    """Remove images; locked, as the folders that this empties may be about to get another session's."""
    with locked(private_directory(run_dir())):
        for image in images:
            _remove_image(image)


def _remove_image(image: Path) -> None:
    own = (image.parent, image.parent.parent) if image.parent.parent in image_roots() else ()
    try:
        for folder in reversed(own):
            require_private(folder, os.geteuid())
    except (FileNotFoundError, SetupError):  # gone; or another user's, as then are its contents
        return
    image.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # contains other images
        for folder in own:
            folder.rmdir()


def _remove_files(directory: Path) -> None:
    for name in _OWN_FILES:
        (directory / name).unlink(missing_ok=True)
