"""Races whose arms are on two hosts: one with this machine's Docker engine, one with an engine of its own."""

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import data_hosts
import pytest
from data_hosts import DataHost, name_of
from quick_node import NODE_TABLE
from race_under_test import Race, docker, processes, race
from rally_command import Homes
from small_race import PLAN, TASKS, Raced, raced, telemetry

from esrally_ebs.model import State
from esrally_ebs.node import choose_image, engine
from esrally_ebs.plan import load_plan
from esrally_ebs.session import host_client
from esrally_ebs.store import SessionFolder

pytestmark = [
    pytest.mark.system,
    pytest.mark.long,
    pytest.mark.skipif(data_hosts.SSHD is None, reason="no SSH server is installed"),
]

GONE_S = 60.0


@dataclass(frozen=True)
class Coordinator:
    """Where races are started, and the hosts of the arms ``gp2`` and ``gp3``."""

    homes: Homes
    hosts: tuple[DataHost, ...]
    plan: str

    def until_clean(self) -> None:
        until = time.monotonic() + GONE_S
        while not all(host.is_clean() for host in self.hosts):
            assert time.monotonic() < until, [host.processes() for host in self.hosts]
            time.sleep(0.2)


@pytest.fixture(scope="module")
def coordinator(own: Homes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    with (
        pytest.MonkeyPatch.context() as patched,
        data_hosts.data_hosts(tmp_path_factory.mktemp("hosts"), engines=True) as (hosts, ssh),
    ):
        patched.setenv("ESRALLY_EBS_SSH", ssh)
        plan = PLAN.replace("20_000", "2_000") + NODE_TABLE
        for host, arm in zip(hosts, ("gp2", "gp3"), strict=True):
            plan = plan.replace(f'type = "{arm}"\n', f'type = "{arm}"\nhost = "{host.name}"\n')
            plan += host.table
        (own.rally / "data.toml").write_text(plan)
        yield Coordinator(own, hosts, plan)


@pytest.fixture(scope="module")
def done(coordinator: Coordinator) -> Raced:
    return raced(
        *(coordinator.homes, f"--include-tasks={TASKS[0]}"),
        **{"plan": "data.toml", "rounds": 2, "iterations": 3, "warmup_iterations": 2},
    )


def test_each_arm_is_raced_where_it_is(coordinator: Coordinator, done: Raced) -> None:
    assert done.session.state == "complete"
    assert Counter(row["arm"] for row in done.measured) == {"gp2": 6, "gp3": 6}
    assert max(row["resident_before"] for row in done.measured) <= 0.01
    assert {(arm.spec.name, arm.spec.host) for arm in done.session.arms} == {("gp2", "a"), ("gp3", "b")}
    assert "Each arm is on a host: gp2 on a, gp3 on b." in done.report("md")
    coordinator.until_clean()


def test_what_an_arm_did_is_what_its_host_counted(done: Raced) -> None:
    observed = [event for event in done.session.events if event.kind == "io"]
    assert Counter(event.arm for event in observed) == {"gp2": 6, "gp3": 6}
    for event in observed:
        grown = event.fields["end"]["emulator.reads"] - event.fields["begin"]["emulator.reads"]
        assert grown > 0, event
        assert event.fields["end"]["node.processor_s"] > event.fields["begin"]["node.processor_s"]
    assert {(row["arm"], row["job"]) for row in done.session.baseline.to_pylist()} == {
        (arm, job) for arm in ("gp2", "gp3") for job in ("short", "once")
    }
    rows = telemetry(done)
    for arm in ("gp2", "gp3"):
        assert rows[arm, "memory.cache_bytes"]
        times = [row["at_s"] for row in rows[arm, "emulator.credits" if arm == "gp2" else "device.in_flight"]]
        assert done.session.started_at <= times[0] <= times[-1] <= done.session.ended_at


def test_arms_have_the_same_index_and_what_the_ways_add_is_said(done: Raced) -> None:
    checks = {check.name: check for check in done.session.checks}
    assert checks["segments of gp2"].ok
    assert checks["segments of gp2"].value == checks["segments of gp3"].value
    assert "gp2 on a" in checks["ways"].text
    assert "gp3 on b" in checks["ways"].text
    clocks = [event.fields for event in done.session.events if event.kind == "clock"]
    assert {fields["host"] for fields in clocks} == {"a", "b"}
    assert all(abs(fields["offset_s"]) <= fields["uncertainty_s"] + 1e-4 for fields in clocks)


def test_clean_sees_what_the_second_engine_of_a_host_holds(
    coordinator: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = coordinator.hosts[1]
    held = host_client.session_on(host.name, "s")
    labels = {
        **{"esrally-ebs.run": host.run, "esrally-ebs.session": held, "esrally-ebs.arm": "gp3"},
        "com.docker.compose.project": engine.project(held, "gp3"),
    }
    words = [word for name, value in labels.items() for word in ("--label", f"{name}={value}")]
    command = ["docker", "-H", host.docker]
    named = ["--name", f"{engine.project(held, 'gp3')}-node-1", *words]
    engine.run([*command, "create", "--network", "none", *named, choose_image(os.environ)], timeout_s=30)
    plan = tmp_path / "p.toml"
    plan.write_text(coordinator.plan)
    SessionFolder.create(tmp_path, "s", kind="race", plan=load_plan(plan)).finish(State.FAILED, reason="why")
    line = f"host b: still holds session s-b; run 'DOCKER_HOST={host.docker} esrally-ebs clean' there"
    assert list(host_client.leftovers(tmp_path)) == [(line, True)]
    monkeypatch.setenv("DOCKER_HOST", host.docker)
    monkeypatch.setenv("ESRALLY_EBS_RUN", str(host.run))
    assert engine.leftovers() == ["s-b"]
    engine.remove("s-b")
    assert list(host_client.leftovers(tmp_path)) == []


@pytest.fixture(scope="module")
def of_clusters(coordinator: Coordinator) -> str:
    """A plan whose arms are two nodes each, on one host each; its file."""
    plan = coordinator.plan.partition("[[baseline]]")[0] + NODE_TABLE.replace("[node]", "[node]\ncount = 2")
    (coordinator.homes.rally / "clusters.toml").write_text(plan + "".join(h.table for h in coordinator.hosts))
    return "clusters.toml"


def test_an_arm_may_be_a_cluster_on_its_host(coordinator: Coordinator, of_clusters: str) -> None:
    ran = raced(
        *(coordinator.homes, f"--include-tasks={TASKS[0]}"),
        **{"plan": of_clusters, "rounds": 2, "iterations": 2, "warmup_iterations": 1},
        **{"number_of_shards": 2, "number_of_replicas": 1},
    )
    checks = {check.name: check.ok for check in ran.session.checks}
    assert (checks["allocation"], checks["routing"], checks["hits"]) == (True, True, True)
    assert max(row["resident_before"] for row in ran.measured) <= 0.01
    nodes = {f"{arm}-{number}" for arm in ("gp2", "gp3") for number in (1, 2)}
    assert set(ran.session.telemetry["arm"].to_pylist()) == nodes
    observed = [event.fields["nodes"] for event in ran.session.events if event.kind == "io"]
    assert {name for each in observed for name in each} == nodes
    coordinator.until_clean()


@pytest.mark.usefixtures("done")
def test_a_node_of_a_clusters_host_that_dies_is_named(coordinator: Coordinator, of_clusters: str) -> None:
    text = (coordinator.homes.rally / of_clusters).read_text().replace("iterations = 3", "iterations = 9_999")
    with race(coordinator.homes.pack, text) as running:
        running.reach(has_made_cold)
        engine_ = coordinator.hosts[1].docker
        (second,) = coordinator.hosts[1].containers("gp3-2")
        engine.run(["docker", "-H", engine_, "kill", second], timeout_s=30)
        assert running.exit_code() != 0
        assert running.error.startswith("host b: arm gp3: its node gp3-2 has died: killed from outside")
        coordinator.until_clean()


def of_several(coordinator: Coordinator, design: str, *, hosts_: bool = False) -> Raced:
    """A race of several starts, or of several volumes of each type, which may be on both hosts."""
    plan = coordinator.plan.replace("rounds = 4", f"rounds = 6\n{design}").partition("[[baseline]]")[0]
    for host in ("a", "b") if hosts_ else ():
        plan = plan.replace(f'host = "{host}"\n', 'hosts = ["a", "b", "b"]\n')
    plan += NODE_TABLE + "".join(host.table for host in coordinator.hosts)
    (coordinator.homes.rally / "several.toml").write_text(plan)
    ran = raced(
        *(coordinator.homes, f"--include-tasks={TASKS[0]}"),
        **{"plan": "several.toml", "rounds": 6, "iterations": 1, "warmup_iterations": 1},
    )
    assert {check.name for check in ran.session.checks if check.forbids} == set()
    assert max(row["resident_before"] for row in ran.measured) <= 0.01
    coordinator.until_clean()
    return ran


def test_nodes_of_hosts_are_started_anew(coordinator: Coordinator) -> None:
    ran = of_several(coordinator, "starts = 3")
    assert Counter((row["arm"], row["round"]) for row in ran.measured) == {
        (arm, number): 1 for arm in ("gp2", "gp3") for number in range(1, 7)
    }
    stages = [event.fields["name"] for event in ran.session.events if event.kind == "stage"]
    assert [name for name in stages if name.startswith("start nodes,")] == [
        "start nodes, 2 of 3",
        "start nodes, 3 of 3",
    ]
    assert "under any JVM: nodes were started 3 times" in ran.report("txt")


def test_volumes_of_two_types_may_be_on_several_hosts(coordinator: Coordinator) -> None:
    ran = of_several(coordinator, "volumes = 3", hosts_=True)
    assert {(arm.spec.name, arm.spec.host) for arm in ran.session.arms} == {
        (f"{type_}-{number}", host) for type_ in ("gp2", "gp3") for number, host in enumerate("abb", start=1)
    }
    assert "means over 3 volumes of each type" in ran.report("txt")


@pytest.fixture(scope="module")
def apart(coordinator: Coordinator) -> str:
    """A plan whose arms are three nodes each, on two hosts; its file."""
    text = (coordinator.homes.rally / "data.toml").read_text().partition("[[baseline]]")[0]
    for host, hosts_ in (("a", '["a", "b", "b"]'), ("b", '["b", "a", "a"]')):
        text = text.replace(f'host = "{host}"\n', f"hosts = {hosts_}\n")
    text += NODE_TABLE.replace("[node]", "[node]\ncount = 3")
    coordinator.homes.pack.mkdir(exist_ok=True)
    (coordinator.homes.rally / "apart.toml").write_text(text + "".join(h.table for h in coordinator.hosts))
    return "apart.toml"


def test_nodes_of_an_arm_may_be_on_hosts_each(coordinator: Coordinator, apart: str) -> None:
    ran = raced(
        *(coordinator.homes, f"--include-tasks={TASKS[0]}"),
        **{"plan": apart, "rounds": 2, "iterations": 2, "warmup_iterations": 1},
        **{"number_of_shards": 3, "number_of_replicas": 1},
    )
    checks = {check.name: check for check in ran.session.checks}
    assert all(checks[name].ok for name in ("allocation", "routing", "hits"))
    assert checks["segments of gp2"].value == checks["segments of gp3"].value
    assert max(row["resident_before"] for row in ran.measured) <= 0.01
    nodes = {f"{arm}-{number}" for arm in ("gp2", "gp3") for number in (1, 2, 3)}
    assert set(ran.session.telemetry["arm"].to_pylist()) == nodes
    observed = [event.fields["nodes"] for event in ran.session.events if event.kind == "io"]
    read = {
        name: counters["end"]["emulator.reads"] - counters["begin"]["emulator.reads"]
        for each in observed
        for name, counters in each.items()
    }
    assert set(read) == nodes
    # each node has copies of two of three shards
    assert all(sum(read[f"{arm}-{number}"] > 0 for number in (1, 2, 3)) > 1 for arm in ("gp2", "gp3"))
    assert "Each node is on a host: gp2 on a + b + b, gp3 on b + a + a." in ran.report("md")
    coordinator.until_clean()


def has_made_cold(race: Race) -> bool:
    events = race.folder / "events.jsonl"
    return events.exists() and '"kind": "io"' in events.read_text()


def kill_helper(race: Race, host: DataHost) -> AbstractContextManager[None]:
    (helper,) = (pid for pid in host.processes() if name_of(pid) == "ebs-host")
    os.kill(helper, signal.SIGKILL)
    return nullcontext()


def cut_off(race: Race, host: DataHost) -> AbstractContextManager[None]:
    return host.cut_off()


def kill_command(race: Race, host: DataHost) -> AbstractContextManager[None]:
    race.main.kill()
    return nullcontext()


def kill_ssh(race: Race, host: DataHost) -> AbstractContextManager[None]:
    """The client of the helper's connection, on the coordinator."""
    words = [f"ssh://root@{host.address}", "esrally_ebs.session.host"]
    (ssh,) = (
        process
        for process, title in processes()
        if title.startswith("ssh ") and all(word in title for word in words)
    )
    ssh.kill()
    return nullcontext()


def kill_node(race: Race, host: DataHost) -> AbstractContextManager[None]:
    """Of the arm whose turn it is; on the other host, which has this machine's engine."""
    (second,) = docker("ps", "-q", "--filter", "label=esrally-ebs.arm=gp3-2").split()
    docker("kill", second)
    return nullcontext()


@contextmanager
def stop_helper(race: Race, host: DataHost) -> Iterator[None]:
    (helper,) = (pid for pid in host.processes() if name_of(pid) == "ebs-host")
    os.kill(helper, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(helper, signal.SIGCONT)


LOST = r"host b: SSH was lost with arm gp2, gp3 \(.*\)$"


@pytest.mark.parametrize(
    ("strike", "error", "held"),
    [
        (cut_off, LOST, "host b: no helper by ssh"),
        (kill_ssh, LOST, ""),
        (kill_helper, LOST, ""),
        (stop_helper, r"host b: its helper says nothing any more with arm gp2, gp3: process", "still holds"),
        (kill_node, r"host a: arm gp3: its node gp3-2 has died: killed from outside", ""),
    ],
    ids=("network", "ssh", "helper", "stopped helper", "node"),
)
def test_faults_of_three_nodes_on_two_hosts(
    coordinator: Coordinator,
    apart: str,
    strike: Callable[[Race, DataHost], AbstractContextManager[None]],
    error: str,
    held: str,
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    text = (coordinator.homes.rally / apart).read_text().replace("iterations = 3", "iterations = 9_999")
    host, params = coordinator.hosts[1], "number_of_shards:3,number_of_replicas:1"
    with race(coordinator.homes.pack, text, params=params) as running:
        running.reach(has_made_cold)
        struck = time.monotonic()
        with strike(running, host):
            assert running.exit_code() != 0
            ended_s = time.monotonic() - struck
            assert re.match(error, running.error), running.output
            assert len(running.error.splitlines()) == 1
            assert held in "".join(hosts_hold(coordinator))
            if strike is not stop_helper:
                coordinator.until_clean()
        coordinator.until_clean()
        gone_s = time.monotonic() - struck
    record_testsuite_property("row", f"| {running.error} | {ended_s:.0f} | {gone_s:.0f} |")
    assert not hosts_hold(coordinator)
    if strike is not stop_helper:
        assert gone_s < GONE_S


def hosts_hold(coordinator: Coordinator) -> list[str]:
    """What 'clean' says of hosts."""
    return [line for line, _ in host_client.leftovers(coordinator.homes.pack)]


@pytest.mark.usefixtures("done")
@pytest.mark.parametrize(
    ("strike", "error"),
    [(kill_helper, "host b: SSH was lost with arm gp3"), (cut_off, "host b: "), (kill_command, "")],
)
def test_what_is_lost_is_named_and_nothing_is_left(
    coordinator: Coordinator, strike: Callable[[Race, DataHost], AbstractContextManager[None]], error: str
) -> None:
    plan = coordinator.plan.partition("[[baseline]]")[0] + NODE_TABLE
    plan += "".join(host.table for host in coordinator.hosts)
    with race(coordinator.homes.pack, plan) as running:
        running.reach(has_made_cold)
        with strike(running, coordinator.hosts[1]):
            assert running.exit_code() != 0
        if error:
            assert running.error.startswith(error), running.output
            assert "arm gp3" in running.error
        coordinator.until_clean()
