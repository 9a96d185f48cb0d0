"""GoReplay's files: recorded HTTP requests in, one entry per request out."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from esrally_ebs.workload.queries import rest
from esrally_ebs.workload.queries.logs import MAX_LINE_BYTES, TOO_LONG
from esrally_ebs.workload.queries.search import (
    FIELD_ERRORS,
    Entry,
    LoggedSearch,
    Reason,
    Skipped,
    hash_client,
)

_MONKEYS: Final = "🐵🙈🙉".encode()
PAYLOAD: Final = re.compile(rb"([123]) ([0-9a-f]+) (\d{1,20})(?: \d+)?\r?\n")


def parse(lines: Iterable[bytes]) -> Iterator[Entry]:
    """Payloads between lines of three monkeys; each a line of type, id and time, then the HTTP message."""
    payload: list[bytes] = []
    size = 0
    for line in lines:
        if line.rstrip() == _MONKEYS:
            yield from _payload(payload)
            payload, size = [], 0
            continue
        size += len(line)
        payload.append(line if size <= MAX_LINE_BYTES else TOO_LONG)
        if size > MAX_LINE_BYTES:
            del payload[:-1]
    yield from _payload(payload)


def _payload(lines: list[bytes]) -> Iterator[Entry]:
    if not b"".join(lines).strip():
        return
    match = PAYLOAD.fullmatch(lines[0])
    if match is None or match[1] != b"1":
        reason = Reason.LINE if match is None else Reason.EVENT  # the latter is an answer
        yield Skipped(Reason.LONG if TOO_LONG in lines else reason)
        return
    head, _, body = b"".join(lines[1:]).partition(b"\r\n\r\n")
    try:
        yield from _http(int(match[3]) // 1000, head.decode("latin-1"), body)
    except FIELD_ERRORS:
        yield Skipped(Reason.LINE)


def _http(at_us: int, head: str, body: bytes) -> Iterator[Entry]:
    request, *rows = head.split("\r\n")
    method, url, _ = request.split(" ")
    # authorization and all other headers stay behind
    headers = {name.strip().lower(): value.strip() for name, _, value in (row.partition(":") for row in rows)}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = _unchunked(body)
    elif "content-length" in headers:
        body = body[: int(headers["content-length"])]
    packed = headers.get("content-encoding", "identity") != "identity"
    text = None if packed else body.decode().strip()
    search = LoggedSearch(at_us, "", text, client=hash_client(headers.get("x-opaque-id", "")))
    missing = Reason.COMPRESSED if packed else None
    yield from rest.searches(search, method, url, {}, missing=missing)


def _unchunked(body: bytes) -> bytes:
    parts = []
    while body:
        size, _, rest_of_body = body.partition(b"\r\n")
        length = int(size.partition(b";")[0], 16)
        if length <= 0:
            break
        parts.append(rest_of_body[:length])
        body = rest_of_body[length + 2 :]
    return b"".join(parts)
