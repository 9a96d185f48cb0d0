"""Servers on loopback that a test speaks to: one that answers in a thread, and a port for one of its own."""

import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Answers(BaseHTTPRequestHandler):
    """A handler that gives whole answers, and prints nothing."""

    def answer(
        self, text: str = "{}", status: int = 200, headers: Iterable[tuple[str, str]] = (), *, cut: int = 0
    ) -> None:
        """``cut``: so many characters are promised and never sent."""
        self.send_response(status)
        for name, value in (("Content-Length", str(len(text))), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text[: len(text) - cut].encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(handler: type) -> Iterator[int]:
    """The port on which ``handler`` answers until the block ends."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port
