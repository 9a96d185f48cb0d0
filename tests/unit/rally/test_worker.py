"""How Rally's worker learns of the end of its task, and when it hands its samples over."""

import asyncio
import gc
import json
import threading
import time
from concurrent.futures import Future
from functools import partial
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from esrally import metrics
from esrally.driver import driver, runner
from hypothesis import given
from hypothesis import strategies as st

from esrally_ebs.machine.processes import SYSTEM_CLOCK
from esrally_ebs.model import Block, Request, Work
from esrally_ebs.rally import patches
from esrally_ebs.rally.patches import worker as waits
from esrally_ebs.rally.request_source import BLOCK
from esrally_ebs.rally.runners import OnArm
from esrally_ebs.rally.schedule import SEARCH_BESIDE
from esrally_ebs.store.context import FILES
from esrally_ebs.store.parts import FLUSH_EVERY_S


@pytest.fixture
def worker(rally: None) -> Any:  # noqa: ANN401 - Rally is untyped
    """A worker of Rally with our waits; what it sends is in ``sent``."""
    patches.install(patches.WAITS)
    made = object.__new__(driver.Worker)
    made.sent = []
    made.send = lambda receiver, message: made.sent.append(len(message.samples))
    made.driver_actor, made.worker_id, made.executor_future = None, 0, Future()
    return made


def with_a_task(worker: Any, latency_s: float = 0.1) -> None:  # noqa: ANN401
    """A task that began 0.1 s ago and has one sample that was not handed over."""
    worker.sampler = driver.Sampler(start_timestamp=time.perf_counter() - 0.1)
    add_sample(worker, latency_s)


def add_sample(worker: Any, latency_s: float = 0.1) -> None:  # noqa: ANN401
    normal = metrics.SampleType.Normal
    worker.sampler.add("task", 0, normal, {}, 1.0, 1.0, latency_s, 0.1, 0.1, None, 1, "ops", 0.1, 0.5)


