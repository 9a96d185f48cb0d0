"""Secrets of an AWS account that exist nowhere else, and the search for them in all that a session writes.

``leaks`` reads files as whoever looks for a secret would: unpacked, decoded, with the line breaks of a table
taken out, and also for parts of a secret that was cut.
"""

import base64
import bz2
import gzip
import html
import json
import re
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
from loopback_server import Answers, serving

KEY_ID = "AKIAPLANTED0EXAMPLE7"
OTHER_KEY_ID = "ASIAQUOTED0EXAMPLE42"  # which only an error message tells
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiPLANTED3KEY0"
SESSION_TOKEN = "IQoJb3JpZ2luX2VjEPLANTED0/" + "".join(f"Tok3n{n:02}+x/" for n in range(12)) + "Q=="
METADATA_TOKEN = "AQAEAFOPplanted7" + "Zq0Xk-9_" * 4 + "wq1uQ9=="
ACCOUNT = "918273645546"
PLANTED = {
    "access key id": KEY_ID,
    "key id of a message": OTHER_KEY_ID,
    "secret key": SECRET,
    "session token": SESSION_TOKEN,
    "token of the metadata service": METADATA_TOKEN,
    "account": ACCOUNT,
}
# what AWS says when it refuses, and more than it ever did
QUOTING = (
    f"The signature does not match: Credential={OTHER_KEY_ID}/20261122/eu-west-1, key {KEY_ID},"
    f" secret {SECRET}, X-Amz-Security-Token={urllib.parse.quote(SESSION_TOKEN, safe='')}, {SESSION_TOKEN},"
    f" User: arn:aws:sts::{ACCOUNT}:assumed-role/bench/i-0123456789abcdef0,"
    f" arn%3Aaws%3Aiam%3A%3A{ACCOUNT}%3Arole%2Fbench, metadata token {METADATA_TOKEN}"
)
_PIECE = 20  # characters of a long secret that give it away
_LONG = 16  # not found by chance in a text without its white space


_UNPACK: Mapping[str, Callable[[bytes], bytes]] = {".gz": gzip.decompress, ".bz2": bz2.decompress}


def leaks(
    folders: Iterable[Path],
    outputs: Mapping[str, str] | None = None,
    *,
    planted: Mapping[str, str] = PLANTED,
    but: Callable[[Path], bool] = lambda path: False,
) -> list[str]:
    """Which secret stands where, for all files below the folders and all outputs."""
    places = []
    for path in sorted(file for folder in folders for file in folder.rglob("*") if file.is_file()):
        if not but(path):
            places += [f"{path}: {name}" for name in _within([str(path), *_texts(path)], planted)]
    for where, text in (outputs or {}).items():
        places += [f"{where}: {name}" for name in _within([text], planted)]
    return places


def _within(texts: Iterable[str], planted: Mapping[str, str]) -> list[str]:
    views = [view for text in texts for view in _views(text)]
    squeezed = ["".join(view.split()) for view in views]
    return [
        name
        for name, secret in planted.items()
        if any(spelt in view for spelt in _spelt(secret) for view in views)
        or (len(secret) >= _LONG and any(piece in view for piece in _pieces(secret) for view in squeezed))
    ]


def _texts(path: Path) -> Iterator[str]:
    data = path.read_bytes()
    yield data.decode("utf-8", "replace")
    if path.suffix in _UNPACK:
        yield _UNPACK[path.suffix](data).decode("utf-8", "replace")
    if path.suffix == ".parquet":
        file = pq.ParquetFile(path)  # its text columns are compressed
        yield f"{file.schema_arrow.metadata} {file.read().to_pylist()}"


def _views(text: str) -> Iterator[str]:
    """The text, and what it is once its escapes are undone."""
    yield text
    plain = re.sub(r"\\u00([0-9a-fA-F]{2})", lambda escape: chr(int(escape[1], 16)), text)
    yield urllib.parse.unquote(html.unescape(plain.replace("\\/", "/")))


def _spelt(secret: str) -> set[str]:
    """The secret, and base64 of it wherever it stands in what was encoded."""
    shifted = {base64.b64encode(b"\0" * shift + secret.encode()).decode()[4:-4] for shift in range(3)}
    return {secret, *shifted}


def _pieces(secret: str) -> set[str]:
    return {secret[at : at + _PIECE] for at in range(0, max(len(secret) - _PIECE, 0) + 1, _PIECE // 2)}


class _Refusing(Answers):
    """Every call is refused, in the form of the protocol that it was made in."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        if "json" in self.headers["Content-Type"]:
            body = json.dumps({"__type": "SignatureDoesNotMatch", "message": QUOTING})
        else:
            error = f"<Code>SignatureDoesNotMatch</Code><Message>{html.escape(QUOTING)}</Message>"
            body = f"<Response><Errors><Error>{error}</Error></Errors></Response>"
        self._refuse(body)

    def do_GET(self) -> None:
        self._refuse(json.dumps({"ErrorCode": "SignatureDoesNotMatch", "Message": QUOTING}))

    def _refuse(self, body: str) -> None:
        self.answer(body, 403, [("X-Amzn-ErrorType", "SignatureDoesNotMatch")])


@contextmanager
def refusing() -> Iterator[str]:
    """The address of an AWS that refuses everything and quotes every secret, until the block ends."""
    with serving(_Refusing) as port:
        yield f"http://127.0.0.1:{port}"
