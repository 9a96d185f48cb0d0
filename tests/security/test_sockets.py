"""Nobody gets in: Rally's actors, which run whatever is sent to them, listen nowhere.

What listens during a race is in tests/system/test_faults.py.
"""

import errno
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

import psutil
import pytest
from shared_python import NOBODY, as_user

from esrally_ebs.checks.requirements import look
from esrally_ebs.errors import SetupError
from esrally_ebs.rally import local_actors
from esrally_ebs.session import keeper
from esrally_ebs.session.keeper import KeeperClient, KeeperService

SHOWS_SYSTEM = "import esrally.actor as actor\nprint(getattr(actor, '__SYSTEM_BASE'))\n"
HOOK = Path(__file__).parents[2] / "esrally_ebs.pth"


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


LISTENS = """
import os, sys, time, psutil
from pathlib import Path
from esrally import actor, log, racecontrol
log.install_default_log_config()
def is_ours(pid):
    try:
        return os.readlink(f"/proc/{pid}/cwd") == os.getcwd()  # they leave the tree of processes
    except OSError:
        return False
port = int(sys.argv[1])
system = actor.bootstrap_actor_system(local_ip="127.0.0.2", coordinator_ip="127.0.0.2", admin_port=port)
try:
    system.createActor(racecontrol.BenchmarkActor)
    until, sockets = time.monotonic() + 30, []
    while len(sockets) < 3 and time.monotonic() < until:  # the last one comes after the actor
        listening = (one for one in psutil.net_connections("tcp") if one.status == "LISTEN")
        sockets = [one for one in listening if is_ours(one.pid)]
    print(len(sockets) > 2, {one.laddr.ip for one in sockets}, actor.actor_system_already_running(port=port))
finally:
    system.shutdown()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="looks at all processes")
@pytest.mark.parametrize("command", ["esrally", "esrallyd"])
def test_actors_listen_at_the_address_that_was_named_alone(tmp_path: Path, command: str) -> None:
    with socket.create_server(("127.0.0.2", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / command).write_text(f"{HOOK.read_text()}\n{LISTENS}")
    done = run_beside(tmp_path, [tmp_path / command, str(port)], "sockets:127.0.0.2")
    assert (done.stdout, done.stderr) == ("True {'127.0.0.2'} True\n", "")


@pytest.mark.parametrize("address", ["", "x", "10.0.0", "::1", "10.0.0.1:1900"])
def test_what_is_no_address_is_refused_before_anything_listens(tmp_path: Path, address: str) -> None:
    (tmp_path / "esrallyd").write_text(f"{HOOK.read_text()}\nprint('goes on')")
    done = run_beside(tmp_path, [tmp_path / "esrallyd"], f"sockets:{address}")
    assert done.returncode == 3
    assert re.fullmatch(r"\[ERROR\] ESRALLY_EBS_ACTORS=sockets:.*: is no IPv4 address; .*\n", done.stderr)
    assert done.stdout == ""


def run_beside(folder: Path, words: Sequence[str | Path], actors: str) -> subprocess.CompletedProcess[str]:
    """Of this Python, in a folder."""
    env = {**os.environ, "ESRALLY_EBS_ACTORS": actors, "PYTHONNOUSERSITE": "1", "HOME": str(folder)}
    command = [sys.executable, *words]
    return subprocess.run(
        command, env=env, cwd=folder, capture_output=True, text=True, check=False, timeout=100
    )


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
            monkeypatch.setenv("ESRALLY_EBS_ACTORS", "sockets:127.0.0.2")
            with pytest.raises(SetupError, match=r"^Rally's actors listen on 0\.0\.0\.0:\d+ .*$"):
                local_actors.require_closed()
            monkeypatch.setenv("ESRALLY_EBS_ACTORS", "sockets")
        local_actors.require_closed()


def test_the_doctor_sees_actors_that_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        server = socket.create_server(("0.0.0.0", 1900))
    except OSError:
        pytest.skip("port 1900 is taken")
    with server:
        assert look().listening == ("0.0.0.0:1900",)
        monkeypatch.setenv("ESRALLY_EBS_ACTORS", "sockets:127.0.0.2")
        assert look().listening == ("0.0.0.0:1900",)
        monkeypatch.setenv("ESRALLY_EBS_ACTORS", "sockets")
        assert look().listening == ()


# Who creates an actor goes on before its process has its name. Whatever fails, nothing waits for ever.
NAMES = {"MultiProcA", "ebs-actors", "logger Act", "BenchmarkA"}
ACTORS = f"""
import os, psutil, signal, time
from esrally import actor, log, racecontrol
from esrally_ebs.rally import local_actors
log.install_default_log_config()
local_actors.SHORT = 1.0
signal.alarm(120)
system = actor.bootstrap_actor_system()
system.createActor(racecontrol.BenchmarkActor)
actors = dict()
while not actors.keys() >= {NAMES}:
    time.sleep(0.01)
    here = [one for one in psutil.process_iter(["name", "cwd"]) if one.info["cwd"] == os.getcwd()]
    actors = dict((one.info["name"][:10], one) for one in here if one.pid != os.getpid())
