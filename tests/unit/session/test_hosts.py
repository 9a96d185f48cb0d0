"""Data hosts of a session: what their arms get, what is asked of all of them, and what clean asks them."""

import json
import os
import re
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from stand_in_ssh import GREETING, HELPER, StandIn

from esrally_ebs.checks.arms import Guarded
from esrally_ebs.cli import main
from esrally_ebs.errors import MeasurementError, PlanError, SetupError
from esrally_ebs.model import AwsSpec, Check, Kind, Severity, State, Volume, VolumeSpec, session_name
from esrally_ebs.node.dataset import Dataset, content_hash
from esrally_ebs.plan import load_plan
from esrally_ebs.plan.tables import HostPlan
from esrally_ebs.session import host, host_client, hosts
from esrally_ebs.session.keeper import root_steps
from esrally_ebs.store import SessionFolder, running
from esrally_ebs.store.context import Arm, Context, Member, load_context
from esrally_ebs.store.encoding import dump, seal

pytestmark = pytest.mark.usefixtures("own_folders")


def data_hosts(
    tmp_path: Path,
    stand_in: StandIn,
    *,
    start_helper: Callable[[HostPlan, Sequence[str]], host_client.HostClient] = host_client.HostClient,
) -> tuple[hosts.DataHosts, Path]:
    """Two hosts whose helpers answer with nothing, and the file of what they were asked."""
    requests = tmp_path / "requests"
    stand_in(f"""print({GREETING!r}, flush=True)
for line in iter(lambda: next(filter(str.strip, sys.stdin), "end\\n"), "end\\n"):
    with open({str(requests)!r}, "a") as file:
        file.write(line)
    number, result = line.split()[0], "{{}}" if "facts" in line else "null"
    print('{{"id": "%s", "result": %s}}' % (number, result), flush=True)
print('{{"left": []}}', flush=True)""")
    plan = tmp_path / "p.toml"
    tables = '[[host]]\nname = "{0}"\nssh = "h"\n[[arm]]\nname = "{0}"\ntype = "gp3"\nhost = "{0}"\n'
    plan.write_text('name = "p"\n' + "".join(map(tables.format, "ab")))
    steps = hosts.DataHosts(load_plan(plan), start_reaper=lambda *_: None, start_helper=start_helper)
    steps.preflight()
    return steps, requests


def test_hosts_that_are_one_machine_have_a_session_each(tmp_path: Path, stand_in: StandIn) -> None:
    steps, requests = data_hosts(tmp_path, stand_in)
    session = "s" * 81
    steps.begin(session, tmp_path / "session", ())
    assert steps.take_down() == []
    asked = [json.loads(line.partition(" ")[2]) for line in requests.read_text().splitlines()]
    begun = [each["arguments"]["session"] for each in asked if each["operation"] == "begin_here"]
    assert len({session, *map(session_name, begun)}) == 3


def test_a_host_on_which_aws_makes_arms_has_minutes_to_take_them_down(
    tmp_path: Path, stand_in: StandIn
) -> None:
    """A file system or a volume that is detached takes longer than what is of the machine."""
    steps, _ = data_hosts(tmp_path, stand_in)
    steps.begin("s", tmp_path / "session", ())
    before = steps.ends_within_s()
    made = VolumeSpec(name="a", type="gp3", size_bytes=1 << 30, host="a", aws=AwsSpec())
    with pytest.raises(SetupError, match="host a: what it answers"):
        steps.attach((made, VolumeSpec(name="b", type="gp3", host="b")))
    assert [steps._clients[name].leaves_s for name in "ab"] == [900.0, 45.0]
    assert (before, steps.ends_within_s()) == (20.0, 900.0)
    assert steps.take_down() == []


class Unclosable(host_client.HostClient):
    """One whose end fails for a reason that nobody thought of."""

    def close(self) -> list[str]:
        super().close()
        raise RuntimeError("why")


def test_all_else_is_taken_down_when_a_helper_cannot_be_ended(tmp_path: Path, stand_in: StandIn) -> None:
    steps, _ = data_hosts(tmp_path, stand_in, start_helper=Unclosable)
    steps.begin("s", tmp_path / "session", ())
    assert steps.take_down() == [
        f"host {name}: RuntimeError('why'); run 'esrally-ebs clean' there" for name in "ab"
    ]
    assert not any((tmp_path / "run").glob("*"))


