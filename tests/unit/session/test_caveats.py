"""What must be known of an arm, and how far a slow step is, reaches whoever started it."""

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from aws_world import HERE
from fake_machine import LOCAL_MODEL, FakeMachine
from memory_aws import MemoryAws
from memory_host import MemoryHost

from esrally_ebs.aws.instance import Place
from esrally_ebs.aws.provision.goal import new_goal
from esrally_ebs.aws.provision.host import read_through
from esrally_ebs.aws.provision.journal import Journal
from esrally_ebs.errors import SetupError
from esrally_ebs.machine.processes import Clock
from esrally_ebs.model import VolumeSpec
from esrally_ebs.plan import load_plan, parse_plan
from esrally_ebs.session import manual
from esrally_ebs.session.steps import MachineSteps
from esrally_ebs.store import load_session, running
from esrally_ebs.units import GIB
from esrally_ebs.volumes import aws as aws_volumes
from esrally_ebs.volumes import backends as volumes
from esrally_ebs.volumes.record import Record, read_record

MADE = 'name = "made"\n[[arm]]\nname = "nfs"\ntype = "efs"\n[aws]\nregion = "us-east-1"\n'
SNAPSHOT = (
    'name = "read"\n[[arm]]\nname = "a"\ntype = "gp3"\nsize = "2GiB"\n'
    '[aws]\nregion = "us-east-1"\nsnapshot = "snap-0123456789abcdef0"\n'
)
OF_EFS = ("arm nfs: an NFS file system", "arm nfs: read ahead is 15,360 KiB", "arm nfs: what is not elastic")


def plan_file(folder: Path, text: str) -> str:
    path = folder / "plan.toml"
    path.write_text(text)
    return str(path)


