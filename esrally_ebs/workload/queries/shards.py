"""Shard slow logs: combines the lines of one request, one per shard and phase, into one search.

Lines belong together if they have the same id (trace id, else X-Opaque-Id, which all requests of a client may
share), source and number of shards, no shard has the same phase twice, and the time between them is at most
the longest duration, but at least FAST_SLACK_US (nodes' clocks differ) and at most SLACK_US. Of several
requests the nearest gets a line: all shards begin the query phase at once, and the fetch phase when the last
one has finished it. So the same query repeated by a client is another request, and two simultaneous ones are
told apart once a shard occurs twice. A line is written when its phase ends: one of a shard that was slower
than the others by more than SLACK_US belongs to the request that began at the same time. As clocks differ, a
fetch may be read before its query phase: if no request takes it, it waits FAST_SLACK_US for one.

A shard logs a range of dates as what it asks: without its bounds where all of its own dates are within, and
as ``match_none`` where none is; and so any query of which a clause has to match and is that. So what lacks
shards is put together where sources are one but for that, with what any of them has. Where clocks differ by
more, a request falls into parts, each with the shards that the other lacks, always as far apart: that is
counted, and said.

Lines come in order of their phases' ends, as nodes write them. Memory is bounded: a request is finished when
the log is WAIT_US past its end, or when MAX_OPEN wait.
"""

import re
from array import array
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any, Final

import orjson

from esrally_ebs.workload.queries.search import FIELD_ERRORS, LoggedSearch, Part, words

SLACK_US: Final = 2_000_000
FAST_SLACK_US: Final = 250_000
WAIT_US: Final = 10_000_000  # longest time that one shard or its fetch may take beyond what came before
MAX_OPEN: Final = 20_000  # requests waiting for further lines
MAX_OPEN_BYTES: Final = 32 << 20  # of their bodies
_PARTED_MIN: Final = 20  # fewer requests in parts show nothing
_ALIKE_US: Final = 100_000  # tolerance for parts to be equally far apart
_ALIKE_SHARE: Final = 0.8  # least share of parts that are
_NEIGHBOURS: Final = 8  # requests near a part that may be its other part
_FARTHER: Final = 100  # consecutive requests that are no nearer: earlier ones are further still

_RANGE: Final = re.compile(r'("range":\{"(?:[^"\\]|\\.)*+":\{)[^{}]*')  # and its options
_BOUNDS: Final = words("from gt gte lt lte to")

_SOME, _NONE = "some", "none"  # whether a request's source asks for nothing somewhere
_Key = tuple[str, str | None, int, str]


