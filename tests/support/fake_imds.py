"""An instance metadata service on loopback: IMDSv2 with given items, and a list of what was asked."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from loopback_server import serving

TOKEN = "AQAEAsession-token-of-the-metadata-service=="


@dataclass
class FakeImds:
    """A running service."""

    url: str
    requests: list[str] = field(default_factory=list)


@contextmanager
def imds(
    items: Mapping[str, str], *, token_status: int = 200, token: str = TOKEN, cut: int = 0
) -> Iterator[FakeImds]:
    """Serve ``items`` until the block ends, each without its last ``cut`` characters."""
    service: FakeImds

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            service.requests.append(f"PUT {self.path}")
            lives = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "0").isdigit()
            self._answer(token_status if lives else 400, token)

        def do_GET(self) -> None:
            service.requests.append(f"GET {self.path}")
            item = self.path.removeprefix("/latest/meta-data/")
            if self.headers.get("X-aws-ec2-metadata-token") != token:
                self._answer(401, "")
            else:
                self._answer(200 if item in items else 404, items.get(item, "not found"), cut)

        def _answer(self, status: int, text: str, cut: int = 0) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text[: len(text) - cut].encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with serving(Handler) as port:
        service = FakeImds(f"http://127.0.0.1:{port}")
        yield service
