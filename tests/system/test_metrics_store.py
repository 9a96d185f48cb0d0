"""A session in a real Elasticsearch: the mapping holds, nothing is doubled, every panel finds its data."""

import json
import os
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from quick_node import JAVA_OPTS
from small_plan import small_plan

from esrally_ebs import node
from esrally_ebs.errors import EbsError
from esrally_ebs.model import (
    BaselineRow,
    Event,
    Kind,
    Phase,
    Sample,
    State,
    TelemetryPoint,
    Volume,
    VolumeSpec,
)
from esrally_ebs.rally.cars import load_settings
from esrally_ebs.rally.metrics_store import StoreAddress, send
from esrally_ebs.report.documents import documents, panels
from esrally_ebs.store import SessionFolder, load_session
from esrally_ebs.store.session import Session

pytestmark = [pytest.mark.system, pytest.mark.beside, pytest.mark.usefixtures("own_run")]

PATTERN = "rally-ebs-*"
ARMS = ("gp2", "gp3")
SECONDS = 300  # of telemetry


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreAddress]:
    """One node on a directory of its own, as somebody's metrics store."""
    try:
        image = node.choose_image(os.environ)
    except EbsError as error:
        pytest.skip(str(error))
    session = str(uuid.uuid4())
    spec = VolumeSpec(name="store", type="directory", size_bytes=0)
    volume = Volume(spec=spec, kind=Kind.DIRECTORY, mount=tmp_path_factory.mktemp("store"))
    try:
        settings = load_settings(["defaults"], {"java_opts": JAVA_OPTS})
        (up,) = node.start([volume], settings, session=session, image=image)
        yield StoreAddress(host=up.host, port=up.port, replicas=0)
    finally:
        node.remove(session)


def arm(name: str) -> Volume:
    return Volume(spec=VolumeSpec(name=name, type=name, size_bytes=1), kind=Kind.EMULATED, mount=Path("/mnt"))


def sample(session: str, name: str, round_: int, at: float) -> Sample:
    seconds = {"gp2": 0.1, "gp3": 0.08}[name] * (1 + 0.001 * round_)
    times = dict.fromkeys(("service_time_s", "latency_s", "processing_time_s"), seconds)
    fields: dict[str, Any] = {"phase": Phase.MEASURE, "iteration": 1, "client": 0, "ops": 1.0, "hits": 5}
    fields |= {"success": True, "took_s": None, "resident_before": 0.0, "started_s": at}
    return Sample(session=session, arm=name, round=round_, task="q", operation="q", **times, **fields)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """A complete session on two arms that ended a minute ago."""
    start = time.time() - SECONDS - 60
    plan = small_plan(race={"challenge": "search-only"})
    name = str(uuid.uuid4())
    folder = SessionFolder.create(
        tmp_path_factory.mktemp("home"), name, kind="race", plan=plan, started_at=start
    )
    folder.update(arms=[arm(name) for name in ARMS], environment={"host": "here"})
    with folder.part_writer("samples") as samples:
        samples.add(sample(name, a, round_, start + round_) for round_ in range(1, 7) for a in ARMS)
    shape = {"bs_bytes": 4096, "numjobs": 1, "iodepth": 1, "bandwidth_bytes_per_s": 1e6}
    times = dict.fromkeys(("mean_s", "p50_s", "p90_s", "p99_s", "p999_s"), 0.001)
    folder.rows_baseline(
        BaselineRow(arm=a, round=0, job="seq", op=op, iops=3000.0, **shape, **times)
        for a in ARMS
        for op in ("read", "write")
    )
    metrics = {"device.reads_per_s": 100.0, "emulator.credits": 5.4e6}
    with folder.part_writer("telemetry") as telemetry:
        telemetry.add(
            TelemetryPoint(arm=a, device="loop0", at_s=start + second, metric=metric, value=value, unit="")
            for a in ARMS
            for second in range(SECONDS)
            for metric, value in metrics.items()
        )
    drop = {"task": "q", "round": 1, "before": 0.9, "after": 0.001, "attempts": 1, "seconds": 0.1}
    folder.event(Event(at_s=start + 1, kind="drop", arm="gp2", fields=drop))
    folder.finish(State.COMPLETE, ended_at=start + SECONDS)
    return load_session(folder.path)


