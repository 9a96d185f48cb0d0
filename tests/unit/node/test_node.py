"""What the pack makes of the words of engine, kernel and Elasticsearch, and what it asks Compose for."""

import itertools
import json
import os
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esrally_ebs import node
from esrally_ebs.errors import CommandError, SetupError
from esrally_ebs.machine import processes
from esrally_ebs.machine.resources import resource
from esrally_ebs.model import LOCAL_IMAGE, OFFICIAL_IMAGE, Kind, Volume, VolumeSpec
from esrally_ebs.node import cgroups, engine, life
from esrally_ebs.node.settings import compose_variables, environment_file
from esrally_ebs.rally.cars import load_settings
from esrally_ebs.units import MIB, parse_bytes


def settings(heap_mib: int = 512, memory_mib: int = 1068, cpus: float = 1) -> node.NodeSettings:
    return node.NodeSettings(heap_bytes=heap_mib * MIB, memory_bytes=memory_mib * MIB, cpus=cpus)


def compose_defaults() -> dict[str, str]:
    """Variable -> default of ``${NAME:-default}`` in the compose file."""
    return dict(re.findall(r"\$\{(\w+):-([^}]*)\}", resource("compose/node.yml").read_text()))


def test_a_node_that_keeps_its_indices_elsewhere_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(life.api, "get", lambda port, path: {"version": {"number": "7.17.29"}})
    container = engine.Container(pid=1, running=True, exit_code=0, out_of_memory=False, ports={9200: 1})
    with pytest.raises(SetupError, match=r"arm a: es:7 is of version 7\.17\.29; .* 8\.0 or later"):
        life._node("a", "container", container, 1, tmp_path, "es:7")


@pytest.mark.parametrize(
    ("more", "look_s", "waited_s"), [(10, 0, None), (2, 0, 5), (0, 0, 3), (0, 8, 35), (10, 8, None)]
)
def test_a_node_is_waited_for_as_long_as_more_of_its_shards_come(
    more: int, look_s: float, waited_s: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many of them, as a user's data may have, or on a busy machine, a start takes minutes."""
    asked, shards, now_s = itertools.count(), itertools.count(), [0.0]
    container = engine.Container(pid=1, running=True, exit_code=0, out_of_memory=False, ports={9200: 1})
    monkeypatch.setattr(engine, "inspect", lambda name: now_s.append(look_s) or container)
    monkeypatch.setattr(life.api, "is_ready", lambda *_, **__: next(asked) == 10)
    monkeypatch.setattr(life.api, "active_shards", lambda port: 7 + min(more, next(shards)))
    monkeypatch.setattr(life.api, "missing_shard", lambda port: "shard 3 is missing")
    monkeypatch.setattr(life, "_node", lambda arm, *_: arm)
    monkeypatch.setattr(life, "_check_room", lambda *_: None)
    monkeypatch.setattr(life, "_READY_S", 2.0)
    monkeypatch.setattr(life, "_POLL_S", 1.0)
    monkeypatch.setattr("time.monotonic", lambda: sum(now_s))
    monkeypatch.setattr("time.sleep", now_s.append)
    if waited_s is None:
        assert life._wait(["a"], ["c"], [tmp_path], image="i") == ("a",)
    else:
        with pytest.raises(SetupError, match=f"not ready after {waited_s} s: shard 3 is missing"):
            life._wait(["a"], ["c"], [tmp_path], image="i")


def test_a_node_whose_process_is_not_here_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with ``DOCKER_HOST=tcp://docker:2375`` in CI: the port that it publishes is there, not here."""
    no_pid = 2**31 - 1  # above any that the kernel gives
    container = engine.Container(pid=no_pid, running=True, exit_code=0, out_of_memory=False, ports={9200: 1})
    monkeypatch.setattr(engine, "inspect", lambda name: container)
    monkeypatch.setattr(life, "_POLL_S", 0.001)
    with pytest.raises(SetupError, match=r"arm a: the Docker engine does not share .* unset DOCKER_HOST"):
        life._wait(["a"], ["c"], [tmp_path], image="i")


def test_page_cache_is_what_heap_and_overhead_leave() -> None:
    # 1068 - 512 - 300
    assert node.page_cache_bytes(settings()) == 256 * MIB


@given(st.integers(1, 64 * 1024), st.integers(1, 64 * 1024))
def test_page_cache_is_never_negative_and_never_the_whole_limit(heap_mib: int, memory_mib: int) -> None:
    left = node.page_cache_bytes(settings(heap_mib, memory_mib))
    assert 0 <= left < memory_mib * MIB


def test_a_node_by_hand_is_the_default_car() -> None:
    car, by_hand = load_settings(["defaults"], {}), compose_defaults()
    assert parse_bytes(by_hand["ES_HEAP"]) == car.heap_bytes
    assert parse_bytes(by_hand["ES_MEMORY"]) == car.memory_bytes
    assert float(by_hand["ES_CPUS"]) == car.cpus
    assert by_hand["ES_STORE_TYPE"] == car.store_type
    assert by_hand["ES_IMAGE"] == OFFICIAL_IMAGE


def test_every_variable_that_settings_decide_is_in_the_compose_file() -> None:
    assert set(compose_variables(settings())) <= set(compose_defaults())


def test_every_compose_variable_that_a_user_sets_is_explained_in_its_head() -> None:
    text = resource("compose/node.yml").read_text()
    for name in compose_defaults().keys() - {
        "ES_NODE_NAME",
        "ES_HEALTH_INTERVAL",
        "EBS_SESSION",
        "EBS_ARM",
        "EBS_RUN",
    }:
        assert re.search(rf"^# {name} ", text, re.MULTILINE), name


def test_ports_are_published_on_this_machine_only() -> None:
    published = re.findall(r'- "([^"]*):9200"', resource("compose/node.yml").read_text())
    assert published == ["127.0.0.1:${ES_PORT:-9203}"]


def test_nodes_are_looked_for_by_one_name_of_the_run_directory_whatever_links_lead_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "var").symlink_to("run")  # as /var/run
    client = tmp_path / "docker"
    client.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    client.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("ESRALLY_EBS_RUN", str(tmp_path / "var" / "ebs"))
    node.remove("s")
    asked = (tmp_path / "asked").read_text().splitlines()
    assert len(asked) == 3
    assert all(f"label=esrally-ebs.run={tmp_path}/run/ebs --format" in words for words in asked)


