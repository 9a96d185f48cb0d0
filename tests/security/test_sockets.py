"""Nobody gets in: Rally's actors, which run whatever is sent to them, listen nowhere."""

import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from race_under_test import Race, docker, plan, race

from esrally_ebs.checks.machine_facts import look
from esrally_ebs.errors import SetupError
from esrally_ebs.rally import local_actors

SHOWS_SYSTEM = "import esrally.actor as actor\nprint(getattr(actor, '__SYSTEM_BASE'))\n"
HOOK = Path(__file__).parents[2] / "esrally_ebs.pth"


def listeners() -> set[tuple[str, int]]:
    connections = psutil.net_connections("tcp")
    return {(each.laddr.ip, each.laddr.port) for each in connections if each.status == psutil.CONN_LISTEN}


@pytest.mark.parametrize(
    ("command", "wish", "system"),
    [
        ("esrally", "", "multiprocQueueBase"),
        ("esrally", "sockets", "multiprocTCPBase"),
        ("esrallyd", "", "multiprocTCPBase"),
        ("another", "", "multiprocTCPBase"),
    ],
)
def test_the_line_that_python_reads_keeps_the_command_esrally_alone_off_the_network(
    tmp_path: Path, command: str, wish: str, system: str
) -> None:
    (tmp_path / command).write_text(HOOK.read_text() + SHOWS_SYSTEM)
    env = {**os.environ, "ESRALLY_EBS_ACTORS": wish, "PYTHONNOUSERSITE": "1"}
    done = subprocess.run(
        [sys.executable, tmp_path / command], env=env, capture_output=True, text=True, check=True
    )
    assert (done.stdout.strip(), done.stderr) == (system, "")


def test_with_queues_actors_are_forked_as_spawn_hands_on_a_descriptor_twice(tmp_path: Path) -> None:
    (tmp_path / "esrally").write_text(
        f"{HOOK.read_text()}\n{SHOWS_SYSTEM}\n"
        "from thespian.system.multiprocCommon import get_multiproc_context\n"
        "print(get_multiproc_context({'Process Startup Method': 'spawn'}).get_start_method())"
    )
    done = subprocess.run([sys.executable, tmp_path / "esrally"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["multiprocQueueBase", "fork"]


@pytest.mark.parametrize(("address", "refused"), [("0.0.0.0", True), ("127.0.0.1", False)])
def test_race_control_that_others_reach_as_root_is_refused(
    monkeypatch: pytest.MonkeyPatch, address: str, refused: bool
) -> None:
    monkeypatch.setattr(local_actors, "is_root", lambda: True)
    with socket.create_server((address, 0)):
        if refused:
            with pytest.raises(SetupError, match=r"^Rally's actors listen on 0\.0\.0\.0:\d+ .*$"):
                local_actors.require_closed()
            monkeypatch.setenv("ESRALLY_EBS_ACTORS", "sockets")
        local_actors.require_closed()


def test_the_doctor_sees_actors_that_listen() -> None:
    try:
        server = socket.create_server(("0.0.0.0", 1900))
    except OSError:
        pytest.skip("port 1900 is taken")
    with server:
        assert look().listening == ("0.0.0.0:1900",)


@pytest.mark.system
@pytest.mark.usefixtures("able_machine")
def test_during_a_race_only_elasticsearch_listens_and_on_loopback_alone(home: Path) -> None:
    before = listeners()
    new: set[tuple[str, int]] = set()
    of_rally: set[tuple[str, int]] = set()
    actors: set[str] = set()

    def measured(running: Race) -> bool:
        new.update(listeners() - before)
        for process in [psutil.Process(running.main.pid), *running.actors()]:
            with suppress(psutil.NoSuchProcess):
                own = process.connections("tcp")
                of_rally.update(each.laddr for each in own if each.status == psutil.CONN_LISTEN)
                actors.update(word.split()[0] for word in process.cmdline()[:1])
        return any(running.folder.glob("samples/*.parquet"))

    with race(home, plan(iterations=2_000)) as running:
        running.reach(measured)
        published = docker("port", running.containers()[0], "9200/tcp").strip()
    assert {"BenchmarkActor", "DriverActor", "Worker"} <= actors
    assert of_rally == set()
    assert {address for address, _ in new} == {"127.0.0.1"}
    assert published in {f"{address}:{port}" for address, port in new}
