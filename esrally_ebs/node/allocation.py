"""Which node of a cluster has which copy of a shard, and which of them a search asks: alike on all arms.

Nodes are numbered from 1, in the order of an arm's volumes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from esrally_ebs.errors import MeasurementError
from esrally_ebs.machine.processes import SYSTEM_CLOCK, Clock
from esrally_ebs.model import Node
from esrally_ebs.node import api

# Elasticsearch begins with the copy that a hash of the text points at in its list of a shard's copies; 24
# texts point at each of two or three in all but one of millions of clusters.
PREFERENCES = tuple(f"ebs-{number}" for number in range(24))
_SETTLE_S = 120.0
_POLL_S = 0.5


@dataclass(frozen=True, slots=True, order=True)
class Shard:
    """One copy of a shard."""

    index: str
    number: int
    role: str  # primary or replica
    node: int


def settled(cluster: Sequence[Node], clock: Clock = SYSTEM_CLOCK) -> tuple[Shard, ...]:
    """Every copy of every shard and its node, once each has one and none is on its way.

    Raises MeasurementError when it does not come to that: more replicas than there are nodes for.
    """
    numbers = {node.arm: number for number, node in enumerate(cluster, start=1)}
    until = clock.monotonic() + _SETTLE_S
    while True:
        shards = api.get(cluster[0].port, "/_cat/shards?format=json&h=index,shard,prirep,state,node")
        waiting = [shard for shard in shards if shard["state"] != "STARTED"]
        if not waiting:
            roles = {"p": "primary", "r": "replica"}
            return tuple(
                sorted(
                    Shard(each["index"], int(each["shard"]), roles[each["prirep"]], numbers[each["node"]])
                    for each in shards
                )
            )
        if clock.monotonic() > until:
            worst = waiting[0]
            raise MeasurementError(
                f"arm {cluster[0].arm}: shard {worst['shard']} of {worst['index']} is {worst['state']} after "
                f"{_SETTLE_S:.0f} s; a cluster of {len(cluster)} nodes has room for {len(cluster) - 1} "
                "replicas, lower number_of_replicas or raise node.count"
            )
        clock.sleep(_POLL_S)


def searched(cluster: Sequence[Node], preference: str) -> tuple[Shard, ...]:
    """The copy of every shard that a search with this preference asks."""
    answer = api.get(cluster[0].port, f"/_all/_search_shards?preference={preference}")
    numbers = {node.arm: number for number, node in enumerate(cluster, start=1)}
    names = {id_: numbers[node["name"]] for id_, node in answer["nodes"].items()}
    firsts = (group[0] for group in answer["shards"])
    return tuple(
        sorted(
            Shard(
                each["index"],
                each["shard"],
                "primary" if each["primary"] else "replica",
                names[each["node"]],
            )
            for each in firsts
        )
    )


def preference(cluster: Sequence[Node], copies: Sequence[Shard]) -> str | None:
    """The preference with which searches ask these copies; None when no text has them asked.

    A master lists the copies of shards in an order of nodes that it draws when it starts (the order of Java's
    unmodifiable maps), so one text means other copies on another cluster, and with more than two nodes some
    orders cannot be made alike by any text.
    """
    return next((text for text in PREFERENCES if list(searched(cluster, text)) == list(copies)), None)


def difference(arm: str, own: Sequence[Shard], other: str, others: Sequence[Shard]) -> str:
    """Where shards of one arm lie that those of another do not; empty when all are alike."""
    mine, theirs = sorted(set(own) - set(others)), sorted(set(others) - set(own))
    if not mine and not theirs:
        return ""
    return f"{_text(arm, mine)}, {_text(other, theirs)}"


def _text(arm: str, shards: Sequence[Shard]) -> str:
    if not shards:
        return f"{arm} has none such"
    first = shards[0]
    return f"{arm} has {first.role} {first.number} of {first.index} on node {first.node}"
