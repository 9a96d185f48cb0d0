"""Take a session down from what stands in the run directory: the one way by which anything of ours goes away.

Used at a race's end, by the reaper after a crash, and by ``esrally-ebs clean``. Idempotent.
"""

import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from esrally_ebs import node, volumes
from esrally_ebs.errors import SetupError
from esrally_ebs.resources import home, run_dir
from esrally_ebs.system import Process

_FIO_GRACE_S = 2.0
_BY_HAND = "by-hand"


def take_down(session: str) -> list[str]:
    """Remove processes, containers, mounts, loop devices and images of a session.

    Every step is tried, whatever the others do. Returns one line per thing that could not be removed.
    """
    directory = run_dir() / session
    _take_over(session)
    problems: list[str] = []
    steps: list[Callable[[], None]] = [
        partial(_end_fio, directory / "fio.pid"),
        partial(node.remove, session),
        *(partial(volumes.detach, arm) for arm in _arms(directory)),
        partial(_remove_unfinished, session),
    ]
    for step in steps:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - whatever one step meets must not keep the others
            problems.append(str(error) or repr(error))
    if not problems:
        shutil.rmtree(directory, ignore_errors=True)
    return problems


def _take_over(session: str) -> None:
    """What was attached by hand is this process's from now on: if it is killed, ``clean`` goes on."""
    owner = run_dir() / session / "owner"
    with suppress(OSError):  # none; or a full disk, which leaves one that is cut: nobody's as well
        if owner.read_text() == _BY_HAND:
            write_owner(session)


def _arms(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("*") if path.is_dir())


def _remove_unfinished(session: str) -> None:
    """An index that was being built for it, by the name that dataset.py gives it."""
    for path in (home() / "datasets").glob(f"*.{session[:8]}.unfinished"):
        shutil.rmtree(path, ignore_errors=True)


def _end_fio(pid_file: Path) -> None:
    try:
        pid = int(pid_file.read_text())
    except (FileNotFoundError, ValueError):
        return
    process = Process.of(pid)
    if process is None or b"fio" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        return
    os.killpg(pid, signal.SIGKILL)  # run_job gives fio a process group of its own
    until = time.monotonic() + _FIO_GRACE_S
    while process.alive and time.monotonic() < until:
        time.sleep(0.05)


def live_sessions() -> dict[str, bool]:
    """Session id -> whether its owner still runs, for all known by directory or by container."""
    found = {path.name for path in run_dir().glob("*") if path.is_dir()}
    found.update(node.leftovers())
    return {session: owner_lives(session) for session in sorted(found)}


def owner_lives(session: str) -> bool:
    """Whether the process that stands in ``owner`` runs; what was attached by hand counts as owned."""
    try:
        words = (run_dir() / session / "owner").read_text().split()
        return words == [_BY_HAND] or Process(int(words[0]), int(words[1])).alive
    except (FileNotFoundError, ValueError, IndexError):
        return False  # it was cut while its session began, or by a full disk
    except OSError as error:
        raise SetupError(
            f"{run_dir() / session}: {error.strerror}; it is another user's, run as that user or as root"
        ) from error


def write_owner(session: str) -> Path:
    """Make the session's run directory and say who owns it: this process. Its owner may be dead already.

    Raises SetupError when it cannot be made.
    """
    directory = run_dir() / session
    try:
        directory.mkdir(parents=True, mode=0o700, exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"{directory}: {error.strerror}; run as root or set ESRALLY_EBS_RUN to a directory of your own"
        ) from error
    me = Process.of(os.getpid())
    assert me is not None
    (directory / "owner").write_text(f"{me.pid} {me.start_ticks}")
    return directory


def hand_over(session: str) -> None:
    """From now on the session is the user's own: it stays when this process ends."""
    (run_dir() / session / "owner").write_text(_BY_HAND)


def abandoned() -> list[str]:
    """Sessions whose owner has died without taking them down."""
    return [session for session, alive in live_sessions().items() if not alive]
