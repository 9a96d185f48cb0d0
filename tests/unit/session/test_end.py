"""A session that fails is taken down, whatever else fails with it."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from es_gp3 import node_of
from small_plan import small_plan

from esrally_ebs.aws.provision.journal import JOURNAL_NAME
from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.model import Kind, Node, State, Volume, VolumeSpec
from esrally_ebs.node import NodeSettings, dataset, identity
from esrally_ebs.node.data_directory import DataDirectory
from esrally_ebs.plan import parse_plan
from esrally_ebs.session.protocol import LiveSession
from esrally_ebs.session.root_steps import RootSteps
from esrally_ebs.session.steps import MachineSteps, RaceNodes
from esrally_ebs.store import load_session
from esrally_ebs.store.context import STAYS, Arm, Context, Member
from esrally_ebs.volumes import backends as volumes

PLAN = 'name = "x"\n[[arm]]\nname = "a"\ntype = "directory"\nmount = "/mnt"\n'


def race_nodes(source: DataDirectory | None, *, has_writes: bool = False) -> RaceNodes:
    settings = NodeSettings(heap_bytes=1, memory_bytes=1, cpus=0)
    return RaceNodes(settings=settings, source=source, prepare_corpus=lambda: None, has_writes=has_writes)


def emulated(mount: Path, name: str = "a", **changes: object) -> Volume:
    spec = VolumeSpec(name=name, type="gp3")
    return Volume(spec=spec, kind=Kind.EMULATED, mount=mount, **changes)  # type: ignore[arg-type]


def unmounted_arm(mount: Path) -> Arm:
    """Whose volume is no longer where it was."""
    volume = emulated(mount, device_number="7:99", filesystem="xfs")
    return Arm(name="a", cluster="default", members=(Member(volume=volume),))


def test_a_session_that_cannot_write_how_it_failed_is_taken_down_all_the_same(
    run: Path, tmp_path: Path
) -> None:
    events = tmp_path / "home" / "sessions" / "s" / "events.jsonl"

    def fail(*_: object) -> None:
        events.mkdir()  # no event can be appended or read, as on a disk that is full or broken
        raise SetupError(f"{run}: no room")

    live = LiveSession(MachineSteps("s", parse_plan(PLAN, "x.toml"), start_reaper=fail))
    with pytest.raises(SetupError, match="no room"):
        live.prepare()
    assert not (run / "s").exists()
    assert load_session(tmp_path / "home" / "sessions" / "s").state is State.FAILED


def test_an_index_without_documents_is_taken_only_where_some_are_added(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = dataset.Dataset(key="k", path=tmp_path, documents=0, bytes=0, segments=(), hash="")
    monkeypatch.setattr(dataset, "ensure", lambda *_, **__: empty)
    monkeypatch.setattr(RootSteps, "calibrate", lambda _: {})
    monkeypatch.setattr(MachineSteps, "_image", "image")
    for number, has_writes in enumerate((True, False)):
        race = race_nodes(DataDirectory(path=tmp_path), has_writes=has_writes)
        steps = MachineSteps(f"s{number}", parse_plan(PLAN, "x.toml"), race=race)
        steps.record()
        if has_writes:
            assert steps.copy(()) is empty
        else:
            with pytest.raises(PlanError, match=f"^{tmp_path}: gives no document, .*--exclude-tasks"):
                steps.copy(())


def test_what_reads_of_an_arms_volumes_may_be_off_by_is_an_event(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = dataset.Dataset(key="k", path=tmp_path, documents=1, bytes=0, segments=({"name": "s"},), hash="")
    errors = {"a-1": {16384: 3e-6}, "a-2": {16384: 4e-6}}
    monkeypatch.setattr(dataset, "ensure", lambda *_, **__: index)
    monkeypatch.setattr(dataset, "copy_to", lambda *_: None)
    monkeypatch.setattr(RootSteps, "calibrate", lambda _: errors)
    monkeypatch.setattr(MachineSteps, "_image", "image")
    race = race_nodes(DataDirectory(path=tmp_path))
    members = [Member(volume=emulated(tmp_path, name)) for name in ("a-1", "a-2", "kept as it was")]
    arms = (
        Arm(name="a", cluster="default", members=tuple(members[:2])),
        Arm(name="kept as it was", cluster="default", members=tuple(members[2:])),
    )
    steps = MachineSteps("s", parse_plan(PLAN, "x.toml"), race=race)
    steps.record()
    steps.copy(arms)
    events = load_session(tmp_path / "home" / "sessions" / "s").events
    of_arms = {e.arm: e.fields["error_s"] for e in events if e.kind == "calibration"}
    assert of_arms == {"a": {"16384": pytest.approx(math.sqrt((3e-6**2 + 4e-6**2) / 2))}}


def test_of_an_arm_that_lost_its_volume_that_is_said(run: Path, tmp_path: Path) -> None:
    steps = MachineSteps("s", parse_plan(PLAN, "x.toml"))
    error = FileNotFoundError(2, "No such file or directory", str(tmp_path / "elasticsearch"))
    assert steps.explain(error) is error
    steps._attached = (unmounted_arm(tmp_path),)
    explained = steps.explain(error)
    assert isinstance(explained, SetupError)
    assert str(explained).startswith(f"arm a: its volume is no longer mounted at {tmp_path}, ")
    assert isinstance(steps.explain(KeyboardInterrupt()), KeyboardInterrupt)


def test_what_goes_with_its_session_is_no_fault_of_its_arm(run: Path, tmp_path: Path) -> None:
    """After Ctrl-C, requests fail because their nodes and volumes are being removed."""
    steps = RootSteps(start_reaper=lambda *_: None)
    steps.begin("s", tmp_path, ())
    arms, plan = (unmounted_arm(tmp_path),), parse_plan(PLAN, "x.toml")
    steps.take(Context(session="s", folder=tmp_path, run=run / "s", plan=plan, arms=arms))
    assert str(steps.cause("a")).startswith("arm a: its volume is no longer mounted")
    steps.ending()
    assert steps.cause("a") is None
    assert steps.take_down() == []
    assert steps.cause("a") is None


def test_what_is_made_on_aws_is_broken_off_once_its_session_ends(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By sudo Ctrl-C reaches another process than the one that reads a volume from its snapshot for hours."""
    steps, said = RootSteps(start_reaper=lambda *_: None), list[str]()
    steps.begin("s", tmp_path, ())

    def attach(*_: object, say: Callable[[str], None]) -> None:
        say("a: initialised 1 of 2 GiB")
        steps.ending()
        say("a: initialised 2 of 2 GiB")

    monkeypatch.setattr(volumes, "attach", attach)
    with pytest.raises(SetupError, match="session s: has ended"):
        steps.attach((VolumeSpec(name="a", type="gp3"),), say=said.append)
    assert said == ["a: initialised 1 of 2 GiB"]
    assert steps.take_down() == []