def test_folders_of_sessions_elsewhere_are_known_by_what_compose_made_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = engine.project("s", "gp2")
    rows = [
        ["s", "gp2", of, f"{tmp_path}/run", f"{of}-node-1", "1"],  # of our own run directory
        ["s", "gp2", of, f"{tmp_path}/an other", f"{of}-node-1", "2"],
        ["s", "gp2", of, f"{tmp_path}/an other", f"{of}_default", "3"],
        ["s", "gp2", of, f"{tmp_path}/image", "somebodys", "4"],  # of an image that was made of one of ours
        ["..", "gp2", of, f"{tmp_path}/hostile", f"{of}-node-1", "5"],
        ["s", "gp2", of, "", f"{of}-node-1", "6"],  # started by hand, by our compose file
        ["", "", "", "", "plain", "7"],
    ]
    client = tmp_path / "docker"
    client.write_text("\n".join(["#!/bin/sh", "cat <<'END'", *map(json.dumps, rows), "END"]))
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("ESRALLY_EBS_RUN", str(tmp_path / "run"))
    assert engine.folders_elsewhere() == [tmp_path / "an other" / "s"]


def test_settings_reach_compose_without_interpolation() -> None:
    assert (
        environment_file({"node.attr.b": "it's $HOME", "a.b": "1"}) == "a.b='1'\nnode.attr.b='it\\'s $HOME'\n"
    )


V1 = "4:memory:/docker/f231\n1:cpu,cpuacct:/docker/f231\n0::/docker/f231\n"
V2 = "0::/system.slice/docker-f231.scope\n"
V1_MOUNT = "36 29 0:31 / /sys/fs/cgroup/memory rw shared:1 - cgroup cgroup rw,memory\n"
CPU_MOUNT = "37 29 0:32 / /sys/fs/cgroup/cpu rw shared:2 - cgroup cgroup rw,cpu,cpuacct\n"
V2_MOUNT = "38 29 0:33 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
NESTED_MOUNT = "36 29 0:31 /docker/outer /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"


