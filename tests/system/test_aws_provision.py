"""Arms on AWS over real HTTP: moto's server stands for AWS, loop devices for volumes; all else is real.

moto answers at once, so the states between are not seen here; the unit tests have them, in memory.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from instance_on_moto import make_instance
from memory_aws import MemoryAws
from memory_host import MemoryHost
from moto_server import ACCOUNT, KEY_ID, SECRET, TOKEN, Moto

from esrally_ebs.aws import modify
from esrally_ebs.aws.clients import Aws, AwsError, action_of
from esrally_ebs.aws.instance import REHEARSAL_VARIABLE, place_of
from esrally_ebs.aws.provision.execute import Executor
from esrally_ebs.aws.provision.goal import TAG_OWNER, TAG_SESSION, RunOwner, new_goal
from esrally_ebs.aws.provision.host import LinuxHost, LoopHost, is_in_use
from esrally_ebs.aws.provision.journal import Journal
from esrally_ebs.cli import main
from esrally_ebs.errors import EbsError
from esrally_ebs.machine.mounts import mounts
from esrally_ebs.machine.processes import Clock, run
from esrally_ebs.machine.resources import run_dir
from esrally_ebs.model import AwsSpec, Kind, VolumeSpec
from esrally_ebs.session import clean, manual
from esrally_ebs.store import running
from esrally_ebs.volumes import backends as volumes

pytestmark = [pytest.mark.system, pytest.mark.beside]

GIB = 1024**3
# Rally refuses to race while a Python process has "esrally" in its arguments, so ours has none.
LAUNCH = (
    "from os import environ as e; from importlib import import_module as m;"
    " m(e['MODULE']).up(e['PLAN'], say=print)"
)
PLAN = """name = "migrate"
[[arm]]
name = "gp2"
type = "gp2"
size = "1GiB"
[[arm]]
name = "gp3"
type = "gp3"
size = "2GiB"
iops = 3000
throughput = "125MiB/s"
[aws]
"""


@cache
def _client(endpoint: str) -> Aws:
    return Aws()  # making one takes longer than many calls


def aws_api() -> Aws:
    return _client(os.environ["AWS_ENDPOINT_URL"])


@pytest.fixture
def instance(aws: Moto, monkeypatch: pytest.MonkeyPatch, own_folders: Path) -> Iterator[str]:
    """An instance with a volume of somebody else's; what is left of ours afterwards fails the test."""
    made, theirs = make_instance(aws_api(), size_gib=8)
    monkeypatch.setenv(REHEARSAL_VARIABLE, made)
    yield made
    for session in running.sessions()[0]:
        if (run_dir() / session).exists():
            clean.take_down(session)
    for loop in loops(own_folders):
        run(["losetup", "--detach", loop], timeout_s=10)
    left = {v["VolumeId"]: v for v in aws_api().call("ec2", "DescribeVolumes")["Volumes"]}
    assert left[theirs]["Attachments"][0]["InstanceId"] == made


@pytest.fixture
def plan(tmp_path: Path) -> str:
    path = tmp_path / "migrate.toml"
    path.write_text(PLAN)
    return str(path)


def ours() -> list[Mapping[str, Any]]:
    tagged = [{"Name": "tag-key", "Values": [TAG_SESSION]}]
    tagged_volumes: list[Mapping[str, Any]] = aws_api().call("ec2", "DescribeVolumes", Filters=tagged)[
        "Volumes"
    ]
    return tagged_volumes


def loops(root: Path) -> list[str]:
    listed = run(["losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"], timeout_s=10)
    return [line.split()[0] for line in listed.splitlines() if str(root) in line]


def nothing_left(root: Path) -> bool:
    return not ours() and not loops(root) and not [m for m in mounts() if root in m.mount_point.parents]


def test_arms_come_up_and_go_and_no_secret_is_kept_or_said(instance: str, plan: str, tmp_path: Path) -> None:
    lines: list[str] = []
    gp2, gp3 = manual.up(plan, say=lines.append)
    kept = [path.read_text() for path in run_dir().rglob("*") if path.is_file() and path.suffix != ""]
    for text in (*kept, *lines):
        assert not [secret for secret in (ACCOUNT, KEY_ID, SECRET, TOKEN) if secret in text]
    assert len(kept) == 5  # a journal and a record of each arm, and the context
    assert (gp2.kind, gp3.kind) == (Kind.EBS, Kind.EBS)
    assert gp3.filesystem == "xfs"
    (gp3.mount / "file").write_text("x")
    by_id = {volume["VolumeId"]: volume for volume in ours()}
    assert set(by_id) == {gp2.identity, gp3.identity}
    raw = by_id[gp3.identity]
    assert (raw["VolumeType"], raw["Size"], raw["Throughput"], raw["Encrypted"]) == ("gp3", 2, 125, True)
    assert raw["Attachments"][0]["InstanceId"] == instance
    assert {volume["Attachments"][0]["Device"] for volume in ours()} == {"/dev/sdg", "/dev/sdh"}
    assert manual.down() == ["migrate"]
    assert nothing_left(tmp_path)


