"""What work with shards begins with, and when it is given up."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from es_gp3 import node_of
from small_plan import small_plan

from esrally_ebs.errors import SetupError
from esrally_ebs.model import Kind, Volume, VolumeSpec
from esrally_ebs.plan import Plan, parse_plan
from esrally_ebs.rally.recovery import CopyDeadline, Recovery, patience_s
from esrally_ebs.store.context import Arm, Member
from esrally_ebs.units import MIB


@pytest.mark.parametrize(
    ("spec", "setting", "seconds"),
    [
        ({"type": "directory"}, "20mb", 120 + 10 * 20),
        ({"type": "directory"}, "40mb", 120 + 10 * 10),
        ({"type": "directory"}, "-1", 120 + 10 * 10),  # it may be any, and no limit is no speed
        (
            {"type": "st1", "size_bytes": 125 * 1024**3},
            "40mb",
            120 + 10 * (400 / 5 + 30),
        ),  # credits are spent
        # 3200 pieces of readahead, of 0.53 ms each, one after the other
        ({"type": "gp3", "read_latency": 20.0}, "40mb", 120 + 10 * 3200 * 20 * 0.53e-3),
    ],
)
def test_copies_get_ten_times_what_the_slowest_limit_lets_them_and_two_minutes(
    spec: dict[str, object], setting: str, seconds: float
) -> None:
    arms = '[[arm]]\nname = "a"\ntype = "gp3"\n[race]\n[node]\ncount = 2\n'
    text = f'name = "p"\n{arms}params = {{ "indices.recovery.max_bytes_per_sec" = "{setting}" }}\n'
    volume = Volume(spec=VolumeSpec(name="a-1", **spec), kind=Kind.DIRECTORY, mount=Path("/"))  # type: ignore[arg-type]
    arm = Arm(name="a", cluster="a", members=(Member(volume=volume),))
    assert patience_s(400.0 * MIB, arm, parse_plan(text, "p.toml")) == pytest.approx(seconds, rel=0.05)


class Cluster:
    """Answers of Elasticsearch 8.8 about a replica that may be on no node."""

    def __init__(self, explained: dict[str, Any]) -> None:
        self.cat = self.cluster = self
        self._explained = explained

    async def shards(self, **_: object) -> list[dict[str, Any]]:
        there = {"shard": "0", "prirep": "p", "state": "STARTED", "node": "a-1"}
        return [there, {"shard": "0", "prirep": "r", "state": "UNASSIGNED", "node": None}]

    async def allocation_explain(self, **asked: object) -> dict[str, Any]:
        assert asked == {"index": "i", "shard": 0, "primary": False}
        return self._explained


def decided(node: str, decider: str, explanation: str) -> dict[str, Any]:
    return {
        "node_name": node,
        "deciders": [{"decider": decider, "decision": "NO", "explanation": explanation}],
    }


@pytest.mark.parametrize(
    ("decisions", "why"),
    [
        ([decided("a-1", "same_shard", "is there"), decided("a-2", "throttling", "[0]")], "a-2: [0]"),
        ([], "it does not say why"),
    ],
)
def test_a_copy_that_never_comes_is_given_up_in_a_line_that_says_what_is_missing(
    decisions: list[dict[str, Any]], why: str
) -> None:
    es = Cluster({"node_allocation_decisions": decisions})
    with pytest.raises(SetupError) as given_up:
        asyncio.run(CopyDeadline("a", "replica", 0.1).on(es, "i", asyncio.sleep(60)))
    assert str(given_up.value) == (
        "arm a: replica: i is not green after 0 s, which is 10 times what its limits let copies take, and "
        f"120 s: replica 0 is on no node: {why}; see the nodes' logs, start the race again"
    )


class Elasticsearch:
    """One that answers at once, by the name of what it is asked; keeps that, and how long it may take (s)."""

    def __init__(self, **answers: object) -> None:
        self.cat = self.cluster = self.indices = self.snapshot = self
        self.asked: list[tuple[str, float]] = []
        self._answers, self._timeout_s = answers, 0.0

    def options(self, *, request_timeout: float) -> "Elasticsearch":
        self._timeout_s = request_timeout
        return self

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def answer(**_: object) -> Any:  # noqa: ANN401 - JSON
            self.asked.append((name, self._timeout_s))
            return self._answers.get(name)

        return answer


def cluster_of_two() -> tuple[Arm, Plan]:
    spec = VolumeSpec(name="a", type="directory")
    plan = small_plan(node={"count": 2}, race={})
    volume = Volume(spec=spec, kind=Kind.DIRECTORY, mount=Path("/"))
    nodes = [replace(node_of(1), arm=name) for name in ("a-1", "a-2")]
    members = tuple(Member(volume=volume, node=node) for node in nodes)
    return Arm(name="a", cluster="a", members=members), plan


def test_what_was_restored_on_a_node_is_gone_before_that_node_is_lost() -> None:
    es = Elasticsearch(shards=[{"prirep": "p", "node": "a-1", "store": "1"}])
    params = {"kind": "node-loss", "index": "i"}
    asyncio.run(Recovery().prepare(es, params, *cluster_of_two(), lambda name: es.asked.append((name, 0.0))))
    asked = [name for name, _ in es.asked]
    assert asked.index("delete") < asked.index("a-2")


@pytest.mark.parametrize("kind", ["restore", "merge"])
def test_work_that_elasticsearch_gave_up_on_some_shards_was_not_done(kind: str) -> None:
    shards = {"total": 2, "successful": 1, "failed": 1}
    es = Elasticsearch(restore={"snapshot": {"shards": shards}}, forcemerge={"_shards": shards})
    params = {
        "kind": kind,
        "index": "i",
        "nodes": ("a-1", "a-2"),
        "port": 1,
        "wait": CopyDeadline("a", kind, 9.0),
    }
    with pytest.raises(SetupError, match=f"^arm a: {kind}: 1 of 2 shards failed; see that the volume has"):
        asyncio.run(Recovery()({"default": es}, params))


def test_no_client_gives_up_before_the_time_for_copies_is_over() -> None:
    es = Elasticsearch(
        shards=[{"prirep": "p", "node": "a-1", "store": str(20 << 30)}],
        get={"snapshots": ["one"]},
        restore={"snapshot": {"shards": {"failed": 0}}},
    )
    params = {"kind": "merge", "index": "i"}
    prepared = asyncio.run(Recovery().prepare(es, params, *cluster_of_two(), lambda _: None))
    assert prepared["wait"].patience_s > 3600
    waited_for = [(name, seconds) for name, seconds in es.asked if name in ("health", "restore")]
    assert [name for name, _ in waited_for] == ["health", "restore"]
    assert all(seconds > prepared["wait"].patience_s for _, seconds in waited_for)
