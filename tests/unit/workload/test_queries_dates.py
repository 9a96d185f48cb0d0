"""Dates of queries: what ``now`` becomes."""

import json
import os
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from query_logs import query_line, requests, write

from esrally_ebs.workload.queries import import_logs
from esrally_ebs.workload.queries.dates import Freezer
from esrally_ebs.workload.queries.shapes import Shapes

AT_US = 1_767_348_000_123_000  # 2026-01-02T10:00:00.123Z
AT = "2026-01-02T10:00:00.123Z"
FORMAT = "strict_date_optional_time"


def frozen(body: dict[str, Any]) -> dict[str, Any]:
    fixed = Freezer(AT_US, {}).freeze(body)
    return json.loads(fixed) if fixed else body


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("now", AT),
        ("now-1d", f"{AT}||-1d"),
        ("now/d", f"{AT}||/d"),
        ("now-15m/m", f"{AT}||-15m/m"),
        ("now/M-1w", f"{AT}||/M-1w"),
        ("now-d/d+12h/h", f"{AT}||-d/d+12h/h"),
        ("nowhere", "nowhere"),
        ("now-1x", "now-1x"),
        ("2026-01-01", "2026-01-01"),
    ],
)
def test_a_bound_is_fixed_to_the_time_of_the_log(text: str, becomes: str) -> None:
    bound = frozen({"query": {"range": {"ts": {"gte": text}}}})["query"]["range"]["ts"]["gte"]
    assert bound == becomes


def test_a_decay_over_time_begins_at_the_time_of_the_log_where_it_names_no_other(tmp_path: Path) -> None:
    decays: list[dict[str, Any]] = [
        {"ts": {"scale": "10d"}, "multi_value_mode": "avg"},
        {"ts": {"scale": "1h", "origin": "2026-01-01"}},
        {"n": {"scale": 5}},
    ]
    bodies = [{"query": {"function_score": {"functions": [{"gauss": decay}]}}} for decay in decays]
    log = write(tmp_path / "log", *(query_line(body, took=0) for body in bodies))
    assert import_logs([log], tmp_path / "out").changed == {"dates fixed to the time of the log": 1}
    decays[0]["ts"]["origin"] = "2026-01-02T10:00:00.000Z"
    assert [row["body"] for row in requests(tmp_path / "out")] == bodies


@pytest.mark.parametrize("query", ["prefix", "wildcard", "fuzzy", "match_phrase_prefix"])
def test_what_is_never_a_date_stays(query: str) -> None:
    body = {"query": {query: {"a": {"value": "now-1d", "_name": "now/d"}}}}
    assert Freezer(AT_US, {}).freeze(body) is None


def test_the_word_now_in_a_text_stays() -> None:
    body = {"query": {"match": {"title": "now"}}, "post_filter": {"term": {"title": {"value": "now"}}}}
    assert frozen(body) == body


def test_a_format_of_the_query_takes_the_fixed_date_too() -> None:
    given = {"range": {"ts": {"gte": "now-1d", "lt": "31/12/2026", "format": "dd/MM/yyyy"}}}
    assert (
        frozen({"query": given})["query"]["range"]["ts"]["format"] == "dd/MM/yyyy||strict_date_optional_time"
    )


def test_a_bound_that_the_mapping_must_read_keeps_its_format() -> None:
    given = {"range": {"ts": {"gte": "31/12/2025", "lt": "now"}}}
    assert "format" not in frozen({"query": given})["query"]["range"]["ts"]


@pytest.mark.parametrize(
    ("other", "format_"),
    [
        (None, "strict_date_optional_time"),  # as slow logs have an open end
        (1767225600000, "strict_date_optional_time||epoch_millis"),
        ("1767225600001", "strict_date_optional_time||epoch_millis"),
        (946684800000, "strict_date_optional_time||epoch_millis"),
        ("20260101000000", None),  # which is no year 2612
        (202601010000, None),
        (1767225600, None),  # seconds by one mapping, milliseconds by another
        ("2026-01-01", FORMAT),
        ("2026-01-01T00:00:00+01:00", FORMAT),
        ("2026-01-01 00:00:00", f"{FORMAT}||yyyy-MM-dd HH:mm:ss"),
        ("2026/01/01||-1y/d", f"{FORMAT}||yyyy/MM/dd"),
        ("31.12.2025 23:59:59.999", f"{FORMAT}||dd.MM.yyyy HH:mm:ss.SSS"),
        ("2026-01-01T1:00", None),  # a mapping that is not strict reads it
        ("2026-01-01T000000||/d", None),
        ("31/12/2025", None),  # by another mapping the 12th of a 31st month
    ],
)
def test_a_mapping_need_not_take_the_fixed_date_where_its_format_is_seen(
    other: object, format_: str | None
) -> None:
    bounds = frozen({"query": {"range": {"ts": {"from": other, "to": "now"}}}})["query"]["range"]["ts"]
    assert (bounds["from"], bounds["to"], bounds.get("format")) == (other, AT, format_)


