"""A server on loopback that takes every connection and never answers it to the end, each in its own way."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_DRIP_S = 0.05
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/xml\r\nContent-Length: 1000\r\n\r\n"
_REFUSED = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def _silent(connection: socket.socket, ends: threading.Event) -> None:
    """Not a byte."""


def _half(connection: socket.socket, ends: threading.Event) -> None:
    """The beginning of an answer."""
    connection.sendall(_HEAD + b"<GetMetricData")


def _dripping(connection: socket.socket, ends: threading.Event) -> None:
    """A byte now and then, so that no time limit of one read is ever reached."""
    connection.sendall(_HEAD)
    while not ends.wait(_DRIP_S):
        connection.sendall(b" ")


WAYS: dict[str, Callable[[socket.socket, threading.Event], None]] = {
    "silent": _silent,
    "half": _half,
    "dripping": _dripping,
}


def _refuse(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.recv(65536)
        connection.sendall(_REFUSED)
        connection.shutdown(socket.SHUT_WR)


class Hanging:
    """A running server; the first ``refused`` calls are answered with HTTP 403."""

    def __init__(self, way: str, refused: int) -> None:
        self._answer = WAYS[way]
        self._refused = refused
        self._ends = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections: list[socket.socket] = []
        self.requested = threading.Event()  # somebody waits for an answer
        self.hung_up = threading.Event()  # and waits no longer
        self._start(self._take)

    def _start(self, work: Callable[..., None], *args: object) -> None:
        self._threads.append(threading.Thread(target=work, args=args, daemon=True))
        self._threads[-1].start()

    def _take(self) -> None:
        with suppress(OSError):  # the server has ended
            while True:
                connection, _ = self._listener.accept()
                self.connections.append(connection)
                self._start(self._hold if len(self.connections) > self._refused else _refuse, connection)

    def _hold(self, connection: socket.socket) -> None:
        with suppress(OSError):  # whoever asked is gone
            connection.recv(65536)
            self.requested.set()
            self._answer(connection, self._ends)
            while connection.recv(65536):
                pass
        self.hung_up.set()

    def end(self) -> None:
        """Close everything; whoever still waits hears that nobody will answer."""
        self._ends.set()
        for each in (self._listener, *self.connections):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # wakes who waits in it
            each.close()
        for thread in self._threads:
            thread.join()


@contextmanager
def hanging(way: str = "silent", *, refused: int = 0) -> Iterator[Hanging]:
    """Listen until the block ends."""
    server = Hanging(way, refused)
    try:
        yield server
    finally:
        server.end()
