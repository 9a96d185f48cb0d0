"""A node's life on a volume: started by Compose, awaited, stopped cleanly or removed at once."""

import errno
import json
import os
import random
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from esrally_ebs.errors import CommandError, SetupError
from esrally_ebs.machine.private import give_tree, opened_below
from esrally_ebs.machine.resources import resource
from esrally_ebs.model import NODE_USER, Node, Volume
from esrally_ebs.node import api, cgroups, engine
from esrally_ebs.node.settings import NodeSettings, compose_variables, environment_file
from esrally_ebs.units import MIB, format_bytes

_HOST = "127.0.0.1"
_HTTP, _TRANSPORT = 9200, 9300  # ports of a cluster's first node, in its container
_LASTING = range(10_000, 30_000)
_DATA = "/usr/share/elasticsearch/data"  # in the container, as in compose/node.yml
REPOSITORY = "/usr/share/elasticsearch/repository"  # of snapshots, in the container
_UP_S = 120.0
_READY_S = 120.0  # where a look takes no time
_POLL_S = 0.2
_STOP_S = 60
# Docker's exit codes; 128 + SIGTERM is the normal end of a JVM with shutdown hooks
_CLEAN_EXITS = (0, 143)
_RARE_CHECK = "1h"
_OLDEST_MAJOR = 8
_ROOM_BYTES = 16 * MIB  # with less, Elasticsearch starts but silently never becomes its own master


def start(
    volumes: Sequence[Volume],
    settings: NodeSettings,
    *,
    session: str,
    image: str,
    elsewhere: Mapping[str, Path] | None = None,
    repository: Path | None = None,
    snapshots: Path | None = None,
    data_of: int | None = None,
) -> tuple[Node, ...]:
    """Start Elasticsearch on each volume, and wait until all answer, form a cluster and have their shards.

    A single node uses any free port of 127.0.0.1. ``elsewhere``: folders of its data directory on other
    volumes, mounted only in the container while it runs. ``repository``: snapshots, which the nodes may read
    at ``REPOSITORY``; instead, several may have a directory for ``snapshots`` that they make. ``data_of``:
    the user whose files they are given; by default, all. On failure or Ctrl-C everything started is removed.
    Raises SetupError: engine down, or a node that ends while starting (with its own reason).

    Several share the network of the first node's container and communicate over its loopback interface, which
    nobody else reaches; as this is local, no node makes a production cluster's checks. Shards stay where they
    are: none is recovered before all nodes are there, and none is moved to rebalance. If settings say that
    nodes are ``apart``, these are the ones on this machine, and use its network.
    """
    names = [volume.spec.name for volume in volumes]
    ports = [lasting_port("") for _ in volumes] if settings.apart else []
    if settings.apart:
        parts = [_apart(name, port, settings) for name, port in zip(names, ports, strict=True)]
    else:
        parts = _together(names, session, elsewhere or {})
        parts = [_seeing(snapshots or repository, part, read_only=snapshots is None) for part in parts]
    _check_cpus(settings)
    places = []
    for volume in volumes:
        places.append(prepare_data_dir(volume, data_of))
        _check_room(volume.spec.name, places[-1])
    try:
        for volume, data_dir, part in zip(volumes, places, parts, strict=True):
            _up(volume, settings, session=session, image=image, data_dir=data_dir, part=part)
        containers = [_container(session, name) for name in names]
        return _wait(names, containers, places, image=image, ports=ports, count=len(settings.apart))
    except BaseException:
        for name in names:
            engine.remove(session, arm=name)
        raise


def _together(names: Sequence[str], session: str, elsewhere: Mapping[str, Path]) -> list[dict[str, Any]]:
    """Each node's additions to the common Compose file, if all are on this machine."""
    others = range(1, len(names))
    if not others:
        return [{"volumes": [_bind(source, f"{_DATA}/{folder}") for folder, source in elsewhere.items()]}]
    ports_of_others = [f"{_HOST}:0:{_HTTP + at}" for at in others]
    network = f"container:{_container(session, names[0])}"
    return [
        {"environment": _membership(0, names), "ports": ports_of_others},
        *({"environment": _membership(at, names), "network_mode": network} for at in others),
    ]


