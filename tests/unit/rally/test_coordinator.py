"""Load hosts and their coordinator, over a socket of this machine: what is asked, refused and recorded."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from small_plan import small_plan

import esrally_ebs
from esrally_ebs.errors import EbsError, PlanError, SetupError
from esrally_ebs.model import Block, Kind, Phase, Volume, VolumeSpec, Work
from esrally_ebs.node.eviction import Drop
from esrally_ebs.rally import activation, coordinator_client, coordinator_service, runners, sample_recorder
from esrally_ebs.rally.coordinator_client import Connection, Coordinator, CoordinatorClient
from esrally_ebs.rally.coordinator_service import CoordinatorService, address_towards, require_able_elsewhere
from esrally_ebs.rally.processor import Pack
from esrally_ebs.store import SessionFolder
from esrally_ebs.store.context import Arm, Context, Member

HERE = "127.0.0.1"
REMEDY = "drop --load-driver-hosts"
SEARCH = Block(arm="gp2", cluster="default", work=Work.SEARCH, task="t", round=1, phase=Phase.MEASURE)


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    """A session with an arm that is a directory."""
    spec = VolumeSpec(name="gp2", type="directory", size_bytes=1 << 30)
    volume = Volume(spec=spec, kind=Kind.DIRECTORY, mount=tmp_path, device=None)
    folder = SessionFolder.create(tmp_path, "s", kind="race", plan=small_plan())
    arms = (Arm(name="gp2", cluster="default", members=(Member(volume=volume),)),)
    made = Context(session="s", folder=folder.path, run=tmp_path, plan=small_plan(), arms=arms)
    made.save()
    monkeypatch.setattr(activation, "_installed", {"path": made.path})
    return made


@pytest.fixture
def coordinator(context: Context) -> Coordinator:
    service = CoordinatorService(HERE)
    service.start()
    return service.coordinator


@pytest.fixture
def client(coordinator: Coordinator) -> Iterator[CoordinatorClient]:
    made = CoordinatorClient(coordinator)
    yield made
    made.close()


def events(context: Context, kind: str) -> list[dict[str, object]]:
    return [dict(e.fields) for e in SessionFolder(context.folder).events() if e.kind == kind]


def test_the_session_is_the_coordinators(client: CoordinatorClient, context: Context) -> None:
    assert client.context == context


def test_callers_who_say_nothing_keep_nobody_out(coordinator: Coordinator, context: Context) -> None:
    most = coordinator_service._MAX_SILENT
    with ExitStack() as stack:
        address = (coordinator.host, coordinator.port)
        silent = [stack.enter_context(socket.create_connection(address)) for _ in range(most + 3)]
        made = CoordinatorClient(coordinator)
        assert made.context == context
        made.close()
        for first in silent[:3]:
            first.settimeout(5.0)
            assert first.recv(1) == b""
        last = silent[-1]
        last.settimeout(0.2)
        with pytest.raises(TimeoutError):
            last.recv(1)


@pytest.fixture
def drop(monkeypatch: pytest.MonkeyPatch) -> Drop:
    """What making cold is said to have come to."""
    drop = Drop(before=1.0, after=0.0, attempts=1, seconds=0.01, refill_s=0.25)
    monkeypatch.setattr(runners.Search, "make_cold", lambda self: drop)
    return drop


def test_what_was_done_to_make_an_arm_cold_is_recorded_there(
    client: CoordinatorClient, context: Context, drop: Drop
) -> None:
    made, connection = client.make_cold(SEARCH)
    connection.close()
    assert made == drop
    (event,) = events(context, "drop")
    assert (event["task"], event["after"], event["refill_s"]) == ("t", 0.0, 0.25)


def test_an_observed_request_keeps_what_the_way_added(
    client: CoordinatorClient, context: Context, drop: Drop, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = coordinator_client.Connection.ask
    monkeypatch.setattr(
        coordinator_client.Connection, "ask", lambda self, request: (ask(self, request)[0], 0.1)
    )

    async def request(connection: Connection | None) -> None:
        async with client.observed(SEARCH, connection):
            pass

    asyncio.run(request(client.make_cold(SEARCH)[1]))
    asyncio.run(request(None))  # nothing was made cold for it
    cold, other = events(context, "io")
    assert cold["load_host"] == other["load_host"] == HERE
    # before the first one question, before the other the end of that and one
    assert (cold["way_s"], other["way_s"]) == (pytest.approx(0.1), pytest.approx(0.2))


def test_a_cold_request_is_two_questions(
    client: CoordinatorClient, context: Context, drop: Drop, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, object]] = []
    ask = coordinator_client.Connection.ask

    def counted(self: object, request: dict[str, object]) -> object:
        asked.append(request)
        return ask(self, request)  # type: ignore[arg-type]

    async def request() -> None:
        _, connection = client.make_cold(SEARCH)
        async with client.observed(SEARCH, connection):
            pass

    asyncio.run(request())
    monkeypatch.setattr(coordinator_client.Connection, "ask", counted)
    asyncio.run(request())
    assert len(asked) == 2
    assert len(events(context, "io")) == 2


def test_a_request_that_was_never_made_leaves_no_record(
    client: CoordinatorClient, context: Context, drop: Drop
) -> None:
    for _ in range(2):
        _, connection = client.make_cold(SEARCH)
        connection.close()  # its runner failed
    assert len(events(context, "drop")) == 2
    assert not events(context, "io")


def ends(context: Context) -> str:
    """What Rally's driver is told once a load host is gone."""
    driven = sample_recorder.DrivenSession(lambda: context)
    for _ in range(2000):
        try:
            driven.require_load()
        except SetupError as error:
            return str(error)
        time.sleep(0.01)
    return ""