@pytest.mark.parametrize("keys", [*permutations(("gte", "gt", "from"))])
def test_formats_come_in_the_order_of_the_bounds_whatever_the_seed_of_hashes(keys: tuple[str, ...]) -> None:
    bounds = dict(zip(keys, (1767225600000, "2026/01/01", "31.12.2025"), strict=True))
    walked = frozen({"query": {"range": {"ts": {**bounds, "lt": "now"}}}})["query"]["range"]["ts"]
    assert walked["format"] == f"{FORMAT}||epoch_millis||yyyy/MM/dd||dd.MM.yyyy"


@pytest.mark.parametrize(
    ("kind", "bounds", "format_"),
    [
        ("date_range", {"ranges": [{"to": "now-10d/d"}, {"from": "now"}]}, FORMAT),
        ("date_range", {"ranges": [{"from": 1767348000000, "to": "now"}]}, f"{FORMAT}||epoch_millis"),
        ("date_range", {"ranges": [{"from": "2026/01/01", "to": "now"}]}, f"{FORMAT}||yyyy/MM/dd"),
        ("date_range", {"missing": "01/01/2026", "ranges": [{"to": "now"}]}, None),
        ("date_range", {"ranges": [{"to": "2026/01/01"}]}, None),
        ("date_histogram", {"hard_bounds": {"min": "now-1y", "max": "now"}}, FORMAT),
    ],
)
def test_an_aggregation_over_dates_of_any_mapping_takes_the_fixed_date(
    kind: str, bounds: dict[str, Any], format_: str | None
) -> None:
    body = {"aggs": {"a": {kind: {"field": "ts", **bounds}}}}
    assert frozen(body)["aggs"]["a"][kind].get("format") == format_
    assert Shapes().of(json.dumps(body)).text == Shapes().of(json.dumps(frozen(body))).text


def test_dates_of_aggregations_and_query_strings_are_fixed() -> None:
    body = {
        "query": {"query_string": {"query": "level:error AND ts:[now-1h TO now} AND right now"}},
        "aggs": {
            "old": {"date_range": {"field": "ts", "format": "yyyy", "ranges": [{"to": "now-10d/d"}]}},
            "days": {"date_histogram": {"field": "ts", "extended_bounds": {"min": "now-7d", "max": "now"}}},
        },
    }
    fixed = frozen(body)
    assert fixed["query"]["query_string"]["query"] == (
        f'level:error AND ts:["{AT}||-1h" TO "{AT}"}} AND right now'
    )
    assert fixed["aggs"]["old"]["date_range"]["ranges"] == [{"to": f"{AT}||-10d/d"}]
    assert fixed["aggs"]["old"]["date_range"]["format"] == "yyyy||strict_date_optional_time"
    assert fixed["aggs"]["days"]["date_histogram"]["extended_bounds"] == {"min": f"{AT}||-7d", "max": AT}


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("ts:>now-1h", f'ts:{{"{AT}||-1h" TO *]'),
        ("a:b AND ts:>=now-1d\\/d", f'a:b AND ts:["{AT}||-1d/d" TO *]'),
        ("ts:(>now-1h AND <=now)", f'ts:({{"{AT}||-1h" TO *] AND [* TO "{AT}"])'),
        ("ts:(+>now-2d -<now-1d)", f'ts:(+{{"{AT}||-2d" TO *] -[* TO "{AT}||-1d"}})'),
        ("ts:<now-1M^2", f'ts:[* TO "{AT}||-1M"}}^2'),
        ("ts:[now-1d\\/d TO now\\/d}", f'ts:["{AT}||-1d/d" TO "{AT}||/d"}}'),
        ("ts:[now\\-1d TO now\\+1h]", f'ts:["{AT}||-1d" TO "{AT}||+1h"]'),
        ("ts:>=now\\-1d", f'ts:["{AT}||-1d" TO *]'),
        ('ts:["now-1d" TO "now"]', f'ts:["{AT}||-1d" TO "{AT}"]'),
        ('ts:>"now-1h" AND a:b', f'ts:{{"{AT}||-1h" TO *] AND a:b'),
        ('t:["now or never" TO x]', 't:["now or never" TO x]'),
        ('t:>"now or never"', 't:>"now or never"'),
        ("n:>5 AND size:<=nowhere", "n:>5 AND size:<=nowhere"),
    ],
)
def test_a_bound_of_a_query_string_is_fixed_however_it_is_written(text: str, becomes: str) -> None:
    assert Freezer(AT_US, {}).freeze_query(text) == becomes


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("ts >= now-1d/d and (ts < now) and t: now", f'ts >= "{AT}||-1d/d" and (ts < "{AT}") and t: now'),
        ('ts >= "now-1d/d" and ts < "now"', f'ts >= "{AT}||-1d/d" and ts < "{AT}"'),
        ("a:{ ts > now-1h}", f'a:{{ ts > "{AT}||-1h"}}'),
        ('t > "now or never"', 't > "now or never"'),
    ],
)
def test_a_bound_of_kql_is_fixed(text: str, becomes: str) -> None:
    assert frozen({"query": {"kql": {"query": text}}})["query"]["kql"]["query"] == becomes


