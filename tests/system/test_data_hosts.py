"""Sessions of fio whose arms are on two hosts: network namespaces with an SSH server each."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import data_hosts
import pytest
from data_hosts import DataHost, name_of

from esrally_ebs.node import api
from esrally_ebs.plan.tables import HostPlan
from esrally_ebs.session.host_client import Forward
from esrally_ebs.store import Session, load_session

pytestmark = [
    pytest.mark.system,
    pytest.mark.beside,
    pytest.mark.skipif(data_hosts.SSHD is None, reason="no SSH server is installed"),
]

COMMAND = str(Path(sys.executable).with_name("esrally-ebs"))
GONE_S = 60.0
JOB = '[[baseline]]\nname = "j"\nrw = "randread"\nbs = "16KiB"\nsize = "4MiB"\nnumjobs = 1\nruntime = "{}s"\n'


Run = subprocess.Popen[str]


class Coordinator:
    """Runs a plan of one emulated arm on each of two hosts."""

    def __init__(self, hosts: tuple[DataHost, ...], tmp: Path, ssh: str) -> None:
        self.hosts = hosts
        self.ssh = ssh
        self.home = tmp / "home"
        self._tmp = tmp
        self._env = {
            **os.environ,
            "ESRALLY_EBS_SSH": ssh,
            "ESRALLY_EBS_HOME": str(self.home),
            "ESRALLY_EBS_RUN": str(tmp / "run"),
        }

    @contextmanager
    def running(self, seconds: float) -> Iterator[Run]:
        """A command whose one job takes so long on each arm; it is ended when the block is left."""
        arms = "".join(
            f'[[arm]]\nname = "{type_}"\ntype = "{type_}"\nsize = "1GiB"\nhost = "{host.name}"\n'
            for type_, host in zip(("gp2", "gp3"), self.hosts, strict=True)
        )
        plan = self._tmp / "two.toml"
        tables = "".join(host.table for host in self.hosts)
        plan.write_text(f'name = "two"\n{tables}{arms}{JOB.format(seconds)}')
        run = subprocess.Popen(
            [COMMAND, "run", str(plan)],
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with run:
            try:
                yield run
            finally:
                run.kill()

    @property
    def newest(self) -> Path:
        """The folder of the latest session."""
        return max((self.home / "sessions").glob("*"), key=lambda folder: folder.stat().st_mtime)

    def session(self) -> Session:
        return load_session(self.newest)

    def until(self, what: Callable[[], bool]) -> None:
        began = time.monotonic()
        while not what():
            assert time.monotonic() - began < GONE_S, [host.processes() for host in self.hosts]
            time.sleep(0.1)

    def is_clean(self) -> bool:
        return all(host.is_clean() for host in self.hosts) and not any((self._tmp / "run").glob("*"))


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    tmp = tmp_path_factory.mktemp("hosts")
    with data_hosts.data_hosts(tmp) as (hosts, ssh):
        yield Coordinator(hosts, tmp, ssh)


def test_each_arm_is_measured_where_it_is_and_recorded_here(coordinator: Coordinator) -> None:
    with coordinator.running(0.5) as run:
        _, err = run.communicate(timeout=120)
    assert run.returncode == 0 or "lateness" in err, err  # this machine may be too busy to measure
    assert "Each arm is on a host: gp2 on a, gp3 on b." in (coordinator.newest / "report.md").read_text()
    session = coordinator.session()
    assert {(arm.spec.name, arm.spec.host, arm.filesystem) for arm in session.arms} == {
        ("gp2", "a", "xfs"),
        ("gp3", "b", "xfs"),
    }
    assert {row["arm"] for row in session.baseline.to_pylist()} == {"gp2", "gp3"}
    for event in (event for event in session.events if event.kind == "fio"):
        grown = event.fields["end"]["emulator.reads"] - event.fields["begin"]["emulator.reads"]
        assert grown > 0, event.arm
    clocks = [event for event in session.events if event.kind == "clock"]
    assert [event.fields["host"] for event in clocks] == ["a", "b"]
    assert all(abs(event.fields["offset_s"]) <= event.fields["uncertainty_s"] + 1e-4 for event in clocks)
    assert {check.name for check in session.checks} >= {"hosts", "processors"}
    coordinator.until(coordinator.is_clean)


NODE = """
import http.server

