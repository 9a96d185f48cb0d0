"""What the run directory and a killed session leave is told apart, taken down, and never a traceback."""

import os
from pathlib import Path

import pytest

from esrally_ebs import by_hand, clean, volumes
from esrally_ebs.cli import main
from esrally_ebs.errors import SetupError
from esrally_ebs.model import VolumeSpec


@pytest.mark.parametrize("words", ["", "123", "one two", "99999999 1"])
def test_an_owner_that_was_cut_or_has_gone_does_not_live(run: Path, words: str) -> None:
    (run / "s").mkdir(parents=True)
    (run / "s" / "owner").write_text(words)
    assert not clean.owner_lives("s")
    assert clean.abandoned() == ["s"]


def test_this_process_lives_and_what_is_attached_by_hand_counts_as_owned(run: Path) -> None:
    clean.write_owner("s")
    assert clean.owner_lives("s")
    (run / "s" / "owner").write_text("1 0")
    clean.hand_over("s")
    assert clean.abandoned() == []


def test_an_index_that_was_being_built_goes_with_its_session_alone(run: Path) -> None:
    datasets = run.parent / "home" / "datasets"
    for name in ("0123.deadbeef.unfinished", "0123.cafecafe.unfinished", "0123"):
        (datasets / name / "elasticsearch").mkdir(parents=True)
    assert clean.take_down("deadbeef-1234") == []
    assert sorted(path.name for path in datasets.iterdir()) == ["0123", "0123.cafecafe.unfinished"]


def test_detaching_goes_on_after_an_arm_that_stays(run: Path) -> None:
    for plan in ("by-hand-a", "by-hand-b"):
        clean.write_owner(plan)
    arm = run / "by-hand-a" / "arm"
    arm.mkdir()
    (arm / "volume.json").write_text("{")  # nobody can tell what it is
    with pytest.raises(SetupError):
        by_hand.down()
    assert [path.name for path in run.iterdir()] == ["by-hand-a"]


def test_the_parents_made_for_a_directory_go_with_a_killed_session(run: Path) -> None:
    clean.write_owner("s")
    spec = VolumeSpec(name="a", type="directory", size_bytes=0, mount=run.parent / "made" / "deep")
    volumes.attach(spec, run / "s" / "a")
    (run / "s" / "owner").write_text("99999999 1")

    assert [clean.take_down(session) for session in clean.abandoned()] == [[]]
    assert not (run.parent / "made").exists()


def test_the_parents_made_for_a_directory_go_when_it_is_taken_down_by_hand(run: Path) -> None:
    plan = run.parent / "p.toml"
    where = run.parent / "made" / "deep"
    plan.write_text(f'name = "p"\n[[arm]]\nname = "a"\ntype = "directory"\nmount = "{where}"\n')
    by_hand.up(str(plan))
    assert where.is_dir()

    assert by_hand.down() == ["p"]
    assert not (run.parent / "made").exists()


def test_that_nothing_was_attached_is_said(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["volumes", "down"]) == 0
    assert capsys.readouterr().out == "no arm is attached by hand\n"


@pytest.mark.parametrize("text", ["", "{}", '{"arms": 3}'])
def test_a_context_that_was_cut_is_one_line_and_can_be_taken_down(run: Path, text: str) -> None:
    clean.write_owner("by-hand-a")
    (run / "by-hand-a" / "context.json").write_text(text)
    with pytest.raises(SetupError, match=r"context\.json: not readable here; 'esrally-ebs volumes down'"):
        by_hand.attached()
    assert by_hand.down() == ["a"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user's file")
def test_another_users_session_is_one_line(run: Path) -> None:
    clean.write_owner("s")
    os.chown(run / "s", 0, 0)
    child = os.fork()
    if not child:
        os.seteuid(65534)
        try:
            clean.owner_lives("s")
        except SetupError as error:
            os._exit(0 if "another user's" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
