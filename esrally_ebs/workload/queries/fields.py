"""Reads fields of log lines as values for a search.

Accepts anything that a log may contain; raises only FIELD_ERRORS.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import orjson

from esrally_ebs.workload.queries.search import FIELD_ERRORS, hash_client, parse_time, words

Fields = Mapping[str, Any]

_NESTED: Final = frozenset(("elasticsearch", "http", "event", "url", "log"))
# what shippers may have parsed as well
_BODIES: Final = words(
    "elasticsearch.querylog.query elasticsearch.slowlog.source elasticsearch.slowlog.source_query "
    "http.request.body.content request.body"
)


def flat(fields: Fields) -> Fields:
    """Nested objects as dotted keys, the form that logs have before ingestion."""
    if fields.keys().isdisjoint(_NESTED):
        return fields
    dotted: dict[str, Any] = {}

    def add(prefix: str, nested: Fields) -> None:
        for key, value in nested.items():
            name = prefix + key
            if isinstance(value, dict) and prefix.count(".") < 6 and name not in _BODIES:
                add(f"{name}.", value)
            else:
                dotted[name] = value

    add("", fields)
    return dotted


def logged_time(fields: Fields, name: str = "timestamp") -> tuple[int, bool]:
    """The log's own time of a line, and whether it has a time zone.

    The shipper's, if it has renamed the former, or changed its ISO format.
    """
    for each in (name, "@timestamp"):
        try:
            return parse_time(fields[each])
        except FIELD_ERRORS:
            continue
    return parse_time(fields["date"])  # Fluent Bit's


_MAX_CHARS: Final = 64  # of a number, so that its cache keeps no long texts
_HITS: Final = re.compile(r"\s*(\d{1,18})(?![\d+])")


def number_of(value: Any) -> int | None:  # noqa: ANN401 - whatever the log holds
    """The number at a value's begin (``"5 hits"``, ``5``); None without one, and for a bound (``"5+"``)."""
    if type(value) is int:  # bool is an int, too
        return value if value >= 0 else None
    return _first_number(value) if isinstance(value, str) and len(value) <= _MAX_CHARS else None


@lru_cache(maxsize=4096)
def _first_number(text: str) -> int | None:
    match = _HITS.match(text)
    return int(match[1]) if match else None


def ms_of(value: Any) -> float | None:  # noqa: ANN401
    number = float(value) if value not in (None, "") else None
    return number if number is None or 0 <= number < 1e12 else None


_SHORT: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|micros|nanos)")
_UNIT_MS: Final = {"ms": 1.0, "micros": 1e-3, "nanos": 1e-6}


def took_ms_of(text: Any, millis: Any) -> float | None:  # noqa: ANN401
    """A duration from text, more precise below a second than the number: ``"7.4ms"`` for 7."""
    match = _SHORT.fullmatch(text) if isinstance(text, str) else None
    return ms_of(round(float(match[1]) * _UNIT_MS[match[2]], 6) if match else millis)


def text_of(value: Any) -> str:  # noqa: ANN401
    return value if isinstance(value, str) else ""


def client_of(value: Any) -> str:  # noqa: ANN401
    return hash_client(text_of(value))


def body_of(value: Any) -> str | None:  # noqa: ANN401
    """A body's text, even if it was parsed as an object; None for anything else.

    Elasticsearch 8 escapes a slow log's source itself, and again like everything that it writes.
    """
    if isinstance(value, dict):
        return orjson.dumps(value).decode()
    if isinstance(value, str) and value.startswith('{\\"'):  # never valid JSON
        return str(orjson.loads(f'"{value}"'))
    return value if isinstance(value, str) else None


def search_type_of(value: Any) -> tuple[tuple[str, str], ...]:  # noqa: ANN401
    """The URL parameter that slow logs have, unless it is the default."""
    is_dfs = text_of(value).upper() == "DFS_QUERY_THEN_FETCH"
    return (("search_type", "dfs_query_then_fetch"),) if is_dfs else ()


def targets_of(indices: Any) -> str:  # noqa: ANN401
    """Indices as in a path; an empty list means that the search named none, so all."""
    return ",".join(indices) or "_all" if isinstance(indices, list) else str(indices or "")
