"""The fault table: whatever ends a race, the user is told in one line, and nothing is left behind or lost."""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import elasticsearch
import pytest
from race_under_test import RUN, Race, docker, fio_job, plan, race

from esrally_ebs import cli
from esrally_ebs.context import FILE, INDEX, Arm, load_context
from esrally_ebs.resources import run_dir
from esrally_ebs.store import load_session
from esrally_ebs.volumes.release import image_roots

pytestmark = pytest.mark.system

LOST_S = 5.0  # what was recorded longer ago than this must be readable
NOBODY = 65534

QUERIES = plan(iterations=100_000)
TWO_ARMS = plan(arms=("gp3", "directory"), iterations=100_000)
FIO = plan(fio_job("short", runtime="200ms"), fio_job("long", runtime="5m"), arms=("gp3", "directory"))


@pytest.fixture(scope="session", autouse=True)
def machine() -> None:
    if os.geteuid() != 0 or not shutil.which("docker") or not shutil.which("fio"):
        pytest.skip("needs root, Docker and fio")


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sessions of all cases, and the one dataset that they copy."""
    return tmp_path_factory.mktemp("home")


@dataclass(frozen=True)
class Afterwards:
    """What is checked after every fault."""

    patch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]
    kept: list[tuple[str, object]]

    def listed(self, race: Race, state: str, reason: str) -> None:
        """The session is listed with its end and a reason, and 'clean' finds nothing to do."""
        self.patch.setenv("ESRALLY_EBS_HOME", str(race.home))
        self.capsys.readouterr()
        assert cli.main(["sessions", "--json"]) == 0
        (found,) = [row for row in json.loads(self.capsys.readouterr().out) if row["id"] == race.id]
        assert (found["state"], bool(re.search(reason, found["reason"]))) == (state, True), found
        assert len(found["reason"].splitlines()) <= 1
        assert cli.main(["clean"]) == 0
        said = self.capsys.readouterr().out
        assert race.id not in said
        assert said.endswith("nothing is left behind\n")

    def seen(self, name: str, race: Race, code: int, gone_s: float) -> None:
        """A row of docs/faults.md; ``--junitxml`` holds them all."""
        self.kept.append(("row", f"| {name} | {race.error or race.cancelled} | {code} | {gone_s:.1f} |"))


@pytest.fixture
def afterwards(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> Afterwards:
    return Afterwards(monkeypatch, capsys, request.node.user_properties)


# Where a race is.


def attaching(race: Race) -> bool:
    return (race.run / "arm0" / "volume.json").exists()


def indexing(race: Race) -> bool:
    return any(race.home.glob("datasets/*.unfinished/elasticsearch/indices/*/0"))


def starting_nodes(race: Race) -> bool:
    return "copy dataset" in events(race) and bool(race.containers())


def serving(race: Race) -> bool:
    return (race.run / "context.json").exists()


def running_fio(race: Race) -> bool:
    return '"short"' in events(race) and (race.run / "fio.pid").exists() and has_started_at_all_arms(race)


def has_started_at_all_arms(race: Race) -> bool:
    return events(race).count('"kind": "baseline"') >= 2


def searching(race: Race) -> bool:
    """For longer than what may be lost."""
    drops = [event["at_s"] for event in parsed(race) if event["kind"] == "drop"]
    return bool(drops) and time.time() - drops[0] > LOST_S + 2


def reporting(race: Race) -> bool:
    return (race.run / "ending").exists()


def events(race: Race) -> str:
    path = race.folder / "events.jsonl"
    return path.read_text() if path.exists() else ""


def parsed(race: Race) -> list[dict[str, object]]:
    return [json.loads(line) for line in events(race).splitlines() if line.endswith("}")]


# What strikes it.


def ctrl_c(race: Race) -> None:
    os.killpg(race.main.pid, signal.SIGINT)


def kill_main(race: Race) -> None:
    race.main.kill()


def kill_race_control(race: Race) -> None:
    (control,) = race.actors("BenchmarkActor")
    control.kill()


def kill_volume_daemon(race: Race) -> None:
    (daemon,) = race.daemons()
    daemon.kill()


def kill_node(race: Race) -> None:
    docker("kill", "-s", "KILL", race.containers()[0])


@dataclass(frozen=True)
class Fault:
    name: str
    plan: str
    stage: Callable[[Race], bool]
    strike: Callable[[Race], None]
    code: int
    reason: str  # of the session, and of Rally's error line unless the user cancelled
    state: str = "failed"


CANCELLED = r"cancelled by the user"
KILLED = r"process \d+\) was killed; everything it started was taken down, start the race again"

FAULTS = [
    Fault("Ctrl-C while volumes attach", QUERIES, attaching, ctrl_c, 130, CANCELLED, "cancelled"),
    Fault(
        "Ctrl-C while the dataset is indexed",
        plan(documents=30_000),
        indexing,
        ctrl_c,
        130,
        CANCELLED,
        "cancelled",
    ),
    Fault("Ctrl-C while nodes start", QUERIES, starting_nodes, ctrl_c, 130, CANCELLED, "cancelled"),
    Fault("Ctrl-C during fio", FIO, running_fio, ctrl_c, 130, CANCELLED, "cancelled"),
    Fault("kill -9 of Rally's main process", QUERIES, searching, kill_main, -9, rf"main process.*{KILLED}"),
    Fault("kill -9 of race control", QUERIES, searching, kill_race_control, -9, rf"race control \({KILLED}"),
    Fault(
        "kill -9 of a volume's daemon during queries",
        TWO_ARMS,
        searching,
        kill_volume_daemon,
        3,
        r"arm arm0: its emulated volume has died",
    ),
    Fault(
        "kill -9 of a volume's daemon during fio",
        FIO,
        running_fio,
        kill_volume_daemon,
        3,
        r"arm arm0: its emulated volume has died",
    ),
    Fault("docker kill of a node", QUERIES, searching, kill_node, 3, r"arm arm0: its node has died: killed"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_nothing_stays_and_nothing_is_lost(fault: Fault, home: Path, afterwards: Afterwards) -> None:
    with race(home, fault.plan) as running:
        running.reach(fault.stage)
        struck_at, struck = time.time(), time.monotonic()
        fault.strike(running)
        code = running.exit_code()
        gone_s = running.gone(struck)
        afterwards.seen(fault.name, running, code, gone_s)
        assert code == fault.code
        check_record(running, struck_at)
    afterwards.listed(running, fault.state, fault.reason)
    if fault.code == 130:
        assert running.cancelled
    else:
        assert_one_line(running, fault.reason)


def test_ctrl_c_while_the_report_is_made_leaves_nothing(home: Path, afterwards: Afterwards) -> None:
    """All is measured by then: the report is finished, and the session is complete."""
    with race(home, plan()) as running:
        running.reach(reporting)
        struck = time.monotonic()
        ctrl_c(running)
        code = running.exit_code()
        afterwards.seen("Ctrl-C while the report is made", running, code, running.gone(struck))
        assert code == 130
        assert (running.folder / "report.md").exists()
    afterwards.listed(running, "complete", "^$")


def test_a_second_race_is_refused_and_the_first_ends_by_ctrl_c(home: Path, afterwards: Afterwards) -> None:
    with race(home, QUERIES) as running:
        running.reach(searching)
        second = subprocess.run(running.main.args, capture_output=True, text=True, timeout=60, check=False)
        assert second.returncode == 64
        assert "There are other Rally processes running on this machine" in second.stdout + second.stderr
        struck_at, struck = time.time(), time.monotonic()
        ctrl_c(running)
        code = running.exit_code()
        afterwards.seen("a second race, then Ctrl-C during queries", running, code, running.gone(struck))
        assert code == 130
        check_record(running, struck_at)
    afterwards.listed(running, "cancelled", CANCELLED)


# A machine on which a race cannot be.


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
        afterwards.seen(name, running, code, running.gone(struck))
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
            afterwards.seen("not root", running, code, running.gone(struck))
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
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=120m", "tmpfs", memory], check=True)
    try:
        yield {"ESRALLY_EBS_RUN": str(run)}
    finally:
        subprocess.run(["umount", memory], check=True)
        memory.rmdir()
        shutil.rmtree(run)


def test_a_full_backing_store_is_named(
    home: Path,
    small_memory: dict[str, str],
    afterwards: Afterwards,
) -> None:
    struck = time.monotonic()
    reason = r"arm arm0: the backing store /dev/shm/.*\.img is full \(.* left\); make room there"
    with race(home, plan(fio_job("big", runtime="1s", size="256m")), env=small_memory) as running:
        code = running.exit_code()
        afterwards.seen("the backing store is full", running, code, running.gone(struck))
        assert code == 3
        assert_one_line(running, reason)
    afterwards.listed(running, "failed", reason)


# A measurement that is invalid.


def test_an_index_that_is_read_all_the_time_makes_the_race_fail(home: Path, afterwards: Afterwards) -> None:
    """As by a forgotten process: beside the node, so that nothing on the host holds the mount."""
    reading = "while :; do cat data/indices/*/*/index/* >/dev/null 2>&1; done"
    with race(home, plan("[cache]\nmax_resident = 0.0\n", iterations=100_000)) as running:
        running.reach(serving)
        struck = time.monotonic()
        docker("exec", "-d", "-w", "/usr/share/elasticsearch", running.containers()[0], "bash", "-c", reading)
        code = running.exit_code()
        afterwards.seen("the index stays in memory", running, code, running.gone(struck))
        assert code == 4
        assert_one_line(running, r"end whatever else reads the index of ebs-.*-arm0")
    afterwards.listed(running, "failed", "end whatever else reads the index")


def test_arms_that_answer_differently_make_the_race_fail(home: Path, afterwards: Afterwards) -> None:
    """As when somebody writes to one arm's index during the race."""
    with race(home, plan(arms=("gp3", "gp3"))) as running:
        running.reach(serving)
        struck = time.monotonic()
        delete_half(load_context(running.run / FILE).arm("arm1"))
        code = running.exit_code()
        afterwards.seen("arms that answer differently", running, code, running.gone(struck))
        assert code == 4
        assert_one_line(running, "the arms cannot be compared: hits: ")
        assert (running.folder / "report.md").exists()
    afterwards.listed(running, "failed", "hits: ")


def delete_half(arm: Arm) -> None:
    assert arm.node is not None
    client = elasticsearch.Elasticsearch(f"http://{arm.node.host}:{arm.node.port}")
    found = client.search(index=INDEX, size=1000, source=False)["hits"]["hits"]
    client.bulk(index=INDEX, refresh=True, operations=[{"delete": {"_id": hit["_id"]}} for hit in found])
    client.close()


def assert_one_line(race: Race, reason: str) -> None:
    assert re.search(reason, race.error), race.said
    assert len(race.error.splitlines()) == 1, race.said


def check_record(race: Race, struck_at: float) -> None:
    """A drop is recorded just before its request: each that is old enough must have its sample."""
    session = load_session(race.folder)
    drops = [event for event in session.events if event.kind == "drop" and event.at_s < struck_at - LOST_S]
    measured = [row for row in session.samples.to_pylist() if row["phase"] == "measure"]
    assert len(measured) >= len(drops)
    jobs = [event for event in session.events if event.kind == "baseline"]
    assert session.baseline.num_rows >= len(jobs)


def test_the_default_run_directory_is_the_one_watched_here() -> None:
    assert run_dir() == RUN
