"""A node's life on a volume: started by Compose, waited for, stopped cleanly or removed at once."""

import errno
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from esrally_ebs.errors import CommandError, SetupError
from esrally_ebs.machine.private import give_tree
from esrally_ebs.machine.processes import SYSTEM_CLOCK, Clock
from esrally_ebs.machine.resources import resource, run_dir
from esrally_ebs.model import Node, Volume
from esrally_ebs.node import api, cgroups, engine
from esrally_ebs.node.settings import NodeSettings, compose_variables, environment_file
from esrally_ebs.units import MIB, format_bytes

_HOST = "127.0.0.1"
_DATA = "/usr/share/elasticsearch/data"  # in the container, as compose/node.yml has it
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
    elsewhere: Mapping[str, Path] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Node:
    """Start Elasticsearch on a volume and wait until it answers and its shards are there.

    On any free port of 127.0.0.1. ``elsewhere`` are folders of the data directory that lie on other volumes,
    mounted in the container alone until it ends. What was started is removed again on failure, Ctrl-C
    included. Raises SetupError: engine down, a node that ends during its start (with its own reason).
    """
    arm = volume.spec.name
    _check_cpus(settings)
    data_dir = prepare_data_dir(volume)
    _check_room(arm, data_dir)
    try:
        container = _up(
            volume, settings, session=session, image=image, data_dir=data_dir, elsewhere=elsewhere or {}
        )
        return _wait(arm, container, data_dir, image=image, clock=clock)
    except BaseException:
        engine.remove(session, arm=arm)
        raise


def prepare_data_dir(volume: Volume) -> Path:
    """``<mount>/elasticsearch``, made if it is missing, with everything in it owned by the node's user."""
    path = volume.mount / "elasticsearch"
    try:
        path.mkdir(mode=0o750, exist_ok=True)
        if path.is_symlink():
            raise NotADirectoryError(errno.ENOTDIR, "a link, and no directory of ours")
        give_tree(path, _USER)
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
    filesystem = os.statvfs(data_dir)
    free = filesystem.f_bavail * filesystem.f_frsize
    if free < _ROOM_BYTES:
        raise SetupError(
            f"arm {arm}: {data_dir} is full ({format_bytes(free)} left); make room on the volume"
        )


def _check_cpus(settings: NodeSettings) -> None:
    have = os.cpu_count() or 1
    if settings.cpus > have:
        raise SetupError(
            f"cpus: the car asks for {settings.cpus:g}, this machine has {have}; set --car-params=cpus:{have}"
        )


def _up(
    volume: Volume,
    settings: NodeSettings,
    *,
    session: str,
    image: str,
    data_dir: Path,
    elsewhere: Mapping[str, Path],
) -> str:
    arm = volume.spec.name
    name = engine.project(session, arm)
    with tempfile.TemporaryDirectory(prefix="ebs-node-") as directory:
        settings_file = Path(directory) / "settings.env"
        settings_file.write_text(environment_file(settings.es_settings))
        variables = compose_variables(settings) | {
            "ES_IMAGE": image,
            "ES_PORT": "0",  # the engine chooses, so that nobody can take it in between
            "ES_DATA": str(data_dir),
            "ES_SETTINGS": str(settings_file),
            "ES_NODE_NAME": arm,
            "ES_HEALTH_INTERVAL": _RARE_CHECK,
            "EBS_SESSION": session,
            "EBS_RUN": str(run_dir()),
            "EBS_ARM": arm,
        }
        more = Path(directory) / "mounts.json"
        more.write_text(_mounts(elsewhere))
        files = ("-f", str(resource("compose/node.yml")), "-f", str(more))
        try:
            engine.docker(
                *("compose", "-p", name, *files, "up", "-d", "--pull", "never", "--quiet-pull"),
                timeout_s=_UP_S,
                env=variables,
            )
        except CommandError as error:
            reason = str(error).rpartition(": exit code ")[2]
            raise CommandError(f"arm {arm}: the node's container cannot be started: {reason}") from error
    return f"{name}-node-1"


def _mounts(elsewhere: Mapping[str, Path]) -> str:
    """A second Compose file, laid over the first; Compose would take a dollar for a variable's."""
    volumes = [
        {"type": "bind", "source": str(source).replace("$", "$$"), "target": f"{_DATA}/{folder}"}
        for folder, source in elsewhere.items()
    ]
    return json.dumps({"services": {"node": {"volumes": volumes}}})


def _wait(arm: str, name: str, data_dir: Path, *, image: str, clock: Clock) -> Node:
    until = clock.monotonic() + _READY_S
    while True:
        container = engine.inspect(name)
        if container is None or not container.running or container.port is None:
            raise SetupError(f"arm {arm}: Elasticsearch ended while it started: {_ending(name, container)}")
        if api.is_ready(container.port):
            break
        _check_room(arm, data_dir)
        if clock.monotonic() > until:
            text = engine.reason(engine.log(name))
            raise SetupError(f"arm {arm}: Elasticsearch is not ready after {_READY_S:.0f} s: {text}")
        clock.sleep(_POLL_S)
    pid = cgroups.largest_process(container.pid)
    return Node(
        arm=arm,
        container=name,
        host=_HOST,
        port=container.port,
        pid=pid,
        data_dir=data_dir,
        memory_cgroup=cgroups.memory_cgroup_of(pid),
        processor_time=cgroups.processor_time_of(pid),
        version=api.get(container.port, "/")["version"]["number"],
        image=image,
    )


def death(node: Node) -> str | None:
    """Why a node is no longer there, in one line; None while it runs."""
    container = engine.inspect(node.container)
    return None if container is not None and container.running else _ending(node.container, container)


def _ending(name: str, container: engine.Container | None) -> str:
    if container is None:
        return "its container was removed"
    if container.out_of_memory:
        return "out of memory; raise memory_limit (car 2gmemory) or lower heap_size"
    if container.exit_code == 137:
        return "killed from outside (exit code 137)"  # its log says nothing of it
    return f"exit code {container.exit_code}: {engine.reason(engine.log(name))}"


def stop(node: Node) -> None:
    """Shut a node down so that its data directory can be copied, and remove its container. Idempotent.

    Raises SetupError when it had to be killed, or had died before: its index may need recovery then.
    """
    if engine.inspect(node.container) is None:
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
def running(volume: Volume, settings: NodeSettings, *, session: str, image: str) -> Iterator[Node]:
    """A node that is shut down cleanly at the end of the block, and removed at once when the block fails."""
    node = start(volume, settings, session=session, image=image)
    try:
        yield node
    except BaseException:
        engine.remove(session, arm=node.arm)
        raise
    stop(node)
