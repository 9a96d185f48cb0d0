"""Turns one search of a log into a line of ``queries.ndjson``, or the reason why it is not raced.

Replaces dates relative to "now" by the log's time; hashes literals if requested.
"""

import base64
import hashlib
import ipaddress
import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import orjson

from esrally_ebs.workload.queries.dates import LUCENE_RANGE, LUCENE_STEPS, NOW, Freezer
from esrally_ebs.workload.queries.dsl import PATHS_OF_ALL, Json, Walk
from esrally_ebs.workload.queries.search import FIRST_US, LoggedSearch, Reason, words
from esrally_ebs.workload.queries.shapes import LIMIT, Shape, Shapes, Templates, asked_of, is_object

AUTO: Final = "auto"
_MAX_NAMES: Final = 10_000
_MAX_TARGETS: Final = 3_500  # of the 4,096 bytes that a node accepts for the request line
_LATEST_US: Final = 253_402_300_799_999_999  # end of the year 9999; as many digits as the ordering has
_FORBIDDEN: Final = re.compile(r'[\\/"<>| \t\r\n#:\ud800-\udfff]')  # the last: bytes that are no UTF-8
_REMOTE: Final = re.compile(r"-?[\w*.-]+:[^:]+\Z")  # cluster:index
# where a date relative to now may begin; JSON may have < and > as \u003c and \u003e
_MAY_BE_NOW: Final = re.compile(r"""now\b(?:(?<=["'\[{ :=<>]now)|(?<=\\u00[0-9a-fA-F]{2}now))""")
# a data stream's index, also when mounted from a snapshot or reindexed for an upgrade
_BACKING: Final = re.compile(r"(?:\w[\w-]*-)?\.(?:migrated-)?ds-(.+?)(?:-\d{4}\.\d\d\.\d\d)?-\d{6,}")
DATES_FIXED: Final = "dates fixed to the time of the log"
DATES_GUESSED: Final = "dates fixed to when the log was last written, as it has none of its own"
NARROWED: Final = "narrowed to the index"
NODES_UNNAMED: Final = "preference for some nodes taken off, as the nodes of a race are others"
UNLIMITED: Final = "time limits taken off, as what is not answered in time would depend on the volume"
_OF_NODES: Final = re.compile(r"(?:\A|\|)_(?:only|prefer)_nodes:.*")  # after _shards:1| or alone
_WRAPPER: Final = re.compile(r'\{\s*"wrapper"\s*:\s*\{\s*"query"\s*:\s*"([\w+/=]+)"\s*\}\s*\}')


