"""Real Elasticsearch nodes on directory volumes: limits in force, settings that arrive, ends of all kinds."""

import json
import os
import shutil
import signal
import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from loopback_server import free_port
from mounted import in_memory
from quick_node import JAVA_OPTS

from esrally_ebs import node
from esrally_ebs.errors import EbsError, SetupError
from esrally_ebs.machine.resources import resource
from esrally_ebs.model import Kind, Node, Volume, VolumeSpec
from esrally_ebs.node import api, engine, identity
from esrally_ebs.rally.cars import load_settings
from esrally_ebs.units import MIB

SETTINGS = load_settings(
    ["defaults", "niofs"],
    {
        "heap_size": "400m",
        "page_cache": "100m",
        "cpus": 1,
        "java_opts": JAVA_OPTS,
        "indices.queries.cache.size": "7%",
    },
)


pytestmark = [pytest.mark.system, pytest.mark.beside, pytest.mark.usefixtures("own_run")]


@pytest.fixture(scope="module")
def image() -> str:
    try:
        return node.choose_image(os.environ)
    except EbsError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def module_session() -> Iterator[str]:
    session = str(uuid.uuid4())
    yield session
    node.remove(session)
    assert session not in node.leftovers()


@pytest.fixture
def session() -> Iterator[str]:
    session = str(uuid.uuid4())
    yield session
    node.remove(session)
    assert session not in node.leftovers()


def directory_volume(path: Path, name: str = "gp2") -> Volume:
    path.mkdir(exist_ok=True)
    spec = VolumeSpec(name=name, type="directory", size_bytes=0)
    return Volume(spec=spec, kind=Kind.DIRECTORY, mount=path)


@pytest.fixture(scope="module")
def up(image: str, module_session: str, tmp_path_factory: pytest.TempPathFactory) -> Node:
    """One node for all tests that only look."""
    volume = directory_volume(tmp_path_factory.mktemp("volume") / "gp2")
    (started,) = node.start([volume], SETTINGS, session=module_session, image=image)
    return started


def request(port: int, method: str, path: str, body: str = "") -> Any:  # noqa: ANN401 - JSON
    headers = {"Content-Type": "application/x-ndjson" if path.endswith("_bulk") else "application/json"}
    call = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", method=method, data=body.encode() or None, headers=headers
    )
    with urllib.request.urlopen(call, timeout=30) as answer:
        return json.load(answer)


def docker_format(container: str, template: str) -> str:
    return engine.docker("inspect", "--format", template, container).strip()


def test_a_started_node_answers_with_its_version(up: Node) -> None:
    assert api.get(up.port, "/")["version"]["number"] == up.version


def test_the_port_is_published_on_this_machine_only(up: Node) -> None:
    ports = json.loads(docker_format(up.container, "{{json .NetworkSettings.Ports}}"))
    assert ports["9200/tcp"] == [{"HostIp": "127.0.0.1", "HostPort": str(up.port)}]
    assert not ports.get("9300/tcp")


def test_elasticsearch_does_not_run_as_root_and_can_gain_no_rights(up: Node) -> None:
    lines = Path(f"/proc/{up.pid}/status").read_text().splitlines()
    status = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    assert status["Uid"].split() == ["1000"] * 4
    assert (int(status["CapEff"], 16), status["NoNewPrivs"]) == (0, "1")


def test_the_pid_is_that_of_the_jvm_with_the_heap(up: Node) -> None:
    command = Path(f"/proc/{up.pid}/cmdline").read_bytes().split(b"\0")
    assert f"-Xmx{400 * MIB}".encode() in command


def test_the_memory_limit_is_in_force_and_is_heap_and_overhead_and_page_cache(up: Node) -> None:
    assert up.memory_cgroup is not None
    # 400 MiB + 300 MiB + 100 MiB
    limits = [up.memory_cgroup / name for name in ("memory.limit_in_bytes", "memory.max")]
    assert [int(path.read_text()) for path in limits if path.exists()] == [800 * MIB]
    assert str(up.pid) in (up.memory_cgroup / "cgroup.procs").read_text().split()


def test_the_processor_limit_reaches_the_jvm(up: Node) -> None:
    nodes = api.get(up.port, "/_nodes/os")["nodes"]
    assert [facts["os"]["allocated_processors"] for facts in nodes.values()] == [1]


def test_car_variables_reach_the_node(up: Node) -> None:
    (facts,) = api.get(up.port, "/_nodes/jvm,settings?flat_settings=true")["nodes"].values()
    assert facts["jvm"]["mem"]["heap_max_in_bytes"] == 400 * MIB
    assert facts["settings"]["index.store.type"] == "niofs"
    assert facts["settings"]["indices.queries.cache.size"] == "7%"


def test_data_is_on_the_volume_and_belongs_to_the_nodes_user(up: Node) -> None:
    assert up.data_dir.name == "elasticsearch"
    assert (up.data_dir / "_state").is_dir()
    assert {path.stat().st_uid for path in (up.data_dir, *up.data_dir.rglob("*"))} == {1000}


def test_a_running_node_is_found_as_its_sessions(up: Node, module_session: str) -> None:
    assert module_session in node.leftovers()
    assert node.death(up) is None


