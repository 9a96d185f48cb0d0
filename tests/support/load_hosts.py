"""Load hosts in network namespaces of this machine: a bridge, addresses and ``esrallyd`` on each."""

import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

NET = "10.77.19"
COORDINATOR = f"{NET}.1"
LOAD_HOSTS = (f"{NET}.2", f"{NET}.3")
AHEAD_S = 100_000  # how far the monotonic clock of load hosts is from the coordinator's
_STARTS_S = 30.0
_PORT = 1900
_DAEMON = Path(sys.executable).with_name("esrallyd")


@contextmanager
def daemons(variables: Mapping[str, str], tmp: Path) -> Iterator[None]:
    """Rally's daemons on the coordinator (this machine's own network) and on two load hosts."""
    env = {**variables, "ESRALLY_EBS_ACTORS": "sockets"}
    assert not _listening(), "another Rally daemon runs on this machine"
    with network() as names:
        try:
            _start([], COORDINATOR, env, tmp / "coordinator.out")
            for name, address in zip(names, LOAD_HOSTS, strict=True):
                home = tmp / name
                home.mkdir()
                where = ["ip", "netns", "exec", name, "unshare", "--time", f"--monotonic={AHEAD_S}", "--fork"]
                _start(where, address, {**env, "RALLY_HOME": str(home)}, tmp / f"{name}.out")
            yield
        finally:
            end([*_listening(), *(pid for name in names for pid in inside(name))])


@contextmanager
def network(kind: str = "load", net: str = NET) -> Iterator[list[str]]:
    """Two namespaces with the addresses ``.2`` and ``.3`` of a net whose ``.1`` is this machine's."""
    bridge, names = f"ebs-{kind}", [f"ebs-{kind}-{number}" for number in range(2)]
    try:
        _ip("link", "add", bridge, "type", "bridge")
        _ip("addr", "add", f"{net}.1/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for number, name in enumerate(names):
            _ip("netns", "add", name)
            _ip("link", "add", f"{bridge}{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", f"{bridge}{number}", "master", bridge, "up")
            _ip("-n", name, "addr", "add", f"{net}.{number + 2}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _ip("-n", name, "link", "set", device, "up")
            # Rally's command calls itself by the address of this machine's default route
            _ip("-n", name, "route", "add", "default", "via", f"{net}.1")
        yield names
    finally:
        links = (["link", "del", f"{bridge}{number}"] for number in range(2))
        spaces = (["netns", "del", name] for name in names)
        for words in (*links, *spaces, ["link", "del", bridge]):
            with suppress(subprocess.CalledProcessError):
                _ip(*words)


@contextmanager
def cut_off(namespace: str) -> Iterator[None]:
    """No packet reaches it or leaves it."""
    _ip("-n", namespace, "link", "set", "eth0", "down")
    try:
        yield
    finally:
        _ip("-n", namespace, "link", "set", "eth0", "up")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=10)


def _start(where: Sequence[str], address: str, env: Mapping[str, str], output: Path) -> None:
    """Start a daemon, which keeps the file for its output open."""
    command = [*where, str(_DAEMON), "start", f"--node-ip={address}", f"--coordinator-ip={COORDINATOR}"]
    with output.open("w") as file:
        done = subprocess.run(
            command, env=dict(env), check=False, stdout=file, stderr=file, timeout=_STARTS_S
        )
    assert done.returncode == 0, output.read_text()


def _listening() -> list[int]:
    """Who listens at Rally's port in this machine's own network: the coordinator's daemon."""
    return [
        one.pid
        for one in psutil.net_connections("tcp4")
        if one.status == psutil.CONN_LISTEN and one.laddr.port == _PORT and one.pid
    ]


def inside(name: str) -> list[int]:
    """The processes of a namespace."""
    done = subprocess.run(
        ["ip", "netns", "pids", name], check=False, capture_output=True, text=True, timeout=10
    )
    return [int(pid) for pid in done.stdout.split()]


def end_inside(name: str) -> None:
    """End the processes of a namespace."""
    end(inside(name))


def end(pids: Iterable[int]) -> None:
    """End these and all that they have started."""
    family = set()
    for pid in pids:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            family |= {process, *process.children(recursive=True)}
    for process in family:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(family, timeout=10)
