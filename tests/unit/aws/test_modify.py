"""Changing a volume in place: what may be asked for, what is waited for, and what is measured meanwhile."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from changing_volume import Breaking, World
from fake_machine import FakeMachine

from esrally_ebs.aws import modify
from esrally_ebs.aws.clients import AwsError
from esrally_ebs.aws.modify import ModificationProgress, Settings, VolumeChange
from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.session import manual
from esrally_ebs.volumes import aws as backend

HOUR = 3600.0


def gp2(size_gib: int) -> Settings:
    return Settings(type="gp2", size_gib=size_gib, iops=3 * size_gib)


@pytest.mark.parametrize(
    ("size_gib", "iops", "mib"),
    [
        (100, 3000, 128),  # gp2 has 300 and bursts to 3000, 128 MiB/s: gp3's 3000, gp2's 128
        (500, 3000, 250),  # the documented case: 1500 IOPS and 250 MiB/s
        (2000, 6000, 250),  # 3 IOPS per GiB are more than gp3 has for nothing
    ],
)
def test_from_gp2_to_gp3_the_higher_of_both_is_asked_for(size_gib: int, iops: int, mib: int) -> None:
    target = modify.target_of(gp2(size_gib), VolumeChange(type="gp3"))
    assert (target.iops, target.throughput_mib) == (iops, mib)


def test_what_is_given_goes_before_what_would_be_filled_in() -> None:
    target = modify.target_of(gp2(500), VolumeChange(type="gp3", iops=4000, throughput_mib=125))
    assert target == Settings(type="gp3", size_gib=500, iops=4000, throughput_mib=125)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (VolumeChange(size_gib=50), "cannot shrink from 100 to 50 GiB"),
        (VolumeChange(type="gp2"), "nothing is to be changed"),
        (VolumeChange(type="gp3", iops=100_000), "100,000 IOPS is outside"),
        (VolumeChange(type="gp3", throughput_mib=1000), "1000 MiB/s needs at least 4,000 IOPS"),
        (VolumeChange(type="gp9"), "no type 'gp9'"),
        (VolumeChange(type="", size_gib=200), "no type ''"),  # of a shell's variable that is not set
        (VolumeChange(type="GP3"), "no type 'GP3'; .*; did you mean 'gp3'"),
        (VolumeChange(type="efs"), "EBS has no type 'efs'; use one of gp2, gp3"),
        (VolumeChange(type="instance-store", iops=500), "EBS has no type 'instance-store'"),
    ],
)
def test_what_no_volume_can_become_is_refused_before_aws_is_asked(change: VolumeChange, text: str) -> None:
    with pytest.raises(PlanError, match=text):
        modify.target_of(Settings(type="gp2", size_gib=100, iops=300), change)


@pytest.mark.parametrize(("name", "type_"), [("io2-block-express", "io2"), ("magnetic", "standard")])
def test_a_type_is_asked_for_by_the_name_that_aws_knows(name: str, type_: str) -> None:
    iops = 3000 if type_ == "io2" else None
    assert modify.target_of(gp2(100), VolumeChange(type=name, iops=iops)).type == type_
    with pytest.raises(PlanError, match="nothing is to be changed"):
        modify.target_of(Settings(type=type_, size_gib=100, iops=iops), VolumeChange(type=name))


@pytest.mark.parametrize("given", [{}, {"iops": 64_000}, {"throughput_mib": 1000}])
def test_what_was_bought_of_an_io1_is_not_dropped_for_gp3_without_a_word(given: dict[str, int]) -> None:
    now = Settings(type="io1", size_gib=1280, iops=64_000)  # which moves 1,000 MiB/s
    with pytest.raises(PlanError, match=r"AWS would give it 3,000 IOPS and 125 MiB/s .*; give both"):
        modify.target_of(now, VolumeChange(type="gp3", **given))
    both = VolumeChange(type="gp3", iops=64_000, throughput_mib=1000)
    assert modify.target_of(now, both) == Settings(
        type="gp3", size_gib=1280, iops=64_000, throughput_mib=1000
    )


@pytest.mark.parametrize("state", modify.UNDER_WAY)
def test_a_change_that_is_under_way_must_end_first(state: str) -> None:
    with pytest.raises(SetupError, match=rf"vol-1: an earlier change is still {state} \(40 %\)"):
        modify.check_free("vol-1", ModificationProgress(state=state, percent=40), at_s=0)


@pytest.mark.parametrize(("hours", "warnings"), [(5.9, 1), (6.0, 0)])
def test_a_change_of_the_last_six_hours_is_warned_of(hours: float, warnings: int) -> None:
    last = ModificationProgress(state="completed", percent=100, began_at=1000.0)
    assert len(modify.check_free("vol-1", last, at_s=1000.0 + hours * HOUR)) == warnings


@pytest.mark.parametrize(
    ("size", "rate", "text"),
    [
        ("100GB", None, "--size 100GB is no whole GiB, which AWS counts in; write for example 93GiB"),
        ("500MiB", None, "write for example 1GiB"),
        ("200", None, "--size 200 is no whole GiB, which AWS counts in; write for example 200GiB"),
        ("0", None, "write for example 1GiB"),
        ("1500000", None, "write for example 1GiB"),
        (None, "250", "write for example 250MiB/s"),
        (None, "130MB/s", "--throughput 130MB/s is no whole MiB/s, .* 124MiB/s"),
    ],
)
def test_a_size_that_aws_cannot_count_is_refused_and_not_rounded(
    size: str | None, rate: str | None, text: str
) -> None:
    with pytest.raises(PlanError, match=text):
        manual.change(type_=None, size=size, iops=None, throughput=rate)


class Rated:
    """AWS that has had enough changes."""

    def call(self, service: str, operation: str, **params: object) -> dict[str, object]:
        raise AwsError(f"{service}:{operation}", "VolumeModificationRateExceeded", "wait")


def test_the_limit_of_changes_is_one_line_that_says_when() -> None:
    with pytest.raises(SetupError, match="four changes in 24 hours"):
        modify.begin(Rated(), "vol-1", gp2(100), Settings(type="gp3", size_gib=100))


def test_following_ends_when_the_change_is_completed() -> None:
    world = World()
    states: list[str] = []
    modify.begin(world.aws, world.volume, gp2(100), Settings(type="gp3", size_gib=100, iops=3000))
    modify.follow(
        world.aws, world.volume, clock=world.clock, each=lambda progress: states.append(progress.state)
    )
    assert list(dict.fromkeys(states)) == ["modifying", "optimizing", "completed"]
    assert world.now >= 100 + HOUR  # as long as the volume in memory optimizes


def test_an_earlier_change_is_not_believed_and_one_failed_poll_is_repeated() -> None:
    def reply(state: str, began_at: float) -> dict[str, object]:
        began = datetime.fromtimestamp(began_at, UTC)
        return {"VolumesModifications": [{"ModificationState": state, "StartTime": began}]}

    class Told:
        def __init__(self) -> None:
            self.answers = [
                reply("completed", 100),
                None,
                reply("optimizing", 5000),
                reply("completed", 5000),
            ]

        def call(self, service: str, operation: str, **params: object) -> dict[str, object]:
            answer = self.answers.pop(0)
            if answer is None:
                raise AwsError("ec2:DescribeVolumesModifications", "RequestLimitExceeded", "slower")
            return answer

    world, states = World(), list[str]()
    modify.follow(
        Told(), "vol-1", clock=world.clock, each=lambda progress: states.append(progress.state), since=5000.0
    )
    assert states == ["modifying", "optimizing", "completed"]


def test_polls_that_keep_failing_are_given_up_after_ten_minutes() -> None:
    world = World()
    with pytest.raises(AwsError):
        modify.follow(Rated(), "vol-1", clock=world.clock, each=lambda _: None)
    assert 600 < world.now - 100 < 660


def test_a_poll_that_is_not_allowed_is_told_at_once() -> None:
    world = World()
    began_s = world.now
    aws = Breaking(world, "UnauthorizedOperation", "DescribeVolumesModifications")
    aws.fails = 1000
    with pytest.raises(AwsError):
        modify.follow(aws, world.volume, clock=world.clock, each=lambda _: None)
    assert world.now == began_s


@pytest.mark.parametrize("code", ["IncorrectModificationState", "ReadTimeoutError"])
def test_a_change_that_began_without_our_hearing_of_it_is_followed(code: str) -> None:
    world = World()
    target = Settings(type="gp3", size_gib=100, iops=3000, throughput_mib=128)
    modify.begin(Breaking(world, code, "ModifyVolume", takes_effect=True), world.volume, gp2(100), target)
    states = list[str]()
    modify.follow(
        world.aws, world.volume, clock=world.clock, each=lambda progress: states.append(progress.state)
    )
    assert states[-1] == "completed"


def test_a_change_of_somebody_else_is_not_taken_for_ours() -> None:
    world = World()
    world.aws.call("ec2", "ModifyVolume", VolumeId=world.volume, VolumeType="gp3", Iops=4000)
    ours = Settings(type="gp3", size_gib=100, iops=3000, throughput_mib=128)
    with pytest.raises(AwsError):
        modify.begin(world.aws, world.volume, gp2(100), ours)


def test_a_file_system_grows_by_its_mount_point_where_an_arm_is_a_directory_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a volume from a snapshot: xfs_growfs takes no path below a mount point."""
    machine = FakeMachine(tmp_path)
    machine.nvme("nvme1n1", "259:1", serial="vol0123456789abcdef1")
    machine.mount("/mnt/c", "/dev/nvme1n1", "259:1")
    commands: list[list[str | Path]] = []
    monkeypatch.setattr(backend, "Roots", lambda: machine.roots)
    monkeypatch.setattr(backend, "run", lambda argv, timeout_s: commands.append(argv))
    text = backend.grow(Path("/mnt/c/esrally-ebs-s"))
    assert commands == [["xfs_growfs", Path("/mnt/c")]]
    assert text == "/mnt/c: the file system is as large as its volume now"


@pytest.mark.parametrize("together", ["raid0", "btrfs"])
def test_a_volume_that_is_part_of_more_is_mounted_and_its_file_system_does_not_grow_by_itself(
    together: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = FakeMachine(tmp_path)
    disks = [machine.nvme(f"nvme{n}n1", f"259:{n}", serial=f"vol0123456789abcdef{n}") for n in (1, 2)]
    if together == "raid0":
        machine.array("md0", "9:0", disks, level="raid0")
        machine.mount("/mnt/c", "/dev/md0", "9:0")
    else:
        machine.btrfs("0b0b", disks)
        machine.mount("/mnt/c", "/dev/nvme1n1", "0:45", "btrfs")
    for module in (manual, backend):
        monkeypatch.setattr(module, "Roots", lambda: machine.roots)
    point = manual._mount_of("vol-0123456789abcdef2")
    assert point == Path("/mnt/c")
    assert f"the file system ({together}" in backend.grow(point)
    assert "has its old size; see docs/aws-arms.md" in backend.grow(point)
