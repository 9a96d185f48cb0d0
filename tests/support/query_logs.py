"""Query logs for tests: bodies of searches, lines of Elasticsearch's query log and of its slow log."""

import json
from pathlib import Path
from typing import Any

GOLDEN_LOGS = Path(__file__).parents[1] / "golden" / "workload" / "logs"


def slow_line(body: object, *, at: str = "2026-01-02T10:00:00.000Z", shard: int = 0) -> str:
    """A line of a search slow log of version 8: one shard, in the query phase."""
    return json.dumps(
        {
            "@timestamp": at,
            "log.logger": "index.search.slowlog.query",
            "elasticsearch.slowlog.message": f"[logs][{shard}]",
            "elasticsearch.slowlog.took_millis": 40,
            "elasticsearch.slowlog.total_hits": "3 hits",
            "elasticsearch.slowlog.total_shards": 2,
            "elasticsearch.slowlog.source": json.dumps(body),
        }
    )


def query_line(body: object, *, at: str = "2026-01-02T10:00:00.000Z", **fields: object) -> str:
    """A line of the query log of Elasticsearch 9.4."""
    row: dict[str, Any] = {
        "@timestamp": at,
        "elasticsearch.querylog.type": "dsl",
        "elasticsearch.querylog.query": body if isinstance(body, str) else json.dumps(body),
        "elasticsearch.querylog.indices": ["logs"],
        "elasticsearch.querylog.took": 1_000_000,
    }
    return json.dumps({**row, **{f"elasticsearch.querylog.{name}": value for name, value in fields.items()}})


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def requests(folder: Path) -> list[dict[str, Any]]:
    """The requests of an imported workload."""
    return [json.loads(line) for line in (folder / "queries.ndjson").read_text().splitlines()]


def accounted(folder: Path) -> int:
    """Lines that became a request, a part of one, or a counted reason, where an entry is a line."""
    counts = json.loads((folder / "excluded.json").read_text())
    return int(counts["requests"] + counts["joined"] + sum(counts["excluded"].values()))
