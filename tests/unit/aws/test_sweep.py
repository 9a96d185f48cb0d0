"""What is left on AWS is found by our tags; a dry run changes nothing; a rehearsal never reaches AWS."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aws_world import GOALS, HERE, THERE, World, ebs
from fake_imds import imds
from fake_machine import GIB, LOCAL_MODEL, FakeMachine
from recorded_aws import RecordedAws

from esrally_ebs.aws.clients import Api, AwsError
from esrally_ebs.aws.instance import REHEARSAL_VARIABLE, Place, rehearsed_instance
from esrally_ebs.aws.provision.dryrun import dry_run
from esrally_ebs.aws.provision.goal import (
    TAG_ARM,
    TAG_MEMBER,
    TAG_OWNER,
    TAG_RUN,
    TAG_SESSION,
    Goal,
    RunOwner,
    tag_list,
)
from esrally_ebs.aws.provision.host import ArmDevice
from esrally_ebs.aws.provision.journal import JOURNAL_NAME, Journal
from esrally_ebs.aws.provision.sweep import Orphan, Orphans, adopt, known_runs, on_disks, orphans
from esrally_ebs.errors import SetupError
from esrally_ebs.machine.processes import Clock, is_root
from esrally_ebs.model import AwsSpec, VolumeSpec
from esrally_ebs.session import manual
from esrally_ebs.store.context import OF_CALLER
from esrally_ebs.volumes import aws as backend
from esrally_ebs.volumes.aws import check_tools

PLACE = Place(instance=HERE, zone="us-east-1a", region="us-east-1", subnet="subnet-1")


def owner(run_dir: Path, *, boot: str = "b00t1", instance: str = HERE) -> RunOwner:
    return RunOwner(instance=instance, boot=boot, run_dir=run_dir)


def found_after_a_reboot(api: Api, run_dir: Path) -> Orphans:
    return orphans(api, owner(run_dir, boot="b00t2"), now_s=2_000_000.0)


def left_over(world: World, run_dir: Path, instance: str = HERE) -> list[Orphan]:
    """What is found there after a reboot, when nothing is in doubt."""
    whose = owner(run_dir, boot="b00t2", instance=instance)
    left = orphans(world.aws, whose, now_s=world.now + 3600, dead_instances=True)
    assert (left.problems, left.notes) == ([], [])
    return list(left.arms)


def begun(directory: Path, goal: Goal | None = None, whose: RunOwner | None = None) -> World:
    """A world with one arm up whose journal has gone."""
    tag = (whose or owner(directory)).tag
    goal = replace(goal or ebs(), owner=tag, point=directory / "s" / "a" / "mnt")
    world = World(directory / "s" / "a", goal)
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


class Without:
    """AWS that does not answer for a service or an operation."""

    def __init__(self, world: World, what: str, code: str) -> None:
        self._world, self._what, self._code = world, what, code

    def call(self, service: str, operation: str, **params: Any) -> Mapping[str, Any]:  # noqa: ANN401
        if self._what in (service, operation):
            raise AwsError(f"{service}:{operation}", self._code, "no")
        return self._world.aws.call(service, operation, **params)


GP2 = VolumeSpec(name="a", type="gp2", size_bytes=100 * GIB, aws=AwsSpec())


def test_a_dry_run_prints_every_call_in_order_and_the_price(tmp_path: Path) -> None:
    lines = dry_run([GP2], PLACE, session="s", run=tmp_path)
    words = [" ".join(line.split()[:2]) for line in lines if line.startswith("  ") and "{" in line]
    assert words == [
        "ec2 CreateVolume",
        "ec2 AttachVolume",
        "ec2 ModifyInstanceAttribute",
        "machine mkfs",
        "machine mount",
        "machine unmount",
        "ec2 DetachVolume",
        "ec2 DeleteVolume",
    ]
    # 100 GiB at 0.10 USD a month in us-east-1, by 730 hours: 0.0137
    assert "a: 0.0137 USD an hour (10.00 a month, us-east-1" in "\n".join(lines)
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_elsewhere_is_in_the_region_that_the_sdk_would_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p.toml").write_text('name = "p"\n[aws]\n[[arm]]\nname = "a"\ntype = "gp3"\n')
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "ap-northeast-1")
    lines = manual.dry_run(str(tmp_path / "p.toml"))
    assert "(9.60 a month, ap-northeast-1, " in lines[-2]
    assert '"AvailabilityZone": "ap-northeast-1a"' in lines[1]


def test_throughput_that_a_file_system_is_made_with_is_in_its_price(tmp_path: Path) -> None:
    bought = replace(GP2, type="efs", throughput_bytes_per_s=100 * 1024**2)
    text = "\n".join(dry_run([bought], PLACE, session="s", run=tmp_path))
    assert '"ThroughputMode": "provisioned", "ProvisionedThroughputInMibps": 100.0' in text
    assert "(600.00 a month" in text  # 100 * 0.30, and 6 for each of 100 - 100 / 20


def test_a_dry_run_goes_by_the_price_list_that_the_plan_names(tmp_path: Path) -> None:
    listed = tmp_path / "prices.json"
    listed.write_text('{"regions": {"eu-north-1": {"gp3": {"gb": [[0.73, "2026-11-21", "our invoice"]]}}}}')
    text = f'name = "p"\ncost = {{prices = "{listed}"}}\n[aws]\nregion = "eu-north-1"\n'
    (tmp_path / "p.toml").write_text(text + '[[arm]]\nname = "a"\ntype = "gp3"\n')
    lines = manual.dry_run(str(tmp_path / "p.toml"))
    assert "  a: 0.1000 USD an hour (73.00 a month, eu-north-1, prices of 2026-11-21)" in lines


def test_disks_of_the_instance_have_the_price_of_no_list(tmp_path: Path) -> None:
    text = 'name = "p"\n[aws]\n[[arm]]\nname = "a"\ntype = "instance-store"\n'
    (tmp_path / "p.toml").write_text(text)
    lines = manual.dry_run(str(tmp_path / "p.toml"))
    assert "  a: 0.0000 USD an hour (0.00 a month, us-east-1; it comes with its instance)" in lines


def test_arms_without_a_price_do_not_cost_nothing_together(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(
        'name = "p"\naws = {region = "eu-west-9"}\narm = [{name = "a", type = "gp3"}]\n'
    )
    lines = manual.dry_run(str(tmp_path / "p.toml"))
    assert lines[-1].startswith("  a: not known: price of gp3 gb in eu-west-9: not known")


def test_what_a_plan_says_is_moved_is_in_the_price_of_a_dry_run(tmp_path: Path) -> None:
    text = 'name = "p"\ncost = {read = "80GiB", written = "10GiB"}\naws = {}\nnode = {count = 2}\n'
    (tmp_path / "p.toml").write_text(text + '[race]\ntrack = "noaa-ebs"\n[[arm]]\nname = "a"\ntype = "efs"\n')
    lines = manual.dry_run(str(tmp_path / "p.toml"))
    # of each node 100 GiB stored, and half of what the arm moves: 30 + (80 * 0.03 + 10 * 0.06) / 2
    assert sum("(31.50 a month, us-east-1" in line for line in lines) == 2


def test_a_fleet_of_twelve_nodes_is_rehearsed_and_priced(tmp_path: Path) -> None:
    text = 'name = "fleet"\n[aws]\n[node]\ncount = 3\n[race]\ntrack = "noaa-ebs"\n'
    for type_, iops in (("gp2", ""), ("gp3", ""), ("io2", "iops = 4000\n"), ("st1", "")):
        text += f'[[arm]]\nname = "{type_}"\ntype = "{type_}"\nsize = "1TiB"\n{iops}'
    (tmp_path / "fleet.toml").write_text(text)
    lines = manual.dry_run(str(tmp_path / "fleet.toml"))
    assert sum(line.split()[:2] == ["ec2", "CreateVolume"] for line in lines) == 12
    assert sum("USD an hour (" in line for line in lines) == 12
    # three each of 1,024 GiB: 0.10, 0.08, 0.125 and 0.065 for 4,000 IOPS, and 0.045 USD a month, by 730 hours
    assert "all with a price: 2.5414 USD an hour" in lines[-1]


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMachine]:
    """An EC2 instance with a disk of its own that this container was not given."""
    machine = FakeMachine(tmp_path / "machine")
    machine.nvme("nvme1n1", "259:1", serial="AWS111", model=LOCAL_MODEL)
    for name in ("AWS_EC2_METADATA_DISABLED", REHEARSAL_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with imds({"instance-id": HERE, "placement/region": "eu-west-1"}) as service:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.url)
        yield machine


@pytest.mark.usefixtures("run")
def test_what_is_left_is_looked_for_in_the_region_of_the_instance(instance: FakeMachine) -> None:
    aws, regions = RecordedAws(DescribeVolumes={"Volumes": []}), list[str | None]()

    def make(region: str | None) -> Api:
        regions.append(region)
        return aws

    backend.sweep(print, roots=instance.roots, make_api=make)
    assert regions == ["eu-west-1"]
    assert "ec2:DescribeVolumes" in aws.actions


def left_volume(run: Path) -> Mapping[str, Any]:
    """DescribeVolumes' answer about a volume of an earlier boot."""
    tags = {TAG_SESSION: "s", TAG_RUN: "r", TAG_ARM: "a", TAG_MEMBER: "0", TAG_OWNER: owner(run).tag}
    volume = {"VolumeId": "vol-1", "State": "available", "CreateTime": datetime.now(UTC)}
    return {"Volumes": [{**volume, "Tags": tag_list(tags)}]}