@pytest.mark.parametrize(
    ("group", "mounts", "expected"),
    [
        (V1, CPU_MOUNT + V1_MOUNT + V2_MOUNT, "/sys/fs/cgroup/memory/docker/f231"),
        (V2, V2_MOUNT, "/sys/fs/cgroup/unified/system.slice/docker-f231.scope"),
        ("4:memory:/docker/outer/docker/f231\n", NESTED_MOUNT, "/sys/fs/cgroup/memory/docker/f231"),
        (V1, CPU_MOUNT, None),
    ],
    ids=["version 1", "version 2", "in a container", "not mounted"],
)
def test_the_memory_cgroup_is_found(group: str, mounts: str, expected: str | None) -> None:
    assert cgroups.directory_of(group, mounts, "memory") == (Path(expected) if expected else None)


def test_the_group_that_counts_processor_time_is_another_in_version_1() -> None:
    mounts = "37 29 0:32 / /sys/fs/cgroup/cpuacct rw shared:2 - cgroup cgroup rw,cpu,cpuacct\n" + V1_MOUNT
    directory = cgroups.directory_of(V1, mounts, "cpuacct")
    assert directory == Path("/sys/fs/cgroup/cpuacct/docker/f231")


RUNNING = """[{"Id": "f231", "State": {"Status": "running", "Pid": 42, "ExitCode": 0, "OOMKilled": false},
  "NetworkSettings": {"Ports": {"9200/tcp": [{"HostIp": "127.0.0.1", "HostPort": "32768"}]}}}]"""
EXITED = """[{"Id": "f231", "State": {"Status": "exited", "Pid": 0, "ExitCode": 137, "OOMKilled": true},
  "NetworkSettings": {"Ports": {}}}]"""


def test_a_containers_state_is_read() -> None:
    up, ended = engine.parse_inspect(RUNNING), engine.parse_inspect(EXITED)
    assert (up.running, up.pid, up.ports) == (True, 42, {9200: 32768})
    assert (ended.running, ended.exit_code, ended.out_of_memory, ended.ports) == (False, 137, True, {})


BAD_SETTING = """[2026-11-21T05:38:01,628][INFO ][o.e.n.Node] [gp2] initialized
[2026-11-21T05:38:01,628][ERROR][o.e.b.Elasticsearch] [gp2] fatal exception while booting Elasticsearch \
java.lang.IllegalArgumentException: unknown setting [foo.bar]
\tat org.elasticsearch.server@8.8.2/org.elasticsearch.common.settings.A.validate(A.java:561)
ERROR: Elasticsearch did not exit normally - check the logs at /logs/docker-cluster.log
"""


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (BAD_SETTING, "java.lang.IllegalArgumentException: unknown setting [foo.bar]"),
        # the engine copies stdout and stderr by two threads, so their lines may swap
        (
            "\n".join(reversed(BAD_SETTING.splitlines())),
            "java.lang.IllegalArgumentException: unknown setting [foo.bar]",
        ),
        (
            "[t][ERROR][o.e.b.Elasticsearch] [a] fatal exception while booting Elasticsearch java.lang."
            "IllegalStateException: cannot start with [discovery.type] set to [single-node] when local node "
            f"{{a}}{{{'x' * 400}}} does not have quorum in voting configuration VotingConfiguration{{a,b}}\n",
            "its data are of a node that was one of several; restore the indices to a single node, from a "
            "snapshot, stop that, and give its data (or give the snapshot)",
        ),
        ("ERROR: Elasticsearch exited unexpectedly\n", "ERROR: Elasticsearch exited unexpectedly"),
        ("Error: Could not find or load main class Foo\n", "Could not find or load main class Foo"),
        ("[t][WARN ][o.e.x] disk is slow\n[t][INFO ][o.e.n.Node] closed\n", "disk is slow"),
        (
            "[t][ERROR][o.e.x.c.s.SSLService] unsupported ciphers [[X]]\n[t][INFO ][o.e.n] up\n",
            "[t][INFO ][o.e.n] up",
        ),
        ("one\ntwo\n", "one | two"),
        ("", "no output"),
    ],
)
def test_the_reason_of_an_end_is_the_first_complaint_of_the_log(log: str, expected: str) -> None:
    assert engine.reason(log) == expected