class _Request:
    """A request that may get further lines."""

    def __init__(self, key: _Key, search: LoggedSearch, part: Part, end_us: int) -> None:
        self.key = key
        self.first = search
        self.body = search.body or ""
        self.like = _like(key, self.body) if part.shards > 1 else []
        self.start_us = self.end_us = self.queried_us = search.at_us
        self.slack_us = 0
        self.is_parted = False  # whether another part of it is known
        self.indices: set[str] = set()
        self.shards: set[str] = set()
        self.steps: set[tuple[str, str]] = set()  # shard and phase
        self.hits: int | None = 0
        self.add(search, part, end_us)

    def looks_at(self) -> list[_Key]:
        """By what it finds those that it may be a part of."""
        own, *same = self.like
        some, none = ((*own[:3], kind) for kind in (_SOME, _NONE))
        return [none, *same] if own == some else [none, some]

    def takes(self, search: LoggedSearch, part: Part, end_us: int) -> bool:
        """Whether a line, with a step that this request lacks, may belong to it."""
        if part.shards and part.shard not in self.shards and len(self.shards) >= part.shards:
            return False
        if part.phase == "query" and end_us > self.end_us + SLACK_US:
            return abs(search.at_us - self.start_us) <= FAST_SLACK_US
        slack_us = max(self.slack_us, _slack_us(end_us - search.at_us))
        return search.at_us <= self.end_us + slack_us and end_us >= self.start_us - slack_us

    def distance_us(self, search: LoggedSearch, part: Part) -> int:
        """Distance from a line's begin to this request's begin of that phase."""
        return abs(search.at_us - (self.start_us if part.phase == "query" else self.queried_us))

    def add(self, search: LoggedSearch, part: Part, end_us: int) -> None:
        self.start_us = min(self.start_us, search.at_us)
        self.end_us = max(self.end_us, end_us)
        self.slack_us = max(self.slack_us, _slack_us(end_us - search.at_us))
        self.indices.add(part.of_index)
        self.shards.add(part.shard)
        self.steps.add((part.shard, part.phase))
        if part.phase == "query":
            self.queried_us = max(self.queried_us, end_us)
            self.hits = None if self.hits is None or search.hits is None else self.hits + search.hits

    def takes_part(self, part: "_Request") -> bool:
        """Whether one that lacks shards can be a part of it, if it asks the same."""
        slack_us = max(self.slack_us, part.slack_us)
        return (
            part.start_us <= self.end_us + slack_us
            and part.end_us >= self.start_us - slack_us
            and self.steps.isdisjoint(part.steps)
            and len(self.shards | part.shards) <= self.key[2]
        )

    def add_part(self, part: "_Request") -> bool:
        """Add a part; returns False if it asks something else."""
        try:
            own, other = orjson.loads(self.body), orjson.loads(part.body)
            is_none, adds_none = (_is_none(source.get("query")) for source in (own, other))
            self.body = orjson.dumps(_unified(own, other)).decode()
        except (*FIELD_ERRORS, RecursionError):
            return False
        if is_none and not adds_none:
            self.indices = part.indices
        elif is_none or not adds_none:
            self.indices |= part.indices
        self.start_us = min(self.start_us, part.start_us)
        self.end_us = max(self.end_us, part.end_us)
        self.shards |= part.shards
        self.steps |= part.steps
        self.hits = None if self.hits is None or part.hits is None else self.hits + part.hits
        return True

    def search(self) -> LoggedSearch:
        """The request as a search, from first start to last end; hits only if all shards have theirs."""
        queried = sum(phase == "query" for _, phase in self.steps)
        return self.first._replace(
            at_us=self.start_us,
            targets=",".join(sorted(self.indices)),
            body=self.first.body and self.body,
            took_ms=(self.end_us - self.start_us) / 1000,
            hits=self.hits if queried and queried == self.key[2] else None,
            part=None,
        )


def ended_us(search: LoggedSearch) -> int:
    """When a search, or its phase on a shard, ended."""
    return search.at_us + round((search.took_ms or 0.0) * 1000)


def _key(search: LoggedSearch, part: Part) -> _Key:
    """What all lines of a request share; for single-shard requests, also the shard."""
    return part.request, search.body, part.shards, part.shard if part.shards == 1 else ""


def _like(key: _Key, body: str) -> list[_Key]:
    """By what a request is looked up by those that may be a part of it."""
    before = body[1:].partition("{")[0]  # is equal whatever a shard makes of its query
    kinds: list[_Key] = [(key[0], before, key[2], _NONE if '{"match_none":' in body else _SOME)]
    but_bounds = _RANGE.sub(r"\1", body) if '"range":{' in body else body
    return kinds if but_bounds == body else [*kinds, (key[0], but_bounds, *key[2:])]


def _unified(one: Any, other: Any) -> Any:  # noqa: ANN401 - what JSON can hold
    """What two shards log of one query, from the one that logs more of it. ValueError if it is not one."""
    if one == other or _is_none(other):
        return one
    (field, has_bounds), (other_field, other_has_bounds) = _range_of(one), _range_of(other)
    if _is_none(one) or (field == other_field != "" and not has_bounds):
        return other
    if field == other_field != "" and not other_has_bounds:
        return one
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return {key: _unified(value, other[key]) for key, value in one.items()}
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [_unified(*pair) for pair in zip(one, other, strict=True)]
    raise ValueError("two queries")


