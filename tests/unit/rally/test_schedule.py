"""The schedule of a session: what Rally runs, in which order, on which arm."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from esrally import exceptions
from esrally import track as rally_track
from hypothesis import given
from hypothesis import strategies as st
from small_plan import TWO_ARMS

from esrally_ebs.errors import PlanError
from esrally_ebs.model import Block, Phase, Work
from esrally_ebs.plan import Plan, parse_plan
from esrally_ebs.rally.recovery import RECOVERY
from esrally_ebs.rally.request_source import BLOCK, RequestSource, require_requests
from esrally_ebs.rally.schedule import (
    SEARCH_BESIDE,
    SEARCH_TYPES,
    block_of,
    divide,
    expand,
    loads,
    round_of,
    settled,
    untold,
)
from esrally_ebs.workload.corpus import vectors
from esrally_ebs.workload.queries.replay import PARAM_SOURCE, QUERIES, Replay

PLAIN = rally_track.Track("plain")
MANY = rally_track.Track("many", indices=[rally_track.Index(f"i{n}") for n in range(257)])
WARM = {"cache.mode": "warm"}
ONE = {"design.nodes": "one"}
PLAN = f"""{TWO_ARMS}[design]
rounds = 2
[[baseline]]
name = "short"
rw = "randread"
bs = "4k"
repeat = true
[[baseline]]
name = "long"
rw = "readwrite"
bs = "16k"
"""


def plan(**overrides: object) -> Plan:
    return parse_plan(PLAN, "test.toml", overrides)


def nodes(
    searches: Sequence[Any],
    building: Sequence[Any] = (),
    track: rally_track.Track = PLAIN,
    **overrides: object,
) -> str:
    return settled(plan(**overrides), track, building, searches).design.nodes


def task(name: str, kind: str = "search") -> rally_track.Task:
    return rally_track.Task(
        name, rally_track.Operation(name, kind, params={}), warmup_iterations=0, iterations=1
    )


def block(made: rally_track.Task) -> Block:
    ours = block_of(made)
    assert ours is not None
    return ours


def test_baselines_come_first_then_warm_up_then_rounds_then_the_short_baselines_again() -> None:
    names = [made.name for made in expand([task("q")], plan())]
    assert names[:4] == ["fio-short-gp2", "fio-short-gp3", "fio-long-gp2", "fio-long-gp3"]
    assert names[4:6] == ["q-gp2-warmup", "q-gp3-warmup"]
    assert sorted(names[6:10]) == ["q-gp2-r1", "q-gp2-r2", "q-gp3-r1", "q-gp3-r2"]
    assert names[10:] == ["fio-short-gp3-end", "fio-short-gp2-end"]  # backwards


def test_warm_up_is_the_same_number_of_requests_on_every_arm_and_counts_as_warm_up() -> None:
    warm = [made for made in expand([task("q")], plan()) if block(made).phase is Phase.WARMUP]
    # 6 + 1: Rally would add a request of its own after a warm-up that nothing follows
    assert [(made.warmup_iterations, made.iterations) for made in warm] == [(6, 1), (6, 1)]


def test_measured_tasks_have_the_plans_iterations_and_no_warm_up_of_their_own() -> None:
    measured = [made for made in expand([task("q")], plan()) if block(made).round >= 1]
    searches = [made for made in measured if made.operation.type == "search"]
    assert {(made.warmup_iterations, made.iterations) for made in searches} == {(0, 3)}


def parallel(*tasks: rally_track.Task) -> rally_track.Parallel:
    return rally_track.Parallel(list(tasks))


def names(made: list[rally_track.Task]) -> list[str]:
    return [task.name for task in made]


def test_what_makes_the_indices_is_left_to_the_dataset() -> None:
    index = [task("create", "create-index"), parallel(task("a", "bulk"), task("b", "bulk")), task("c", "own")]
    searches = [task("q"), task("raw", "raw-request")]
    searches[1].operation.params["path"] = "/i/_search?size=1"
    assert divide([*index, *searches]) == (index, searches)
    assert names(expand([*index, *searches], plan())) == names(expand(searches, plan()))


def test_indexing_without_searches_runs_once_per_arm() -> None:
    tasks = expand([task("index", "bulk")], plan())
    assert [block(made).arm for made in tasks if made.operation.type == "bulk"] == ["gp2", "gp3"]


@pytest.mark.parametrize("kind", SEARCH_TYPES)
def test_every_kind_of_search_is_repeated_in_rounds(kind: str) -> None:
    made = names(expand([task("q", kind)], plan()))
    assert {"q-gp2-r1", "q-gp3-r1", "q-gp2-r2", "q-gp3-r2"} <= set(made)


def test_after_a_search_a_runner_of_the_tracks_own_is_one() -> None:
    building, searches = divide([task("wait", "my-wait"), task("q"), task("recall", "my-recall")])
    assert (names(building), names(searches)) == (["wait"], ["q", "recall"])


def test_before_a_search_a_runner_of_the_tracks_own_is_one_where_its_tag_says_so() -> None:
    tagged = task("recall", "my-recall")
    tagged.tags = ["search"]
    building, searches = divide([task("index", "bulk"), tagged, task("q")])
    assert (names(building), names(searches)) == (["index"], ["recall", "q"])
    written = task("index", "bulk")
    written.tags = ["search"]  # of a task that Rally knows, nothing has to be told
    assert names(divide([written, task("q")])[0]) == ["index"]


def test_own_runners_after_all_that_makes_the_index_may_be_searches() -> None:
    building = [task("make", "my-make"), parallel(task("index", "bulk")), task("recall", "my-recall")]
    assert names(untold(building)) == ["recall"]
    assert names(untold([task("a", "my-a"), task("b", "my-b")])) == ["a", "b"]
    assert untold([task("a", "my-a"), task("refresh", "refresh")]) == untold([]) == []


@pytest.mark.parametrize("kind", ["composite", "raw-request"])
def test_what_a_parameter_source_makes_is_as_untold_as_a_runner_of_the_tracks_own(kind: str) -> None:
    made = task("flow", kind)
    assert untold([task("index", "bulk"), made]) == [made]
    assert names(divide([task("index", "bulk"), task("q"), made])[1]) == ["q", "flow"]
    made.tags = ["search"]
    assert names(divide([task("index", "bulk"), made])[1]) == ["flow"]


def test_a_search_that_leaves_its_answer_in_the_node_is_raced_where_its_tag_says_so() -> None:
    flow = task("flow", "composite")
    flow.operation.params["requests"] = [{"operation-type": "submit-async-search"}]
    assert untold([task("index", "bulk"), flow]) == [flow]
    flow.tags = ["search"]
    assert names(divide([task("index", "bulk"), flow])[1]) == ["flow"]
    flow.operation.params["requests"].append({"operation-type": "bulk"})
    assert names(divide([task("index", "bulk"), flow])[1]) == []


def test_times_of_the_track_do_not_decide_how_often_a_search_is_asked() -> None:
    timed = task("q")
    timed.warmup_time_period, timed.time_period = 240, 60
    made = expand([timed], plan())
    assert {
        (each.warmup_time_period, each.time_period) for each in made if each.operation.type == "search"
    } == {(None, None)}


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        (
            [task("q"), task("index", "bulk"), task("p"), task("rest", "sleep")],
            "task index (bulk), rest (sleep): after a search, where every round would",
        ),
        ([task("q"), task("a", "bulk"), task("b", "sleep")], "leave it out: --exclude-tasks=a,b"),
        ([parallel(task("q"), task("p"))], "tasks q,p: run in parallel, so that how long a se"),
        ([task("p"), parallel(task("q"), task("r"))], "leave some out with --exclude-tasks=q,r"),
        (
            [parallel(task("q"), task("index", "bulk"), task("merge", "force-merge"))],
            "task merge (force-merge): runs beside others, where only searches and bulk tasks can",
        ),
        (
            [task("p"), parallel(task("a", "bulk"), task("b", "bulk"))],
            "tasks a,b: index after a search, where every round would do it again on each arm",
        ),
        (
            [parallel(task("q"), task("index", "bulk"))],
            "task q: documents are added beside it, and an eviction before each request would hold both up; "
            "set cache to warm",
        ),
        (
            [parallel(task("a", "bulk"), task("b", "bulk"))],
            "tasks a,b: run in parallel, and indexing can only be compared task by task; leave them out with",
        ),
        (  # as elastic/logs has it
            [parallel(task("a", "bulk"), task("flow", "composite"))],
            '--exclude-tasks=a,flow, or tag what searches of flow as such, "tags": "search"',
        ),
        (
            [parallel(task("q"), task("flow", "my-flow"))],
            '--exclude-tasks=flow, or tag what searches of flow as such, "tags": "search"',
        ),
    ],
)
def test_what_arms_cannot_be_compared_by_is_refused(schedule: list[rally_track.Task], says: str) -> None:
    with pytest.raises(PlanError, match=re.escape(says)):
        expand(schedule, plan())


def beside(**overrides: object) -> list[Any]:
    """Two searches and two bulk tasks in one element, as a session runs them."""
    element = parallel(task("p"), task("q"), task("a", "bulk"), task("b", "bulk"))
    return expand([task("create", "create-index"), element], plan(**WARM, **overrides))


def test_searches_of_an_element_take_turns_and_each_has_all_of_its_bulk_tasks_beside_it() -> None:
    made = beside()
    elements = [names(list(each)) for each in made if each.nested]
    assert elements[0] == ["p-gp2-warmup", "a-beside-p-gp2-warmup", "b-beside-p-gp2-warmup"]
    assert ["q-gp3-r2", "a-beside-q-gp3-r2", "b-beside-q-gp3-r2"] in elements
    assert len(elements) == 2 * 2 * (1 + 2)  # searches, arms, the warm-up and rounds
    everything = [each.name for element in made for each in element]
    assert len(set(everything)) == len(everything)


def test_how_each_task_is_asked_is_recorded_where_it_is_not_one_request_after_the_other() -> None:
    paced, usual, write = task("paced"), task("usual"), task("a", "bulk")
    paced.params, paced.clients = {"target-interval": 0.5}, 4
    write.params = {"target-throughput": "100 docs/s"}
    usual.schedule = "poisson"  # of no rate: as fast as answers come
    assert loads([paced, usual, parallel(task("q"), write)]) == {
        "paced": {"clients": 4, "target-throughput": "2 ops/s", "schedule": "deterministic"},
        "usual": {},
        "q": {},
        "a-beside-q": {"target-throughput": "100 docs/s", "schedule": "deterministic"},
    }


def test_a_query_is_recorded_by_a_hash_that_tells_it_from_others() -> None:
    asked = [task(name) for name in "pqr"]
    for each, term in zip(asked, ("a", "a", "b"), strict=True):
        each.operation.params = {"index": "i", "body": {"query": {"term": {"t": term}}}}
    hashes = [load["query"] for load in loads(asked).values()]
    assert hashes[0] == hashes[1] != hashes[2]


def test_an_arm_is_brought_back_before_each_search_with_writes_and_before_no_other() -> None:
    element = parallel(task("q"), task("a", "bulk"))
    made = expand([task("p"), element], plan(**WARM))
    for before, after in pairwise(made):
        if after.nested:
            restored, searched = block(before), block(next(iter(after)))
            assert restored == replace(searched, work=Work.BRING_BACK)
        elif not after.name.startswith(("fio", "bring-back")):
            assert before.nested or block(before).work is not Work.BRING_BACK


def test_bulk_tasks_begin_and_end_with_their_search_and_have_documents_for_as_long() -> None:
    search, *writes = next(each for each in beside() if each.nested)
    assert search.completes_parent
    for write in writes:
        assert not write.completes_parent
        assert (write.iterations, write.warmup_iterations, write.time_period) == (None, None, None)
        assert write.operation.params["looped"] is True
        assert block(write).phase is Phase.BESIDE
        assert write.operation.params[SEARCH_BESIDE] == search.operation.params[SEARCH_BESIDE]
    assert search.operation.params[SEARCH_BESIDE] == (search.name, search.clients)


def test_a_search_beside_writes_warms_up_in_each_block_and_its_hits_are_not_asked_for() -> None:
    searches = [next(iter(each)) for each in beside() if each.nested]
    counts = {(block(each).phase, each.warmup_iterations, each.iterations) for each in searches}
    assert counts == {(Phase.WARMUP, 6, 1), (Phase.MEASURE, 7, 3)}
    assert not any(each.operation.params["detailed-results"] for each in searches)


def test_in_an_open_loop_it_warms_up_after_the_request_that_opens_the_connection() -> None:
    timed = task("q")
    timed.params["target-throughput"] = 10
    made = expand([parallel(timed, task("a", "bulk"))], plan(**WARM))
    counted = {
        each.warmup_iterations for element in made if element.nested for each in element if "-r" in each.name
    }
    assert counted == {8, None}


def test_rounds_that_are_over_have_nothing_left_to_bring_back_or_write() -> None:
    made = beside()
    of_rounds = [each for element in made for each in element if "-r" in each.name]
    assert {round_of(each) for each in of_rounds} == {1, 2}


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (
            {"cache.mode": "steady"},
            "each block begins with nothing of the index in the page cache; set cache to w",
        ),
        ({**WARM, "node.count": 2}, "shards on several nodes are not brought back .*; set node.count = 1"),
        ({"cache.mode": "cold"}, "an eviction before each request would hold both up; set cache to warm"),
    ],
)
def test_what_cannot_be_brought_back_is_refused_beside_writes(
    overrides: dict[str, object], says: str
) -> None:
    with pytest.raises(PlanError, match=says):
        expand([parallel(task("q"), task("a", "bulk"))], plan(**overrides))


@pytest.mark.parametrize("rate", ["abc docs/s", "0", "-5 docs/s", "5 docs"])
def test_a_rate_of_writes_that_is_none_is_refused_before_anything_starts(rate: str) -> None:
    write = task("a", "bulk")
    write.params["target-throughput"] = rate
    with pytest.raises(
        exceptions.InvalidSyntax, match=r"Task \[a-beside-q-gp2-warmup\] specifies invalid target"
    ):
        expand([parallel(task("q"), write)], plan(**WARM))


def test_one_node_cannot_be_written_to_for_one_arm_alone() -> None:
    with pytest.raises(PlanError, match=r'which one node would do to all arms; set design.nodes = "per-arm"'):
        nodes([parallel(task("q"), task("a", "bulk"))], **ONE)


def test_a_search_that_is_left_alone_in_its_element_is_one_as_any_other() -> None:
    assert nodes([parallel(task("q"))]) == nodes([parallel(task("q"))], **ONE) == "one"
    made = expand([parallel(task("q"))], plan())
    assert names(made) == names(expand([task("q")], plan()))
    assert not any(each.nested for each in made)
    assert all(each.operation.params["detailed-results"] for each in made if each.operation.type == "search")


@pytest.mark.parametrize("key", ["data", "snapshot"])
def test_an_index_of_ones_own_is_not_left_aside_by_a_challenge_that_only_indexes(key: str) -> None:
    with pytest.raises(PlanError, match=f"dataset.{key}: is searched, and the challenge only indexes"):
        expand([task("bulk", "bulk")], plan(**{f"dataset.{key}": "/mnt/own/one"}))


def test_all_clients_of_a_search_that_is_left_alone_ask_all_their_requests() -> None:
    search = task("q")
    search.any_completes_parent = True  # "completed-by": "any"
    assert not any(each.any_completes_parent for each in expand([parallel(search)], plan()))


def shard_work(clients: int = 1, **params: object) -> rally_track.Task:
    return rally_track.Task("w", rally_track.Operation("w", RECOVERY, params=params), clients=clients)


def test_work_with_shards_is_repeated_in_rounds_as_a_search_is() -> None:
    made = expand([shard_work(kind="restore", index="i")], plan(**{"node.count": 2}))
    assert names(made) == names(expand([task("w")], plan()))


@pytest.mark.parametrize(
    ("work", "nodes", "why"),
    [
        (
            shard_work(kind="resize"),
            2,
            "kind: 'resize' is not one of replica, node-loss, relocation, restore, merge",
        ),
        (shard_work(kind="merge"), 2, "index: is missing"),
        (shard_work(kind="merge", index="i"), 1, "moves shards between nodes; set node.count = 2 or more"),
        (shard_work(2, kind="merge", index="i"), 2, "2 clients would move the same shards; give it 1"),
    ],
)
def test_work_with_shards_that_cannot_be_done_is_refused(
    work: rally_track.Task, nodes: int, why: str
) -> None:
    with pytest.raises(PlanError, match=f"task w: {why}"):
        expand([work], plan(**{"node.count": nodes}))


def test_the_original_tasks_are_left_as_they_were() -> None:
    original = task("q")
    expand([original], plan())
    assert (original.name, original.iterations, original.operation.params) == ("q", 1, {})


def test_the_first_arm_is_rallys_default_cluster() -> None:
    assert {(block(made).arm, block(made).cluster) for made in expand([task("q")], plan())} == {
        ("gp2", "default"),
        ("gp3", "gp3"),
    }


def test_a_later_arm_called_default_is_refused() -> None:
    with pytest.raises(PlanError, match="only the first arm"):
        expand([task("q")], parse_plan(PLAN.replace('"gp3"', '"default"', 1), "test.toml"))


def test_no_two_tasks_are_called_the_same() -> None:
    like = parse_plan(PLAN.replace('"gp2"', '"x-gp3"', 1), "test.toml")
    with pytest.raises(PlanError, match="task q-x-gp3-warmup: 2 would be called so, as names of tasks and"):
        expand([task("q"), task("q-x")], like)


def test_race_json_says_of_a_task_what_it_always_did() -> None:
    made = expand([task("q")], plan())[4]
    fields = {"arm": "gp2", "cluster": "default", "round": 0, "task": "q", "phase": "warmup"}
    assert made.meta_data == {"ebs": fields}


def test_a_request_carries_its_block_through_rallys_own_parameter_source() -> None:
    made = expand([task("index", "bulk-like")], plan())[4]
    source = RequestSource(None, made.operation.params)
    requests = [source.partition(0, 1).params()[BLOCK], source.params()[BLOCK], source.params()[BLOCK]]
    assert [request.number for request in requests] == [1, 1, 2]
    assert {request.block for request in requests} == {block(made)}


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


@pytest.mark.parametrize("more", [{}, ONE])
def test_where_one_search_of_pages_ended_the_next_does_not_begin(more: dict[str, object]) -> None:
    search = task("q", "paginated-search")
    search.operation.params = {"index": "i", "pages": 2, "body": {"query": {}, "sort": ["n"]}}
    track = SimpleNamespace(indices=[], data_streams=[])
    for made in expand([search], plan(**more))[4:7]:
        source = RequestSource(track, made.operation.params).partition(0, 1)
        for _ in range(3):
            body = source.params()["body"]
            assert "search_after" not in body
            body["search_after"] = [100]  # as Rally's runner does after the last page it may ask for


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


@pytest.mark.parametrize(("nodes", "arms"), [("one", ("",)), ("per-arm", ("-gp2", "-gp3"))])
def test_nodes_that_are_started_anew_are_a_task_of_rally_and_names_stay_unique(
    nodes: str, arms: tuple[str, ...]
) -> None:
    thrice = {"design.nodes": nodes, "design.rounds": 3, "design.starts": 3}
    names = [made.name for made in expand([task("q")], plan(**thrice)) if "fio" not in made.name]
    assert len(set(names)) == len(names)
    second = names[names.index("start-nodes-2") + 1 : names.index("start-nodes-3")]
    assert sorted(second) == sorted(f"q{arm}{what}" for arm in arms for what in ("-warmup-2", "-r2"))


def test_indexing_is_not_repeated_at_another_start() -> None:
    with pytest.raises(PlanError, match=r"design.starts: is of searches, and the challenge has none"):
        expand([task("bulk", "bulk")], plan(**{"design.rounds": 3, "design.starts": 3}))


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


@pytest.mark.parametrize(
    ("cache", "clients", "firsts"), [("cold", 1, {0, 3, 6}), ("cold", 2, {0, 6, 12}), ("warm", 1, {None})]
)
def test_each_round_asks_other_requests_of_a_template_unless_caches_are_warm(
    cache: str, clients: int, firsts: set[int | None]
) -> None:
    operation = rally_track.Operation("t", "search", params={"template": "t"}, param_source=PARAM_SOURCE)
    settings = {"design.rounds": 3, "race.iterations": 3, "cache.mode": cache}
    made = expand([rally_track.Task("t", operation, clients=clients)], plan(**settings))
    asked: dict[str, list[int | None]] = {}
    for each in made:
        if block(each).work is Work.SEARCH and block(each).phase is Phase.MEASURE:
            asked.setdefault(block(each).arm, []).append(each.operation.params.get("first"))
    assert len(asked) == 2
    assert [set(firsts_of_arm) for firsts_of_arm in asked.values()] == [firsts, firsts]


@pytest.mark.parametrize(("cache", "places"), [("steady", 4), ("warm", 1)])
def test_each_round_searches_other_points_than_other_rounds_and_the_warm_up(cache: str, places: int) -> None:
    operation = rally_track.Operation("near", "search", params={}, param_source=vectors.PARAM_SOURCE)
    made = expand([rally_track.Task("near", operation)], plan(**{"design.rounds": 3, "cache.mode": cache}))
    first = {each.name: each.operation.params.get("first", 0) for each in made}
    of_arms = [
        [first[f"near-{arm}-{part}"] for part in ("warmup", "r1", "r2", "r3")] for arm in ("gp2", "gp3")
    ]
    assert of_arms[0] == of_arms[1]
    assert len(set(of_arms[0])) == places


def test_points_are_searched_in_the_clusters_of_the_documents() -> None:
    operation = rally_track.Operation("near", "search", params={}, param_source=vectors.PARAM_SOURCE)
    made = expand([rally_track.Task("near", operation)], plan(**{"dataset.seed": 7}))
    assert {each.operation.params["seed"] for each in made if each.operation.type == "search"} == {7}


def whole_log(nodes: str = "per-arm", templates: int = 1, **settings: int) -> list[rally_track.Task]:
    params = {"templates": templates}
    operation = rally_track.Operation("whole-log", "search", params=params, param_source=PARAM_SOURCE)
    task_ = rally_track.Task("whole-log", operation, **settings)
    return [
        each
        for each in expand([task_], plan(**{"design.nodes": nodes}))
        if block_of(each).task == "whole-log"
    ]


@pytest.mark.parametrize("nodes", ["per-arm", "one"])
def test_each_round_asks_its_piece_of_a_whole_log_on_every_arm(nodes: str, tmp_path: Path) -> None:
    lines = [f'{{"path":"/i/_search","params":{{}},"body":{{"size":{size}}}}}\n' for size in range(7)]
    (tmp_path / QUERIES).write_text("".join(lines))
    sizes_of: dict[tuple[str, int], list[int]] = {}
    for clone in (each for each in whole_log(nodes) if block_of(each).phase is Phase.MEASURE):
        assert (clone.warmup_iterations, clone.iterations) == (0, None)
        params = clone.operation.params
        source = RequestSource(None, params, inner=Replay(SimpleNamespace(root=tmp_path), params))
        assert not source.infinite
        while True:
            try:
                request = source.params()
            except StopIteration:
                break
            block = request[BLOCK].block
            sizes_of.setdefault((block.arm, block.round), []).append(request["body"]["size"])
    assert sizes_of == {
        (arm, round_): sizes for arm in ("gp2", "gp3") for round_, sizes in ((1, [0, 1, 2]), (2, [3, 4, 5]))
    }


def test_rounds_with_slower_reads_ask_the_piece_of_a_log_that_usual_ones_ask() -> None:
    text = 'name = "p"\ntrace = "perturb"\nrace = {}\n[[arm]]\nname = "a"\ntype = "gp3"\n[design]\nrounds = 8'
    operation = rally_track.Operation("log", "search", param_source=PARAM_SOURCE)
    made = expand([rally_track.Task("log", operation)], parse_plan(text, "p.toml"))
    pieces = [each.operation.params["piece"] for each in made if round_of(each)]
    assert pieces == [(1, 8)] * 8


@pytest.mark.parametrize(("clients", "each"), [(1, 34), (2, 17), (12, 6)])
def test_a_whole_log_warms_up_with_as_many_requests_for_each_of_its_templates(
    clients: int, each: int
) -> None:
    _, warmup, *measured = whole_log(templates=5, clients=clients)  # of 7 each, the last is not called so
    assert warmup.warmup_iterations == each
    assert {made.warmup_iterations for made in measured} == {0}


def test_a_whole_log_is_repeated_in_its_warm_up_and_cut_where_iterations_are_given() -> None:
    _, warmup, *measured = whole_log()
    assert (warmup.warmup_iterations, warmup.iterations, warmup.operation.params["cycle"]) == (6, 1, True)
    assert all("piece" in each.operation.params for each in measured)
    _, warmup, *measured = whole_log(iterations=9)
    assert warmup.operation.params["cycle"]  # of a log that is shorter than it, too
    assert [each.iterations for each in measured] == [3] * 4


def log_beside_writes() -> list[Any]:
    operation = rally_track.Operation("log", "search", params={}, param_source=PARAM_SOURCE)
    return expand([parallel(rally_track.Task("log", operation), task("a", "bulk"))], plan(**WARM))


def test_a_piece_of_a_log_begins_with_a_warm_up_beside_writes() -> None:
    searches = [next(iter(each)) for each in log_beside_writes() if each.nested]
    counts = {(block(each).phase, each.warmup_iterations, each.iterations) for each in searches}
    assert counts == {(Phase.WARMUP, 6, 1), (Phase.MEASURE, 7, None)}


@pytest.mark.parametrize(
    ("requests", "says"),
    [
        (None, "No such file or directory; import the workload again"),
        (0, "has no request; import the workload again"),
        (1, "1 requests are too few for 2 rounds"),
        (15, "task log: each round has 7 requests of the log, and 7 are to warm it up beside writes; set"),
    ],
)
def test_a_log_with_too_few_requests_is_refused(requests: int | None, says: str, tmp_path: Path) -> None:
    track = SimpleNamespace(root=tmp_path)
    if requests is not None:
        (tmp_path / QUERIES).write_text("{}\n" * requests)
    with pytest.raises(PlanError, match=says):
        require_requests(track, log_beside_writes())


def test_a_log_with_enough_requests_is_none_to_refuse(tmp_path: Path) -> None:
    (tmp_path / QUERIES).write_text("{}\n" * 16)
    require_requests(SimpleNamespace(root=tmp_path), [*log_beside_writes(), *whole_log()])