def test_a_node_of_another_run_directory_is_not_taken_for_left_behind(
    up: Node, module_session: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ESRALLY_EBS_RUN", str(tmp_path))
    assert module_session not in node.leftovers()


def test_a_setting_that_elasticsearch_refuses_is_named_and_leaves_nothing(
    image: str, session: str, tmp_path: Path
) -> None:
    settings = replace(SETTINGS, es_settings={"indices.querys.cache.size": "5%"})
    with pytest.raises(SetupError, match=r"unknown setting \[indices.querys.cache.size\]") as caught:
        node.start([directory_volume(tmp_path / "v")], settings, session=session, image=image)
    assert len(str(caught.value).splitlines()) == 1
    assert session not in node.leftovers()


def test_a_full_volume_is_named(image: str, session: str, tmp_path: Path) -> None:
    volume = directory_volume(tmp_path / "small")
    with in_memory(volume.mount, "size=64k"):
        try:
            with pytest.raises(SetupError, match=r"arm gp2: .* is full \(.* left\); make room"):
                node.start([volume], SETTINGS, session=session, image=image)
        finally:
            node.remove(session)


def test_a_killed_node_is_noticed_and_its_removal_leaves_nothing(
    image: str, session: str, tmp_path: Path
) -> None:
    volume = directory_volume(tmp_path / "v")
    (killed,) = node.start([volume], SETTINGS, session=session, image=image)
    os.kill(killed.pid, signal.SIGKILL)
    until = time.monotonic() + 10
    while node.death(killed) is None and time.monotonic() < until:
        time.sleep(0.1)
    assert "137" in (node.death(killed) or "")
    began = time.monotonic()
    node.remove(session)
    node.remove(session)  # again: nothing to do, no error
    assert time.monotonic() - began < 60
    assert node.death(killed) == "its container was removed"


def test_a_copied_data_directory_holds_the_same_segments_on_two_arms(
    image: str, session: str, tmp_path: Path
) -> None:
    first, second = directory_volume(tmp_path / "a", "gp2"), directory_volume(tmp_path / "b", "gp3")
    with node.running(first, SETTINGS, session=session, image=image) as source:
        request(
            source.port, "PUT", "/weather", '{"settings": {"number_of_shards": 1, "number_of_replicas": 0}}'
        )
        lines = "".join(f'{{"index": {{}}}}\n{{"TMAX": {number}}}\n' for number in range(500))
        assert request(source.port, "POST", "/weather/_bulk", lines)["errors"] is False
        request(source.port, "POST", "/weather/_forcemerge?max_num_segments=1")
        request(source.port, "POST", "/weather/_flush?force=true")
        built = node.segments(source)
    assert [(segment["index"], segment["docs"]) for segment in built] == [("weather", 500)]
    shutil.copytree(first.mount, second.mount, dirs_exist_ok=True)
    before = node.hashes(first.mount / "elasticsearch")
    with (
        node.running(first, SETTINGS, session=session, image=image) as one,
        node.running(second, SETTINGS, session=session, image=image) as other,
    ):
        assert node.segments(one) == node.segments(other) == built
        assert node.hashes(one.data_dir) == node.hashes(other.data_dir) == before
    assert session not in node.leftovers()


def test_copies_of_two_nodes_swap_roles_and_keep_their_segments(
    image: str, session: str, tmp_path: Path
) -> None:
    """As where one node ended before the other, and the copies of both are primary on disk."""
    on = [directory_volume(tmp_path / name, name) for name in ("gp3-1", "gp3-2")]
    cluster = node.start(on, SETTINGS, session=session, image=image)
    try:
        port = cluster[0].port
        request(port, "PUT", "/weather", '{"settings": {"number_of_shards": 2, "number_of_replicas": 1}}')
        lines = "".join(f'{{"index": {{}}}}\n{{"TMAX": {number}}}\n' for number in range(500))
        assert request(port, "POST", "/weather/_bulk", lines)["errors"] is False
        request(port, "POST", "/weather/_forcemerge?max_num_segments=1")
        request(port, "POST", "/weather/_flush?force=true")
        begun = identity.settled(cluster)
        assert Counter(shard.role for shard in begun) == {"primary": 2, "replica": 2}
        before = [node.hashes(each.data_dir) for each in cluster]
        other_role = {"primary": "replica", "replica": "primary"}
        swapped = tuple(sorted(replace(shard, role=other_role[shard.role]) for shard in begun))
        assert identity.settled_as(cluster, swapped) == swapped
        assert identity.settled_as(cluster, begun) == begun
        assert [node.hashes(each.data_dir) for each in cluster] == before
    finally:
        node.remove(session)


def test_a_node_by_hand_works_and_is_not_ours_to_clean(image: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, 1000, 0)
    port = free_port()
    by_hand = {"ES_IMAGE": image, "ES_PORT": str(port), "ES_DATA": str(data), "ES_MEMORY": "1g"}
    compose = ("compose", "-p", f"by-hand-{uuid.uuid4().hex[:8]}", "-f", str(resource("compose/node.yml")))
    try:
        engine.docker(*compose, "up", "-d", "--wait", timeout_s=120, env=by_hand)
        assert api.is_ready(port)
        assert (data / "_state").is_dir()
        assert "by-hand" not in node.leftovers()
    finally:
        engine.docker(*compose, "down", "-v", timeout_s=90, env=by_hand)
    with pytest.raises(SetupError, match=r"Connection refused.*; see the node's log"):
        api.get(port, "/")


def test_an_engine_that_is_down_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    with pytest.raises(SetupError, match="the engine does not answer; run 'make setup'"):
        node.choose_image({})
    with pytest.raises(SetupError, match="the engine does not answer"):  # its nodes may still run
        node.leftovers()
    assert node.folders_elsewhere() == []