def ask(store: StoreAddress, path: str, body: object | None = None) -> Any:  # noqa: ANN401
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"{store.url}/{path}", data=data, headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def sent(store: StoreAddress, session: Session) -> StoreAddress:
    """The store with the session in it, sent twice."""
    assert send(session, store).documents == send(session, store).documents
    ask(store, f"{PATTERN}/_refresh")
    return store


def test_every_document_is_there_once_though_it_was_sent_twice(sent: StoreAddress, session: Session) -> None:
    # 1 session, 1 verdict, 2 service times, 4 rows of fio, 1 drop, 300 s on 2 arms
    assert ask(sent, f"{PATTERN}/_count")["count"] == 1 + 1 + 2 + 4 + 1 + 600
    assert len({document.id for document in documents(session, "local")}) == 609


def test_the_mapping_is_that_of_the_template_and_no_field_was_guessed_as_text(sent: StoreAddress) -> None:
    (index,) = ask(sent, PATTERN).values()
    assert index["settings"]["index"]["number_of_replicas"] == "0"
    fields = index["mappings"]["properties"]
    expected = {"@timestamp": "date", "race-id": "keyword", "task": "keyword", "p50_s": "double"}
    expected |= {
        "p50_ratio_low": "double",
        "iops": "double",
        "emulated": "boolean",
        "resident_after": "double",
    }
    assert {name: fields[name]["type"] for name in expected} == expected
    assert {field["type"] for field in fields["telemetry"]["properties"].values()} == {"double"}
    assert {name for name, field in fields.items() if field.get("type") == "text"} == {
        "sentence",
        "warnings",
        "reason",
    }


def test_a_verdict_is_found_by_its_task_with_its_interval(sent: StoreAddress, session: Session) -> None:
    query = {"query": {"bool": {"filter": [{"term": {"record": "verdict"}}, {"term": {"task": "q"}}]}}}
    (hit,) = ask(sent, f"{PATTERN}/_search", query)["hits"]["hits"]
    verdict = hit["_source"]
    assert (verdict["race-id"], verdict["verdict"], verdict["against"]) == (session.id, "faster", "gp2")
    assert verdict["p50_ratio"] == pytest.approx(0.8)
    assert verdict["p50_ratio_low"] <= verdict["p50_ratio"] <= verdict["p50_ratio_high"]


def filled(query: object) -> object:
    """A panel's query as Kibana would send it: any time of the last day, no filter of the dashboard."""
    if isinstance(query, dict):
        if query.get("%timefilter%"):
            return {"gte": "now-1d", "lte": "now", "format": "strict_date_optional_time"}
        return {key: filled(value) for key, value in query.items()}
    if isinstance(query, list):
        return [filled(part) for part in query if not str(part).startswith("%dashboard_context")]
    return query


def fields_of(spec: object) -> Iterator[str]:
    """Every field of the documents that a drawing uses."""
    if isinstance(spec, dict):
        field = spec.get("field")
        if isinstance(field, str) and field.startswith("_source."):
            yield field.removeprefix("_source.")
        for value in spec.values():
            yield from fields_of(value)
    elif isinstance(spec, list):
        for part in spec:
            yield from fields_of(part)


@pytest.mark.parametrize("panel", panels())
def test_every_panel_finds_documents_with_the_fields_that_it_draws(sent: StoreAddress, panel: str) -> None:
    spec = panels()[panel]
    url = spec["data"]["url"]
    assert url["index"] == PATTERN
    hits = ask(sent, f"{PATTERN}/_search", filled(url["body"]))["hits"]["hits"]
    assert hits
    for name in fields_of(spec["encoding"]):
        value: Any = hits[0]["_source"]
        for part in name.split("."):
            value = value[part]
        assert value is not None
