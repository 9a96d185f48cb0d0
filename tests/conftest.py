"""For all tests: loopback alone, folders of their own. Golden files: ``--update-golden`` writes them anew."""

import gc
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import setproctitle
from hypothesis import settings
from loopback_only import install, loopback_only

__all__ = ["loopback_only"]  # a fixture
install()

# To Rally, a Python process with "esrally" in its command line is another Rally; it refuses to race then.
# Such a process is pytest, too, when the checkout's path has that word.
setproctitle.setproctitle("pytest")

# Under sudo the tests are root's, and so are the commands that they call.
os.environ.pop("SUDO_UID", None)

# Who was started in the background ignores Ctrl-C, and so would what the tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# they check for several test files, and a failure there shall say as much as one in a test
pytest.register_assert_rewrite("faulted", "race_under_test", "rally_command", "small_race")

# In CI the same examples each time: a new one that fails is found, and mended, where tests are run by hand.
# No deadline: how long an example takes is a matter of what else the machine does.
settings.register_profile("ours", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("ours")

GOLDEN = Path(__file__).parent / "golden"


def pytest_configure(config: pytest.Config) -> None:
    # as Python does from 3.12 on; numpy has threads as soon as it is imported, and so have xdist's workers
    config.addinivalue_line("filterwarnings", "ignore:.* is multi-threaded, use of fork:DeprecationWarning")


def pytest_collection_finish() -> None:
    """What is imported by now stays, so the garbage collector need not look through it during every test."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")


@pytest.fixture(autouse=True)
def no_volumes_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests beside this one kill sessions, whose volumes and nodes are in run directories of their own."""
    monkeypatch.setattr("esrally_ebs.volumes.backends.mounted_disks", list)
    monkeypatch.setattr("esrally_ebs.node.folders_elsewhere", list)


@pytest.fixture
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``home`` and ``run`` below this folder are the test's home and run directory, and not there yet."""
    monkeypatch.setenv("ESRALLY_EBS_RUN", str(tmp_path / "run"))
    monkeypatch.setenv("ESRALLY_EBS_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture
def run(own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run directory that is the test's own, and no engine: so there are no containers."""
    monkeypatch.setenv("PATH", "")
    return own_folders / "run"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the test's sessions are."""
    monkeypatch.setenv("ESRALLY_EBS_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden(name, text)``: the text must be what ``tests/golden/<name>`` holds."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        expected = path.read_text() if path.exists() else ""
        if text != expected:
            path.with_name(f"{path.name}.got").write_text(text)
        assert text == expected, f"{name}: differs; look at {path.name}.got, or run with --update-golden"

    return check
