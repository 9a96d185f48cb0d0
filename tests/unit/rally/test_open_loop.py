"""Requests at the times of a schedule, in Rally's own executor, and what a stall does to their latency."""

import asyncio
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from esrally import client
from esrally import track as rally_track
from esrally.driver import driver, runner, scheduler
from esrally.metrics import SampleType
from small_plan import TWO_ARMS

from esrally_ebs.errors import PlanError
from esrally_ebs.plan import Plan, parse_plan
from esrally_ebs.rally import activation, open_loop
from esrally_ebs.rally.request_source import BLOCK, RequestSource
from esrally_ebs.rally.schedule import expand
from esrally_ebs.store.context import FILES

PLAN = f"""{TWO_ARMS}[cache]
mode = "warm"
[design]
rounds = 2
"""
RATE, REQUESTS, CLIENTS = 150, 150, 2


def plan(**overrides: object) -> Plan:
    return parse_plan(PLAN, "test.toml", overrides)


def task(schedule: str | None = None, **params: object) -> rally_track.Task:
    operation = rally_track.Operation("q", "search", params={})
    return rally_track.Task("q", operation, schedule=schedule, clients=CLIENTS, params=params)


def measured(one: rally_track.Task, **overrides: object) -> rally_track.Task:
    """Its first measured block."""
    return next(made for made in expand([one], plan(**overrides)) if "-r" in made.name)


@pytest.fixture(autouse=True)
def schedules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activation, "current", lambda: SimpleNamespace(notes=tmp_path))
    known = vars(scheduler)["__SCHEDULERS"]
    monkeypatch.setitem(known, open_loop.NAME, open_loop.OpenLoop)
    monkeypatch.setitem(known, open_loop.ARRIVALS, open_loop.Arrivals)
    monkeypatch.setitem(known, open_loop.DRAWN, open_loop.DrawnArrivals)


class Log:
    """A log's requests, a parameter source: so many, every 20 ms, numbered."""

    infinite = False
    percent_completed = None
    client = 0

    def __init__(self, count: int, first: int = 0, step: int = 1) -> None:
        self.count, self.next, self.step = count, first, step

    def partition(self, index: int, total: int) -> "Log":
        return Log(self.count, index, total)

    def due_s(self) -> float:
        if self.next >= self.count:
            raise StopIteration
        return self.next * 0.02

    def gap_s(self) -> float:
        return 0.02

    def params(self) -> dict[str, Any]:
        self.next += self.step
        return {"n": self.next - self.step}