def mounted(name: str, host_: str, kind: Kind, device: str | None, identity: str) -> Volume:
    spec = VolumeSpec(name=name, type=name, mount=Path("/mnt/v"), host=host_)
    return Volume(spec=spec, kind=kind, mount=Path("/mnt/v/s"), device=device, identity=identity)


@pytest.mark.parametrize(
    ("boots", "kind", "identities", "one"),
    [
        ("xx", Kind.DIRECTORY, ("/dev/sdb", "/dev/sdb"), "sdb"),
        ("xy", Kind.DIRECTORY, ("/dev/sdb", "/dev/sdb"), ""),
        ("xy", Kind.EBS, ("vol-1 vol-2", "vol-3 vol-2"), "vol-2"),  # attached to both
        ("xx", Kind.EBS, ("vol-1", "vol-2"), ""),
    ],
)
def test_two_hosts_do_not_measure_one_volume(
    boots: str, kind: Kind, identities: tuple[str, str], one: str
) -> None:
    on = [
        mounted(name, host_, kind, "sdb" if kind is Kind.DIRECTORY else None, identity)
        for name, host_, identity in zip(("gp2", "gp3"), "ab", identities, strict=True)
    ]
    line = f"volumes 'gp2' and 'gp3': /mnt/v of host a and /mnt/v of host b are on one device ({one}); give"
    refused = pytest.raises(PlanError, match=rf"^{re.escape(line)}") if one else nullcontext()
    with refused:
        hosts._require_distinct(on, dict(zip("ab", boots, strict=True)))


def test_arms_on_two_hosts_that_differ_in_their_settings_are_refused(tmp_path: Path) -> None:
    plan = tmp_path / "p.toml"
    tables = '[[host]]\nname = "{0}"\nssh = "h"\n[[arm]]\nname = "{1}"\ntype = "{1}"\nmount = "/mnt/v"\n'
    both = (("a", "gp2", "xfs"), ("b", "gp3", "ext4"))
    plan.write_text('name = "p"\n' + "".join(f'{tables.format(a, arm)}host = "{a}"\n' for a, arm, _ in both))
    steps = hosts.DataHosts(load_plan(plan), start_reaper=lambda *_: None)
    arms = []
    for name, arm, filesystem in both:
        volume = replace(mounted(arm, name, Kind.DIRECTORY, "sdb", ""), filesystem=filesystem)
        arms.append(Arm(name=arm, cluster=arm, members=(Member(volume=volume),)))
        seen = Guarded(arms=(arms[-1],), checks=(Check(name="filesystem", ok=True, value="", text=""),))
        there = SimpleNamespace(look=lambda seen=seen, **_: seen, boot_id=lambda name=name: name)
        steps._clients[name] = cast(host_client.HostClient, SimpleNamespace(steps=there))
    with pytest.raises(MeasurementError, match=r"^filesystem: arms differ in filesystem: gp2 xfs, gp3 ext4;"):
        steps.look(tuple(arms)).require()


def test_directories_of_two_hosts_may_be_on_one_disk_as_those_of_one_machine(tmp_path: Path) -> None:
    """They are to try the pack, and no volumes that are compared."""
    plan = tmp_path / "p.toml"
    host_ = '[[host]]\nname = "{0}"\nssh = "h"\n'
    arm = '[[arm]]\nname = "{0}"\ntype = "directory"\nmount = "/x"\nhost = "{0}"\n'
    plan.write_text('name = "p"\n' + "".join((host_ + arm).format(name) for name in "ab"))
    steps = hosts.DataHosts(load_plan(plan), start_reaper=lambda *_: None)
    arms = []
    for spec in load_plan(plan).arm:
        volume = Volume(spec=spec, kind=Kind.DIRECTORY, mount=Path("/tmp"), device="sda")
        arms.append(Arm(name=spec.name, cluster=spec.name, members=(Member(volume=volume),)))
        seen = Guarded(arms=(arms[-1],))
        there = SimpleNamespace(look=lambda seen=seen, **_: seen, boot_id=lambda: "x")
        steps._clients[str(spec.host)] = cast(host_client.HostClient, SimpleNamespace(steps=there))
        steps.facts[str(spec.host)] = {}
    assert steps.look(tuple(arms)).arms == tuple(arms)


