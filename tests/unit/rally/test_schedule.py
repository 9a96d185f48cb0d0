"""The schedule of a session: what Rally runs, in which order, on which arm."""

import re

import pytest
from esrally import track as rally_track
from scheduled import ONE, PLAN, block, names, nodes, parallel, plan, task

from esrally_ebs.errors import PlanError
from esrally_ebs.model import Phase
from esrally_ebs.plan import parse_plan
from esrally_ebs.rally.recovery import RECOVERY
from esrally_ebs.rally.schedule import SEARCHES, divide, expand, loads, may_index, untold


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


def test_what_makes_the_indices_is_left_to_the_dataset() -> None:
    index = [task("create", "create-index"), parallel(task("a", "bulk"), task("b", "bulk")), task("c", "own")]
    searches = [task("q"), task("raw", "raw-request")]
    searches[1].operation.params["path"] = "/i/_search?size=1"
    assert divide([*index, *searches]) == (index, searches)
    assert names(expand([*index, *searches], plan())) == names(expand(searches, plan()))


@pytest.mark.parametrize("kind", SEARCHES)
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
    with pytest.raises(PlanError, match=r'task flow .*, or tag what searches of flow as such, "tags": "sea'):
        divide([task("q"), flow])
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


@pytest.mark.parametrize(("period", "warms"), [(None, 0), (1800, 240)])
def test_where_arms_index_by_themselves_all_documents_count(period: int | None, warms: int) -> None:
    """Those of the first minutes, which rally-tracks leave out, are more on the faster arm."""
    index = task("index", "bulk")
    index.warmup_iterations = index.iterations = None
    index.warmup_time_period, index.time_period = 240, period
    made = [each for each in expand([index], plan()) if each.operation.type == "bulk"]
    assert [(each.warmup_time_period, each.time_period) for each in made] == [(warms, period)] * 2


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        (
            [task("q"), task("index", "bulk"), task("p"), task("end", "delete-index")],
            "task index (bulk), end (delete-index): after a search, where every round would",
        ),
        (
            [task("q"), task("index", "bulk"), task("p"), task("end", "delete-index")],
            "--exclude-tasks=index,end; searches after it are then asked without it; alone, after it: --inclu"
            "de-tasks=p",
        ),
        (
            [task("q"), task("merge", "force-merge"), task("wait", "index-stats"), task("p")],
            "--exclude-tasks=merge; searches after it are then asked without it; alone, after it: --include-t"
            "asks=p",
        ),
        ([task("q"), task("a", "bulk"), task("b", "force-merge")], "leave it out: --exclude-tasks=a,b"),
        ([task("q"), task("add more", "bulk")], "leave it out: --exclude-tasks='add more'"),
        (
            [parallel(task("q"), task("index", "bulk"), task("merge", "force-merge"))],
            "task merge (force-merge): runs beside others, where only searches and bulk tasks can",
        ),
        (
            [task("p"), parallel(task("a", "bulk"), task("b", "bulk"))],
            "tasks a,b: index after a search, which every round would repeat on each arm",
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


@pytest.mark.parametrize(
    "kind", ["sleep", "cluster-health", "index-stats", "node-stats", "transform-stats", "refresh"]
)
def test_what_changes_nothing_after_a_search_is_left_out(kind: str) -> None:
    idle = task("idle", kind)
    assert divide([idle, task("q"), idle, task("p")]) == ([idle], [task("q"), task("p")])


def test_what_changes_nothing_beside_searches_is_left_out_but_for_a_refresh_of_writes() -> None:
    stats, write, refresh = task("stats", "node-stats"), task("w", "bulk"), task("refresh", "refresh")
    searches = [task("q"), task("p")]
    mixed = parallel(write, stats, *searches)
    assert divide([parallel(stats, *searches, refresh), mixed, parallel(stats)]) == (
        [],
        [parallel(*searches), parallel(write, *searches)],
    )
    with pytest.raises(PlanError, match=r"^task refresh \(refresh\): runs beside others"):
        divide([parallel(write, refresh, *searches)])


def test_a_runner_of_the_tracks_own_that_has_a_path_is_not_left_out() -> None:
    own = task("own", "my-request")
    own.operation.params |= {"path": "/x"}
    assert divide([task("q"), own]) == ([], [task("q"), own])


@pytest.mark.parametrize(
    ("method", "is_idle"), [("get", True), ("HEAD", True), ("PUT", False), (None, False)]
)
def test_a_raw_request_that_reads_is_left_out_after_a_search(method: str | None, is_idle: bool) -> None:
    raw = task("shards", "raw-request")
    raw.operation.params |= {"path": "/_cat/shards", "method": method}
    if is_idle:
        assert divide([task("q"), raw]) == ([], [task("q")])
        return
    with pytest.raises(PlanError, match=r"task shards \(raw-request\): after a search"):
        divide([task("q"), raw])


def test_searches_in_parallel_take_turns() -> None:
    first, second = task("q"), task("p")
    first.completes_parent = True
    made = expand([parallel(first, second), task("r")], plan())
    assert names(made) == names(expand([task("q"), task("p"), task("r")], plan()))
    assert not any(each.nested or each.completes_parent for each in made)


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


@pytest.mark.parametrize(
    ("kind", "key", "values"),
    [("raw-request", "path", ("/i/_search?q=a", "/i/_search?q=b")), ("scroll-search", "pages", (2, 20))],
)
def test_a_path_or_a_number_of_pages_tells_a_query_from_others_too(
    kind: str, key: str, values: tuple[object, object]
) -> None:
    asked = [task(name, kind) for name in "pq"]
    for each, value in zip(asked, values, strict=True):
        each.operation.params = {"body": {}, "path": "/i/_search", key: value}
    assert len({load["query"] for load in loads(asked).values()}) == 2


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


@pytest.mark.parametrize(
    ("kind", "path", "adds"),
    [
        ("bulk", None, True),
        ("restore-snapshot", None, True),
        ("raw-request", "/i/_bulk?refresh", True),
        ("raw-request", "/_snapshot/r/s/_restore", True),
        ("raw-request", "/i/_doc/1", True),
        ("raw-request", "/_snapshot/r/s/_mount?wait_for_completion=true", True),
        ("raw-request", "/_ingest/pipeline/p", False),
        ("create-index", None, False),
        ("own", None, True),  # or might
    ],
)
def test_documents_also_come_from_a_snapshot_and_from_raw_requests(
    kind: str, path: str | None, adds: bool
) -> None:
    made = task("t", kind)
    made.operation.params |= {"path": path, "method": "PUT"} if path else {}
    assert may_index([made]) == adds
    within = task("t", "composite")
    within.operation.params["requests"] = [{"stream": [{"operation-type": kind, **made.operation.params}]}]
    assert may_index([within]) == (adds and kind != "own")
    if path:
        made.operation.params["method"] = "DELETE"
        assert not may_index([made])


@pytest.mark.parametrize("path", ["/i/_graph/explore", "/i/_rollup_search?typed_keys=true"])
def test_searches_that_rally_has_no_operation_for_are_raced(path: str) -> None:
    made = task("t", "raw-request")
    made.operation.params |= {"path": path, "method": "POST"}
    assert divide([made]) == ([], [made])
