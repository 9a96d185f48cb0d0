"""How long work with shards may take before it is given up."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from esrally_ebs.errors import SetupError
from esrally_ebs.model import Kind, Volume, VolumeSpec
from esrally_ebs.plan import parse_plan
from esrally_ebs.rally.recovery import Wait, patience_s
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
        asyncio.run(Wait("a", "replica", 0.1).on(es, "i", asyncio.sleep(60)))
    assert str(given_up.value) == (
        "arm a: replica: i is not green after 0 s, which is 10 times what its limits let copies take, and "
        f"120 s: replica 0 is on no node: {why}; see the nodes' logs, start the race again"
    )
