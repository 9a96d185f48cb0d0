"""An arm on AWS is there or gone, whatever fails at whatever moment, and nothing else is ever touched."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aws_world import FAULTS, GOALS, Killed, World
from hypothesis import given, settings
from hypothesis import strategies as st

from esrally_ebs.aws.provision.goal import Goal
from esrally_ebs.aws.provision.journal import Journal
from esrally_ebs.errors import EbsError, SetupError

LONG = ("a volume of a snapshot", "a stripe of two")  # with the system tests, as they take their time
goals = pytest.mark.parametrize(
    "goal",
    [
        pytest.param(goal, id=name, marks=[pytest.mark.slow] if name in LONG else [])
        for name, goal in GOALS.items()
    ],
)


def moments_of(directory: Path, goal: Goal, kind: str, *, down: bool) -> list[int]:
    """The moments of an undisturbed up (or of the down after it) at which a fault of this kind may strike.

    To break off after a look is the same as before it, so that is tried once.
    """
    world = World(directory / "undisturbed", goal)
    world.start()
    world.executor().up()
    if down:
        world.moments = []
        world.executor().down()
    moments = [
        number
        for number, looks in enumerate(world.moments)
        if not looks or kind in ("before", "killed before")
    ]
    assert len(moments) >= 5  # an intent, an outcome and the act itself, and more of them
    return moments


def disturbed(action: Callable[[], object]) -> None:
    """Run something that a fault may break; anything else than the fault's own errors is a failure."""
    try:
        action()
    except (EbsError, Killed):
        return


def struck(directory: Path, goal: Goal, kind: str) -> Iterator[tuple[int, World]]:
    """A world for every moment of up, after an up that a fault of this kind has broken at that moment."""
    for moment in moments_of(directory, goal, kind, down=False):
        world = World(directory / str(moment), goal)
        world.start()
        world.fault = (moment, kind)
        disturbed(world.executor().up)
        world.fault = None
        yield moment, world


@pytest.mark.parametrize("goal", GOALS.values(), ids=GOALS.keys())
def test_an_arm_comes_up_and_goes_without_a_trace(goal: Goal, tmp_path: Path) -> None:
    world = World(tmp_path, goal)
    world.start()
    world.executor().up()
    assert goal.point in world.machine.mounts
    assert world.left()
    world.executor().down()
    assert world.left() == []
    assert list(tmp_path.iterdir()) == []
    assert world.untouched()


@goals
@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_at_any_moment_of_up_is_undone_by_down(kind: str, goal: Goal, tmp_path: Path) -> None:
    for moment, world in struck(tmp_path, goal, kind):
        world.executor().down()
        assert (moment, world.left()) == (moment, [])
        assert world.untouched()


@goals
@pytest.mark.parametrize("kind", FAULTS)
def test_after_a_fault_at_any_moment_of_up_another_run_continues_or_says_why_not(
    kind: str, goal: Goal, tmp_path: Path
) -> None:
    for moment, world in struck(tmp_path, goal, kind):
        problem = ""
        try:
            world.executor().up()
        except SetupError as error:
            problem = str(error)
        if goal.count > 1 and problem:  # a stripe that was begun and never heard of
            assert "take the arm down" in problem
        else:
            assert (moment, problem) == (moment, "")
            assert goal.point in world.machine.mounts
        world.executor().down()
        assert (moment, world.left()) == (moment, [])
        assert world.untouched()


@goals
@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_at_any_moment_of_down_is_mended_by_another_down(
    kind: str, goal: Goal, tmp_path: Path
) -> None:
    for moment in moments_of(tmp_path, goal, kind, down=True):
        world = World(tmp_path / str(moment), goal)
        world.start()
        world.executor().up()
        world.moments = []
        world.fault = (moment, kind)
        disturbed(world.executor().down)
        world.fault = None
        world.executor().down()
        assert (moment, world.left()) == (moment, [])
        assert world.untouched()


@given(
    goal=st.sampled_from(list(GOALS.values())),
    faults=st.lists(st.tuples(st.integers(0, 25), st.sampled_from(FAULTS)), min_size=1, max_size=5),
    ways=st.lists(st.booleans(), min_size=5, max_size=5),
)
@settings(max_examples=25, deadline=None)
def test_any_row_of_faults_ends_in_nothing(
    goal: Goal,
    faults: list[tuple[int, str]],
    ways: list[bool],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    world = World(tmp_path_factory.mktemp("row"), goal)
    world.start()
    for fault, goes_up in zip(faults, ways, strict=False):
        world.fault, world.moments = fault, []
        disturbed(
            world.executor().up if goes_up and Journal(world.directory).read() else world.executor().down
        )
    world.fault = None
    world.executor().down()
    assert world.left() == []
    assert world.untouched()
