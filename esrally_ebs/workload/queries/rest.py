"""Turns REST requests into searches, for audit logs, GoReplay files (read here, too) and our own log."""

import math
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import orjson

from esrally_ebs.workload.queries.logs import MAX_LINE_BYTES, TOO_LONG
from esrally_ebs.workload.queries.search import (
    FIELD_ERRORS,
    Entry,
    LoggedSearch,
    Reason,
    Skipped,
    hash_client,
    words,
)

SEARCH_PARAMS: Final = words(
    "allow_no_indices analyze_wildcard analyzer batched_reduce_size ccs_minimize_roundtrips "
    "default_operator df docvalue_fields expand_wildcards explain from ignore_throttled "
    "ignore_unavailable lenient max_concurrent_shard_requests pre_filter_shard_size preference q "
    "request_cache rest_total_hits_as_int routing search_type seq_no_primary_term size sort _source "
    "_source_excludes _source_includes stats stored_fields suggest_field suggest_mode suggest_size "
    "suggest_text terminate_after timeout track_scores track_total_hits version"
)
_HEADER_KEYS: Final = words(
    "index indices type preference routing search_type request_cache ignore_unavailable allow_no_indices "
    "expand_wildcards ignore_throttled allow_partial_search_results ccs_minimize_roundtrips"
)
_CAPITAL: Final = re.compile("(?<=[a-z])[A-Z]")  # Elasticsearch also accepts ignoreUnavailable
_COUNT: Final = {"size": 0, "track_total_hits": True}  # Elasticsearch's implementation of _count
_WRITES: Final = words(
    "_bulk _create _delete_by_query _doc _reindex _update _update_by_query _close _open _forcemerge "
    "_refresh _flush _rollover _shrink _split _clone _aliases _mapping _mappings _settings"
)
_HOST: Final = re.compile(r"\Ahttps?://[^/?]*")  # before the path of a request through a proxy
_LANGUAGES: Final = frozenset(("_eql", "_esql", "_query", "_sql"))

_MONKEYS: Final = "🐵🙈🙉".encode()
_REQUEST: Final = re.compile(rb"[A-Z]+ \S+ HTTP/1\.[01]\r\n")
PAYLOAD: Final = re.compile(rb"([123]) ([\w-]+) (\d{1,20})(?: \d+)?\r?\n")


def searches(
    search: LoggedSearch, method: str, path: str, params: Mapping[str, str], *, missing: Reason | None = None
) -> Iterator[Entry]:
    """The searches of a request: one, those of an ``_msearch``, or the reason for none.

    ``search`` has everything independent of path and parameters; ``missing`` is the reason for a missing
    body, if the request had one.
    """
    path, _, query = _HOST.sub("", path).partition("?")
    params = {**url_params(query), **params}
    segments = [unquote(segment) for segment in path.split("/") if segment]
    if segments[1:2] == ["_doc"] and segments[2:] in (["_search"], ["_msearch"], ["_count"]):
        del segments[1]  # a type, which version 7 accepts
    names = [segment.partition(",")[0] for segment in segments]  # of APIs, or the first of several indices
    at = next((i for i, name in enumerate(names) if name.startswith("_") and name != "_all"), -1)
    api = "/".join(segments[at:]) if at >= 0 else ""
    # Elasticsearch's default for a path without an index
    targets = segments[0] if at > 0 else params.get("index") or "_all"
    reason = _reason(api, method.upper()) or (Reason.SCROLL if "scroll" in params else missing)
    if reason is not None or search.body is None:
        yield Skipped(reason or Reason.BODY)
        return
    body = search.body or params.get("source", "")
    kept = tuple((name, value) for name, value in params.items() if name in SEARCH_PARAMS)
    search = search._replace(targets=targets, body=body or "{}", params=kept)
    if api == "_msearch":
        yield from msearch(body.encode().splitlines(), search)
    elif api == "_count":
        yield _as_search(search, params)
    else:
        yield search._replace(change="" if api == "_search" else "asynchronous search made a search")


def url_params(query: str) -> dict[str, str]:
    """A URL's parameters. One without a value (``?explain``) is true."""
    return dict(parse_qsl(query, keep_blank_values=True))


def json_params(fields: Mapping[str, Any]) -> dict[str, str]:
    """Parameters from JSON as in a URL; null means absent."""
    return {name: _url_text(value) for name, value in fields.items() if value is not None}