def test_what_was_fixed_is_counted(tmp_path: Path) -> None:
    lines = (query_line({"query": {"range": {"ts": {"gte": text}}}}) for text in ("now-1d", "now", "2026"))
    summary = import_logs([write(tmp_path / "log", *lines)], tmp_path / "out")
    assert summary.changed == {"dates fixed to the time of the log": 2}


def test_a_date_is_fixed_behind_a_sign_that_json_may_write_as_a_number(tmp_path: Path) -> None:
    body = json.dumps({"query": {"query_string": {"query": "ts:>now-1h"}}}).replace(">", "\\u003e")
    import_logs([write(tmp_path / "log", query_line(body))], tmp_path / "out")
    assert "now" not in requests(tmp_path / "out")[0]["body"]["query"]["query_string"]["query"]


@pytest.mark.parametrize("q", [{}, {"q": "ts:>now-1d"}])
def test_a_log_without_dates_was_asked_when_it_was_written(q: dict[str, str], tmp_path: Path) -> None:
    row = {"at": 5.0, "method": "POST", "path": "/i/_search", "params": q}
    body = {} if q else {"query": {"range": {"ts": {"gte": "now-1d"}}}}
    log = write(tmp_path / "log", json.dumps({**row, "body": body}))
    os.utime(log, ns=(0, AT_US * 1000))
    changed = import_logs([log], tmp_path / "out").changed
    assert f"{AT}||-1d" in (tmp_path / "out/queries.ndjson").read_text()
    assert changed == {"dates fixed to when the log was last written, as it has none of its own": 1}


def test_what_has_no_date_is_not_walked_through() -> None:
    """Most of a dashboard's body has none, and a walk through it took longer than all else of its line."""
    filters = [{"term": {"host": "a"}}, {"range": {"ts": {"gte": "now-1d"}}}]
    body = {"query": {"bool": {"filter": filters}}, "aggs": {"a": {"terms": {"field": "host"}}}}
    fixed = Freezer(0, {}).body(body)
    assert fixed["query"] is not body["query"]
    assert fixed["aggs"] is body["aggs"]


def test_what_many_bodies_have_is_walked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Panels of a dashboard differ by a literal and by when they are asked, and took four times the time."""
    parts: dict[tuple[str, bytes], Any] = {}
    first, second = (
        {"query": {"bool": {"filter": [{"term": {"host": host}}, {"range": {"ts": {"gte": "now-1d"}}}]}}}
        for host in "ab"
    )
    Freezer(0, parts).freeze(first)
    monkeypatch.delattr(Freezer, "options")  # without which no range gets a format
    fixed = json.loads(Freezer(AT_US, parts).freeze(second) or b"{}")
    second["query"]["bool"]["filter"][1] = {"range": {"ts": {"gte": f"{AT}||-1d", "format": FORMAT}}}
    assert fixed == second


def test_parts_of_bodies_take_no_more_memory_the_more_there_are() -> None:
    parts: dict[tuple[str, bytes], Any] = {}
    for number in range(5000):
        Freezer(0, parts).freeze({"query": {"range": {f"ts{number}": {"gte": "now-1d"}}}})
    Freezer(0, parts).freeze({"query": {"range": {"ts" * 4000: {"gte": "now-1d"}}}})
    assert 0 < sum(len(text) for _, text in parts) < 2_000 * 4_000
    assert len(parts) <= 2_000
