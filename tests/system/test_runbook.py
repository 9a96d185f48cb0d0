"""The runbook's own commands, read out of its page and run in its order, on small volumes and without Rally.

moto's server stands for AWS and loop devices for volumes. What a plan's name means is the only thing that is
replaced: the plans are the runbook's, made small enough for a test, and without their race.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto_server import Moto
from sessions_of_six_rounds import make

from esrally_ebs.aws.clients import Aws
from esrally_ebs.aws.instance import REHEARSAL_VARIABLE, place_of
from esrally_ebs.cli import main
from esrally_ebs.machine.processes import run
from esrally_ebs.machine.resources import run_dir
from esrally_ebs.session import manual

pytestmark = [pytest.mark.system, pytest.mark.beside]

PAGE = (Path(__file__).parents[2] / "docs" / "runbooks" / "gp2-to-gp3.md").read_text()
JOBS = '[[baseline]]\nname = "read"\nrw = "randread"\nbs = "4k"\nsize = "4m"\nruntime = "0.2s"\n'
COMPARED = (
    'name = "gp2-vs-gp3"\n[[arm]]\nname = "gp2"\ntype = "gp2"\nsize = "1GiB"\n'
    '[[arm]]\nname = "gp3"\ntype = "gp3"\nsize = "1GiB"\nthroughput = "128MiB/s"\n'
)
IN_PLACE = (
    'name = "gp2-to-gp3-in-place"\n[aws]\n[[arm]]\nname = "data"\ntype = "gp2"\nsize = "8GiB"\n'
    '[modify]\narm = "data"\ntype = "gp3"\npasses = 1\n'
)


@pytest.fixture
def production(aws: Moto, monkeypatch: pytest.MonkeyPatch, own_folders: Path) -> Iterator[str]:
    """An instance of production with a gp2 volume, whose id it gives; runs and home of their own."""
    api = Aws()
    image = api.call("ec2", "RegisterImage", Name="image", RootDeviceName="/dev/sda1")["ImageId"]
    made = api.call("ec2", "RunInstances", ImageId=image, MinCount=1, MaxCount=1, InstanceType="m5.large")
    instance = made["Instances"][0]["InstanceId"]
    zone = place_of(api, instance).zone
    volume = api.call("ec2", "CreateVolume", AvailabilityZone=zone, Size=500, VolumeType="gp2")["VolumeId"]
    monkeypatch.setenv(REHEARSAL_VARIABLE, instance)
    (own_folders / "gp2-vs-gp3.toml").write_text(COMPARED + JOBS)
    (own_folders / "gp2-to-gp3-in-place.toml").write_text(IN_PLACE + JOBS)
    yield volume
    manual.down()
    listed = run(["losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"], timeout_s=10)
    assert str(own_folders) not in listed


def commands() -> list[list[str]]:
    return [shlex.split(line) for line in re.findall(r"^\$ esrally-ebs (.+)$", PAGE, re.MULTILINE)]


def leave_an_arm(plan: str) -> None:
    """What an ``up`` leaves whose process has died, and with it the owner of the session."""
    Path(plan).write_text('name = "left"\n[aws]\n[[arm]]\nname = "a"\ntype = "gp3"\nsize = "1GiB"\n')
    manual.up(plan)
    assert tagged_as_ours()
    (run_dir() / "by-hand-left" / "owner").write_text("1 0")


def tagged_as_ours() -> list[str]:
    """What the runbook's last line looks for."""
    tagged = [{"Name": "tag-key", "Values": ["esrally-ebs:run"]}]
    listed = Aws().call("ec2", "DescribeVolumes", Filters=tagged)["Volumes"]
    return [volume["VolumeId"] for volume in listed]


def follow(words: list[str], production: str, folder: Path) -> int:
    """One line of the page, on small plans and with the id of the test's volume; its exit code."""
    if words == ["clean"]:
        leave_an_arm(str(folder / "left.toml"))  # else there is nothing to remove
    if words[0] == "gate":
        make(folder / "home", "a-race", at=4e9)  # the latest
    stands_for = {name: str(folder / f"{name}.toml") for name in ("gp2-vs-gp3", "gp2-to-gp3-in-place")}
    stands_for["vol-0123456789abcdef0"] = production
    accepted = ["--accept", "lateness"] if words[0] == "run" else []  # other tests run beside this one
    return main([*(stands_for.get(word, word) for word in words), *accepted])


# a session's reaper ends by itself a moment after it
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_runbook_can_be_followed(
    production: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    allowed = {"doctor": (0, 3)}  # it judges the machine, which may lack what this test needs not
    outputs: dict[str, str] = {}
    for words in commands():
        code = follow(words, production, tmp_path)
        shown = capsys.readouterr()
        assert code in allowed.get(words[0], (0,)), f"{shlex.join(words)}: {shown.err}"
        outputs[shlex.join(words)] = shown.out
        assert words != ["clean"] or tagged_as_ours() == []
    assert set(outputs) == {shlex.join(words) for words in commands()}
    assert all(name in outputs["doctor"] for name in ("docker engine", "fio", "mkfs.xfs", "losetup"))
    assert re.search(
        r"^by-hand-left: removed\n(?s:.*)^nothing (else )?is left behind$", outputs["clean"], re.MULTILINE
    )
    dry = next(text for words, text in outputs.items() if "--dry-run" in words)
    assert "ec2 CreateVolume" in dry
    assert "USD an hour" in dry
    in_place = outputs["run gp2-to-gp3-in-place"]
    assert re.search(r"read \(read\) +before +1 ", in_place)
    assert re.search(r"read \(read\) +after +1 ", in_place)
    forth, back = (text for words, text in outputs.items() if words.startswith("volumes modify"))
    assert "from gp2 of 500 GiB" in forth
    assert "to gp3 of 500 GiB, 3000 IOPS, 250 MiB/s" in forth
    assert "to gp2 of 500 GiB" in back
    # Production's volume is as it was, and nothing else is left.
    volumes = Aws().call("ec2", "DescribeVolumes")["Volumes"]
    assert [(v["VolumeId"], v["VolumeType"]) for v in volumes if v["Size"] == 500] == [(production, "gp2")]
    assert tagged_as_ours() == []