def _is_none(query: object) -> bool:
    return isinstance(query, dict) and [*query] == ["match_none"]


def _range_of(query: Any) -> tuple[str, bool]:  # noqa: ANN401
    """A range query's field, and whether it has bounds; no field for anything else."""
    fields = query["range"] if isinstance(query, dict) and [*query] == ["range"] else {}
    if len(fields) != 1:
        return "", False
    ((field, options),) = fields.items()
    return field, any(options.get(bound) is not None for bound in _BOUNDS)


def _slack_us(took_us: int) -> int:
    return min(SLACK_US, max(FAST_SLACK_US, took_us))


class _Alike:
    """Requests that only differ in time; ``lacking``: by shard and phase, those without that step."""

    def __init__(self) -> None:
        self.open: dict[int, _Request] = {}
        self.lacking: dict[tuple[str, str], dict[int, _Request]] = {}

    def add(self, request: _Request) -> None:
        self.open[id(request)] = request
        for step, requests in self.lacking.items():
            if step not in request.steps:
                requests[id(request)] = request

    def remove(self, request: _Request) -> None:
        del self.open[id(request)]
        for requests in self.lacking.values():
            requests.pop(id(request), None)


def _nearest(lacking: dict[int, _Request], search: LoggedSearch, part: Part, end_us: int) -> _Request | None:
    """The request that a line belongs to; None if it begins one. Checks the latest first."""
    nearest, least_us, farther = None, 0, 0
    for request in reversed(lacking.values()):
        if request.takes(search, part, end_us):
            distance_us = request.distance_us(search, part)
            if nearest is None or distance_us <= least_us:
                nearest, least_us, farther = request, distance_us, 0
                continue
        farther += 1
        if farther == _FARTHER:
            break
    return nearest


class OutOfOrderError(Exception):
    """A line is older than one before it: the log must be sorted first."""


