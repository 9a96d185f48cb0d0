"""The fault table: whatever ends a race, the user is told in one line, and nothing is left behind or lost.

Here are the races that are struck while they run; test_faults_machine.py has the machines on which there can
be none, test_faults_measurement.py the measurements that are invalid.
"""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from faulted import FIO, QUERIES, Afterwards, assert_one_line
from race_under_test import RUN, Race, docker, plan, processes, race

from esrally_ebs.machine.resources import run_dir
from esrally_ebs.store import load_session

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("able_machine")]

LOST_S = 5.0  # what was recorded longer ago than this must be readable

TWO_ARMS = plan(arms=("gp3", "directory"), iterations=100_000)


# Where a race is.


def attaching(race: Race) -> bool:
    return (race.run / "arm0" / "volume.json").exists()


def indexing(race: Race) -> bool:
    return any(race.home.glob("datasets/*.unfinished/elasticsearch/indices/*/0"))


def starting_nodes(race: Race) -> bool:
    return "copy dataset" in race.events and bool(race.containers())


def running_fio(race: Race) -> bool:
    return '"short"' in race.events and (race.run / "fio.pid").exists() and has_started_at_all_arms(race)


def has_started_at_all_arms(race: Race) -> bool:
    return race.events.count('"kind": "baseline"') >= 2


def searching(race: Race) -> bool:
    return len(drops(race)) > 5


def long_searching(race: Race) -> bool:
    """For longer than what may be lost."""
    return bool(drops(race)) and time.time() - drops(race)[0] > LOST_S + 2


def drops(race: Race) -> list[float]:
    """When caches were dropped, each before a request (epoch, s)."""
    return [event["at_s"] for event in parsed(race) if event["kind"] == "drop"]


def reporting(race: Race) -> bool:
    return (race.run / "ending").exists()


def parsed(race: Race) -> list[dict[str, Any]]:
    return [json.loads(line) for line in race.events.splitlines() if line.endswith("}")]


# What strikes it.


def ctrl_c(race: Race) -> None:
    os.killpg(race.main.pid, signal.SIGINT)


def kill_main(race: Race) -> None:
    race.main.kill()


def kill_race_control(race: Race) -> None:
    (control,) = race.actors("BenchmarkActor")
    control.kill()


def kill_driver(race: Race) -> None:
    (driver,) = race.actors("DriverActor")
    driver.kill()


def preparing(race: Race) -> bool:
    """Whether Rally's driver is there, which has its workers prepare the track first."""
    return bool(race.actors("DriverActor"))


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
    pytest.param(
        Fault("Ctrl-C while nodes start", QUERIES, starting_nodes, ctrl_c, 130, CANCELLED, "cancelled"),
        marks=pytest.mark.long,
    ),
    pytest.param(
        Fault("Ctrl-C during fio", FIO, running_fio, ctrl_c, 130, CANCELLED, "cancelled"),
        marks=pytest.mark.long,
    ),
    Fault(
        "kill -9 of Rally's main process", QUERIES, long_searching, kill_main, -9, rf"main process.*{KILLED}"
    ),
    pytest.param(
        Fault(
            "kill -9 of race control",
            QUERIES,
            long_searching,
            kill_race_control,
            -9,
            rf"race control \({KILLED}",
        ),
        marks=pytest.mark.long,
    ),
    *(
        pytest.param(
            Fault(
                f"kill -9 of Rally's driver {when}",
                QUERIES,
                stage,
                kill_driver,
                3,
                "Rally's driver was killed",
            ),
            marks=pytest.mark.long,
        )
        for when, stage in (("during queries", long_searching), ("before them", preparing))
    ),
    Fault(
        "kill -9 of a volume's daemon during queries",
        TWO_ARMS,
        searching,
        kill_volume_daemon,
        3,
        r"arm arm0: its emulated volume has died",
    ),
    pytest.param(
        Fault(
            "kill -9 of a volume's daemon during fio",
            FIO,
            running_fio,
            kill_volume_daemon,
            3,
            r"arm arm0: its emulated volume has died",
        ),
        marks=pytest.mark.long,
    ),
    pytest.param(
        Fault(
            "docker kill of a node", QUERIES, searching, kill_node, 3, r"arm arm0: its node has died: killed"
        ),
        marks=pytest.mark.long,
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_nothing_stays_and_nothing_is_lost(fault: Fault, home: Path, afterwards: Afterwards) -> None:
    with race(home, fault.plan) as running:
        running.reach(fault.stage)
        struck_at, struck = time.time(), time.monotonic()
        fault.strike(running)
        code = running.exit_code()
        gone_s = running.gone(struck)
        afterwards.row(fault.name, running, code, gone_s)
        assert code == fault.code
        check_record(running, struck_at)
    afterwards.listed(running, fault.state, fault.reason)
    if fault.code == 130:
        assert running.cancelled
    else:
        assert_one_line(running, fault.reason)


@pytest.mark.long
def test_actors_whose_command_and_reaper_were_killed_end_with_their_session(
    home: Path, afterwards: Afterwards
) -> None:
    """They stayed for good, and no race could begin beside them."""
    with race(home, plan(iterations=200)) as running:
        running.reach(searching)
        (reaper,) = (one for one, title in processes() if title.startswith(f"ebs-reaper {running.id[:8]}"))
        reaper.kill()
        running.main.kill()
        assert running.exit_code() == -signal.SIGKILL
        running.gone(time.monotonic() + 60)  # the race goes on to its end
    afterwards.listed(running, "complete", "")


def test_ctrl_c_while_the_report_is_made_leaves_nothing(home: Path, afterwards: Afterwards) -> None:
    """All is measured by then: the report is finished, and the session is complete."""
    with race(home, plan()) as running:
        running.reach(reporting)
        struck = time.monotonic()
        ctrl_c(running)
        code = running.exit_code()
        afterwards.row("Ctrl-C while the report is made", running, code, running.gone(struck))
        assert code == 130
        assert (running.folder / "report.md").exists()
    afterwards.listed(running, "complete", "^$")


def test_during_a_race_only_elasticsearch_listens_a_second_is_refused_and_ctrl_c_ends_it(
    home: Path, afterwards: Afterwards
) -> None:
    with race(home, QUERIES) as running:
        running.reach(searching)
        listeners = running.listeners()
        assert {"BenchmarkActor", "DriverActor", "Worker", "ebs-reaper", "ebs-volume"} <= listeners.keys()
        assert [places for places in listeners.values() if places] == []
        (node,) = running.containers()
        assert re.fullmatch(r"9200/tcp -> 127\.0\.0\.1:\d+", docker("port", node).strip())
        second = subprocess.run(running.main.args, capture_output=True, text=True, timeout=60, check=False)
        assert second.returncode == 64
        assert "There are other Rally processes running on this machine" in second.stdout + second.stderr
        struck_at, struck = time.time(), time.monotonic()
        ctrl_c(running)
        code = running.exit_code()
        afterwards.row("a second race, then Ctrl-C during queries", running, code, running.gone(struck))
        assert code == 130
        check_record(running, struck_at)
    afterwards.listed(running, "cancelled", CANCELLED)


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
