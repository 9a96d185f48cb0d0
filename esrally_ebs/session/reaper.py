"""A process that takes a session down if the processes responsible for it die first.

It watches race control and Rally's main process: each can be killed without the other noticing. Meanwhile it
forces what they record to the disk, so that a power cut takes no more than a kill does.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import psutil

from esrally_ebs.aws.provision.journal import JOURNAL_NAME
from esrally_ebs.errors import SetupError
from esrally_ebs.machine.caller import Caller
from esrally_ebs.machine.processes import SYSTEM_CLOCK, Process, be_called, kill_all, members_of, tell
from esrally_ebs.machine.resources import run_dir
from esrally_ebs.model import State
from esrally_ebs.session.clean import remove_unfinished, take_down
from esrally_ebs.store import SessionFolder
from esrally_ebs.store.context import ENDING, MADE_ON_HOSTS, STAYS
from esrally_ebs.store.files import sync_folder

TAKE_DOWN = signal.SIGUSR1  # tells the keeper to take down, once it has ended what it is doing
_PATIENCE_S = 20.0
AWS_S = 900.0  # to detach and delete what was made there: an EFS file system alone takes minutes
_KEEPER_S = 10.0
_STARTS_S = 60.0  # on a starved machine
_SYNC_EVERY_S = 1.0  # plus up to 2 s in the writers; 5 s may be lost, even on a starved machine


def start(session: str, folder: Path, pids: Sequence[int], uid: int = 0) -> Callable[[], None]:
    """Start the reaper; it also watches the calling process, and ends once the session has been taken down.

    ``uid``: the user who owns the other processes and the record. Returns a function that waits until the
    reaper is watching; call it before recording anything that must survive a power cut. Raises SetupError.
    """
    words = [session, str(folder), str(uid), *map(_word, (os.getpid(), *pids))]
    ready, written = os.pipe()
    try:
        subprocess.Popen(
            [sys.executable, "-P", "-m", "esrally_ebs.session.reaper", *words],
            start_new_session=True,  # Ctrl-C in the terminal must not reach it
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=subprocess.DEVNULL,
        )
    finally:
        os.close(written)
    return partial(_wait_for, ready)


def _wait_for(ready: int) -> None:
    with os.fdopen(ready, "rb") as pipe:
        is_there, _, _ = select.select([pipe], [], [], _STARTS_S)
        if not is_there or not pipe.read(1):
            raise SetupError("the session's reaper did not start; is there memory and time for a process?")


def _word(pid: int) -> str:
    process = Process.of(pid)
    return f"{pid}:{process.start_ticks if process else 0}"


def watch(processes: Sequence[Process], meanwhile: Callable[[], object]) -> Process:
    """Wait until one of the processes ends, calling ``meanwhile`` every second; returns that process."""
    poll = select.poll()
    of_fd = {}
    for process in processes:
        try:
            fd = os.pidfd_open(process.pid)
        except ProcessLookupError:
            return process
        if not process.alive:  # it had ended before, and its pid was reused
            return process
        of_fd[fd] = process
        poll.register(fd, select.POLLIN)
    while not (ended := poll.poll(_SYNC_EVERY_S * 1000)):
        meanwhile()
    return of_fd[ended[0][0]]


def actor_session(control: int, command: int) -> int | None:
    """Kernel session id shared by Rally's actors; None if a Rally daemon started them.

    The actors leave the command's process tree, but share one session.
    """
    try:
        admin = psutil.Process(psutil.Process(control).ppid())
        return os.getsid(control) if admin.create_time() >= psutil.Process(command).create_time() else None
    except (psutil.NoSuchProcess, ProcessLookupError):
        return None


def reap(
    session: str,
    folder: Path,
    died: Process,
    processes: Sequence[Process],
    actors: int | None,
    keeper: Process | None = None,
    user: Caller | None = None,
) -> None:
    """End what Rally left running, take the session down, and say why, in the record and to the user.

    If the user called by sudo, processes and the record are handled as that user.
    """
    name = "race control" if len(processes) > 1 and died == processes[0] else "the session's main process"
    if died not in processes:
        name = "the session's root process"
    text = (
        f"{name} (process {died.pid}) was killed; everything it started was taken down, start the race again"
    )
    do = user.do if user else lambda work: work()
    do(partial(_end, died, processes, actors, text))
    if keeper is not None:
        _wait_for_keeper(keeper, run_dir() / session)
    problems = take_down(session)
    do(partial(_record, session, folder, text, problems))


def _end(died: Process, processes: Sequence[Process], actors: int | None, text: str) -> None:
    for process in processes:
        if process != died:
            tell(process, text)
            process.signal(signal.SIGKILL)
    if actors is not None:
        kill_all(members_of(actors))


def _wait_for_keeper(keeper: Process, directory: Path) -> None:
    """Have the keeper take the session down: it may be about to start volumes or nodes."""
    keeper.signal(TAKE_DOWN)
    SYSTEM_CLOCK.wait_until(lambda: not (directory.exists() and keeper.alive), limit_s=_KEEPER_S)


def _record(session: str, folder: Path, text: str, problems: Sequence[str]) -> None:
    if not folder.is_dir():  # on a data host: the coordinator has the record
        return
    remove_unfinished(session, folder.parent.parent)
    record = SessionFolder(folder)
    record.note("fault", text=text, problems=problems, exit_code=3)
    record.finish(State.FAILED, reason=text)


def main(argv: Sequence[str]) -> None:
    """``SESSION FOLDER USER STARTER PID:START...``: watch the processes, race control before Rally's command;
    act if the session still stands when one ends.
    """
    session, folder, uid = argv[0], Path(argv[1]), int(argv[2])
    starter, *processes = [Process(*map(int, word.split(":"))) for word in argv[3:]]
    be_called(f"ebs-reaper {session[:8]}")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    actors = actor_session(*(process.pid for process in processes)) if len(processes) > 1 else None
    user = Caller.of(uid) if uid else None
    sync = partial(sync_folder, folder, {}, of=uid or None)
    with contextlib.suppress(BrokenPipeError):  # the waiting process may be dead already
        os.write(sys.stdout.fileno(), b".")
    keeper = None if starter in processes else starter
    died = watch([*processes, *([keeper] if keeper else [])], sync)
    # An orderly end removes the run directory, perhaps some moments after the first process has ended.
    directory = run_dir() / session
    began, longest_s = time.monotonic(), ends_within_s(directory)
    while directory.exists() and time.monotonic() - began < _patience_s(directory, processes, longest_s):
        time.sleep(0.2)
    if (directory / STAYS).exists():
        take_down(session)  # once more: what blocked it may be gone; the record says what stays
    elif directory.exists():
        reap(session, folder, died, processes, actors, keeper, user)
    sync()


def ends_within_s(directory: Path) -> float:
    """How long it may take to take down what a session has by now."""
    made = (directory / MADE_ON_HOSTS).exists() or any(directory.glob(f"*/{JOURNAL_NAME}"))
    return AWS_S if made else _PATIENCE_S


def _patience_s(directory: Path, processes: Sequence[Process], longest_s: float = _PATIENCE_S) -> float:
    """How long a session may stand once a process of it has ended: longer while race control ends it."""
    ends = (directory / ENDING).exists() and any(process.alive for process in processes[:1])
    return longest_s if ends else 1.0


if __name__ == "__main__":
    main(sys.argv[1:])