def test_hosts_of_different_kinds_are_a_warning() -> None:
    like: dict[str, object] = {"kernel": "6.1", "cores": 2, "memory_bytes": 8_056_623_104, "fio": "fio-3.33"}
    assert hosts.hosts_alike({"a": like, "b": dict(like)}).ok
    assert hosts.hosts_alike({"a": like, "b": like | {"memory_bytes": 8_056_614_912}}).ok  # KiB at each boot
    check: Check = hosts.hosts_alike({"a": like, "b": like | {"cores": 4}})
    assert (check.ok, check.severity) == (False, Severity.WARN)
    assert check.text == "arms are on different machines: cores: a 2, b 4"


def test_volumes_of_hosts_are_not_attached_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "p.toml"
    plan.write_text(
        'name = "p"\n[[host]]\nname = "a"\nssh = "h"\n[[arm]]\nname = "gp3"\ntype = "gp3"\nhost = "a"\n'
    )
    assert main(["volumes", "up", str(plan)]) == 2
    line = "host: 'volumes up' is not done on other machines yet; remove the hosts"
    assert capsys.readouterr().err == f"esrally-ebs: {plan}: {line}\n"


@pytest.fixture
def on_two_hosts(tmp_path: Path, stand_in: StandIn) -> Iterator[tuple[hosts.DataHosts, Context]]:
    """A session with an arm on each of two helpers of this machine, which has been published."""
    stand_in(HELPER)
    plan = tmp_path / "p.toml"
    tables = '[[host]]\nname = "{0}"\nssh = "h"\n[[arm]]\nname = "{1}"\ntype = "directory"\nhost = "{0}"\n'
    plan.write_text('name = "p"\n' + tables.format("a", "one") + tables.format("b", "two"))
    loaded = load_plan(plan)
    steps = hosts.DataHosts(loaded, start_reaper=lambda *_: None)
    folder = SessionFolder.create(tmp_path / "home", "s", kind="race", plan=loaded)
    try:
        steps.preflight()
        steps.begin("s", folder.path, ())
        volumes = steps.attach(loaded.arm)
        arms = tuple(
            Arm(name=volume.spec.name, cluster=volume.spec.name, members=(Member(volume=volume),))
            for volume in volumes
        )
        arms = steps.look(arms).arms
        run = tmp_path / "run" / "s"
        yield steps, steps.publish(Context(session="s", folder=folder.path, run=run, plan=loaded, arms=arms))
    finally:
        assert steps.take_down() == []


def index_in(folder: Path) -> Dataset:
    """What looks like one that was built."""
    files = folder / "elasticsearch" / "indices" / "u" / "0" / "index"
    files.mkdir(parents=True)
    (files / "_0.cfs").write_bytes(os.urandom(700_000))
    (files / "_0.si").write_bytes(b"")
    facts = {"documents": 1, "bytes": 700_000, "segments": (), "hash": content_hash(folder / "elasticsearch")}
    made = Dataset(key="k", path=folder, **facts)
    (folder / "dataset.json").write_text(seal(dump(made)))
    return made


def test_an_index_comes_to_its_arms_byte_for_byte_and_stays_for_later(
    tmp_path: Path, on_two_hosts: tuple[hosts.DataHosts, Context]
) -> None:
    steps, context = on_two_hosts
    index = index_in(tmp_path / "index")
    said: list[str] = []
    for arm in context.arms:
        steps.copy_to(index, arm.volumes, said.append)
        assert steps.content_hash((arm.name,)) == index.hash
        assert content_hash(arm.volume.mount / "elasticsearch") == index.hash
    assert said == ["Copying the index to host a once; later sessions find it there"]  # b has the same home
    assert not any((tmp_path / "home" / "datasets").glob("*.unfinished"))


