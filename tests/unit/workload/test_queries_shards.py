"""Lines of a shard slow log -> requests: one each, whatever shards, phases and clients there are."""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from query_logs import slow_line, write

from esrally_ebs.workload.queries import import_logs, shards
from esrally_ebs.workload.queries.search import LoggedSearch, Part
from esrally_ebs.workload.queries.shards import Joiner

MS = 1000  # microseconds


def line(
    at_ms: int,
    shard: int,
    *,
    phase: str = "query",
    took_ms: float = 5.0,
    request: str = "",
    body: str = "{}",
    total: int = 3,
    hits: int | None = 1,
    index: str = "logs",
) -> LoggedSearch:
    part = Part(request, index, f"[{index}][{shard}]", phase, total)
    return LoggedSearch(at_ms * MS, index, body, took_ms=took_ms, hits=hits, part=part)


def joined(lines: Sequence[LoggedSearch]) -> list[LoggedSearch]:
    return list(Joiner().requests(lines))


def test_shards_and_phases_of_a_request_are_one() -> None:
    (request,) = joined([line(0, 0), line(1, 1), line(0, 2), line(6, 1, phase="fetch", took_ms=2.0)])
    assert (request.at_us, request.took_ms, request.hits) == (0, 8.0, 3)


def test_hits_are_not_told_when_a_shard_is_missing_or_counts_a_bound() -> None:
    assert joined([line(0, 0), line(0, 1)])[0].hits is None
    assert joined([line(0, 0), line(0, 1), line(0, 2, hits=None)])[0].hits is None


def test_the_same_query_asked_again_is_another_request() -> None:
    lines = [line(at, shard) for at in (0, 10, 20) for shard in range(3)]
    assert [request.at_us for request in joined(lines)] == [0, 10 * MS, 20 * MS]


def test_queries_asked_at_once_are_as_many_as_each_shard_has() -> None:
    assert len(joined([line(0, 0), line(0, 0), line(0, 1), line(1, 1), line(1, 2), line(1, 2)])) == 2


@pytest.mark.parametrize("other", [{"request": "x"}, {"body": '{"size":1}'}, {"total": 4}])
def test_another_id_source_or_number_of_shards_is_another_request(other: dict[str, str]) -> None:
    assert len(joined([line(0, 0), line(0, 1, **other)])) == 2  # type: ignore[arg-type]


def test_a_fetch_is_of_the_request_whose_query_phase_it_follows() -> None:
    asked = [line(at, shard) for at in (0, 500) for shard in range(3)]
    fetched = [line(5, 0, phase="fetch", took_ms=2.0), line(505, 1, phase="fetch", took_ms=2.0)]
    lines = sorted([*asked, *fetched], key=lambda search: search.at_us)
    assert [(request.at_us, request.took_ms) for request in joined(lines)] == [(0, 7.0), (500 * MS, 7.0)]


def test_a_slow_shard_alone_is_not_of_the_request_before() -> None:
    lines = [line(at, shard, took_ms=600) for at, shard in ((0, 0), (1500, 1), (3000, 2))]
    assert [request.took_ms for request in joined(lines)] == [600] * 3


def test_shards_that_waited_for_others_are_of_one_request() -> None:
    (request,) = joined([line(at, shard, took_ms=900) for shard, at in enumerate((0, 901, 1802))])
    assert request.took_ms == 2702


def ranged(options: str) -> str:
    return f'{{"query":{{"bool":{{"filter":[{{"term":{{"a":1}}}},{{"range":{{"ts":{{{options}}}}}}}]}}}}}}'


