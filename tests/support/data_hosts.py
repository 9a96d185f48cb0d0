"""Data hosts in network namespaces of this machine: an SSH server on each, with keys of its own."""

import os
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import load_hosts
import psutil
import pytest

from esrally_ebs.model import MIN_MAPS
from esrally_ebs.node import choose_image

SSHD = shutil.which("sshd", path="/usr/sbin")
_NET = "10.77.20"
_HOSTS = {"a": f"{_NET}.2", "b": f"{_NET}.3"}
_SERVERS = ("sshd", "dockerd", "containerd", "docker-proxy")
_SERVER = """
ListenAddress {address}
HostKey {key}
AuthorizedKeysFile {key}.pub
PidFile none
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
SetEnv ESRALLY_EBS_RUN={run} ESRALLY_EBS_HOME={run}-home PYTHONPATH={here} ES_IMAGE={image}
"""
# Nodes that others reach refuse to start where they may open fewer files than this, which no process of some
# machines for tests may. This one tells them more.
_FILES = 65_535
_TELLS_MORE = """
#define _GNU_SOURCE
#include <dlfcn.h>

struct limit { unsigned long now, most; };

static int tell(const char *name, int resource, struct limit *limit) {
    int (*real)(int, struct limit *) = dlsym(RTLD_NEXT, name);
    int result = real(resource, limit);
    if (!result && resource == 7 && limit->most < 65535) limit->now = limit->most = 65535;
    return result;
}

int getrlimit(int resource, struct limit *limit) { return tell("getrlimit", resource, limit); }
int getrlimit64(int resource, struct limit *limit) { return tell("getrlimit64", resource, limit); }
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
    namespace: str  # empty: this machine's own
    address: str
    run: Path  # its run directory
    docker: str = ""  # its engine, where it has one of its own

    @property
    def table(self) -> str:
        """Its table of a plan."""
        docker = f'docker = "{self.docker}"\n' if self.docker else ""
        where = f'ssh = "ssh://root@{self.address}"\naddress = "{self.address}"\n'
        return f'[[host]]\nname = "{self.name}"\n{where}{docker}'

    def cut_off(self) -> AbstractContextManager[None]:
        """No packet reaches it or leaves it."""
        return load_hosts.cut_off(self.namespace)

    def processes(self) -> list[int]:
        """What the pack has started there; in this machine's own network, what is in the run directory."""
        if self.namespace:
            names = {pid: name_of(pid) for pid in load_hosts.inside(self.namespace)}
            return [pid for pid, name in names.items() if name and not name.startswith(_SERVERS)]
        return [process.pid for process in psutil.process_iter() if self._is_in_run(process)]

    def _is_in_run(self, process: psutil.Process) -> bool:
        with suppress(psutil.Error):
            return str(self.run) in process.cwd()
        return False

    def containers(self, node: str = "") -> list[str]:
        """Those of all sessions on it; only those of a node of that name."""
        where = ["-H", self.docker] if self.docker else []
        words = ["docker", *where, "ps", "-aq", "--filter", f"label=esrally-ebs.run={self.run}"]
        words += ["--filter", f"label=esrally-ebs.arm={node}"] if node else []
        done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=30)
        return done.stdout.split()

    def is_clean(self) -> bool:
        """Whether nothing of a session is left on it."""
        return not self.processes() and not any(self.run.glob("*")) and not self.containers()


