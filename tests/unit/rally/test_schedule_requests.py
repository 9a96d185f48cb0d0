"""Which requests of a template, a log or points each round asks of each arm."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from esrally import track as rally_track
from scheduled import ONE, block, log_beside_writes, plan, task

from esrally_ebs.model import Phase, Work
from esrally_ebs.plan import parse_plan
from esrally_ebs.rally.request_source import BLOCK, RequestSource, require_requests
from esrally_ebs.rally.schedule import block_of, expand, round_of
from esrally_ebs.workload.corpus import vectors
from esrally_ebs.workload.queries.replay import PARAM_SOURCE, QUERIES, Replay


def whole_log(nodes: str = "per-arm", templates: int = 1, **settings: int) -> list[rally_track.Task]:
    params = {"templates": templates}
    operation = rally_track.Operation("whole-log", "search", params=params, param_source=PARAM_SOURCE)
    task_ = rally_track.Task("whole-log", operation, **settings)
    return [
        each
        for each in expand([task_], plan(**{"design.nodes": nodes}))
        if block_of(each).task == "whole-log"
    ]


def test_a_request_carries_its_block_through_rallys_own_parameter_source() -> None:
    made = expand([task("index", "bulk-like")], plan())[4]
    source = RequestSource(None, made.operation.params)
    requests = [source.partition(0, 1).params()[BLOCK], source.params()[BLOCK], source.params()[BLOCK]]
    assert [request.number for request in requests] == [1, 1, 2]
    assert {request.block for request in requests} == {block(made)}


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


def test_whatever_a_runner_changes_in_a_request_the_next_does_not_have() -> None:
    search = task("q", "my-search")
    search.operation.params = {
        "vector": [0.5, 1, None],
        "any": [{"terms": ["a"]}],
        "own": {1, 2},
        "pair": ([1],),
    }
    source = RequestSource(None, expand([search], plan())[4].operation.params).partition(0, 1)
    for _ in range(3):
        asked = source.params()
        assert {key: asked[key] for key in search.operation.params} == search.operation.params
        asked["vector"].pop()
        asked["any"][0]["terms"].append("b")
        asked["own"].clear()
        asked["pair"][0].clear()


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


@pytest.mark.parametrize("nodes", ["per-arm", "one"])
def test_each_round_asks_its_piece_of_a_whole_log_on_every_arm(nodes: str, tmp_path: Path) -> None:
    lines = [f'{{"at":{n},"path":"/i/_search","params":{{}},"body":{{"size":{n}}}}}\n' for n in range(7)]
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


def test_a_log_with_enough_requests_is_none_to_refuse(tmp_path: Path) -> None:
    (tmp_path / QUERIES).write_text("{}\n" * 16)
    require_requests(SimpleNamespace(root=tmp_path), [*log_beside_writes(), *whole_log()])
