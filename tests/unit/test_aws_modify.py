"""Changing a volume in place: what may be asked for, what is waited for, and what is measured meanwhile."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from esrally_ebs import by_hand
from esrally_ebs.aws import modify
from esrally_ebs.aws.clients import AwsError
from esrally_ebs.aws.modify import Change, Progress, Settings
from esrally_ebs.aws.provision.goal import TAG_RUN
from esrally_ebs.aws.provision.memory import MemoryAws
from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.migration import Migration, phases, summary, volume_of
from esrally_ebs.model import BaselineRow, Event, Kind, Volume, VolumeSpec
from esrally_ebs.plan import parse_plan
from esrally_ebs.system import Clock

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
    target = modify.target_of(gp2(size_gib), Change(type="gp3"))
    assert (target.iops, target.throughput_mib) == (iops, mib)


def test_what_is_given_goes_before_what_would_be_filled_in() -> None:
    target = modify.target_of(gp2(500), Change(type="gp3", iops=4000, throughput_mib=125))
    assert target == Settings(type="gp3", size_gib=500, iops=4000, throughput_mib=125)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (Change(size_gib=50), "cannot shrink from 100 to 50 GiB"),
        (Change(type="gp2"), "nothing is to be changed"),
        (Change(type="gp3", iops=100_000), "100,000 IOPS is outside"),
        (Change(type="gp3", throughput_mib=1000), "1000 MiB/s needs at least 4,000 IOPS"),
        (Change(type="gp9"), "no type 'gp9'"),
    ],
)
def test_what_no_volume_can_become_is_refused_before_aws_is_asked(change: Change, text: str) -> None:
    with pytest.raises(PlanError, match=text):
        modify.target_of(Settings(type="gp2", size_gib=100, iops=300), change)


@pytest.mark.parametrize("state", modify.UNDER_WAY)
def test_a_change_that_is_under_way_must_end_first(state: str) -> None:
    with pytest.raises(SetupError, match=rf"vol-1: an earlier change is still {state} \(40 %\)"):
        modify.check_free("vol-1", Progress(state=state, percent=40), at_s=0)


@pytest.mark.parametrize(("hours", "warnings"), [(5.9, 1), (6.0, 0)])
def test_a_change_of_the_last_six_hours_is_warned_of(hours: float, warnings: int) -> None:
    last = Progress(state="completed", percent=100, began_at=1000.0)
    assert len(modify.check_free("vol-1", last, at_s=1000.0 + hours * HOUR)) == warnings


@pytest.mark.parametrize(
    ("size", "rate", "text"),
    [
        ("100GB", None, "size: 100GB is no whole GiB, which AWS counts in; write for example 93GiB"),
        ("500MiB", None, "write for example 1GiB"),
        (None, "130MB/s", "throughput: 130MB/s is no whole MiB/s, .* 124MiB/s"),
    ],
)
def test_a_size_that_aws_cannot_count_is_refused_and_not_rounded(
    size: str | None, rate: str | None, text: str
) -> None:
    with pytest.raises(PlanError, match=text):
        by_hand.change(type_=None, size=size, iops=None, throughput=rate)


class Rated:
    """AWS that has had enough changes."""

    def call(self, service: str, operation: str, **params: object) -> dict[str, object]:
        raise AwsError(f"{service}:{operation}", "VolumeModificationRateExceeded", "wait")


def test_the_limit_of_changes_is_one_line_that_says_when() -> None:
    with pytest.raises(SetupError, match="four changes in 24 hours"):
        modify.begin(Rated(), "vol-1", gp2(100), Settings(type="gp3", size_gib=100))


class World:
    """One gp2 volume of 100 GiB in memory, and time that only passes when something takes it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.clock = Clock(monotonic=lambda: self.now, sleep=self.passes, epoch=lambda: self.now)
        self.aws = MemoryAws(self.clock)
        self.volume = self.aws.call(
            "ec2",
            "CreateVolume",
            Size=100,
            VolumeType="gp2",
            Iops=300,
            ClientToken="",
            TagSpecifications=[{"Tags": [{"Key": TAG_RUN, "Value": "1"}]}],
        )["VolumeId"]
        self.now = 100.0

    def passes(self, seconds: float) -> None:
        self.now += seconds


def test_following_ends_when_the_change_is_completed() -> None:
    world = World()
    states: list[str] = []
    modify.begin(world.aws, world.volume, gp2(100), Settings(type="gp3", size_gib=100, iops=3000))
    modify.follow(
        world.aws, world.volume, clock=world.clock, each=lambda progress: states.append(progress.state)
    )
    assert list(dict.fromkeys(states)) == ["modifying", "optimizing", "completed"]
    assert world.now >= 100 + HOUR  # as long as the volume in memory optimizes


def test_following_gives_up_after_the_time_it_is_given() -> None:
    world = World()
    modify.begin(world.aws, world.volume, gp2(100), Settings(type="gp3", size_gib=100, iops=3000))
    with pytest.raises(SetupError, match=r"still optimizing \(.* after 600 s; it goes on by itself"):
        modify.follow(world.aws, world.volume, clock=world.clock, each=lambda _: None, limit_s=600)


def test_an_earlier_change_is_not_believed_and_one_failed_poll_is_repeated() -> None:
    def told(state: str, began_at: float) -> dict[str, object]:
        began = datetime.fromtimestamp(began_at, UTC)
        return {"VolumesModifications": [{"ModificationState": state, "StartTime": began}]}

    class Told:
        def __init__(self) -> None:
            self.answers = [told("completed", 100), None, told("optimizing", 5000), told("completed", 5000)]

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