# Real months and days only, and no zone without a time: 4111-22-3333 is somebody's number.
_MONTH, _DAY = r"\d{4}-(0[1-9]|1[0-2])", r"(0[1-9]|[12]\d|3[01])"
_CLOCK: Final = r"\d\d(:\d\d(:\d\d([.,]\d+)?)?)?(Z|[+-]\d\d(:?\d\d)?)?"
_ISO_TIME: Final = rf"{_MONTH}(-{_DAY}([T ]{_CLOCK})?)?"
_ISO_DATE: Final = re.compile(rf"{_ISO_TIME}(\|\|{LUCENE_STEPS})?")
_DATE: Final = re.compile(  # day or year first
    r"(?:(?:19|20)\d\d([/.-])\d\d?\1\d\d?|\d\d?([/.-])\d\d?\2(?:19|20)\d\d)"
    r"(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)?"
)
# Vowel signs, separate accents and joiners belong to the word that they are in. As ranges, since re searches
# for characters beyond the first 65,536 one by one.
_MAJORS: Final = "".join(unicodedata.category(chr(code))[0] for code in range(0x20000))
_MARKS: Final = "\u200c\u200d\U000e0100-\U000e01ef" + "".join(
    f"{chr(run.start())}-{chr(run.end() - 1)}" for run in re.finditer("M+", _MAJORS)
)
_WORD: Final = rf"\w[\w{_MARKS}]*+"
_TOKEN: Final = re.compile(_WORD)
_OPERATORS: Final = frozenset(("AND", "OR", "NOT", "TO", "true", "false"))
# Numbers after ^ and ~ are boosts and fuzziness. Words before a colon are fields, and so are those of
# "exists", in languages with fields; within a phrase or a range there are none. Colons of an address are
# escaped, except in a range.
_QUERY_WORD: Final = re.compile(
    r'"(?P<phrase>(?:[^"\\]|\\.)*+)"'
    rf"|(?P<kept>[\^~][\d.]+|\|\|{LUCENE_STEPS}(?!\w))"
    r"|\b\d+(?:\.\d+){3}(?:\\?/\d{1,3})?\b"
    r"|(?P<colons>(?:(?<![\w\\])(?:[\da-fA-F]{0,4}\\:){2,7}|(?<=[\[{\s])(?:[\da-fA-F]{0,4}:){2,7})"
    r"[\da-fA-F]{0,4}(?:\\?/\d{1,3})?(?![\w:\\]))"
    rf"|(?P<field>_exists_\s*+:\s*+\S+|\b{_WORD}(?=(?:[\w{_MARKS}.*-]|\\.){{0,255}}+\s*+:))|{_WORD}",
    re.DOTALL,
)
_MASK: Final = re.compile(r"(.+?)(\\?/\d{1,3})")  # in query strings its sign is escaped
_ANY_INTEGER_DIGITS: Final = 9  # so many digits always make an integer
# a phrase, or group 1: a regular expression
_QUERY_REGEXP: Final = re.compile(r'"(?:[^"\\]|\\.)*"|((?:\A|(?<=[:\s(+!-]))/.+?/)', re.DOTALL)
_WITH_INCLUDE: Final = words("frequent_item_sets rare_terms significant_terms significant_text terms")
_NOT_HASHED: Final = re.compile("geo|shape")  # beginnings of kinds whose strings are places
_OF_BOUNDS: Final = re.compile(r"(?:.*_)?(?:range|histogram)")  # queries and aggregations
_ISO_TIME_IN_QUERY: Final = _ISO_TIME.replace(":", r"\\?:")  # its colons may be escaped
_DATE_IN_QUERY: Final = re.compile(rf"(?<![\w-]){_ISO_TIME_IN_QUERY}(?![\w-])")
_BOUNDS_IN_QUERY: Final = re.compile(
    rf"{_DATE_IN_QUERY.pattern}|{LUCENE_RANGE.pattern}|(?<=[:(\s+!-])[<>]=?[^\s()]+"
)
# a number, or its part before the exponent's sign; or the part of a date between two signs
_PART_OF_BOUND: Final = re.compile(r"\d+(T\d+|[eE]\d*)?Z?")
_LETTER: Final = re.compile(r"[^\W\d_]")
_DEGREES: Final = r"-?\d{1,3}(\.\d+)?"
_POINT: Final = re.compile(rf"{_DEGREES}, *{_DEGREES}|POINT *\( *{_DEGREES} +{_DEGREES} *\)", re.IGNORECASE)
_FILTER_OF_PATH: Final = re.compile(r"\['([^']+)'\]")  # in a path to an aggregation
# An aggregation's name in a path: up to one within it, a bucket or metric in brackets, or the last dot.
_STEP_OF_PATH: Final = re.compile(  # blanks are skipped at once, or each of a row is looked at to its end
    rf"((?:\A|>)\s*)(?!(?:{'|'.join(PATHS_OF_ALL)})\s*(?:>|\Z))([^>\[\s]+?(?:\s++[^>\[\s]+?)*?)"
    r"(?=\s*+(?:[>\[]|\.[^.>\[]+\Z|\Z))"
)
# A script's string, comment or regular expression; group 1 shows that a string is a field or a parameter.
# One between brackets is a literal if these begin a list, or look up what the script itself has put there.
_OF_FIELDS: Final = r"\b(?:_fields|_source|ctx|doc|params|state)"
_WITH_FIELD: Final = r"\b(?:cosineSimilarity|dotProduct|hamming|l[12]norm|maxSim\w+|randomScore)"
_SCRIPT_STRING: Final = re.compile(
    rf"(?:((?:{_OF_FIELDS}|\])\s*\[|{_OF_FIELDS}\.containsKey\(|\bfield\(|\$\("
    rf"|{_WITH_FIELD}\(\s*params\.\w+,)\s*)?"
    r"""(?:'[^']*'|"[^"]*")"""
    r"|/[/*]|(?:\A|[(\[=~,!?:&|<>{};]|(?<!\+)\+|\breturn)\s*/"
)
_SORTED_MISSING: Final = frozenset(("_first", "_last"))


