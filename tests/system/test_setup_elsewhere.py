"""Set-up on machines unlike this one: other engines, other Pythons, other users, proxies, steps that fail.

What such a machine answers is answered by small programs in front of PATH; the scripts are the real ones.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.system,
    pytest.mark.beside,
    pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user"),
]

ROOT = Path(__file__).parents[2]
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
# sudo that says what it was asked to keep, and stays the user that it is
SUDO = 'echo "$*" >>"$SUDO_LOG"\nwhile [[ ${1:-} == -* ]]; do shift; done\n[ $# -eq 0 ] || exec "$@"'
# A Python as far as venv.sh needs one: it makes environments of itself, and installs what can be installed.
PYTHON = """case "$*" in
-VV) echo "Python 3.12.0 of the test" ;;
"-m venv --clear "*) rm -rf "$4"; mkdir -p "$4/bin"; cp "$0" "$4/bin/python"
    echo "#!$4/bin/python" >"$4/bin/pip"; echo "made $4" >>"$PIP_LOG" ;;
*"pip install"*" -e "*) [ -z "${PIP_FAILS:-}" ] || exit 1
    echo installed >>"$PIP_LOG"; bin=$(dirname "$0"); cp "$0" "$bin/esrally-ebs" ;;
esac"""


class Elsewhere:
    """A clone owned by ``nobody`` with a PATH of its own; ``run`` is that user there."""

    def __init__(self, place: Path) -> None:
        self.clone = place / "a clone"
        self.programs = place / "programs"
        self.log = place / "log"
        self.programs.mkdir()
        for name in ("scripts", "compose"):
            shutil.copytree(ROOT / name, self.clone / name)
        for name in ("requirements.txt", "setup.cfg", "setup.py", "esrally_ebs.pth", "pyproject.toml"):
            shutil.copy(ROOT / name, self.clone / name)
        self.log.touch()
        self.give_away()

    def give_away(self) -> None:
        for path in (self.clone, self.log, *self.clone.rglob("*")):
            os.chown(path, 65534, 65534, follow_symlinks=False)

    def program(self, name: str, script: str) -> Path:
        path = self.programs / name
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)
        return path

    def run(self, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "HOME": str(self.clone),
            "PULL_WAIT_S": "1",
            "SUDO_LOG": str(self.log),
            "PIP_LOG": str(self.log),
        }
        return subprocess.run(
            [*NOBODY, *argv],
            cwd=self.clone,
            env=environment | env,
            stdin=subprocess.DEVNULL,  # a real sudo asks at a terminal
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    """Not below pytest's own folder, which each start of pytest closes to other users again."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        yield Elsewhere(Path(place))


def commands_for_root(refused: subprocess.CompletedProcess[str]) -> list[str]:
    assert refused.returncode == 3, refused.stderr
    first, *commands = refused.stderr.splitlines()
    assert "someone with root must run" in first
    return [command.strip() for command in commands]


def test_podman_under_the_name_of_docker_is_refused(elsewhere: Elsewhere) -> None:
    elsewhere.program("docker", 'echo "podman version 4.9.3"')
    (command,) = commands_for_root(elsewhere.run("scripts/setup.sh"))
    assert command.startswith("apt-get remove -y podman-docker")


def test_an_engine_of_the_users_own_is_not_taken_for_roots(elsewhere: Elsewhere) -> None:
    # rootless Docker is reached by either of these two
    elsewhere.program("docker", '[ -n "${DOCKER_HOST:-}" ] || [ "${DOCKER_CONTEXT:-rootless}" = rootless ]')
    commands = commands_for_root(
        elsewhere.run("scripts/setup.sh", DOCKER_HOST="unix:///run/user/1/docker.sock")
    )
    assert any("usermod -aG docker" in command for command in commands)


def test_a_compose_of_the_users_own_is_not_taken_for_roots(elsewhere: Elsewhere) -> None:
    elsewhere.program("docker", '[ "$1" != compose ] || [ "${DOCKER_CONFIG:-own}" = own ]')
    commands = commands_for_root(elsewhere.run("scripts/setup.sh"))
    assert any("compose" in command for command in commands)


