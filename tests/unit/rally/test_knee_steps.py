"""Steps of a search for the knee: who sends what when, and how one rate follows from another."""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
from esrally import track as rally_track
from esrally.metrics import SampleType
from esrally.track import params as rally_params

from esrally_ebs.analysis.knee import NextStep, Purpose
from esrally_ebs.errors import PlanError
from esrally_ebs.model import Block, Kind, Phase, Volume, VolumeSpec, Work
from esrally_ebs.plan import Plan, parse_plan
from esrally_ebs.plan.tables import MAX_PROBES
from esrally_ebs.rally import activation, knee, sample_recorder
from esrally_ebs.rally.request_source import BLOCK, RequestSource
from esrally_ebs.rally.schedule import block_of, expand
from esrally_ebs.store import SessionFolder
from esrally_ebs.store.context import STEP, Arm, Context, Member
from esrally_ebs.volumes import backends
from esrally_ebs.workload.corpus import vectors
from esrally_ebs.workload.queries import replay

PLAN = """
name = "x"
arm = [{name = "a", type = "gp3"}, {name = "b", type = "gp3"}]
[race]
warmup_iterations = 5
[cache]
mode = "warm"
[design]
knee = "p99=100ms"
steps = 6
"""


def plan(**overrides: object) -> Plan:
    return parse_plan(PLAN, "x.toml", overrides)


def task(name: str, kind: str = "search") -> rally_track.Task:
    operation = rally_track.Operation(name, kind, params={"body": {}, "index": "i"})
    return rally_track.Task(name, operation, clients=2)


@pytest.fixture(autouse=True)
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(activation, "current", lambda: SimpleNamespace(notes=tmp_path))
    yield tmp_path
    knee._arrivals_of.cache_clear()


def first_step() -> rally_track.Task:
    """Of arm a."""
    return next(one for one in expand([task("q")], plan()) if one.name == "queries-a-r1")


def publish(run: Path, step: NextStep, arm: str = "a") -> None:
    (run / STEP).write_text(json.dumps({arm: asdict(step)}))


def arrivals(clients: list[int], total: int, made: rally_track.Task) -> list[float]:
    """What one process of these clients sends, when it is always free."""
    knee._arrivals_of.cache_clear()
    own = knee._arrivals_of(made.name, *made.operation.params[knee.open_loop.OPEN])
    for client in clients:
        own.join(client, total)
    due: list[float] = []
    while True:
        try:
            due.append(own.next(clients[len(due) % len(clients)], due[-1] if due else 0.0))
        except StopIteration:
            return due


def test_a_session_has_a_warm_up_of_each_search_and_then_steps_that_ask_all_in_turn() -> None:
    made = expand([task("q"), task("r")], plan())
    warm = [one.name for one in made if block_of(one).phase is Phase.WARMUP]  # type: ignore[union-attr]
    assert warm == ["q-a-warmup", "q-b-warmup", "r-a-warmup", "r-b-warmup"]
    measured = made[len(warm) :]
    assert len(measured) == 2 * (1 + MAX_PROBES + 6)
    assert {one.operation.params[BLOCK].task for one in measured} == {"queries"}
    assert all(one.clients == knee.CLIENTS and one.schedule == knee.NAME for one in measured)


@pytest.mark.parametrize("source", [replay.PARAM_SOURCE, vectors.PARAM_SOURCE])
@pytest.mark.parametrize(("cache", "places"), [("steady", 3), ("warm", 1)])
def test_each_step_asks_a_log_or_for_points_from_another_place_the_same_on_all_arms(
    cache: str, places: int, source: str
) -> None:
    operation = rally_track.Operation("t", "search", params={"template": "t"}, param_source=source)
    made = expand([rally_track.Task("t", operation)], plan(**{"cache.mode": cache}))
    first = {one.name: one.operation.params.get("first") for one in made}
    asked = [first[f"queries-a-r{number}"] for number in (1, 2, 3)]
    assert asked == [first[f"queries-b-r{number}"] for number in (1, 2, 3)]
    assert len(set(asked)) == places


def test_searches_of_a_step_have_points_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    known = vars(rally_params)["__PARAM_SOURCES_BY_NAME"]
    monkeypatch.setitem(known, vectors.PARAM_SOURCE, vectors.Nearest)
    near = {"params": {"index": "i"}, "param_source": vectors.PARAM_SOURCE}
    tasks = [rally_track.Task(name, rally_track.Operation(name, "search", **near)) for name in ("p", "q")]
    made = {one.name: one for one in expand(tasks, plan(**{"cache.mode": "steady"}))}
    asked = []
    for arm in ("a", "b"):
        source = RequestSource(None, made[f"queries-{arm}-r1"].operation.params).partition(0, 1)
        asked.append([tuple(source.params()["body"]["knn"]["query_vector"]) for _ in range(4)])
    assert asked[0] == asked[1]
    assert len(set(asked[0])) == 4