@pytest.mark.parametrize(
    ("answers", "said", "stays"),
    [
        (2, "AWS still has s/a: vol-1", "AWS ec2:DescribeInstances: not allowed"),
        (0, "AWS was not asked for what killed sessions left there: AWS ec2:DescribeVolumes", ""),
        (1, "", "AWS listed s/a: vol-1, and could not be asked again: AWS ec2:DescribeVolumes: try again"),
    ],
    ids=["not of its instance", "not of volumes", "not of volumes again"],
)
def test_where_aws_answers_one_question_of_two_what_stays_is_no_success(
    answers: int, said: str, stays: str, run: Path, instance: FakeMachine
) -> None:
    left = iter([left_volume(run)] * answers)

    def listed(**_: object) -> Mapping[str, Any]:
        if (answer := next(left, None)) is None:
            raise AwsError("ec2:DescribeVolumes", "RequestLimitExceeded", "try again later")
        return answer

    aws, lines = RecordedAws(DescribeVolumes=listed), list[str]()
    clock = Clock(sleep=lambda seconds: None)
    problems = backend.sweep(lines.append, roots=instance.roots, make_api=lambda region: aws, clock=clock)
    assert not said or any(line.startswith(said) for line in lines)
    disk = f"the instance's own disks were not looked at: {instance.root}/dev/nvme1n1: is not there"
    expected = [*([disk] if is_root() else []), *([stays] if stays else [])]
    assert [line[: len(begin)] for line, begin in zip(problems, expected, strict=True)] == expected
    assert not list(run.glob("*"))


