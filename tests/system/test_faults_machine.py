"""The fault table, a machine on which no race can be: what it lacks is named, and nothing is left."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from faulted import FIO, QUERIES, Afterwards, assert_one_line
from mounted import in_memory
from race_under_test import fio_job, plan, race

from esrally_ebs.volumes.emulated.release import image_roots

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("able_machine")]

NOBODY = 65534


def without_fio(directory: Path) -> dict[str, str]:
    for folder in os.environ["PATH"].split(":"):
        for tool in Path(folder).glob("*"):
            if tool.name != "fio" and not (directory / tool.name).is_symlink():
                (directory / tool.name).symlink_to(tool)
    return {"PATH": str(directory)}


def without_docker(directory: Path) -> dict[str, str]:
    return {"DOCKER_HOST": f"unix://{directory}/nobody-listens.sock"}


def with_another_rally(directory: Path) -> dict[str, str]:
    (directory / "sitecustomize.py").write_text("import esrally.version as v\nv.__version__ = '2.99.0'\n")
    return {"PYTHONPATH": str(directory)}


@pytest.mark.parametrize(
    ("name", "environment", "reason", "listed"),
    [
        ("fio missing", without_fio, r"fio: not found; install it \(apt-get install fio\)", True),
        ("Docker down", without_docker, r"docker: the engine does not answer; run 'make setup'", True),
        (
            "an unsupported Rally",
            with_another_rally,
            r"Rally: unsupported: rally version \(2\.99\.0\)",
            False,
        ),
    ],
    ids=["fio missing", "Docker down", "an unsupported Rally"],
)
def test_a_machine_that_cannot_is_named(
    name: str,
    environment: Callable[[Path], dict[str, str]],
    reason: str,
    listed: bool,
    home: Path,
    tmp_path: Path,
    afterwards: Afterwards,
) -> None:
    struck = time.monotonic()
    with race(home, FIO, env=environment(tmp_path)) as running:
        code = running.exit_code()
        afterwards.row(name, running, code, running.gone(struck))
        assert code == 3
        assert_one_line(running, reason)
    if listed:
        afterwards.listed(running, "failed", reason)


def test_without_root_the_first_thing_that_needs_it_is_named(afterwards: Afterwards) -> None:
    with tempfile.TemporaryDirectory(prefix="ebs-faults-") as name:
        home = Path(name)
        home.chmod(0o755)
        os.chown(home, NOBODY, NOBODY)
        struck = time.monotonic()
        with race(home, QUERIES, env={"HOME": name}, as_user=NOBODY) as running:
            code = running.exit_code()
            afterwards.row("not root", running, code, running.gone(struck))
            assert code == 3
            assert_one_line(running, "arm arm0: .*needs root; run as root")
        afterwards.listed(running, "failed", "needs root")


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, str]]:
    """A run directory with its images on a tmpfs of 120 MiB: room for a file system, not for 256 MiB."""
    run = Path(tempfile.mkdtemp(prefix="ebs-run-"))
    monkeypatch.setenv("ESRALLY_EBS_RUN", str(run))
    memory, _ = image_roots()
    memory.mkdir(parents=True)
    with in_memory(memory, "size=120m,mode=0700"):
        yield {"ESRALLY_EBS_RUN": str(run)}
    memory.rmdir()
    shutil.rmtree(run)


def test_a_full_backing_store_is_named(
    home: Path, small_memory: dict[str, str], afterwards: Afterwards
) -> None:
    struck = time.monotonic()
    reason = r"arm arm0: the backing store /dev/shm/.*\.img is full \(.* left\); make room there"
    with race(home, plan(fio_job("big", runtime="1s", size="256m")), env=small_memory) as running:
        code = running.exit_code()
        afterwards.row("the backing store is full", running, code, running.gone(struck))
        assert code == 3
        assert_one_line(running, reason)
    afterwards.listed(running, "failed", reason)
