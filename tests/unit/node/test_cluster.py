"""Nodes of one cluster: what each is started with, and which copies of shards lie and are asked alike."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest
from es_gp3 import node_of
from hypothesis import given
from hypothesis import strategies as st

from esrally_ebs.errors import MeasurementError
from esrally_ebs.machine.processes import Clock
from esrally_ebs.node import identity, life
from esrally_ebs.node.identity import (
    PREFERENCES,
    Shard,
    difference,
    preference,
    searched,
    settled,
    settled_as,
)

NAMES = ("gp3-1", "gp3-2", "gp3-3")
SHARDS = st.sets(
    st.builds(
        Shard, st.just("logs"), st.integers(0, 3), st.sampled_from(["primary", "replica"]), st.integers(1, 3)
    )
)


def test_nodes_talk_on_the_loopback_interface_of_the_first_ones_container() -> None:
    settings = [life._membership(at, NAMES) for at in range(3)]
    assert {each["transport.host"] for each in settings} == {"127.0.0.1"}
    assert [each["http.port"] for each in settings] == ["9200", "9201", "9202"]
    assert len({each["discovery.seed_hosts"] for each in settings}) == 1
    assert settings[0]["discovery.seed_hosts"] == "127.0.0.1:9300,127.0.0.1:9301,127.0.0.1:9302"


def test_only_the_container_that_has_the_network_publishes_ports() -> None:
    own = life._override({"environment": {"a": "b"}, "ports": ["127.0.0.1:0:9201"]})
    assert json.loads(own)["services"]["node"]["ports"] == ["127.0.0.1:0:9201"]
    joined = life._override({"environment": {}, "network_mode": "container:ebs-1"})
    assert json.loads(joined.replace("!reset ", "")) == {
        "services": {"node": {"environment": {}, "network_mode": "container:ebs-1", "ports": []}},
        "networks": {},
    }


@given(SHARDS, SHARDS)
def test_arms_differ_where_any_copy_lies_on_another_node(own: set[Shard], other: set[Shard]) -> None:
    text = difference("gp2", tuple(own), "gp3", tuple(other))
    assert bool(text) == (own != other)
    assert bool(text) == bool(difference("gp3", tuple(other), "gp2", tuple(own)))


def test_a_difference_names_arm_shard_and_node() -> None:
    own, other = Shard("logs", 0, "primary", 1), Shard("logs", 0, "primary", 3)
    assert difference("gp2", [own], "gp3", [other]) == (
        "gp2 has primary 0 of logs on node 1, gp3 has primary 0 of logs on node 3"
    )


def cat(state: str, node: str | None) -> dict[str, str | None]:
    return {"index": "logs", "shard": "0", "prirep": "r", "state": state, "node": node}


def test_a_cluster_has_settled_once_every_copy_is_on_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([[cat("INITIALIZING", "gp3")], [cat("STARTED", "gp3")]])
    monkeypatch.setattr(identity.api, "get", lambda port, path: next(answers))
    clock = Clock(sleep=lambda seconds: None, monotonic=lambda: 0.0)
    assert settled([node_of(1)], clock) == (Shard("logs", 0, "replica", 1),)


class Reroutes:
    """A cluster of two shards whose master promotes the only other copy of a shard where one is cancelled."""

    def __init__(self, promotes: bool = True) -> None:
        self.primary = {0: 2, 1: 2}  # shard -> node
        self.promotes = promotes
        self.asked = 0

    def get(self, port: int, path: str) -> object:
        return [
            {
                "index": "logs",
                "shard": str(shard),
                "prirep": "p" if number == primary else "r",
                "state": "STARTED",
                "node": NAMES[number - 1],
            }
            for shard, primary in self.primary.items()
            for number in (1, 2)
        ]

    def post(self, port: int, path: str, body: dict[str, list[dict[str, dict[str, object]]]]) -> None:
        assert path == "/_cluster/reroute"
        self.asked += 1
        for command in body["commands"]:
            wanted = command["cancel"]
            shard = int(str(wanted["shard"]))
            assert wanted == {
                "index": "logs",
                "shard": shard,
                "node": NAMES[self.primary[shard] - 1],
                "allow_primary": True,
            }
            if self.promotes:
                self.primary[shard] = 3 - self.primary[shard]


def copies_with(primary: tuple[int, int], other: tuple[int, int] = (1, 2)) -> tuple[Shard, ...]:
    roles = {True: "primary", False: "replica"}
    return tuple(
        sorted(
            Shard("logs", shard, roles[number == at], number)
            for shard, at in enumerate(primary)
            for number in other
        )
    )


@pytest.mark.parametrize(("wanted", "asked"), [((2, 2), 0), ((2, 1), 1), ((1, 1), 1)])
def test_copies_that_lie_alike_get_the_roles_of_another_arm(
    monkeypatch: pytest.MonkeyPatch, wanted: tuple[int, int], asked: int
) -> None:
    cluster, master = [replace(node_of(at), arm=NAMES[at]) for at in range(2)], Reroutes()
    monkeypatch.setattr(identity, "api", master)
    assert settled_as(cluster, copies_with(wanted)) == copies_with(wanted)
    assert master.asked == asked


def test_copies_that_lie_elsewhere_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, master = [replace(node_of(at), arm=NAMES[at]) for at in range(2)], Reroutes()
    monkeypatch.setattr(identity, "api", master)
    assert settled_as(cluster, copies_with((3, 3), (1, 3))) == copies_with((2, 2))
    assert master.asked == 0


def test_a_master_that_promotes_another_copy_each_time_is_not_asked_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, master = [replace(node_of(at), arm=NAMES[at]) for at in range(2)], Reroutes(promotes=False)
    monkeypatch.setattr(identity, "api", master)
    assert difference("gp2", copies_with((1, 1)), "gp3", settled_as(cluster, copies_with((1, 1))))
    assert 2 <= master.asked <= 20


def test_a_replica_that_no_node_takes_is_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity.api, "get", lambda port, path: [cat("UNASSIGNED", None)])
    times = iter([0.0, 1e3])
    clock = Clock(sleep=lambda seconds: None, monotonic=lambda: next(times))
    with pytest.raises(
        MeasurementError, match=r"shard 0 of logs is UNASSIGNED after .* lower number_of_replicas"
    ):
        settled([node_of(1)], clock)


def test_the_first_copy_of_each_shard_is_the_one_that_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    def copy(node: str, *, primary: bool) -> dict[str, object]:
        return {"index": "logs", "shard": 0, "primary": primary, "node": node}

    answer = {
        "nodes": {"x": {"name": "gp3"}},
        "shards": [[copy("x", primary=False), copy("y", primary=True)]],
    }
    monkeypatch.setattr(identity.api, "get", lambda port, path: answer)
    assert searched([node_of(1)], "ebs") == (Shard("logs", 0, "replica", 1),)


@given(st.permutations((1, 2, 3)), st.permutations((1, 2, 3)))
def test_a_preference_is_one_with_which_the_same_copies_are_asked(first: list[int], other: list[int]) -> None:
    """Three shards with copies on two nodes each: a text turns all lists, of an order by master, alike."""
    homes = ((1, 2), (2, 3), (1, 3))

    def cluster_of(order: list[int]) -> Callable[[int, str], object]:
        def answer(port: int, path: str) -> object:
            lists = [sorted(home, key=order.index) for home in homes]
            chosen = [nodes[crc32(path.encode()) % 2] for nodes in lists]
            shards = [
                [{"index": "logs", "shard": at, "primary": node == homes[at][0], "node": str(node)}]
                for at, node in enumerate(chosen)
            ]
            return {"nodes": {str(at): {"name": NAMES[at - 1]} for at in (1, 2, 3)}, "shards": shards}

        return answer

    cluster = [replace(node_of(at), arm=name) for at, name in enumerate(NAMES)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(identity.api, "get", cluster_of(first))
        copies = searched(cluster, PREFERENCES[0])
        patched.setattr(identity.api, "get", cluster_of(other))
        text = preference(cluster, copies)
        if text is not None:
            assert searched(cluster, text) == copies
    swapped = [first.index(a) < first.index(b) for a, b in homes]
    as_swapped = [other.index(a) < other.index(b) for a, b in homes]
    can_be_alike = len({one == two for one, two in zip(swapped, as_swapped, strict=True)}) == 1
    assert (text is not None) == can_be_alike


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="this machine has no IPv6")
def test_nodes_on_several_hosts_get_a_port_of_an_address_of_ipv6() -> None:
    assert life.lasting_port("::1") in life._LASTING
