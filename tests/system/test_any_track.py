"""Tracks that do not know the pack, raced as they are."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import user_tracks
from rally_command import Homes, homes
from small_race import SHORT

from esrally_ebs.machine.resources import resource
from esrally_ebs.store import Session, find_session, load_session

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Homes]:
    with homes(tmp_path_factory.mktemp("any")) as made:
        plan = SHORT.replace("rounds = 4", "rounds = 1")
        (made.rally / "plan.toml").write_text(plan.replace("warmup_iterations = 6", "warmup_iterations = 2"))
        yield made


def content(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".offset", ".pyc")]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def raced(at: Homes, track: Path, *flags: str) -> Session:
    ended = at.pack_race(f"--plan={at.rally / 'plan.toml'}", *flags, track=track)
    assert ended.exit_code == 0, ended.output
    return load_session(find_session(at.pack, "latest"))


@pytest.mark.parametrize(
    ("make", "flags", "tasks", "documents"),
    [
        (user_tracks.places, ("--track-params=shards:3",), {"word", "scroll", "count-places"}, 2001),
        pytest.param(user_tracks.web_logs, (), {"latest", "by-path"}, 3000, marks=pytest.mark.long),
        pytest.param(user_tracks.papers, (), {"phrase", "pages"}, 400, marks=pytest.mark.long),
        pytest.param(user_tracks.points, (), {"nearest", "nearest-red"}, 1000, marks=pytest.mark.long),
    ],
)
def test_a_track_without_our_line_is_raced_on_both_arms_and_left_as_it_was(
    at: Homes, make: Callable[[Path], Path], flags: tuple[str, ...], tasks: set[str], documents: int
) -> None:
    folder = at.rally / make.__name__
    folder.mkdir()
    track = make(folder)
    before = content(track)
    session = raced(at, track, *flags)
    assert content(track) == before
    assert session.dataset["documents"] == documents
    assert session.plan.race is not None
    assert session.plan.race.track == make.__name__
    # this machine's processors may be shared, or busy with whatever else it does
    assert {check.name for check in session.checks if not check.ok} <= {"processors", "lateness"}
    measured = defaultdict(set)
    for row in session.samples.to_pylist():
        assert row["success"]
        if row["phase"] == "measure":
            measured[row["task"], row["arm"]].add(row["hits"])
            assert row["resident_before"] <= 0.01
    assert set(measured) == {(task, arm) for task in tasks for arm in ("gp2", "gp3")}
    assert all(measured[task, "gp2"] == measured[task, "gp3"] for task in tasks)
    assert list(at.run.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize(("name", "documents"), [("logs-ebs", 3000), ("vectors-ebs", 1000)])
def test_the_other_tracks_that_ship_are_raced(at: Homes, name: str, documents: int) -> None:
    given = f"--track-params=plan:{at.rally / 'plan.toml'},documents:{documents}"
    ended = at.race(given, track=resource("tracks") / name)
    assert ended.exit_code == 0, ended.output
    session = load_session(find_session(at.pack, "latest"))
    assert session.dataset["documents"] == documents
    checks = {check.name: check.ok for check in session.checks}
    assert checks["hits"]
    measured = [row for row in session.samples.to_pylist() if row["phase"] == "measure"]
    assert {row["arm"] for row in measured} == {"gp2", "gp3"}
    assert min(row["hits"] for row in measured) > 0


@pytest.mark.long
def test_a_track_with_a_syntax_error_is_one_line(at: Homes) -> None:
    folder = at.rally / "broken"
    folder.mkdir()
    (folder / "track.json").write_text('{"version": 2,')
    ended = at.pack_race(track=folder)
    assert ended.exit_code == 2
    output = ended.output.partition("rally.log:")[0]
    assert "Traceback" not in output
    (line,) = [line for line in output.splitlines() if "Could not load" in line]
    assert line.endswith("line 1 column 15 (char 14)")
