"""The shape of a query (all but its literals), and templates: queries grouped by shape.

A million bodies are not walked through one by one: a regular expression reads the JSON's tokens and gives a
key without literals (the skeleton); only a new skeleton is walked through (``dsl``). The shape is made from
the skeleton alone, so it cannot depend on a literal.
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from esrally_ebs.workload.queries.dsl import MODULE_PARTS, PARTS, PATHS_OF_ALL, Walk
from esrally_ebs.workload.queries.search import Reason, words

_LITERAL_PARAMS: Final = words("from preference q routing stats suggest_text terminate_after")
_MAX_VALUE_CHARS: Final = 200  # of other URL parameters, so that targets stay as short as names
MAX_DEPTH: Final = 60
LIMIT: Final = "timeout"
_MAX_SKELETONS: Final = 50_000
_MAX_CHARS: Final = 16 << 20  # of skeletons with shapes, and of the shapes looked up last
_MAX_SHAPE_CHARS: Final = 8_000  # longer shapes are identified by their hash, so that all fit into memory
_MAX_BODIES: Final = 10_000  # most recent ones; a dashboard's queries mostly repeat
_MAX_BODY_CHARS: Final = 2_000
_REST: Final = r'[^"\\]*+(?:"|(?:\\.[^"\\]*+)++")'  # rest of a string; possessive, so nothing is tried twice
_STRING: Final = f'"{_REST}'
_BLANKS: Final = r"[ \t\r\n]*+"
_COLON: Final = f"{_BLANKS}:{_BLANKS}"
_ITEMS: Final = rf"(?:[-+., \t\r\n0-9A-Za-z]++|{_STRING})"  # in a list of words, numbers and strings
_LIST: Final = rf"\[{_ITEMS}*+\]"
_LITERALS: Final = rf"(?!{_BLANKS}\]){_ITEMS}++(?=\])"  # all elements of such a list, which are one literal
_KEPT_NUMBERS: Final = "size|shard_size|k|num_candidates|track_total_hits"
_KEPT_STRINGS: Final = (
    "field|fields|default_field|path|type|mode|score_mode|boost_mode|operator|default_operator|interval|"
    "calendar_interval|fixed_interval|sort|_source|includes|excludes|docvalue_fields|stored_fields"
)
_FIELD_QUERIES: Final = "match|match_phrase|prefix|term|wildcard"  # where a value may follow the field's name
# A match is a run of structure (group 1), and the following literal, if any. Structure: brackets, commas,
# keys, keys with a value that is kept, and words that are never literals.
_RUN: Final = re.compile(
    rf'((?:"(?:(?:{_FIELD_QUERIES})"{_COLON}\{{{_BLANKS}"(?:path|type)"{_COLON}'
    rf'|(?:{_KEPT_STRINGS})"{_COLON}(?:{_STRING}|{_LIST}|true|false)'
    rf'|(?:{_KEPT_NUMBERS})"{_COLON}(?:true|false|"[0-9]++"|[0-9]++(?![.\w]))|interval"{_COLON}[-+.0-9Ee]++'
    rf'|lang"{_COLON}"(?:painless|expression)"'
    rf'|(?:asc|desc|ASC|DESC|_score|_doc)"|{_REST}{_COLON})'
    rf"|[\]{{}}, \t\r\n]++|\[(?!{_LITERALS}))*+\[?+)(?:(?<=\[){_LITERALS}|{_STRING}|[-+.0-9A-Za-z]++)?+"
)
_ANY_STRING: Final = re.compile(_STRING)
_PAINLESS: Final = (None, "painless", "expression")
_LITERAL: Final = "?"
OF_DATES: Final = ("date_histogram", "date_range", "range")  # whose bounds may be fixed, and given a format
MAX_TEMPLATES: Final = 2_000  # further shapes share one template, OTHER
OTHER: Final = "other"
_MAX_LAST: Final = 50_000
# 50 buckets per factor of e: percentiles are within 1 % of the log's
_BUCKETS_PER_E: Final = 50
_LEAST_MS: Final = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shape:
    """Common properties of bodies with one shape; ``reason``: why they cannot be raced, or None."""

    reason: Reason | None
    text: str = ""  # canonical JSON with "?" for literals
    label: str = ""  # short description for use in a name: "range-date_histogram"
    has_limit: bool = False  # a time limit


_NO_OBJECT: Final = Shape(reason=Reason.BODY)


class Shapes:
    """All shapes so far. ``modules``: whether the node has modules (painless, x-pack ...)."""

    def __init__(self, *, modules: bool = True) -> None:
        self._modules = modules
        self._by_skeleton: dict[str, Shape] = {}
        self._chars = 0  # of ``_by_skeleton``
        self._by_body: dict[str, Shape] = {}

    def of(self, body: str) -> Shape:
        """A body's shape; with a reason if the body is no JSON object."""
        shape = self._by_body.get(body)
        if shape is None:
            shape = self._of_skeleton(body) if is_object(body) else _NO_OBJECT
            if len(self._by_body) >= _MAX_BODIES:
                self._by_body.clear()
            if len(body) <= _MAX_BODY_CHARS:
                self._by_body[body] = shape
        return shape

    def _of_skeleton(self, body: str) -> Shape:
        skeleton = "\n".join(_RUN.findall(body))
        shape = self._by_skeleton.get(skeleton)
        if shape is None:
            shape = self._new(body)
            self._chars += len(skeleton) + len(shape.text)
            if len(self._by_skeleton) >= _MAX_SKELETONS or self._chars > _MAX_CHARS:
                self._by_skeleton.clear()
                self._chars = len(skeleton) + len(shape.text)
            self._by_skeleton[skeleton] = shape
        return shape

    def _new(self, body: str) -> Shape:
        if depth(body) > MAX_DEPTH:
            return Shape(reason=Reason.DEEP)
        walk = _Shaper()
        node = walk.body(orjson.loads(_RUN.sub(_without_literal, body)))
        has_limit = node.pop(LIMIT, None) is not None  # is not asked for, so it makes no template
        text = orjson.dumps(node, option=orjson.OPT_SORT_KEYS)
        parts = [name for name in ("knn", "suggest") if name in node]  # which search like queries
        asked = (*parts, *walk.queries, *walk.aggregations)
        names = list(dict.fromkeys(name for name in asked if name != "bool"))
        label = "-".join(re.sub(r"[^a-z0-9_]", "", name) for name in names[:4]) or "match_all"
        reason = self._reason(node, walk)
        return Shape(reason=reason, text=_shortened(text).decode(), label=label, has_limit=has_limit)

    def _reason(self, node: dict[str, Any], walk: Walk) -> Reason | None:
        checks = (
            (Reason.PIT, "pit" in node),
            (Reason.SCROLL, "slice" in node),  # only scrolls use slices
            (Reason.SCRIPT, not all(_is_painless(script) for script in walk.scripts)),
            (Reason.PART, bool(node.keys() - PARTS - MODULE_PARTS)),
            (Reason.VECTOR, "knn_score_doc" in walk.queries),
            (Reason.QUERY, walk.unknown_query),
            (Reason.AGGREGATION, walk.unknown_aggregation),
            (Reason.MODULE, not self._modules and (walk.needs_modules or bool(node.keys() & MODULE_PARTS))),
        )
        return next((reason for reason, holds in checks if holds), None)


