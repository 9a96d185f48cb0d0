"""Ctrl-C while race control prepares a session: hears the request to cancel that Rally would not.

Rally's actors form a session of their own that the terminal's signals do not reach. Its command asks race
control to cancel by a message, which is read only when the track has been loaded, perhaps minutes later.
"""

import contextlib
import gc
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import psutil
from esrally import racecontrol
from esrally.utils import process

from esrally_ebs.machine.procfs import CLOSE_WAIT, ESTABLISHED, parse_tcp

_POLL_S = 0.2
_WAKE_UP = "BuMP"  # Thespian's own (MultiprocessQueueTransport.interrupt_run)
_TABLE = Path("/proc/net/tcp")


@contextmanager
def hearing_cancel(waits: Callable[[], bool] | None = None, *, poll_s: float = _POLL_S) -> Iterator[None]:
    """While inside, a message that arrives for this actor raises SIGINT in this process.

    Race control has no other actors yet, so the first message can only be the command's wish to end. It must
    wait for two looks in a row: this process has inherited ports of actors that read theirs at once.
    ``waits`` is what a look finds, by default whether a message waits.
    """
    look = waits or _mailbox() or message_waits
    done = threading.Event()

    def listen() -> None:
        waited = False
        while not done.wait(poll_s):
            waits_now = look()
            if waits_now and waited:
                os.kill(os.getpid(), signal.SIGINT)
                return
            waited = waits_now

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _mailbox() -> Callable[[], bool] | None:
    """Whether race control's queue holds a message; None when it listens at a port, or runs elsewhere."""
    control = next((each for each in gc.get_objects() if isinstance(each, racecontrol.BenchmarkActor)), None)
    core = getattr(control._myRef.transport, "_QCore", None) if control else None
    return None if core is None else partial(holds_message, core.mainLocalInputQueueEndpoint())


def holds_message(mailbox: "Queue[Any]") -> bool:
    """Whether an actor's queue holds a message of another actor; all messages are in it afterwards.

    A thread of this process that logs puts a word into the queue as well, to wake its own actor up.
    """
    waiting = []
    with contextlib.suppress(queue.Empty):
        while True:
            waiting.append(mailbox.get_nowait())
    messages = [each for each in waiting if each != _WAKE_UP]
    for each in (*messages, *([_WAKE_UP] if len(messages) < len(waiting) else [])):
        mailbox.put(each)
    return bool(messages)


def message_waits() -> bool:
    """Whether data have arrived at a port of this process, accepted or not, that nobody has read.

    Callers alone are no message: Rally's command also connects and hangs up again without a word.
    """
    own = psutil.Process().connections(kind="tcp")
    ports = {one.laddr.port for one in own if one.status == psutil.CONN_LISTEN}
    return any(
        one.local_port in ports and one.state in (ESTABLISHED, CLOSE_WAIT) and one.unread_bytes > 0
        for one in parse_tcp(_TABLE.read_text(), str(_TABLE))
    )


def main_process() -> int | None:
    """Pid of the ``esrally`` command that started this race; None when it runs on another machine.

    The actor system leaves the command's process tree and session, so the command is no ancestor of race
    control. Rally lets only one race at a time run on a machine.
    """
    commands = []
    for candidate in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            # an actor that was just forked still has the command's name
            if process.is_rally_process(candidate) and os.getsid(candidate.pid) != os.getsid(0):
                commands.append((candidate.create_time(), candidate.pid))
    return min(commands)[1] if commands else None
