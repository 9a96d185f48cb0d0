"""Searches with writes beside them: elements of their own, and what is brought back before each."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from esrally import exceptions
from scheduled import ONE, WARM, block, log_beside_writes, names, nodes, parallel, plan, task

from esrally_ebs.analysis.profile import tasks_beside_writes
from esrally_ebs.errors import PlanError
from esrally_ebs.model import Block, Phase, Request, Work
from esrally_ebs.node.kept import BroughtBack
from esrally_ebs.rally import runners
from esrally_ebs.rally.request_source import RequestSource, require_requests
from esrally_ebs.rally.schedule import SEARCH_BESIDE, expand, round_of
from esrally_ebs.store import SessionFolder
from esrally_ebs.workload.queries.replay import QUERIES

MIXED = [task("p"), parallel(task("q"), task("a", "bulk"))]


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


def test_an_arm_is_brought_back_before_each_search_where_any_has_writes() -> None:
    made = expand(MIXED, plan(**WARM))
    writes = set()
    for before, after in pairwise(made):
        searched = block(next(iter(after)))
        if searched.work is Work.SEARCH:
            brought_back = block(next(iter(before)))
            assert brought_back == replace(searched, work=Work.BRING_BACK, writes=brought_back.writes)
            writes.add((searched.task, brought_back.writes))
    assert writes == {("q", ("a-beside-q",)), ("p", ())}
    assert not any("bring-back" in each.name for each in expand([task("p")], plan(**WARM)))


def test_a_search_without_writes_warms_up_like_those_that_have_some_and_its_hits_are_compared() -> None:
    made = [each for element in expand(MIXED, plan(**WARM)) for each in element]
    alone = [each for each in made if each.name.startswith("p-") and "-r" in each.name]
    assert {(each.warmup_iterations, each.iterations) for each in alone} == {(7, 3)}
    assert all(each.operation.params["detailed-results"] for each in alone)


def test_the_warm_up_of_a_block_is_observed_where_writes_run_beside_it_and_nowhere_else() -> None:
    """The index is not in the page cache then; of a short block the first request alone is observed."""
    made = [each for element in expand(MIXED, plan(**WARM)) for each in element]
    for name, observed in (("p-gp2-r1", [False] * 7 + [True] * 3), ("q-gp2-r1", [True] * 10)):
        (search,) = [each for each in made if each.name == name]
        source = RequestSource(None, search.operation.params, inner=SimpleNamespace(params=dict))
        assert [source.params()["ebs"].is_observed for _ in range(10)] == observed


def test_a_request_that_is_not_observed_has_no_counters_read(monkeypatch: pytest.MonkeyPatch) -> None:
    arm = SimpleNamespace(suffix="", preference="")
    monkeypatch.setattr(runners.activation, "current", lambda: SimpleNamespace(arm=lambda _: arm))
    asked: list[Block] = []
    monkeypatch.setattr(runners, "observed", lambda _, block: asked.append(block))
    made = [each for element in expand(MIXED, plan(**WARM)) for each in element]
    (searched,) = [block(each) for each in made if each.name == "p-gp2-r1"]
    for is_observed in (False, True):
        request = Request(block=searched, number=1, is_observed=is_observed)
        runners.Search(runners.OnArm(None), None, request, {})._observed()
        assert asked == [searched] * is_observed


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
    warmups = [
        each for element in made for each in element if each.name.startswith("q-") and "-r" not in each.name
    ]
    # at its rate, for as long as writes, which end with it, need to warm up
    assert {(each.params["target-throughput"], each.schedule) for each in warmups} == {(10, None)}


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


def test_a_piece_of_a_log_begins_with_a_warm_up_beside_writes() -> None:
    searches = [next(iter(each)) for each in log_beside_writes() if each.nested]
    counts = {(block(each).phase, each.warmup_iterations, each.iterations) for each in searches}
    assert counts == {(Phase.WARMUP, 6, 1), (Phase.MEASURE, 7, None)}


@pytest.mark.parametrize(
    ("requests", "says"),
    [
        (None, "No such file or directory; import the workload again"),
        (0, "has no request; import the workload again"),
        (1, "1 request cannot fill 2 rounds"),
        (15, "task log: each round has 7 requests of the log, and 7 are to warm up after its arm .*; set"),
    ],
)
def test_a_log_with_too_few_requests_is_refused(requests: int | None, says: str, tmp_path: Path) -> None:
    track = SimpleNamespace(root=tmp_path)
    if requests is not None:
        (tmp_path / QUERIES).write_text("{}\n" * requests)
    with pytest.raises(PlanError, match=says):
        require_requests(track, log_beside_writes())


def test_an_arm_that_is_brought_back_says_what_writes_beside_the_search_that_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = BroughtBack(seconds=1.0, files=1, bytes=1, documents=12, resident=0.0)
    steps = SimpleNamespace(bring_back=lambda name: facts)
    monkeypatch.setattr(runners, "root_steps", lambda context: steps)
    context: Any = SimpleNamespace(folder=tmp_path)
    arm: Any = SimpleNamespace(name="gp2", volume=SimpleNamespace(spec=SimpleNamespace(name="gp2")))
    made = [each for element in expand(MIXED, plan(**WARM)) for each in element]
    for each in [each for each in made if "bring-back" in each.name][:3:2]:
        runners._BETWEEN[block(each).work](context, arm, block(each))
    events = SessionFolder(tmp_path).events()
    assert [event.fields["writes"] for event in events] == [[], ["a-beside-q"]]
    assert tasks_beside_writes(events) == {"q"}
    assert {event.number("documents") for event in events} == {12}