class Hasher(Walk):
    """Hashes strings consistently, word by word, so that the number of words stays.

    Numbers, dates, and points on the map stay; strings of digits become other digits, addresses other
    addresses. ``refused``: some string cannot be hashed without making the query fail.
    """

    def __init__(self) -> None:
        super().__init__()
        self.refused = False

    def literal(self, value: Json, key: str, where: str) -> Json:
        is_name = key in ("_name", "key")
        if not isinstance(value, str) or (_NOT_HASHED.match(where) and not is_name):
            return value
        if (
            where in ("regexp", "kql", "wrapper")
            or key == "categorization_filters"
            or (key == "regex" and not where)  # a suggestion's
            or (where == "query_string" and has_regexp(value))
            or (where in _WITH_INCLUDE and key in ("include", "exclude"))
        ):
            self.refused = True
            return value
        if (key == "missing" and value in _SORTED_MISSING) or (key == "from" and not where):
            return value
        if key == "query_vector" and where in ("", "knn"):  # hexadecimal numbers
            return value
        is_bound = _OF_BOUNDS.fullmatch(where) and not is_name and not _LETTER.search(value)
        if is_bound and _address(value.partition("/")[0]) is None:  # nor a network
            return value  # a number or a date: nothing would lie between others
        if where.endswith("query_string"):
            return hash_query(value, has_fields=where == "query_string")
        return hash_text(value)

    def named(self, parts: dict[str, Json]) -> dict[str, Json]:
        return {_hash_name(name): walked for name, walked in parts.items()}

    def data(self, parts: dict[str, Json]) -> Json:
        self.refused = True  # the script may name its keys, or look them up by what documents hold
        return parts

    def path(self, text: str) -> str:
        text = _FILTER_OF_PATH.sub(lambda name: f"['{_hash_name(name[1])}']", text)
        return _STEP_OF_PATH.sub(lambda step: step[1] + _hash_name(step[2]), text)

    def _option(self, key: str, value: Json, where: str) -> Json:
        if key == "regexp" and where == "intervals":
            self.refused = True
        return super()._option(key, value, where)

    def _script(self, node: Json) -> Json:
        source = node.get("source") if isinstance(node, dict) else node
        if not isinstance(source, str) or "" in _SCRIPT_STRING.findall(source):
            self.refused = True
        return super()._script(node)


def has_regexp(text: str) -> bool:
    """Whether a Lucene query string has a regular expression, which hashing would change or break."""
    return any(_QUERY_REGEXP.findall(text))


def hash_query(text: str, *, has_fields: bool = True) -> str:
    """A query string with hashed words; operators, dates, bounds and Lucene's fields stay."""
    kept = _BOUNDS_IN_QUERY if has_fields else _DATE_IN_QUERY  # without fields there are no ranges
    bounds = [bound.span() for bound in kept.finditer(text)]

    def hashed(word: re.Match[str]) -> str:
        phrase = word["phrase"]
        number = bisect_right(bounds, (word.start(), len(text)))
        is_bound = number > 0 and word.start() < bounds[number - 1][1]
        if phrase is not None:
            return f'"{phrase if is_bound and not _LETTER.search(phrase) else hash_text(phrase)}"'
        if word["colons"]:
            plain = word[0].replace(r"\:", ":")
            is_time = is_bound and not _LETTER.search(plain) and _address(plain) is None
            return word[0] if is_time else hash_text(plain).replace(":", r"\:" if r"\:" in word[0] else ":")
        is_part = is_bound and _PART_OF_BOUND.fullmatch(word[0])
        is_kept = word["kept"] or (has_fields and word["field"] and not is_bound) or is_part
        return word[0] if is_kept else hash_text(word[0])

    return _QUERY_WORD.sub(hashed, text)


