"""Rally tracks in the form of geonames, http_logs, pmc and vectors, with generated documents.

None of them knows the pack; templates and texts are our own.
"""

import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

WORDS = ["red", "fast", "small", "old", "green", "cold", "bright", "empty", "heavy", "quiet"]
# Elasticsearch keeps what such a task came to
POLLED_MERGE = {
    "operation": {"operation-type": "force-merge", "max-num-segments": 1, "mode": "polling", "poll-period": 1}
}


def places(folder: Path, count: int = 2000) -> Path:
    """One index, a source of parameters and a runner of its own, a searched scroll, a track parameter."""
    draw = random.Random(1)
    rows = [{"name": " ".join(draw.sample(WORDS, 3)), "people": draw.randrange(10**6)} for _ in range(count)]
    _documents(folder / "places.json", rows)
    green = {"request-params": {"wait_for_status": "green"}}
    pages = {"pages": 2, "results-per-page": 100, "body": {"query": {"match_all": {}}}}
    timed = {"clients": 1, "warmup-time-period": 5, "time-period": 5, "target-throughput": 50}
    _write(
        folder,
        indices=[{"name": "places", "body": "index.json"}],
        corpora=[{"name": "places", "documents": [_of("places.json", count)]}],
        schedule=[
            _task("delete-index"),
            _task("create-index"),
            _task("cluster-health", "green", green),
            {**_task("bulk", "index", {"bulk-size": 500}), "clients": 2, "warmup-time-period": 1},
            _task("note-index"),
            POLLED_MERGE,
            {**_task("search", "word", {"param-source": "some-word"}), **timed},
            _task("scroll-search", "scroll", pages),
            _task("count-places"),
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
        rows = (
            {
                "at": 1000 * number,
                "status": draw.choice([200, 200, 404, 500]),
                "path": f"/{draw.choice(WORDS)}/{number}",
            }
            for number in range(count)
        )
        _documents(folder / f"day-{day}.json", rows)
    _index(folder, at={"type": "date"}, status={"type": "short"}, path={"type": "keyword"})
    documents = [{**_of(f"day-{day}.json", count), "target-index": f"web-{day}"} for day in days]
    bulks = [_task("bulk", f"index-{day}", {"bulk-size": 500, "indices": [f"web-{day}"]}) for day in days]
    missed = {"query": {"term": {"status": 404}}, "sort": [{"at": "desc"}], "track_total_hits": True}
    by_path = {"path": "/web-1/_search", "method": "POST", "body": {"query": {"prefix": {"path": "/red"}}}}
    _write(
        folder,
        indices=[{"name": f"web-{day}", "body": "index.json"} for day in days],
        corpora=[{"name": "web", "documents": documents}],
        schedule=[
            _task("create-index"),
            {"parallel": {"tasks": bulks}},
            _task("refresh"),
            _task("search", "latest", {"index": "web-*", "body": missed}),
            _task("raw-request", "by-path", by_path),
        ],
    )
    return folder


def papers(folder: Path, count: int = 400) -> Path:
    """Long texts and a challenge that only searches, so that the pack must index by itself."""
    draw = random.Random(3)
    rows = ({"body": " ".join(draw.choices(WORDS, k=300)), "year": 1990 + n % 30} for n in range(count))
    _documents(folder / "papers.json", rows)
    _index(folder, body={"type": "text"})
    sorted_ = {"query": {"term": {"body": "red"}}, "sort": ["year", "_doc"]}
    pages = {"pages": "all", "results-per-page": 200, "body": sorted_}
    _write(
        folder,
        indices=[{"name": "papers", "body": "index.json"}],
        corpora=[{"name": "papers", "documents": [_of("papers.json", count)]}],
        schedule=[
            _task("search", "phrase", {"body": {"query": {"match_phrase": {"body": "red fast"}}}}),
            _task("paginated-search", "pages", pages),
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
    _write(
        folder,
        indices=[{"name": "points", "body": "index.json"}],
        corpora=[{"name": "points", "documents": [_of("points.json", count)]}],
        schedule=[
            _task("create-index"),
            _task("bulk", "index", {"bulk-size": 200}),
            POLLED_MERGE,
            _task("search", "nearest", {"body": {"knn": knn}}),
            _task("search", "nearest-red", {"body": {"knn": {**knn, "filter": {"term": {"kind": "red"}}}}}),
        ],
    )
    return folder


def _task(kind: str, name: str = "", params: Mapping[str, Any] | None = None) -> dict[str, Any]:
    called = {"name": name} if name else {}
    return {"operation": {**called, "operation-type": kind, **(params or {})}}


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
