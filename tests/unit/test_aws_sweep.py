"""What is left on AWS is found by our tags; a dry run changes nothing; a rehearsal never reaches AWS."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aws_world import GOALS, HERE, THERE, World, ebs
from fake_machine import GIB

from esrally_ebs.aws.clients import AwsError
from esrally_ebs.aws.provision.dryrun import dry_run
from esrally_ebs.aws.provision.goal import TAG_OWNER, TAG_SESSION, Place
from esrally_ebs.aws.provision.journal import Journal
from esrally_ebs.aws.provision.place import REHEARSAL_VARIABLE, rehearsed_instance
from esrally_ebs.aws.provision.sweep import Orphan, adopt, known_runs, orphans, owner_of
from esrally_ebs.errors import SetupError
from esrally_ebs.model import AwsSpec, VolumeSpec
from esrally_ebs.volumes.aws import check_tools

PLACE = Place(instance=HERE, zone="us-east-1a", region="us-east-1", subnet="subnet-1")


def left_over(world: World, instance: str, run_dir: Path) -> list[Orphan]:
    found, problems = orphans(world.aws, instance, run_dir)
    assert problems == []
    return found


def begun(directory: Path) -> World:
    """A world with one arm up whose journal has gone."""
    world = World(directory / "s" / "a", replace(ebs(), owner=owner_of(HERE, directory)))
    world.start()
    world.executor().up()
    Journal(world.directory).remove()
    return world


class Beginning:
    """AWS that is asked while a session writes its journal."""

    def __init__(self, world: World) -> None:
        self._world = world

    def call(self, service: str, operation: str, **params: Any) -> Mapping[str, Any]:  # noqa: ANN401
        answer = self._world.aws.call(service, operation, **params)
        if not Journal(self._world.directory).path.exists():
            self._world.start()
        return answer


class WithoutEfs:
    """AWS that lets nobody ask for EFS."""

    def __init__(self, world: World) -> None:
        self._world = world

    def call(self, service: str, operation: str, **params: Any) -> Mapping[str, Any]:  # noqa: ANN401
        if service == "efs":
            raise AwsError(f"elasticfilesystem:{operation}", "AccessDeniedException", "not allowed")
        return self._world.aws.call(service, operation, **params)


GP2 = VolumeSpec(name="a", type="gp2", size_bytes=100 * GIB, aws=AwsSpec())


def test_a_dry_run_prints_every_call_in_order_and_the_price(tmp_path: Path) -> None:
    lines = dry_run([GP2], PLACE, session="s", run=tmp_path)
    words = [" ".join(line.split()[:2]) for line in lines if line.startswith("  ") and "{" in line]
    assert words == [
        "ec2 CreateVolume",
        "ec2 AttachVolume",
        "machine mkfs",
        "machine mount",
        "machine unmount",
        "ec2 DetachVolume",
        "ec2 DeleteVolume",
    ]
    # 100 GiB at 0.10 USD a month in us-east-1, by 730 hours: 0.0137
    assert "a: 0.0137 USD an hour (10.00 a month, us-east-1" in "\n".join(lines)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", GOALS)
def test_what_no_journal_knows_any_more_is_found_by_its_tags_and_removed(name: str, tmp_path: Path) -> None:
    goal = replace(GOALS[name], owner=f"{HERE}:{tmp_path}", point=tmp_path / "s" / "a" / "mnt")
    world = World(tmp_path / "s" / "a", goal)
    world.start()
    world.executor().up()
    world.machine.mounts = {Path("/data"): world.machine.mounts[Path("/data")]}  # a reboot
    Journal(world.directory).remove()
    found = left_over(world, HERE, tmp_path)
    if goal.sort == "instance-store":
        assert found == []  # AWS has nothing of it
        return
    assert len(found) == 1
    adopt(found[0], goal.place, tmp_path, at_s=world.now)
    assert left_over(world, HERE, tmp_path) == []  # a journal speaks of it again
    world.machine.array = None
    world.executor().down()
    assert world.left() == []
    assert world.untouched()


def test_what_is_in_use_from_elsewhere_is_not_left_over(tmp_path: Path) -> None:
    world = World(tmp_path / "s" / "a", replace(ebs(), owner=f"{HERE}:/other"))
    world.start()
    world.executor().up()
    Journal(world.directory).remove()
    assert left_over(world, HERE, tmp_path) == []  # of another run directory
    assert left_over(world, THERE, tmp_path) == []  # of another instance, which runs


def test_a_session_that_begins_meanwhile_is_not_left_over(tmp_path: Path) -> None:
    world = begun(tmp_path)
    (orphan,) = left_over(world, HERE, tmp_path)
    assert orphans(Beginning(world), HERE, tmp_path) == ([], [])
    assert known_runs(tmp_path) == {world.goal.run}
    with pytest.raises(SetupError, match="was begun there meanwhile"):
        adopt(orphan, world.goal.place, tmp_path, at_s=world.now)


def test_without_rights_on_efs_volumes_are_found_and_it_is_said(tmp_path: Path) -> None:
    found, problems = orphans(WithoutEfs(begun(tmp_path)), HERE, tmp_path)
    assert len(found) == 1
    assert [problem[:17] for problem in problems] == ["EFS was not asked"]


def test_of_two_volumes_with_the_same_tags_neither_is_taken(tmp_path: Path) -> None:
    world = begun(tmp_path)
    ours = "vol-00000000000000003"
    world.aws.volumes["vol-00000000000000002"].tags = world.aws.volumes[ours].tags
    found, problems = orphans(world.aws, HERE, tmp_path)
    assert found == []
    assert problems[0].startswith(f"vol-00000000000000002, {ours}: more than one has the same tags")


@pytest.mark.parametrize("name", ["..", "a/b", ""])
def test_tags_that_are_no_names_of_ours_are_nothing_of_ours(name: str, tmp_path: Path) -> None:
    world = World(tmp_path / "s" / "a", replace(ebs(), owner=owner_of(HERE, tmp_path)))
    world.start()
    world.executor().up()
    Journal(world.directory).remove()
    assert len(left_over(world, HERE, tmp_path)) == 1
    for tag in world.aws.volumes["vol-00000000000000003"].tags:
        tag["Value"] = name if tag["Key"] == TAG_SESSION else tag["Value"]
    assert left_over(world, HERE, tmp_path) == []


def test_what_an_instance_that_is_gone_left_is_left_over(tmp_path: Path) -> None:
    world = World(tmp_path / "s" / "a", replace(ebs(), owner=f"{HERE}:/run"))
    world.start()
    world.executor().up()
    Journal(world.directory).remove()
    world.aws.instances = {THERE}
    assert left_over(world, THERE, tmp_path) == []  # its instance is gone, but it is still attached
    world.aws.call("ec2", "DetachVolume", VolumeId="vol-00000000000000003", InstanceId=HERE)
    world.now += 60
    assert [orphan.resources for orphan in left_over(world, THERE, tmp_path)] == [
        {0: "vol-00000000000000003"}
    ]
    assert world.aws.volumes["vol-00000000000000003"].tags[-1]["Key"] == TAG_OWNER


def test_a_rehearsal_never_reaches_aws() -> None:
    assert rehearsed_instance({}) is None
    loopback = {REHEARSAL_VARIABLE: "i-1", "AWS_ENDPOINT_URL": "http://127.0.0.1:5000"}
    assert rehearsed_instance(loopback) == "i-1"
    for endpoint in ("", "https://ec2.us-east-1.amazonaws.com", "http://10.0.0.1:5000"):
        with pytest.raises(SetupError, match="needs a stand-in of AWS on this machine"):
            rehearsed_instance(loopback | {"AWS_ENDPOINT_URL": endpoint})


def test_the_owner_has_the_characters_and_length_of_a_tag() -> None:
    owner = owner_of(HERE, Path("/run/~someone/ü" + "x" * 300))
    assert owner.startswith(f"{HERE}:/run/_someone/_x")
    assert len(owner) == 256


def test_two_run_directories_never_have_one_owner() -> None:
    pairs = [("/run/ä", "/run/ö"), ("/run/" + "x" * 300, "/run/" + "x" * 301)]
    for one, other in pairs:
        assert owner_of(HERE, Path(one)) != owner_of(HERE, Path(other))
    assert owner_of(HERE, Path("/run/a")) == f"{HERE}:/run/a"


@pytest.mark.parametrize(
    ("type_", "more", "tool"),
    [
        ("gp3", {}, "wipefs"),
        ("gp3", {"stripes": 2}, "mdadm"),
        ("gp3", {"stripes": 2, "aws": AwsSpec(stripe_with="lvm")}, "lvcreate"),
        ("efs", {}, "mount.nfs4"),
    ],
)
def test_a_missing_tool_is_named_before_anything_is_made(
    type_: str, more: dict[str, Any], tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(REHEARSAL_VARIABLE, raising=False)
    spec = VolumeSpec(**{"name": "a", "type": type_, "size_bytes": GIB, "aws": AwsSpec()} | more)
    with pytest.raises(SetupError, match=f"^volume 'a': {tool} is missing; install it"):
        check_tools(spec, lambda name: None if name == tool else name)