def test_the_keeper_waits_minutes_for_what_aws_has_and_not_for_what_stays(run: Path, tmp_path: Path) -> None:
    steps = RootSteps(start_reaper=lambda *_: None)
    assert steps.ends_within_s() == 0
    steps.begin("s", tmp_path, ())
    (run / "s" / "a").mkdir()
    assert 0 < steps.ends_within_s() < 60
    (run / "s" / "a" / JOURNAL_NAME).touch()
    assert steps.ends_within_s() >= 600
    (run / "s" / STAYS).touch()
    assert steps.ends_within_s() == 0


def test_nothing_is_said_of_where_shards_lie_before_arms_have_indexed(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = MachineSteps("s", small_plan(node={"count": 2}, race={}), race=race_nodes(None))
    steps.record()
    monkeypatch.setattr(MachineSteps, "_start", lambda _, arm: arm)
    empty = {"nodes": {}, "shards": []}
    monkeypatch.setattr(identity.api, "get", lambda port, path: [] if "cat" in path else empty)
    member = Member(volume=emulated(tmp_path), node=node_of(1))
    arms = tuple(Arm(name=name, cluster=name, members=(member,)) for name in ("gp2", "gp3"))
    assert steps.start_nodes(arms, None) == arms
    assert load_session(tmp_path / "home" / "sessions" / "s").checks == ()


@pytest.mark.parametrize(("mode", "evicted"), [("steady", ["gp3"]), ("warm", []), ("cold", [])])
def test_what_copying_left_in_memory_is_evicted_before_a_steady_cache_fills(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, evicted: list[str]
) -> None:
    """No node's memory limit counts it. After another start of the nodes all has been hashed again."""
    index = dataset.Dataset(key="k", path=tmp_path, documents=1, bytes=1, segments=(), hash="")
    race = race_nodes(DataDirectory(path=tmp_path))
    steps = MachineSteps("s", small_plan(cache={"mode": mode}, race={}), race=race)
    steps.record()
    node, asked = node_of(1), list[str]()
    arm = Arm(name="gp3", cluster="default", members=(Member(volume=emulated(tmp_path, "gp3"), node=node),))
    monkeypatch.setattr(MachineSteps, "_start", lambda _, arm: arm)
    monkeypatch.setattr(MachineSteps, "_check_segments", lambda *_: asked.clear())
    monkeypatch.setattr(RootSteps, "evict", lambda _, name: asked.append(name))
    steps.start_nodes((arm,), index)
    assert asked == evicted

    def hashed_again(*_: object, **__: object) -> tuple[Node, ...]:
        asked.clear()
        return (node,)

    monkeypatch.setattr(RootSteps, "restarted", hashed_again)
    monkeypatch.setattr(Context, "save", lambda _: None)
    root = RootSteps()
    root.take(Context(session="s", folder=tmp_path, run=run, plan=steps._plan, arms=(arm,)))
    root.restart_nodes()
    assert asked == evicted
