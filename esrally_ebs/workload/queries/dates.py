"""Replaces dates relative to "now" by ones relative to the log's time."""

import re
import secrets
from collections.abc import Callable, Iterator
from typing import Final

import orjson

from esrally_ebs.workload.queries.dsl import Json, Walk
from esrally_ebs.workload.queries.search import format_time, words
from esrally_ebs.workload.queries.shapes import OF_DATES

_FORMAT: Final = "strict_date_optional_time"
_MILLISECONDS: Final = re.compile(r"\d{13}|(?!19|20)\d{12}")  # since the epoch; 202612312359 may be a date
_STRICT_DATE: Final = re.compile(  # dates that _FORMAT reads
    r"\d{4}-\d\d-\d\d(T\d\d(:\d\d(:\d\d([.,]\d{1,9})?)?)?(Z|[+-]\d\d:?\d\d)?)?", re.ASCII
)
# By shapes of dates that every mapping reads alike, if it reads them (not 1/2/2026).
_FORMATS: Final = {
    re.sub("[a-zA-Z]", "9", day + time): day + time
    for day in ("yyyy-MM-dd", "yyyy/MM/dd", "dd.MM.yyyy")
    for time in ("", " HH:mm:ss", " HH:mm:ss.SSS")
}
_STEPS: Final = r"(?:(?:[+-]\d*|/)[yMwdhHms])*"
_MATHS: Final = rf"now(?P<maths>{_STEPS})"
NOW: Final = re.compile(_MATHS)
# [now-1d TO now} in query strings, and ts:>=now-1d; there signs may be escaped
LUCENE_STEPS: Final = _STEPS.replace("/", r"\\?/").replace("[+-]", r"\\?[+-]")
_LUCENE_MATHS: Final = rf"now(?P<maths>{LUCENE_STEPS})"
# A side has an end, or of 20,000 brackets each is looked at to the end of the text.
LUCENE_RANGE: Final = re.compile(r"[\[{]\s*\S{1,200}\s+TO\s+\S{1,200}?\s*[\]}]")
_LUCENE_NOW: Final = re.compile(rf'(?<![\w"])(?P<quote>")?{_LUCENE_MATHS}(?(quote)"|(?!["\w]))')
_LUCENE_SIDE: Final = re.compile(rf'(?<=[:(\s+!-])([<>])(=?)("?)({_LUCENE_MATHS})\3(?=[\s()^]|\Z)')
_KQL_SIDE: Final = re.compile(rf'([<>]=?\s*)("?){_MATHS}\2(?=[\s()}}]|\Z)')
_BOUNDS: Final = frozenset(("gt", "gte", "lt", "lte", "from", "to", "min", "max", "origin", "missing"))
_NESTED_BOUNDS: Final = frozenset(("extended_bounds", "hard_bounds", "ranges"))

_NO_DATES: Final = words(
    "combined_fields fuzzy intervals match_phrase_prefix more_like_this prefix simple_query_string wildcard"
)
_DECAYS: Final = frozenset(("exp", "gauss", "linear"))
_TIME: Final = re.compile(r"[\d.]+(d|h|m|s|ms)")
_ANCHOR: Final = secrets.token_hex(16)  # in parts of bodies, in the place of a request's time; in no log
_MAX_PARTS: Final = 2_000
_MAX_PART_BYTES: Final = 4_000


