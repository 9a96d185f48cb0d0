"""An instance metadata service on loopback: IMDSv2 with given items, and a list of what was asked."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from loopback_server import Answers, serving

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

    class Handler(Answers):
        def do_PUT(self) -> None:
            service.requests.append(f"PUT {self.path}")
            lives = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "0").isdigit()
            self.answer(token, token_status if lives else 400)

        def do_GET(self) -> None:
            service.requests.append(f"GET {self.path}")
            item = self.path.removeprefix("/latest/meta-data/")
            if self.headers.get("X-aws-ec2-metadata-token") != token:
                self.answer("", 401)
            else:
                self.answer(items.get(item, "not found"), 200 if item in items else 404, cut=cut)

    with serving(Handler) as port:
        service = FakeImds(f"http://127.0.0.1:{port}")
        yield service
