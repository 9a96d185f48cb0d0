"""What surrounds a search, part by part: Rally's runner, its ``detailed-results``, our runner around it.

    sudo .venv/bin/python benchmarks/overhead_parts.py [--blocks 80] [--documents 200000]

One process asks one node, whose index is in memory, on one connection, a hundred requests of a variant after
the other, in an order that is drawn for every block: what differs from race to race, which blurs
overhead.py, is the same for all. *detailed* is what a session needs of Rally (hits and took); *head* is
that with the answer parsed as far as they go (worker.py), *pack* is *head* in our runner, cache: warm.
Prints percentiles of the service time, their ratio to Rally's runner without details, and how long a request
takes in all. Five requests after each change of variant are not counted.
"""

import argparse
import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from esrally.client import factory
from esrally.driver import runner
from overhead import ARM, Bench, bench
from races import be_called
from steal import steal_reported

from esrally_ebs.model import Block, Request, Work
from esrally_ebs.rally import activation, runners
from esrally_ebs.rally.request_source import BLOCK

_WARMUPS = 6000
_REQUESTS, _UNCOUNTED = 100, 5
_PERCENTILES = (50, 90, 99)
_QUERY = {"query": {"range": {"TRANGE": {"gte": 0, "lte": 30}}}}  # the track's range_field_big_range


@dataclass(frozen=True)
class Variant:
    """One way to ask, and what was measured of it (s)."""

    name: str
    ask: Any  # Rally's runner, or ours around it
    parse: Any
    params: Mapping[str, Any]
    service_s: list[float] = field(default_factory=list)
    whole_s: list[float] = field(default_factory=list)


def _variants(session: Path) -> list[Variant]:
    runner.register_default_runners()
    plain = runner.runner_for("search")
    whole = runner.parse
    activation.install(session)
    head = runner.parse
    params = {
        "operation-type": "search",
        "index": "weather-data-2016",
        "body": _QUERY,
        "request-params": {},
        "detailed-results": False,
    }
    detailed = {**params, "detailed-results": True}
    block = Block(arm=ARM, cluster="default", work=Work.SEARCH, task="q", round=1)
    return [
        Variant("Rally's runner", plain, whole, params),
        Variant("detailed", plain, whole, detailed),
        Variant("head", plain, head, detailed),
        Variant("pack", runners.OnArm(plain), head, {**detailed, BLOCK: Request(block=block, number=2)}),
    ]


async def _measure(bench: Bench, variants: list[Variant], blocks: int) -> None:
    clients = factory.EsClientFactory(
        hosts=[{"host": bench.node.host, "port": bench.node.port}],
        client_options={"timeout": 60},
        distribution_version=bench.node.version,
        distribution_flavor="default",
    )
    es = clients.create_async(client_id=0)
    try:
        for _ in range(_WARMUPS):
            await _ask(es, variants[0])
        for _ in range(blocks):
            for variant in random.sample(variants, len(variants)):
                runner.parse = variant.parse
                began = time.perf_counter()
                times = [await _ask(es, variant) for _ in range(_REQUESTS)]
                variant.whole_s.append((time.perf_counter() - began) / _REQUESTS)
                variant.service_s.extend(times[_UNCOUNTED:])
    finally:
        await es.close()


async def _ask(es: Any, variant: Variant) -> float:  # noqa: ANN401 - Rally is untyped
    with es.new_request_context() as request:
        async with variant.ask:
            await variant.ask({"default": es}, dict(variant.params))
        return float(request.request_end - request.request_start)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--blocks", type=int, default=80, help="of a hundred requests of each variant")
    parser.add_argument("--documents", type=int, default=200_000)
    words = parser.parse_args()
    be_called("ebs-overhead-parts")
    with bench("range_field_big_range", _REQUESTS, words.documents) as indexed, steal_reported():
        variants = _variants(indexed.session().path)
        asyncio.run(_measure(indexed, variants, words.blocks))
    reference = np.percentile(variants[0].service_s, _PERCENTILES)
    print(f"{'':16}{'p50 ms':>9}{'p90 ms':>9}{'p99 ms':>9}{'ratios':>24}{'request in all, us':>21}")
    for variant in variants:
        times = np.percentile(variant.service_s, _PERCENTILES)
        percentiles = "".join(f"{1000 * value:9.3f}" for value in times)
        ratios = "".join(f"{value:8.3f}" for value in times / reference)
        print(f"{variant.name:16}{percentiles}{ratios}{1e6 * np.median(variant.whole_s):21,.0f}")


if __name__ == "__main__":
    main()
