"""What precedes what in a request."""

import asyncio
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from recorded_steps import RecordedSearch

from esrally_ebs.errors import MeasurementError, SetupError
from esrally_ebs.machine.processes import Clock
from esrally_ebs.model import Block, Node, Phase, Request, Work
from esrally_ebs.node.eviction import Eviction, make_cold
from esrally_ebs.plan.tables import CachePlan
from esrally_ebs.session.protocol import search

COLD = ["prepare", "make cold", "record", "request"]
WARM = ["prepare", "request"]


def request(number: int, phase: Phase = Phase.MEASURE) -> Request:
    block = Block(arm="a", cluster="default", work=Work.SEARCH, task="q", round=1, phase=phase)
    return Request(block=block, number=number)


def send(
    steps: RecordedSearch,
    *numbers: int,
    phase: Phase = Phase.MEASURE,
    **cache: Any,  # noqa: ANN401
) -> list[dict[str, Any]]:
    """The results of the requests of these numbers."""
    made = CachePlan(**cache)
    return [asyncio.run(search(request(number, phase), made, steps)) for number in numbers]


def test_a_cold_request_is_sent_at_once_when_the_index_is_cold() -> None:
    steps = RecordedSearch()
    send(steps, 2)
    assert steps.order == COLD


@pytest.mark.parametrize(
    ("drop_every", "order", "iterations"),
    [(1, COLD * 3, [1, 1, 1]), (2, [*COLD, *WARM, *COLD], [1, 2, 1]), (0, [*COLD, *WARM, *WARM], [1, 2, 3])],
)
def test_so_many_requests_follow_a_drop_and_only_the_first_connects(
    drop_every: int, order: list[str], iterations: list[int]
) -> None:
    steps = RecordedSearch()
    results = send(steps, 1, 2, 3, drop_every=drop_every)
    assert steps.order == ["connect", *order]
    assert [result["iteration"] for result in results] == iterations
    resident = [0.001 if iteration == 1 else None for iteration in iterations]
    assert [result.get("resident_before") for result in results] == resident


@pytest.mark.parametrize(
    ("phase", "cache"), [(Phase.MEASURE, {"mode": "warm"}), (Phase.WARMUP, {"mode": "cold"})]
)
def test_warm_requests_and_warm_ups_drop_nothing(phase: Phase, cache: dict[str, Any]) -> None:
    steps = RecordedSearch()
    results = send(steps, 1, 2, phase=phase, **cache)
    assert steps.order == ["connect", *WARM, *WARM]
    assert [result["iteration"] for result in results] == [1, 2]


@pytest.mark.parametrize("step", ["connect", "prepare", "make cold"])
def test_nothing_is_requested_after_a_step_before_it_failed(step: str) -> None:
    steps = RecordedSearch(fails_at=step, error=MeasurementError("not cold"))
    with pytest.raises(MeasurementError, match="not cold"):
        send(steps, 1)
    assert steps.order[-1] == step


def test_the_result_is_that_of_the_request() -> None:
    (result,) = send(RecordedSearch(), 2)
    assert result == {"hits": 7, "iteration": 1, "resident_before": 0.001}


class Index:
    """An index of which each eviction leaves a part; what was done to it is in ``order``."""

    def __init__(self, *left: float, size: int = 1000) -> None:
        self.order: list[str] = []
        self._left = iter(left)
        self._size = size

    def clear(self) -> None:
        self.order.append("clear")

    def evict(self, *_: object, **__: object) -> Eviction:
        self.order.append("evict")
        left = next(self._left)
        return Eviction(bytes=self._size, resident_before=0.9, resident_after=left, seconds=0.0, refill_s=0.5)

    def get_cold(self) -> Any:  # noqa: ANN401 - a Drop
        node = Node(arm="a", container="c", host="", port=0, pid=0, data_dir=Path("/a"), memory_cgroup=None)
        clock = Clock(sleep=lambda s: self.order.append("pause"), monotonic=lambda: 0.0)
        return make_cold([node], max_resident=0.01, clear=self.clear, evict=self.evict, clock=clock)


def test_caches_of_elasticsearch_are_cleared_before_the_index_is_evicted() -> None:
    index = Index(0.0)
    assert index.get_cold().attempts == 1
    assert index.order == ["clear", "evict"]


def test_an_index_that_is_not_cold_is_cleared_and_evicted_again_after_a_pause() -> None:
    index = Index(0.4, 0.02, 0.005)
    drop = index.get_cold()
    assert index.order == ["clear", "evict", "pause", "clear", "evict", "pause", "clear", "evict"]
    assert (drop.before, drop.after, drop.attempts, drop.refill_s) == (0.9, 0.005, 3, 1.5)


def test_an_index_that_stays_in_the_cache_is_given_up_and_its_share_is_named() -> None:
    index = Index(0.4, 0.3, 0.2)
    with pytest.raises(MeasurementError, match=r"/a: 20\.0% of 1000 B still in the page cache"):
        index.get_cold()
    assert index.order.count("evict") == 3


def test_no_index_is_not_a_cold_one() -> None:
    index = Index(0.0, size=0)
    with pytest.raises(MeasurementError, match="holds no index"):
        index.get_cold()


def test_nodes_of_a_cluster_are_evicted_at_once_and_the_warmest_counts() -> None:
    both = Barrier(2, timeout=10)
    node = Node(arm="a", container="c", host="", port=0, pid=0, data_dir=Path("/a"), memory_cgroup=None)

    def evict(node: Node) -> Eviction:
        both.wait()  # broken when one is evicted after the other
        return Eviction(
            bytes=1000, resident_before=0.9, resident_after=node.pid / 1000, seconds=0.0, refill_s=node.pid
        )

    nodes = [replace(node, pid=at) for at in (1, 3)]
    drop = make_cold(nodes, max_resident=0.01, clear=lambda: None, evict=evict)
    assert (drop.after, drop.refill_s) == (0.003, 3)


def test_an_eviction_that_cannot_be_made_is_not_tried_again() -> None:
    index = Index()
    index.clear = lambda: (_ for _ in ()).throw(SetupError("does not answer"))  # type: ignore[method-assign]
    with pytest.raises(SetupError, match="does not answer"):
        index.get_cold()
    assert index.order == []


def test_in_any_order_of_requests_nothing_stands_between_eviction_and_request() -> None:
    steps = RecordedSearch()
    send(steps, 1, 2, 3, 4, 5, drop_every=2)
    after = dict(pair for pair in pairwise(steps.order) if pair[0] in ("make cold", "record"))
    assert after == {"make cold": "record", "record": "request"}