@pytest.mark.parametrize(
    ("bounds", "without", "later"),
    [
        ('"gte":"now-2d","boost":1.0', '"boost":1.0', '"gte":"now-3d","boost":1.0'),
        (
            '"from":"now-2d","to":null,"time_zone":"+01:00"',
            '"from":null,"to":null',
            '"from":1,"to":null,"time_zone":"+01:00"',
        ),
    ],
    ids=["version 8", "before"],
)
def test_a_shard_whose_dates_are_all_in_a_range_logs_it_without_bounds(
    bounds: str, without: str, later: str
) -> None:
    lines = [
        line(at, shard, body=ranged(without if shard else first))
        for at, first in ((0, bounds), (20, later))
        for shard in range(3)
    ]
    lines.insert(3, line(8, 2, phase="fetch", took_ms=2.0, body=ranged(without)))
    joiner = Joiner()
    requests = list(joiner.requests(lines))
    assert [(one.at_us, one.took_ms, one.hits) for one in requests] == [(0, 10.0, 3), (20 * MS, 5.0, 3)]
    assert [one.body for one in requests] == [ranged(bounds), ranged(later)]
    assert (joiner.lines, joiner.joined, joiner.lacking) == (7, 5, 0)


def of_day(query: str) -> str:
    """A source as Elasticsearch 8.8 writes it."""
    return f'{{"size":3,"query":{query},"track_total_hits":2147483647}}'


NONE = '{"match_none":{"boost":1.0}}'
DAYS = '{"range":{"ts":{"gte":"2026-01-02T12:00:00Z","lt":"2026-01-04T12:00:00Z","boost":1.0}}}'
OPEN = '{"range":{"ts":{"boost":1.0}}}'
BOOL = '{"bool":{"must":[{"match":{"msg":{"query":"a"}}}],"%s":[%s],"boost":1.0}}'


def within(clause: str, *queries: str) -> list[str]:
    return [BOOL % (clause, query) for query in queries]


@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize(
    ("sources", "asked", "indices"),
    [
        ([NONE, DAYS, OPEN, DAYS, NONE], DAYS, "day-1,day-2,day-3"),
        ([NONE, *within("filter", DAYS, OPEN, DAYS), NONE], *within("filter", DAYS), "day-1,day-2,day-3"),
        (within("must_not", NONE, DAYS, OPEN, DAYS, NONE), *within("must_not", DAYS), ""),
        (within("must_not", NONE, OPEN, NONE, NONE, NONE), *within("must_not", OPEN), ""),
        ([NONE, NONE, *within("filter", BOOL % ("should", DAYS), *[NONE] * 2)], "", ""),
        ([NONE] * 5, NONE, "day-0,day-1,day-2,day-3,day-4"),
    ],
    ids=["range", "in a query", "in a clause", "no bounds", "a query in a query", "none at all"],
)
def test_a_shard_that_no_document_of_can_match_logs_that_in_place_of_the_query(
    sources: list[str], asked: str, indices: str, first: int
) -> None:
    lines = [
        line(number, day, total=5, index=f"day-{day}", body=of_day(sources[day]))
        for number, day in enumerate([*range(first, 5), *range(first)])
    ]
    other = line(400, 0, total=1, body=of_day(NONE))
    joiner = Joiner()
    request, _ = joiner.requests([*lines, other])
    assert (request.body, request.hits, request.took_ms) == (of_day(asked or sources[2]), 5, 9.0)
    assert request.targets == indices or not indices
    assert (joiner.lines, joiner.joined, joiner.lacking) == (6, 4, 0)


def test_a_filter_of_an_aggregation_is_what_any_shard_logs() -> None:
    """What 8.8 logs of one search without a query; "today" is all of day 0 and nothing of day 1."""
    source = '{"size":0,"aggregations":{"today":{"filter":%s},"before":{"filter":%s}}}'
    before = BOOL % ("filter", DAYS)
    lines = [
        line(0, 0, total=2, body=source % (OPEN, NONE)),
        line(0, 1, total=2, body=source % (NONE, before)),
    ]
    assert [one.body for one in joined(lines)] == [source % (OPEN, before)]