class Node(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"status": "green", "timed_out": false}')

server = http.server.HTTPServer(("127.0.0.1", 0), Node)
print(server.server_port, flush=True)
server.serve_forever()
"""


def test_a_port_leads_to_one_of_a_host_until_it_is_closed(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = coordinator.hosts[0]
    monkeypatch.setenv("ESRALLY_EBS_SSH", coordinator.ssh)
    enter = ["nsenter", f"--net=/run/netns/{host.namespace}", sys.executable, "-c", NODE]
    with subprocess.Popen(enter, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as node:
        try:
            assert node.stdout is not None
            port = int(node.stdout.readline())
            assert not api.is_ready(port)  # it is not this machine's
            forward = Forward(HostPlan(name="a", ssh=f"ssh://root@{host.address}"), "gp3", [port])
            assert api.get(forward.ports[0], "/")["status"] == "green"
            forward.close()
            assert not api.is_ready(forward.ports[0])
        finally:
            node.kill()
    coordinator.until(coordinator.is_clean)


def fio_runs(host: DataHost) -> bool:
    return "fio" in map(name_of, host.processes())


def ssh_of(run: Run, host: DataHost) -> int:
    """The SSH client that a command has started for a host."""
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    (pid,) = (
        int(pid) for pid in children if host.address.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
    return pid


def helper_of(run: Run, host: DataHost) -> int:
    (pid,) = (pid for pid in host.processes() if name_of(pid) == "ebs-host")
    return pid


@pytest.mark.long
def test_a_helper_that_is_stopped_is_named_and_takes_down_when_it_goes_on(coordinator: Coordinator) -> None:
    host = coordinator.hosts[0]
    with coordinator.running(120) as run:
        coordinator.until(lambda: fio_runs(host) or run.poll() is not None)
        helper = helper_of(run, host)
        os.kill(helper, signal.SIGSTOP)
        try:
            _, err = run.communicate(timeout=GONE_S)
        finally:
            os.kill(helper, signal.SIGCONT)
    assert run.returncode != 0
    said = f"esrally-ebs: host a: its helper says nothing any more with arm gp2: process {helper} there is"
    assert err.startswith(said)
    assert len(err.splitlines()) == 1, err
    coordinator.until(coordinator.is_clean)


@pytest.mark.long
@pytest.mark.parametrize(
    ("whom", "number", "said"),
    [
        (ssh_of, signal.SIGKILL, "host a: SSH was lost with arm gp2"),
        (helper_of, signal.SIGKILL, "host a: SSH was lost with arm gp2"),
        (lambda run, host: run.pid, signal.SIGKILL, None),
        (lambda run, host: run.pid, signal.SIGINT, None),
    ],
    ids=("ssh killed", "helper killed", "coordinator killed", "interrupted"),
)
def test_nothing_is_left_on_any_host(
    whom: Callable[[Run, DataHost], int], number: signal.Signals, said: str | None, coordinator: Coordinator
) -> None:
    first = coordinator.hosts[0]
    with coordinator.running(120) as run:
        coordinator.until(lambda: fio_runs(first) or run.poll() is not None)
        os.kill(whom(run, first), number)
        _, err = run.communicate(timeout=GONE_S)
    assert run.returncode != 0
    if said is not None:
        assert said in err
        assert len(err.splitlines()) == 1, err
    coordinator.until(coordinator.is_clean)
    assert coordinator.session().state == ("cancelled" if number == signal.SIGINT else "failed")


@pytest.mark.long
def test_a_host_without_a_network_is_given_up_and_takes_down(coordinator: Coordinator) -> None:
    host = coordinator.hosts[0]
    with coordinator.running(120) as run:
        coordinator.until(lambda: fio_runs(host) or run.poll() is not None)
        with host.cut_off():
            _, err = run.communicate(timeout=GONE_S)
            assert run.returncode != 0
            assert err.startswith("esrally-ebs: host a: SSH was lost with arm gp2")
            assert len(err.splitlines()) == 1, err
            coordinator.until(coordinator.is_clean)