class Volume:
    """A node that answers in a millisecond, and while it stalls only when that is over."""

    completed = None
    percent_completed = None

    def __init__(self, stalls_at_s: float, lasts_s: float) -> None:
        self.begins = time.perf_counter() + stalls_at_s
        self.ends = self.begins + lasts_s
        self.sent: list[tuple[float, int]] = []  # when, and which

    async def __aenter__(self) -> "Volume":
        return self

    async def __aexit__(self, *exc: object) -> bool:
        return False

    async def __call__(self, es: Any, params: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401
        es["default"].on_request_start()
        now = time.perf_counter()
        self.sent.append((now, params.get("n", 0)))
        await asyncio.sleep(self.ends - now if self.begins <= now < self.ends else 0.001)
        es["default"].on_request_end()
        return {"weight": 1, "unit": "ops", "iteration": params[BLOCK].number}


def drive(
    made: rally_track.Task,
    volume: Volume,
    inner: Any,  # noqa: ANN401
    monkeypatch: pytest.MonkeyPatch,
) -> list[Any]:
    """All samples of a task, as Rally itself makes them."""
    monkeypatch.setattr(runner, "runner_for", lambda kind: volume)
    sampler = driver.Sampler(time.perf_counter())
    source = RequestSource(None, made.operation.params, inner=inner)
    es = {"default": client.RequestContextHolder()}

    async def all_clients() -> None:
        await asyncio.gather(
            *(
                driver.AsyncExecutor(
                    number,
                    made,
                    driver.schedule_for(driver.TaskAllocation(made, number, number, CLIENTS), source),
                    es,
                    sampler,
                    threading.Event(),
                    threading.Event(),
                    driver.OnErrorBehavior.ABORT,
                )()
                for number in range(CLIENTS)
            )
        )

    asyncio.run(all_clients())
    samples: list[Any] = sampler.samples
    return samples


def times(samples: list[Any]) -> tuple[Any, Any]:
    """Latencies and service times of what was measured, s."""
    normal = [sample for sample in samples if sample.sample_type is SampleType.Normal]
    return np.array([s.latency for s in normal]), np.array([s.service_time for s in normal])


class Endless:
    """The parameter source of a plain search."""

    infinite = True

    def partition(self, index: int, total: int) -> "Endless":
        return self

    def params(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize("schedule", ["deterministic", "poisson"])
def test_a_stall_of_a_second_is_in_p99_of_latency_though_not_of_service_time(
    schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = measured(task(schedule, **{"target-throughput": RATE}), **{"race.iterations": REQUESTS})
    volume = Volume(stalls_at_s=open_loop.LEAD_S + 0.5, lasts_s=1.0)
    latency, service = times(drive(made, volume, Endless(), monkeypatch))
    assert len(latency) == CLIENTS * REQUESTS
    assert np.percentile(service, 99) < 0.5  # two of three hundred met the stall
    assert np.percentile(latency, 99) > 0.9
    assert np.mean(latency > 0.25) > 0.2  # each request that was due in that second says so


def test_a_closed_loop_has_no_latency_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made = measured(task(), **{"race.iterations": 20})
    latency, service = times(drive(made, Volume(0.01, 0.05), Endless(), monkeypatch))
    assert (latency == service).all()


def test_a_log_is_asked_in_its_order_and_never_early(monkeypatch: pytest.MonkeyPatch) -> None:
    made = measured(task(open_loop.ARRIVALS, speed=2))
    assert made.operation.params["piece"] == (1, 2)
    volume = Volume(9, 0)
    latency, service = times(drive(made, volume, Log(40), monkeypatch))
    assert len(latency) == 40
    assert (latency >= service).all()
    for which in range(CLIENTS):  # each has its share; what opened its connection came first, and is warm-up
        own = [number for _, number in sorted(volume.sent) if number % CLIENTS == which]
        assert own == [which, *range(which, 40, CLIENTS)]


@pytest.mark.parametrize(
    ("made", "asked"),
    [(task(open_loop.ARRIVALS), [0, 0, 1]), (task("poisson", **{"target-throughput": 10}), [0, 1, 2])],
    ids=["log", "rate"],
)
def test_what_opens_a_connection_is_asked_again_only_where_it_would_be_missing(
    made: rally_track.Task, asked: list[int]
) -> None:
    source = RequestSource(None, measured(made).operation.params, inner=Log(9))
    assert [source.params()["n"] for _ in asked] == asked


def test_a_log_has_its_times_by_its_speed() -> None:
    made = measured(task(open_loop.ARRIVALS, speed=2))
    schedule = scheduler.scheduler_for(made)
    log = schedule.parameter_source = Log(5).partition(1, 2)
    due = [schedule.next(0)]
    for _ in range(2):
        due.append(schedule.next(due[-1]))
        log.params()
    assert due[0] == 0
    assert due[2] - due[1] == pytest.approx(0.02)
    with pytest.raises(StopIteration):
        schedule.next(due[-1])


@pytest.mark.parametrize(
    ("made", "lead_s"),
    [
        (task("poisson", **{"target-throughput": 4}), 0.5),
        (task("poisson", **{"target-interval": 30}), 5.0),
        (task(open_loop.ARRIVALS, speed=2), 0.02),
    ],
    ids=["rate", "seldom", "log"],
)
def test_clients_connect_one_after_the_other_no_faster_than_the_task_asks(
    made: rally_track.Task, lead_s: float
) -> None:
    block, begins = measured(made), []
    for client_ in range(CLIENTS):
        schedule = scheduler.scheduler_for(block)
        schedule.parameter_source = RequestSource(None, block.operation.params, inner=Log(9), client=client_)
        assert schedule.next(0) == pytest.approx(lead_s * client_ / CLIENTS)
        begins.append(schedule._begins_s)
    assert begins == [pytest.approx(lead_s + open_loop.LEAD_S, abs=0.1)] * CLIENTS


def dues(made: rally_track.Task, index: int) -> list[float]:
    """When six requests of a client are due."""
    schedule = scheduler.scheduler_for(made)
    schedule.parameter_source = RequestSource(None, made.operation.params, inner=Endless(), client=index)
    due = [schedule.next(0)]
    schedule.before_request(0.0)
    schedule.after_request(0.0, 1, "ops", {})
    for _ in range(5):
        due.append(schedule.next(due[-1]))
    return due


def test_arms_are_asked_at_the_same_times_and_rounds_at_others() -> None:
    made = [m for m in expand([task("poisson", **{"target-throughput": 10})], plan()) if "-r" in m.name]
    by_name = {each.name: dues(each, 0) for each in made}
    assert by_name["q-gp2-r1"] == by_name["q-gp3-r1"] != by_name["q-gp2-r2"]
    assert by_name["q-gp2-r1"][:1] == [0.0]
    assert dues(made[0], 0) != dues(made[0], 1)


def test_documents_are_added_at_the_same_times_on_all_arms_too() -> None:
    write = task("poisson", **{"target-throughput": 10})
    write.name, write.operation = "w", rally_track.Operation("w", "bulk", params={})
    made = expand([rally_track.Parallel([task(), write])], plan())
    writes = [each for element in made for each in element if each.name.startswith("w-beside")]
    by_name = {each.name: dues(each, 0) for each in writes}
    assert by_name["w-beside-q-gp2-r1"] == by_name["w-beside-q-gp3-r1"] != by_name["w-beside-q-gp2-r2"]
    assert by_name["w-beside-q-gp2-r1"][0] == 0.0  # they begin with the search
    assert dues(writes[0], 0) != dues(writes[0], 1)


def test_clients_of_all_processes_count_from_the_start_of_the_first(tmp_path: Path) -> None:
    assert [open_loop.first_start("q", now) for now in (5.25, 5.5, 5.0)] == [5.25] * 3
    assert open_loop.first_start("r", 7.0) == 7.0
    # what else lay in the session's run directory would stay there, and the session fail at its end
    assert {path.name for path in tmp_path.iterdir()} <= set(FILES)


def test_warm_up_keeps_to_no_schedule() -> None:
    warm = expand([task(open_loop.ARRIVALS)], plan())[0]
    assert (warm.schedule, warm.warmup_iterations, warm.iterations) == (None, 6, 1)
    assert warm.operation.params["cycle"]


@pytest.mark.parametrize(
    ("made", "rate"),
    [
        (task("poisson", **{"target-throughput": 4}), 4),
        (task(**{"target-interval": 4}), 0.25),
        (task(open_loop.ARRIVALS, speed=2), None),
        (task(), None),
    ],
    ids=["poisson", "interval", "log", "closed"],
)
def test_warm_up_beside_writes_takes_as_long_as_what_follows(
    made: rally_track.Task, rate: float | None
) -> None:
    write = rally_track.Task("a", rally_track.Operation("a", "bulk", params={}))
    elements = expand([rally_track.Parallel([made, write])], plan())
    warm = next(each for element in elements for each in element if each.name == "q-gp2-warmup")
    assert getattr(warm.target_throughput, "value", None) == rate
    assert warm.schedule == (open_loop.ARRIVALS if made.schedule == open_loop.ARRIVALS else None)


def test_cold_a_target_throughput_is_a_pace_and_no_open_loop() -> None:
    made = measured(task(**{"target-throughput": 5}), **{"cache.mode": "cold"})
    assert (made.schedule, made.target_throughput.value, made.warmup_iterations) == (None, 5, 0)


@pytest.mark.parametrize(
    ("overrides", "speed", "says"),
    [
        ({"cache.mode": "cold"}, 1, "evictions would delay what is due meanwhile; set cache to warm"),
        ({"design.nodes": "one"}, 1, 'requests in pairs have no arrivals; set design.nodes = "per-arm"'),
        ({}, 0, "task q: speed: 0 is no number above 0"),
        ({}, "fast", "task q: speed: 'fast' is no number above 0"),
    ],
)
def test_arrivals_that_cannot_be_kept_are_one_line(
    overrides: dict[str, object], speed: object, says: str
) -> None:
    with pytest.raises(PlanError, match=says):
        expand([task(open_loop.ARRIVALS, speed=speed)], plan(**overrides))
