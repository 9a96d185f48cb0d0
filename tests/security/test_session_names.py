"""What is no session's name is refused in one line at every entrance, and nothing is touched.

``--race-id="$UNSET"`` once removed the whole run directory, ``--race-id=/data`` removed /data.
"""

import json
from collections.abc import Callable
from pathlib import Path

import golden_session
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_plan import small_plan

from esrally_ebs.cli import main
from esrally_ebs.errors import FormatError, PlanError, SetupError
from esrally_ebs.model import State, session_name, short_name
from esrally_ebs.node import engine
from esrally_ebs.plan import Plan, parse_plan
from esrally_ebs.session import clean
from esrally_ebs.session.protocol import LiveSession
from esrally_ebs.session.steps import MachineSteps
from esrally_ebs.store import SessionFolder, find_session, list_sessions, load_session, running

BAD = ["", ".", "..", "/data", "a/b", "../victim", ".hidden", "-rf", "a b", "a\nb", "\u00e4", "x" * 82]


def containers(name: str) -> str:
    return engine.project(name, "gp3")


def steps(name: str) -> MachineSteps:
    return MachineSteps(name, parse_plan('name = "x"\n[[arm]]\nname = "a"\ntype = "gp3"\n', "x.toml"))


def session(name: str, plan: Plan) -> LiveSession:
    return LiveSession(MachineSteps(name, plan, start_reaper=lambda *_: None))


def record(name: str) -> SessionFolder:
    return SessionFolder.create(Path("/nowhere"), name, kind="race", plan=small_plan())


ENTRANCES: list[Callable[[str], object]] = [
    steps,
    clean.take_down,
    running.begin,
    running.claim,
    running.owner_lives,
    running.is_ours,
    running.folder_of,
    containers,
    record,
]


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    mount = tmp_path / "mount"
    mount.mkdir()
    return parse_plan(f'name = "x"\n[[arm]]\nname = "a"\ntype = "directory"\nmount = "{mount}"\n', "x.toml")


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("name", BAD)
def test_what_is_no_name_is_refused_in_one_line_and_nothing_is_touched(
    run: Path, victim: Path, entrance: Callable[[str], object], name: str
) -> None:
    running.begin("another")
    before = sorted(run.rglob("*"))
    with pytest.raises(PlanError, match=r"^session .*is not a name; use .*$"):
        entrance(name)
    assert sorted(run.rglob("*")) == before
    assert victim.read_text() == "years of work"


@pytest.mark.parametrize("name", ["by-hand", "by-hand-two"])
@pytest.mark.parametrize("entrance", [steps, record])
def test_no_race_takes_the_name_of_volumes_that_the_user_attached(
    run: Path, entrance: Callable[[str], object], name: str
) -> None:
    with pytest.raises(PlanError, match="names that begin so are for 'volumes up'"):
        entrance(name)


@given(st.text(max_size=90))
def test_a_name_is_one_folder_below_the_one_it_is_joined_to(text: str) -> None:
    try:
        name = session_name(text)
    except PlanError:
        return
    assert (Path("/run/x") / name).parent == Path("/run/x")
    assert name not in ("", ".", "..")


def test_sessions_that_begin_alike_have_names_of_their_own_everywhere() -> None:
    alike = ["nightly-1", "nightly-2", "Nightly-1"]
    assert len({short_name(name) for name in alike}) == 3
    assert len({engine.project(name, "gp3") for name in alike}) == 3


def test_the_same_id_twice_refuses_the_second_and_leaves_the_first(run: Path, plan: Plan) -> None:
    first = session("nightly", plan)
    context = first.prepare()
    before = sorted(run.rglob("*"))
    with pytest.raises(SetupError, match="exists already"):
        session("nightly", plan).prepare()
    assert sorted(run.rglob("*")) == before
    assert context.arms[0].volume.mount.is_dir()
    first.end(cancelled=True)
    assert list(run.iterdir()) == []


def test_the_same_id_in_another_home_is_refused_and_leaves_the_first(
    run: Path, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = session("nightly", plan)
    first.prepare()
    before = sorted(run.rglob("*"))
    monkeypatch.setenv("ESRALLY_EBS_HOME", str(tmp_path / "another"))
    with pytest.raises(SetupError, match="this session runs, or was killed"):
        session("nightly", plan).prepare()
    assert [session.state for session in list_sessions(tmp_path / "another")] == ["failed"]
    assert sorted(run.rglob("*")) == before
    first.end(cancelled=True)


@pytest.mark.parametrize("command", [("report", ""), ("gate", "", "--max", "p50=1"), ("compare", "", "")])
def test_an_empty_name_is_no_session(
    run: Path, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Every id begins with it, so it was the only session there is."""
    SessionFolder.create(run.parent / "home", "only", kind="race", plan=small_plan())
    assert main(command) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("id_", [*BAD, "x\naccept = ['lateness']", "$(reboot)"])
def test_a_session_of_others_has_a_name_that_plans_and_commands_may_quote(id_: str, tmp_path: Path) -> None:
    path = golden_session.record(tmp_path)
    record = json.loads((path / "session.json").read_text())
    del record["crc32"]
    (path / "session.json").write_text(json.dumps(record | {"id": id_}))
    with pytest.raises(FormatError, match=r"id: .* does not fit its format"):
        load_session(path)


def test_a_folder_that_somebody_called_latest_is_not_the_latest_session(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    theirs = SessionFolder.create(
        home, "theirs", kind="race", plan=small_plan(), path=Path("latest").absolute()
    )
    theirs.finish(State.COMPLETE)
    SessionFolder.create(home, "own", kind="race", plan=small_plan()).finish(State.COMPLETE)
    assert find_session(home, "latest") == home / "sessions" / "own"
    assert find_session(home, "./latest") == Path("latest")
