"""Entries of a log: a search, or something left out for a reason."""

import hashlib
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_S: Final = 86_400
FIRST_US: Final = 365 * _DAY_S * 1_000_000  # 1971; shippers write 1970 for seconds, year 1 for none
_FIRST_MS: Final = 10**12  # in 2001; seconds and yyyyMMddHHmm are smaller
_LAST_MS: Final = 10**13  # in 2286; microseconds and yyyyMMddHHmmss are larger
_LONG_NAME: Final = 256  # characters; longer names are hashed each time, not cached

# raised by lines that break their format's promises
FIELD_ERRORS: Final = (KeyError, TypeError, ValueError, AttributeError, OverflowError, IndexError)


class Reason(StrEnum):
    """Why a log's entry is not raced; keys of ``excluded.json``."""

    LINE = "line cut off or not of the format"
    LONG = "line longer than 16 MiB"
    BODY = "body cut off or not JSON"
    NO_BODY = "body not in the log"
    COMPRESSED = "body compressed"
    DEEP = "body nested deeper than 60 levels"
    NO_INDEX = "index not in the log"
    INDEX = "no name of an index"
    CLUSTER = "index of another cluster"
    FAILURES = "failure store of a data stream"
    DATE_INDEX = "date maths in the name of an index"
    OTHER_INDEX = "another index"
    MANY = "more names of indices than a URL takes (give --index a pattern)"
    SCRIPT = "script that is not painless"
    MODULE = "needs a module that the node lacks"
    AGGREGATION = "unknown aggregation"
    QUERY = "unknown query"
    VECTOR = "vector search, whose vector a slow log does not have"
    PART = "unknown part of a search"
    HASHED_REGEXP = "regular expression, script or KQL that cannot be hashed"
    TEMPLATE = "search template"
    SCROLL = "scroll"
    PIT = "point in time"
    LANGUAGE = "ES|QL, EQL or SQL"
    FAILED = "failed or refused"
    WRITE = "write"
    OTHER_API = "another API"
    FORMAT = "line of another log"
    EVENT = "no search"


class Part(NamedTuple):
    """One shard and phase of a search, from shard slow logs."""

    request: str  # trace id or X-Opaque-Id; "": none in the log
    of_index: str
    shard: str  # "[index][0]"
    phase: str  # "query" or "fetch"
    shards: int  # number of shards of the whole request


class LoggedSearch(NamedTuple):
    """One search in a log. A named tuple, not a dataclass: millions must be made within seconds."""

    at_us: int  # start, in microseconds since the epoch, or since the log's begin if no more is known
    targets: str  # comma-separated, as in a path; "": not in the log
    body: str | None  # JSON; None: the log's body is unreadable
    params: tuple[tuple[str, str], ...] = ()  # of the URL
    took_ms: float | None = None
    hits: int | None = None
    client: str = ""
    part: Part | None = None
    zoned: bool = True  # False: the log's time had no time zone and was read as UTC
    change: str = ""  # how the request was changed to become a search: a key of "changed" in excluded.json


class Skipped(NamedTuple):
    """An entry that is left out."""

    reason: Reason


Entry = LoggedSearch | Skipped


def words(text: str) -> frozenset[str]:
    """The set of words in a text, for sets with too many names for a line each."""
    return frozenset(text.split())


def parse_time(text: str | float) -> tuple[int, bool]:
    """Microseconds since the epoch from ISO 8601, and whether it had a time zone (else UTC is assumed).

    Of milliseconds since the epoch, as an index may give them, too, also as text; and of seconds with a
    fraction, as Fluent Bit writes them. ValueError for what is none of these, and for a time before all logs.
    """
    if isinstance(text, str) and len(text) > len("20261231") and text.isdecimal():
        text = int(text)  # of which the first digits might be read as a date
    if isinstance(text, int | float):
        text = text * 1000 if isinstance(text, float) and text < _LAST_MS / 1000 else text
        if not _FIRST_MS < text < _LAST_MS:
            raise ValueError(f"no milliseconds since the epoch: {text}")
        return round(text * 1000), True
    moment = datetime.fromisoformat(text)
    zoned = moment.tzinfo is not None
    since = (moment if zoned else moment.replace(tzinfo=UTC)) - _EPOCH
    at_us = (since.days * _DAY_S + since.seconds) * 1_000_000 + since.microseconds
    if at_us < FIRST_US:
        raise ValueError(f"before any log: {text}")
    return at_us, zoned


def format_time(at_us: int) -> str:
    """Microseconds since the epoch in Elasticsearch's ``strict_date_optional_time``, with milliseconds."""
    moment = _EPOCH + timedelta(microseconds=at_us)
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def hash_client(name: str) -> str:
    """A client's name as a hash, which distinguishes clients without naming them; "" stays."""
    return _hashed(name) if len(name) < _LONG_NAME else _hashed.__wrapped__(name)


@lru_cache(maxsize=4096)
def _hashed(name: str) -> str:
    digest = hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=4)
    return digest.hexdigest() if name else ""
