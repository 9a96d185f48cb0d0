"""A session that changes a volume in place: what is measured before, while and after, and what stops it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from changing_volume import OWNER, Breaking, World

from esrally_ebs.aws.clients import Api
from esrally_ebs.aws.modify import VolumeChange
from esrally_ebs.errors import CommandError, PlanError
from esrally_ebs.model import BaselineRow, Event, Kind, Volume, VolumeSpec
from esrally_ebs.plan import parse_plan
from esrally_ebs.session import runs
from esrally_ebs.session.migration import Migration, phases, summary, volume_of
from esrally_ebs.store import SessionFolder, load_session
from esrally_ebs.store.context import Arm, Context, Member


def migrated(
    world: World, measure: Callable[[int], None], events: list[Event], api: Api | None = None
) -> None:
    Migration(
        api=api or world.aws,
        volume=world.volume,
        owner=OWNER,
        arm="data",
        change=VolumeChange(type="gp3"),
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
    assert rounds == list(range(len(rounds)))  # a report shows 0 and the highest as start and end


def test_a_poll_that_fails_after_a_pass_ends_no_migration() -> None:
    world, events = World(), list[Event]()
    breaking = Breaking(world, "RequestLimitExceeded", "DescribeVolumesModifications")
    breaking.fails = 0

    def measure(round_: int) -> None:
        world.passes(600)
        breaking.fails = 3 if round_ > 1 else 0  # 0 and 1 are before the change

    migrated(world, measure, events, api=breaking)
    assert set(phases(events).values()) >= {"before", "optimizing", "after"}


def test_nothing_is_measured_or_changed_when_the_change_is_not_allowed() -> None:
    world, events = World(), list[Event]()
    world.aws.volumes[world.volume].type = "gp3"
    with pytest.raises(PlanError):
        Migration(
            api=world.aws,
            volume=world.volume,
            owner=OWNER,
            arm="data",
            change=VolumeChange(size_gib=50),
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
        ("data", "", r"there is none; give a \[\[baseline\]\]"),
        ("data", JOB + "[race]\n", r"remove \[race\]"),
        ("data", 'size = "1500MiB"\n' + JOB, "size: AWS counts in whole GiB; write for example '2GiB'"),
        ("data", 'throughput = "100KiB/s"\n' + JOB, "throughput: AWS counts in whole MiB/s; .* '1MiB/s'"),
    ],
)
def test_a_plan_that_modifies_needs_its_arm_and_jobs(arm: str, more: str, text: str) -> None:
    with pytest.raises(PlanError, match=text):
        parse_plan(PLAN.format(arm=arm, more=more), "plan.toml")


@pytest.mark.parametrize(
    ("wrong", "mended", "refused"),
    [
        (f"{JOB}[race]\n", JOB, r"not by requests; remove \[race\]"),
        ("", JOB, r"and there is none; give a \[\[baseline\]\]"),
        ("[race]\n", JOB, r"not by requests; remove \[race\]"),
    ],
    ids=["a race beside a job", "no job", "a race and no job"],
)
def test_a_race_and_the_want_of_a_job_are_each_refused_of_a_change_alone(
    wrong: str, mended: str, refused: str
) -> None:
    with_change, without = PLAN.replace("{arm}", "data"), PLAN.split("[modify]")[0] + "{more}"

    with pytest.raises(PlanError, match=rf"^plan\.toml: modify: measured by fio jobs, {refused}$"):
        parse_plan(with_change.format(more=wrong), "plan.toml")
    assert parse_plan(without.format(more=wrong), "plan.toml").modify is None
    assert parse_plan(with_change.format(more=mended), "plan.toml").modify is not None


def test_a_file_system_that_does_not_grow_loses_nothing_that_was_measured(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By sudo fio, and what is done beside it, are the user's: xfs_growfs needs root."""
    plan = parse_plan(PLAN.format(arm="data", more=f'size = "200GiB"\n{JOB}'), "plan.toml")
    assert plan.modify is not None
    folder = SessionFolder.create(home, "s", kind="baseline", plan=plan)
    volume = Volume(spec=plan.arm[0], kind=Kind.EBS, mount=home, identity="vol-1")
    arm = Arm(name="data", cluster="default", members=(Member(volume=volume),))
    context = Context(session="s", folder=folder.path, run=home, plan=plan, arms=(arm,))

    def refuse(mount: Path) -> str:
        raise CommandError(f"xfs_growfs {mount}: exit code 1: Operation not permitted")

    monkeypatch.setattr(runs.migration.Migration, "run", lambda self: None)
    monkeypatch.setattr(runs.volumes, "grow", refuse)
    monkeypatch.setattr(runs.volumes, "this_owner", lambda: None)
    monkeypatch.setattr(runs, "Aws", lambda region: None)
    text = runs._migrate(context, plan, plan.modify, lambda line: None)
    assert (folder.path / "modification.txt").read_text() == f"{text}\n"
    (warning,) = load_session(folder.path).warnings
    assert warning.startswith("arm data: its file system has its old size: xfs_growfs ")


def test_a_plan_that_modifies_is_read() -> None:
    plan = parse_plan(PLAN.format(arm="data", more=JOB), "plan.toml")
    assert plan.modify is not None
    assert (plan.modify.type, plan.modify.passes) == ("gp3", 3)
