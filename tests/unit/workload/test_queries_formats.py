"""Every format of query log: a log with its traps becomes what the golden files hold."""

import gzip
import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from query_logs import GOLDEN_LOGS as LOGS
from query_logs import query_line, requests, slow_line, write

from esrally_ebs.workload.queries import FORMATS, Options, import_logs, rest
from esrally_ebs.workload.queries.search import LoggedSearch, Reason, Skipped


@pytest.mark.parametrize("name", FORMATS)
def test_a_log_of_each_format_becomes_its_golden_requests(
    name: str, tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    summary = import_logs([LOGS / f"{name}.log"], tmp_path / "out")
    assert summary.format == FORMATS[name].title  # detected
    for file in ("queries.ndjson", "excluded.json", "templates.json"):
        golden(f"workload/{name}.{file}", (tmp_path / "out" / file).read_text())


@pytest.mark.parametrize("name", FORMATS)
def test_a_packed_log_gives_what_the_plain_one_gives(name: str, tmp_path: Path) -> None:
    plain = (LOGS / f"{name}.log").read_bytes()
    (tmp_path / "log.gz").write_bytes(gzip.compress(plain))
    import_logs([tmp_path / "log.gz"], tmp_path / "packed")
    import_logs([LOGS / f"{name}.log"], tmp_path / "plain")
    assert (tmp_path / "packed/queries.ndjson").read_text() == (tmp_path / "plain/queries.ndjson").read_text()


@pytest.mark.parametrize("name", FORMATS)
def test_what_was_imported_imports_as_itself(name: str, tmp_path: Path) -> None:
    import_logs([LOGS / f"{name}.log"], tmp_path / "first")
    summary = import_logs([tmp_path / "first/queries.ndjson"], tmp_path / "second")
    assert summary.format == FORMATS["queries"].title
    assert requests(tmp_path / "first") == requests(tmp_path / "second")


@pytest.mark.parametrize("name", FORMATS)
def test_no_file_but_the_queries_holds_a_literal_or_a_secret(name: str, tmp_path: Path) -> None:
    import_logs([LOGS / f"{name}.log"], tmp_path / "out")
    for path in (tmp_path / "out").iterdir():
        text = path.read_text()
        assert "c2VjcmV0" not in text  # of the header Authorization
        assert not {"alice", "kibana", "dashboard-7"} & set(text.replace('"', " ").split())
        if path.name != "queries.ndjson":
            assert not [
                literal for literal in ("acme", "globex", "bob", "größe", "web[0-9]") if literal in text
            ]


def test_a_client_that_stands_by_name_in_our_own_format_is_hashed_too(tmp_path: Path) -> None:
    line = {"at": 0.0, "method": "GET", "path": "/logs/_search", "params": {}, "body": {"size": 1}}
    log = tmp_path / "mine.ndjson"
    clients = ("alice@example.com", "0a1b2c3d", "")
    log.write_text(
        "".join(json.dumps({**line, "at": at, "client": c}) + "\n" for at, c in enumerate(clients))
    )
    import_logs([log], tmp_path / "out")
    rows = [json.loads(text) for text in (tmp_path / "out/queries.ndjson").read_text().splitlines()]
    first, *others = (row["client"] for row in rows)
    assert others == ["0a1b2c3d", ""]
    assert re.fullmatch("[0-9a-f]{8}", first)


def test_the_own_format_has_the_documented_fields_in_order(tmp_path: Path) -> None:
    import_logs([LOGS / "es-query-log.log"], tmp_path / "out")
    rows = [json.loads(line) for line in (tmp_path / "out/queries.ndjson").read_text().splitlines()]
    fields = ["at", "method", "path", "params", "body", "took_ms", "hits", "client", "template"]
    assert [list(row) for row in rows] == [fields] * len(rows)
    assert [row["at"] for row in rows] == sorted(row["at"] for row in rows)
    assert rows[0]["at"] == 0


def test_a_slow_log_of_an_upgraded_node_is_read_whole(tmp_path: Path) -> None:
    old, new = ((LOGS / f"es-slow-log-{version}.log").read_bytes() for version in (7, 8))
    counts = []
    for name, content in (("old", old), ("new", new), ("both", old + new)):
        (tmp_path / name).write_bytes(content)
        counts.append(import_logs([tmp_path / name], tmp_path / f"{name}-out").requests)
    files = [tmp_path / "old", tmp_path / "new"]
    assert counts[2] == counts[0] + counts[1] == import_logs(files, tmp_path / "files-out").requests


def test_a_logger_with_the_id_of_its_index_tells_its_phase(tmp_path: Path) -> None:
    text = (LOGS / "es-slow-log-7.log").read_text()
    write(tmp_path / "log", text.replace("i.s.s.query", "i.s.s.q.Ab1").replace("i.s.s.fetch", "i.s.s.f.Ab1"))
    import_logs([tmp_path / "log"], tmp_path / "out")
    import_logs([LOGS / "es-slow-log-7.log"], tmp_path / "plain")
    assert requests(tmp_path / "out") == requests(tmp_path / "plain")


def test_a_shipper_may_have_renamed_the_time_of_a_slow_log(tmp_path: Path) -> None:
    text = (LOGS / "es-slow-log-7.log").read_text()
    write(tmp_path / "log", text.replace('"timestamp"', '"@timestamp"'))
    import_logs([tmp_path / "log"], tmp_path / "out")
    import_logs([LOGS / "es-slow-log-7.log"], tmp_path / "plain")
    assert requests(tmp_path / "out") == requests(tmp_path / "plain")


@pytest.mark.parametrize("order", ["one node after the other", "newest first", "shuffled"])
def test_lines_of_a_slow_log_may_stand_in_any_order(order: str, tmp_path: Path) -> None:
    asked = [
        slow_line(
            {"size": second % 3},
            at=f"2026-01-02T10:{second // 60:02d}:{second % 60:02d}.{shard}00Z",
            shard=shard,
        )
        for second in range(0, 600, 20)
        for shard in range(2)
    ]
    lines = {
        "one node after the other": asked[::2] + asked[1::2],
        "newest first": asked[30:] + asked[:30],
        "shuffled": random.Random(7).sample(asked, len(asked)),
    }[order]
    for name, logged in (("by time", asked), ("mixed", lines)):
        import_logs([write(tmp_path / "log", *logged)], tmp_path / name)
    assert len(requests(tmp_path / "mixed")) == 30
    assert requests(tmp_path / "mixed") == requests(tmp_path / "by time")


def test_it_is_said_of_how_many_requests_a_slow_log_lacks_shards(tmp_path: Path) -> None:
    whole = [slow_line({"size": 1}, shard=shard) for shard in range(2)]
    log = write(tmp_path / "log", *whole, slow_line({"size": 2}))
    notes = import_logs([log], tmp_path / "out").notes
    assert any(note.startswith("of 1 of its 2 requests it lacks shards") for note in notes)
    assert not any(
        "lacks shards" in note for note in import_logs([write(log, *whole)], tmp_path / "all").notes
    )


def test_a_source_that_is_escaped_twice_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    rows = [json.loads(line) for line in (LOGS / "es-slow-log-8.log").read_text().splitlines()[:3]]
    for number in (1, 2):
        write(log, *map(json.dumps, rows))
        import_logs([log], tmp_path / f"out{number}")
        for row in rows:
            row["elasticsearch.slowlog.source"] = json.dumps(row["elasticsearch.slowlog.source"])[1:-1]
    assert requests(tmp_path / "out1") == requests(tmp_path / "out2")


def test_a_search_of_another_log_is_counted_as_such(tmp_path: Path) -> None:
    text = (LOGS / "es-query-log.log").read_text()
    others = [json.dumps({"elasticsearch.slowlog.total_shards": 1}), json.dumps({"log.logger": "o.e.n.Node"})]
    first = import_logs([write(tmp_path / "log", *text.splitlines())], tmp_path / "first").excluded
    second = import_logs([write(tmp_path / "log", *text.splitlines(), *others)], tmp_path / "second").excluded
    assert {key: count - first.get(key, 0) for key, count in second.items() if count != first.get(key)} == {
        "line of another log": 1,
        "no search": 1,
    }


def test_a_search_of_the_other_slow_log_as_text_is_counted_as_such(tmp_path: Path) -> None:
    shard = (LOGS / "es-slow-log-text.log").read_text().splitlines()[1]
    setting = (
        "[index.search.slowlog.threshold.query.trace] from [-1] to [0ms], [cluster.search.request.slowlog]"
    )
    event = f"[2026-01-02T10:00:00,000][INFO ][o.e.c.s.IndexScopedSettings] [node-0] updating {setting}"
    search = (LOGS / "opensearch-slow-log-text.log").read_text().splitlines()[0]
    for number, (own, other) in enumerate([(shard, search), (search, shard)]):
        log = write(tmp_path / "log", own, other, event)
        summary = import_logs([log], tmp_path / f"out{number}", Options(index="*"))
        assert (summary.requests, summary.excluded) == (1, {"line of another log": 1, "no search": 1})


@pytest.mark.parametrize("name", ["es-slow-log-text", "opensearch-slow-log-text"])
def test_fields_of_a_line_of_text_are_not_looked_for_to_its_end(name: str, tmp_path: Path) -> None:
    """Else a line of a megabyte with many takes minutes."""
    line = next(row for row in (LOGS / f"{name}.log").read_text().splitlines() if " took[" in row)
    long = line.replace(" [node-0] ", f" [{'x' * 600}] ")
    assert long != line
    summary = import_logs([write(tmp_path / "log", line, long)], tmp_path / "out", Options(index="*"))
    assert summary.excluded == {"line cut off or not of the format": 1}


def test_a_byte_order_mark_costs_no_line(tmp_path: Path) -> None:
    plain = (LOGS / "es-slow-log-8.log").read_bytes()
    (tmp_path / "log").write_bytes(b"\xef\xbb\xbf" + plain.replace(b"\n", b"\r\n"))
    marked = import_logs([tmp_path / "log"], tmp_path / "out")
    whole = import_logs([LOGS / "es-slow-log-8.log"], tmp_path / "whole")
    assert (marked.requests, marked.excluded) == (whole.requests, whole.excluded)


def test_nuls_of_a_full_disk_and_marks_of_files_put_together_cost_no_line(tmp_path: Path) -> None:
    """A log that is truncated while its node goes on writing begins with as many NULs as it had bytes."""
    for name in ("es-slow-log-8.log", "es-slow-log-text.log"):
        plain = (LOGS / name).read_bytes()
        first, second, rest = plain.split(b"\n", 2)
        nuls = b"\0" * 5000
        torn = [nuls, first, b"\n", nuls, b"\n", first[:-20], nuls, second, b"\n\xef\xbb\xbf", rest]
        (tmp_path / name).write_bytes(b"".join(torn))
        whole = import_logs([LOGS / name], tmp_path / f"whole-{name}")
        summary = import_logs([tmp_path / name], tmp_path / f"torn-{name}")
        assert summary.requests == whole.requests
        assert sum(summary.excluded.values()) == sum(whole.excluded.values()) + 1


BODY = json.dumps({"query": {"match_all": {}}})


@pytest.mark.parametrize(
    ("lines", "targets"),
    [
        (['{"index":"a"}', BODY, "{}", BODY], ["a", "given"]),
        (["", BODY, "", BODY], ["given", "given"]),  # an empty line is a header without fields
        (['{"index":"a"}', BODY, "", '{"index":["b","c"]}', BODY, ""], ["a", "b,c"]),
        (['{"index":"a"}', BODY, "", BODY, '{"index":"b"}', "", BODY], ["a", "given", "b"]),
    ],
)
def test_headers_of_an_msearch_find_their_bodies(lines: list[str], targets: list[str]) -> None:
    entries = list(rest.msearch([line.encode() for line in lines], LoggedSearch(0, "given", None)))
    assert [(entry.targets, entry.body) for entry in entries if isinstance(entry, LoggedSearch)] == [
        (target, BODY) for target in targets
    ]
    assert len(entries) == len(targets)


@pytest.mark.parametrize("header", ["{}", '{"preference":"me"}'])
def test_an_msearch_whose_headers_name_no_index_is_detected(header: str, tmp_path: Path) -> None:
    """Also where a body has what an export of an index has."""
    log = write(tmp_path / "log", header, '{"_source":{"includes":["a"]},"size":1}', header, BODY)
    assert import_logs([log], tmp_path / "out", Options(index="logs")).requests == 2


def test_a_query_of_our_own_format_about_measurements_is_no_record_of_insights(tmp_path: Path) -> None:
    script = {"script": {"source": "1"}}
    body = {"query": {"term": {"measurements": 1}}, "script_fields": {"one": script}}
    row = {"at": 0, "method": "POST", "path": "/i/_search", "body": body}
    assert import_logs([write(tmp_path / "log", json.dumps(row))], tmp_path / "out").requests == 1


def test_a_header_whose_body_is_cut_off_is_no_search_of_everything() -> None:
    lines = [b'{"index":"a"}', BODY.encode(), b'{"index":"b"}']
    whole, cut = rest.msearch(lines, LoggedSearch(0, "given", None))
    assert (isinstance(whole, LoggedSearch), cut) == (True, Skipped(Reason.BODY))


@pytest.mark.parametrize(
    ("method", "path", "params", "becomes"),
    [
        ("GET", "http://es.local:9200/i/_search", {"q": "a"}, ("i", {})),  # by a proxy
        ("get", "/i/_search?q=a", {}, ("i", {})),
        ("GET", "/i/_search?q=link:http://x.org/p/z", {}, ("i", {})),
        ("GET", "/_search?index=i,j", {}, ("i,j", {})),
        ("GET", "/i/_search?index=j", {}, ("i", {})),  # the path counts
        ("POST", "/i/_doc/_search", {}, ("i", {})),  # with a type, as version 7 takes it
        (
            "POST",
            "/i/_count",
            {"min_score": "3"},
            ("i", {"min_score": 3.0, "size": 0, "track_total_hits": True}),
        ),
    ],
)
def test_a_request_becomes_a_search(
    method: str, path: str, params: dict[str, str], becomes: tuple[str, dict[str, object]]
) -> None:
    (entry,) = rest.searches(LoggedSearch(0, "", ""), method, path, params)
    assert isinstance(entry, LoggedSearch)
    assert (entry.targets, json.loads(entry.body or "")) == becomes


HEADER = {"index": "i", "request_cache": True, "expand_wildcards": ["open", "hidden"], "routing": None}


@pytest.mark.parametrize(
    ("fields", "hits"),
    [
        ({"dsl.total_count": 7}, 7),
        ({"dsl.total_count": 10_000, "dsl.total_count_partial": True}, None),
        ({"dsl.total_count": -1}, None),
        ({"result_count": 10}, None),  # how many came back says nothing of how many there are
    ],
)
def test_hits_of_a_query_log_are_those_that_were_counted(
    fields: dict[str, object], hits: int | None, tmp_path: Path
) -> None:
    import_logs([write(tmp_path / "log", query_line({}, **fields))], tmp_path / "out")
    assert requests(tmp_path / "out")[0]["hits"] == hits


@pytest.mark.parametrize(
    ("took", "took_ms"), [("7.4ms", 7.4), ("245.3micros", 0.2453), ("900nanos", 0.0009), ("1.2s", 1234)]
)
@pytest.mark.parametrize("name", ["es-slow-log-7", "es-slow-log-8", "opensearch-slow-log"])
def test_a_duration_is_as_fine_as_the_log_has_it(
    name: str, took: str, took_ms: float, tmp_path: Path
) -> None:
    (row, *_) = (LOGS / f"{name}.log").read_text().splitlines()
    prefix = "elasticsearch.slowlog." if name.endswith("8") else ""
    millis = 1234 if took.endswith("2s") else int(took_ms)
    line = json.dumps({**json.loads(row), f"{prefix}took": took, f"{prefix}took_millis": millis})
    import_logs([write(tmp_path / "log", line)], tmp_path / "out")
    assert requests(tmp_path / "out")[0]["took_ms"] == pytest.approx(took_ms, abs=1e-3)


def test_parameters_are_those_that_elasticsearch_reads(tmp_path: Path) -> None:
    path = "/i/_search?explain&q=a&suggest_field=t&suggest_text=bob"
    own = {"at": 0, "method": "GET", "path": path, "params": {"lenient": False}}
    for number, lines in enumerate(((json.dumps(HEADER), BODY), (json.dumps(own),))):
        import_logs([write(tmp_path / "log", *lines)], tmp_path / f"out{number}")
    assert requests(tmp_path / "out0")[0]["params"] == {
        "request_cache": "true",  # "True" is refused
        "expand_wildcards": "open,hidden",
    }
    suggest = {"suggest_field": "t", "suggest_text": "bob"}
    asked = {"explain": "", "q": "a", **suggest, "lenient": "false"}
    assert requests(tmp_path / "out1")[0]["params"] == asked
    import_logs([tmp_path / "log"], tmp_path / "hashed", Options(hash_literals=True))
    assert "bob" not in (tmp_path / "hashed/queries.ndjson").read_text()


def test_an_index_of_another_cluster_is_counted_as_such(tmp_path: Path) -> None:
    lines = [query_line({}), query_line({}, indices=["far:logs-*"])]
    excluded = import_logs([write(tmp_path / "log", *lines)], tmp_path / "out").excluded
    assert excluded == {"index of another cluster": 1}


def test_a_part_of_a_data_stream_is_read_as_elasticsearch_reads_it(tmp_path: Path) -> None:
    names = ("logs::data", "logs-*::data,-logs-old", "logs::failures", "logs,logs::failures")
    lines = [query_line({}, indices=name.split(",")) for name in names]
    excluded = import_logs([write(tmp_path / "log", *lines)], tmp_path / "out").excluded
    paths = [row["path"] for row in requests(tmp_path / "out")]
    assert (paths, excluded) == (
        ["/logs/_search", "/logs-*,-logs-old/_search"],
        {"failure store of a data stream": 2},
    )


@pytest.mark.parametrize(
    ("name", "field", "none"),
    [
        ("es-query-log", "elasticsearch.querylog.indices", []),
        ("opensearch-slow-log", "indices", "[]"),
        ("opensearch-slow-log", "indices", []),
        ("query-insights", "indices", []),
    ],
)
def test_a_log_that_lists_no_index_is_of_a_search_of_all(
    name: str, field: str, none: object, tmp_path: Path
) -> None:
    text = (LOGS / f"{name}.log").read_text()
    row = json.loads(text)["top_queries"][0] if name == "query-insights" else json.loads(text.splitlines()[0])
    import_logs([write(tmp_path / "log", json.dumps({**row, field: none}))], tmp_path / "out")
    assert [row["path"] for row in requests(tmp_path / "out")] == ["/_all/_search"]


@pytest.mark.parametrize("logger", ["c.s.r.slowlog", "cluster.search.request.slowlog"])
@pytest.mark.parametrize(
    ("indices", "asked"), [("", None), ("indices[], ", "_all"), ("indices[a, b*], ", "a,b*")]
)
def test_lines_of_opensearch_name_their_logger_in_short_or_in_full(
    logger: str, indices: str, asked: str | None, tmp_path: Path
) -> None:
    line = (
        f"[2026-02-01T03:20:10,848][WARN ][{logger}] [87d2d54c] took[1.1h], took_millis[4093779], "
        "phase_took_millis[{}], total_hits[-1]search_type[QUERY_THEN_FETCH], shards[], "
        f'{indices}source[{{"size":1}}], id[], request_id[]'
    )
    options = Options(index=None if asked else "given")
    import_logs([write(tmp_path / "log", line)], tmp_path / "out", options)
    (request,) = requests(tmp_path / "out")
    assert (request["path"], request["took_ms"]) == (f"/{asked or 'given'}/_search", 4093779)


def test_all_beside_other_names_is_the_name_of_no_index(tmp_path: Path) -> None:
    paths = ("/_all,-foo/_search", "/foo,_all/_search", "/foo/_search")
    lines = [json.dumps({"at": 0, "method": "GET", "path": path}) for path in paths]
    summary = import_logs([write(tmp_path / "log", *lines)], tmp_path / "out", Options(format="queries"))
    assert summary.excluded == {"no name of an index": 2}


@pytest.mark.parametrize(
    "name",
    ["es-slow-log-7", "es-slow-log-8", "opensearch-slow-log", "opensearch-slow-log-text", "query-insights"],
)
def test_the_type_of_a_search_is_kept(name: str, tmp_path: Path) -> None:
    text = (LOGS / f"{name}.log").read_text()
    for kind in ("QUERY_THEN_FETCH", "query_then_fetch"):
        text = text.replace(kind, ("dfs_" if kind.islower() else "DFS_") + kind)
    (tmp_path / "log").write_text(text)
    import_logs([tmp_path / "log"], tmp_path / "out")
    assert {row["params"].get("search_type") for row in requests(tmp_path / "out")} == {
        "dfs_query_then_fetch"
    }


@pytest.mark.parametrize(
    ("message", "becomes"),
    [
        (
            "POST /a/_search HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}GET /b/_search HTTP/1.1\r\n\r\n",
            ["a", "b"],
        ),
        ("GET /a/_search HTTP/1.1\r\n\r\nGET /b/_search HTTP/1.1\r\n\r\n", ["a", "b"]),
        ("POST /a/_search HTTP/1.1\r\nContent-Length: 2\r\n\r\n{} \r\n", ["a"]),
        ("GET /a/_search HTTP/1.1\r\n\r\n{}", ["a"]),
        (
            "POST /a/_search HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
            "GET /b/_search HTTP/1.1\r\n\r\n",
            ["a", "b"],
        ),
        ("POST /a/_search HTTP/1.1\r\nContent-Length: 44\r\n\r\n", ["body cut off or not JSON"]),
        ("", ["line cut off or not of the format"]),
        ('POST /a/_msearch HTTP/1.1\r\n\r\n\n{"size":1}\n', ["a"]),  # its first header is an empty line
    ],
)
def test_requests_of_one_payload_are_all_counted(message: str, becomes: list[str]) -> None:
    lines = f"1 a1 1767348000000000000 0\n{message}\n".encode().splitlines(keepends=True)
    entries = list(rest.parse_goreplay(lines))
    assert [one.targets if isinstance(one, LoggedSearch) else one.reason for one in entries] == becomes


@pytest.mark.parametrize(
    ("packed", "becomes"),
    [
        (gzip.compress(BODY.encode(), mtime=0), BODY),
        (gzip.compress(BODY.encode(), mtime=0)[:-12], "body compressed"),  # cut off
        (gzip.compress(bytes(17 << 20), mtime=0), "line longer than 16 MiB"),
        (b"{}", "body compressed"),
    ],
)
def test_a_body_that_its_client_packed_is_read(packed: bytes, becomes: str) -> None:
    head = f"POST /i/_search HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n"
    payload = b"1 a1 1767348000000000000 0\n" + head.encode() + packed + b"\n"
    (entry,) = rest.parse_goreplay(payload.splitlines(keepends=True))
    assert (entry.body if isinstance(entry, LoggedSearch) else entry.reason) == becomes


def test_headers_with_a_type_are_known_as_version_7_has_them(tmp_path: Path) -> None:
    import_logs([write(tmp_path / "log", '{"index":"a","type":"_doc"}', BODY)], tmp_path / "out")
    assert [row["path"] for row in requests(tmp_path / "out")] == ["/a/_search"]


def test_headers_are_read_however_elasticsearch_takes_them(tmp_path: Path) -> None:
    header = '{"index":"a","ignoreUnavailable":true,"searchType":"dfs_query_then_fetch"}'
    import_logs([write(tmp_path / "log", header, BODY)], tmp_path / "out")
    params = {"ignore_unavailable": "true", "search_type": "dfs_query_then_fetch"}
    assert requests(tmp_path / "out")[0]["params"] == params


@pytest.mark.parametrize("packed", [b"", gzip.compress(b"", mtime=0)], ids=["plain", "packed"])
def test_an_empty_file_among_rotated_ones_is_no_hindrance(tmp_path: Path, packed: bytes) -> None:
    (tmp_path / "today").write_bytes(packed)
    logs = [tmp_path / "today", write(tmp_path / "yesterday", query_line({}))]
    assert import_logs(logs, tmp_path / "out").requests == 1


def test_a_goreplay_file_with_other_ends_of_lines_has_the_same_requests(tmp_path: Path) -> None:
    plain = (LOGS / "goreplay.log").read_bytes()
    (tmp_path / "log").write_bytes(plain.replace("🐵🙈🙉\n".encode(), "🐵🙈🙉\r\n".encode()))
    whole = import_logs([LOGS / "goreplay.log"], tmp_path / "whole")
    changed = import_logs([tmp_path / "log"], tmp_path / "changed")
    assert (changed.requests, changed.excluded) == (whole.requests, whole.excluded)


def test_what_others_write_a_little_differently_is_read_as_well(tmp_path: Path) -> None:
    """Without fields that nothing needs, a number as text, a list on one line, lines that an editor ended."""
    slow = {"type": "index_search_slowlog", "message": "[i][0]", "took_millis": "3", "source": "{}"}
    slow |= {"timestamp": "2026-01-02T10:00:00,000Z", "took": "3ms", "id": "a"}
    record = {"source": {}, "indices": ["i"], "timestamp": "2026-01-02T10:00:00Z"}
    record |= {"measurements": {"latency": {"number": 3, "count": 1}}}
    played = "1 A-1 1767348000000000000\nPOST /i/_search HTTP/1.1\nContent-Length: 2\n\n{}\n"
    query = json.loads(query_line({})) | {"elasticsearch.querylog.took": "3000000"}
    for number, text in enumerate((json.dumps(slow), json.dumps([record]), played, json.dumps(query))):
        log = write(tmp_path / f"log{number}", text)
        assert import_logs([log], tmp_path / f"out{number}").requests == 1, text
        (row,) = requests(tmp_path / f"out{number}")
        assert row["took_ms"] in (3, None)


def test_a_url_that_its_client_did_not_encode_names_the_same_index() -> None:
    payload = "1 a1 1767348000000000000 0\nGET /größe/_search HTTP/1.1\r\n\r\n\n".encode()
    (entry,) = rest.parse_goreplay(payload.splitlines(keepends=True))
    assert isinstance(entry, LoggedSearch)
    assert entry.targets == "größe"