def migrated(world: World, measure: Callable[[int], None], events: list[Event]) -> None:
    Migration(
        api=world.aws,
        volume=world.volume,
        arm="data",
        change=Change(type="gp3"),
        passes=2,
        measure=measure,
        record=events.append,
        clock=world.clock,
    ).run()


def test_a_migration_is_measured_before_while_and_after() -> None:
    world, rounds, events = World(), list[int](), list[Event]()

    def measure(round_: int) -> None:
        rounds.append(round_)
        world.passes(600)

    migrated(world, measure, events)
    of_round = phases(events)
    assert [of_round[number] for number in rounds[:2]] == ["before", "before"]
    # One pass takes 600 s, the change 3600 s: the first begins while settings move, the last ends after it.
    assert [of_round[number] for number in rounds[2:-2]] == [
        "modifying to optimizing",
        *["optimizing"] * 4,
        "optimizing to completed",
    ]
    assert [of_round[number] for number in rounds[-2:]] == ["after", "after"]
    assert (rounds[0], rounds[-1]) == (0, 1)  # what a report shows as start and end of the session
    assert len(set(rounds)) == len(rounds)


def test_nothing_is_measured_or_changed_when_the_change_is_not_allowed() -> None:
    world, events = World(), list[Event]()
    world.aws.volumes[world.volume].type = "gp3"
    with pytest.raises(PlanError):
        Migration(
            api=world.aws,
            volume=world.volume,
            arm="data",
            change=Change(size_gib=50),
            passes=1,
            measure=lambda _: pytest.fail("measured"),
            record=events.append,
            clock=world.clock,
        ).run()
    assert world.aws.volumes[world.volume].modified_s is None


def test_a_plan_changes_no_volume_that_the_session_has_not_made() -> None:
    world, events = World(), list[Event]()
    world.aws.volumes[world.volume].tags.clear()
    with pytest.raises(PlanError, match="this pack has not made it, so no plan changes it"):
        migrated(world, lambda _: pytest.fail("measured"), events)
    assert world.aws.volumes[world.volume].modified_s is None


def row(round_: int, p50_s: float, p99_s: float) -> BaselineRow:
    return BaselineRow(
        arm="data", round=round_, job="probe", op="read", bs_bytes=4096, numjobs=1, iodepth=1, iops=1 / p50_s,
        bandwidth_bytes_per_s=4096 / p50_s, mean_s=p50_s, p50_s=p50_s, p90_s=p50_s, p99_s=p99_s, p999_s=p99_s,
    )  # fmt: skip


def test_the_summary_has_medians_by_phase_and_the_worst_tail() -> None:
    passes = [(0, "before"), (2, "optimizing"), (3, "optimizing"), (4, "optimizing"), (1, "after")]
    events = [
        Event(
            at_s=0,
            kind="modification",
            fields={"what": "pass", "round": number, "phase": phase, "phase_at_end": phase},
        )
        for number, phase in passes
    ]
    times = {0: (1e-3, 2e-3), 2: (2e-3, 5e-3), 3: (4e-3, 9e-3), 4: (3e-3, 6e-3), 1: (0.5e-3, 1e-3)}
    lines = summary(events, [row(number, *times[number]) for number, _ in passes]).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["probe", "(read)", "before", "1", "1000", "1", "ms", "2", "ms", "2", "ms"],
        ["probe", "(read)", "optimizing", "3", "333", "3", "ms", "6", "ms", "9", "ms"],
        ["probe", "(read)", "after", "1", "2000", "500", "us", "1", "ms", "1", "ms"],
    ]


@pytest.mark.parametrize(
    ("kind", "identity"), [(Kind.EMULATED, ""), (Kind.EBS, "vol-1 vol-2"), (Kind.EFS, "fs-1")]
)
def test_only_an_arm_on_one_ebs_volume_is_changed_in_place(kind: Kind, identity: str) -> None:
    spec = VolumeSpec(name="data", type="gp2", size_bytes=1)
    with pytest.raises(PlanError, match="only an arm on one EBS volume is changed in place"):
        volume_of(Volume(spec=spec, kind=kind, mount=Path("/"), identity=identity))


PLAN = 'name = "m"\n[[arm]]\nname = "data"\ntype = "gp2"\n[modify]\narm = "{arm}"\ntype = "gp3"\n{more}'
JOB = '[[baseline]]\nname = "probe"\nrw = "randread"\nbs = "4k"\n'


@pytest.mark.parametrize(
    ("arm", "more", "text"),
    [
        ("other", JOB, "no arm is named 'other'"),
        ("data", "", r"remove \[race\] and give a \[\[baseline\]\]"),
        ("data", JOB + "[race]\n", r"remove \[race\]"),
    ],
)
def test_a_plan_that_modifies_needs_its_arm_and_jobs(arm: str, more: str, text: str) -> None:
    with pytest.raises(PlanError, match=text):
        parse_plan(PLAN.format(arm=arm, more=more), "plan.toml")


def test_a_plan_that_modifies_is_read() -> None:
    plan = parse_plan(PLAN.format(arm="data", more=JOB), "plan.toml")
    assert plan.modify is not None
    assert (plan.modify.type, plan.modify.passes) == ("gp3", 3)
