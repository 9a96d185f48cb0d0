"""On AWS: only what is ours goes, what stays is named with its price, and no right is missing halfway."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aws_world import GOALS, HERE, World, ebs
from botocore.retries.standard import ThrottledRetryableChecker
from hypothesis import given
from hypothesis import strategies as st
from killed_world import PLANS, Instance

from esrally_ebs.aws import clients
from esrally_ebs.aws.clients import THROTTLED, AwsError
from esrally_ebs.aws.modify import settings_of
from esrally_ebs.aws.provision.efs import create_parameters
from esrally_ebs.aws.provision.execute import DOWN, UP
from esrally_ebs.aws.provision.goal import TAG_OWNER, Goal, RunOwner, tag_list
from esrally_ebs.aws.provision.journal import JOURNAL_NAME, Journal
from esrally_ebs.aws.provision.state import ArmState
from esrally_ebs.aws.provision.sweep import Orphans, orphans
from esrally_ebs.errors import EbsError, FormatError, SetupError
from esrally_ebs.machine.processes import Clock
from esrally_ebs.model import AwsSpec, VolumeSpec
from esrally_ebs.volumes import aws as backend

OURS = "vol-00000000000000003"  # the first volume that a world makes for us
ACCOUNT = "123456789012"
HOUR = 3600.0


class Answering:
    """The AWS of a world, but for what ``answer`` returns or raises; None: the world answers."""

    def __init__(self, world: World, answer: Callable[[str, Mapping[str, Any]], Any]) -> None:
        self._world, self._answer = world, answer
        self.operations: list[str] = []

    def call(self, service: str, operation: str, **params: Any) -> Mapping[str, Any]:  # noqa: ANN401
        answer = self._answer(operation, params)
        if "DryRun" not in params and not operation.startswith("Describe"):
            self.operations.append(operation)
        return self._world.aws.call(service, operation, **params) if answer is None else answer


def refusing(code: str, *operations: str) -> Callable[[str, Mapping[str, Any]], None]:
    """An answer that refuses these operations, or all."""

    def answer(operation: str, params: Mapping[str, Any]) -> None:
        if not operations or operation in operations:
            raise AwsError(f"aws:{operation}", code, f"{code}: no")

    return answer


def begun(directory: Path, goal: Goal) -> World:
    world = World(directory, goal)
    world.start()
    return world


# A stranger's snapshot


@pytest.mark.parametrize("brought", ["link", "file"])
def test_nothing_is_written_where_a_snapshot_has_something_by_our_name(tmp_path: Path, brought: str) -> None:
    """Of a session whose name one may guess, it may lead out of the volume."""
    point, others = tmp_path / "mnt", tmp_path / "others"
    point.mkdir()
    others.mkdir()
    goal = ebs(snapshot="snap-1", point=point)
    own = backend._own_place(goal)
    assert backend._own_place(goal) == own  # where an interrupted call is gone on with
    if brought == "file":
        (own / "elasticsearch").symlink_to(others)
    else:
        own.rmdir()
        own.symlink_to(others)
    with pytest.raises(SetupError, match=f"{own}: (is a link|the snapshot has files there)"):
        backend._own_place(goal)


# Expired credentials


@pytest.mark.parametrize("name", ["one volume", "a stripe of two", "EFS"])
def test_with_expired_credentials_all_is_undone_here_and_what_stays_is_named_with_its_price(
    name: str, tmp_path: Path
) -> None:
    world = begun(tmp_path, GOALS[name])
    world.executor().up()
    expired = Answering(world, refusing("ExpiredToken"))
    with pytest.raises(AwsError) as caught:
        replace(world.executor(), api=expired).down()
    assert world.goal.point not in world.machine.mounts
    assert world.machine.array is None
    assert world.goal.size_gib == 0 or OURS in str(caught.value)
    # gp3 of 10 GiB: 0.08 USD a month for each; what an EFS holds, and so costs, is not known
    usd = {"one volume": " 0.0011 USD an hour", "a stripe of two": " 0.0022 USD an hour", "EFS": ""}[name]
    assert f"stays and goes on costing{usd} until 'esrally-ebs clean' succeeds" in str(caught.value)
    world.executor().down()  # with new ones
    assert world.left() == []
    assert world.untouched()


@pytest.mark.parametrize(("type_", "lines"), [("gp3", 1), ("efs", 1), ("instance-store", 0)])
def test_credentials_that_end_are_warned_of_before_anything_is_made(
    type_: str, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = datetime.now(UTC) + timedelta(minutes=43, seconds=20)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "y",
        "AWS_SESSION_TOKEN": "z",
        "AWS_CREDENTIAL_EXPIRATION": end.isoformat(),
    }.items():
        monkeypatch.setenv(name, value)
    spec = VolumeSpec(name="a", type=type_, size_bytes=1024**3, aws=AwsSpec())
    caveats = [line for line in backend.caveats(spec) if "credentials" in line]
    assert len(caveats) == lines
    assert all(line.startswith("arm a: the AWS credentials end in 43 minutes: unless") for line in caveats)
    monkeypatch.delenv("AWS_CREDENTIAL_EXPIRATION")
    assert not [line for line in backend.caveats(spec) if "credentials" in line]


# Copies with our tags


def orphaned(world: World, run_dir: Path, **more: Any) -> Orphans:  # noqa: ANN401 - of orphans
    owner = RunOwner(instance=HERE, boot="b00t2", run_dir=run_dir)
    return orphans(world.aws, owner, **{"now_s": world.now + 2 * HOUR} | more)


def forgotten(run_dir: Path, *, instance: str = HERE, goal: Goal | None = None) -> World:
    """An arm that was made in an earlier boot and that no journal speaks of; attached nowhere."""
    tag = RunOwner(instance=instance, boot="b00t1", run_dir=run_dir).tag
    world = begun(run_dir / "s" / "a", replace(goal or ebs(), owner=tag))
    world.executor().up()
    Journal(world.directory).remove()
    world.aws.call("ec2", "DetachVolume", VolumeId=OURS, InstanceId=HERE)
    world.now += 60
    return world


def test_a_volume_restored_from_a_backup_with_our_tags_is_not_ours(tmp_path: Path) -> None:
    world = forgotten(tmp_path)
    assert [arm.resources for arm in orphaned(world, tmp_path).arms] == [{0: OURS}]
    world.aws.volumes[OURS].snapshot = "snap-of-a-backup"
    left = orphaned(world, tmp_path)
    assert left.arms == []
    (note,) = left.notes
    assert note.startswith(f"{OURS} is left alone: it has our tags, but we have not made it: a backup was")


def test_a_volume_with_tags_of_aws_backup_is_not_ours(tmp_path: Path) -> None:
    world = forgotten(tmp_path)
    world.aws.volumes[OURS].tags.append({"Key": "aws:backup:source-resource", "Value": "vol-0"})
    assert orphaned(world, tmp_path).arms == []


def test_a_volume_that_we_made_from_a_snapshot_is_ours_and_a_copy_of_another_is_not(tmp_path: Path) -> None:
    world = forgotten(tmp_path, goal=GOALS["a volume of a snapshot"])
    assert len(orphaned(world, tmp_path).arms) == 1
    world.aws.volumes[OURS].snapshot = "snap-2"
    assert orphaned(world, tmp_path).arms == []


def test_an_instance_that_is_not_listed_yet_is_not_taken_for_dead(tmp_path: Path) -> None:
    world = forgotten(tmp_path, instance="i-new")
    left = orphaned(world, tmp_path, now_s=world.now, dead_instances=True)
    assert left.arms == []
    assert "was made within the last hour, and its instance i-new may not be listed yet" in left.notes[0]


def test_a_restored_volume_is_not_taken_for_one_that_was_requested_and_never_heard_of(tmp_path: Path) -> None:
    world = begun(tmp_path, ebs())
    with pytest.raises(AwsError):
        replace(world.executor(), api=Answering(world, refusing("ReadTimeoutError", "CreateVolume"))).up()
    restored = world.aws.call(
        "ec2",
        "CreateVolume",
        Size=10,
        VolumeType="gp3",
        ClientToken="somebody's",
        SnapshotId="snap-of-a-backup",
        TagSpecifications=[{"Tags": tag_list(world.goal.tags(0))}],
    )["VolumeId"]
    world.executor().down()
    assert world.left() == [restored]


def test_what_aws_lists_only_once_of_two_times_is_not_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    instance = Instance(tmp_path, PLANS["two volumes"], monkeypatch)
    assert instance.command("volumes", "up", "PLAN") == 0
    for path in sorted((tmp_path / "run").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    instance.reboot()
    times: list[int] = []

    class Flapping:
        def call(self, service: str, operation: str, **params: Any) -> Mapping[str, Any]:  # noqa: ANN401
            if params.get("Filters", [{}])[0].get("Name") == "tag-key":
                times.append(1)
                return instance.aws.call(service, operation, **params) if len(times) == 1 else {"Volumes": []}
            return instance.aws.call(service, operation, **params)

    with monkeypatch.context() as patch:
        patch.setattr(backend, "Aws", lambda region: Flapping())
        assert instance.command("clean") == 0
    assert len(times) == 2
    assert len(instance.left()) == 2
    assert instance.command("clean") == 0
    assert instance.left() == []


def test_clean_deletes_what_a_dead_instance_left_only_when_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    instance = Instance(tmp_path, PLANS["two volumes"], monkeypatch)
    instance.aws.instances = {HERE}
    instance.pass_time(2 * HOUR)
    assert instance.command("clean") == 0
    named = capsys.readouterr().out.splitlines()
    assert len([line for line in named if "clean --dead-instances" in line]) == 1
    assert len([line for line in named if "fs-" in line and "we have not made it" in line]) == 1
    assert instance.untouched()
    assert instance.command("clean", "--dead-instances") == 0
    removed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("AWS still has")]
    assert len(removed) == 1
    assert instance.command("clean") == 0
    assert "dead-instances" not in capsys.readouterr().out


# An instance that ends


@pytest.mark.parametrize("name", ["one volume", "a stripe of two"])
def test_aws_deletes_our_volumes_when_the_instance_ends(name: str, tmp_path: Path) -> None:
    world = begun(tmp_path, GOALS[name])
    world.executor().up()
    ours = [volume for volume in world.aws.volumes.values() if volume.number > 2]
    assert [volume.ends_with_instance for volume in ours] == [True] * world.goal.count
    assert world.untouched()


def test_without_the_right_to_that_the_arm_comes_up_and_it_is_said(tmp_path: Path) -> None:
    world, lines = begun(tmp_path, ebs()), list[str]()
    denied = Answering(world, refusing("UnauthorizedOperation", "ModifyInstanceAttribute"))
    replace(world.executor(), api=denied, say=lines.append).up()
    assert [
        line for line in lines if f"volume {OURS} stays, and costs, if this instance is terminated" in line
    ]
    assert world.goal.point in world.machine.mounts


# Rights


@pytest.mark.parametrize("missing", ["AttachVolume", "DetachVolume", "DeleteVolume"])
def test_a_role_without_a_right_leaves_one_volume_at_most_and_attaches_none(
    missing: str, tmp_path: Path
) -> None:
    world = begun(tmp_path, ebs(count=3))
    role = Answering(world, refusing("UnauthorizedOperation", missing))
    with pytest.raises(AwsError, match=f"aws:{missing}"):
        replace(world.executor(), api=role).up()
    assert role.operations == ["CreateVolume"]


def test_a_role_that_may_not_create_is_told_so_before_anything_is_requested(tmp_path: Path) -> None:
    world = begun(tmp_path, ebs())
    role = Answering(world, refusing("UnauthorizedOperation", "CreateVolume"))
    with pytest.raises(AwsError, match="aws:CreateVolume"):
        replace(world.executor(), api=role).up()
    history = Journal(tmp_path).read()
    assert history is not None
    assert history.entries == ()
    assert world.left() == []


def test_rights_are_asked_for_once(tmp_path: Path) -> None:
    world, requests = begun(tmp_path, ebs(count=2)), list[str]()

    def answer(operation: str, params: Mapping[str, Any]) -> None:
        if "DryRun" in params:
            requests.append(operation)

    replace(world.executor(), api=Answering(world, answer)).up()
    assert requests == ["CreateVolume", "DeleteVolume", "AttachVolume", "DetachVolume"]


def test_what_the_sdk_takes_for_throttling_is_waited_out_by_us_too() -> None:
    assert set(ThrottledRetryableChecker._THROTTLED_ERROR_CODES) <= THROTTLED


# Keys


def test_a_volume_that_vanishes_since_its_key_may_not_be_used_names_the_key(tmp_path: Path) -> None:
    world = begun(tmp_path, ebs())
    key = f"arn:aws:kms:us-east-1:{ACCOUNT}:key/0b1c2d3e-1111-4222-8333-1234567890ab"

    def answer(operation: str, params: Mapping[str, Any]) -> Mapping[str, Any] | None:
        vanishes = operation == "CreateVolume" and "DryRun" not in params
        return {"VolumeId": "vol-0vanished", "KmsKeyId": key} if vanishes else None

    with pytest.raises(EbsError) as caught:
        replace(world.executor(), api=Answering(world, answer)).up()
    assert "whose key (arn:aws:kms:us-east-1:<account>:key/0b1c2d3e-1111-4222-8333-1234567890ab)" in str(
        caught.value
    )
    assert ACCOUNT not in str(caught.value) + Journal(tmp_path).path.read_text()


# Changes


@pytest.mark.parametrize(
    ("owner", "ours"),
    [
        (RunOwner(instance=HERE, boot="later", run_dir=Path("/run")), True),
        (RunOwner(instance="i-of-another-team", boot="b00t1", run_dir=Path("/run")), False),
        (RunOwner(instance=HERE, boot="b00t1", run_dir=Path("/run/of/another")), False),
        (None, False),
    ],
)
def test_a_volume_that_another_owner_made_with_this_pack_is_not_ours_to_change(
    owner: RunOwner | None, ours: bool, tmp_path: Path
) -> None:
    tag = RunOwner(instance=HERE, boot="b00t1", run_dir=Path("/run")).tag
    world = begun(tmp_path, replace(ebs(), owner=tag))
    world.executor().up()
    assert settings_of(world.aws, OURS, owner)[1] is ours
    world.aws.volumes[OURS].tags = [tag for tag in world.aws.volumes[OURS].tags if tag["Key"] != TAG_OWNER]
    assert not settings_of(world.aws, OURS, owner)[1]


def test_a_file_system_in_one_zone_has_no_backups_that_outlive_it() -> None:
    assert create_parameters(ebs(sort="efs", type="efs", size_gib=0, one_zone=True))["Backup"] is False


# Lists of large accounts


@pytest.mark.parametrize(
    ("params", "config"),
    [({"Filters": [{"Name": "x", "Values": []}]}, {"PageSize": 500}), ({"VolumeIds": ["vol-1"]}, {})],
)
def test_lists_come_in_pages_where_aws_takes_a_size_of_pages(
    params: Mapping[str, Any], config: Mapping[str, int]
) -> None:
    configs: list[Mapping[str, int]] = []

    class Client:
        def can_paginate(self, name: str) -> bool:
            return True

        def get_paginator(self, name: str) -> "Client":
            return self

        def paginate(self, *, PaginationConfig: Mapping[str, int], **params: object) -> "Client":
            configs.append(PaginationConfig)
            return self

        def build_full_result(self) -> Mapping[str, Any]:
            return {"Volumes": []}

    assert clients._answer(Client(), "describe_volumes", params) == {"Volumes": []}
    assert configs == [config]


# Clocks and journals


@pytest.mark.parametrize("name", ["one volume", "EFS"])
def test_a_clock_that_was_set_back_keeps_nothing_from_being_taken_down(name: str, tmp_path: Path) -> None:
    world = begun(tmp_path, GOALS[name])
    lost = Answering(world, refusing("ReadTimeoutError", "CreateVolume", "CreateFileSystem"))
    with pytest.raises(AwsError):
        replace(world.executor(), api=lost).up()
    back = Clock(monotonic=world.clock.monotonic, sleep=world.clock.sleep, epoch=lambda: world.now - HOUR)
    replace(world.executor(), clock=back).down()
    assert list(tmp_path.iterdir()) == []


def journal_of(directory: Path, goal: Goal) -> bytes:
    world = begun(directory, goal)
    world.executor().up()
    return Journal(directory).path.read_bytes()


GOOD = '{"key": "create/0", "state": "intent", "at_s": 1.0, "fields": {}}'


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe",
        b"5",
        b"[]",
        b'{"key": 5, "state": "intent", "at_s": 1.0, "fields": {}}',
        b'{"key": "create/0", "state": "perhaps", "at_s": 1.0, "fields": {}}',
        b'{"key": "create/0", "state": "done", "at_s": 1.0, "fields": {}}',
        b'{"key": "create/0", "state": "done", "at_s": 1.0, "fields": {"VolumeId": [1]}}',
        b'{"key": "claim", "state": "done", "at_s": 1.0, "fields": {"serials": 5}}',
        b'{"key": "attach/0", "state": "refused", "at_s": 1.0, "fields": {}}',
        b'{"key": "attach/0", "state": "intent", "at_s": 1.0, "fields": {"parameters": 5}}',
        b"[" * 100_000,
    ],
    ids=range(11),
)
def test_a_damaged_line_of_a_journal_is_one_line_that_says_which(line: bytes, tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.begin(ebs(), 0.0)
    with journal.path.open("ab") as file:
        file.write(line + b"\n")
    with pytest.raises(FormatError) as caught:
        journal.read()
    assert str(caught.value).startswith(f"{journal.path}: ")
    assert "\n" not in str(caught.value)
    assert "is not as this pack wrote it" in str(caught.value)


def test_a_goal_of_another_shape_is_one_line(tmp_path: Path) -> None:
    (tmp_path / JOURNAL_NAME).write_text(
        '{"key": "goal", "state": "goal", "at_s": 0, "fields": {"arm": 5}}\n' + GOOD
    )
    with pytest.raises(FormatError, match="line 1: is not as this pack wrote it"):
        Journal(tmp_path).read()


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just([]), st.just({})
)


@given(data=st.data())
def test_whatever_value_stands_in_a_journal_it_is_read_or_refused_and_planned_with(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("journal")
    goal = data.draw(st.sampled_from(list(GOALS.values())))
    lines = [json.loads(line) for line in journal_of(directory, goal).splitlines()]
    line = data.draw(st.sampled_from(lines))
    place = data.draw(st.sampled_from([line, line["fields"]]))
    if place:
        place[data.draw(st.sampled_from(sorted(place)))] = data.draw(JUNK)
    (directory / JOURNAL_NAME).write_text("".join(json.dumps(each) + "\n" for each in lines))
    with suppress(EbsError):
        history = Journal(directory).read()
        if history is not None:
            UP[history.goal.sort](history, ArmState(watched_s=1000.0))
            DOWN[history.goal.sort](history, ArmState(watched_s=1000.0))


def test_a_damaged_journal_ends_no_clean_in_a_traceback_and_nothing_of_it_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    instance = Instance(tmp_path, PLANS["two volumes"], monkeypatch)
    assert instance.command("volumes", "up", "PLAN") == 0
    (path,) = (tmp_path / "run").glob(f"*/a/{JOURNAL_NAME}")
    with path.open("a") as file:
        file.write("5\n")
    instance.reboot()
    before = instance.left()
    capsys.readouterr()
    assert instance.command("clean") == 3
    err = capsys.readouterr().err.splitlines()
    assert err
    assert all(line.startswith("esrally-ebs: ") for line in err)
    assert [line for line in err if "is not as this pack wrote it" in line]
    assert instance.left() == before
    assert instance.untouched()