"""
KILLED = """
if os.fork() == 0:  # whoever takes a session down
    os.setsid()
    signal.alarm(120)
    local_actors.stay()
    print(os.getpid(), *(one.pid for one in actors.values()), flush=True)
    signal.pause()
os.waitpid(-1, os.WNOHANG)
signal.pause()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="looks at all processes")
def test_actors_end_after_a_killed_command_once_no_session_is_taken_down_any_more(tmp_path: Path) -> None:
    (tmp_path / "esrally").write_text(
        f"{HOOK.read_text()}\n{HOOK.read_text()}\n{ACTORS.replace('SHORT', 'LEAVE_S')}{KILLED}"
    )
    env = {**os.environ, "PYTHONNOUSERSITE": "1", "HOME": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, tmp_path / "esrally"], env=env, cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout is not None
        stays, *actors = map(int, command.stdout.readline().split())
        names = Counter(psutil.Process(pid).name()[:10] for pid in actors)
        assert names == Counter(NAMES)
        command.kill()
        time.sleep(2)  # longer than actors have to leave
        assert all(psutil.pid_exists(pid) for pid in actors)
        os.kill(stays, signal.SIGKILL)
        until = time.monotonic() + 30
        while any(psutil.pid_exists(pid) for pid in actors):
            assert time.monotonic() < until, "actors are still there"
            time.sleep(0.1)


CONTROL_KILLED = """
actors["BenchmarkA"].kill()
signal.pause()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="looks at all processes")
def test_a_command_whose_race_control_is_killed_early_does_not_wait_for_ever(tmp_path: Path) -> None:
    """A session's reaper is not there yet."""
    (tmp_path / "esrally").write_text(
        f"{HOOK.read_text()}\n{ACTORS.replace('SHORT', 'ANSWERS_S')}{CONTROL_KILLED}"
    )
    env = {**os.environ, "PYTHONNOUSERSITE": "1", "HOME": str(tmp_path)}
    command = [sys.executable, tmp_path / "esrally"]
    done = subprocess.run(
        command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert re.fullmatch(
        r"\[ERROR\] Cannot race. race control \(process \d+\) was killed; start the race again\n", done.stderr
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_another_user_who_listens_in_the_keepers_place_is_not_believed() -> None:
    """All users see the names of such sockets, and may take one once its keeper was killed."""
    name = f"ebs-test-{secrets.token_hex(8)}"

    def answer() -> None:
        with suppress(OSError), listener.accept()[0] as connection:
            connection.sendall(b'{"result": ["forged"]}\n')

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        as_user(NOBODY, lambda: str(listener.listen()))  # whose it is then
        answering = threading.Thread(target=answer)
        answering.start()
        with pytest.raises(SetupError, match="another user listens in its place"):
            KeeperClient(name).take_down()
        answering.join()


def test_a_keeper_goes_on_after_it_had_no_descriptor_left_and_gives_others_no_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each connection takes one of the turns; whoever sees the socket's name may connect."""
    service = KeeperService(object(), os.geteuid(), ())
    exhausted, closed = OSError(errno.EMFILE, ""), OSError(errno.EBADF, "")
    turns = [exhausted, NOBODY, exhausted, os.geteuid(), closed]
    pairs: list[socket.socket] = []
    served = threading.Event()

    class Listener:
        def accept(self) -> tuple[socket.socket, None]:
            turn = turns.pop(0)
            if isinstance(turn, OSError):
                raise turn
            pairs.extend(socket.socketpair())
            users[pairs[-1]] = turn
            return pairs[-1], None

    users: dict[socket.socket, int] = {}
    monkeypatch.setattr(keeper, "_user_of", users.__getitem__)
    monkeypatch.setattr(keeper, "_POLL_S", 0.0)
    monkeypatch.setattr(service, "_serve", lambda connection: served.set())
    service.listen(cast(socket.socket, Listener()))
    assert turns == []
    assert [each.fileno() == -1 for each in pairs] == [False, True, False, False]  # the other user's
    assert served.wait(20)
    for each in pairs:
        each.close()


def test_a_keeper_that_can_start_no_thread_refuses_that_call_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = KeeperService(object(), os.geteuid(), ())
    pairs = [socket.socketpair() for _ in range(70)]
    waiting = [theirs for _, theirs in pairs]

    class Listener:
        def accept(self) -> tuple[socket.socket, None]:
            if not waiting:
                raise OSError(errno.EBADF, "")
            return waiting.pop(), None

    def cannot_start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", cannot_start)
        service.listen(cast(socket.socket, Listener()))
    assert waiting == []
    assert {theirs.fileno() for _, theirs in pairs} == {-1}
    assert service._free.acquire(blocking=False)  # no turn is lost
    for ours, _ in pairs:
        ours.close()


def test_more_descriptors_than_any_request_has_are_refused_and_closed() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for _ in range(2):
            socket.send_fds(theirs, [b"half"], [0])
        theirs.shutdown(socket.SHUT_WR)
        before = len(list(Path("/proc/self/fd").iterdir()))
        with pytest.raises(SetupError, match="several descriptors"):
            list(keeper._lines(ours))
        assert len(list(Path("/proc/self/fd").iterdir())) == before