def _seeing(repository: Path | None, part: dict[str, Any], *, read_only: bool) -> dict[str, Any]:
    """A node's part of the Compose file, with a repository of snapshots added."""
    if repository is None:
        return part
    return {
        **part,
        "volumes": [*part.get("volumes", ()), {**_bind(repository, REPOSITORY), "read_only": read_only}],
        "environment": {**part.get("environment", {}), "path.repo": REPOSITORY},
    }


def _membership(at: int, names: Sequence[str]) -> dict[str, str]:
    """Settings of the node at this place, where these nodes share one network."""
    seeds = {name: f"{_HOST}:{_TRANSPORT + place}" for place, name in enumerate(names)}
    return {**_of_cluster(names[at], seeds), "http.port": str(_HTTP + at)}


def _apart(name: str, port: int, settings: NodeSettings) -> dict[str, Any]:
    """A node's part of the Compose file if others of its cluster are on other machines.

    It uses the machine's network, without an engine's in between; HTTP is on this port of 127.0.0.1 only.
    """
    own = {**_of_cluster(name, settings.apart), "http.host": _HOST, "http.port": str(port)}
    return {"network_mode": "host", "environment": own}


def _of_cluster(name: str, seeds: Mapping[str, str]) -> dict[str, str]:
    """Settings that form a cluster of nodes reachable at ``seeds``."""
    names = list(seeds)
    address, _, port = seeds[name].rpartition(":")
    return {
        "discovery.type": "multi-node",
        "discovery.seed_hosts": ",".join(seeds.values()),
        "cluster.initial_master_nodes": ",".join(names),
        "transport.host": address.strip("[]"),
        "transport.port": port,
        "gateway.recover_after_data_nodes": str(len(names)),
        "cluster.routing.rebalance.enable": "none",
        # the choice of copies must not depend on their speed
        "cluster.routing.use_adaptive_replica_selection": "false",
    }


def _container(session: str, arm: str) -> str:
    return f"{engine.project(session, arm)}-node-1"


def prepare_data_dir(volume: Volume, data_of: int | None = None) -> Path:
    """``<mount>/elasticsearch``, created if missing; gives all in it, or one user's part, to the node."""
    path = volume.mount / "elasticsearch"
    try:
        path.mkdir(mode=0o750, exist_ok=True)
        if path.is_symlink():
            raise NotADirectoryError(errno.ENOTDIR, "a link, and no directory of ours")
        give_tree(path, NODE_USER, of=data_of)
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
    free = shutil.disk_usage(data_dir).free
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
    part: Mapping[str, Any],
) -> None:
    arm = volume.spec.name
    port = lasting_port(settings.also_at) if settings.keeps_port or settings.also_at else 0
    # long form: in the short one, a colon would end the path
    part = {**part, "volumes": [_bind(data_dir, _DATA), *part.get("volumes", ())]}
    if settings.also_at and "network_mode" not in part:
        part = {**part, "ports": [*part.get("ports", ()), f"{settings.also_at}:{port}:{_HTTP}"]}
    with tempfile.TemporaryDirectory(prefix="ebs-node-") as directory:
        settings_file = Path(directory) / "settings.env"
        settings_file.write_text(environment_file(settings.es_settings))
        variables = compose_variables(settings) | {
            "ES_IMAGE": image,
            # chosen by the engine, so that nobody can take it in between; another at each start
            "ES_PORT": f"{port}",
            "ES_SETTINGS": str(settings_file),
            "ES_NODE_NAME": arm,
            "ES_HEALTH_INTERVAL": _RARE_CHECK,
            "EBS_SESSION": session,
            "EBS_RUN": engine.run_label(),
            "EBS_ARM": arm,
            # if set for a user's project: as version 1, it would put underscores into containers' names
            "COMPOSE_COMPATIBILITY": "false",
            "COMPOSE_ENV_FILES": "",
        }
        more = Path(directory) / "override.yml"
        more.write_text(_override(part))
        files = ("-f", str(resource("compose/node.yml")), "-f", str(more))
        try:
            engine.docker(
                *("compose", "-p", engine.project(session, arm), *files),
                *("up", "-d", "--pull", "never", "--quiet-pull"),
                timeout_s=_UP_S,
                env=variables,
            )
        except CommandError as error:
            reason = str(error).rpartition(": exit code ")[2]
            raise CommandError(f"arm {arm}: the node's container cannot be started: {reason}") from error


