"""The schedule of a session: what Rally runs, in which order, on which arm."""

from itertools import pairwise

import pytest
from esrally import track as rally_track
from hypothesis import given
from hypothesis import strategies as st

from esrally_ebs.errors import PlanError
from esrally_ebs.model import Phase
from esrally_ebs.plan import Plan, parse_plan
from esrally_ebs.rally.schedule import META, clusters, expand, round_orders

PLAN = """
name = "two"
[[arm]]
name = "gp2"
type = "gp2"
[[arm]]
name = "gp3"
type = "gp3"
[race]
iterations = 3
warmup_iterations = 7
[design]
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


def task(name: str, kind: str = "search") -> rally_track.Task:
    return rally_track.Task(
        name, rally_track.Operation(name, kind, params={}), warmup_iterations=0, iterations=1
    )


def test_each_arm_is_first_equally_often_in_an_even_number_of_rounds() -> None:
    orders = round_orders(["a", "b"], 6, seed=3)
    assert sum(order[0] == "a" for order in orders) == 3


@given(st.integers(1, 9), st.integers(2, 5), st.integers())
def test_every_round_visits_every_arm_and_pairs_run_backwards(rounds: int, arms: int, seed: int) -> None:
    names = [f"arm{number}" for number in range(arms)]
    orders = round_orders(names, rounds, seed=seed)
    assert len(orders) == rounds
    assert all(sorted(order) == names for order in orders)
    for first, second in list(pairwise(orders))[::2]:
        assert second == first[::-1]


def test_a_fixed_order_is_that_of_the_plan_in_every_round() -> None:
    assert round_orders(["b", "c", "a"], 3, seed=3, fixed=True) == [["b", "c", "a"]] * 3


def test_the_recorded_seed_gives_the_same_order_again() -> None:
    assert round_orders(["a", "b", "c"], 8, seed=5) == round_orders(["a", "b", "c"], 8, seed=5)


def test_baselines_come_first_then_warm_up_then_rounds_then_the_short_baselines_again() -> None:
    names = [made.name for made in expand([task("q")], plan())]
    assert names[:4] == ["fio-short-gp2", "fio-short-gp3", "fio-long-gp2", "fio-long-gp3"]
    assert names[4:6] == ["q-gp2-warmup", "q-gp3-warmup"]
    assert sorted(names[6:10]) == ["q-gp2-r1", "q-gp2-r2", "q-gp3-r1", "q-gp3-r2"]
    assert names[10:] == ["fio-short-gp2-end", "fio-short-gp3-end"]


def test_all_task_names_differ_because_rally_tells_tasks_apart_by_name() -> None:
    names = [made.name for made in expand([task("q1"), task("q2")], plan(**{"design.rounds": 5}))]
    assert len(set(names)) == len(names)


def test_warm_up_is_the_same_number_of_requests_on_every_arm_and_counts_as_warm_up() -> None:
    warm = [made for made in expand([task("q")], plan()) if made.meta_data[META]["phase"] == Phase.WARMUP]
    # 6 + 1: Rally would add a request of its own after a warm-up that nothing follows
    assert [(made.warmup_iterations, made.iterations) for made in warm] == [(6, 1), (6, 1)]


def test_measured_tasks_have_the_plans_iterations_and_no_warm_up_of_their_own() -> None:
    measured = [made for made in expand([task("q")], plan()) if made.meta_data[META]["round"] >= 1]
    searches = [made for made in measured if made.operation.type == "search"]
    assert {(made.warmup_iterations, made.iterations) for made in searches} == {(0, 3)}


def test_indexing_runs_once_per_arm_before_any_search() -> None:
    tasks = expand([task("index", "bulk"), task("q")], plan())
    bulk = [number for number, made in enumerate(tasks) if made.operation.type == "bulk"]
    search = [number for number, made in enumerate(tasks) if made.operation.type == "search"]
    assert len(bulk) == 2
    assert max(bulk) < min(search)


def test_indexing_after_a_search_is_refused_because_arms_would_differ_in_it() -> None:
    with pytest.raises(PlanError, match="task index: stands after a search"):
        expand([task("q"), task("index", "bulk")], plan())


def test_the_original_tasks_are_left_as_they_were() -> None:
    original = task("q")
    expand([original], plan())
    assert (original.name, original.iterations, original.operation.params) == ("q", 1, {})


def test_the_first_arm_is_rallys_default_cluster() -> None:
    assert clusters(["gp2", "gp3"]) == {"gp2": "default", "gp3": "gp3"}


def test_a_later_arm_called_default_is_refused() -> None:
    with pytest.raises(PlanError, match="only the first arm"):
        clusters(["gp2", "default"])