def test_a_load_host_that_is_gone_ends_the_race_once(
    coordinator: Coordinator, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()
    monkeypatch.setattr(coordinator_client, "_end_with", lambda connection: ended.wait(10))
    attending = []
    connect = coordinator_client.Connection

    def connected(to: Coordinator) -> object:
        attending.append(connect(to))
        return attending[-1]

    monkeypatch.setattr(coordinator_client, "Connection", connected)
    for _ in range(2):
        client = CoordinatorClient(coordinator)
        client.attend()
        client.attend()
    assert len(attending) == 2
    sample_recorder.DrivenSession(lambda: context).require_load()  # nobody is gone yet
    for connection in attending:
        connection.close()
    assert ends(context).startswith(f"load host {HERE}: its worker has died or its network is gone;")
    (fault,) = events(context, "fault")
    assert (fault["text"], fault["exit_code"]) == (ends(context), SetupError.exit_code)
    ended.set()


def test_load_hosts_may_go_when_the_race_is_over(context: Context) -> None:
    service = CoordinatorService(HERE)
    service.start()
    host, port, token = service.coordinator
    with socket.create_connection((host, port), timeout=5) as connection:
        hello = {"token": token, "version": esrally_ebs.__version__}
        attend = {"operation": "attend", "arguments": {}}
        connection.sendall("".join(f"{json.dumps(line)}\n" for line in (hello, attend)).encode())
        with connection.makefile("rb") as answers:
            assert answers.readline()
            assert answers.readline()
        service.end()
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""  # it has seen us go
    assert not events(context, "fault")


@pytest.mark.parametrize("failure", [ValueError("it did"), TimeoutError("it did")])
def test_a_request_that_fails_leaves_no_record_and_the_next_one_is_observed(
    client: CoordinatorClient, context: Context, failure: Exception
) -> None:
    async def request(fails: bool) -> None:
        async with client.observed(SEARCH):
            if fails:
                raise failure

    with pytest.raises(type(failure), match=r"^it did$"):  # not the coordinator's fault
        asyncio.run(request(True))
    asyncio.run(request(False))
    assert len(events(context, "io")) == 1


def test_a_request_that_cannot_be_recorded_is_one_line(client: CoordinatorClient, context: Context) -> None:
    async def request() -> None:
        async with client.observed(SEARCH):
            (context.folder / "events.jsonl").unlink(missing_ok=True)
            (context.folder / "events.jsonl").mkdir()

    with pytest.raises(SetupError, match=r"events.jsonl"):
        asyncio.run(request())


def test_errors_arrive_as_what_they_were_and_faults_are_recorded(
    client: CoordinatorClient, context: Context
) -> None:
    with pytest.raises(SetupError, match="arm gp2: has no node"):
        client.make_cold(SEARCH)
    fault = client.fault("gp2", PlanError("a plan's"))
    assert isinstance(fault, PlanError)
    assert str(fault) == "a plan's"
    assert client.fault("gp2", OSError("not ours")) is None
    assert [(e["text"], e["exit_code"]) for e in events(context, "fault")] == [
        ("a plan's", PlanError.exit_code)
    ]


def test_clocks_are_compared_and_their_difference_is_recorded(
    client: CoordinatorClient, context: Context
) -> None:
    epoch_s = asyncio.run(client.stamp())["epoch_s"]
    assert asyncio.run(client.stamp())["epoch_s"] == epoch_s  # not again at once
    (event,) = events(context, "clock")
    uncertainty_s, offset_s = event["uncertainty_s"], event["offset_s"]
    assert isinstance(uncertainty_s, float)
    assert isinstance(offset_s, float)
    assert 0 < uncertainty_s < 0.1
    assert abs(offset_s) <= uncertainty_s  # it is one clock
    assert epoch_s == pytest.approx(time.time() - time.perf_counter(), abs=uncertainty_s + 0.001)


def test_clocks_are_compared_again_once_and_no_client_waits(
    client: CoordinatorClient, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(client.stamp())
    monkeypatch.setattr(coordinator_client, "_CLOCK_S", 0.2)
    time.sleep(0.2)
    others = threading.Event()
    ask = coordinator_client.Connection.ask

    def slow(self: Connection, request: dict[str, Any]) -> tuple[dict[str, Any], float]:
        assert others.wait(10)
        return ask(self, request)

    monkeypatch.setattr(coordinator_client.Connection, "ask", slow)

    async def two() -> None:
        first = asyncio.create_task(client.stamp())
        await asyncio.sleep(0.01)
        await client.stamp()
        others.set()
        await first

    asyncio.run(two())
    assert len(events(context, "clock")) == 2


def test_rounds_end_elsewhere_when_they_end_here(client: CoordinatorClient, context: Context) -> None:
    assert not client.is_over(2)
    (context.notes / "enough-rounds").write_text("1")
    assert client.is_over(2)
    assert not client.is_over(1)


@pytest.mark.parametrize(
    ("token", "version", "said"),
    [
        ("", esrally_ebs.__version__, b""),
        ("another", esrally_ebs.__version__, b""),
        (None, "0.0.9", b"has esrally_ebs 0.0.9"),
    ],
)
def test_who_has_another_token_or_version_is_answered_nothing_else(
    coordinator: Coordinator, token: str | None, version: str, said: bytes
) -> None:
    hello = {"token": coordinator.token if token is None else token, "version": version}
    with socket.create_connection((coordinator.host, coordinator.port)) as connection:
        ask = {"operation": "context", "arguments": {}}
        connection.sendall("".join(f"{json.dumps(line)}\n" for line in (hello, ask)).encode())
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert said in answer
    assert bool(said) == bool(answer)
    assert b"session" not in answer


@pytest.mark.parametrize(
    "hello", [b"[]\n", b"7\n", b'{"token": "\xc3\xa9"}\n', b"\xff\n", b"{" * 300_000 + b"\n"]
)
def test_what_is_no_greeting_is_hung_up_on(coordinator: Coordinator, hello: bytes) -> None:
    with socket.create_connection((coordinator.host, coordinator.port), timeout=5) as connection:
        connection.sendall(hello)
        with suppress(ConnectionResetError):  # it has not read all of it
            assert connection.recv(1) == b""


@pytest.mark.parametrize("operation", ["__init__", "take_down", "evict"])
def test_nothing_else_may_be_asked(client: CoordinatorClient, operation: str) -> None:
    with pytest.raises(PlanError, match="no such operation"):
        client._ask(operation)
    with pytest.raises(EbsError, match="round_"):
        client._ask("is_over", round_="many")


def test_who_was_hung_up_on_connects_again(client: CoordinatorClient) -> None:
    assert client._ask("now")
    client._idle[0]._socket.shutdown(socket.SHUT_RDWR)
    with pytest.raises(SetupError, match="not reached"):
        client._ask("now")
    assert client._ask("now")
    assert len(client._idle) == 1


def test_a_coordinator_that_is_gone_is_named_in_one_line() -> None:
    with socket.create_server((HERE, 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(SetupError, match=rf"coordinator {HERE}:{port}: not reached.*race again"):
        _ = CoordinatorClient(Coordinator(HERE, port, "t")).context


def test_who_has_the_address_is_the_coordinator() -> None:
    assert Coordinator(HERE, 1, "t").is_here
    assert not Coordinator("192.0.2.1", 1, "t").is_here


def test_load_hosts_without_a_daemon_or_on_this_machine_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((HERE, 0)) as daemon:
        monkeypatch.setattr(coordinator_service, "_DAEMONS_PORT", daemon.getsockname()[1])
        with pytest.raises(SetupError, match=f"{HERE} is this machine, which makes the load without"):
            address_towards([HERE])
    with pytest.raises(SetupError, match=r"load driver host 127.0.0.1: Rally's daemon does not answer"):
        address_towards([HERE])
    with pytest.raises(SetupError, match=r"load driver host load\.\.lan: Rally's daemon does not answer"):
        address_towards(["load..lan"])


@pytest.mark.parametrize(
    "tables",
    [
        {"cache": {"mode": "steady"}, "race": {}},
        {"trace": "perturb", "race": {}, "arm": [{"name": "gp3", "type": "gp3"}], "design": {"rounds": 8}},
    ],
)
def test_what_only_the_machine_with_the_volumes_can_is_refused(tables: dict[str, object]) -> None:
    with pytest.raises(PlanError, match="where the volumes are; drop --load-driver-hosts"):
        require_able_elsewhere(small_plan(**tables), [], REMEDY)


def test_tasks_that_need_one_clock_are_refused() -> None:
    def schedule(**facts: object) -> list[list[SimpleNamespace]]:
        return [[SimpleNamespace(operation=SimpleNamespace(type="search"), schedule=None, **facts)]]

    require_able_elsewhere(small_plan(race={}), schedule(), REMEDY)
    paced, shards = schedule(), schedule()
    paced[0][0].schedule = "ebs-open-loop"
    shards[0][0].operation.type = coordinator_service.RECOVERY
    for unable in (paced, shards):
        with pytest.raises(PlanError, match="--load-driver-hosts"):
            require_able_elsewhere(small_plan(race={}), unable, REMEDY)


def sample(**meta: object) -> SimpleNamespace:
    facts = {name: 0.01 for name in ("service_time", "latency", "processing_time", "total_ops")}
    names = {"operation_name": "o", "client_id": 0, "sample_type": None, "task": None}
    return SimpleNamespace(**facts, **names, request_start=100.0, request_meta_data=meta)


@pytest.mark.parametrize(
    ("hits", "kept"),
    [(3, 3), (3.0, 3), ({"value": 3, "relation": "eq"}, 3), ("3", None), (float("nan"), None), (None, None)],
)
def test_hits_of_a_tracks_own_runner_are_kept_where_they_are_a_number(
    hits: object, kept: int | None, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_recorder, "block_of", lambda task: SEARCH)
    recorder = sample_recorder.SampleRecorder(context)
    recorder.add([sample(hits=hits)])
    recorder.close()
    (rows,) = (context.folder / "samples").glob("*.parquet")
    assert pq.read_table(rows)["hits"].to_pylist() == [kept]


def test_a_sample_of_a_load_host_is_in_the_coordinators_time(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_recorder, "block_of", lambda task: SEARCH)
    recorder = sample_recorder.SampleRecorder(context)
    assert recorder._row(sample(epoch_s=1_700_000_000.0)).started_s == 1_700_000_100.0
    ours = time.time() - time.perf_counter() + 100.0
    assert recorder._row(sample()).started_s == pytest.approx(ours, abs=0.1)
    recorder.close()


@pytest.mark.parametrize(
    ("actors", "has_daemon", "said"),
    [("", True, "set ESRALLY_EBS_ACTORS=sockets"), ("sockets", False, "Rally's daemon does not run here")],
)
def test_load_hosts_need_sockets_and_a_daemon(
    monkeypatch: pytest.MonkeyPatch, actors: str, has_daemon: bool, said: str
) -> None:
    monkeypatch.setenv("ESRALLY_EBS_ACTORS", actors)
    values = {"load_driver_hosts": ["10.0.0.2"], "remote.benchmarking.supported": has_daemon}
    pack = Pack()
    pack.cfg = SimpleNamespace(opts=lambda section, key, **_: values[key])
    with pytest.raises(SetupError, match=said):
        pack._address(small_plan(race={}), [])
    values["load_driver_hosts"] = ["localhost"]
    assert pack._address(small_plan(race={}), []) == ""
