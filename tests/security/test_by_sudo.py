"""Commands that a user calls by sudo are that user's; root does what needs root, and leaves nothing."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import small_race
from leftovers import leftovers
from quick_node import NODE_TABLE
from shared_python import NOBODY, by_sudo, environment

from esrally_ebs.machine.caller import Caller
from esrally_ebs.machine.processes import argv_of
from esrally_ebs.model import NODE_USER, AwsSpec, Kind, Volume, VolumeSpec
from esrally_ebs.volumes import backends as volumes

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")

ROOT = Path(__file__).parents[2]
PLAN = """\
name = "by-sudo"
accept = ["lateness"]
[[arm]]
name = "gp3"
type = "gp3"
size = "1GiB"
[[baseline]]
name = "short"
rw = "randread"
bs = "16k"
size = "4m"
runtime = "{seconds}s"
"""


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    with environment() as folder:
        for seconds in (1, 60):
            (folder / f"{seconds}.toml").write_text(PLAN.format(seconds=seconds))
        yield folder


@pytest.fixture
def sudo(shared: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    env = by_sudo(shared, shared / "run")
    monkeypatch.setenv("ESRALLY_EBS_RUN", env["ESRALLY_EBS_RUN"])
    return env


def call(*words: object, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words],
        env=env,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@contextmanager
def started(shared: Path, sudo: dict[str, str], name: str, script: str) -> Iterator[subprocess.Popen[bytes]]:
    """A race by sudo of a Rally that is this script."""
    path = shared / "bin" / name / "esrally"
    path.parent.mkdir(exist_ok=True)
    path.write_text(script)
    words, pipe = [str(shared / "bin" / "python"), str(path), "race"], subprocess.PIPE
    with subprocess.Popen(words, env=sudo, stdout=pipe, stderr=pipe, start_new_session=True) as command:
        yield command


OTHERS = "other Rally processes"  # another test's race: Rally allows one on a machine
RACES_WAIT_S = 200.0


def call_race(*words: object, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """``call``, again as long as another test races."""
    until = time.monotonic() + RACES_WAIT_S
    while True:
        race = call(*words, env=env)
        if OTHERS not in race.stdout + race.stderr or time.monotonic() > until:
            return race
        time.sleep(2)


def test_a_command_that_reads_is_the_caller_s(shared: Path, sudo: dict[str, str], tmp_path: Path) -> None:
    log = shared / "home" / "slow.log"
    log.write_text('{"query": {"match_all": {}}}\n')
    made = call("esrally-ebs", "simulate", shared / "1.toml", env=sudo)
    assert (made.returncode, made.stderr) == (0, "")
    (session,) = (shared / "home" / "ebs" / "sessions").iterdir()
    assert {path.stat().st_uid for path in session.rglob("*")} == {NOBODY}
    trace = ROOT / "tests" / "golden" / "traces" / "iolog-v3.txt"
    kept = shared / "home" / "of-another-tool"
    made = call("esrally-ebs", "trace", f"--from={trace}", "--size=1GiB", "--output", kept, env=sudo)
    assert {path.stat().st_uid for path in (kept, *kept.rglob("*"))} == {NOBODY}, made.stderr
    session.rename(tmp_path / "roots")  # where only root may look
    assert "Permission denied" in call("esrally-ebs", "report", tmp_path / "roots", env=sudo).stderr
    alone = {**sudo, "SUDO_UID": "0"}
    assert call("esrally-ebs", "report", tmp_path / "roots", env=alone).returncode == 0


@pytest.mark.parametrize("words", [("race", "--track-path=tracks/noaa-ebs"), ("list", "tracks")])
def test_rally_is_the_caller_s_before_it_reads_anything(
    shared: Path, sudo: dict[str, str], words: tuple[str, ...]
) -> None:
    """Seen from a module of Rally's own that it imports first."""
    script = shared / "bin" / "probe" / "esrally"
    script.parent.mkdir(exist_ok=True)
    script.write_text(
        "import os, sys\nprint(os.getresuid(), os.getresgid(), os.getgroups(), os.environ['HOME'],"
        " 'ESRALLY_EBS_KEEPER' in os.environ)\n"
    )
    done = call(shared / "bin" / "python", script, *words, env=sudo)
    three = str((NOBODY,) * 3)
    assert done.stdout == f"{three} {three} [{NOBODY}] /nonexistent {words[0] == 'race'}\n"
    assert done.stderr == ""


