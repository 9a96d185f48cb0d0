"""Rally tracks in the form of geonames, http_logs, pmc and vectors, with generated documents.

None of them knows the pack; templates and texts are our own.
"""

import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

WORDS = ["red", "fast", "small", "old", "green", "cold", "bright", "empty", "heavy", "quiet"]
POLLING = {"mode": "polling", "poll-period": 1}  # Elasticsearch keeps what such a task came to


def places(folder: Path, count: int = 2000) -> Path:
    """One index, a source of parameters and a runner of its own, a searched scroll, a track parameter."""
    draw = random.Random(1)
    rows = [{"name": " ".join(draw.sample(WORDS, 3)), "people": draw.randrange(10**6)} for _ in range(count)]
    _documents(folder / "places.json", rows)
    _write(
        folder,
        indices=[{"name": "places", "body": "index.json"}],
        corpora=[{"name": "places", "documents": [_of("places.json", count)]}],
        schedule=[
            {"operation": {"operation-type": "delete-index"}},
            {"operation": {"operation-type": "create-index"}},
            {
                "operation": {
                    "name": "green",
                    "operation-type": "cluster-health",
                    "request-params": {"wait_for_status": "green"},
                }
            },
            {
                "operation": {"name": "index", "operation-type": "bulk", "bulk-size": 500},
                "clients": 2,
                "warmup-time-period": 1,
            },
            {"operation": {"operation-type": "note-index"}},
            {"operation": {"operation-type": "force-merge", "max-num-segments": 1, **POLLING}},
            {
                "operation": {"name": "word", "operation-type": "search", "param-source": "some-word"},
                "clients": 1,
                "warmup-time-period": 5,
                "time-period": 5,
                "target-throughput": 50,
            },
            {
                "operation": {
                    "name": "scroll",
                    "operation-type": "scroll-search",
                    "pages": 2,
                    "results-per-page": 100,
                    "body": {"query": {"match_all": {}}},
                }
            },
            {"operation": {"operation-type": "count-places"}},
        ],
    )
    (folder / "index.json").write_text(
        '{"settings": {"index.number_of_shards": {{ shards | default(2) }}, "index.number_of_replicas": 0},'
        ' "mappings": {"properties": {"name": {"type": "text"}, "people": {"type": "integer"}}}}'
    )
    (folder / "track.py").write_text(
        """
def some_word(track, params, **kwargs):
    return {"index": "places", "cache": False, "body": {"query": {"match": {"name": "red"}}}}

async def note_index(es, params):
    await es.index(index="notes", document={"indexed": True}, refresh=True)

async def count_places(es, params):
    answer = await es.count(index="places")
    return {"weight": 1, "unit": "ops", "hits": answer["count"]}

def register(registry):
    registry.register_param_source("some-word", some_word)
    registry.register_runner("note-index", note_index, async_runner=True)
    registry.register_runner("count-places", count_places, async_runner=True)
"""
    )
    return folder


def web_logs(folder: Path, count: int = 1500) -> Path:
    """Two indices by day, each with documents of its own, indexed in parallel; sorted searches over both."""
    draw = random.Random(2)
    days = ("1", "2")
    for day in days:
        rows = [
            {
                "at": 1000 * number,
                "status": draw.choice([200, 200, 404, 500]),
                "path": f"/{draw.choice(WORDS)}/{number}",
            }
            for number in range(count)
        ]
        _documents(folder / f"day-{day}.json", rows)
    _index(folder, at={"type": "date"}, status={"type": "short"}, path={"type": "keyword"})
    _write(
        folder,
        indices=[{"name": f"web-{day}", "body": "index.json"} for day in days],
        corpora=[
            {
                "name": "web",
                "documents": [
                    {**_of(f"day-{day}.json", count), "target-index": f"web-{day}"} for day in days
                ],
            }
        ],
        schedule=[
            {"operation": {"operation-type": "create-index"}},
            {
                "parallel": {
                    "tasks": [
                        {
                            "operation": {
                                "name": f"index-{day}",
                                "operation-type": "bulk",
                                "bulk-size": 500,
                                "indices": [f"web-{day}"],
                            }
                        }
                        for day in days
                    ]
                }
            },
            {"operation": {"operation-type": "refresh"}},
            {
                "operation": {
                    "name": "latest",
                    "operation-type": "search",
                    "index": "web-*",
                    "body": {
                        "query": {"term": {"status": 404}},
                        "sort": [{"at": "desc"}],
                        "track_total_hits": True,
                    },
                }
            },
            {
                "operation": {
                    "name": "by-path",
                    "operation-type": "raw-request",
                    "path": "/web-1/_search",
                    "method": "POST",
                    "body": {"query": {"prefix": {"path": "/red"}}},
                }
            },
        ],
    )
    return folder