@pytest.mark.parametrize("name", GOALS)
def test_what_no_journal_knows_any_more_is_found_by_its_tags_and_removed(name: str, tmp_path: Path) -> None:
    world = begun(tmp_path, GOALS[name])
    world.machine.mounts = {Path("/data"): world.machine.mounts[Path("/data")]}  # a reboot
    left = left_over(world, tmp_path)
    if world.goal.sort == "instance-store":
        assert left == []  # AWS has nothing of it
        return
    assert len(left) == 1
    adopt(left[0], world.goal.place, tmp_path, at_s=world.now)
    assert left_over(world, tmp_path) == []  # a journal speaks of it again
    world.machine.array = None
    world.executor().down()
    assert world.left() == []
    assert world.untouched()


def on_disk(goal: Goal, **more: Any) -> ArmDevice:  # noqa: ANN401 - of ArmDevice
    fields = {"serial": "AWS2", "path": Path("/dev/nvme2n1"), "size_bytes": GIB, "signature": "xfs"}
    return ArmDevice(**fields | {"uuid": goal.filesystem_uuid, "label": goal.label} | more)


@pytest.mark.parametrize("name", ["a disk of the instance", "a stripe of disks"])
def test_what_a_reboot_left_on_disks_of_the_instance_is_found_and_wiped_off(
    name: str, tmp_path: Path
) -> None:
    world = begun(tmp_path, GOALS[name])
    world.machine.mounts = {Path("/data"): world.machine.mounts[Path("/data")]}  # a reboot
    serials = ["AWS2", "AWS3"][: world.goal.count]
    (orphan,) = on_disks([(on_disk(world.goal), serials)], tmp_path)
    world.directory = adopt(orphan, world.goal.place, tmp_path, at_s=world.now)
    assert on_disks([(on_disk(world.goal), serials)], tmp_path) == []  # a journal speaks of it again
    world.executor().down()
    assert world.left() == []
    assert world.untouched()


@pytest.mark.parametrize(
    "other",
    [
        {"uuid": "0b1c2d3e-1111-4222-8333-123456789012"},  # somebody has given it our label
        {"label": "ffffffffffff"},
        {"label": "", "uuid": ""},
        {"mounts": (Path("/data"),)},
        {"holders": ("what this process does not see",)},
    ],
)
def test_a_disk_that_is_not_provably_ours_or_is_in_use_is_left_alone(
    other: dict[str, Any], tmp_path: Path
) -> None:
    device = on_disk(GOALS["a disk of the instance"], **other)
    assert on_disks([(device, ["AWS2"])], tmp_path) == []