def test_a_python_that_the_caller_may_not_run_is_one_line(shared: Path, sudo: dict[str, str]) -> None:
    home = shared / "roots"
    home.mkdir(mode=0o700)
    (home / "python").symlink_to((shared / "bin" / "python").resolve())
    done = call(home / "python", "-m", "esrally_ebs", "simulate", "x", env={**sudo, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 3
    assert re.fullmatch(r"\[ERROR\] .*: user nobody, who called by sudo, may not use it; .*\n", done.stderr)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_keeper_reaches_the_command(
    shared: Path, sudo: dict[str, str], number: signal.Signals
) -> None:
    waits = "import signal\nprint('there', flush=True)\nsignal.pause()\n"
    with started(shared, sudo, "waits", waits) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == b"there\n"
        command.send_signal(number)
        command.communicate(timeout=30)
    assert command.returncode == 128 + number


def test_ctrl_c_before_the_keeper_is_there_ends_both_without_a_word(
    shared: Path, sudo: dict[str, str]
) -> None:
    """Its modules load for a second or more, while which a traceback was all that one saw."""
    for wait_s in (0.0, 0.2):
        with started(shared, sudo, "never", "print('there', flush=True)\n") as command:
            while "esrally_ebs.session.keeper" not in argv_of(command.pid):
                assert command.poll() is None
                time.sleep(0.001)
            time.sleep(wait_s)
            os.killpg(command.pid, signal.SIGINT)
            assert command.communicate(timeout=30) == (b"", b""), wait_s
        assert command.returncode == 130


def test_a_signal_to_all_of_a_command_s_processes_reaches_it_once(shared: Path, sudo: dict[str, str]) -> None:
    """A second one would cut short what the first began: taking the session down."""
    counts = (
        "import signal, time\ntimes = []\nsignal.signal(signal.SIGINT, lambda *_: times.append(1))\n"
        "print('there', flush=True)\n"
        "while not times: time.sleep(0.001)\nfor _ in range(100): time.sleep(0.01)\nprint(len(times))\n"
    )
    with started(shared, sudo, "counts", counts) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == b"there\n"
        os.killpg(command.pid, signal.SIGINT)
        assert command.communicate(timeout=30)[0] == b"1\n"


def test_ctrl_c_ends_no_tool_of_a_step_that_root_is_about(shared: Path) -> None:
    """That step would fail, and its session, before race control has heard that it is cancelled."""
    script = shared / "tool.py"
    script.write_text(
        "import signal\nfrom esrally_ebs.machine.processes import run\n"
        "signal.signal(signal.SIGINT, lambda *_: None)\nprint('there', flush=True)\n"
        "print(run(['bash', '-c', 'sleep 1; echo whole'], timeout_s=20))\n"
    )
    words = [str(shared / "bin" / "python"), str(script)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as keeper:
        assert keeper.stdout is not None
        assert keeper.stdout.readline() == "there\n"
        while not psutil.Process(keeper.pid).children():
            time.sleep(0.02)
        time.sleep(0.2)
        os.killpg(keeper.pid, signal.SIGINT)
        assert keeper.communicate(timeout=30)[0].strip() == "whole"


def left(shared: Path, family: Sequence[psutil.Process] = ()) -> list[str]:
    """What there is of the sessions here, and of ``family``, after at most 30 s."""

    def remains() -> list[str]:
        live = [repr(each) for each in family if lives(each)]
        folders = [path.name for path in (shared / "run").glob("*")]
        return live + processes(shared) + [one.text for one in leftovers()] + folders

    until = time.monotonic() + 30
    while (still := remains()) and time.monotonic() < until:
        time.sleep(0.2)
    return still


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def family_of(pid: int) -> list[psutil.Process]:
    """The process that was called, which is the keeper, and its children: their titles name no session."""
    called = psutil.Process(pid)
    return [called, *called.children(recursive=True)]


def processes(shared: Path) -> list[str]:
    """Those of the sessions here, by their directory or session; other tests may have some of their own."""
    sessions = (shared / "home" / "ebs" / "sessions").glob("*")
    marks = [str(shared / "run"), *(path.name[:8] for path in sessions)]
    live = psutil.process_iter(["cmdline", "cwd", "status"])
    titles = [
        " ".join([*(each.info["cmdline"] or ()), each.info["cwd"] or ""])
        for each in live
        if each.info["status"] != psutil.STATUS_ZOMBIE
    ]
    ours = [title for title in titles if title.startswith(("ebs-reaper", "ebs-volume", "fio"))]
    return [title for title in ours if any(mark in title for mark in marks)]


@pytest.mark.system
@pytest.mark.beside
@pytest.mark.usefixtures("able_machine")
def test_a_session_on_emulated_volumes_is_the_caller_s(shared: Path, sudo: dict[str, str]) -> None:
    done = call("esrally-ebs", "run", shared / "1.toml", env=sudo)
    assert (done.returncode, done.stderr) == (0, "")
    assert "The report is" in done.stdout
    assert {path.stat().st_uid for path in (shared / "home").rglob("*")} == {NOBODY}
    assert left(shared) == []


@pytest.mark.system
@pytest.mark.beside
@pytest.mark.usefixtures("able_machine")
@pytest.mark.parametrize("victim", ["keeper", "command"])
def test_of_a_session_of_which_a_process_is_killed_nothing_is_left(
    shared: Path, sudo: dict[str, str], victim: str
) -> None:
    words = ["esrally-ebs", "run", str(shared / "60.toml")]
    with subprocess.Popen(words, env=sudo, cwd="/", stdout=subprocess.PIPE, text=True) as command:
        assert command.stdout is not None
        for line in command.stdout:
            if line.startswith("fio short"):
                break
        while not any(line.startswith("fio") for line in processes(shared)):
            time.sleep(0.1)
        family = family_of(command.pid)
        (child,) = (each for each in psutil.Process(command.pid).children() if each.uids().real == NOBODY)
        os.kill(command.pid if victim == "keeper" else child.pid, signal.SIGKILL)
        command.communicate(timeout=60)
    assert left(shared, family) == []
    listed = call("esrally-ebs", "sessions", "--last", "1", env=sudo).stdout
    assert "failed" in listed
    assert ("the session's root process" if victim == "keeper" else "the session's main process") in listed


@pytest.mark.system
@pytest.mark.long
@pytest.mark.usefixtures("able_machine")
@pytest.mark.parametrize("user", [NOBODY, 0])
def test_of_a_session_that_is_killed_while_volumes_attach_nothing_is_left(
    shared: Path, sudo: dict[str, str], user: int
) -> None:
    run = shared / "run"
    env = {**sudo, "SUDO_UID": str(user)}
    if not user:  # else root's sessions would lie among the caller's
        env["ESRALLY_EBS_HOME"] = str(shared / "of-root")
    for moment_s in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.3):
        words = ["esrally-ebs", "run", str(shared / "60.toml")]
        nowhere = subprocess.DEVNULL
        with subprocess.Popen(words, env=env, cwd="/", stdout=nowhere) as command:
            # an arm's folder: the reaper watches by then; before it, only 'clean' removes a session's folder
            while not any(path.is_dir() for path in run.glob("*/*")):
                assert command.poll() is None
                time.sleep(0.01)
            time.sleep(moment_s)
            for each in [*psutil.Process(command.pid).children()] if user else [command]:
                if not user or each.uids().real == user:
                    os.kill(each.pid, signal.SIGKILL)
            killed = time.monotonic()
            command.communicate(timeout=60)
        assert left(shared) == [], moment_s
        assert time.monotonic() - killed < 28  # of a busy machine; what waits for a dead device takes over 30
        listed = call("esrally-ebs", "sessions", "--last", "1", env=env).stdout
        assert "failed" in listed, moment_s


RACES = {
    "one node": ("noaa-ebs", "range_field_big_range", '[design]\nnodes = "one"\nrounds = 2'),
    "writes": ("logs-ebs", "latest,append", '[cache]\nmode = "warm"\n[design]\nrounds = 2'),
}


@pytest.mark.system
@pytest.mark.long
@pytest.mark.usefixtures("able_machine")
@pytest.mark.parametrize("kind", RACES)
def test_what_a_race_of_the_caller_s_needs_of_root_the_keeper_does(
    shared: Path, sudo: dict[str, str], kind: str
) -> None:
    track, tasks, design = RACES[kind]
    plan = f"{small_race.PLAN.partition('[design]')[0]}{design}\n{NODE_TABLE}"
    (shared / "race.toml").write_text(plan)
    words = ("esrally", "race", f"--track-path={ROOT}/tracks/{track}", "--offline")
    params = f"plan:{shared}/race.toml,documents:3000"
    if kind == "writes":
        words, params = (*words, "--challenge=append"), f"{params},append_rate:500,append_size:50"
    race = call_race(*words, f"--include-tasks={tasks}", f"--track-params={params}", env=sudo)
    assert race.returncode == 0, race.stdout + race.stderr
    assert tasks.partition(",")[0] in call("esrally-ebs", "report", "latest", env=sudo).stdout
    assert {path.stat().st_uid for path in (shared / "home").rglob("*")} == {NOBODY}
    assert left(shared) == []


def note_users(users: dict[str, set[int]], shared: Path, race: int) -> None:
    """Add who runs the race's processes now; other tests may run fio and commands of the pack as root."""
    own = str(shared / "bin" / "esrally")
    for each in psutil.process_iter(["pid", "cmdline", "uids"]):
        words = each.info["cmdline"] or [""]
        first = " ".join(words[:2])
        for name, is_one in {
            **{actor: actor in first for actor in ("Worker", "DriverActor", "BenchmarkActor")},
            "fio": "fio" in first and str(shared / "run") in " ".join(words),
            "ebs-keeper": "ebs-keeper" in first and each.info["pid"] == race,
            "bin/esrally": own in words[:2],
        }.items():
            if is_one and each.info["uids"]:
                users.setdefault(name, set()).add(each.info["uids"].real)


@pytest.mark.system
@pytest.mark.long
@pytest.mark.usefixtures("able_machine")
def test_a_race_is_the_caller_s_from_its_first_process_to_its_report(
    shared: Path, sudo: dict[str, str]
) -> None:
    (shared / "race.toml").write_text(small_race.PLAN)
    search = "range_field_big_range"
    words = ["esrally", "race", f"--track-path={ROOT}/tracks/noaa-ebs", "--offline"]
    words.append(f"--include-tasks={search}")
    words.append(f"--track-params=plan:{shared}/race.toml,documents:3000,rounds:2,iterations:2")
    until = time.monotonic() + RACES_WAIT_S
    while True:
        users: dict[str, set[int]] = {}
        pipe, both = subprocess.PIPE, subprocess.STDOUT
        with subprocess.Popen(words, env=sudo, cwd="/", stdout=pipe, stderr=both, text=True) as race:
            while race.poll() is None:
                note_users(users, shared, race.pid)
                time.sleep(0.5)
            assert race.stdout is not None
            output = race.stdout.read()
        if OTHERS not in output or time.monotonic() > until:
            break
        time.sleep(2)
    assert race.returncode == 0, output
    assert users.pop("ebs-keeper") == {0}
    assert NOBODY in users.pop("bin/esrally")  # root's until it has become the keeper
    assert set(users) == {"Worker", "DriverActor", "BenchmarkActor", "fio"}
    assert {name: uids for name, uids in users.items() if uids != {NOBODY}} == {}
    report = call("esrally-ebs", "report", "latest", env=sudo)
    assert (report.returncode, report.stderr) == (0, "")
    assert search in report.stdout
    assert left(shared) == []


def test_the_user_passes_the_root_of_a_snapshot_and_changes_nothing_there(tmp_path: Path) -> None:
    """A node's data directory is closed to others, and its owner may rename what is in it."""
    point, own = tmp_path / "mnt", tmp_path / "mnt" / "esrally-ebs-s"
    own.mkdir(parents=True)
    point.chmod(0o750)
    os.chown(point, NODE_USER, NODE_USER)
    spec = VolumeSpec(name="a", type="gp3", aws=AwsSpec(snapshot="snap-0123456789abcdef0"))
    volume = Volume(spec=spec, kind=Kind.EBS, mount=own)
    volumes.let_in(volume, Caller(NOBODY, NOBODY, "nobody", "/nonexistent"))
    status = point.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (0, NOBODY, 0o710)
    assert (own / "fio").stat().st_uid == NOBODY