def kill_at(word: str, line: str, process: subprocess.Popen[str]) -> bool:
    """Kill the process once it says the word."""
    if word in line:
        os.kill(process.pid, signal.SIGKILL)
    return word in line


def test_an_up_that_was_killed_goes_on_where_it_was(instance: str, plan: str, tmp_path: Path) -> None:
    command = {**os.environ, "MODULE": "esrally_ebs.session.manual", "PLAN": plan}
    with subprocess.Popen(
        [sys.executable, "-uc", LAUNCH], env=command, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert [line for line in iter(process.stdout.readline, "") if kill_at("AttachVolume", line, process)]
    before = {volume["VolumeId"] for volume in ours()}
    assert before
    assert [running.owner_lives(session) for session in running.sessions()[0]] == [False]
    identities = {volume.identity for volume in manual.up(plan)}
    assert before <= identities
    assert len(ours()) == 2
    manual.down()
    assert nothing_left(tmp_path)


def forget() -> None:
    """All that stands in the run directory, as a reboot does."""
    for path in sorted(run_dir().rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


def test_what_a_reboot_made_forgotten_is_swept_by_its_tags(instance: str, plan: str, tmp_path: Path) -> None:
    for volume in manual.up(plan):
        run(["umount", volume.mount], timeout_s=10)
    forget()
    earlier = RunOwner(instance=instance, boot="earlier", run_dir=run_dir()).tag
    for volume in ours():
        owner = [{"Key": TAG_OWNER, "Value": earlier}]
        aws_api().call("ec2", "CreateTags", Resources=[volume["VolumeId"]], Tags=owner)
    lines: list[str] = []
    assert volumes.sweep_aws(lines.append) == []
    assert [line for line in lines if "AWS still has by-hand-migrate/gp2: vol-" in line]
    assert nothing_left(tmp_path)


def test_what_is_of_this_boot_is_left_alone_by_a_run_directory_that_does_not_know_it(
    instance: str, plan: str, tmp_path: Path
) -> None:
    kept = [volume.identity for volume in manual.up(plan)]
    aside = run_dir().rename(tmp_path / "of another container")
    lines: list[str] = []
    assert volumes.sweep_aws(lines.append) == []
    assert sorted(line.split()[0] for line in lines if "left alone" in line) == sorted(kept)
    aside.rename(run_dir())
    manual.down()
    assert nothing_left(tmp_path)


def test_a_device_that_another_container_has_mounted_is_seen_as_held(tmp_path: Path) -> None:
    image, point = tmp_path / "image", tmp_path / "mnt"
    point.mkdir()
    with image.open("wb") as file:
        file.truncate(32 * 1024**2)
    device = Path(run(["losetup", "--find", "--show", image], timeout_s=10).strip())
    try:
        run(["mkfs.ext4", "-q", device], timeout_s=30)
        assert not is_in_use(device)
        mounting = ["unshare", "--mount", "sh", "-c", f"mount {device} {point} && echo done && read line"]
        with subprocess.Popen(mounting, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "done\n"
            assert not [mount for mount in mounts() if mount.mount_point == point]
            assert is_in_use(device)
            other.communicate("go\n", timeout=10)
        assert not is_in_use(device)
    finally:
        run(["losetup", "--detach", device], timeout_s=10)


class Failing:
    """AWS whose n-th change fails, before it takes effect or after."""

    def __init__(self, number: int, *, after: bool) -> None:
        self._aws, self._left, self._after = aws_api(), number, after

    def call(self, service: str, operation: str, **params: Any) -> Mapping[str, Any]:  # noqa: ANN401
        self._left -= not operation.startswith("Describe")
        fails = self._left < 0 and not operation.startswith("Describe")
        if not fails or self._after:
            answer = self._aws.call(service, operation, **params)
        if fails:
            self._left = 1000
            raise AwsError(action_of(service, operation), "ReadTimeoutError", "no answer")
        return answer


def up_and_down(executor: Executor) -> None:
    executor.up()
    executor.down()


@pytest.mark.parametrize("after", [False, True], ids=["before it takes effect", "after"])
@pytest.mark.parametrize("number", range(4), ids=["create", "attach", "detach", "delete"])
def test_a_call_that_fails_is_made_good(instance: str, tmp_path: Path, number: int, after: bool) -> None:
    spec = VolumeSpec(name="a", type="gp3", size_bytes=GIB, aws=AwsSpec())
    journal, now = Journal(tmp_path / "run" / "s" / "a"), [time.time()]
    clock = Clock(
        monotonic=lambda: now[0],
        sleep=lambda seconds: now.__setitem__(0, now[0] + seconds),
        epoch=lambda: now[0],
    )
    goal = new_goal(spec, place_of(aws_api(), instance), session="s", owner="o", point=tmp_path / "mnt")
    journal.begin(goal, now[0])
    machine = LoopHost(tmp_path / "loops", LinuxHost())
    failing = Executor(api=Failing(number, after=after), host=machine, journal=journal, clock=clock)
    sound = Executor(api=aws_api(), host=machine, journal=journal, clock=clock)
    with pytest.raises(EbsError, match="no answer"):
        up_and_down(failing)
    sound.down()
    assert nothing_left(tmp_path)
    assert not journal.path.exists()


def test_an_efs_arm_is_made_and_removed(instance: str, tmp_path: Path) -> None:
    spec = VolumeSpec(name="a", type="efs", size_bytes=GIB, aws=AwsSpec())
    goal = new_goal(spec, place_of(aws_api(), instance), session="s", owner="o", point=tmp_path / "mnt")
    journal = Journal(tmp_path / "run")
    journal.begin(goal, time.time())
    machine = MemoryHost(MemoryAws(Clock()), instance)  # nothing here speaks NFS
    executor = Executor(api=aws_api(), host=machine, journal=journal, clock=Clock(sleep=lambda _: None))
    executor.up()
    made = aws_api().call("efs", "DescribeFileSystems")["FileSystems"]
    assert [(fs["ThroughputMode"], fs["NumberOfMountTargets"]) for fs in made] == [("elastic", 1)]
    executor.down()
    assert aws_api().call("efs", "DescribeFileSystems")["FileSystems"] == []


def test_a_volume_is_changed_in_place_while_it_is_used(
    instance: str, plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gp2, _ = manual.up(plan)
    assert (
        main(["volumes", "modify", "gp2", "--type", "gp3", "--iops", "3000", "--throughput", "250MiB/s"]) == 0
    )
    assert "from gp2 of 1 GiB" in capsys.readouterr().out
    now, made_by_us = modify.settings_of(aws_api(), gp2.identity, volumes.this_owner())
    assert made_by_us
    assert (now.type, now.iops, now.throughput_mib) == ("gp3", 3000, 250)
    (gp2.mount / "file").write_text("x")
    manual.down()
    assert nothing_left(tmp_path)


def test_the_file_system_grows_with_its_volume(instance: str, plan: str, tmp_path: Path) -> None:
    gp2, _ = manual.up(plan)
    before = os.statvfs(gp2.mount)
    (image,) = (tmp_path / "home").rglob(gp2.identity)
    with image.open("ab") as file:
        file.truncate(2 * GIB)
    (device,) = (mount.source for mount in mounts() if mount.mount_point == gp2.mount)
    run(["losetup", "--set-capacity", device], timeout_s=10)
    assert volumes.grow(gp2.mount) == f"{gp2.mount}: the file system is as large as its volume now"
    after = os.statvfs(gp2.mount)
    assert after.f_blocks * after.f_frsize > 1.5 * before.f_blocks * before.f_frsize
    manual.down()
    assert nothing_left(tmp_path)


def test_a_volume_of_others_is_not_changed_unless_that_is_meant(
    instance: str, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = aws_api().call("ec2", "DescribeVolumes")["Volumes"]
    volume = next(raw["VolumeId"] for raw in theirs if raw["Size"] == 8)
    words = ["volumes", "modify", volume, "--type", "gp3"]
    assert main(words) == 2
    assert "this pack has not made it; add --not-ours" in capsys.readouterr().err
    assert main([*words, "--not-ours"]) == 0
