"""Your index and your queries: a slow log and a stopped node's data directory, raced as the page says."""

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import elasticsearch
import pytest
from rally_command import Homes, homes
from small_race import PLAN

from esrally_ebs import cli, node
from esrally_ebs.model import Kind, Volume, VolumeSpec
from esrally_ebs.rally.cars import load_settings
from esrally_ebs.store import find_session, load_session

pytestmark = pytest.mark.system
DOCUMENTS = {"logs-1": 300, "logs-2": 500, "other": 50}


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Homes]:
    with homes(tmp_path_factory.mktemp("own")) as made:
        plan = PLAN.partition("[[baseline]]")[0].replace("rounds = 4", "rounds = 2")
        (made.rally / "plan.toml").write_text(plan)
        yield made


@pytest.fixture(scope="module")
def data(at: Homes) -> Path:
    """What a node leaves that held three indices and an alias, and was stopped."""
    mount = at.rally / "production"
    mount.mkdir()
    volume = Volume(
        spec=VolumeSpec(name="production", type="directory", size_bytes=0), kind=Kind.DIRECTORY, mount=mount
    )
    image = node.choose_image(os.environ)
    settings = load_settings(["defaults"], {})
    with node.running(volume, settings, session="production", image=image) as started:
        client = elasticsearch.Elasticsearch(f"http://{started.host}:{started.port}")
        client.cluster.put_settings(persistent={"action.destructive_requires_name": True})
        for index, count in DOCUMENTS.items():
            client.indices.create(index=index, settings={"index.number_of_shards": 2})
            lines = [({"index": {}}, {"n": number, "text": f"line {number % 7}"}) for number in range(count)]
            client.bulk(index=index, operations=[part for line in lines for part in line], refresh=True)
        client.indices.put_alias(index="logs-2", name="current")
    return mount / "elasticsearch"


def content(data: Path) -> dict[Path, str]:
    return {p: hashlib.sha256(p.read_bytes()).hexdigest() for p in data.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def workload(at: Homes) -> Path:
    """The track of a query log that searched two of the indices, one of them by its alias."""
    log = at.rally / "querylog.json"
    bodies = [{"query": {"match": {"text": f"line {number}"}}} for number in range(7)]
    entry = "elasticsearch.querylog."
    log.write_text(
        "".join(
            json.dumps(
                {
                    "@timestamp": f"2026-01-02T10:00:0{number}.000Z",
                    f"{entry}type": "dsl",
                    f"{entry}query": json.dumps(body),
                    f"{entry}indices": [index],
                    f"{entry}took": 1_000_000,
                }
            )
            + "\n"
            for index in ("logs-1", "current")
            for number, body in enumerate(bodies)
        )
    )
    assert cli.main(["workload", "import", str(log), "--output", str(at.rally / "my-queries")]) == 0
    return at.rally / "my-queries"


def params(at: Homes, **more: object) -> str:
    return "--track-params=" + ",".join(
        f"{name}:{value}" for name, value in {"plan": at.rally / "plan.toml", **more}.items()
    )


def test_the_log_is_raced_on_the_indices_of_the_data_directory(at: Homes, data: Path, workload: Path) -> None:
    before = content(data)
    ended = at.race(params(at, data=data, indices="logs-1;logs-2"), track=workload)
    assert ended.exit_code == 0, ended.output
    assert content(data) == before
    session = load_session(find_session(at.pack, "latest"))
    assert session.dataset["documents"] == DOCUMENTS["logs-1"] + DOCUMENTS["logs-2"]
    assert {segment["index"] for segment in session.dataset["segments"]} == {"logs-1", "logs-2"}
    assert {check.name: check.ok for check in session.checks}["hits"]
    hits = defaultdict(set)
    resident = set()
    for row in session.samples.to_pylist():
        if row["phase"] == "measure":
            hits[row["task"], row["arm"]].add(row["hits"])
            resident.add(row["resident_before"])
    assert len(hits) == 2 * 2  # a template for each index, on each arm
    assert {0 < count <= DOCUMENTS["logs-2"] for counts in hits.values() for count in counts} == {True}
    assert max(resident) <= 0.01


@pytest.mark.parametrize(
    ("indices", "says"),
    [
        ("logs-1;nothing", "no index is named 'nothing' in"),
        ("logs-1;other", "lacks logs-2, which the track searches; add it"),
    ],
)
def test_a_name_that_is_not_there_is_one_line(
    at: Homes, data: Path, workload: Path, indices: str, says: str
) -> None:
    ended = at.race(params(at, data=data, indices=indices), track=workload)
    assert (ended.exit_code, says in ended.output) == (2, True), ended.output
    assert list(at.run.iterdir()) == []


def test_without_data_the_track_says_how_to_give_it(at: Homes, workload: Path) -> None:
    ended = at.race(params(at), track=workload)
    assert ended.exit_code == 2
    assert "has no documents to make its indices of; name a data directory" in ended.output
