"""How fast query logs are imported: generates a log of a million lines, imports it, prints what it took.

    python benchmarks/workload_import.py [--lines 1000000] [--format es-slow-log-8] [--directory DIR]

The bounds: 30 s and 300 MB on one core, and 99.9 % of the search lines become a request or a counted reason.
Exit code 1 when one is missed.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

MAX_SECONDS, MAX_BYTES, MIN_SHARE = 30.0, 300e6, 0.999
START = datetime(2026, 3, 1, tzinfo=UTC)
WORDS = ["volume", "latency", "search", "index", "shard", "segment", "merge", "cache", "page", "query"]

OF_ALL = {  # fields that each line of a log has
    "ecs.version": "1.2.0",
    "service.name": "ES_ECS",
    "process.thread.name": "elasticsearch[node-0][search][T#3]",
    "elasticsearch.node.name": "node-0",
    "elasticsearch.cluster.name": "production",
}


def written(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def body(draw: random.Random) -> dict[str, Any]:
    """One of a dozen kinds of queries, with literals of its own."""
    kind = draw.randrange(12)
    if kind < 4:
        text = " ".join(draw.choices(WORDS, k=3))
        fields = ["title^2", "body"][: kind % 2 + 1]
        return {"size": 10, "query": {"multi_match": {"query": text, "fields": fields}}}
    day = f"2026-02-{draw.randrange(1, 29):02d}"
    clauses: list[dict[str, Any]] = [
        {"term": {"customer": f"c-{draw.randrange(100_000)}"}},
        {
            "range": {
                "@timestamp": {
                    "gte": "now-1d/d" if kind == 4 else day,
                    "lt": "now" if kind == 4 else "2026-03-01",
                }
            }
        },
        {"terms": {"status": draw.sample(range(200, 600), draw.randrange(1, 6))}},
    ]
    query = {"bool": {"filter": clauses[: kind % 3 + 1], "should": [{"match": {"body": draw.choice(WORDS)}}]}}
    if kind < 8:
        return {"from": 0, "size": 20, "query": query, "sort": [{"@timestamp": "desc"}]}
    hours = {"date_histogram": {"field": "@timestamp", "fixed_interval": "1h"}}
    top = {"terms": {"field": "customer", "size": 10}, "aggs": {"mean": {"avg": {"field": "duration"}}}}
    return {"size": 0, "query": query, "aggs": {"hours": hours, "top": top}}


def query_log(lines: int) -> Iterator[str]:
    """Lines as Elasticsearch 9.4 writes them; one in 500 cannot be replayed."""
    draw = random.Random(42)
    for number in range(lines):
        at = START + timedelta(milliseconds=number * 3)
        took = draw.randrange(400_000, 80_000_000)
        kind = "esql" if draw.randrange(500) == 0 else "dsl"
        yield json.dumps(
            {
                "@timestamp": written(at),
                "log.level": "INFO",
                **OF_ALL,
                "event.dataset": "elasticsearch.querylog",
                "event.outcome": "success",
                "event.duration": took,
                "elasticsearch.querylog.type": kind,
                "elasticsearch.querylog.query": json.dumps(body(draw), separators=(",", ":")),
                "elasticsearch.querylog.indices": [f"logs-{number % 3}"],
                "elasticsearch.querylog.took": took,
                "elasticsearch.querylog.took_millis": took // 1_000_000,
                "elasticsearch.querylog.result_count": draw.randrange(10),
                "elasticsearch.querylog.dsl.total_count": draw.randrange(10_000),
                "elasticsearch.querylog.shards.successful": 3,
                "elasticsearch.task.id": number,
                "user.name": "kibana",
                "log.logger": "elasticsearch.querylog",
            }
        )


def slow_log(lines: int) -> Iterator[str]:
    """Lines as Elasticsearch 8 writes them: three shards, of which some are fetched from."""
    draw = random.Random(42)
    number = 0
    while number < lines:
        at = START + timedelta(milliseconds=number * 3)
        source = json.dumps(body(draw), separators=(",", ":"))
        phases = [("query", shard) for shard in range(3)] + [
            ("fetch", shard) for shard in range(draw.randrange(4))
        ]
        for phase, shard in phases[: lines - number]:
            number += 1
            took = draw.randrange(1, 60)
            end = at + timedelta(milliseconds=took + 60 * (phase == "fetch"))
            yield json.dumps(
                {
                    "@timestamp": written(end),
                    "log.level": "TRACE",
                    **OF_ALL,
                    "elasticsearch.slowlog.id": "client-1",
                    "elasticsearch.slowlog.message": f"[logs-0][{shard}]",
                    "elasticsearch.slowlog.search_type": "QUERY_THEN_FETCH",
                    "elasticsearch.slowlog.source": source,
                    "elasticsearch.slowlog.stats": "[]",
                    "elasticsearch.slowlog.took": f"{took}ms",
                    "elasticsearch.slowlog.took_millis": took,
                    "elasticsearch.slowlog.total_hits": f"{draw.randrange(100)} hits",
                    "elasticsearch.slowlog.total_shards": 3,
                    "event.dataset": "elasticsearch.index_search_slowlog",
                    "log.logger": f"index.search.slowlog.{phase}",
                }
            )


LOGS = {"es-query-log": query_log, "es-slow-log-8": slow_log}


def measure(log: Path, output: Path) -> tuple[float, float, float]:
    """Seconds of one core, seconds on the wall, and peak bytes of the command.

    The bound is on the former: the latter also holds what others do on the machine.
    """
    core = str(min(os.sched_getaffinity(0)))
    command = ["taskset", "-c", core, sys.executable, "-m", "esrally_ebs", "workload", "import", str(log)]
    begun = time.perf_counter()
    subprocess.run([*command, "--output", str(output)], check=True, stdout=sys.stderr)
    wall = time.perf_counter() - begun
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime, wall, used.ru_maxrss * 1024.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--format", choices=LOGS, default="es-query-log")
    parser.add_argument(
        "--directory", type=Path, default=None, help="where the log is written; default temporary"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        log, output = Path(folder, "log.json"), Path(folder, "workload")
        with log.open("w") as file:
            file.writelines(f"{line}\n" for line in LOGS[options.format](options.lines))
        print(f"{log.stat().st_size / 1e6:,.0f} MB in {options.lines:,} lines of {options.format}")
        seconds, wall, peak = measure(log, output)
        counts = json.loads((output / "excluded.json").read_text())
    accounted = counts["requests"] + counts["joined"] + sum(counts["excluded"].values())
    share = accounted / counts["lines"]
    print(
        f"{seconds:.1f} s of one core ({wall:.1f} s on the wall), peak {peak / 1e6:.0f} MB, "
        f"{counts['requests']:,} requests, {share:.3%} accounted for"
    )
    return 0 if seconds <= MAX_SECONDS and peak <= MAX_BYTES and share >= MIN_SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
