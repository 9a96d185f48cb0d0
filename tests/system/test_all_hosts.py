"""Races whose load comes from two hosts and whose arms are on two others, each with an engine of its own."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import data_hosts
import load_hosts
import pytest
from data_hosts import DataHost
from quick_node import NODE_TABLE
from race_under_test import Race, race
from rally_command import Homes
from small_race import PLAN, TASKS, Raced, raced

pytestmark = [
    pytest.mark.system,
    pytest.mark.long,
    pytest.mark.skipif(data_hosts.SSHD is None, reason="no SSH server is installed"),
]

HOSTS = ",".join(load_hosts.LOAD_HOSTS)


@dataclass(frozen=True)
class Apart:
    """A coordinator that neither makes load nor has a volume, and its data hosts."""

    homes: Homes
    hosts: tuple[DataHost, ...]


@pytest.fixture(scope="module")
def apart(own: Homes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apart]:
    tmp = tmp_path_factory.mktemp("hosts")
    with pytest.MonkeyPatch.context() as patched, data_hosts.data_hosts(tmp, engines=True) as (hosts, ssh):
        patched.setenv("ESRALLY_EBS_SSH", ssh)
        patched.setenv("ESRALLY_EBS_ACTORS", "sockets")
        plan = PLAN.replace("20_000", "2_000") + NODE_TABLE
        for host, arm in zip(hosts, ("gp2", "gp3"), strict=True):
            plan = plan.replace(f'type = "{arm}"\n', f'type = "{arm}"\nhost = "{host.name}"\n') + host.table
        (own.rally / "apart.toml").write_text(plan)
        with load_hosts.daemons(own.variables, tmp):
            yield Apart(own, hosts)


@pytest.fixture(scope="module")
def done(apart: Apart) -> Raced:
    return raced(
        *(apart.homes, f"--include-tasks={TASKS[0]}", f"--load-driver-hosts={HOSTS}"),
        **{"plan": "apart.toml", "rounds": 2, "iterations": 3, "warmup_iterations": 2, "search_clients": 2},
    )


def test_requests_of_all_load_hosts_are_cold_on_data_hosts_and_in_the_coordinators_time(done: Raced) -> None:
    assert done.session.state == "complete"
    assert Counter((row["arm"], row["client"]) for row in done.measured) == {
        (arm, client): 6 for arm in ("gp2", "gp3") for client in (0, 1)
    }
    assert max(row["resident_before"] for row in done.measured) <= 0.01
    requests = [event for event in done.session.events if event.kind == "io"]
    assert Counter((event.arm, event.fields["load_host"]) for event in requests) == {
        (arm, load_host): 6 for arm in ("gp2", "gp3") for load_host in load_hosts.LOAD_HOSTS
    }
    for event in requests:
        begin, end = event.fields["begin"], event.fields["end"]
        assert end["node.processor_s"] > begin["node.processor_s"]
        assert 0 < event.fields["way_s"] < 1
    # not each: one client's request may read what the other's index was cold of
    reads = [
        event.fields["end"]["emulator.reads"] - event.fields["begin"]["emulator.reads"] for event in requests
    ]
    assert sum(grown > 0 for grown in reads) > len(reads) / 2
    # a load host's counter is a day ahead, yet each request is within the time in which it was observed
    for row in done.measured:
        assert any(
            event.arm == row["arm"]
            and event.fields["started_s"] - 0.005 <= row["started_s"]
            and row["started_s"] + row["service_time_s"] <= event.at_s + 0.005
            for event in requests
        ), row


def test_the_report_says_what_both_ways_add(done: Raced) -> None:
    clocks = [event.fields for event in done.session.events if event.kind == "clock"]
    assert {fields.get("host") or fields["load_host"] for fields in clocks} == {*"ab", *load_hosts.LOAD_HOSTS}
    assert all(abs(fields["offset_s"]) <= fields["uncertainty_s"] + 1e-4 for fields in clocks)
    text = done.report("md")
    assert "Each arm is on a host: gp2 on a, gp3 on b." in text
    assert "| ways |" in text
    for load_host in load_hosts.LOAD_HOSTS:
        assert f"| {load_host} | 12 |" in text


def has_made_cold(running: Race) -> bool:
    events = running.folder / "events.jsonl"
    return events.exists() and '"kind": "io"' in events.read_text()


@pytest.mark.usefixtures("done")
@pytest.mark.parametrize(
    ("load_is_lost", "error"),
    [
        (False, "host b: SSH was lost with arm gp3"),
        (True, f"load host {load_hosts.LOAD_HOSTS[0]}: its worker has died or its network is gone;"),
    ],
)
def test_a_host_that_is_lost_ends_the_race_in_one_line(apart: Apart, load_is_lost: bool, error: str) -> None:
    plan = (apart.homes.rally / "apart.toml").read_text().partition("[[baseline]]")[0] + NODE_TABLE
    plan += "".join(host.table for host in apart.hosts)
    env = apart.homes.variables
    with race(apart.homes.pack, plan, f"--load-driver-hosts={HOSTS}", env=env) as running:
        running.reach(has_made_cold)
        with load_hosts.cut_off("ebs-load-0") if load_is_lost else apart.hosts[1].cut_off():
            assert running.exit_code() != 0
        assert running.error.startswith(error), running.output
        until = time.monotonic() + 60
        while not all(host.is_clean() for host in apart.hosts):
            assert time.monotonic() < until, [host.processes() for host in apart.hosts]
            time.sleep(0.2)