def test_up_says_what_must_be_known_before_it_makes_an_arm(run: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    with pytest.raises(SetupError, match="volume 'nfs'"):
        manual.up(plan_file(tmp_path, MADE), say=lines.append)
    assert len(lines) == len(OF_EFS)
    assert all(line.startswith(start) for line, start in zip(lines, OF_EFS, strict=True))


def test_up_that_fails_says_what_it_cannot_take_down(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stays = "AWS ec2:DeleteVolume: ExpiredToken; vol-1 stays and goes on costing 0.0110 USD an hour"
    monkeypatch.setattr(manual.clean, "take_down", lambda session: [stays])
    lines: list[str] = []
    with pytest.raises(SetupError, match="volume 'nfs'"):
        manual.up(plan_file(tmp_path, MADE), say=lines.append)
    assert lines[-1] == f"left behind: {stays}"


def test_up_says_that_something_stays_where_ctrl_c_came_again(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(session: str) -> list[str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(manual.clean, "take_down", interrupt)
    lines: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        manual.up(plan_file(tmp_path, MADE), say=lines.append)
    assert lines[-1].startswith("left behind: what was not yet detached")
    assert lines[-1].endswith("run 'esrally-ebs clean'")


def test_up_raises_its_own_error_although_nobody_listens_to_what_stays(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def say(text: str) -> None:
        if text.startswith("left behind"):
            raise BrokenPipeError

    monkeypatch.setattr(manual.clean, "take_down", lambda session: ["loop3: in use"])
    with pytest.raises(SetupError, match="volume 'nfs'"):
        manual.up(plan_file(tmp_path, MADE), say=say)


def test_what_a_killed_up_of_another_kind_has_left_goes_before_an_arm_is_made_on_aws(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = running.begin("by-hand-made") / "nfs"
    volumes.attach(VolumeSpec(name="nfs", type="directory", size_bytes=0), directory)
    (directory.parent / "owner").write_text("1 0")
    before: list[Record | None] = []

    def attach(*_: object, say: Callable[[str], None]) -> None:
        before.append(read_record(directory))
        raise SetupError("no instance")

    monkeypatch.setattr(manual.volumes, "attach", attach)
    with pytest.raises(SetupError, match="no instance"):
        manual.up(plan_file(tmp_path, MADE))
    assert before == [None]
    assert not run.exists() or not any(run.iterdir())


def test_a_sessions_report_warns_of_what_must_be_known(run: Path, tmp_path: Path) -> None:
    plan = load_plan(Path(plan_file(tmp_path, MADE)))
    steps = MachineSteps("s", plan, start_reaper=lambda *_: None)
    steps.record()
    steps.begin()
    with pytest.raises(SetupError, match="volume 'nfs'"):
        steps.attach()
    assert steps.folder is not None
    warnings = [text for text in load_session(steps.folder.path).warnings if text.startswith("arm ")]
    assert len(warnings) == len(OF_EFS)
    assert all(line.startswith(start) for line, start in zip(warnings, OF_EFS, strict=True))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    """An instance on which a user has mounted EFS, disks of the instance, an EBS volume and another NFS."""
    made = FakeMachine(tmp_path / "machine")
    made.mount("/", "/dev/root", "8:1", "ext4")
    made.mount("/mnt/nfs", "fs-0a1b2c3d.efs.us-east-1.amazonaws.com:/", "0:45", "nfs4")
    made.mount("/mnt/nas", "nas.example.org:/export", "0:46", "nfs4")
    made.nvme("nvme1n1", "259:2", serial="AWS1234567890ABCDEF", model=LOCAL_MODEL)
    made.mount("/mnt/local", "/dev/nvme1n1", "259:2")
    made.nvme("nvme2n1", "259:3", serial="vol0123456789abcdef0")
    made.mount("/mnt/ebs", "/dev/nvme2n1", "259:3")
    monkeypatch.setattr(aws_volumes, "Roots", lambda: made.roots)
    return made


@pytest.mark.usefixtures("machine", "run")
@pytest.mark.parametrize("type_", ["mounted", "gp3", "efs", "instance-store"])
@pytest.mark.parametrize(
    ("arm", "starts"),
    [
        ("nfs", OF_EFS),
        ("local", ("arm local: disks of the instance", "arm local: writes get slower")),
        ("ebs", ()),
        ("nas", ()),
    ],
)
def test_a_users_own_mount_has_the_caveats_of_what_it_really_is(
    arm: str, starts: tuple[str, ...], type_: str
) -> None:
    plan = f'name = "own"\n[[arm]]\nname = "{arm}"\ntype = "{type_}"\nmount = "/mnt/{arm}"\n'
    caveats = [line for spec in parse_plan(plan, "own.toml").arm for line in volumes.caveats(spec)]
    assert len(caveats) == len(starts)
    assert all(line.startswith(start) for line, start in zip(caveats, starts, strict=True))


@pytest.mark.parametrize(
    ("iops", "texts"), [(12_000, ["allowed 3,072 MiB/s, of which the emulator carried 2,000"]), (4000, [])]
)
def test_an_emulated_arm_that_the_emulator_may_not_carry_is_said(iops: int, texts: list[str]) -> None:
    plan = f'name = "fast"\n[[arm]]\nname = "a"\ntype = "io2"\niops = {iops}\n'
    (spec,) = parse_plan(plan, "fast.toml").arm
    caveats = volumes.caveats(spec)
    assert len(caveats) == len(texts)
    assert all(text in caveat for text, caveat in zip(texts, caveats, strict=True))


class ReadingMachine(MemoryHost):
    """An instance in memory that reads a volume from a snapshot as Linux does, from a file."""

    def __init__(self, aws: MemoryAws, file: Path, progress: Callable[[int, int], None]) -> None:
        super().__init__(aws, HERE)
        self._file, self._progress = file, progress

    def do(self, operation: str, arguments: Mapping[str, Any]) -> None:
        if operation == "initialise":
            read_through(self._file, 2 * GIB, self._progress)  # an empty file: every read ends at once
        super().do(operation, arguments)


def test_up_says_how_far_a_volume_is_read_from_its_snapshot(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count(1_000_000.0, 60.0)  # whatever AWS takes has passed when it is asked again
    aws = MemoryAws(Clock(monotonic=lambda: next(ticks), sleep=lambda s: None, epoch=lambda: next(ticks)))
    aws.instances = {HERE}
    (tmp_path / "disk").touch()
    monkeypatch.setattr(aws_volumes, "Aws", lambda region: aws)
    monkeypatch.setattr(
        aws_volumes, "LinuxHost", lambda progress: ReadingMachine(aws, tmp_path / "disk", progress)
    )
    plan = plan_file(tmp_path, SNAPSHOT)
    # An 'up' that was killed right after its first line, so that no instance need be found for the arm.
    (spec,) = load_plan(Path(plan)).arm
    directory = running.begin("by-hand-read").resolve() / "a"
    (directory / "mnt").mkdir(parents=True)
    place = Place(instance=HERE, zone="us-east-1a", region="us-east-1", subnet="subnet-1")
    goal = new_goal(spec, place, session="by-hand-read", owner="me", point=directory / "mnt")
    Journal(directory).begin(goal, 1_000_000.0)
    (directory.parent / "owner").write_text("1 0")
    lines: list[str] = []
    (volume,) = manual.up(plan, say=lines.append)
    assert volume.identity.startswith("vol-")
    progress = [line for line in lines if "initialised" in line]
    assert progress == ["a: initialised 1 of 2 GiB", "a: initialised 2 of 2 GiB"]