def test_a_vector_search_is_left_out_as_one_since_its_vector_is_not_in_the_log(tmp_path: Path) -> None:
    docs = [{"knn_score_doc": {"values": [{"doc": shard, "score": 0.5}]}} for shard in range(2)]
    none, term = {"match_none": {"boost": 1.0}}, {"term": {"svc": {"value": "s1"}}}
    for number, query in enumerate(({}, {"bool": {"should": [{}, term]}})):
        bodies = [
            json.loads(json.dumps({"query": query or {}}).replace("{}", json.dumps(own))) for own in docs
        ]
        bodies.append(json.loads(json.dumps({"query": query or {}}).replace("{}", json.dumps(none))))
        rows = [json.loads(slow_line("", shard=shard)) for shard in range(3)]
        for row, body in zip(rows, bodies, strict=True):
            row["elasticsearch.slowlog.source"] = json.dumps(body, separators=(",", ":"))
            row["elasticsearch.slowlog.total_shards"] = 3
        log = write(tmp_path / f"log{number}", *map(json.dumps, rows), slow_line({}))
        summary = import_logs([log], tmp_path / f"out{number}")
        assert summary.excluded == {"vector search, whose vector a slow log does not have": 1}
        assert (summary.requests, summary.joined) == (1, 2)


@pytest.mark.parametrize(
    "other",
    [
        of_day(NONE).replace("3", "4", 1),
        of_day(NONE).replace("track", "ignore"),
        of_day(OPEN.replace("ts", "at")),
    ],
    ids=["before", "behind", "field"],
)
def test_what_asks_otherwise_is_no_shard_without_documents(other: str) -> None:
    lines = [line(0, 0, body=of_day(DAYS)), line(0, 1, body=of_day(DAYS)), line(0, 2, body=other)]
    assert len(joined(lines)) == 2


def test_ranges_with_other_bounds_are_other_requests() -> None:
    lines = [line(0, shard, body=ranged(f'"gte":{shard}')) for shard in range(3)]
    assert len(joined(lines)) == 3
    whole = [line(0, shard, body=ranged('"boost":1.0')) for shard in range(3)]  # lacks no shard
    assert [one.hits for one in joined([*whole, *lines[:1]])] == [3, None]


def others(until_ms: int) -> list[LoggedSearch]:
    """Lines of other queries, which tell how far the log is."""
    return [line(at, 0, body=f'{{"size":{at}}}', total=1) for at in range(0, until_ms, 500)]


@pytest.mark.parametrize(
    "slow",
    [
        [line(10, 1, took_ms=9000, total=2), line(9020, 1, phase="fetch", took_ms=3.0, total=2)],
        [line(0, 1, total=2), line(20, 0, phase="fetch", took_ms=9003.0, total=2)],
    ],
)
def test_a_shard_or_a_fetch_that_took_many_seconds_longer_is_of_its_request(slow: list[LoggedSearch]) -> None:
    logged = sorted([line(0, 0, total=2), *slow, *others(9000)], key=shards.ended_us)
    (request,) = [each for each in joined(logged) if each.body == "{}"]
    assert (request.at_us, request.took_ms, request.hits) == (0, 9023, 2)


def test_a_fetch_that_is_read_before_its_query_phase_as_clocks_differ_is_of_its_request() -> None:
    fetch = line(3800, 0, phase="fetch", took_ms=10.0, total=2)  # its node's clock is 200 ms slow
    logged = sorted(
        [line(0, 0, total=2), fetch, line(0, 1, took_ms=4000, total=2), *others(9000)], key=shards.ended_us
    )
    (request,) = [each for each in joined(logged) if each.body == "{}"]
    assert (request.at_us, request.took_ms, request.hits) == (0, 4000, 2)


def test_a_slow_shard_is_not_of_a_query_that_was_asked_while_it_took_its_time() -> None:
    logged = [line(0, 0, total=2), line(1000, 0, total=2), *others(9000), line(0, 1, took_ms=9000, total=2)]
    requests = [each for each in joined(logged) if each.body == "{}"]
    assert [(each.at_us, each.took_ms) for each in requests] == [(0, 9000), (1000 * MS, 5)]


