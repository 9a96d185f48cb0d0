"""What a session measures after what."""

from itertools import groupby, pairwise

from hypothesis import given
from hypothesis import strategies as st

from esrally_ebs.model import Block, Phase, Work
from esrally_ebs.plan import Plan, parse_plan
from esrally_ebs.session.protocol import blocks

PLAN = """
name = "x"
arm = [{name = "a", type = "gp3"}, {name = "b", type = "gp3"}, {name = "c", type = "gp3"}]
[race]
warmup_iterations = 5
[[baseline]]
name = "short"
rw = "randread"
bs = "4k"
repeat = true
[[baseline]]
name = "long"
rw = "randread"
bs = "16k"
"""


def order(plan: Plan, **tasks: list[str]) -> list[Block]:
    return list(blocks(plan, **tasks))


def plan(**overrides: object) -> Plan:
    return parse_plan(PLAN, "x", overrides)


def test_fio_then_indexing_then_warm_up_then_rounds_then_fio_again() -> None:
    made = order(plan(), indexing=["bulk"], searches=["q"])
    kinds = [(block.work, block.phase if block.work is Work.SEARCH else None) for block in made]
    assert [kind for kind, _ in groupby(kinds)] == [
        (Work.FIO, None),
        (Work.INDEXING, None),
        (Work.SEARCH, Phase.WARMUP),
        (Work.SEARCH, Phase.MEASURE),
        (Work.FIO, None),
    ]


def test_each_job_runs_on_every_arm_before_the_next_and_only_some_run_again() -> None:
    made = [(block.task, block.arm, block.round) for block in order(plan())]
    first = [(job, arm, 0) for job in ("short", "long") for arm in "abc"]
    assert made == [*first, *(("short", arm, 1) for arm in "cba")]  # backwards: a drift hits all the same


def test_warm_up_goes_through_the_arms_within_each_query() -> None:
    made = order(plan(), searches=["p", "q"])
    warm = [(block.task, block.arm) for block in made if block.phase is Phase.WARMUP]
    assert warm == [(task, arm) for task in "pq" for arm in "abc"]


def test_without_warm_up_iterations_there_is_none() -> None:
    made = order(plan(**{"race.warmup_iterations": 0}), searches=["q"])
    assert {block.phase for block in made} == {Phase.MEASURE}


def test_each_arm_indexes_all_of_it_before_the_next_one_begins() -> None:
    made = order(plan(), indexing=["1", "2"])
    indexing = [block.arm + block.task for block in made if block.work is Work.INDEXING]
    assert indexing == ["a1", "a2", "b1", "b2", "c1", "c2"]


@given(
    rounds=st.integers(1, 8), seed=st.integers(0, 1000), order_=st.sampled_from(["fixed", "counterbalanced"])
)
def test_all_tasks_of_a_round_go_through_the_arms_alike_and_the_next_round_backwards(
    rounds: int, seed: int, order_: str
) -> None:
    design = {"design.rounds": rounds, "design.seed": seed, "design.order": order_}
    made = order(plan(**design), searches=["p", "q"])
    assert made == order(plan(**design), searches=["p", "q"])
    measured = [block for block in made if block.work is Work.SEARCH and block.round]
    orders = []
    for _, of_round in groupby(measured, key=lambda block: block.round):
        by_task = {task: [b.arm for b in of] for task, of in groupby(of_round, key=lambda b: b.task)}
        assert by_task["p"] == by_task["q"]
        orders.append(by_task["p"])
    assert len(orders) == rounds
    if order_ == "fixed":
        assert orders == [["a", "b", "c"]] * rounds
    else:
        assert all(sorted(each) == ["a", "b", "c"] for each in orders)
        assert all(second == first[::-1] for first, second in list(pairwise(orders))[::2])


def test_nodes_are_started_anew_and_warmed_up_before_each_equal_part_of_the_rounds() -> None:
    made = order(plan(**{"design.rounds": 6, "design.starts": 3}), searches=["q"])
    stages = [(b.work, b.phase, b.start) for b in made if b.work is not Work.FIO]
    part = [(Work.SEARCH, Phase.WARMUP), (Work.SEARCH, Phase.MEASURE)]
    anew = [(Work.START, Phase.MEASURE), *part]
    assert [stage for stage, _ in groupby(stages)] == [
        (*stage, start) for start in (1, 2, 3) for stage in (part if start == 1 else anew)
    ]
    measured = [b for b in made if b.work is Work.SEARCH and b.round]
    assert [(b.round, b.start) for b in measured[::3]] == [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3)]
    plain = [b for b in order(plan(), searches=["q"]) if b.work is Work.SEARCH and b.round]
    assert [(b.arm, b.round) for b in measured] == [(b.arm, b.round) for b in plain]


def test_a_node_is_looked_up_by_the_arm_alone() -> None:
    made = order(plan(), searches=["q"])
    assert {(block.arm, block.cluster) for block in made} == {("a", "default"), ("b", "b"), ("c", "c")}