def test_an_image_that_is_named_is_pulled_from_registries_that_only_the_engine_knows(
    elsewhere: Elsewhere,
) -> None:
    elsewhere.program("docker", 'echo "$*" >>"$PIP_LOG"; [[ "$1" != manifest && "$*" != *inspect* ]]')
    name = "127.0.0.1:5005/elasticsearch@sha256:" + "0" * 64
    script = f"source <(sed -n '/^have_image/,/^# --- without/p' scripts/setup.sh); pull {name} || echo no"
    common = 'source scripts/common.sh; docker_client() { docker "$@"; }; '
    assert elsewhere.run("bash", "-c", common + script, ES_IMAGE=name).stdout == ""
    assert elsewhere.log.read_text().splitlines() == [f"pull --quiet {name}"]
    assert elsewhere.run("bash", "-c", common + script).stdout == "no\n"  # asked first


def test_memory_maps_are_raised_by_root(elsewhere: Elsewhere) -> None:
    if int(Path("/proc/sys/vm/max_map_count").read_text()) >= 262144:
        pytest.skip("they are many here")
    # all is there but the local image
    elsewhere.program("docker", '[[ "$*" != *esrally-ebs/elasticsearch* ]]')
    assert "sysctl -w vm.max_map_count=262144" in commands_for_root(elsewhere.run("scripts/setup.sh"))


def test_what_sudo_make_left_to_root_is_named(elsewhere: Elsewhere) -> None:
    elsewhere.program("docker", "true")
    elsewhere.program("sudo", SUDO)
    (elsewhere.clone / ".cache" / "setup").mkdir(parents=True)
    refused = elsewhere.run("scripts/setup.sh")
    (command,) = commands_for_root(refused)
    assert refused.stderr.startswith(f"{elsewhere.clone}/.cache belongs to root")
    assert command.endswith("&& chown -R nobody .")


def test_sudo_keeps_what_the_commands_understand(elsewhere: Elsewhere) -> None:
    elsewhere.program("sudo", SUDO)
    elsewhere.run(
        "scripts/clean.sh", https_proxy="p", NO_PROXY="q", AWS_REGION="r", ESRALLY_EBS_PRICES="s", OTHER="t"
    )
    kept = elsewhere.log.read_text().splitlines()[-1].split()[0].removeprefix("--preserve-env=").split(",")
    assert set(kept) == {"https_proxy", "NO_PROXY", "AWS_REGION", "ESRALLY_EBS_PRICES"}


def test_without_root_clean_names_the_command_for_what_it_may_not_remove(elsewhere: Elsewhere) -> None:
    ours, roots = elsewhere.clone / ".mypy_cache", elsewhere.clone / ".pytest_cache"
    for folder in (ours, roots):
        (folder / "v").mkdir(parents=True)
        (folder / "v" / "found").touch()
    for path in (ours, *ours.rglob("*")):
        os.chown(path, 65534, 65534)
    left = elsewhere.run("scripts/clean.sh")
    assert (left.returncode, ours.exists(), roots.exists()) == (3, False, True)
    (line,) = left.stderr.splitlines()
    assert "someone with root must run: cd " in line


def test_a_step_stops_at_the_first_command_that_fails(elsewhere: Elsewhere) -> None:
    script = (
        'set -e; . scripts/common.sh; make_state; f() { false; echo "went on"; }; step trial f; echo after'
    )
    stopped = elsewhere.run("bash", "-c", script)
    assert (stopped.returncode, stopped.stdout) == (3, "")
    assert "trial: failed after 0 s with exit code 1" in stopped.stderr
    assert "went on" not in stopped.stderr


def test_the_environment_is_made_once(elsewhere: Elsewhere) -> None:
    python = elsewhere.program("my python", PYTHON)
    assert elsewhere.run("scripts/venv.sh", PYTHON=str(python)).returncode == 0
    assert elsewhere.run("scripts/venv.sh", PYTHON=str(python)).stdout == "up to date\n"
    assert elsewhere.log.read_text().splitlines() == [f"made {elsewhere.clone}/.venv", "installed"]