@pytest.fixture
def of_three(tmp_path: Path, stand_in: StandIn) -> Iterator[tuple[hosts.DataHosts, Arm]]:
    """A session of an arm whose three volumes are on two helpers of this machine, attached."""
    stand_in(HELPER)
    plan = tmp_path / "p.toml"
    tables = '[[host]]\nname = "{0}"\nssh = "h"\naddress = "10.0.0.2"\n'
    arm = '[[arm]]\nname = "one"\ntype = "directory"\nhosts = ["b", "a", "b"]\n[node]\ncount = 3\n[race]\n'
    plan.write_text('name = "p"\n' + tables.format("a") + tables.format("b") + arm)
    loaded = load_plan(plan)
    steps = hosts.DataHosts(loaded, start_reaper=lambda *_: None)
    steps._clients = {each.name: host_client.HostClient(each, ["one"]) for each in loaded.host}
    try:
        steps.begin("s", SessionFolder.create(tmp_path / "home", "s", kind="race", plan=loaded).path, ())
        volumes = steps.attach(loaded.volumes_of(loaded.arm[0]))
        yield steps, Arm(name="one", cluster="one", members=tuple(Member(volume=each) for each in volumes))
    finally:
        assert steps.take_down() == []


def test_each_host_of_an_arm_gets_what_its_nodes_have_of_an_index(
    tmp_path: Path, of_three: tuple[hosts.DataHosts, Arm]
) -> None:
    steps, arm = of_three
    parts = [index_in(tmp_path / "index" / number) for number in "123"]
    places = [part.path / "elasticsearch" for part in parts]
    index = replace(parts[0], path=tmp_path / "index", nodes=3, hash=content_hash(*places))
    said: list[str] = []
    for _ in range(2):
        steps.copy_to(index, arm.volumes, said.append)
    assert [line.partition(" once")[0] for line in said] == [
        f"Copying the index to host {name}" for name in "ba"
    ]
    kept = sorted((tmp_path / "home" / "datasets").iterdir())
    assert [path.name.rpartition("-")[2] for path in kept] == ["13", "2"]
    assert [content_hash(volume.mount / "elasticsearch") for volume in arm.volumes] == [
        content_hash(place) for place in places
    ]
    assert steps.content_hash(tuple(volume.spec.name for volume in arm.volumes)) == index.hash


def test_an_arm_on_several_hosts_is_looked_at_and_observed_node_by_node(
    tmp_path: Path, of_three: tuple[hosts.DataHosts, Arm]
) -> None:
    steps, arm = of_three
    (looked,) = steps.look((arm,)).arms
    assert [(volume.spec.name, volume.spec.host) for volume in looked.volumes] == [
        ("one-1", "b"),
        ("one-2", "a"),
        ("one-3", "b"),
    ]
    assert looked.recorded.spec.hosts == ("b", "a", "b")
    run = tmp_path / "run" / "s"
    folder = tmp_path / "home" / "sessions" / "s"
    steps.publish(Context(session="s", folder=folder, run=run, plan=steps._plan, arms=(looked,)))
    assert len(steps.counters("one")) == 3
    assert {point.arm for point in steps.sample().points} == {"one-1", "one-2", "one-3"}
    assert steps.cause("one") is None
    looked.volumes[1].mount.rename(tmp_path / "gone")
    assert str(steps.cause("one")).startswith("host a: arm one-2: ")
    (tmp_path / "gone").rename(looked.volumes[1].mount)


def test_a_host_whose_nodes_would_not_be_reached_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = tmp_path / "maps"
    monkeypatch.setattr(host, "_MAPS", maps)
    maps.write_text("262144\n")
    host._require_reachable("127.0.0.1")
    with pytest.raises(SetupError, match=r"^address 192\.0\.2\.1: Cannot assign requested address; give one"):
        host._require_reachable("192.0.2.1")
    maps.write_text("65530\n")
    with pytest.raises(SetupError, match=r"run: sysctl -w vm\.max_map_count=262144$"):
        host._require_reachable("127.0.0.1")


def test_other_processes_ask_by_the_context(on_two_hosts: tuple[hosts.DataHosts, Context]) -> None:
    _, context = on_two_hosts
    client = hosts.hosts_of(load_context(context.path))
    assert client is not None
    assert client.counters("two")[0].keys() >= {"processor.busy_s", "processor.stolen_s"}
    second = client.sample()
    assert {point.arm for point in second.points} == {"one", "two"}
    assert all(abs(point.at_s - time.time()) < 60 for point in second.points)
    assert root_steps(context).cause("one") is None
    clocks = [event for event in SessionFolder(context.folder).events() if event.kind == "clock"]
    assert [event.fields["host"] for event in clocks] == ["a", "b"]
    with pytest.raises(PlanError, match="there is no such operation"):
        client.take_down()


