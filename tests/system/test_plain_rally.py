"""Plain Rally on a node composed by hand, as in the article: the same track, and nothing of ours starts."""

import csv
import json
import os
import subprocess
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from article import SEARCHES
from loopback_server import free_port
from quick_node import JAVA_OPTS
from rally_command import Homes, homes

from esrally_ebs import node
from esrally_ebs.errors import EbsError
from esrally_ebs.machine.resources import resource

pytestmark = pytest.mark.system

DOCUMENTS = 5000
# plain Rally waits ten seconds in each task: the fewest that index and search; a unit test sees all
RACED = SEARCHES[:1]
INDEXING = ("create-index", "index")


@dataclass(frozen=True)
class PlainRace:
    """What a race of plain Rally left."""

    rows: list[dict[str, str]]
    homes: Homes
    count: int  # documents in the index afterwards


@pytest.fixture(scope="module")
def race(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainRace]:
    """One node by hand, one race on it that went through."""
    try:
        image = node.choose_image(os.environ)
    except EbsError as error:
        pytest.skip(str(error))
    tmp = tmp_path_factory.mktemp("plain")
    data = tmp / "data"
    data.mkdir()
    os.chown(data, 1000, 0)
    port = free_port()
    by_hand = {
        **os.environ,
        "ES_IMAGE": image,
        "ES_PORT": str(port),
        "ES_DATA": str(data),
        "ES_EXTRA_OPTS": JAVA_OPTS,
    }
    project = f"plain-{uuid.uuid4().hex[:8]}"
    compose = ["docker", "compose", "-p", project, "-f", str(resource("compose/node.yml"))]
    try:
        subprocess.run([*compose, "up", "-d", "--wait"], env=by_hand, check=True, capture_output=True)
        with homes(tmp / "homes") as own:
            yield _race(own, tmp, port)
    finally:
        subprocess.run([*compose, "down", "-v"], env=by_hand, check=True, capture_output=True)


def _race(homes: Homes, tmp: Path, port: int) -> PlainRace:
    report = tmp / "report.csv"
    ended = homes.race(
        "--challenge=append-no-conflicts",
        "--pipeline=benchmark-only",
        f"--target-hosts=localhost:{port}",
        "--report-format=csv",
        f"--report-file={report}",
        f"--include-tasks={','.join((*INDEXING, *RACED))}",
        f"--track-params=documents:{DOCUMENTS},iterations:3,warmup_iterations:2",
    )
    assert ended.exit_code == 0, ended.output
    _get(port, "weather-data-2016/_refresh")
    count = json.loads(_get(port, "weather-data-2016/_count"))["count"]
    return PlainRace(rows=list(csv.DictReader(report.read_text().splitlines())), homes=homes, count=count)


def _get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def test_the_csv_holds_the_searches_with_their_service_times(race: PlainRace) -> None:
    timed = {row["Task"] for row in race.rows if row["Metric"] == "50th percentile service time"}
    assert timed >= set(RACED)
    values = [float(row["Value"]) for row in race.rows if row["Metric"] == "50th percentile service time"]
    assert all(value > 0 for value in values)


def test_no_request_failed(race: PlainRace) -> None:
    rates = {row["Task"]: float(row["Value"]) for row in race.rows if row["Metric"] == "error rate"}
    assert {rates[task] for task in RACED} == {0.0}


def test_all_documents_were_generated_where_rally_looks_and_then_indexed(race: PlainRace) -> None:
    documents = race.homes.rally / ".rally/benchmarks/data/noaa-ebs" / f"documents-{DOCUMENTS}.json"
    assert len(documents.read_bytes().splitlines()) == DOCUMENTS
    assert race.count == DOCUMENTS


def test_tasks_keep_the_names_and_numbers_of_the_track(race: PlainRace) -> None:
    # no clone per arm and round: each search is one task
    names = {row["Task"] for row in race.rows if row["Task"]}
    assert not [name for name in names if "-gp2" in name or "-r1" in name or name.startswith("fio")]


def test_nothing_of_ours_is_started_or_recorded(race: PlainRace) -> None:
    assert not race.homes.pack.exists()
    assert list(race.homes.run.iterdir()) == []
    assert "by-hand" not in node.leftovers()
