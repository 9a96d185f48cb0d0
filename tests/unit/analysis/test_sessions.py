"""Two sessions side by side: what must agree, and what may differ and is told."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import session_in_memory
from hypothesis import given, settings
from hypothesis import strategies as st
from sessions_of_six_rounds import make, volume
from small_plan import small_plan

from esrally_ebs.analysis.sessions import allowed_differences, check_sessions
from esrally_ebs.model import Check, Event, Kind, State
from esrally_ebs.store import load_session
from esrally_ebs.store.session import Session


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Session, Session]:
    return load_session(make(tmp_path, "first-1")), load_session(make(tmp_path, "second-2", scale=1.1))


def failing(first: Session, second: Session) -> dict[str, str]:
    return {check.name: check.text for check in check_sessions(first, second) if not check.ok}


def test_two_sessions_of_the_same_are_comparable(pair: tuple[Session, Session]) -> None:
    assert failing(*pair) == {}
    assert allowed_differences(*pair) == ()


def test_a_failed_check_that_forbids_nothing_in_a_report_forbids_nothing_here(
    pair: tuple[Session, Session],
) -> None:
    first, second = pair
    accepted = Check(name="disk", ok=False, value="", text="little room is left", accepted=True)
    assert failing(replace(first, checks=(*first.checks, accepted)), second) == {}
    assert "first session" in failing(replace(first, checks=(replace(accepted, accepted=False),)), second)


def changed(session: Session, part: str, key: str, value: object) -> Session:
    before = getattr(session, part)
    if part == "plan":
        tables = before.model_dump()
        return replace(session, plan=small_plan(**tables | {key: (tables[key] or {}) | value}))  # type: ignore[operator]
    return replace(session, **{part: {**before, key: value}})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("part", "key", "value", "name", "text"),
    [
        ("environment", "kernel", "6.2", "machine", "kernel: 6.1 in the first, 6.2 in the second"),
        ("environment", "rally", "2.12", "tools", "rally: 2.13.0 in the first, 2.12 in the second"),
        ("environment", "nodes", {"gp2": {"version": "8.9"}}, "nodes", "gp2 version: 8.8.2 in the first"),
        ("dataset", "hash", "abd", "dataset", "segments: not the same in both"),
        ("dataset", "documents", 11, "dataset", "documents: 10 in the first, 11 in the second"),
        ("plan", "cache", {"mode": "warm"}, "race", "cache mode: cold in the first, warm in the second"),
        ("plan", "design", {"nodes": "one"}, "race", "nodes: auto in the first, one in the second"),
        ("plan", "race", {"track": "x"}, "race", "track: noaa-ebs in the first, x in the second"),
        ("plan", "node", {"car": ("4g", "niofs")}, "nodes", "car: defaults in the first, 4g+niofs in the"),
        ("plan", "node", {"params": {"memory_limit": "2g"}}, "nodes", "car-params memory_limit: nothing in"),
    ],
)
def test_what_must_agree_is_named_when_it_does_not(
    pair: tuple[Session, Session],
    part: str,
    key: str,
    value: object,
    name: str,
    text: str,
) -> None:
    texts = failing(pair[0], changed(pair[1], part, key, value))
    assert list(texts) == [name]
    assert text in texts[name]


def test_a_machine_that_was_booted_anew_is_the_same_with_some_kib_less(
    pair: tuple[Session, Session],
) -> None:
    first, second = pair

    def with_memory(session: Session, size: int) -> Session:
        return changed(session, "environment", "memory_bytes", size)

    whole = with_memory(first, 8_056_623_104)
    assert failing(whole, with_memory(second, 8_056_614_912)) == {}
    assert failing(whole, with_memory(second, 16_000_000_000)) == {
        "machine": "memory: 7.5 GiB in the first, 14.9 GiB in the second"
    }


def test_reads_that_were_perturbed_are_compared_with_no_usual_ones(pair: tuple[Session, Session]) -> None:
    arm = [{"name": "gp2", "type": "gp2"}]
    slow, usual = (
        small_plan(arm=arm, trace=trace, race={"iterations": 5}, design={"rounds": 8})
        for trace in ("perturb", True)
    )
    first, second = (replace(one, plan=usual) for one in pair)
    assert failing(first, second) == {}
    assert failing(first, replace(second, plan=slow)) == {
        "race": "trace: nothing in the first, perturb in the second"
    }


@pytest.mark.parametrize(
    ("load", "text"),
    [
        ({"target-throughput": "10 ops/s"}, "q target-throughput: nothing in the first, 10 ops/s in the"),
        ({"clients": 4}, "q clients: 1 in the first, 4 in the second"),
        ({"schedule": "poisson"}, "q schedule: nothing in the first, poisson in the second"),
        ({"query": "f00"}, "q query: not the same in both"),
    ],
)
def test_tasks_that_were_asked_otherwise_are_not_compared(
    pair: tuple[Session, Session], load: dict[str, object], text: str
) -> None:
    first, second = (
        changed(one, "environment", "tasks", tasks)
        for one, tasks in zip(
            pair, ({"q": {"query": "abc"}, "r": {}}, {"q": load, "s": {"clients": 9}}), strict=True
        )
    )
    assert failing(first, first) == {}
    assert text in failing(first, second)["race"]
    assert "s clients" not in failing(first, second)["race"]  # of a task that one alone has
    assert failing(pair[0], second) == {}  # an earlier release did not record it


def test_instances_of_other_types_are_not_compared(pair: tuple[Session, Session]) -> None:
    first, second = (
        changed(one, "environment", "aws", {"instance": {"instance_type": of}})
        for one, of in zip(pair, ("m5.large", "m5n.large"), strict=True)
    )
    assert failing(first, second) == {
        "machine": "instance_type: m5.large in the first, m5n.large in the second"
    }
    assert failing(first, pair[1]) == {}  # of emulated arms AWS was not asked


def test_hosts_of_arms_must_be_alike_whatever_the_coordinator_is(pair: tuple[Session, Session]) -> None:
    def on_hosts(session: Session, **kernels: str) -> Session:
        arms = [replace(arm, spec=replace(arm.spec, host=f"of-{arm.spec.name}")) for arm in session.arms]
        hosts = {f"of-{arm}": {"kernel": kernel} for arm, kernel in kernels.items()}
        return changed(replace(session, arms=tuple(arms)), "environment", "hosts", hosts)

    first, second = on_hosts(pair[0], gp2="6.1", gp3="6.1"), on_hosts(pair[1], gp2="6.1", gp3="6.8")
    assert failing(first, second) == {"machine": "host of-gp3 kernel: 6.1 in the first, 6.8 in the second"}
    of_shared = replace(second, arms=second.arms[:1])
    assert failing(first, of_shared) == {}


def test_load_from_elsewhere_is_not_compared_with_load_from_here(pair: tuple[Session, Session]) -> None:
    first, second = pair
    elsewhere = replace(second, events=(Event(at_s=1.0, kind="clock", fields={"load_host": "10.0.0.9"}),))
    assert failing(elsewhere, elsewhere) == {}
    assert failing(first, elsewhere) == {
        "machine": "load from: nothing in the first, other machines in the second"
    }


def test_each_node_of_an_arm_that_is_a_cluster_must_agree(pair: tuple[Session, Session]) -> None:
    def cluster(session: Session, count: int, jvm: str = "17") -> Session:
        nodes = {f"{arm}-{n + 1}": {"jvm": jvm} for arm in session.arm_names for n in range(count)}
        changed_ = changed(session, "plan", "node", {"count": count})
        return replace(changed_, environment={**session.environment, "nodes": nodes})

    first, second = pair
    assert failing(cluster(first, 2), cluster(second, 2)) == {}
    other = failing(cluster(first, 2), cluster(second, 2, jvm="21"))
    assert "gp2-2 jvm: 17 in the first, 21 in the second" in other["nodes"]
    assert failing(cluster(first, 2), cluster(second, 3))["nodes"].startswith("nodes of an arm: 2 in the")


def test_segments_that_each_arm_made_are_no_copy(pair: tuple[Session, Session]) -> None:
    own = replace(pair[1], dataset={"documents": 10, "copied": False})
    text = "segments: the same on all arms in the first, made by each arm in the second"
    assert text in failing(pair[0], own)["dataset"]
    seeded = changed(own, "plan", "dataset", {"seed": 7})
    assert failing(own, seeded) == {"dataset": "seed: 42 in the first, 7 in the second"}


def test_the_number_of_requests_matters_only_where_caches_are_kept(pair: tuple[Session, Session]) -> None:
    first, second = (changed(one, "plan", "cache", {"drop_every": 0}) for one in pair)
    longer = {"iterations": 50}
    assert "iterations" in failing(first, changed(second, "plan", "race", longer))["race"]
    assert failing(pair[0], changed(pair[1], "plan", "race", longer)) == {}
    assert failing(pair[0], first) == {"race": "cache drop_every: 1 in the first, 0 in the second"}


def test_other_hits_forbid_the_comparison_and_unrecorded_ones_are_said(tmp_path: Path) -> None:
    first = load_session(make(tmp_path, "a"))
    other, unknown = (load_session(make(tmp_path, n, hits=h)) for n, h in (("b", 6), ("c", None)))
    assert failing(first, other) == {"hits": "q: [5] in the first, [6] in the second"}
    assert failing(first, unknown) == {}
    same = load_session(make(tmp_path, "d"))
    assert "the same for 1 task of both" in [check.text for check in check_sessions(first, same)]
    assert any(check.value == "not compared" for check in check_sessions(first, unknown))


@pytest.mark.parametrize(
    ("table", "other"),
    [("design", {"seed": 2}), ("design", {"rounds": 12}), ("race", {"iterations": 9})],
)
def test_hits_of_queries_that_sessions_chose_otherwise_are_not_compared(
    pair: tuple[Session, Session], table: str, other: dict[str, int]
) -> None:
    first, second = (with_hits(one, hits) for one, hits in zip(pair, ((1, 2, 3), (1, 2, 7)), strict=True))
    assert failing(first, second) == {"hits": "q: [3] in the first, [7] in the second"}
    assert failing(first, changed(second, "plan", table, other)) == {}
    # a query that is always the same finds the same
    once, again = (with_hits(one, hits) for one, hits in zip(pair, ((5,), (6,)), strict=True))
    assert "hits" in failing(once, changed(again, "plan", table, other))


def with_hits(session: Session, hits: Sequence[int]) -> Session:
    """One after the other of these, again and again."""
    samples = session.samples
    column = pa.array([hits[row % len(hits)] for row in range(samples.num_rows)], pa.int64())
    place = samples.schema.get_field_index("hits")
    return replace(session, samples=samples.set_column(place, "hits", column))


def test_a_session_that_is_not_valid_by_itself_is_named(pair: tuple[Session, Session]) -> None:
    first, second = pair
    failed = replace(second, state=State.FAILED, reason="node died")
    assert failing(first, failed) == {"second session": "it is failed (node died)"}
    warm = replace(first, checks=(Check(name="cold", ok=False, value="", text="9 % resident"),))
    assert failing(warm, second) == {"first session": "9 % resident"}


def test_races_whose_requests_are_gone_are_not_compared_by_their_fio(pair: tuple[Session, Session]) -> None:
    gone = [replace(one, samples=one.samples.slice(0, 0)) for one in pair]
    texts = failing(*gone)
    assert texts["first session"] == texts["second session"] == "no request of its race was recorded"


def test_sessions_without_a_common_arm_or_task_are_not_comparable(pair: tuple[Session, Session]) -> None:
    first, second = pair
    empty = replace(second, arms=(volume("io2"),), samples=pa.Table.from_pylist([], first.samples.schema))
    assert {"arms", "hits"} <= failing(first, empty).keys()


def test_other_volumes_rounds_and_hosts_are_told_and_forbid_nothing(pair: tuple[Session, Session]) -> None:
    first, second = pair
    faster = replace(second, arms=(volume("gp2"), volume("gp3", iops=6000, kind=Kind.DIRECTORY)))
    faster = changed(changed(faster, "plan", "design", {"rounds": 9}), "environment", "host", "there")
    assert failing(first, faster) == {}
    assert allowed_differences(first, faster) == (
        "gp3 kind: emulated in the first, directory in the second",
        "gp3 iops: 3000 in the first, 6000 in the second",
        "rounds: 6 in the first, 9 in the second",
        "host: here in the first, there in the second",
    )


def test_volumes_of_one_type_that_are_more_or_elsewhere_are_told(pair: tuple[Session, Session]) -> None:
    first, second = pair
    gp2, gp3 = second.arms
    other = replace(gp3, spec=replace(gp3.spec, stripes=4, instance="m5.large"))
    assert allowed_differences(first, replace(second, arms=(gp2, other))) == (
        "gp3 instance: nothing in the first, m5.large in the second",
        "gp3 stripes: 1 in the first, 4 in the second",
    )


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(["kernel", "os", "cpu", "rally"]), st.text(min_size=1), st.text(min_size=1))
def test_what_agrees_does_not_depend_on_which_session_is_first(key: str, one: str, two: str) -> None:
    base = session_in_memory.session(environment={key: one})
    other = replace(base, environment={key: two})
    assert failing(base, other).keys() == failing(other, base).keys()
    assert (not failing(base, other)) is (one == two)