def hash_text(text: str) -> str:
    """A string with each word hashed; blanks and wildcards between words stay."""
    if any(kind.fullmatch(text) for kind in (_ISO_DATE, _DATE, NOW, _POINT)):
        return text
    mask = _MASK.fullmatch(text)
    if mask and _address(mask[1]):
        return hash_text(mask[1]) + mask[2]
    address = _address(text)
    return _TOKEN.sub(lambda word: _hash_word(word[0]), text) if address is None else _hash_address(address)


def _hash_word(word: str) -> str:
    if word in _OPERATORS:
        return word
    if word.isascii() and word.isdigit():
        number = int.from_bytes(_digest(word))
        digits = str(number)[1 : len(word) + 1].zfill(len(word))[: len(word)]
        return digits if len(word) <= _ANY_INTEGER_DIGITS else f"0{digits[1:]}"  # which is no larger
    return _hash_name(word)


def _hash_name(text: str) -> str:
    return f"h{_digest(text).hex()}"[:13]


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _hash_address(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    digest = _digest(str(address))
    if address.version == 4:
        return "10." + ".".join(str(byte) for byte in digest[:3])
    return str(ipaddress.IPv6Address(b"\xfd" + digest[:15]))


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    format: str = AUTO
    index: str | None = None  # keep only requests that reach it, and send them to it alone; "*" is a wildcard
    hash_literals: bool = False
    modules: bool = True  # whether the raced node has modules (painless, x-pack ...)


class ReplayedRequest(NamedTuple):
    """A request to race."""

    at_us: int
    fields: bytes  # its line in queries.ndjson, from "method" on
    template: str  # its name


class Preparer:
    """Prepares searches one by one, and counts changes; uses bounded memory.

    ``written_us``: when the log was last written, the meaning of ``now`` in a log without dates.
    """

    def __init__(self, options: Options, *, written_us: int) -> None:
        self.templates = Templates()
        self.changed: Counter[str] = Counter()
        self.indices: dict[str, Reason | str] = {}  # targets in the log -> the request's targets, or a reason
        self.needed: set[str] = set()  # names of all targets that requests require
        self._last: set[str] = set()  # targets whose names ``needed`` has
        self._index = options.index
        self._hash = options.hash_literals
        self._written_us = written_us
        self._shapes = Shapes(modules=options.modules)
        self._parts: dict[tuple[str, bytes], Json] = {}  # of bodies, with dates

    def request(self, search: LoggedSearch) -> ReplayedRequest | Reason:
        targets = self._reached(search.targets)
        body = _unwrapped(search.body)
        shape = self._shapes.of(body)
        if isinstance(targets, Reason):
            # a point in time has its own indices
            return Reason.PIT if shape.reason is Reason.PIT else targets
        if not 0 <= search.at_us <= _LATEST_US:
            return Reason.LINE
        if shape.reason is not None:
            return shape.reason
        rewritten = self._rewritten(search, body, shape)
        if rewritten is None:
            return Reason.HASHED_REGEXP
        params = self._params(search) if search.params else {}
        has_limit = params.pop(LIMIT, None) is not None or shape.has_limit
        self._count_changes(search, targets, has_limit=has_limit)
        template = self.templates.of(shape, asked_of(targets, params))
        template.add(search.took_ms)
        # without its only index a request would measure nothing
        is_needed = "," not in targets or params.get("ignore_unavailable", "false") == "false"
        if is_needed and targets not in self._last:
            self._note_names(targets)
        fields = {
            "method": "POST",
            "path": _path(targets),
            "params": params,
            "body": rewritten,
            "took_ms": search.took_ms,
            "hits": search.hits,
            "client": search.client,
            "template": template.name,
        }
        line = orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)
        return ReplayedRequest(search.at_us, line[1:], template.name)

    def _note_names(self, targets: str) -> None:
        if len(self._last) >= _MAX_NAMES:
            self._last.clear()
        self._last.add(targets)
        self.needed.update(targets.split(","))

    def _count_changes(self, search: LoggedSearch, targets: str, *, has_limit: bool) -> None:
        if search.change:
            self.changed[search.change] += 1
        if self._index is not None and targets != search.targets:
            self.changed[NARROWED] += 1
        if has_limit:
            self.changed[UNLIMITED] += 1

    def _rewritten(self, search: LoggedSearch, body: str, shape: Shape) -> Any:  # noqa: ANN401
        """The body with fixed dates and hashed literals, without time limit; None if it cannot be hashed."""
        has_dates = ("now" in body and _MAY_BE_NOW.search(body)) or '"scale"' in body
        is_changed = shape.has_limit or "\n" in body or "\r" in body
        if not (has_dates or is_changed or self._hash):
            return orjson.Fragment(body)
        node = orjson.loads(body)
        node.pop(LIMIT, None)
        fixed = self._freezer(search).freeze(node) if has_dates else None
        if fixed is not None:
            self._count_dates(search)
        if not self._hash:
            return orjson.Fragment(fixed or body) if fixed or not is_changed else node
        if has_regexp(dict(search.params).get("q", "")):
            return None
        hasher = Hasher()
        hashed = hasher.body(orjson.loads(fixed) if fixed else node)
        return None if hasher.refused else hashed

    def _freezer(self, search: LoggedSearch) -> Freezer:
        # smaller times are relative to the log's begin
        return Freezer(search.at_us if search.at_us >= FIRST_US else self._written_us, self._parts)

    def _count_dates(self, search: LoggedSearch) -> None:
        self.changed[DATES_FIXED if search.at_us >= FIRST_US else DATES_GUESSED] += 1

    def _params(self, search: LoggedSearch) -> dict[str, str]:
        """The URL's parameters with fixed dates and hashed literals."""
        params = dict(search.params)
        if "now" in params.get("q", ""):
            params["q"] = self._freezer(search).freeze_query(params["q"])
            if params["q"] != dict(search.params)["q"]:
                self._count_dates(search)
        if _OF_NODES.search(params.get("preference", "")):
            shards = _OF_NODES.sub("", params.pop("preference"))
            params |= {"preference": shards} if shards else {}
            self.changed[NODES_UNNAMED] += 1
        if self._hash:
            hashes = {
                "q": hash_query,
                "preference": _hash_preference,
                "routing": hash_text,
                "stats": hash_text,
                "suggest_text": hash_text,
            }
            params = {name: hashes.get(name, str)(value) for name, value in params.items()}
        return params

    def _reached(self, targets: str) -> str | Reason:
        reached = self.indices.get(targets)
        if reached is None:
            if len(self.indices) >= _MAX_NAMES:
                self.indices.clear()
            reached = self.indices[targets] = self._new_targets(targets)
        return reached

    def _new_targets(self, targets: str) -> str | Reason:
        """Indices for the request."""
        names = [name.removesuffix("::data") for name in targets.split(",") if name]
        if reason := why_no_index(names):
            return reason
        if self._index is not None:
            narrowed = [_narrowed(names, index) for index in self._index.split(",")]
            # each name once, at its last place: exclusions follow all patterns that they apply to
            last = dict.fromkeys(name for kept in reversed(narrowed) for name in reversed(kept))
            names = list(reversed(last))
        targets = ",".join(names)
        if len(_quoted(targets)) > _MAX_TARGETS:
            return Reason.MANY
        return targets or (Reason.NO_INDEX if self._index is None else Reason.OTHER_INDEX)


