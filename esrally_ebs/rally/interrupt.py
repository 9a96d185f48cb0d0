"""Ctrl-C while race control prepares a session: hears the request to cancel that Rally would not.

Rally's actors form a session of their own that the terminal's signals do not reach. Its command asks race
control to cancel by a message, which is read only when the track has been loaded, perhaps minutes later.
"""

import os
import select
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

_POLL_S = 0.2


@contextmanager
def hearing_cancel() -> Iterator[None]:
    """While inside, a message that arrives for this actor raises SIGINT in this process.

    Race control has no other actors yet, so the first message can only be the command's wish to end.
    """
    done = threading.Event()

    def listen() -> None:
        while not done.wait(_POLL_S):
            if message_waits():
                os.kill(os.getpid(), signal.SIGINT)
                return

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def message_waits() -> bool:
    """Whether anybody has sent to a port of this process what it has not read."""
    sockets = psutil.Process().connections(kind="tcp")
    ports = {found.laddr.port: found.fd for found in sockets if found.status == psutil.CONN_LISTEN}
    accepted = [found.fd for found in sockets if found.laddr.port in ports and found.fd not in ports.values()]
    return any(_is_readable(fd) for fd in ports.values()) or any(_holds_data(fd) for fd in accepted)


def _is_readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def _holds_data(descriptor: int) -> bool:
    """Data, and not merely the end of the connection."""
    try:
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            return bool(connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except OSError:
        return False