def test_disks_are_left_alone_while_a_journal_that_may_be_theirs_cannot_be_read(tmp_path: Path) -> None:
    world = begun(tmp_path, GOALS["a disk of the instance"])
    listed = [(on_disk(world.goal), ["AWS2"])]
    world.start()
    journal = Journal(world.directory).path
    journal.write_text(journal.read_text().replace(world.goal.run, "fedcba9876543210"))
    assert on_disks(listed, tmp_path) == []
    journal.unlink()
    assert len(on_disks(listed, tmp_path)) == 1


def test_what_is_in_use_from_elsewhere_is_not_left_over(tmp_path: Path) -> None:
    world = begun(tmp_path, whose=owner(Path("/other")))
    assert left_over(world, tmp_path) == []  # of another run directory
    assert left_over(world, tmp_path, instance=THERE) == []  # of another instance, which runs


@pytest.mark.parametrize("name", ["one volume", "EFS"])
def test_what_is_of_this_boot_may_be_another_containers_and_is_named_and_left(
    name: str, tmp_path: Path
) -> None:
    world = begun(tmp_path, GOALS[name])
    left = orphans(world.aws, owner(tmp_path), now_s=world.now)
    assert (left.arms, left.problems) == ([], [])
    assert [note.partition(" is left alone")[0] for note in left.notes] == [
        {"one volume": "vol-00000000000000003", "EFS": "fs-00000000000000001"}[name]
    ]


def test_a_journal_in_the_folder_of_the_caller_speaks_of_nothing(tmp_path: Path) -> None:
    """A track that runs as the caller by sudo could hide arms from root, or put a pipe there."""
    world = begun(tmp_path)
    world.start()
    (tmp_path / "s" / OF_CALLER).mkdir()
    Journal(world.directory).path.rename(tmp_path / "s" / OF_CALLER / JOURNAL_NAME)
    assert known_runs(tmp_path) == (set(), [])


def test_a_session_that_begins_meanwhile_is_not_left_over(tmp_path: Path) -> None:
    world = begun(tmp_path)
    (orphan,) = left_over(world, tmp_path)
    assert found_after_a_reboot(Beginning(world), tmp_path).arms == []
    assert known_runs(tmp_path) == ({world.goal.run}, [])
    with pytest.raises(SetupError, match="was begun there meanwhile"):
        adopt(orphan, world.goal.place, tmp_path, at_s=world.now)


@pytest.mark.parametrize(
    ("code", "problems", "notes"), [("AccessDeniedException", 0, 1), ("ReadTimeoutError", 1, 0)]
)
def test_without_rights_on_efs_volumes_are_found_and_that_is_no_problem(
    code: str, problems: int, notes: int, tmp_path: Path
) -> None:
    left = found_after_a_reboot(Without(begun(tmp_path), "efs", code), tmp_path)
    assert len(left.arms) == 1
    assert (len(left.problems), len(left.notes)) == (problems, notes)
    assert (*left.problems, *left.notes)[0].startswith("EFS was not asked")


def test_of_whom_a_volume_of_another_instance_is_keeps_no_volume_of_ours(tmp_path: Path) -> None:
    world = begun(tmp_path)
    ours, theirs = (world.aws.volumes[f"vol-0000000000000000{number}"] for number in (3, 2))
    theirs.instance = ""
    theirs.tags = [{**tag, "Value": tag["Value"].replace(HERE, THERE)} for tag in ours.tags]
    left = found_after_a_reboot(Without(world, "DescribeInstances", "RequestLimitExceeded"), tmp_path)
    assert [orphan.resources for orphan in left.arms] == [{0: "vol-00000000000000003"}]
    assert left.problems == []
    why = f"is left alone: whether its instance {THERE} runs could not be asked: AWS ec2:DescribeInstances"
    assert left.notes[0].startswith(f"vol-00000000000000002 {why}")


def test_of_two_volumes_with_the_same_tags_neither_is_taken(tmp_path: Path) -> None:
    world = begun(tmp_path)
    ours = "vol-00000000000000003"
    world.aws.volumes["vol-00000000000000002"].tags = world.aws.volumes[ours].tags
    left = found_after_a_reboot(world.aws, tmp_path)
    assert left.arms == []
    assert left.problems[0].startswith(f"vol-00000000000000002, {ours}: more than one has the same tags")