@given(st.text())
def test_a_reason_is_one_short_line_whatever_the_log_holds(log: str) -> None:
    reason = engine.reason(log)
    assert len(reason) <= 400
    assert len(reason.splitlines()) <= 1


@pytest.mark.parametrize(
    ("message", "kind", "next_step"),
    [
        (
            "Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?",
            engine.EngineDownError,
            "make setup",
        ),
        (
            "failed to connect to the docker API at unix:///x; check if the path is correct and if it",
            engine.EngineDownError,
            "make setup",
        ),
        (
            'error during connect: Get "http://docker.example.com/v1.50/x": command [ssh -- x docker]',
            engine.EngineDownError,
            "make setup",
        ),
        (
            "permission denied while trying to connect to the Docker daemon socket",
            engine.EngineDownError,
            "usermod",
        ),
        ("docker: unknown command: docker compose", SetupError, "set HOME back"),
        (
            'Error response from daemon: invalid mount config for type "bind": bind source path does not '
            "exist: /run/esrally-ebs/s/a/mnt/elasticsearch",
            SetupError,
            "unset DOCKER_HOST",
        ),
        ("docker compose up: exit code 1: something else", CommandError, "something else"),
    ],
)
def test_what_an_engine_says_gets_a_next_step(message: str, kind: type[SetupError], next_step: str) -> None:
    error = engine.explained(message)
    assert type(error) is kind
    assert next_step in str(error)


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ``docker`` on the PATH that knows the images listed in the returned file, and nothing else."""
    client, listing = tmp_path / "docker", tmp_path / "images"
    client.write_text(
        f'#!/bin/sh\ngrep -qxF "$5" {listing} || {{ echo "Error: No such image: $5" >&2; exit 1; }}\n'
    )
    client.chmod(0o755)
    listing.write_text("")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return listing


def test_a_pulled_official_image_comes_before_the_local_one(images: Path) -> None:
    images.write_text(f"{LOCAL_IMAGE}\n")
    assert node.choose_image({}) == LOCAL_IMAGE
    images.write_text(f"{LOCAL_IMAGE}\n{OFFICIAL_IMAGE}\n")
    assert node.choose_image({}) == OFFICIAL_IMAGE


def test_the_users_image_is_taken_or_refused_but_never_replaced(images: Path) -> None:
    images.write_text(f"{LOCAL_IMAGE}\nmine:1\n")
    assert node.choose_image({"ES_IMAGE": "mine:1"}) == "mine:1"
    with pytest.raises(SetupError, match="ES_IMAGE=mine:2: not on this machine; run: docker pull mine:2"):
        node.choose_image({"ES_IMAGE": "mine:2"})


def test_without_any_image_both_ways_to_get_one_are_named(images: Path) -> None:
    with pytest.raises(SetupError, match=r"docker pull docker\.elastic\.co/.*'make image'"):
        node.choose_image({})


def test_without_docker_nothing_is_left_over_and_nothing_to_remove(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(processes, "_OFTEN_LEFT_OUT", str(tmp_path))
    with pytest.raises(SetupError, match="docker: not installed"):
        node.leftovers()
    assert node.folders_elsewhere() == []
    node.remove("0c9e6d1c-0000-4000-8000-000000000000")
    with pytest.raises(SetupError, match="docker: not installed; run 'make setup'"):
        node.choose_image({})


OURS = {
    engine.SESSION_LABEL: "nightly",
    "esrally-ebs.arm": "gp2",
    "com.docker.compose.project": engine.project("nightly", "gp2"),
    "esrally-ebs.run": "/run/esrally-ebs",
}
# One line of each is as of a container of ours that is called "thesis".
FORGED = [
    {**OURS, engine.SESSION_LABEL: "\t".join((*OURS.values(), f"thesis{end}x"))} for end in "\n\r\x85\t"
]


@pytest.mark.parametrize(("labels", "sessions"), [(OURS, ["nightly"]), *((forged, []) for forged in FORGED)])
def test_a_label_of_several_lines_names_no_other_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labels: dict[str, str], sessions: list[str]
) -> None:
    """Root once removed whatever container the author of an image had thought of."""
    client = tmp_path / "docker"
    client.write_text(
        rf"""#!{sys.executable} -I
