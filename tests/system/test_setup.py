"""The scripts behind ``make``: what set-up does twice, what it does without root, what race and test pass on.

Only this checkout's own set-up is run, and only as a second time: nothing is installed or removed.
"""

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

pytestmark = [pytest.mark.system, pytest.mark.beside]

ROOT = Path(__file__).parents[2]
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def call(*argv: str | Path, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script to its end, whatever its exit code."""
    return subprocess.run(
        [str(word) for word in argv],
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The scripts of this checkout in a place that anyone may enter, with a space in its name."""
    base = Path(tempfile.gettempdir())
    for parent in (tmp_path, *tmp_path.parents):
        if parent.is_relative_to(base) and parent != base:
            parent.chmod(0o755)
    place = tmp_path / "a clone"
    for name in ("scripts", "compose"):
        shutil.copytree(ROOT / name, place / name)
    for name in ("setup.cfg", "setup.py", "esrally_ebs.pth", "pyproject.toml", "Makefile"):
        shutil.copy(ROOT / name, place / name)
    return place


def stand_in(clone: Path, name: str, script: str) -> None:
    """A program in the clone's .venv, in place of the real one."""
    path = clone / ".venv" / "bin" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)


@pytest.mark.skipif(not (ROOT / ".venv" / "stamp").exists(), reason="make setup has not run here")
def test_a_second_set_up_changes_nothing() -> None:
    assert call("scripts/setup.sh").returncode == 0  # takes in a setup.cfg that was changed
    stamp = ROOT / ".venv" / "stamp"
    before = stamp.stat().st_mtime_ns
    again = call("scripts/setup.sh")
    assert again.returncode == 0, again.stderr
    assert stamp.stat().st_mtime_ns == before
    assert "venv: up to date" in again.stdout
    assert "engine: the Docker engine answers already" in again.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_without_root_set_up_changes_nothing_and_names_the_commands(clone: Path, tmp_path: Path) -> None:
    refused = call(*NOBODY, clone / "scripts" / "setup.sh", cwd=clone, HOME=str(tmp_path), PULL_WAIT_S="2")
    assert refused.returncode == 3
    first, *commands = refused.stderr.splitlines()
    assert "someone with root must run" in first
    assert any("usermod -aG docker" in command for command in commands)
    assert all(command.startswith("    ") for command in commands)
    assert not (clone / ".venv").exists()
    assert not (clone / ".cache").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_without_root_the_race_names_the_command(clone: Path) -> None:
    refused = call(*NOBODY, clone / "scripts" / "race.sh", cwd=clone)
    assert refused.returncode == 3
    command = refused.stderr.splitlines()[-1]
    assert "esrally race --track-path=tracks/noaa-ebs" in command
    assert shlex.split(command)[1] == str(clone)  # cd there: as it can be pasted


def test_an_engine_that_others_started_is_not_ended(clone: Path) -> None:
    stopped = call(clone / "scripts" / "engine.sh", "stop")
    assert stopped.stdout == "no engine of ours runs\n"
    assert call("docker", "info").returncode == 0


def test_a_pid_that_was_given_away_is_not_killed(clone: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as bystander:
        state = clone / ".cache" / "setup"
        state.mkdir(parents=True)
        (state / "engine.pid").write_text(f"{bystander.pid} 1\n")  # started at tick 1: long before this one
        stopped = call(clone / "scripts" / "engine.sh", "stop")
        alive = bystander.poll() is None
        bystander.kill()
    assert (stopped.returncode, stopped.stdout, alive) == (0, "our engine has ended already\n", True)


@pytest.mark.skipif(os.geteuid() != 0, reason="races as root")
@pytest.mark.parametrize("code", [0, 4, 64])
def test_the_exit_code_of_the_race_is_passed_on_and_its_output_kept(clone: Path, code: int) -> None:
    (clone / ".cache" / "setup").mkdir(parents=True)
    stand_in(clone, "esrally", f'echo "raced with $*"; exit {code}')
    stand_in(clone, "esrally-ebs", 'echo "reported on $2"')
    stand_in(clone, "python", "echo '    race, stages: 1 s'")
    done = call(clone / "scripts" / "race.sh", cwd=clone, RACE_ARGS="--test-mode --offline")
    line = "raced with race --track-path=tracks/noaa-ebs --test-mode --offline\n"
    assert done.returncode == code
    assert line in done.stdout
    assert (clone / ".cache" / "race.log").read_text() == line
    assert ("reported on latest" in done.stdout) is (code == 0)
    assert "where the time went" in done.stdout


@pytest.mark.parametrize(
    ("unit", "system", "code"), [(0, 0, 0), (1, 0, 1), (0, 1, 1), (5, 1, 5)], ids=lambda code: str(code)
)
def test_both_suites_run_and_a_failure_of_either_fails(
    clone: Path, unit: int, system: int, code: int
) -> None:
    stand_in(
        clone,
        "python",
        f'case "$*" in *"-m not system"*) echo U; exit {unit};; *) echo S; exit {system};; esac',
    )
    done = call(clone / "scripts" / "test.sh", cwd=clone)
    assert done.returncode == code
    assert [line for line in done.stdout.splitlines() if line in {"S", "U"}] == ["S", "U", "S"]


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[[Path], None]]:
    """Mounts something there, as what was killed may leave; nobody else can then remove the folder."""
    with ExitStack() as stack:

        def hold(folder: Path) -> None:
            folder.mkdir(parents=True)
            subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
            stack.callback(subprocess.run, ["umount", "-q", folder], check=False)

        yield hold


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
def test_what_root_cannot_remove_is_named(clone: Path, mount: Callable[[Path], None]) -> None:
    mount(clone / ".mypy_cache" / "mounted")
    left = call(clone / "scripts" / "clean.sh")
    assert left.returncode == 3
    assert ".mypy_cache/mounted" in left.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
def test_what_a_killed_build_left_does_not_keep_the_next_one(
    clone: Path, tmp_path: Path, mount: Callable[[Path], None]
) -> None:
    cache = tmp_path / "cache" / "esrally_ebs" / "image"
    killed, stuck = cache / "build.killed", cache / "build.stuck"
    mount(killed / "root" / "proc")  # as debootstrap leaves it
    mount(stuck / "elsewhere")
    for folder in (killed, stuck):
        os.utime(folder, (0, 0))
    for name in ("docker", "mvn", "unzip"):
        stand_in(clone, name, "true")
    stand_in(clone, "debootstrap", "echo 'E: reached'; exit 1")
    path = f"{clone / '.venv' / 'bin'}:{os.environ['PATH']}"
    ended = call(clone / "compose" / "image" / "build.sh", PATH=path, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert "debootstrap failed: E: reached" in ended.stderr
    assert (ended.returncode, killed.exists(), stuck.exists()) == (3, False, True)