def test_what_is_far_apart_in_time_is_not_one_request() -> None:
    assert len(joined([line(0, 0), line(60_000, 1)])) == 2


def test_memory_is_bounded_by_giving_out_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "MAX_OPEN", 10)
    joiner = Joiner()
    for _ in joiner.requests(line(0, 0, body=str(number)) for number in range(1000)):
        assert len(joiner._open) <= 11


@given(
    st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 4)), min_size=1, max_size=20),
    st.randoms(use_true_random=False),
)
def test_no_line_is_lost_and_none_counts_twice(searches: list[tuple[int, int]], random: object) -> None:
    lines = [
        line(at, shard, total=count, body=str(number))
        for number, (at, count) in enumerate(searches)
        for shard in range(count)
    ]
    random.shuffle(lines)  # type: ignore[attr-defined]
    joiner = Joiner()
    requests = list(joiner.requests(sorted(lines, key=lambda search: search.at_us)))
    assert len(requests) + joiner.joined == joiner.lines == len(lines)
    assert sorted(str(request.body) for request in requests) == sorted(map(str, range(len(searches))))


def counted(lines: Sequence[LoggedSearch]) -> tuple[int, int]:
    """How many requests lines become, and how many were looked at for each line, on average."""
    calls = Counter[str]()
    sys.setprofile(lambda frame, event, _: calls.update([frame.f_code.co_name] if event == "call" else ()))
    try:
        requests = joined(lines)
    finally:
        sys.setprofile(None)
    return len(requests), calls["takes"] // len(lines)


@pytest.mark.parametrize(("all_fetch", "most"), [(True, 4), (False, 40)])
def test_a_query_that_is_asked_all_the_time_is_not_compared_with_all_that_are_open(
    all_fetch: bool, most: int
) -> None:
    searches = 2000  # in the time in which a request waits for further lines
    lines = [
        line(number, shard, phase=phase, took_ms=0.5, total=2)
        for number in range(searches)
        for phase, shards_ in (("query", (0, 1)), ("fetch", (0, 1) if all_fetch else (number % 2,)))
        for shard in shards_
    ]
    requests, looked_at = counted(lines)
    assert (requests, looked_at <= most) == (searches, True)


def test_nor_is_one_that_is_asked_of_many_indices_of_one_shard() -> None:
    lines = [line(number, number % 500, took_ms=0.5, total=1) for number in range(2000)]
    assert counted(lines) == (2000, 0)


def parted(apart_ms: Iterable[int], **of_line: Any) -> Joiner:  # noqa: ANN401
    """What has read a request of 5 ms every three seconds; the clock of shard 2's node is ahead."""
    lines = [
        line(3000 * number + ahead * (shard == 2), shard, **of_line)
        for number, ahead in enumerate(apart_ms)
        for shard in range(3)
    ]
    joiner = Joiner()
    list(joiner.requests(sorted(lines, key=lambda search: search.at_us)))
    return joiner


def test_clocks_that_differ_by_more_than_a_request_takes_are_seen() -> None:
    assert "differ by about 0.4 s: 60 of its requests count as two" in parted([430] * 60).clocks_differ()
    assert "differ by about 0.9 s" in parted([-880, -910] * 30).clocks_differ()


@pytest.mark.parametrize("apart_ms", [[0] * 60, [200] * 60, [430] * 10, [*range(300, 900, 10)]])
def test_clocks_that_agree_and_shards_below_a_threshold_are_not_taken_for_it(apart_ms: list[int]) -> None:
    assert parted(apart_ms).clocks_differ() == ""


def test_a_shard_that_is_missing_is_no_clock() -> None:
    lines = [line(1000 * number, shard) for number in range(60) for shard in range(2)]
    joiner = Joiner()
    assert len(list(joiner.requests(lines))) == 60
    assert joiner.clocks_differ() == ""
