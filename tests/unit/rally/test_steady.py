"""A warm-up that lasts until misses are steady: Rally ends it, the session has after how many."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from elasticsearch import BadRequestError
from small_plan import small_plan

from esrally_ebs.analysis.steady import MAX_WINDOWS
from esrally_ebs.errors import SetupError
from esrally_ebs.model import Block, Phase, Request, Work
from esrally_ebs.rally import runners
from esrally_ebs.store import SessionFolder

PLAN = small_plan(cache={"mode": "steady"}, race={"warmup_iterations": 10})
WARMUP = Block(arm="gp2", cluster="default", work=Work.SEARCH, task="q", round=0, phase=Phase.WARMUP)
ROUND = Block(arm="gp2", cluster="default", work=Work.SEARCH, task="q", round=1)


class Node:
    """An inner runner whose n-th request makes the volume read what ``reads`` says."""

    completed = None
    percent_completed = None

    def __init__(self, reads: Any) -> None:  # noqa: ANN401
        self.reads, self.requests, self.read_bytes = reads, 0, 0.0

    async def __call__(self, es: Any, params: Any) -> tuple[int, str]:  # noqa: ANN401
        self.read_bytes += self.reads(self.requests)
        self.requests += 1
        return 1, "ops"


def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: Node) -> SessionFolder:
    """A session of which this process makes the requests."""
    folder = SessionFolder.create(tmp_path, "s", kind="race", plan=PLAN, started_at=1.0)
    arm = SimpleNamespace(name="gp2", volumes=(None,), nodes=(), named=str, suffix="", preference=None)
    own = {"arms": (arm,), "arm": lambda name: arm, "hosts_at": ""}
    context = SimpleNamespace(plan=PLAN, folder=folder.path, **own)
    monkeypatch.setattr(runners.activation, "current", lambda: context)
    monkeypatch.setattr(runners, "device_counters", lambda volume: {"device.read_bytes": node.read_bytes})
    monkeypatch.setattr(runners, "observed", lambda *_: runners.nullcontext())
    return folder


def replay(runner: runners.OnArm, block: Block, most: int) -> int:
    """Requests until Rally would end the block."""

    async def all_of_them() -> int:
        for number in range(most):
            request = Request(block=block, number=number + 2)  # the first opens the connection
            await runner({"default": object()}, {runners.BLOCK: request})
            if runner.completed:
                return number + 1
        return most

    return asyncio.run(all_of_them())


def test_it_ends_once_windows_read_alike_and_says_after_how_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(lambda request: 1e6 if request < 25 else 1e5)  # two windows and a half fill the cache
    folder, runner = session(tmp_path, monkeypatch, node), runners.OnArm(node)
    assert replay(runner, WARMUP, 200) == 60
    (event,) = folder.events()
    assert (event.kind, event.arm, event.fields["requests"]) == ("steady", "gp2", 60)
    assert event.fields["read_bytes"] == pytest.approx([1e7, 1e7, 5.5e6, 1e6, 1e6, 1e6])
    assert replay(runner, ROUND, 30) == 30  # what is measured has its number of requests


def test_what_never_gets_steady_ends_all_the_same_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(lambda request: 1e6 * (1 + (request // 10 % 2 if request < 10 * MAX_WINDOWS else 0)))
    folder = session(tmp_path, monkeypatch, node)
    clients = 2  # each of whom Rally would have ask so many
    assert replay(runners.OnArm(node), WARMUP, clients * 10 * MAX_WINDOWS) == 10 * MAX_WINDOWS
    (event,) = folder.events()
    assert (event.kind, event.fields["text"]) == (
        "not-steady",
        "q: misses were not steady after 200 requests",
    )


def test_requests_that_fail_are_of_the_windows_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rally ends a client's warm-up after a number of requests, whatever became of them."""

    def read_or_fail(request: int) -> float:
        if request % 50 == 3:
            node.requests += 1
            raise BadRequestError("no such field", SimpleNamespace(status=400), {})  # type: ignore[arg-type]
        return 1e6 * (1 + request // 10 % 2)

    node = Node(read_or_fail)
    folder = session(tmp_path, monkeypatch, node)
    monkeypatch.setattr(runners, "fault_of", lambda *_: None)
    assert replay(runners.OnArm(node), WARMUP, 10 * MAX_WINDOWS) == 10 * MAX_WINDOWS
    assert [event.kind for event in folder.events()] == ["not-steady"]


def test_a_cache_that_is_still_filling_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(lambda request: 1e6)
    folder = session(tmp_path, monkeypatch, node)
    monkeypatch.setattr(runners.Search, "_cached_bytes", lambda self: node.read_bytes)
    assert replay(runners.OnArm(node), WARMUP, 400) == 10 * MAX_WINDOWS
    (event,) = folder.events()
    assert event.kind == "not-steady"
    assert ", the page cache was still filling; raise warmup_iterations" in event.fields["text"]


def test_what_nodes_have_in_the_page_cache_is_added_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory.stat").write_text("file 4096\nanon 1\nfile_mapped 2\npgmajfault 3\n")
    session(tmp_path, monkeypatch, Node(lambda request: 0.0))
    search = runners.Search(runners.OnArm(None), object(), Request(WARMUP, 2), {})
    groups = (tmp_path, tmp_path, None)
    search.arm.nodes = tuple(SimpleNamespace(memory_cgroup=each) for each in groups)  # type: ignore[misc]
    assert search._cached_bytes() == 2 * 4096


def test_an_arm_whose_reads_nobody_counts_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(lambda request: 0.0)
    session(tmp_path, monkeypatch, node)
    monkeypatch.setattr(runners, "device_counters", lambda volume: {})
    search = runners.Search(runners.OnArm(node), object(), Request(WARMUP, 2), {})
    with pytest.raises(SetupError, match="arm gp2: has no device whose reads say when misses are steady"):
        asyncio.run(search.request())
