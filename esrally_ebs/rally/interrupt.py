"""Ctrl-C while race control prepares a session: hears the request to cancel that Rally would not.

Rally's actors form a session of their own that the terminal's signals do not reach. Its command asks race
control to cancel by a message, which is read only when the track has been loaded, perhaps minutes later.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from esrally_ebs.formats.tcp import CLOSE_WAIT, ESTABLISHED, parse_tcp

_POLL_S = 0.2
_TABLE = Path("/proc/net/tcp")


@contextmanager
def hearing_cancel(waits: Callable[[], bool] | None = None, *, poll_s: float = _POLL_S) -> Iterator[None]:
    """While inside, a message that arrives for this actor raises SIGINT in this process.

    Race control has no other actors yet, so the first message can only be the command's wish to end. It must
    wait for two looks in a row: this process has inherited ports of actors that read theirs at once.
    ``waits`` is what a look finds, by default whether a message waits.
    """
    look = waits or message_waits
    done = threading.Event()

    def listen() -> None:
        waited = False
        while not done.wait(poll_s):
            found = look()
            if found and waited:
                os.kill(os.getpid(), signal.SIGINT)
                return
            waited = found

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def message_waits() -> bool:
    """Whether data have arrived at a port of this process, accepted or not, that nobody has read.

    Callers alone are no message: Rally's command also connects and hangs up again without a word.
    """
    own = psutil.Process().connections(kind="tcp")
    ports = {found.laddr.port for found in own if found.status == psutil.CONN_LISTEN}
    return any(
        found.local_port in ports and found.state in (ESTABLISHED, CLOSE_WAIT) and found.unread_bytes > 0
        for found in parse_tcp(_TABLE.read_text(), str(_TABLE))
    )
