"""What fields of log lines become, whatever a log holds."""

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from query_logs import GOLDEN_LOGS, query_line, requests, slow_line, write

from esrally_ebs.workload.queries import import_logs
from esrally_ebs.workload.queries.fields import client_of, number_of, took_ms_of
from esrally_ebs.workload.queries.search import parse_time


def test_a_line_of_an_audit_log_came_when_it_says_and_not_when_it_was_shipped(tmp_path: Path) -> None:
    plain = (GOLDEN_LOGS / "es-audit.log").read_text()
    shipped = plain.replace('{"type"', '{"@timestamp": "2026-01-02T11:00:00.000Z", "type"')
    for name, text in (("plain", plain), ("shipped", shipped)):
        (tmp_path / name).write_text(text)
        import_logs([tmp_path / name], tmp_path / f"{name}-out")
    assert requests(tmp_path / "shipped-out") == requests(tmp_path / "plain-out")


@pytest.mark.parametrize("name", ["es-audit.log", "es-slow-log-7.log", "opensearch-slow-log.log"])
@pytest.mark.parametrize("other", ["02/Jan/2026:10:00:00 +0000", 1767348000, None, ""])
def test_the_time_of_a_shipper_counts_where_the_other_is_none(
    name: str, other: object, tmp_path: Path
) -> None:
    plain = (GOLDEN_LOGS / name).read_text()
    renamed = plain.replace('"timestamp"', f'"timestamp": {json.dumps(other)}, "@timestamp"')
    for kind, text in (("plain", plain), ("renamed", renamed)):
        (tmp_path / kind).write_text(text)
        import_logs([tmp_path / kind], tmp_path / f"{kind}-out")
    assert renamed != plain
    assert requests(tmp_path / "renamed-out") == requests(tmp_path / "plain-out")


@pytest.mark.parametrize("parse", [client_of, number_of, lambda text: took_ms_of(text, 1)])
def test_long_texts_are_not_kept(parse: Callable[[str], object]) -> None:
    """A log may hold thousands of 16 MiB each; those that were met last were kept to look them up."""
    tracemalloc.start()
    try:
        for number in range(100):
            parse(f"{number}ms" + 100_000 * "x")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000


_INGESTED_SLOW: dict[str, Any] = {
    "@timestamp": "2026-01-02T10:00:00.007Z",
    "elasticsearch": {
        "index": {"name": "logs"},
        "shard": {"id": "0"},
        "slowlog": {
            "id": None,
            "search_type": "QUERY_THEN_FETCH",
            "source": '{\\"size\\":1}',
            "took": "1.5s",
            "total_hits": "4 hits",
            "total_shards": 1,
        },
    },
    "event": {"dataset": "elasticsearch.index_search_slowlog", "duration": 1_507_000_000},
    "log": {"level": "WARN", "logger": "index.search.slowlog.query"},
    "message": "[logs][0]",
}
_INGESTED_SLOW_7 = {
    **_INGESTED_SLOW,
    "elasticsearch": {**_INGESTED_SLOW["elasticsearch"], "component": "i.s.s.query"},
    "log": {"level": "WARN"},
}
_INGESTED_TEXT = {
    "@timestamp": "2018-06-29T10:06:14.933Z",
    "elasticsearch": {
        "index": {"name": "logs"},
        "shard": {"id": "0"},
        "slowlog": {
            "logger": "index.search.slowlog.query",
            "search_type": "QUERY_THEN_FETCH",
            "source_query": '{"size":1}',
            "took": "1.5s",
            "total_hits": 4,
            "total_shards": 1,
        },
    },
    "event": {"dataset": "elasticsearch.slowlog", "duration": 1_507_000_000},
    "log": {"level": "INFO"},
    "message": "[2018-06-29T10:06:14,933][INFO ][index.search.slowlog.query] [n] [logs][0] took[1.5s], ...",
}
_INGESTED_AUDIT = {
    "@timestamp": "2026-01-02T10:00:00.007Z",
    "elasticsearch": {"audit": {"layer": "rest", "opaque_id": "me"}},
    "event": {"action": "authentication_success"},
    "http": {"request": {"method": "POST", "body": {"content": '{"size":1}'}}},
    "url": {"original": "/logs/_search?routing=a%2Fb"},
}


