"""Nodes that are started anew between parts of the rounds, for real, on arms of either kind of nodes."""

import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from faulted import Afterwards
from mounted import on_loop
from quick_node import NODE_TABLE
from race_under_test import Race, docker, plan, race
from rally_command import Homes
from small_race import ARMS, TASKS, Raced, raced

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.usefixtures("able_machine")]

STARTS, ROUNDS, ITERATIONS, WARMUPS = 3, 6, 2, 6
MOUNTED = ("gp2", "gp3", "io2")
PLAN = f"""\
name = "starts"
accept = ["lateness", "root-device", "caches-below"]
[dataset]
documents = 20_000
[race]
iterations = {ITERATIONS}
warmup_iterations = {WARMUPS}
{NODE_TABLE}
[design]
rounds = {ROUNDS}
starts = {STARTS}
"""
EMULATED = "".join(f'[[arm]]\nname = "{arm}"\ntype = "{arm}"\nsize = "2GiB"\n' for arm in ARMS)


@pytest.fixture
def mounts(tmp_path: Path) -> Iterator[dict[str, Path]]:
    """A file system on a device of its own for each arm."""
    points = {arm: tmp_path / arm for arm in MOUNTED}
    with ExitStack() as stack:
        for arm, point in points.items():
            stack.enter_context(on_loop(tmp_path / f"{arm}.image", point, mib=1024))
        yield points


def assert_each_start_was_measured(race: Raced, arms: tuple[str, ...]) -> None:
    assert {check.name for check in race.session.checks if check.forbids} == set()
    assert {row["success"] for row in race.measured} == {True}
    counts = Counter((row["arm"], row["round"]) for row in race.measured)
    assert counts == {(arm, number): ITERATIONS for arm in arms for number in range(1, ROUNDS + 1)}
    stages = [str(e.fields["name"]) for e in race.session.events if e.kind == "stage"]
    assert [name for name in stages if name.startswith("start nodes,")] == [
        f"start nodes, {number} of {STARTS}" for number in range(2, STARTS + 1)
    ]
    assert {check.name: check.ok for check in race.session.checks}["hits"]
    text = race.report("txt")
    assert f"under any JVM: nodes were started {STARTS} times" in text


def test_nodes_of_their_own_are_started_anew(own: Homes) -> None:
    (own.rally / "starts.toml").write_text(f'{PLAN}nodes = "per-arm"\n{EMULATED}')
    race = raced(own, f"--include-tasks={TASKS[0]}", plan="starts.toml")
    assert_each_start_was_measured(race, ARMS)
    assert len(race.warming) == STARTS * len(ARMS) * WARMUPS
    assert max(row["resident_before"] for row in race.measured) <= 0.01


def test_one_node_serves_three_arms_on_real_mounts_at_every_start(
    own: Homes, mounts: dict[str, Path]
) -> None:
    arms = "".join(
        f'[[arm]]\nname = "{arm}"\ntype = "mounted"\nmount = "{point}"\n' for arm, point in mounts.items()
    )
    (own.rally / "mounts.toml").write_text(f'{PLAN}nodes = "one"\n{arms}')
    race = raced(own, f"--include-tasks={TASKS[0]}", plan="mounts.toml")
    assert_each_start_was_measured(race, MOUNTED)
    assert {frozenset(row["arm"] for row in race.measured[at : at + 3]) for at in range(0, 36, 3)} == {
        frozenset(MOUNTED)
    }


def test_volumes_of_two_types_are_measured_in_all_rounds_and_compared_as_types(own: Homes) -> None:
    types = EMULATED.replace('size = "2GiB"\n', 'size = "1GiB"\nspread = 0.05\n')
    text = PLAN.replace(f"starts = {STARTS}", 'volumes = 3\nnodes = "one"')
    (own.rally / "volumes.toml").write_text(text + types)
    race = raced(own, f"--include-tasks={TASKS[0]}", plan="volumes.toml")
    assert {check.name for check in race.session.checks if check.forbids} == set()
    counts = Counter((row["arm"], row["round"]) for row in race.measured)
    volumes = [f"{arm}-{number}" for arm in ARMS for number in (1, 2, 3)]
    assert counts == {(name, number): ITERATIONS for name in volumes for number in range(1, ROUNDS + 1)}
    assert len({volume.spec.read_latency for volume in race.session.arms}) == len(volumes)
    text = race.report("txt")
    assert "scope: any volumes of these types under this JVM: 3 of each were measured" in text
    assert "means over 3 volumes of each type" in text


def start_anew(running: Race) -> bool:
    """Whether the nodes have been ended, to be started again."""
    labelled = f"label=esrally-ebs.session={running.id}"
    return bool(docker("ps", "-aq", "--filter", labelled, "--filter", "status=exited").split())


def test_a_race_that_is_killed_while_nodes_start_anew_leaves_nothing(
    home: Path, afterwards: Afterwards
) -> None:
    thrice = plan("starts = 3\n", arms=("gp3", "gp3")).replace("rounds = 1", "rounds = 3")
    with race(home, thrice) as running:
        running.reach(start_anew)
        struck = time.monotonic()
        running.main.kill()
        assert running.exit_code() == -signal.SIGKILL
        afterwards.row("main process, nodes start anew", running, -signal.SIGKILL, running.gone(struck))
    afterwards.listed(running, "failed", r"main process.*was killed; everything it started was taken down")
