"""A process of its own that takes a session down when the processes that should do so die first.

It watches race control and Rally's main process: each can be killed without the other noticing.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import setproctitle

from esrally_ebs.clean import take_down
from esrally_ebs.model import Event, State
from esrally_ebs.resources import run_dir
from esrally_ebs.store import SessionFolder

_PATIENCE_S = 20.0


def start(session: str, folder: Path, pids: Sequence[int]) -> None:
    """Start the reaper; it ends by itself once the session has been taken down."""
    subprocess.Popen(
        [sys.executable, "-m", "esrally_ebs.reaper", session, str(folder), *map(str, pids)],
        start_new_session=True,  # Ctrl-C in the terminal must not reach it
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def watch(pids: Sequence[int]) -> int:
    """Wait until one of the processes ends; returns its pid."""
    poll = select.poll()
    of_fd = {}
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            return pid
        of_fd[fd] = pid
        poll.register(fd, select.POLLIN)
    return of_fd[poll.poll()[0][0]]


def rally_processes(command: Sequence[str], started_at: float) -> list[psutil.Process]:
    """Rally's actors of one race: forks of its command, so they have its command line, and they are younger."""
    found = []
    for process in psutil.process_iter(["cmdline", "create_time"]):
        if process.info["cmdline"] == list(command) and process.info["create_time"] >= started_at:
            found.append(process)
    return found


def reap(session: str, folder: Path, died: int, actors: Sequence[psutil.Process]) -> None:
    """End what Rally left running, take the session down and record why."""
    for actor in actors:
        try:
            actor.kill()
        except psutil.NoSuchProcess:
            continue
    problems = take_down(session)
    record = SessionFolder(folder)
    text = f"process {died} of the race was killed; everything it started was taken down"
    record.event(
        Event(at_s=time.time(), kind="fault", fields={"text": text, "problems": problems, "exit_code": 3})
    )
    record.finish(State.FAILED, reason=text)


def main(argv: Sequence[str]) -> None:
    """``SESSION FOLDER PID...``: watch the pids, then act if the session still stands."""
    session, folder, pids = argv[0], Path(argv[1]), [int(word) for word in argv[2:]]
    # Rally refuses to race while a python process has "esrally" in its command line.
    setproctitle.setproctitle(f"ebs-reaper {session[:8]}")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        first = psutil.Process(pids[-1])
        command, started_at = first.cmdline(), first.create_time()
    except psutil.NoSuchProcess:
        command, started_at = [], time.time()
    died = watch(pids)
    # An orderly end removes the run directory, though perhaps some moments after the first process went.
    until = time.monotonic() + (_PATIENCE_S if _is_taking_down(session) else 1.0)
    while (run_dir() / session).exists() and time.monotonic() < until:
        time.sleep(0.2)
    if (run_dir() / session).exists():
        reap(session, folder, died, rally_processes(command, started_at) if command else [])


def _is_taking_down(session: str) -> bool:
    return (run_dir() / session / "ending").exists()


if __name__ == "__main__":
    main(sys.argv[1:])