def test_an_environment_that_could_not_be_brought_up_to_date_is_tried_again(elsewhere: Elsewhere) -> None:
    python = str(elsewhere.program("python", PYTHON))
    elsewhere.run("scripts/venv.sh", PYTHON=python)
    with (elsewhere.clone / "setup.cfg").open("a") as settings:
        settings.write("# requires more\n")
    assert elsewhere.run("scripts/venv.sh", PYTHON=python, PIP_FAILS="yes").returncode == 1
    assert elsewhere.run("scripts/venv.sh", PYTHON=python).stdout != "up to date\n"
    assert elsewhere.log.read_text().splitlines()[1:] == ["installed", "installed"]


def test_an_environment_copied_from_another_checkout_is_made_anew(elsewhere: Elsewhere) -> None:
    python = str(elsewhere.program("python", PYTHON))
    elsewhere.run("scripts/venv.sh", PYTHON=python)
    pip = elsewhere.clone / ".venv" / "bin" / "pip"
    pip.write_text("#!/another/checkout/.venv/bin/python\n")
    assert elsewhere.run("scripts/venv.sh", PYTHON=python).returncode == 0
    assert pip.read_text() == f"#!{elsewhere.clone}/.venv/bin/python\n"


def test_another_checkouts_environment_behind_a_link_is_not_emptied(elsewhere: Elsewhere) -> None:
    python = str(elsewhere.program("python", PYTHON))
    (elsewhere.clone / "other").mkdir()
    (elsewhere.clone / "other" / "kept").touch()
    (elsewhere.clone / ".venv").symlink_to("other")
    elsewhere.give_away()
    refused = elsewhere.run("scripts/venv.sh", PYTHON=python)
    assert (refused.returncode, refused.stdout.partition(";")[0]) == (
        3,
        f"{elsewhere.clone}/.venv is a link to other",
    )
    assert (elsewhere.clone / "other" / "kept").exists()


def test_a_python_that_does_not_fit_is_named(elsewhere: Elsewhere) -> None:
    old = elsewhere.program("python3.8", "exit 1")
    refused = elsewhere.run("scripts/venv.sh", PYTHON=str(old))
    assert refused.returncode == 3
    assert refused.stdout.startswith(f"{old} is no Python 3.11 to 3.13")
    assert len(refused.stdout.splitlines()) == 1


def test_without_root_the_system_tests_are_named_and_not_run(elsewhere: Elsewhere) -> None:
    bin_ = elsewhere.clone / ".venv" / "bin"
    bin_.mkdir(parents=True)
    shutil.copy(elsewhere.program("python", 'echo "ran $*"'), bin_ / "python")
    elsewhere.give_away()
    done = elsewhere.run("scripts/test.sh", TEST_ARGS="-x")
    assert done.returncode == 3
    assert "-m system" not in done.stdout
    marks = r"system(\\ and\\ not\\ long)?"
    assert re.search(rf"&& .venv/bin/python -m pytest -m {marks} -x$", done.stderr.splitlines()[-1])


@pytest.mark.parametrize(
    ("variable", "options"),
    [
        ({}, ""),
        ({"https_proxy": "http://proxy.lan:8080/"}, "-Dhttps.proxyHost=proxy.lan -Dhttps.proxyPort=8080"),
        ({"HTTP_PROXY": "me:word@10.0.0.1"}, "-Dhttps.proxyHost=10.0.0.1 -Dhttps.proxyPort=3128"),
    ],
)
def test_maven_is_told_of_the_proxy(elsewhere: Elsewhere, variable: dict[str, str], options: str) -> None:
    function = "eval \"$(sed -n '/^maven_proxy/,/^}/p' compose/image/build.sh)\"; maven_proxy"
    assert elsewhere.run("bash", "-euc", function, **variable).stdout.strip() == options


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not here")
def test_shellcheck_finds_nothing() -> None:
    scripts = [
        *(ROOT / "scripts").glob("*.sh"),
        *(ROOT / "compose" / "image").glob("*.sh"),
        ROOT / ".ci" / "run",
    ]
    done = subprocess.run(
        ["shellcheck", "-x", *map(str, scripts)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