class Joiner:
    """Combines lines into requests; ``joined`` of ``lines`` were added to a request begun by another line.

    ``lacking`` requests have shards missing in the log.
    """

    def __init__(self) -> None:
        self.lines = 0
        self.joined = 0
        self.lacking = 0
        self._open: OrderedDict[int, _Request] = OrderedDict()
        self._by_key: dict[_Key, _Alike] = {}
        self._like: dict[_Key, dict[int, _Request]] = {}  # by what parts of one request have in common
        self._early: deque[tuple[LoggedSearch, Part, int]] = deque()  # fetches that no request took so far
        self._bytes = 0
        self._apart_us = array("q")  # distances between parts of one request
        self._log_us = 0  # latest end so far

    def requests(self, searches: Iterable[LoggedSearch]) -> Iterator[LoggedSearch]:
        """All requests, roughly in order of their ends; searches that are no part of one pass through.

        Raises OutOfOrderError if times go back by more than SLACK_US.
        """
        for search in searches:
            part = search.part
            if part is None:
                yield search
                continue
            self._take(search, part)
            while self._early and self._is_late(self._early[0][2]):
                self._begin_early()
            while self._open and self._is_over(next(iter(self._open.values()))):
                yield from self._close()
        while self._early:
            self._begin_early()
        while self._open:
            yield from self._close()

    def clocks_differ(self) -> str:
        """Says that requests fell into parts because nodes' clocks differ; "" if they did not."""
        apart_us = sorted(self._apart_us)
        middle_us = apart_us[len(apart_us) // 2] if apart_us else 0
        alike = sum(abs(each - middle_us) <= _ALIKE_US for each in apart_us)
        if len(apart_us) < _PARTED_MIN or alike < _ALIKE_SHARE * len(apart_us):
            return ""
        return (
            f"clocks of its nodes differ by about {middle_us / 1e6:.1f} s: {alike:,} of its requests count "
            "as two each, with what either node took; set the clocks, and log anew"
        )

    def _take(self, search: LoggedSearch, part: Part) -> None:
        end_us = ended_us(search)
        if end_us < self._log_us - SLACK_US:
            raise OutOfOrderError
        self._log_us = max(self._log_us, end_us)
        self.lines += 1
        if self._joins(search, part, end_us):
            return
        if part.phase == "fetch":
            self._early.append((search, part, end_us))
            self._bytes += len(search.body or "")
        else:
            self._begin(search, part, end_us)

    def _joins(self, search: LoggedSearch, part: Part, end_us: int) -> bool:
        """Add a line to its request; returns whether that has begun."""
        key = _key(search, part)
        alike = self._by_key.get(key)
        if alike is None:
            alike = self._by_key[key] = _Alike()
        step = part.shard, part.phase
        lacking = alike.lacking.get(step)
        if lacking is None:
            lacking = alike.lacking[step] = dict(alike.open)
        nearest = _nearest(lacking, search, part, end_us)
        if nearest is not None:
            nearest.add(search, part, end_us)
            del lacking[id(nearest)]
            self.joined += 1
        return nearest is not None

    def _begin(self, search: LoggedSearch, part: Part, end_us: int) -> None:
        key = _key(search, part)
        request = _Request(key, search, part, end_us)
        self._by_key[key].add(request)
        self._open[id(request)] = request
        for each in request.like:
            self._like.setdefault(each, {})[id(request)] = request
        self._bytes += len(search.body or "")

    def _begin_early(self) -> None:
        """Add the oldest waiting fetch to its request, if that has begun by now; else begin one."""
        search, part, end_us = self._early.popleft()
        self._bytes -= len(search.body or "")
        if not self._joins(search, part, end_us):
            self._begin(search, part, end_us)

    def _is_late(self, end_us: int) -> bool:
        too_many = len(self._early) > MAX_OPEN or self._bytes > MAX_OPEN_BYTES
        return too_many or end_us + FAST_SLACK_US < self._log_us

    def _is_over(self, request: _Request) -> bool:
        too_many = len(self._open) > MAX_OPEN or self._bytes > MAX_OPEN_BYTES
        return too_many or request.end_us + WAIT_US < self._log_us

    def _close(self) -> Iterator[LoggedSearch]:
        """Give out the request that was begun first, if it is no part of another one."""
        _, request = self._open.popitem(last=False)
        alike = self._by_key[request.key]
        alike.remove(request)
        is_part = self._is_added(request)
        if is_part:
            self.joined += 1
        elif len(request.shards) < request.key[2]:
            self.lacking += 1
            if not request.is_parted:
                self._look_for_rest(request, alike)
        if not alike.open:
            del self._by_key[request.key]
        self._bytes -= len(request.first.body or "")
        if not is_part:
            yield request.search()

    def _is_added(self, part: _Request) -> bool:
        """Add a closed request to the open one of which it is a part, as shards log queries in other ways."""
        for each in part.like:
            del self._like[each][id(part)]
            if not self._like[each]:
                del self._like[each]
        if not part.like or len(part.shards) == part.key[2]:
            return False
        alike = (self._like.get(key, {}) for key in part.looks_at())
        near = chain.from_iterable(islice(requests.values(), _FARTHER) for requests in alike)
        wholes = [request for request in near if request.takes_part(part)]
        wholes.sort(key=lambda each: abs(each.start_us - part.start_us))
        return any(whole.add_part(part) for whole in wholes)

    def _look_for_rest(self, request: _Request, alike: _Alike) -> None:
        """If an open request is the rest of this one, note their distance."""
        for other in islice(alike.open.values(), _NEIGHBOURS):
            is_near = other.start_us <= request.end_us + SLACK_US and not other.is_parted
            # has exactly the shards that this one lacks
            is_rest = len(other.shards) + len(request.shards) == request.key[2]
            if is_near and is_rest and other.shards.isdisjoint(request.shards):
                other.is_parted = True
                self._apart_us.append(abs(other.start_us - request.start_us))
                return
