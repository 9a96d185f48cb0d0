"""What cannot be asked is left out for a reason, and what would answer by the volume is taken off."""

import json
from pathlib import Path
from typing import Any

import pytest
from query_logs import requests, write

from esrally_ebs.workload.queries import Options, import_logs
from esrally_ebs.workload.queries.shapes import Shapes

SCRIPT = {"script": {"script": {"source": "doc['a'].value > params.x", "params": {"x": 1}}}}


@pytest.mark.parametrize(
    ("body", "reason", "without_modules"),
    [
        ({"query": {"match_all": {}}}, None, None),
        ({"query": SCRIPT}, None, "needs a module that the node lacks"),
        ({"query": {"term": {"script": "x"}}}, None, None),  # a field of that name
        ({"highlight": {"fields": {"script": {}, "query": {"type": "plain"}, "filter": {}}}}, None, None),
        ({"query": {"script": {"script": {"id": "stored"}}}}, "script that is not painless", None),
        (
            {"query": {"script": {"script": {"lang": "groovy", "source": "1"}}}},
            "script that is not painless",
            None,
        ),
        ({"aggs": {"a": {"rate": {"unit": "day"}}}}, None, "needs a module that the node lacks"),
        ({"aggs": {"a": {"derivative": {"buckets_path": "b"}}}}, None, "needs a module that the node lacks"),
        ({"query": {"text_expansion": {"f": {"model_id": "m"}}}}, None, "needs a module that the node lacks"),
        ({"query": {"common": {"f": "x"}}}, "unknown query", None),  # gone since 8.0
        (
            {"aggs": {"a": {"terms": {"field": "x", "include": {"partition": 0, "num_partitions": 2}}}}},
            None,
            None,
        ),
        (
            {"aggs": {"a": {"terms": {"field": "x"}, "aggs": {"b": {"magic": {}}}}}},
            "unknown aggregation",
            None,
        ),
        ({"query": {"bool": {"must": [{"hybrid": {}}]}}}, "unknown query", None),
        ({"query": {"function_score": {"query": {"neural": {}}, "functions": []}}}, "unknown query", None),
        ({"query": {"intervals": {"t": {"all_of": {"intervals": [{"match": {"query": "a"}}]}}}}}, None, None),
        ({"query": {"span_near": {"clauses": [{"span_term": {"a": "b"}}], "slop": 1}}}, None, None),
        ({"query": {"span_near": {"clauses": [{"span_gap": {"a": 2}}], "slop": 1}}}, None, None),
        ({"query": {"field_masking_span": {"field": "a", "query": {"span_term": {"b": "c"}}}}}, None, None),
        (
            {"query": {"nested": {"path": "a", "query": {"has_child": {}}}}},
            None,
            "needs a module that the node lacks",
        ),
        ({"pit": {"id": "x"}}, "point in time", None),
        ({"slice": {"id": 0, "max": 2}}, "scroll", None),
        ({"search_pipeline": "of OpenSearch"}, "unknown part of a search", None),
        ({"retriever": {"standard": {}}}, None, "needs a module that the node lacks"),
        ({"query": {"kql": {"query": "a:b"}}}, None, "needs a module that the node lacks"),
        ({"query": {}}, "unknown query", None),
        ({"query": {"knn": {"field": "v", "query_vector": [1.0]}}}, None, None),
        ({"query": {"knn": {"v": {"vector": [1.0], "k": 2}}}}, "unknown query", None),  # OpenSearch's
    ],
)
def test_what_cannot_be_asked_has_a_reason(
    body: dict[str, Any], reason: str | None, without_modules: str | None
) -> None:
    text = json.dumps(body)
    assert Shapes().of(text).reason == reason
    assert Shapes(modules=False).of(text).reason == (reason or without_modules)


@pytest.mark.parametrize(
    "body",
    [
        {"sort": {"price": ["asc"]}},
        {"query": {"script": {"query_vector": {"a": 1}}}},
        {"query": {"script": {"script": "1", "tokens": {"a": {"b": 1}}}}},
    ],
)
@pytest.mark.parametrize("hash_literals", [False, True])
def test_what_elasticsearch_refuses_is_a_request_or_left_out(
    body: dict[str, Any], hash_literals: bool, tmp_path: Path
) -> None:
    """One such line ended the import of all."""
    rows = [{"at": 0, "method": "POST", "path": "/logs/_search", "body": each} for each in (body, {})]
    log = write(tmp_path / "log", *map(json.dumps, rows))
    summary = import_logs([log], tmp_path / "out", Options(hash_literals=hash_literals))
    assert summary.requests + sum(summary.excluded.values()) == 2


def test_time_limits_are_taken_off_as_answers_would_depend_on_the_volume(tmp_path: Path) -> None:
    own = {"at": 0.0, "method": "POST", "path": "/logs/_search", "params": {"timeout": "1ms", "size": "5"}}
    rows = [own | {"body": {"timeout": "10ms", "query": {"match_all": {}}}}, own | {"params": {}, "body": {}}]
    summary = import_logs([write(tmp_path / "log", *map(json.dumps, rows))], tmp_path / "out")
    first, second = requests(tmp_path / "out")
    assert (first["body"], first["params"]) == ({"query": {"match_all": {}}}, {"size": "5"})
    assert second["body"] == {}
    assert [count for what, count in summary.changed.items() if what.startswith("time limits")] == [1]


def test_a_time_limit_makes_no_template_as_it_is_not_asked_for(tmp_path: Path) -> None:
    row = {"at": 0.0, "method": "POST", "path": "/logs/_search"}
    rows = [row | {"body": {"size": 1, **limit}} for limit in ({}, {"timeout": "1s"}, {"timeout": "2s"})]
    assert import_logs([write(tmp_path / "log", *map(json.dumps, rows))], tmp_path / "out").templates == 1


@pytest.mark.parametrize(
    ("preference", "params"),
    [
        ("_only_nodes:abc,node-*", {}),
        ("_shards:1,2|_only_nodes:rack:1", {"preference": "_shards:1,2"}),
        ("_prefer_nodes:abc", {}),
        ("only_nodes:abc", {"preference": "only_nodes:abc"}),
    ],
)
def test_a_preference_for_nodes_is_taken_off_as_those_of_a_race_are_others(
    preference: str, params: dict[str, str], tmp_path: Path
) -> None:
    """A node refuses ``_only_nodes`` without such a node, on every arm."""
    row = {"at": 0, "method": "GET", "path": "/i/_search", "params": {"preference": preference}}
    summary = import_logs([write(tmp_path / "log", json.dumps(row))], tmp_path / "out")
    assert requests(tmp_path / "out")[0]["params"] == params
    assert sum(summary.changed.values()) == (params.get("preference") != preference)