def lasting_port(also_at: str) -> int:
    """A free port below the ranges from which kernel and engine choose: it stays free for a while."""
    family = socket.AF_INET6 if ":" in also_at else socket.AF_INET
    for port in random.sample(_LASTING, 100):
        with socket.socket() as probe, socket.socket(family) as other, suppress(OSError):
            probe.bind((_HOST, port))
            other.bind((also_at or _HOST, port if also_at else 0))
            return port
    raise SetupError(f"ports {_LASTING.start} to {_LASTING.stop}: none is free; see 'ss -ltn'")


def _override(part: Mapping[str, object]) -> str:
    """A second Compose file, to override the first; JSON, which is YAML without tags."""
    text = json.dumps({"services": {"node": part}})
    if "network_mode" not in part:
        return text
    # published ports depend on whose network it is
    return f'{text[:-3]}, "ports": !reset []}}}}, "networks": !reset {{}}}}'


def _bind(source: Path, target: str) -> dict[str, str]:
    """A bind mount; dollars are doubled, as Compose would expand variables."""
    return {"type": "bind", "source": str(source).replace("$", "$$"), "target": target}


def _wait(
    arms: Sequence[str],
    names: Sequence[str],
    places: Sequence[Path],
    *,
    image: str,
    ports: Sequence[int] = (),
    count: int = 0,
) -> tuple[Node, ...]:
    """Wait until all nodes in these containers answer as one cluster; fails if one ends meanwhile.

    ``count``: size of the cluster, if some nodes are elsewhere. A user's data may have thousands of shards:
    the limit starts anew with each shard that appears. It counts looks, which take longer on a busy machine,
    as a start does.
    """
    count = count or len(names)
    most = count * _READY_S / _POLL_S  # they compete while starting
    began_s, shards, looks = time.monotonic(), 0, 0
    while True:
        containers = [_running(arm, name) for arm, name in zip(arms, names, strict=True)]
        published = containers[0].ports
        at_ports = ports or [published.get(_HTTP + at, 0) for at in range(len(names))]
        ready = [port and api.is_ready(port, nodes=count, patience_s=0) for port in at_ports]
        waiting = [at for at, is_ready in enumerate(ready) if not is_ready]
        if not waiting:
            break
        for arm, data_dir in zip(arms, places, strict=True):
            _check_room(arm, data_dir)
        port = at_ports[waiting[0]]
        if port and (more := api.active_shards(port)) > shards:
            looks, shards = 0, more
        if looks > most:
            text = (port and api.missing_shard(port)) or engine.reason(engine.log(names[waiting[0]]))
            waited_s = time.monotonic() - began_s
            raise SetupError(
                f"arm {arms[waiting[0]]}: Elasticsearch is not ready after {waited_s:.0f} s: {text}"
            )
        time.sleep(_POLL_S)
        looks += 1
    return tuple(
        _node(arm, name, container, port, data_dir, image)
        for arm, name, container, port, data_dir in zip(
            arms, names, containers, at_ports, places, strict=True
        )
    )


def _running(arm: str, name: str) -> engine.Container:
    container = engine.inspect(name)
    if container is None or not container.running:
        raise SetupError(f"arm {arm}: Elasticsearch ended while it started: {_ending(name, container)}")
    if container.pid and not Path("/proc", str(container.pid)).exists():
        time.sleep(_POLL_S)  # of an end the engine hears a moment later
        if engine.inspect(name) == container:
            raise SetupError(f"arm {arm}: {engine.ELSEWHERE}")
    return container


def _node(arm: str, name: str, container: engine.Container, port: int, data_dir: Path, image: str) -> Node:
    version: str = api.get(port, "/")["version"]["number"]
    if int(version.partition(".")[0]) < _OLDEST_MAJOR:
        raise SetupError(
            f"arm {arm}: {image} is of version {version}; Elasticsearch before 8, and OpenSearch, have "
            "indices in nodes/0, where nothing of ours looks; set ES_IMAGE to 8.0 or later (8 takes over "
            "data of 7.17)"
        )
    pid = cgroups.largest_process(container.pid)
    return Node(
        arm=arm,
        container=name,
        host=_HOST,
        port=port,
        pid=pid,
        data_dir=data_dir,
        memory_cgroup=cgroups.memory_cgroup_of(pid),
        processor_time=cgroups.processor_time_of(pid),
        version=version,
        image=image,
    )