def _url_text(value: Any) -> str:  # noqa: ANN401 - what JSON can hold
    if isinstance(value, list):
        return ",".join(map(_url_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def msearch(lines: Iterable[bytes], search: LoggedSearch) -> Iterator[Entry]:
    empty = True
    for header, body in pairs(lines):
        empty = False
        yield msearch_pair(header, body, search) if body else Skipped(Reason.BODY)
    if empty:  # still a request
        yield Skipped(Reason.LINE)


def pairs(lines: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Headers with their bodies. An empty line is an empty header, unless a header follows it."""
    blank, header = False, None
    for line in lines:
        if header is not None:
            if line.strip():
                yield header, line
                header = None
        elif not line.strip():
            blank = True
        elif blank and (line.strip() == b"{}" or not is_header(line)):
            yield b"{}", line
            blank = False
        else:
            header, blank = line, False
    if header is not None:
        yield header, b""


def is_header(line: bytes) -> bool:
    """Whether a line of an ``_msearch`` can be a header."""
    try:
        header = orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return isinstance(header, dict) and set(map(_in_snake_case, header)) <= _HEADER_KEYS


def _in_snake_case(name: str) -> str:
    return _CAPITAL.sub(lambda letter: f"_{letter[0].lower()}", name)


def msearch_pair(header: bytes, body: bytes, search: LoggedSearch) -> Entry:
    """One search of an ``_msearch``."""
    try:
        fields = {_in_snake_case(name): value for name, value in orjson.loads(header).items()}
        index = fields.pop("index", None) or fields.pop("indices", None) or search.targets
        targets = ",".join(index) if isinstance(index, list) else str(index)
        own = tuple((name, text) for name, text in json_params(fields).items() if name in SEARCH_PARAMS)
        text = body.decode()
    except (ValueError, AttributeError, TypeError):
        return Skipped(Reason.LINE)
    kept = tuple((name, value) for name, value in search.params if name not in dict(own))
    return search._replace(targets=targets, body=text.strip(), params=(*kept, *own), change="msearch split")


def _as_search(search: LoggedSearch, params: Mapping[str, str]) -> Entry:
    """The search that a ``_count`` counts; ``min_score`` is no URL parameter of a search."""
    try:
        least = {"min_score": float(params["min_score"])} if "min_score" in params else {}
        if not all(map(math.isfinite, least.values())):
            return Skipped(Reason.BODY)
        body = {**orjson.loads(search.body or "{}"), **least, **_COUNT}
    except (ValueError, TypeError):
        return Skipped(Reason.BODY)
    return search._replace(body=orjson.dumps(body).decode(), change="count made a search")


def _reason(api: str, method: str) -> Reason | None:
    """Why requests to this API are not raced; None if they are."""
    first = api.partition("/")[0]
    if first in _LANGUAGES:
        return Reason.LANGUAGE
    if api.startswith("_search/scroll"):
        return Reason.SCROLL
    if first == "_pit" or api.startswith("_search/point_in_time"):
        return Reason.PIT
    if api in ("_search/template", "_msearch/template"):
        return Reason.TEMPLATE
    if first in _WRITES and method not in ("GET", "HEAD"):
        return Reason.WRITE
    is_search = api in ("_search", "_msearch", "_count", "_async_search")
    if is_search and (method == "POST" or (method == "GET" and api != "_async_search")):
        return None
    return Reason.WRITE if method in ("PUT", "DELETE") and first != "_async_search" else Reason.OTHER_API


def parse_goreplay(lines: Iterable[bytes]) -> Iterator[Entry]:
    """Payloads between lines of three monkeys: a line of type, id and time, then the HTTP message."""
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
        reason = Reason.LINE if match is None else Reason.EVENT  # EVENT: an answer
        yield Skipped(Reason.LONG if TOO_LONG in lines else reason)
        return
    more = True
    message = b"".join(lines[1:])
    try:
        while more:
            entries, message = _http(int(match[3]) // 1000, message)
            yield from entries
            more = _REQUEST.match(message) is not None
    except FIELD_ERRORS:
        yield Skipped(Reason.LINE)


def _http(at_us: int, message: bytes) -> tuple[Iterator[Entry], bytes]:
    """Searches of an HTTP request, and further requests that its client sent without waiting (pipelining)."""
    line_end = "\r\n" if b"\r\n" in message else "\n"  # the latter once an editor had the file
    head, _, body = message.partition(2 * line_end.encode())
    request, *rows = head.decode(errors="replace").split(line_end)
    method, url, _ = request.split(" ")
    # ignores authorization and all other headers
    headers = {name.strip().lower(): value.strip() for name, _, value in (row.partition(":") for row in rows)}
    is_cut, more = False, b""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body, more = _unchunked(body)
    elif "content-length" in headers or _REQUEST.match(body):
        length = int(headers.get("content-length", 0))
        is_cut, body, more = len(body) < length, body[:length], body[length:]
    missing = None
    if (packed_by := headers.get("content-encoding", "identity").lower()) != "identity":
        body, missing = _unpacked(body, packed_by)
    # an empty first line is an msearch's header
    text = None if missing or is_cut else body.decode().rstrip()
    search = LoggedSearch(at_us, "", text, client=hash_client(headers.get("x-opaque-id", "")))
    return searches(search, method, url, {}, missing=missing), more


def _unpacked(body: bytes, by: str) -> tuple[bytes, Reason | None]:
    """A gzipped body, unpacked; or the reason why it cannot be."""
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        unpacked = unpacker.decompress(body, MAX_LINE_BYTES) if by == "gzip" else b""
    except zlib.error:
        return b"", Reason.COMPRESSED
    return unpacked, None if unpacker.eof else Reason.LONG if unpacker.unconsumed_tail else Reason.COMPRESSED


def _unchunked(body: bytes) -> tuple[bytes, bytes]:
    """A chunked body put together, and what follows its last chunk."""
    parts: list[bytes] = []
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size.partition(b";")[0], 16)
        if length <= 0:
            return b"".join(parts), body.removeprefix(b"\r\n")
        parts.append(body[:length])
        body = body[length + 2 :]
    return b"".join(parts), b""