def test_steps_have_as_many_clients_as_any_of_their_searches() -> None:
    busy = task("r")
    busy.clients = 64
    steps = [one for one in expand([task("q"), busy], plan()) if "-r" in one.name]
    assert {one.clients for one in steps} == {64}


def test_searches_of_several_kinds_and_none_are_refused() -> None:
    with pytest.raises(PlanError, match="choose with --task"):
        expand([task("q"), task("r", "scroll-search")], plan())
    with pytest.raises(PlanError, match="the challenge has none"):
        expand([], plan())


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("cache.mode", "cold", "'cold' evicts"),
        ("design.nodes", "one", "not when they are due"),
        ("design.knee", "p99", "a percentile from p50"),
        ("design.knee", "p99=100", "write the unit"),
    ],
)
def test_a_plan_that_cannot_have_a_knee_is_refused(key: str, value: str, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        plan(**{key: value})


def test_workers_share_the_requests_of_a_step(run: Path) -> None:
    publish(run, NextStep(purpose=Purpose.MEASURE, rate=50.0, seconds=10.0))
    made = first_step()
    one, two = arrivals([0, 1], 4, made), arrivals([2, 3], 4, made)
    assert len(one) + len(two) == 500
    assert not set(one) & set(two)
    assert 150 < len(one) < 350
    assert sorted(one) == one
    assert max(one + two) <= 10


def test_alone_is_one_client_that_sends_when_it_is_answered(run: Path) -> None:
    publish(run, NextStep(purpose=Purpose.ALONE, rate=0.0, seconds=8.0))
    made = first_step()
    own = knee._arrivals_of(made.name, *made.operation.params[knee.open_loop.OPEN])
    assert own.next(0, 3.5) == 3.5
    for client, now_s in ((1, 3.5), (0, 8.1)):
        with pytest.raises(StopIteration):
            own.next(client, now_s)


@pytest.mark.parametrize(
    ("rate", "clients", "lead_s"), [(0.0, 1, 2.0), (50.0, 32, 2.0), (5.0, 15, 3.0), (0.1, 4, 3.0)]
)
def test_no_more_clients_connect_than_a_step_can_need_and_no_faster_than_it_asks(
    rate: float, clients: int, lead_s: float, run: Path
) -> None:
    purpose = Purpose.MEASURE if rate else Purpose.ALONE
    publish(run, NextStep(purpose=purpose, rate=rate, seconds=10.0))
    made = first_step()
    own = knee._arrivals_of(made.name, *made.operation.params[knee.open_loop.OPEN])
    joined = []
    for client in range(32):
        with suppress(StopIteration):
            joined.append(own.join(client, 32))
    assert joined == [
        (pytest.approx(lead_s), pytest.approx(lead_s * client / clients)) for client in range(clients)
    ]


def test_a_step_that_lags_far_behind_is_ended(run: Path) -> None:
    publish(run, NextStep(purpose=Purpose.PROBE, rate=50.0, seconds=10.0))
    made = first_step()
    own = knee._arrivals_of(made.name, *made.operation.params[knee.open_loop.OPEN])
    own.join(0, 1)
    own.next(0, 1.0)
    with pytest.raises(StopIteration):
        own.next(0, 5.0)
    with pytest.raises(StopIteration):
        own.next(0, 1.0)


def test_an_arm_without_a_step_sends_nothing(run: Path) -> None:
    publish(run, NextStep(purpose=Purpose.PROBE, rate=50.0, seconds=10.0), arm="b")
    made = first_step()
    own = knee._arrivals_of(made.name, *made.operation.params[knee.open_loop.OPEN])
    with pytest.raises(StopIteration):
        own.join(0, 1)


def _sample(due_s: float, latency_s: float, kind: SampleType = SampleType.Normal) -> SimpleNamespace:
    return SimpleNamespace(
        sample_type=kind,
        request_start=due_s + latency_s - 0.01,
        service_time=0.01,
        latency=latency_s,
        request_meta_data={"success": True},
    )


def test_the_rule_doubles_the_rate_until_the_bound_breaks_on_each_arm_for_itself() -> None:
    published: list[dict[str, dict[str, float]]] = []
    rule = knee.StepRule(
        plan(), publish=lambda text: published.append(json.loads(text)), record=lambda *words: None
    )
    assert rule.begins(0)
    for round_ in range(1, 6):
        assert rule.begins(round_)
        for arm, capacity in (("a", 120.0), ("b", 1e9)):
            rate = published[-1][arm]["rate"]
            block = Block(arm=arm, cluster=arm, work=Work.SEARCH, task="t", round=round_)
            rule.take(_sample(0.0, 9.0, SampleType.Warmup), arm, block)
            for number in range(max(100, round(8 * rate))):  # of a probe's 8 seconds
                rule.take(_sample(number / 10, 0.01 if rate < capacity else 1.0), arm, block)
    assert [round(one["a"]["rate"], 1) for one in published] == [
        0,
        50,
        100,
        200,
        pytest.approx(141.4, abs=0.1),
    ]
    assert [round(one["b"]["rate"], 1) for one in published] == [0, 50, 100, 200, 400]
    assert rule.describe("a") == "a: 141 queries/s"


def _begins_another(by: Plan, times_s: Sequence[float], spent_s: float) -> bool:
    """Whether a second step is begun, so long after a first one whose queries took these times in turn."""
    now = [1.0]
    rule = knee.StepRule(by, publish=lambda text: None, record=lambda *words: None, now=lambda: now[0])
    assert rule.begins(1)
    for arm in ("a", "b"):
        block = Block(arm=arm, cluster=arm, work=Work.SEARCH, task="t", round=1)
        for number, time_s in enumerate(times_s):
            sample = _sample(2.0 * number, time_s)
            sample.request_start, sample.service_time = 2.0 * number, time_s
            rule.take(sample, arm, block)
    now[0] += spent_s
    return rule.begins(2)


@pytest.mark.parametrize(
    ("budget", "spent_s", "goes_on"),
    [(42, 21.0, True), (42, 21.1, False), (None, 489.0, True), (None, 489.1, False)],
)
def test_no_steps_are_begun_that_would_end_beyond_the_budget(
    budget: float | None, spent_s: float, goes_on: bool
) -> None:
    """The next takes 8 s on each of two arms, and 2.5 s before it for connections; usual are 255 s an arm."""
    of = plan(**({"design.budget": budget} if budget else {}))
    assert _begins_another(of, [0.01] * 10, spent_s) is goes_on


@pytest.mark.parametrize(("spent_s", "goes_on"), [(5.0, True), (5.1, False)])
def test_a_budget_has_the_connecting_for_slow_queries_in_it(spent_s: float, goes_on: bool) -> None:
    """A query every 4 s for 30 s, before it 13 clients in 52 s, and 0.5 s; on each of two arms."""
    slow = plan(**{"design.knee": "p99=5s", "design.budget": 170})
    assert _begins_another(slow, [2.0] * 4, spent_s) is goes_on


def test_an_arm_without_burst_credits_begins_each_turn_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come back while the other arm is asked."""
    volumes = [
        Volume(
            spec=VolumeSpec(name=name, type="gp2", credits=left),
            kind=Kind.EMULATED,
            mount=tmp_path,
            control=tmp_path / name,
        )
        for name, left in (("a", 0.0), ("b", 1.0))
    ]
    arms = tuple(
        Arm(name=each.spec.name, cluster="default", members=(Member(volume=each),)) for each in volumes
    )
    made = SessionFolder.create(tmp_path, "s", kind="race", plan=plan())
    context = Context(session="s", folder=made.path, run=tmp_path, plan=plan(), arms=arms)
    emptied: list[float] = []
    monkeypatch.setattr(backends, "change", lambda _, credits: emptied.append(credits))
    driven = sample_recorder.DrivenSession(lambda: context)
    by_name = {one.name: one for one in expand([task("q")], plan())}
    in_pairs = parse_plan(PLAN.partition("[design]")[0] + "[design]\nrounds = 6\nnodes = 'one'", "x.toml")
    by_name |= {f"pairs of {one.name}": one for one in expand([task("p")], in_pairs)}
    steps = (("q-a-warmup", 0), ("queries-a-r1", 1), ("queries-b-r1", 1), ("queries-a-r2", 2))
    for name, count in (*steps, ("pairs of p-warmup", 2), ("pairs of p-r1", 3)):
        driven.begin_tasks([by_name[name]], 1)
        assert emptied == [0.0] * count
