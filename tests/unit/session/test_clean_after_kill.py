"""``esrally-ebs clean`` after a ``volumes up`` or ``down`` that was killed: nothing of ours stays, nothing of
others' is touched, whatever the moment; also when the journal is lost, and tags alone tell what is ours.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from killed_world import PLANS, SESSION, Instance

from esrally_ebs.aws.provision.journal import JOURNAL_NAME

SLOW = [pytest.mark.slow, pytest.mark.long]


def plans(*quick: str, without: str = "") -> pytest.MarkDecorator:
    """Every kind of arm but one; all but the quick ones with ``make test-long``."""
    return pytest.mark.parametrize(
        "plan",
        [
            pytest.param(plan, id=name, marks=SLOW * (name not in quick))
            for name, plan in PLANS.items()
            if name != without
        ],
    )


ways = pytest.mark.parametrize(
    "torn", [pytest.param(False, id="whole"), pytest.param(True, id="torn", marks=SLOW)]
)
NOTHING, NOTHING_ELSE = "nothing is left behind", "nothing else is left behind"


UP, DOWN, CLEAN = ("volumes", "up", "PLAN"), ("volumes", "down"), ("clean",)


class Instances:
    """Instances on which a command is killed, one per moment at which it can be."""

    def __init__(self, root: Path, plan: str, patch: pytest.MonkeyPatch) -> None:
        self._root, self._plan, self._patch = root, plan, patch

    def killed(
        self, *words: str, torn: bool = False, before: Callable[[Instance], None] = lambda instance: None
    ) -> Iterator[Instance]:
        """``before`` the command, this was done on each."""
        undisturbed = self._instance("undisturbed", before)
        assert undisturbed.command(*words) == 0
        moments = undisturbed.doomed.moments
        numbers = [number for number, what in enumerate(moments) if not torn or what.startswith("open")]
        assert len(numbers) >= 5  # a journal has more than that alone
        for number in numbers:
            made = self._instance(str(number), before)
            assert made.command(*words, dies_at=number, torn=torn) is None
            yield made

    def _instance(self, name: str, before: Callable[[Instance], None]) -> Instance:
        (self._root / name).mkdir()
        made = Instance(self._root / name, self._plan, self._patch)
        before(made)
        return made


@pytest.fixture
def instances(tmp_path: Path, plan: str, monkeypatch: pytest.MonkeyPatch) -> Instances:
    return Instances(tmp_path, plan, monkeypatch)


def bring_up(instance: Instance) -> None:
    assert instance.command(*UP) == 0


def last_moment(instance: Instance) -> str:
    return f"{len(instance.doomed.moments)}, after {instance.doomed.moments[-1:]}"


def check_clean(instance: Instance, capsys: pytest.CaptureFixture[str]) -> None:
    """Clean brings it to nothing, says so, and finds nothing when it is asked again."""
    moment = last_moment(instance)
    capsys.readouterr()
    for turn in ("first", "second"):
        code = instance.command("clean")
        out, err = capsys.readouterr()
        assert (moment, turn, code, err) == (moment, turn, 0, "")
        *lines, last = out.splitlines()
        from_aws = [line for line in lines if not line.endswith(": removed")]
        assert last == (NOTHING_ELSE if from_aws else NOTHING)
    assert [line for line in lines if "left alone" not in line] == []
    assert (moment, instance.left()) == (moment, [])
    assert instance.untouched(), moment


@plans("two volumes", "EFS", "a disk of the instance")
@ways
def test_clean_undoes_an_up_that_was_killed_at_any_moment(
    instances: Instances, torn: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    for instance in instances.killed(*UP, torn=torn):
        check_clean(instance, capsys)


@plans("two volumes", "EFS", "a disk of the instance")
@ways
def test_clean_ends_a_down_that_was_killed_at_any_moment(
    instances: Instances, torn: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    for instance in instances.killed(*DOWN, torn=torn, before=bring_up):
        if "os.rename .owner.part" not in instance.doomed.moments:  # it had not begun
            assert instance.command(*CLEAN) == 0
            assert instance.left()  # what is attached by hand stays
            assert instance.command(*DOWN) == 0
        check_clean(instance, capsys)


def forget(run: Path) -> None:
    """All that stands in the run directory."""
    shutil.rmtree(run, ignore_errors=True)


def lose_journals(run: Path) -> None:
    """The rest of the run directory outlives them."""
    for journal in run.glob(f"*/*/{JOURNAL_NAME}"):
        journal.unlink()


def cut_journals(run: Path) -> None:
    """Each ends in the middle, mostly within a line."""
    for journal in run.glob(f"*/*/{JOURNAL_NAME}"):
        text = journal.read_bytes()
        journal.write_bytes(text[: len(text) // 2])


# AWS knows nothing of the instance's own disks: there our file system tells, which an array has not at once.
@plans("EFS", "a disk of the instance", without="a stripe of disks")
@pytest.mark.parametrize("lose", [forget, lose_journals, cut_journals])
def test_clean_finds_what_a_killed_up_made_when_its_journal_is_lost(
    instances: Instances, lose: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    for instance in instances.killed(*UP):
        lose(instance.root / "run")
        instance.reboot()
        check_clean(instance, capsys)


def orphan(instance: Instance) -> None:
    """The owner of what is up has died."""
    bring_up(instance)
    (instance.root / "run" / SESSION / "owner").write_text("1 0")


def lose_all(instance: Instance) -> None:
    """A reboot, and a run directory in memory."""
    bring_up(instance)
    forget(instance.root / "run")
    instance.reboot()


@plans("EFS", "a disk of the instance")
@pytest.mark.parametrize("before", [orphan, lose_all])
def test_a_clean_that_was_killed_itself_at_any_moment_is_ended_by_the_next(
    instances: Instances, before: Callable[[Instance], None], capsys: pytest.CaptureFixture[str]
) -> None:
    for instance in instances.killed(*CLEAN, before=before):
        check_clean(instance, capsys)