class Freezer(Walk):
    """Replaces ``now`` by the time of a request. Requests share ``parts``, those of bodies with dates so far.

    ``now-1d/d`` becomes ``2024-05-06T07:08:09.000Z||-1d/d``: date maths on an anchor, so that Elasticsearch
    still does the rounding and time zones. If the query has a format, the anchor's format is added to it.
    """

    def __init__(self, at_us: int, parts: dict[tuple[str, bytes], Json]) -> None:
        super().__init__()
        self._at = format_time(at_us)
        self._parts = parts

    def freeze(self, body: dict[str, Json]) -> bytes | None:
        """The body in JSON with its dates fixed; None if it has none."""
        text = orjson.dumps(self.body(body))
        fixed = text.replace(_ANCHOR.encode(), self._at.encode())
        return None if fixed == text else fixed

    def freeze_query(self, text: str) -> str:
        """A Lucene query string, such as the URL's parameter ``q``, with its dates fixed."""
        return self._query_string(text).replace(_ANCHOR, self._at)

    def literal(self, value: Json, key: str, where: str) -> Json:
        if not isinstance(value, str) or "now" not in value or key == "_name" or where in _NO_DATES:
            return value
        if where == "query_string" and key == "query":
            return self._query_string(value)
        if where == "kql" and key == "query":
            return _KQL_SIDE.sub(lambda side: f'{side[1]}"{_fixed(side)}"', value)
        match = NOW.fullmatch(value)
        # the bare word is a date only where a date is required
        if match is None or (not match["maths"] and key not in _BOUNDS):
            return value
        return _fixed(match)

    def options(self, options: dict[str, Json], where: str, *, walked: dict[str, Json]) -> dict[str, Json]:
        bounds = list(_bounds(options, walked))
        if all(before == after for before, after in bounds):
            return walked
        if isinstance(options.get("format"), str):
            return {**walked, "format": f"{options['format']}||{_FORMAT}"}
        others = [str(before) for before, after in bounds if before == after and before is not None]
        formats = dict.fromkeys([_FORMAT, *map(_format_of, others)])
        if where in OF_DATES and "" not in formats:
            # the mapping's format may not accept the anchor
            return {**walked, "format": "||".join(formats)}
        return walked

    def _top(self, key: str, value: Json) -> Json:
        if key == "query":
            return self._query(value)
        return self._part(key, value, lambda part: super(Freezer, self)._top(key, part))

    def _query(self, node: Json) -> Json:
        return super()._query(node) if isinstance(node, list) else self._part("query", node, super()._query)

    def _part(self, key: str, node: Json, walk: Callable[[Json], Json]) -> Json:
        """A part of a body; walks only through what may change, and once through what many bodies have."""
        text = orjson.dumps(node)
        if b"now" not in text and b'"scale"' not in text:
            return node
        part = key, text
        if part in self._parts:
            return self._parts[part]
        walked = orjson.dumps(walk(node))
        fixed = node if walked == text else orjson.Fragment(walked)
        if len(text) <= _MAX_PART_BYTES:
            if len(self._parts) >= _MAX_PARTS:
                self._parts.clear()
            self._parts[part] = fixed
        return fixed

    def _option(self, key: str, value: Json, where: str) -> Json:
        walked = super()._option(key, value, where)
        if key in _DECAYS and where == "function_score" and isinstance(walked, dict):
            return {field: self._decay(options) for field, options in walked.items()}
        return walked

    def _decay(self, options: Json) -> Json:
        """A decay over time; without an origin it starts from now."""
        is_over_time = isinstance(options, dict) and _TIME.fullmatch(str(options.get("scale")))
        if not is_over_time or "origin" in options:
            return options
        return {**options, "origin": _ANCHOR}

    def _query_string(self, text: str) -> str:
        """The ranges in a Lucene query string."""
        text = _LUCENE_SIDE.sub(_as_range, text)
        return LUCENE_RANGE.sub(
            lambda part: _LUCENE_NOW.sub(lambda match: f'"{_fixed(match)}"', part[0]), text
        )


def _fixed(match: re.Match[str]) -> str:
    maths = match["maths"].replace("\\", "")  # within quotes it needs no escapes
    return f"{_ANCHOR}||{maths}" if maths else _ANCHOR


def _format_of(date: str) -> str:
    """The format that matches a date's shape; "" if several might."""
    day = date.partition("||")[0]
    if _STRICT_DATE.fullmatch(day):
        return _FORMAT
    if _MILLISECONDS.fullmatch(date):
        return "epoch_millis"
    return _FORMATS.get(re.sub("[0-9]", "9", day), "")


def _as_range(side: re.Match[str]) -> str:
    """``>=now-1d`` as the equivalent range ``[now-1d TO *]``, which accepts a quoted date."""
    if side[1] == ">":
        return f"{'[' if side[2] else '{'}{side[4]} TO *]"
    return f"[* TO {side[4]}{']' if side[2] else '}'}"


def _bounds(options: dict[str, Json], walked: dict[str, Json]) -> Iterator[tuple[Json, Json]]:
    """Each bound of a query or an aggregation, before and after, in the query's order."""
    for key in filter(_BOUNDS.__contains__, options):
        yield options[key], walked[key]
    for key in filter(_NESTED_BOUNDS.__contains__, options):
        parts = (each if isinstance(each, list) else [each] for each in (options[key], walked[key]))
        for before, after in zip(*parts, strict=True):
            if isinstance(before, dict):
                yield from _bounds(before, after)