def why_no_index(names: Sequence[str], *, signs: str = "_+") -> Reason | None:
    """Why these cannot be names of indices to search; None if they can. No name begins with ``signs``."""
    if any(name.startswith("<") for name in names):
        return Reason.DATE_INDEX
    if any(_REMOTE.match(name) for name in names):
        return Reason.CLUSTER
    if any(name.endswith("::failures") for name in names):
        return Reason.FAILURES
    if any(not name.strip(".") or _FORBIDDEN.search(name) for name in names):
        return Reason.INDEX
    # beside other names, _all is as invalid as any name with an underscore
    return Reason.INDEX if any(name[0] in signs for name in names) and names != ["_all"] else None


def _narrowed(names: Sequence[str], index: str) -> Sequence[str]:
    """The part of a search of these names that stays on ``index``, a name or pattern; empty for none.

    If a URL cannot hold that, the pattern itself, most likely what was asked: slow logs name shards.
    """
    if "*" not in index:
        return [index] if _reaches(names, index) else []
    kept: list[str] = []
    has_pattern = False  # without a pattern before it, a minus is part of a name, which none has
    for name in names or ["_all"]:
        own = _within(name, index)
        if own == f"-{index}":
            if has_pattern:
                kept.clear()
        elif own.startswith("-"):
            if any("*" in each for each in kept) and _may_overlap(own[1:], index):
                kept.append(own)
        elif any(fnmatchcase(each, index) for each in _names_of(own)):
            kept.append(own)
        has_pattern |= "*" in name
    return kept if len(_quoted(",".join(kept))) <= _MAX_TARGETS else [index]