@pytest.mark.parametrize(
    ("key", "value"),
    [*((TAG_SESSION, name) for name in ("..", "a/b", "")), (TAG_MEMBER, "\u00b2"), (TAG_MEMBER, "9" * 20)],
)
def test_tags_that_are_no_names_of_ours_are_nothing_of_ours(key: str, value: str, tmp_path: Path) -> None:
    world = begun(tmp_path)
    assert len(left_over(world, tmp_path)) == 1
    for tag in world.aws.volumes["vol-00000000000000003"].tags:
        tag["Value"] = value if tag["Key"] == key else tag["Value"]
    assert left_over(world, tmp_path) == []


def test_what_an_instance_that_is_gone_left_is_left_over(tmp_path: Path) -> None:
    world = begun(tmp_path)
    world.aws.instances = {THERE}
    elsewhere = tmp_path / "of another instance"
    assert left_over(world, elsewhere, THERE) == []  # its instance is gone, but it is still attached
    world.aws.call("ec2", "DetachVolume", VolumeId="vol-00000000000000003", InstanceId=HERE)
    world.now += 60
    assert [orphan.resources for orphan in left_over(world, elsewhere, THERE)] == [
        {0: "vol-00000000000000003"}
    ]


def test_a_file_system_of_an_instance_that_is_gone_is_left_over(tmp_path: Path) -> None:
    world = begun(tmp_path, GOALS["EFS"])
    elsewhere = tmp_path / "of another instance"
    assert left_over(world, elsewhere, THERE) == []
    world.aws.instances = {THERE}
    assert [orphan.sort for orphan in left_over(world, elsewhere, THERE)] == ["efs"]


def test_a_rehearsal_never_reaches_aws() -> None:
    assert rehearsed_instance({}) is None
    loopback = {REHEARSAL_VARIABLE: "i-1", "AWS_ENDPOINT_URL": "http://127.0.0.1:5000"}
    assert rehearsed_instance(loopback) == "i-1"
    for endpoint in ("", "https://ec2.us-east-1.amazonaws.com", "http://10.0.0.1:5000"):
        with pytest.raises(SetupError, match="needs a stand-in of AWS on this machine"):
            rehearsed_instance(loopback | {"AWS_ENDPOINT_URL": endpoint})


def test_the_owner_has_the_characters_and_length_of_a_tag() -> None:
    tag = owner(Path("/run/~someone/ü" + "x" * 300)).tag
    assert tag.startswith(f"{HERE}:b00t1:/run/_someone/_x")
    assert len(tag) == 256


def test_two_run_directories_or_boots_never_have_one_owner() -> None:
    pairs = [("/run/ä", "/run/ö"), ("/run/" + "x" * 300, "/run/" + "x" * 301)]
    for one, other in pairs:
        assert owner(Path(one)).tag != owner(Path(other)).tag
    assert owner(Path("/run/a")).tag == f"{HERE}:b00t1:/run/a"
    assert owner(Path(pairs[1][0])).tag != owner(Path(pairs[1][0]), boot="b00t2").tag


@pytest.mark.parametrize(
    ("type_", "more", "tool"),
    [
        ("gp3", {}, "wipefs"),
        ("gp3", {"stripes": 2}, "mdadm"),
        ("gp3", {"stripes": 2, "aws": AwsSpec(stripe_with="lvm")}, "lvcreate"),
        ("efs", {}, "mount.nfs4"),
        ("instance-store", {}, "blkdiscard"),
    ],
)
def test_a_missing_tool_is_named_before_anything_is_made(
    type_: str, more: dict[str, Any], tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(REHEARSAL_VARIABLE, raising=False)
    spec = VolumeSpec(**{"name": "a", "type": type_, "size_bytes": GIB, "aws": AwsSpec()} | more)
    with pytest.raises(SetupError, match=f"^volume 'a': {tool} is missing; install it"):
        check_tools(spec, lambda name: None if name == tool else name)


@pytest.mark.parametrize("stripes", [1, 2])
def test_a_blkdiscard_that_cannot_wipe_a_disk_is_named_before_one_is_taken(stripes: int) -> None:
    """That of util-linux 2.34, as Ubuntu 20.04 has it."""
    spec = VolumeSpec(name="a", type="instance-store", size_bytes=GIB, aws=AwsSpec(), stripes=stripes)
    old = " -o, --offset <num>  offset in bytes to discard from\n"
    with pytest.raises(SetupError, match=r"blkdiscard has no --force, .* install util-linux 2\.36 or newer$"):
        check_tools(spec, lambda name: name, lambda argv, timeout_s: old)
    check_tools(spec, lambda name: name, lambda argv, timeout_s: f" -f, --force  disable all checking\n{old}")
