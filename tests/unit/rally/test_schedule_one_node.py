"""One node for all arms: which searches it can serve, and their requests in pairs."""

from itertools import pairwise
from typing import Any

import pytest
from esrally import track as rally_track
from hypothesis import given
from hypothesis import strategies as st
from scheduled import MANY, ONE, PLAIN, PLAN, WARM, nodes, parallel, plan, task

from esrally_ebs.errors import PlanError
from esrally_ebs.plan import parse_plan
from esrally_ebs.rally.request_source import BLOCK, RequestSource
from esrally_ebs.rally.schedule import expand, settled


class Source:
    """A parameter source whose requests are numbered."""

    made = 0

    def partition(self, index: int, total: int) -> "Source":
        return self

    def params(self) -> dict[str, object]:
        self.made += 1
        return {"body": {"n": self.made}}


def requests(made: rally_track.Task, count: int) -> list[dict[str, Any]]:
    source = RequestSource(None, made.operation.params, inner=Source()).partition(0, 1)
    return [source.params() for _ in range(count)]


def test_one_node_serves_all_arms_in_one_task_of_each_round() -> None:
    names = [made.name for made in expand([task("p"), task("q")], plan(**ONE))]
    assert names[4:6] == ["p-warmup", "q-warmup"]
    assert names[6:10] == ["p-r1", "q-r1", "p-r2", "q-r2"]
    assert names[:4] + names[10:] == [
        name for name in (made.name for made in expand([task("p")], plan())) if name.startswith("fio")
    ]


def test_arms_of_one_node_share_its_warm_up_and_have_the_plans_requests_each() -> None:
    made = {each.name: each for each in expand([task("q")], plan(**ONE))}
    assert (made["q-warmup"].warmup_iterations, made["q-warmup"].iterations) == (7, 1)  # 4 pairs for 7
    assert (made["q-r1"].warmup_iterations, made["q-r1"].iterations) == (0, 6)


@given(st.integers(0, 99), st.integers(2, 4), st.integers(1, 8))
def test_each_pair_has_every_arm_once_and_every_second_runs_backwards(
    seed: int, arms: int, pairs: int
) -> None:
    text = PLAN.replace(
        "[race]", "".join(f'[[arm]]\nname="x{n}"\ntype="gp3"\n' for n in range(arms - 2)) + "[race]"
    )
    made = expand([task("q")], parse_plan(text, "x", {**ONE, "design.seed": seed, "design.rounds": 1}))
    (searched,) = [each for each in made if each.name == "q-r1"]
    in_turn = [each[BLOCK] for each in requests(searched, arms * pairs)]
    assert [request.number for request in in_turn] == [n // arms + 1 for n in range(arms * pairs)]
    turns = [[r.block.arm for r in in_turn[n : n + arms]] for n in range(0, arms * pairs, arms)]
    assert all(len(set(turn)) == arms for turn in turns)
    assert all(second == first[::-1] for first, second in list(pairwise(turns))[::2])


def test_orders_of_pairs_differ_between_rounds_unless_fixed() -> None:
    def first(rounds: int, **more: object) -> set[str]:
        made = expand([task("q")], plan(**ONE, **{"design.rounds": rounds}, **more))
        return {requests(each, 1)[0][BLOCK].block.arm for each in made if "-r" in each.name}

    assert first(40) == {"gp2", "gp3"}
    assert first(40, **{"design.order": "fixed"}) == {"gp2"}


def test_both_requests_of_a_pair_are_the_same_and_each_runner_has_its_own() -> None:
    (searched,) = [each for each in expand([task("q")], plan(**ONE)) if each.name == "q-r1"]
    first, second, third = (each["body"] for each in requests(searched, 3))
    assert [first, second, third] == [{"n": 1}, {"n": 1}, {"n": 2}]
    assert first is not second


def crowd() -> rally_track.Task:
    made = task("q")
    made.clients = 2
    return made


def dated(index: str) -> rally_track.Task:
    made = task("q")
    made.operation.params["index"] = index
    return made


def asking(query: dict[str, Any]) -> rally_track.Task:
    made = task("q")
    made.operation.params["body"] = {"query": {"bool": {"filter": [query]}}}
    return made


def test_what_one_node_cannot_serve_in_pairs_is_refused_with_the_way_out() -> None:
    assert nodes([task("q")], **ONE) == "one"
    with pytest.raises(PlanError, match=r'task bulk: bulk has no index.*set design.nodes = "per-arm"'):
        nodes([], [task("bulk", "bulk")], **ONE)
    with pytest.raises(PlanError, match="task q: 2 clients would ask several arms at once"):
        nodes([crowd()], **ONE)
    with pytest.raises(PlanError, match=r'514 indices of all arms are more than the 512.*"per-arm"'):
        nodes([task("q")], track=MANY, **ONE)


def test_unless_the_plan_says_one_node_serves_all_arms_where_it_can() -> None:
    assert nodes([task("q")], [task("bulk", "bulk")]) == "one"
    assert nodes([asking({"term": {"index": "a field of the track's"}})]) == "one"
    assert nodes([task("q")], **{"design.nodes": "per-arm"}) == "per-arm"


@pytest.mark.parametrize(
    ("searches", "track", "overrides"),
    [
        ([crowd()], PLAIN, {}),
        ([task("q", "sql")], PLAIN, {}),
        ([dated("<logs-{now/d}>")], PLAIN, {}),
        ([dated("%3Clogs-%7Bnow%2Fd%7D%3E")], PLAIN, {}),
        ([asking({"term": {"_index": "logs-1"}})], PLAIN, {}),
        ([asking({"query_string": {"query": "red AND _index:logs-1"}})], PLAIN, {}),
        ([asking({"terms": {"user": {"index": "users", "id": "1", "path": "all"}}})], PLAIN, {}),
        ([parallel(task("q"), task("a", "bulk"))], PLAIN, {}),
        ([], PLAIN, {}),
        ([task("q")], PLAIN, WARM),
        ([task("q")], PLAIN, {"node.count": 3}),
        ([task("q")], PLAIN, {"dataset.data": "/var/lib/elasticsearch"}),
        ([task("q")], PLAIN, {"dataset.snapshot": "/backup/daily"}),
        ([task("q")], MANY, {}),
        ([task("q")], rally_track.Track("t", data_streams=[rally_track.DataStream("logs")]), {}),
    ],
    ids=[
        "clients",
        "no index",
        "date maths",
        "quoted date maths",
        "of an index",
        "of an index, in words",
        "looks up",
        "writes",
        "indexing",
        "warm",
        "cluster",
        "data",
        "snapshot",
        "many indices",
        "data stream",
    ],
)
def test_each_arm_has_a_node_where_one_cannot_serve_all(
    searches: list[Any], track: rally_track.Track, overrides: dict[str, object]
) -> None:
    assert nodes(searches, [task("bulk", "bulk")], track, **overrides) == "per-arm"


def test_telemetry_that_knows_an_index_by_its_name_alone_has_a_node_for_each_arm() -> None:
    devices = ["node-stats", "disk-usage-stats"]
    assert settled(plan(), PLAIN, [], [task("q")], devices[:1]).design.nodes == "one"
    assert settled(plan(), PLAIN, [], [task("q")], devices).design.nodes == "per-arm"
    with pytest.raises(PlanError, match=r'--telemetry disk-usage-stats: .*set design.nodes = "per-arm"'):
        settled(plan(**ONE), PLAIN, [], [task("q")], devices)