import json, re, sys
form, labels = sys.argv[-1], {labels!r}
as_json = lambda of: json.dumps(labels[of[1]], ensure_ascii=False)
form = re.sub(r'{{{{json \(\.Label "(.*?)"\)}}}}', as_json, form)
form = re.sub(r'{{{{\.Label "(.*?)"}}}}', lambda of: labels[of[1]], form)
form = form.replace("{{{{json .Names}}}}", '"{engine.project("nightly", "gp2")}-node-1"')
if sys.argv[1] == "ps":
    print(form.replace("{{{{json .ID}}}}", '"f231"').replace("{{{{.ID}}}}", "f231"))
"""
    )
    client.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert node.leftovers() == sessions


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to the node's user")
def test_a_node_is_given_its_data_whatever_the_path_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, override = tmp_path / "docker", tmp_path / "override.yml"
    client.write_text(f'#!/bin/sh\n[ "$1" = compose ] || exit 0\ncp "$7" {override}\nexit 1\n')
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    mount = tmp_path / "nfs:" / "data$"
    mount.mkdir(parents=True)
    spec = VolumeSpec(name="a", type="directory", size_bytes=0)
    with pytest.raises(CommandError, match="arm a: the node's container cannot be started"):
        life.start([Volume(spec=spec, kind=Kind.DIRECTORY, mount=mount)], settings(), session="s", image="i")
    (bound,) = json.loads(override.read_text())["services"]["node"]["volumes"]
    assert bound["source"] == str(mount / "elasticsearch").replace("$", "$$")
    assert bound["target"] == "/usr/share/elasticsearch/data"
    assert resource("compose/node.yml").read_text().count(f':{bound["target"]}"') == 1


def test_a_users_settings_of_compose_change_neither_names_nor_variables_of_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, seen, asked = tmp_path / "docker", tmp_path / "seen", tmp_path / "asked"
    say = f'echo "$COMPOSE_COMPATIBILITY,$COMPOSE_ENV_FILES" >{seen}'
    client.write_text(f'#!/bin/sh\necho "$*" >>{asked}\n[ "$1" = compose ] || exit 0\n{say}\nexit 1\n')
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("COMPOSE_COMPATIBILITY", "true")  # names end in "_node_1" then
    monkeypatch.setenv("COMPOSE_ENV_FILES", "of-another-project.env")
    monkeypatch.setattr(life, "prepare_data_dir", lambda volume, _: volume.mount)
    spec = VolumeSpec(name="a", type="directory", size_bytes=0)
    volume = Volume(spec=spec, kind=Kind.DIRECTORY, mount=tmp_path)
    with pytest.raises(CommandError, match="arm a: the node's container cannot be started"):
        life.start([volume], settings(), session="s", image="i")
    assert seen.read_text() == "false,\n"
    up, *of_removal = asked.read_text().splitlines()
    assert up.startswith("compose ")
    assert of_removal  # what was begun goes
    assert all("label=esrally-ebs." in words for words in of_removal)


def directory_volume(path: Path) -> Volume:
    spec = VolumeSpec(name="gp2", type="directory", size_bytes=0)
    return Volume(spec=spec, kind=Kind.DIRECTORY, mount=path)


def test_a_volume_that_is_not_mounted_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"arm gp2: .*/gone/elasticsearch: .*must be mounted"):
        life.prepare_data_dir(directory_volume(tmp_path / "gone"))


def test_more_processors_than_the_machine_has_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="cpus: the car asks for 4096"):
        node.start([directory_volume(tmp_path)], settings(cpus=4096), session="s", image="none")


@given(st.uuids(), st.from_regex(r"[a-z0-9][a-z0-9-]{0,30}", fullmatch=True))
def test_compose_takes_every_project_name(session: object, arm: str) -> None:
    assert re.fullmatch(r"[a-z0-9][a-z0-9_-]*", engine.project(str(session), arm))
