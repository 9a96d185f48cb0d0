"""One search of a log to one line of ``queries.ndjson``, or the reason why it is not raced."""

import re
from collections import Counter
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import orjson

from esrally_ebs.workload.queries.literals import Freezer, Hasher, hash_query, hash_text
from esrally_ebs.workload.queries.search import LoggedSearch, Reason
from esrally_ebs.workload.queries.shapes import Shapes
from esrally_ebs.workload.queries.templates import Templates

_MAX_NAMES: Final = 10_000
_LATEST_US: Final = 10**18 - 1  # as many digits as the order has
_FORBIDDEN: Final = frozenset('\\/"<>| \t\r\n#:')
_REMOTE: Final = re.compile(r"-?[\w*.-]+:[^:]+\Z")  # cluster:index
_NOW: Final = re.compile(r"""["'\[{ :=<>]now\b""")  # where a date may begin that means now
DATES_FIXED: Final = "dates fixed to the time of the log"
NARROWED: Final = "narrowed to the index"


class ReplayedRequest(NamedTuple):
    """A request that will be raced."""

    at_us: int
    fields: str  # its line in queries.ndjson, from "method" on
    template: str  # its name


class Preparer:
    """Prepares one search after the other and counts what it changes; its memory is bounded."""

    def __init__(self, *, index: str | None, hash_literals: bool, modules: bool) -> None:
        self.templates = Templates()
        self.changed: Counter[str] = Counter()
        self.indices: dict[str, Reason | str] = {}  # targets in the log -> the request's, or the reason
        self._index = index
        self._hash = hash_literals
        self._shapes = Shapes(modules=modules)

    def request(self, search: LoggedSearch) -> ReplayedRequest | Reason:
        """The request, or why there is none."""
        targets = self._reached(search.targets)
        if isinstance(targets, Reason):
            return targets
        if not 0 <= search.at_us <= _LATEST_US:
            return Reason.LINE
        node = _object(search.body)
        if node is None:
            return Reason.BODY
        body = search.body or "{}"
        shape = self._shapes.of(body)
        if shape.reason is not None:
            return shape.reason
        rewritten = self._rewritten(search, node)
        if rewritten is None:
            return Reason.HASHED_REGEXP
        if rewritten is not node or "\n" in body or "\r" in body:
            body = orjson.dumps(rewritten).decode()
        self._count_changes(search, targets)
        params = self._params(search) if search.params else {}
        # the name of an index holds no question mark
        template = self.templates.of(shape, f"{targets}?{'&'.join(sorted(params))}" if params else targets)
        template.add(search.took_ms)
        return ReplayedRequest(
            search.at_us,
            f'"method":"POST","path":"{_path(targets)}",'
            f'"params":{orjson.dumps(params).decode() if params else "{}"},"body":{body},'
            f'"took_ms":{_json(search.took_ms)},"hits":{_json(search.hits)},'
            f'"client":{orjson.dumps(search.client).decode()},"template":"{template.name}"}}\n',
            template.name,
        )

    def _count_changes(self, search: LoggedSearch, targets: str) -> None:
        if search.change:
            self.changed[search.change] += 1
        if targets != search.targets:
            self.changed[NARROWED] += 1

    def _rewritten(self, search: LoggedSearch, node: dict[str, Any]) -> dict[str, Any] | None:
        """The body with dates fixed and literals hashed; None when it cannot be hashed."""
        body = search.body or ""
        if "now" in body and _NOW.search(body):
            freezer = Freezer(search.at_us)
            walked = freezer.body(node)
            if freezer.frozen:
                node = walked
                self.changed[DATES_FIXED] += 1
        if not self._hash:
            return node
        hasher = Hasher()
        hashed = hasher.body(node)
        return None if hasher.refused else hashed

    def _params(self, search: LoggedSearch) -> dict[str, str]:
        """The URL's parameters with dates fixed and literals hashed."""
        params = dict(search.params)
        if "now" in params.get("q", ""):
            freezer = Freezer(search.at_us)
            params["q"] = freezer.query_string(params["q"])
            if freezer.frozen:
                self.changed[DATES_FIXED] += 1
        if self._hash:
            hashes = {"q": hash_query, "routing": hash_text, "preference": _hash_preference}
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
        """The indices that the request is sent to."""
        names = [name for name in targets.split(",") if name]
        if any(name.startswith("<") for name in names):
            return Reason.DATE_INDEX
        if any(_REMOTE.match(name) for name in names):
            return Reason.CLUSTER
        if any(_FORBIDDEN & set(name) or (name[0] in "_+" and name != "_all") for name in names):
            return Reason.INDEX
        if self._index is None:
            return ",".join(names) if names else Reason.NO_INDEX
        if "*" in self._index:
            kept = [name for name in names if fnmatchcase(name, self._index)]
            return ",".join(kept) if kept else Reason.OTHER_INDEX if names else self._index
        named = not names or any(name == "_all" or fnmatchcase(self._index, name) for name in names)
        return self._index if named else Reason.OTHER_INDEX


def _hash_preference(text: str) -> str:
    """A preference of the user's own; ``_local`` and its like are Elasticsearch's."""
    return text if text.startswith("_") else hash_text(text)


@lru_cache(maxsize=4096)
def _path(targets: str) -> str:
    return f"/{quote(targets, safe=',*')}/_search"


def _object(body: str | None) -> dict[str, Any] | None:
    """The body as an object; None when it is none."""
    try:
        node = orjson.loads(body or "{}") if isinstance(body, str) else None
    except orjson.JSONDecodeError:
        return None
    return node if isinstance(node, dict) else None


def _json(number: float | None) -> str:
    return "null" if number is None else repr(number)