def test_a_look_sees_the_end_of_the_task_at_once(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401
    monkeypatch.setattr(waits, "_LOOK_S", 30.0)
    with_a_task(worker)
    threading.Timer(0.1, worker.executor_future.set_result, [()]).start()
    began = time.perf_counter()

    worker.send_samples()

    assert time.perf_counter() - began < 10
    assert worker.executor_future.done()


def test_a_look_at_a_task_that_goes_on_hands_over_and_another_follows(
    worker: Any,  # noqa: ANN401
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waits, "_LOOK_S", 0.05)
    for _ in range(2):
        with_a_task(worker)
        worker.send_samples()

    assert worker.sent == [1, 1]
    assert not worker.executor_future.done()
    assert worker.wakeup_interval < 0.1


def test_a_look_leaves_time_to_write_what_it_hands_over_before_it_is_5_s_old() -> None:
    assert waits._LOOK_S + waits._PATIENCE_S + FLUSH_EVERY_S <= 4


def test_the_next_request_waits_until_samples_are_where_they_belong(
    worker: Any,  # noqa: ANN401
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waits, "_DIGESTION_S", 0.2)
    with_a_task(worker)
    add_sample(worker)
    worker.executor_future.set_result(())
    sent, send = list[float](), worker.send
    worker.send = lambda *message: (sent.append(time.monotonic()), send(*message))
    handing_over = threading.Thread(target=worker.send_samples)
    handing_over.start()
    SYSTEM_CLOCK.wait_until(lambda: worker.sent, limit_s=20, poll_s=0.001)

    with waits.turns.request():
        begins = time.monotonic()

    handing_over.join(20)
    assert worker.sent == [2]
    assert begins - sent[0] >= 2 * 0.2


def test_requests_that_are_due_at_a_time_do_not_wait_for_samples_to_be_written(
    worker: Any,  # noqa: ANN401
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept = list[float]()
    monkeypatch.setattr(waits, "time", SimpleNamespace(sleep=slept.append))
    monkeypatch.setattr(waits, "_DIGESTION_S", 1.0)
    worker.executor_future.set_result(())
    for latency_s in (0.1, 0.3):  # with its service time of 0.1 s, the second waited 0.2 s for its turn
        with_a_task(worker, latency_s)
        worker.send_samples()

    assert worker.sent == [1, 1]
    assert slept == [1.0, 0.0]


def test_samples_wait_for_the_gap_after_a_request(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401
    monkeypatch.setattr(waits, "_LOOK_S", 0.01)
    with_a_task(worker)
    handing_over = threading.Thread(target=worker.send_samples)

    with waits.turns.request():
        handing_over.start()
        handing_over.join(0.2)
        sent_meanwhile = list(worker.sent)
    handing_over.join(5)

    assert sent_meanwhile == []
    assert worker.sent == [1]


def test_samples_go_even_if_there_is_no_gap(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401
    monkeypatch.setattr(waits, "_LOOK_S", 0.01)
    monkeypatch.setattr(waits, "_PATIENCE_S", 0.05)
    with_a_task(worker)

    with waits.turns.request():
        worker.send_samples()

    assert worker.sent == [1]


def test_requests_of_several_clients_run_beside_each_other_and_leave_a_gap_at_their_end() -> None:
    turns, most = waits._Turns(), []

    async def request(seconds: float) -> None:
        with turns.request():
            most.append(turns._requests)
            await asyncio.sleep(seconds)

    async def requests() -> None:
        await asyncio.gather(request(0.02), request(0.01), request(0.03))

    asyncio.run(asyncio.wait_for(requests(), 5))

    assert max(most) == 3
    with turns.hand_over():
        assert turns._lock.locked()
    assert not turns._lock.locked()


def test_a_request_that_fails_leaves_the_gap_too() -> None:
    turns = waits._Turns()

    with pytest.raises(ConnectionError), turns.request():
        raise ConnectionError

    assert not turns._lock.locked()


def test_what_is_there_at_the_first_task_is_not_collected_again(worker: Any) -> None:  # noqa: ANN401
    frozen: list[int] = []
    drive = partial(waits.drive, lambda self: frozen.append(gc.get_freeze_count()))
    waits._freeze_imports.cache_clear()
    gc.unfreeze()
    try:
        drive(worker)
        kept = [[] for _ in range(1000)]  # of the first task
        drive(worker)
    finally:
        gc.freeze()  # as the suite had it

    assert frozen[0] > 0
    assert frozen[1] <= frozen[0]
    assert len(kept) == 1000


def test_the_next_tasks_do_not_go_through_what_is_frozen(worker: Any) -> None:  # noqa: ANN401
    drive = partial(waits.drive, lambda self: None)
    drive(worker)
    took_s = []
    for _ in range(5):
        began_s = time.thread_time()
        drive(worker)
        took_s.append(time.thread_time() - began_s)
    count_s = time.thread_time()
    assert gc.get_freeze_count()
    count_s = time.thread_time() - count_s

    assert min(took_s) < count_s / 10


def test_an_operation_on_an_arm_keeps_samples_back_until_it_is_done() -> None:
    locked: list[bool] = []

    async def search(es: Any, params: Any) -> tuple[int, str]:  # noqa: ANN401
        locked.append(waits.turns._lock.locked())
        return 1, "ops"

    block = Block(arm="a", cluster="a", work=Work.INDEXING, task="bulk", round=0)
    asyncio.run(OnArm(search)({"a": object()}, {BLOCK: Request(block=block, number=1)}))

    assert locked == [True]
    assert not waits.turns._lock.locked()


DETAILS = ["hits.total", "hits.total.value", "hits.total.relation", "timed_out", "took", "_shards.total"]


def ends_beside(search: str, clients: int, notes: Path | None) -> list[Any]:
    """What Rally's executors of two processes ask whether their task is over."""
    params = {SEARCH_BESIDE: (search, clients)} if search else {}
    task = SimpleNamespace(operation=SimpleNamespace(params=params))
    given: list[Any] = []
    for _ in range(2):
        waits.executor(
            lambda *arguments: given.append(arguments[7]),
            SimpleNamespace(notes=notes),  # type: ignore[arg-type]
            None, 0, task, None, None, None, None, threading.Event(), "continue",
        )  # fmt: skip
    return given


def test_writes_beside_a_search_go_on_until_the_last_of_its_clients_is_done(tmp_path: Path) -> None:
    here, there = ends_beside("logs/q-gp3-r2", 3, tmp_path)
    for end in (here, there):
        end.set()
        assert (here.is_set(), there.is_set()) == (False, False)
    here.set()
    assert (here.is_set(), there.is_set()) == (True, True)
    assert not ends_beside("logs/q-gp3-r3", 3, tmp_path)[0].is_set()
    # what else lay in the session's run directory would stay there, and the session fail at its end
    assert {path.name for path in tmp_path.iterdir()} <= set(FILES)


def test_rally_ends_writes_beside_a_search_all_the_same(tmp_path: Path) -> None:
    here, there = ends_beside("q-gp3-r2", 3, tmp_path)
    here._event.set()
    assert (here.is_set(), there.is_set()) == (True, False)


@pytest.mark.parametrize(("search", "has_notes"), [("", True), ("q-gp3-r2", False)])
def test_what_has_nothing_beside_it_and_load_hosts_have_the_event_of_rally(
    search: str, has_notes: bool, tmp_path: Path
) -> None:
    given = ends_beside(search, 2, tmp_path if has_notes else None)
    assert all(isinstance(end, threading.Event) for end in given)


def answer(*, took: int, hits: object, padding: str = "", documents: int = 10) -> bytes:
    """What Elasticsearch answers to a search."""
    all_hits = {"total": hits, "max_score": 1.0, "hits": [{"_source": {"n": n}} for n in range(documents)]}
    head = {"took": took, "timed_out": False, "_scroll_id": padding, "_shards": {"total": 1}}
    return json.dumps({**head, "hits": all_hits}).encode()


@given(
    took=st.integers(0, 10**9),
    hits=st.one_of(
        st.integers(0, 10**9),  # as before version 7
        st.fixed_dictionaries({"value": st.integers(0, 10**9), "relation": st.sampled_from(["eq", "gte"])}),
    ),
    padding=st.integers(0, 600).map("x".__mul__),
    cut=st.one_of(st.none(), st.integers(0, 700)),
)
def test_reading_the_head_of_an_answer_finds_what_reading_all_of_it_finds(
    took: int, hits: object, padding: str, cut: int | None
) -> None:
    text = answer(took=took, hits=hits, padding=padding)[:cut]
    plain = patches.unpatched(runner, "parse")
    for lists in (None, ["hits.hits"]):
        assert waits.parse(plain, BytesIO(text), DETAILS, lists) == plain(BytesIO(text), DETAILS, lists)


def test_no_more_than_the_head_of_an_answer_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    given_bytes: list[int] = []
    whole = runner.ijson.parse
    monkeypatch.setattr(
        runner.ijson, "parse", lambda text: given_bytes.append(len(text.getvalue())) or whole(text)
    )
    text = BytesIO(answer(took=3, hits={"value": 7, "relation": "eq"}, documents=1000))
    head = waits.parse(patches.unpatched(runner, "parse"), text, DETAILS)

    assert (head["took"], head["hits.total.value"]) == (3, 7)
    assert len(given_bytes) == 1
    assert given_bytes[0] <= 512