@pytest.mark.parametrize(
    ("document", "params", "took_ms", "hits"),
    [
        (_INGESTED_SLOW, {}, 1507.0, 4),
        (_INGESTED_SLOW_7, {}, 1507.0, 4),
        (_INGESTED_TEXT, {}, 1507.0, 4),
        (_INGESTED_AUDIT, {"routing": "a/b"}, None, None),
    ],
    ids=["slow log", "slow log of version 7", "slow log as text", "audit log"],
)
def test_documents_that_shippers_made_of_log_lines_are_read(
    document: dict[str, Any], params: dict[str, str], took_ms: float | None, hits: int | None, tmp_path: Path
) -> None:
    import_logs([write(tmp_path / "log", json.dumps(document))], tmp_path / "out")
    (request,) = requests(tmp_path / "out")
    assert (request["path"], request["body"]) == ("/logs/_search", {"size": 1})
    assert (request["params"], request["took_ms"], request["hits"]) == (params, took_ms, hits)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    "name", ["elasticsearch.querylog.query", "elasticsearch.slowlog.source", "request.body"]
)
def test_a_body_that_its_shipper_has_parsed_is_read(name: str, nested: bool, tmp_path: Path) -> None:
    """An object elsewhere in the line, such as Filebeat's ``log``, had its keys taken for dotted ones."""
    of_audit = {
        "timestamp": "2026-01-02T10:00:00Z",
        "event.action": "authentication_success",
        "url.path": "/logs/_search",
        "request.method": "POST",
    }
    lines = {"elasticsearch.querylog.query": query_line({}), "elasticsearch.slowlog.source": slow_line({})}
    fields = json.loads(lines.get(name, json.dumps(of_audit)))
    parsed = {**fields, name: {"size": 1}, **({"log": {"offset": 1}} if nested else {})}
    import_logs([write(tmp_path / "log", json.dumps(parsed))], tmp_path / "out")
    assert [row["body"] for row in requests(tmp_path / "out")] == [{"size": 1}]


@pytest.mark.parametrize("name", ["es-query-log", "es-slow-log-7", "es-slow-log-8", "es-audit"])
def test_fluent_bit_may_have_put_a_date_in_the_place_of_the_time(name: str, tmp_path: Path) -> None:
    """Its parser takes the field of the time away, and its output writes seconds since the epoch."""

    def shipped(line: str) -> str:
        fields = json.loads(line)
        at = fields.pop("@timestamp", None) or fields.pop("timestamp", None)
        return json.dumps({"date": parse_time(at)[0] / 1e6, **fields} if at else fields)

    lines = (GOLDEN_LOGS / f"{name}.log").read_text().splitlines()
    lines = [line for line in lines if line.startswith("{") and line.endswith("}")]
    import_logs([write(tmp_path / "log", *lines)], tmp_path / "out")
    import_logs([write(tmp_path / "shipped", *map(shipped, lines))], tmp_path / "again")
    assert requests(tmp_path / "again") == requests(tmp_path / "out")


def test_a_document_of_the_slow_log_of_indexing_is_no_search(tmp_path: Path) -> None:
    indexing = {**_INGESTED_SLOW, "log": {"logger": "index.indexing.slowlog.index"}}
    indexing["elasticsearch"] = {"index": {"name": "logs"}, "slowlog": {"source": "{}"}}  # it names no shard
    log = write(tmp_path / "log", json.dumps(_INGESTED_SLOW), json.dumps(indexing))
    import_logs([log], tmp_path / "out")
    assert json.loads((tmp_path / "out" / "excluded.json").read_text())["excluded"] == {"no search": 1}