class _Shaper(Walk):
    """Replaces literals by "?"; a list of only literals is one literal."""

    def literal(self, value: Any, key: str, where: str) -> Any:  # noqa: ANN401
        return _LITERAL

    def options(self, options: dict[str, Any], where: str, *, walked: dict[str, Any]) -> dict[str, Any]:
        # formats of dates count as literals; replacing dates may have added them
        return {key: value for key, value in walked.items() if where not in OF_DATES or key != "format"}

    def named(self, parts: dict[str, Any]) -> dict[str, Any]:
        shapes = sorted(parts.values(), key=lambda one: orjson.dumps(one, option=orjson.OPT_SORT_KEYS))
        # weighted words are one literal
        return {_LITERAL: shapes[:1] if shapes[:1] == [_LITERAL] else shapes} if shapes else {}

    def data(self, parts: dict[str, Any]) -> Any:  # noqa: ANN401
        return _LITERAL

    def path(self, text: str) -> str:
        return text if text in PATHS_OF_ALL else _LITERAL

    def _list(self, walked: list[Any]) -> list[Any]:
        # also a polygon's points, lists or objects of literals
        return walked[:1] if all(part == walked[0] for part in walked) else walked


def _shortened(text: bytes) -> bytes:
    """A shape's text; if too long to keep, its size and hash."""
    if len(text) <= _MAX_SHAPE_CHARS:
        return text
    return orjson.dumps(f"{len(text):,} bytes, {hashlib.blake2b(text, digest_size=16).hexdigest()}")


