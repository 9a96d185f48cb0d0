"""The wheel: it holds every file of the package, and works where there is no checkout.

Needs a package index, as set-up does: pip fetches setuptools to build with.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.system, pytest.mark.beside]

ROOT = Path(__file__).parents[2]
PIP = (sys.executable, "-m", "pip")
FOLDERS = ("esrally_ebs", "compose", "docs", "pipelines", "tracks")
# a file, so that no command line holds the pack's name: Rally would take that process for a race
LAUNCHER = "import sys\nfrom esrally_ebs.cli import main\nsys.exit(main())\n"


def call(*argv: str | Path, cwd: Path) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    env["ESRALLY_EBS_HOME"] = str(cwd / "home")
    done = subprocess.run(
        [str(word) for word in argv],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def install_into(place: Path) -> tuple[str | Path, ...]:
    """The words for an environment that has no pip."""
    return (*PIP, "--python", place / "bin" / "python", "install", "--quiet", "--no-deps")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, as building leaves folders behind."""
    copy = tmp_path_factory.mktemp("source")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "setup.py", "esrally_ebs.pth", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    call(*PIP, "wheel", "--quiet", "--no-deps", "--wheel-dir", "dist", ".", cwd=copy)
    (built,) = (copy / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """An environment with this wheel and what it needs, but without the checkout."""
    place = wheel.parents[1] / "elsewhere"
    call(sys.executable, "-m", "venv", "--without-pip", place, cwd=wheel.parent)
    (place / "wheel.txt").write_text(f"{wheel}\n")
    call(*install_into(place), "-r", "wheel.txt", cwd=place)
    # the packages of this environment, but not what its own .pth files say, such as where the checkout is
    (place_of_packages,) = place.glob("lib/python*/site-packages")
    (place_of_packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (place / "launch.py").write_text(LAUNCHER)
    return place


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    content = zipfile.ZipFile(wheel).namelist()
    for folder in FOLDERS:
        files = {
            path.relative_to(ROOT).as_posix()
            for path in (ROOT / folder).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        prefix = (
            ""
            if folder == "esrally_ebs"
            else wheel.name.rsplit("-py3", 1)[0] + ".data/data/share/esrally_ebs/"
        )
        assert {name for name in files if prefix + name not in content} == set()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--help",), "Compare the volumes under Elasticsearch"),
        (("simulate", "smoke"), "simulated in virtual time"),
        (("study", "--list"), "nikkei-2021"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_it_works_where_there_is_no_checkout(installed: Path, words: tuple[str, ...], text: str) -> None:
    assert text in call(installed / "bin" / "python", "launch.py", *words, cwd=installed)


SHOWS_SYSTEM = "import esrally.actor as actor\nprint(getattr(actor, '__SYSTEM_BASE'))\n"


@pytest.fixture(scope="module")
def editable(wheel: Path) -> Path:
    """An environment that has the pack as set-up installs it."""
    place = wheel.parents[1] / "editable"
    call(sys.executable, "-m", "venv", "--without-pip", place, cwd=wheel.parent)
    call(*install_into(place), "--editable", ".", cwd=wheel.parents[1])
    (place_of_packages,) = place.glob("lib/python*/site-packages")
    (place_of_packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place


@pytest.mark.parametrize("environment", ["installed", "editable"])
@pytest.mark.parametrize(
    ("command", "system"), [("esrally", "multiprocQueueBase"), ("esrallyd", "multiprocTCPBase")]
)
def test_where_it_is_installed_esrally_opens_no_port(
    environment: str, command: str, system: str, request: pytest.FixtureRequest
) -> None:
    place: Path = request.getfixturevalue(environment)
    (place / "bin" / command).write_text(SHOWS_SYSTEM)
    assert call(place / "bin" / "python", place / "bin" / command, cwd=place).strip() == system