def name_of(pid: int) -> str:
    """What a process is called; nothing when it has gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


@contextmanager
def data_hosts(tmp: Path, *, engines: bool = False) -> Iterator[tuple[tuple[DataHost, ...], str]]:
    """Two hosts, and the command that gets into them (``ESRALLY_EBS_SSH``).

    With ``engines`` nodes may run on them: the first is in this machine's own network, where its Docker
    engine is; the second has an engine of its own.
    """
    key = tmp / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True, timeout=10)
    client = tmp / "client"
    client.write_text(_CLIENT.format(key=key))
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where it gives up its rights; its package makes it
    with load_hosts.network("data", _NET) as namespaces, ExitStack() as running:
        hosts = []
        image = ""
        if engines:
            running.enter_context(_maps())
            image = running.enter_context(_image(tmp))
        for name, namespace in zip(_HOSTS, namespaces, strict=True):
            if engines and name == "a":
                hosts.append(DataHost(name, "", f"{_NET}.1", tmp / f"run-{name}"))
                continue
            running.callback(load_hosts.end_inside, namespace)
            docker = running.enter_context(_engine(namespace, tmp / "engine", image)) if engines else ""
            hosts.append(DataHost(name, namespace, _HOSTS[name], tmp / f"run-{name}", docker))
        for host in hosts:
            running.enter_context(_server(host, tmp, key, image))
        ssh = f"ssh -F {client}"
        for host in hosts:
            _wait_for(ssh, host.address)
        yield tuple(hosts), ssh


@contextmanager
def _maps() -> Iterator[None]:
    """As many mappings of memory as a node wants that is reached from other machines."""
    file = Path("/proc/sys/vm/max_map_count")
    before = int(file.read_text())
    file.write_text(str(max(before, MIN_MAPS)))
    try:
        yield
    finally:
        file.write_text(str(before))


@contextmanager
def _image(tmp: Path) -> Iterator[str]:
    """What nodes run: with ``_TELLS_MORE`` where they may not open as many files as they want."""
    usual = choose_image(os.environ)
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= _FILES:
        yield usual
        return
    source, library, name = tmp / "files.c", tmp / "files.so", "esrally-ebs-tests/files"
    source.write_text(_TELLS_MORE)
    for words in (
        ["gcc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"],
        ["docker", "create", "--name", "ebs-files", usual],
        ["docker", "cp", library, "ebs-files:/files.so"],
        ["docker", "commit", "--change", "ENV LD_PRELOAD=/files.so", "ebs-files", name],
    ):
        subprocess.run(words, check=True, capture_output=True, timeout=60)
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("ES_IMAGE", name)
            yield name
    finally:
        subprocess.run(["docker", "rm", "ebs-files"], check=True, capture_output=True, timeout=60)
        subprocess.run(["docker", "rmi", "-f", name], check=True, capture_output=True, timeout=60)


@contextmanager
def _server(host: DataHost, tmp: Path, key: Path, image: str) -> Iterator[None]:
    """The SSH server of a host."""
    config = tmp / f"server-{host.name}"
    config.write_text(
        _SERVER.format(address=host.address, key=key, run=host.run, here=Path.cwd(), image=image)
    )
    assert SSHD is not None
    with _started(host.namespace, [SSHD, "-D", "-e", "-f", str(config)], tmp / f"server-{host.name}.log"):
        yield


@contextmanager
def _started(namespace: str, words: list[str], log: Path) -> Iterator[None]:
    # not 'ip netns exec', which has mounts of its own
    into = ["nsenter", f"--net=/run/netns/{namespace}"] if namespace else []
    with log.open("w") as file:
        process = subprocess.Popen([*into, *words], stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _engine(namespace: str, folder: Path, image: str) -> Iterator[str]:
    """A Docker engine in a namespace, with all that is its own below the folder; gives its place."""
    folder.mkdir()
    place = f"unix://{folder}/docker.sock"
    own = {"data-root": "data", "exec-root": "exec", "pidfile": "docker.pid"}
    words = ["dockerd", f"--host={place}", *(f"--{name}={folder / path}" for name, path in own.items())]
    words += ["--bridge=none", "--iptables=false", "--ip6tables=false"]
    try:
        with _started(namespace, words, folder / "log"):
            until = time.monotonic() + 60
            while subprocess.run(
                ["docker", "-H", place, "version"], capture_output=True, check=False
            ).returncode:
                assert time.monotonic() < until, (folder / "log").read_text()[-2000:]
                time.sleep(0.2)
            script = 'set -o pipefail; docker save "$1" | docker -H "$2" load'
            words = ["bash", "-c", script, "bash", image, place]
            subprocess.run(words, check=True, capture_output=True, timeout=200)
            yield place
    finally:
        # of containers with the host's network; it stays mounted when the engine ends
        netns = folder / "exec" / "netns" / "default"
        subprocess.run(["umount", netns], check=False, capture_output=True, timeout=10)


def _wait_for(ssh: str, address: str) -> None:
    for _ in range(50):
        words = [*ssh.split(), f"root@{address}", "true"]
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=10)
        if done.returncode == 0:
            return
        time.sleep(0.1)
    raise AssertionError(done.stderr)