def death(node: Node) -> str | None:
    """Why a node is gone, in one line; None while it runs."""
    container = engine.inspect(node.container)
    return None if container is not None and container.running else _ending(node.container, container)


def _ending(name: str, container: engine.Container | None) -> str:
    if container is None:
        return "its container was removed"
    if container.out_of_memory:
        return "out of memory; raise memory_limit (car 2gmemory) or lower heap_size"
    if container.exit_code == 137:
        return "killed from outside (exit code 137)"  # its log has nothing about it
    return f"exit code {container.exit_code}: {engine.reason(engine.log(name))}"


def stop(*nodes: Node) -> None:
    """Shut nodes down so that their data directories can be copied, and remove the containers. Idempotent.

    Raises SetupError if one had to be killed, or had died before: its index may need recovery then.
    """
    there = [node for node in nodes if engine.inspect(node.container) is not None]
    if not there:
        return
    problems = _shut_down(there)
    for node in there:
        _remove_container(node)
    if problems:
        raise SetupError(f"{'; '.join(problems)}; build the dataset again before copying it")


def _shut_down(nodes: Sequence[Node]) -> list[str]:
    """End all nodes at once: else the rest of a cluster would promote or move the first one's shards.

    Returns a line for each that did not end cleanly.
    """
    engine.docker("stop", "-t", str(_STOP_S), *(node.container for node in nodes), timeout_s=_STOP_S + 30)
    problems = []
    for node in nodes:
        ended = engine.inspect(node.container)
        if ended is not None and ended.exit_code not in _CLEAN_EXITS:
            why = _ending(node.container, ended)
            problems.append(f"arm {node.arm}: its node did not shut down cleanly: {why}")
    return problems


def restart(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Stop nodes and start them in their own containers; settings must have had ``keeps_port``.

    Nodes with the same container are parts of one node. Raises SetupError like ``start`` and ``stop``.
    """
    by_container = {node.container: node for node in nodes}
    if problems := _shut_down(list(by_container.values())):
        raise SetupError(f"{'; '.join(problems)}; start the race again")
    engine.docker("start", *by_container, timeout_s=_UP_S)
    anew = {
        name: _wait([node.arm], [name], [node.data_dir], image=node.image)[0]
        for name, node in by_container.items()
    }
    return tuple(replace(anew[node.container], arm=node.arm, data_dir=node.data_dir) for node in nodes)


def lose(lost: Node, cluster: Sequence[Node]) -> tuple[Node, ...]:
    """Kill a node, delete its copies of shards, and restart it; returns its cluster's nodes once it is back.

    It keeps the cluster state, and may have been master. Raises SetupError for the first node, whose network
    all others use.
    """
    if lost == cluster[0]:
        raise SetupError(f"node {lost.arm}: the others have its network; lose another one")
    engine.docker("kill", "--signal", "KILL", lost.container)
    engine.docker("wait", lost.container)
    with opened_below(lost.data_dir, "indices") as folder:
        for copies in Path(f"/proc/self/fd/{folder}").iterdir():
            shutil.rmtree(copies)
    engine.docker("start", lost.container, timeout_s=_UP_S)
    arms, names, places = zip(*((node.arm, node.container, node.data_dir) for node in cluster), strict=True)
    return _wait(arms, names, places, image=lost.image)


def _remove_container(node: Node) -> None:
    network = f"{node.container.removesuffix('-node-1')}_default"
    for words in (("rm", "-f", "-v", node.container), ("network", "rm", network)):
        try:
            engine.docker(*words)
        except CommandError:
            continue  # already gone, or going; remove() and clean look again by label


@contextmanager
def running(volume: Volume, settings: NodeSettings, *, session: str, image: str) -> Iterator[Node]:
    """A node that is shut down cleanly after the block, and removed at once if the block fails."""
    (node,) = start([volume], settings, session=session, image=image)
    try:
        yield node
    except BaseException:
        engine.remove(session, arm=node.arm)
        raise
    stop(node)
