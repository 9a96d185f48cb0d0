"""Data hosts in network namespaces of this machine: an SSH server on each, with keys of its own."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import load_hosts

SSHD = shutil.which("sshd", path="/usr/sbin")
_NET = "10.77.20"
_HOSTS = {"a": f"{_NET}.2", "b": f"{_NET}.3"}
_SERVER = """
ListenAddress {address}
HostKey {key}
AuthorizedKeysFile {key}.pub
PidFile none
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
SetEnv ESRALLY_EBS_RUN={run} ESRALLY_EBS_HOME={run}-home PYTHONPATH={here}
"""
_CLIENT = """
IdentityFile {key}
IdentitiesOnly yes
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
"""


@dataclass(frozen=True)
class DataHost:
    """One of them, as a plan and a test need it."""

    name: str
    namespace: str
    address: str
    run: Path  # its run directory

    @property
    def table(self) -> str:
        """Its table of a plan."""
        return f'[[host]]\nname = "{self.name}"\nssh = "ssh://root@{self.address}"\n'

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """No packet reaches it or leaves it."""
        words = ["ip", "-n", self.namespace, "link", "set", "eth0"]
        subprocess.run([*words, "down"], check=True, timeout=10)
        try:
            yield
        finally:
            subprocess.run([*words, "up"], check=True, timeout=10)

    def processes(self) -> list[int]:
        """All of its processes but the SSH server itself."""
        names = {pid: name_of(pid) for pid in load_hosts.inside(self.namespace)}
        return [pid for pid, name in names.items() if name and not name.startswith("sshd")]

    def is_clean(self) -> bool:
        """Whether nothing of a session is left on it."""
        return not self.processes() and not any(self.run.glob("*"))


def name_of(pid: int) -> str:
    """What a process is called; nothing when it has gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


@contextmanager
def data_hosts(tmp: Path) -> Iterator[tuple[tuple[DataHost, ...], str]]:
    """Two hosts, and the command that gets into them (``ESRALLY_EBS_SSH``)."""
    assert SSHD is not None
    key = tmp / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True, timeout=10)
    client = tmp / "client"
    client.write_text(_CLIENT.format(key=key))
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where it gives up its rights; its package makes it
    with load_hosts.network("data", _NET) as namespaces:
        servers = []
        hosts = []
        try:
            for (name, address), namespace in zip(_HOSTS.items(), namespaces, strict=True):
                server = tmp / f"server-{name}"
                run = tmp / f"run-{name}"
                server.write_text(_SERVER.format(address=address, key=key, run=run, here=Path.cwd()))
                # not 'ip netns exec', which has mounts of its own
                enter = ["nsenter", f"--net=/run/netns/{namespace}", SSHD, "-D", "-e", "-f", str(server)]
                with (tmp / f"server-{name}.log").open("w") as log:
                    servers.append(subprocess.Popen(enter, stdin=subprocess.DEVNULL, stderr=log))
                hosts.append(DataHost(name, namespace, address, run))
            ssh = f"ssh -F {client}"
            for host in hosts:
                _wait_for(ssh, host.address)
            yield tuple(hosts), ssh
        finally:
            load_hosts.end(pid for name in namespaces for pid in load_hosts.inside(name))
            for process in servers:
                process.wait()


def _wait_for(ssh: str, address: str) -> None:
    for _ in range(50):
        words = [*ssh.split(), f"root@{address}", "true"]
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=10)
        if done.returncode == 0:
            return
        time.sleep(0.1)
    raise AssertionError(done.stderr)