def _within(name: str, index: str) -> str:
    """The part of a name within a pattern of indices: the pattern, if the name is a wider pattern."""
    sign = "-" if name.startswith("-") else ""
    is_wider = name == "_all" or fnmatchcase(index, name.removeprefix("-"))
    return f"{sign}{index}" if is_wider else name


def _may_overlap(name: str, index: str) -> bool:
    """Whether some index may match both a name and a pattern; compares patterns by beginning and end."""
    if "*" not in name:
        return fnmatchcase(name, index)
    begins = [pattern.partition("*")[0] for pattern in (name, index)]
    ends = [pattern.rpartition("*")[2] for pattern in (name, index)]
    (begin, longer_begin), (end, longer_end) = sorted(begins, key=len), sorted(ends, key=len)
    return longer_begin.startswith(begin) and longer_end.endswith(end)


def _reaches(names: Sequence[str], index: str) -> bool:
    """Whether a search of these names includes the index; the last matching name decides."""
    fitting = [
        name for name in names if name == "_all" or any(fnmatchcase(index, each) for each in _names_of(name))
    ]
    return not names or (bool(fitting) and not fitting[-1].startswith("-"))


def _names_of(name: str) -> Sequence[str]:
    """An index's name and that of its data stream, which slow logs lack."""
    backing = _BACKING.fullmatch(name)
    return (name, backing[1]) if backing else (name.removeprefix("-"),)


def _hash_preference(text: str) -> str:
    """Hashes a user's preference; ``_local`` and the like are Elasticsearch's, also before a user's."""
    own, bar, users = text.partition("|") if text.startswith("_") else ("", "", text)
    return f"{own}{bar}{users if users.startswith('_') else hash_text(users)}"


@lru_cache(maxsize=4096)
def _path(targets: str) -> str:
    return f"/{_quoted(targets)}/_search"


def _quoted(targets: str) -> str:
    return quote(targets, safe=",*")


def _unwrapped(body: str | None) -> str:
    """The body with Base64 queries of its client (Spring's) decoded."""
    if body is None:
        return ""  # not JSON
    return _WRAPPER.sub(_decoded, body) if '"wrapper"' in body else body or "{}"


def _decoded(wrapper: re.Match[str]) -> str:
    """The query in a wrapper; the wrapper itself if that is not JSON."""
    try:
        query = base64.b64decode(wrapper[1], validate=True).decode()
    except ValueError:
        return wrapper[0]
    return query if is_object(query) else wrapper[0]