def papers(folder: Path, count: int = 400) -> Path:
    """Long texts and a challenge that only searches, so that the pack must index by itself."""
    draw = random.Random(3)
    rows = [
        {"body": " ".join(draw.choices(WORDS, k=300)), "year": 1990 + number % 30} for number in range(count)
    ]
    _documents(folder / "papers.json", rows)
    _index(folder, body={"type": "text"})
    _write(
        folder,
        indices=[{"name": "papers", "body": "index.json"}],
        corpora=[{"name": "papers", "documents": [_of("papers.json", count)]}],
        schedule=[
            {
                "operation": {
                    "name": "phrase",
                    "operation-type": "search",
                    "body": {"query": {"match_phrase": {"body": "red fast"}}},
                }
            },
            {
                "operation": {
                    "name": "pages",
                    "operation-type": "paginated-search",
                    "pages": "all",
                    "results-per-page": 200,
                    "body": {"query": {"term": {"body": "red"}}, "sort": ["year", "_doc"]},
                }
            },
        ],
    )
    return folder


def points(folder: Path, count: int = 1000, dimensions: int = 32) -> Path:
    """Vectors and their nearest neighbours, with a filter."""
    draw = random.Random(4)

    def vector() -> list[float]:
        return [round(draw.gauss(0, 1), 4) for _ in range(dimensions)]

    _documents(folder / "points.json", [{"at": vector(), "kind": draw.choice(WORDS)} for _ in range(count)])
    field = {"type": "dense_vector", "dims": dimensions, "index": True, "similarity": "l2_norm"}
    _index(folder, at=field, kind={"type": "keyword"})
    knn = {"field": "at", "query_vector": vector(), "k": 10, "num_candidates": 50}
    nearest = {"operation-type": "search", "body": {"knn": knn}}
    filtered = {"operation-type": "search", "body": {"knn": {**knn, "filter": {"term": {"kind": "red"}}}}}
    _write(
        folder,
        indices=[{"name": "points", "body": "index.json"}],
        corpora=[{"name": "points", "documents": [_of("points.json", count)]}],
        schedule=[
            {"operation": {"operation-type": "create-index"}},
            {"operation": {"name": "index", "operation-type": "bulk", "bulk-size": 200}},
            {"operation": {"operation-type": "force-merge", "max-num-segments": 1, **POLLING}},
            {"operation": {"name": "nearest", **nearest}},
            {"operation": {"name": "nearest-red", **filtered}},
        ],
    )
    return folder


def _documents(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def _index(folder: Path, **fields: Mapping[str, Any]) -> None:
    body = {"settings": {"index.number_of_replicas": 0}, "mappings": {"properties": fields}}
    (folder / "index.json").write_text(json.dumps(body))


def _of(name: str, count: int) -> dict[str, Any]:
    return {"source-file": name, "document-count": count}


def _write(folder: Path, **parts: Any) -> None:  # noqa: ANN401 - JSON
    (folder / "track.json").write_text(json.dumps({"version": 2, "description": folder.name, **parts}))