def is_object(text: str) -> bool:
    """Whether a text is an object in JSON."""
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def depth(body: str) -> int:
    """Nesting depth of objects and lists in a JSON text."""
    level = deepest = 0
    for char in _ANY_STRING.sub("", body):
        if char in "{[":
            level += 1
            deepest = max(deepest, level)
        elif char in "}]":
            level -= 1
    return deepest


def _without_literal(run: re.Match[str]) -> str:
    return run[1] if run[0] == run[1] else f'{run[1]}"{_LITERAL}"'


def _is_painless(script: Any) -> bool:  # noqa: ANN401
    if not isinstance(script, dict):
        return True
    return "id" not in script and script.get("lang") in _PAINLESS


def asked_of(names: str, params: Mapping[str, str]) -> str:
    """Indices and URL parameters, with literals replaced as in the same parts of a body."""
    if not params:
        return names
    asked = (
        name if name in _LITERAL_PARAMS else f"{name}={value:.{_MAX_VALUE_CHARS}}"
        for name, value in sorted(params.items())
    )
    return f"{names}?{'&'.join(asked)}"


class Template:
    """Queries that differ only in literals."""

    def __init__(self, name: str, target: str, shape: str) -> None:
        self.name = name
        self.target = target  # indices and URL parameters: "logs-?", "logs-??q&size=10"
        self.shape = shape
        self.count = 0
        self._took: Counter[int] = Counter()

    def add(self, took_ms: float | None) -> None:
        self.count += 1
        if took_ms is not None:
            self._took[math.floor(math.log(took_ms + _LEAST_MS) * _BUCKETS_PER_E)] += 1

    def took_ms(self) -> dict[str, float] | None:
        """Percentiles of the log's durations; None if the log has none."""
        total = sum(self._took.values())
        if not total:
            return None
        return {f"p{p}": self._percentile(math.ceil(total * p / 100)) for p in (50, 90, 99)}

    def _percentile(self, rank: int) -> float:
        for bucket in sorted(self._took):
            rank -= self._took[bucket]
            if rank <= 0:
                break
        value = math.exp((bucket + 0.5) / _BUCKETS_PER_E) - _LEAST_MS
        return float(f"{max(value, 0.0):.3g}")


class Templates:
    def __init__(self) -> None:
        self._by_shape: dict[tuple[str, str], Template] = {}
        self._last: dict[tuple[Shape, str], Template] = {}  # likewise, with a key that is faster to look up
        self._last_chars = 0
        self._other: Template | None = None

    def of(self, shape: Shape, target: str) -> Template:
        """The template for a query of this shape and target.

        Ignores numbers in names: of a week's indices, a slow log has only the slow ones.
        """
        template = self._last.get((shape, target))
        if template is None:
            self._last_chars += len(shape.text) + len(target)
            if len(self._last) >= _MAX_LAST or self._last_chars > _MAX_CHARS:
                self._last.clear()
                self._last_chars = len(shape.text) + len(target)
            names, mark, params = target.partition("?")  # "?" is in no index's name
            alike = dict.fromkeys(re.sub(r"\d+", "?", names).split(","))
            template = self._last[shape, target] = self._of(shape, f"{','.join(alike)}{mark}{params}")
        return template

    def _of(self, shape: Shape, target: str) -> Template:
        key = (target, shape.text)
        template = self._by_shape.get(key)
        if template is not None:
            return template
        if len(self._by_shape) >= MAX_TEMPLATES:
            self._other = self._other or Template(OTHER, "", "")
            return self._other
        digest = hashlib.blake2b(f"{target}\n{shape.text}".encode(), digest_size=5).hexdigest()
        template = self._by_shape[key] = Template(f"{shape.label[:48]}-{digest}", target, shape.text)
        return template

    def ranked(self) -> list[Template]:
        """The most frequent first; equally frequent ones by name."""
        used = [*self._by_shape.values(), *([self._other] if self._other else [])]
        return sorted(used, key=lambda template: (-template.count, template.name))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Rows of ``templates.json``."""
        ranked = self.ranked()
        total = sum(template.count for template in ranked)
        for template in ranked:
            yield {
                "name": template.name,
                "target": template.target,
                "count": template.count,
                "share": round(template.count / total, 6),
                "took_ms": template.took_ms(),
                "shape": orjson.loads(template.shape) if template.shape else None,
            }
