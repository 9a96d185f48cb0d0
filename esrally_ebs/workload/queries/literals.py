"""What is done to literals: dates that mean "now" are fixed to the time of the log, strings are hashed."""

import hashlib
import ipaddress
import re
from typing import Any, Final

from esrally_ebs.workload.queries.dsl import Json, Walk
from esrally_ebs.workload.queries.search import format_time

_FORMAT: Final = "strict_date_optional_time"
_MATHS: Final = r"now((?:[+-]\d+[yMwdhHms])*(?:/[yMwdhHms])?(?:[+-]\d+[yMwdhHms])*)"
_NOW: Final = re.compile(_MATHS)
# [now-1d TO now} of query strings
_LUCENE_RANGE: Final = re.compile(r"[\[{]\s*\S+\s+TO\s+\S+?\s*[\]}]")
_LUCENE_NOW: Final = re.compile(rf"(?<![\w\"]){_MATHS}(?![\w\"])")
_BOUNDS: Final = frozenset(("gt", "gte", "lt", "lte", "from", "to", "min", "max", "origin", "missing"))


class Freezer(Walk):
    """Fixes ``now`` to the time of the request; ``frozen`` counts what was.

    ``now-1d/d`` becomes ``2024-05-06T07:08:09.000Z||-1d/d``: Elasticsearch's own maths on an anchor, so that
    rounding and time zones stay its business. Where the query gives a format, the anchor's is added to it.
    """

    def __init__(self, at_us: int) -> None:
        super().__init__()
        self.frozen = 0
        self._anchor = format_time(at_us)

    def literal(self, value: Json, key: str, where: str) -> Json:
        if not isinstance(value, str) or "now" not in value:
            return value
        if where == "query_string" and key == "query":
            return self.query_string(value)
        match = _NOW.fullmatch(value)
        # the word alone is a date only where a date must be
        if match is None or (not match[1] and key not in _BOUNDS):
            return value
        return self._fixed(match)

    def options(self, options: dict[str, Json], where: str, *, walked: dict[str, Json]) -> dict[str, Json]:
        bounds = _BOUNDS & options.keys()
        changed = [key for key in bounds if walked[key] != options[key]]
        if isinstance(options.get("format"), str) and (changed or _differs(options, walked)):
            return {**walked, "format": f"{options['format']}||{_FORMAT}"}
        if where == "range" and changed and len(changed) == len(bounds):
            return {**walked, "format": _FORMAT}  # the mapping's format need not take the anchor
        return walked

    def query_string(self, text: str) -> str:
        """The ranges of a Lucene query string, as in the URL's parameter ``q``."""
        return _LUCENE_RANGE.sub(
            lambda part: _LUCENE_NOW.sub(lambda match: f'"{self._fixed(match)}"', part[0]), text
        )

    def _fixed(self, match: re.Match[str]) -> str:
        self.frozen += 1
        return f"{self._anchor}||{match[1]}" if match[1] else self._anchor


def _differs(options: dict[str, Json], walked: dict[str, Json]) -> bool:
    return any(
        key in walked and walked[key] != options[key] for key in ("ranges", "extended_bounds", "hard_bounds")
    )


_ISO_DATE: Final = re.compile(
    r"\d{4}-\d\d(-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d+)?)?)?)?(Z|[+-]\d\d:?\d\d)?(\|\|.*)?"
)
_TOKEN: Final = re.compile(r"\w+")
_OPERATORS: Final = frozenset(("AND", "OR", "NOT", "TO"))
_QUERY_WORD: Final = re.compile(r"\w+(?![\w.]*:)")  # a word before a colon is a field
_NOT_HASHED: Final = re.compile(r"geo_|shape")


class Hasher(Walk):
    """Hashes strings, the same string always to the same: word by word, so that their number stays.

    Numbers, dates, and points on the map stay; strings of digits become other digits, addresses other
    addresses. ``refused`` says that a string cannot be hashed and still be asked.
    """

    def __init__(self) -> None:
        super().__init__()
        self.refused = False

    def literal(self, value: Json, key: str, where: str) -> Json:
        if not isinstance(value, str) or _NOT_HASHED.match(where):
            return value
        if where == "regexp" or (where in ("terms", "significant_terms") and key in ("include", "exclude")):
            self.refused = True
            return value
        return hash_query(value) if where.endswith("query_string") else hash_text(value)


def hash_query(text: str) -> str:
    """A Lucene query string with its words hashed; fields, operators and dates stay."""
    if _ISO_DATE.search(text):
        return _QUERY_WORD.sub(lambda word: word[0] if word[0][0].isdigit() else _hash_word(word[0]), text)
    return _QUERY_WORD.sub(lambda word: _hash_word(word[0]), text)


def hash_text(text: str) -> str:
    """A string with each word hashed; what stands between them (blanks, wildcards) stays."""
    if _ISO_DATE.fullmatch(text) or _NOW.fullmatch(text):
        return text
    try:
        return _hash_address(ipaddress.ip_address(text))
    except ValueError:
        return _TOKEN.sub(lambda word: _hash_word(word[0]), text)


def _hash_word(word: str) -> str:
    if word in _OPERATORS:
        return word
    number = int.from_bytes(_digest(word))
    if word.isascii() and word.isdigit():
        return str(number)[1 : len(word) + 1].zfill(len(word))[: len(word)]
    return f"h{number:032x}"[:13]


def _hash_address(address: Any) -> str:  # noqa: ANN401 - of version 4 or 6
    digest = _digest(str(address))
    if address.version == 4:
        return "10." + ".".join(str(byte) for byte in digest[:3])
    return str(ipaddress.IPv6Address(b"\xfd" + digest[:15]))


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()
