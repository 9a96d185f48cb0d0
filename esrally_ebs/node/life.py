"""A node's life on a volume: started by Compose, waited for, stopped cleanly or removed at once."""

import errno
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from esrally_ebs.errors import CommandError, SetupError
from esrally_ebs.model import Node, Volume
from esrally_ebs.node import api, cgroups, engine
from esrally_ebs.node.settings import NodeSettings, compose_variables, environment_file
from esrally_ebs.resources import resource, run_dir
from esrally_ebs.system import SYSTEM_CLOCK, Clock
from esrally_ebs.units import MIB, format_bytes

_HOST = "127.0.0.1"
_USER = 1000  # "elasticsearch" in the official image and in ours
_UP_S = 120.0
_READY_S = 120.0
_POLL_S = 0.2
_STOP_S = 60
# Docker's exit codes: 128 + SIGTERM is how a JVM ends after its shutdown hooks
_CLEAN_EXITS = (0, 143)
_RARE_CHECK = "1h"
_ROOM_BYTES = (
    16 * MIB
)  # with less, Elasticsearch starts but never becomes its own master, and does not say why


def start(
    volume: Volume,
    settings: NodeSettings,
    *,
    session: str,
    image: str,
    port: int | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Node:
    """Start Elasticsearch on a volume and wait until it answers and its shards are there.

    ``port`` on 127.0.0.1; None = any free one. What was started is removed again on failure, Ctrl-C included.
    Raises SetupError: port taken, engine down, a node that ends during its start (with its own reason).
    """
    arm = volume.spec.name
    if port is not None:
        _check_port(arm, port)
    _check_cpus(settings)
    data_dir = prepare_data_dir(volume)
    _check_room(arm, data_dir)
    try:
        container = _up(volume, settings, session=session, image=image, port=port, data_dir=data_dir)
        return _wait(arm, container, data_dir, image=image, clock=clock)
    except BaseException:
        engine.remove(session, arm=arm)
        raise


def prepare_data_dir(volume: Volume) -> Path:
    """``<mount>/elasticsearch``, made if it is missing, with everything in it owned by the node's user."""
    path = volume.mount / "elasticsearch"
    try:
        path.mkdir(mode=0o750, exist_ok=True)
        for entry in (path, *path.rglob("*")):
            if entry.lstat().st_uid != _USER:
                os.chown(entry, _USER, 0, follow_symlinks=False)
    except OSError as error:
        raise SetupError(f"arm {volume.spec.name}: {path}: {_why(error)}") from error
    return path


def _why(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "no space left; make room on the volume or make it larger"
    if error.errno == errno.EPERM:
        return "only root can give it to the node's user; run as root"
    return f"{error.strerror}; the volume must be mounted and writable"


def _check_room(arm: str, data_dir: Path) -> None:
    found = os.statvfs(data_dir)
    free = found.f_bavail * found.f_frsize
    if free < _ROOM_BYTES:
        raise SetupError(
            f"arm {arm}: {data_dir} is full ({format_bytes(free)} left); make room on the volume"
        )


def _check_port(arm: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError as error:
            raise _port_taken(arm, port) from error


def _port_taken(arm: str, port: int | None) -> SetupError:
    return SetupError(
        f"arm {arm}: port {port} on {_HOST} is taken; end what listens there (ss -ltnp) or use another"
    )


def _check_cpus(settings: NodeSettings) -> None:
    have = os.cpu_count() or 1
    if settings.cpus > have:
        raise SetupError(
            f"cpus: the car asks for {settings.cpus:g}, this machine has {have}; set --car-params=cpus:{have}"
        )


def project(session: str, arm: str) -> str:
    """Compose's name for a node."""
    return f"ebs-{session[:8].lower()}-{arm}"


def _up(
    volume: Volume, settings: NodeSettings, *, session: str, image: str, port: int | None, data_dir: Path
) -> str:
    arm = volume.spec.name
    name = project(session, arm)
    with tempfile.TemporaryDirectory(prefix="ebs-node-") as directory:
        settings_file = Path(directory) / "settings.env"
        settings_file.write_text(environment_file(settings.es_settings))
        variables = compose_variables(settings) | {
            "ES_IMAGE": image,
            "ES_PORT": str(port or 0),  # 0: the engine chooses, so that nobody can take it in between
            "ES_DATA": str(data_dir),
            "ES_SETTINGS": str(settings_file),
            "ES_NODE_NAME": arm,
            "ES_HEALTH_INTERVAL": _RARE_CHECK,
            "EBS_SESSION": session,
            "EBS_RUN": str(run_dir()),
            "EBS_ARM": arm,
        }
        file = str(resource("compose/node.yml"))
        try:
            engine.docker(
                *("compose", "-p", name, "-f", file, "up", "-d", "--pull", "never", "--quiet-pull"),
                timeout_s=_UP_S,
                env=variables,
            )
        except CommandError as error:
            raise _start_error(arm, port, str(error)) from error
    return f"{name}-node-1"


def _start_error(arm: str, port: int | None, text: str) -> SetupError:
    if "port is already allocated" in text or "address already in use" in text:
        return _port_taken(arm, port)
    return CommandError(
        f"arm {arm}: the node's container cannot be started: {text.rpartition(': exit code ')[2]}"
    )


def _wait(arm: str, container: str, data_dir: Path, *, image: str, clock: Clock) -> Node:
    until = clock.monotonic() + _READY_S
    while True:
        found = engine.inspect(container)
        if found is None or not found.running or found.port is None:
            raise SetupError(f"arm {arm}: Elasticsearch ended while it started: {_ending(container, found)}")
        if api.is_ready(found.port):
            break
        _check_room(arm, data_dir)
        if clock.monotonic() > until:
            text = engine.reason(engine.log(container))
            raise SetupError(f"arm {arm}: Elasticsearch is not ready after {_READY_S:.0f} s: {text}")
        clock.sleep(_POLL_S)
    pid = cgroups.largest_process(found.pid)
    return Node(
        arm=arm,
        container=container,
        host=_HOST,
        port=found.port,
        pid=pid,
        data_dir=data_dir,
        memory_cgroup=cgroups.memory_cgroup_of(pid),
        version=api.get(found.port, "/")["version"]["number"],
        image=image,
    )


def death(node: Node) -> str | None:
    """Why a node is no longer there, in one line; None while it runs."""
    found = engine.inspect(node.container)
    return None if found is not None and found.running else _ending(node.container, found)


def _ending(container: str, found: engine.Container | None) -> str:
    if found is None:
        return "its container was removed"
    if found.out_of_memory:
        return "out of memory; raise memory_limit (car 2gmemory) or lower heap_size"
    if found.exit_code == 137:
        return "killed from outside (exit code 137)"  # its log says nothing of it
    return f"exit code {found.exit_code}: {engine.reason(engine.log(container))}"


def stop(node: Node) -> None:
    """Shut a node down so that its data directory can be copied, and remove its container. Idempotent.

    Raises SetupError when it had to be killed, or had died before: its index may need recovery then.
    """
    found = engine.inspect(node.container)
    if found is None:
        return
    engine.docker("stop", "-t", str(_STOP_S), node.container, timeout_s=_STOP_S + 30)
    ended = engine.inspect(node.container)
    problem = None
    if ended is not None and ended.exit_code not in _CLEAN_EXITS:
        problem = f"arm {node.arm}: its node did not shut down cleanly: {_ending(node.container, ended)}"
    _remove_container(node)
    if problem:
        raise SetupError(f"{problem}; build the dataset again before copying it")


def _remove_container(node: Node) -> None:
    network = f"{node.container.removesuffix('-node-1')}_default"
    for words in (("rm", "-f", "-v", node.container), ("network", "rm", network)):
        try:
            engine.docker(*words)
        except CommandError:
            continue  # gone already, or going; remove() and clean look again by label


@contextmanager
def running(
    volume: Volume, settings: NodeSettings, *, session: str, image: str, port: int | None = None
) -> Iterator[Node]:
    """A node that is shut down cleanly at the end of the block, and removed at once when the block fails."""
    node = start(volume, settings, session=session, image=image, port=port)
    try:
        yield node
    except BaseException:
        engine.remove(session, arm=node.arm)
        raise
    stop(node)
