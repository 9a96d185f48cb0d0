"""Your index and your queries: a slow log and a stopped node's data directory, raced as the page says."""

import hashlib
import json
import os
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import boto3
import elasticsearch
import pytest
from quick_node import JAVA_OPTS
from rally_command import Homes, homes
from shared_python import NOBODY, by_sudo, environment
from small_race import SHORT

from esrally_ebs import cli, node
from esrally_ebs.model import Kind, Volume, VolumeSpec
from esrally_ebs.rally.cars import load_settings
from esrally_ebs.store import find_session, load_session

pytestmark = pytest.mark.system
_DATA = "/usr/share/elasticsearch/data"  # in the container
DOCUMENTS = {"logs-1": 300, "logs-2": 500, "other": 50}


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Homes]:
    with homes(tmp_path_factory.mktemp("own")) as made:
        plan = SHORT.replace("rounds = 4", "rounds = 2")
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
    settings = load_settings(["defaults"], {"java_opts": JAVA_OPTS})
    with node.running(volume, settings, session="production", image=image) as started:
        client = elasticsearch.Elasticsearch(f"http://{started.host}:{started.port}")
        client.cluster.put_settings(persistent={"action.destructive_requires_name": True})
        for index, count in DOCUMENTS.items():
            client.indices.create(index=index, settings={"index.number_of_shards": 2})
            lines = [({"index": {}}, {"n": number, "text": f"line {number % 7}"}) for number in range(count)]
            client.bulk(index=index, operations=[part for line in lines for part in line], refresh=True)
        client.indices.put_alias(index="logs-2", name="current")
    return mount / "elasticsearch"


@pytest.fixture(scope="module")
def repository(at: Homes, data: Path) -> Path:
    """A repository of files with a snapshot of all indices, which a node has taken that is stopped."""
    there = at.rally / "repository"
    there.mkdir()
    os.chown(there, 1000, 0)
    mount = at.rally / "copy"
    shutil.copytree(data, mount / "elasticsearch")
    volume = Volume(
        spec=VolumeSpec(name="copy", type="directory", size_bytes=0), kind=Kind.DIRECTORY, mount=mount
    )
    settings = load_settings(["defaults"], {"java_opts": JAVA_OPTS})
    settings = replace(settings, es_settings={"path.repo": f"{_DATA}/repository"})
    (started,) = node.start(
        [volume],
        settings,
        session="production",
        image=node.choose_image(os.environ),
        elsewhere={"repository": there},
    )
    try:
        client = elasticsearch.Elasticsearch(f"http://{started.host}:{started.port}", request_timeout=60)
        location = {"location": f"{_DATA}/repository"}
        hot = {"index.routing.allocation.require.box_type": "hot"}  # of which no node of ours is
        client.indices.put_settings(index="logs-1", settings=hot)
        client.snapshot.create_repository(name="backup", type="fs", settings=location)
        client.snapshot.create(repository="backup", snapshot="nightly-1", wait_for_completion=True)
    finally:
        node.stop(started)
    return there


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


@pytest.mark.long
def test_a_snapshot_is_restored_once_and_its_repository_is_as_it_was(
    at: Homes, repository: Path, workload: Path
) -> None:
    before = {path: (path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in repository.rglob("*")}
    bytes_before = content(repository)
    given = params(at, snapshot=repository / "nightly-1", indices="logs-1;logs-2", rounds=1)
    ended = at.race(given, track=workload)
    assert ended.exit_code == 0, ended.output
    assert content(repository) == bytes_before
    after = {path: (path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in repository.rglob("*")}
    assert after == before
    session = load_session(find_session(at.pack, "latest"))
    assert session.dataset["documents"] == DOCUMENTS["logs-1"] + DOCUMENTS["logs-2"]
    assert {segment["index"] for segment in session.dataset["segments"]} == {"logs-1", "logs-2"}
    assert {check.name: check.ok for check in session.checks}["hits"]


@pytest.mark.long
@pytest.mark.usefixtures("aws")
def test_a_snapshot_in_s3_is_restored_by_a_node_that_never_sees_the_bucket(
    at: Homes, repository: Path, workload: Path
) -> None:
    bucket = boto3.client("s3")
    bucket.create_bucket(Bucket="backups")
    for path in (path for path in repository.rglob("*") if path.is_file()):
        bucket.put_object(
            Bucket="backups", Key=f"prod/{path.relative_to(repository)}", Body=path.read_bytes()
        )
    objects = bucket.list_objects_v2(Bucket="backups")["Contents"]
    shutil.rmtree(at.pack / "datasets", ignore_errors=True)  # the same snapshot as of the test above
    given = {"plan": f"{at.rally / 'plan.toml'}", "snapshot": "s3://backups/prod/nightly-1", "rounds": 1}
    given |= {"indices": "logs-1;logs-2"}
    ended = at.race(f"--track-params={json.dumps(given)}", track=workload)
    assert ended.exit_code == 0, ended.output
    assert bucket.list_objects_v2(Bucket="backups")["Contents"] == objects
    session = load_session(find_session(at.pack, "latest"))
    assert session.dataset["documents"] == DOCUMENTS["logs-1"] + DOCUMENTS["logs-2"]
    assert {segment["index"] for segment in session.dataset["segments"]} == {"logs-1", "logs-2"}
    assert sorted(path.name for path in Path(session.dataset["path"]).iterdir()) == [
        "dataset.json",
        "elasticsearch",
    ]


@pytest.mark.long
def test_a_snapshot_is_restored_by_sudo_too(at: Homes, repository: Path, workload: Path) -> None:
    with environment() as shared:
        for path in (repository, workload):
            shutil.copytree(path, shared / path.name)
        subprocess.run(["chmod", "-R", "a+rX", shared / workload.name], check=True)
        shutil.copy(at.rally / "plan.toml", shared / "plan.toml")
        given = f"plan:{shared}/plan.toml,snapshot:{shared}/{repository.name}/nightly-1,indices:logs-1;logs-2"
        command = ("esrally", "race", f"--track-path={shared / workload.name}")
        raced = subprocess.run(
            [*command, f"--track-params={given},rounds:1"],
            env=by_sudo(shared, at.run),
            cwd="/",
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert raced.returncode == 0, raced.stdout + raced.stderr
        session = load_session(find_session(shared / "home" / "ebs", "latest"))
        assert session.dataset["documents"] == DOCUMENTS["logs-1"] + DOCUMENTS["logs-2"]
        assert {path.stat().st_uid for path in (shared / "home").rglob("*")} == {NOBODY}
    assert list(at.run.iterdir()) == []


@pytest.mark.long
def test_a_name_that_is_not_in_the_snapshot_is_one_line(at: Homes, repository: Path, workload: Path) -> None:
    ended = at.race(params(at, snapshot=repository / "nightly-1", indices="logs-1;none"), track=workload)
    assert ended.exit_code == 2, ended.output
    assert "no index is named 'none' in" in ended.output
    assert "there are logs-1, logs-2, other" in ended.output
    assert list(at.run.iterdir()) == []


@pytest.mark.long
def test_a_name_that_is_not_there_is_one_line(at: Homes, data: Path, workload: Path) -> None:
    ended = at.race(params(at, data=data, indices="logs-1;nothing"), track=workload)
    assert (ended.exit_code, "no index is named 'nothing' in" in ended.output) == (2, True), ended.output
    assert list(at.run.iterdir()) == []


def test_without_data_the_track_says_how_to_give_it(at: Homes, workload: Path) -> None:
    ended = at.race(params(at), track=workload)
    assert ended.exit_code == 2
    assert "has no documents to make its indices of; name a data directory" in ended.output
