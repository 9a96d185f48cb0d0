"""Commands that run by turns, a short while each, so that what the machine is like befalls them alike.

Each has a process and a network namespace of its own (two Rallys on one machine refuse each other, and want
the same port) and is stopped (SIGSTOP) while the others have their turn. Its network reaches one Docker
network only.
"""

import ipaddress
import os
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil


@dataclass(frozen=True)
class Network:
    """A Docker network, as ``docker inspect`` of one of its containers has it."""

    bridge: str
    container: str  # address of the container

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> "Network":
        """The only network of the inspected container."""
        (network,) = attributes["NetworkSettings"]["Networks"].values()
        return cls(
            bridge=f"br-{network['NetworkID'][:12]}",
            container=f"{network['IPAddress']}/{network['IPPrefixLen']}",
        )

    def address(self, number: int) -> str:
        """One near the end of the network, where Docker has not come to yet."""
        interface = ipaddress.ip_interface(self.container)
        return f"{interface.network.broadcast_address - 1 - number}/{interface.network.prefixlen}"


def by_turns(
    commands: Sequence[Sequence[str]],
    environments: Sequence[Mapping[str, str]],
    network: Network,
    *,
    turn_s: float,
    logs: Path,
) -> None:
    """Run all commands, one at a time for ``turn_s`` each, until all have ended.

    What they print goes to files in ``logs``. Raises RuntimeError for the first that fails.
    """
    with ExitStack() as stack:
        started: list[tuple[_Player, Path]] = []
        for number, (command, environment) in enumerate(zip(commands, environments, strict=True)):
            space = stack.enter_context(_space(number, network))
            log = logs / f"{space}.log"
            # not "ip netns exec", which mounts a /sys without control groups
            words = ["nsenter", f"--net=/run/netns/{space}", "unshare", "--pid", "--fork"]
            words += ["--kill-child", "--mount-proc"]
            process = subprocess.Popen(
                [*words, *command],
                env={**os.environ, **environment},
                stdout=stack.enter_context(log.open("wb")),
                stderr=subprocess.STDOUT,
            )
            stack.callback(_end, process)
            player = _Player(process)
            player.stop()
            started.append((player, log))
        running = [player for player, _ in started]
        while running:
            for player in tuple(running):
                player.go_on()
                try:
                    player.process.wait(turn_s)
                    running.remove(player)
                except subprocess.TimeoutExpired:
                    player.stop()
        for player, log in started:
            if player.process.returncode:
                raise RuntimeError(f"exit code {player.process.returncode}:\n{log.read_text()[-2000:]}")


@dataclass
class _Player:
    """A process that only waits for what it started: that is what stops and goes on."""

    process: subprocess.Popen[bytes]
    _stopped: frozenset[psutil.Process] = frozenset()

    def stop(self) -> None:
        """First those of last time: to look for others takes 10 ms, beside requests that are measured."""
        _signal(self._stopped, signal.SIGSTOP)
        while True:
            children = frozenset(psutil.Process(self.process.pid).children(recursive=True))
            _signal(children - self._stopped, signal.SIGSTOP)
            is_all, self._stopped = children <= self._stopped, children
            if is_all:
                return

    def go_on(self) -> None:
        _signal(self._stopped, signal.SIGCONT)


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()  # and by --kill-child all of its namespace
    process.wait()


@contextmanager
def _space(number: int, network: Network) -> Iterator[str]:
    """A network namespace with a cable to the bridge; its name."""
    name = f"ebs-turn{number}-{os.getpid()}"
    outside, inside = f"ebst{number}o", f"ebst{number}i"
    _ip("netns", "add", name)
    try:
        _ip("link", "add", outside, "type", "veth", "peer", "name", inside, "netns", name)
        _ip("link", "set", outside, "master", network.bridge, "up")
        _ip("-n", name, "address", "add", network.address(number), "dev", inside)
        _ip("-n", name, "link", "set", inside, "up")
        _ip("-n", name, "link", "set", "lo", "up")
        # Rally does not start without a default route, which it looks up and never uses
        _ip("-n", name, "route", "add", "default", "dev", inside)
        yield name
    finally:
        # first, and by itself: a namespace goes with its last process, and the next has cables of these names
        subprocess.run(["ip", "link", "delete", outside], stderr=subprocess.DEVNULL, check=False)
        _ip("netns", "delete", name)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