def test_a_clock_that_is_set_in_a_race_is_compared_again_at_once(
    on_two_hosts: tuple[hosts.DataHosts, Context],
) -> None:
    steps, _ = on_two_hosts
    steps.sample()
    last = steps._clocks["a"]
    steps._clocks["a"] = replace(last, ahead_s=last.ahead_s - 300)  # as if it had been set since
    assert all(abs(point.at_s - time.time()) < 60 for point in steps.sample().points)
    assert steps._clocks["a"].ahead_s == pytest.approx(last.ahead_s, abs=1.0)


def test_a_host_without_room_for_an_index_says_where(tmp_path: Path) -> None:
    steps = host.HostSteps(start_reaper=lambda *_: None)
    steps.begin_here("s")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # as a disk that has no more
    try:
        with pytest.raises(
            SetupError, match=rf"^{tmp_path}/home/datasets/.*/_0\.cfs: File too large; make room"
        ):
            steps.receive("k", "_0.cfs", b"x" * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert steps.take_down() == []
    assert not any((tmp_path / "home" / "datasets").iterdir())


def ended_on(tmp_path: Path, *names: str, more: str = "") -> SessionFolder:
    """A record of a session whose arms were on these hosts."""
    plan = tmp_path / "p.toml"
    tables = '[[host]]\nname = "{0}"\nssh = "{0}"\n{1}[[arm]]\nname = "{0}"\ntype = "gp3"\nhost = "{0}"\n'
    plan.write_text('name = "p"\n' + "".join(tables.format(name, more) for name in names))
    return SessionFolder.create(tmp_path / "home", "s", kind="race", plan=load_plan(plan))


def fails_on(tmp_path: Path, *names: str, more: str = "") -> None:
    ended_on(tmp_path, *names, more=more).finish(State.FAILED, reason="why")


@pytest.mark.parametrize(
    ("more", "engine", "silence"),
    [
        ("", "", ""),
        (
            'docker = "unix:///nowhere/docker.sock"\n',
            "DOCKER_HOST=unix:///nowhere/docker.sock ",
            "host a: engine unix:///nowhere/docker.sock cannot be asked what it holds: docker: the engine "
            "does not answer; ",
        ),
    ],
)
def test_clean_names_what_a_host_still_holds_and_the_engine_that_says_nothing(
    more: str,
    engine: str,
    silence: str,
    tmp_path: Path,
    stand_in: StandIn,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fails_on(tmp_path, "a", more=more)
    stand_in(HELPER)
    assert main(["clean"]) == 0
    out, err = capsys.readouterr()
    assert not err
    assert (silence in " ".join(out.split())) if silence else "host a" not in out
    running.begin("s-a")
    assert main(["clean"]) == 3
    line = f"host a: still holds session s-a; run '{engine}esrally-ebs clean' there"
    assert capsys.readouterr().err == f"esrally-ebs: {line}\n"


def test_clean_asks_all_hosts_at_once_and_names_those_that_cannot_be_asked(
    tmp_path: Path, stand_in: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    fails_on(tmp_path, "a", "b")
    # each refuses once both were called
    stand_in(f"""open(os.path.join({str(tmp_path)!r}, "called-" + sys.argv[-2]), "w").close()
until = time.monotonic() + 10
while time.monotonic() < until and not all(
    os.path.exists(os.path.join({str(tmp_path)!r}, "called-" + each)) for each in "ab"
):
    time.sleep(0.01)
sys.exit("Connection refused" if time.monotonic() < until else "alone")""")
    assert main(["clean"]) == 0
    out, err = capsys.readouterr()
    assert not err
    for name in "ab":
        assert f"host {name}: no helper by ssh {name}: Connection refused; see" in out.replace("\n", " ")


@pytest.mark.parametrize(("warning", "code"), [("host a: /mnt/gp3 is busy", 3), ("host b: is slow", 0)])
def test_clean_asks_a_host_on_which_a_complete_session_left_something(
    warning: str, code: int, tmp_path: Path, stand_in: StandIn
) -> None:
    folder = ended_on(tmp_path, "a")
    folder.add_warning(warning)
    folder.finish(State.COMPLETE)
    stand_in(HELPER)
    running.begin("s-a")
    assert main(["clean"]) == code
