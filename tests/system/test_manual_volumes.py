"""Volumes attached by hand: kept by their owner, taken down whole, gone on with after a crash."""

from pathlib import Path

import pytest

from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.machine.resources import run_dir
from esrally_ebs.session import manual
from esrally_ebs.store import running

pytestmark = [pytest.mark.system, pytest.mark.beside]  # taking down asks Docker

PLAN = """name = "two"
[[arm]]
name = "a"
type = "directory"
[[arm]]
name = "b"
type = "directory"
"""


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ESRALLY_EBS_RUN", str(tmp_path / "run"))
    (tmp_path / "two.toml").write_text(PLAN)
    return str(tmp_path / "two.toml")


def test_what_is_up_is_the_users_own_until_it_goes_down(plan: str) -> None:
    assert [volume.spec.name for volume in manual.up(plan)] == ["a", "b"]
    assert running.owner_lives("by-hand-two")
    with pytest.raises(SetupError, match="attached already"):
        manual.up(plan)
    assert manual.down() == ["two"]
    assert not (run_dir() / "by-hand-two").exists()


def test_an_up_that_was_killed_is_nobodys_and_the_next_one_begins_anew(plan: str) -> None:
    first = manual.up(plan)
    (first[0].mount / "file").touch()
    (run_dir() / "by-hand-two" / "owner").write_text("1 0")  # as if a process had died before it was done
    assert not running.owner_lives("by-hand-two")
    second = manual.up(plan)
    assert not (second[0].mount / "file").exists()
    assert running.owner_lives("by-hand-two")
    manual.down()


def test_an_arm_that_the_plan_no_longer_has_goes_with_the_up_that_was_killed(plan: str) -> None:
    manual.up(plan)
    (run_dir() / "by-hand-two" / "owner").write_text("1 0")
    Path(plan).write_text(PLAN.partition('[[arm]]\nname = "b"')[0])
    lines: list[str] = []
    assert [volume.spec.name for volume in manual.up(plan, say=lines.append)] == ["a"]
    assert not (run_dir() / "by-hand-two" / "b").exists()
    assert "volume b: the plan no longer has it, so it is detached" in lines
    manual.down()


def test_an_arm_that_cannot_be_attached_takes_the_others_down(plan: str) -> None:
    Path(plan).write_text(PLAN + '[[arm]]\nname = "c"\ntype = "gp9"\n')
    with pytest.raises(PlanError, match="no type 'gp9'"):
        manual.up(plan)
    assert not (run_dir() / "by-hand-two").exists()


def test_a_dry_run_without_an_arm_on_aws_says_how_to_have_one(plan: str) -> None:
    with pytest.raises(PlanError, match=r"add --set 'aws=\{\}'"):
        manual.dry_run(plan)


def test_an_arm_that_is_not_on_one_ebs_volume_is_not_changed(plan: str) -> None:
    change = manual.change(type_="gp3", size="1TiB", iops=None, throughput="250MiB/s")
    assert (change.size_gib, change.throughput_mib) == (1024, 250)
    with pytest.raises(PlanError, match="arm a: not attached"):
        manual.modify("a", change)
    manual.up(plan)
    with pytest.raises(PlanError, match="only an arm on one EBS volume"):
        manual.modify("a", change)
    manual.down()
