"""The track noaa-ebs: what Rally itself makes of its files, without the pack's processors."""

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
import pytest
from article import SEARCHES
from esrally import exceptions
from esrally.track import track
from rally_configuration import configuration, read_track

from esrally_ebs.machine.resources import resource

TRACK = resource("tracks/noaa-ebs")

INDEXING = [
    "delete-index",
    "create-index",
    "check-cluster-health",
    "index",
    "refresh-after-index",
    "force-merge",
    "refresh-after-force-merge",
    "wait-until-merges-finish",
]
PARAMETERS: dict[str, Any] = {
    "plan": "smoke",
    "volumes": "gp2=/mnt/gp2,gp3=/mnt/gp3",
    "accept": "readahead;other-io",
    "rounds": 2,
    "iterations": 3,
    "warmup_iterations": 1,
    "documents": 5000,
    "cache": "warm",
    "bulk_size": 100,
    "bulk_indexing_clients": 4,
    "bulk_warmup_time_period": 10,
    "ingest_percentage": 50,
    "number_of_shards": 2,
    "number_of_replicas": 1,
    "force_merge_max_num_segments": 3,
    "index_settings": {"index.codec": "best_compression"},
    "cluster_health": "yellow",
    "search_clients": 2,
    "target_throughput": 7,
}


def load(**params: Any) -> track.Track:  # noqa: ANN401 - track parameters are whatever the user gives
    """The track as Rally reads it, once for each set of parameters."""
    return _load(json.dumps(params))


@functools.cache
def _load(params: str) -> track.Track:
    return read_track(configuration(TRACK, pipeline=None, **json.loads(params)), TRACK)


def tasks(loaded: track.Track, challenge: str) -> dict[str, track.Task]:
    return {task.name: task for task in loaded.find_challenge_or_default(challenge).schedule}


@pytest.mark.parametrize(
    ("challenge", "names"),
    [
        ("", SEARCHES),
        ("search-only", SEARCHES),
        ("append-no-conflicts", INDEXING + SEARCHES),
        ("index-only", INDEXING),
    ],
)
def test_each_challenge_runs_its_tasks_in_order(challenge: str, names: list[str]) -> None:
    assert list(tasks(load(), challenge)) == names


def test_rally_accepts_every_parameter() -> None:
    load(**PARAMETERS)


def test_rally_refuses_a_parameter_that_no_template_mentions() -> None:
    with pytest.raises(exceptions.TrackConfigError, match="unknown"):
        load(unknown=1)


REACHED: dict[str, Callable[[track.Track], Any]] = {
    "iterations": lambda t: tasks(t, "search-only")[SEARCHES[0]].iterations,
    "warmup_iterations": lambda t: tasks(t, "search-only")[SEARCHES[0]].warmup_iterations,
    "search_clients": lambda t: tasks(t, "search-only")[SEARCHES[0]].clients,
    "target_throughput": lambda t: tasks(t, "search-only")[SEARCHES[0]].params["target-throughput"],
    "documents": lambda t: t.corpora[0].documents[0].number_of_documents,
    "bulk_size": lambda t: operation(t, "index")["bulk-size"],
    "bulk_indexing_clients": lambda t: tasks(t, "index-only")["index"].clients,
    "bulk_warmup_time_period": lambda t: tasks(t, "index-only")["index"].warmup_time_period,
    "ingest_percentage": lambda t: operation(t, "index")["ingest-percentage"],
    "number_of_shards": lambda t: t.indices[0].body["settings"]["index.number_of_shards"],
    "number_of_replicas": lambda t: t.indices[0].body["settings"]["index.number_of_replicas"],
    "force_merge_max_num_segments": lambda t: operation(t, "force-merge")["max-num-segments"],
    "index_settings": lambda t: operation(t, "create-index")["settings"],
    "cluster_health": lambda t: operation(t, "check-cluster-health")["request-params"]["wait_for_status"],
}


def operation(loaded: track.Track, task: str) -> dict[str, Any]:
    params: dict[str, Any] = tasks(loaded, "index-only")[task].operation.params
    return params


@pytest.mark.parametrize("name", REACHED)
def test_a_parameter_reaches_what_it_is_for(name: str) -> None:
    assert REACHED[name](load(**PARAMETERS)) == PARAMETERS[name]


def test_searches_run_unthrottled_unless_told_otherwise() -> None:
    assert "target-throughput" not in tasks(load(), "search-only")[SEARCHES[0]].params


def test_a_synthetic_corpus_is_never_looked_for_in_the_network() -> None:
    (documents,) = load(documents=1234).corpora[0].documents
    assert (documents.document_file, documents.document_archive, documents.base_url) == (
        "documents-1234.json",
        None,
        None,
    )


def test_the_official_corpus_is_asked_for_by_the_word_full() -> None:
    (documents,) = load(documents="full").corpora[0].documents
    assert documents.document_archive == "documents.json.bz2"
    assert (documents.number_of_documents, documents.uncompressed_size_in_bytes) == (
        33_659_481,
        9_684_262_698,
    )


def test_the_mapping_is_strict_and_takes_no_cache() -> None:
    (index,) = load().indices
    assert index.name == "weather-data-2016"
    assert index.body["mappings"]["dynamic"] == "strict"
    assert index.body["settings"]["index.queries.cache.enabled"] is False
    assert index.body["settings"]["index.requests.cache.enable"] is False


def test_the_mapping_knows_every_element_of_the_noaa_corpus() -> None:
    # 70 elements, the two ranges, a date, and the station
    properties = load().indices[0].body["mappings"]["properties"]
    kinds = [field.get("type", "object") for field in properties.values()]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "float": 19,
        "keyword": 51,
        "double_range": 2,
        "date": 1,
        "object": 1,
    }


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_asks_what_its_name_says(name: str) -> None:
    query = tasks(load(), "search-only")[name].operation.params["body"]["query"]
    big, small = {"gte": 0, "lte": 30}, {"gte": -20, "lte": -10}
    expected = {"range": {"TRANGE": big if "big_range" in name else small}}
    if "term" in name:
        term = {"term": {"station.country_code": "US" if "big_term" in name else "JA"}}
        expected = {"bool": {"must" if "conjunction" in name else "should": [term, expected]}}
    assert query == expected


def test_the_readme_names_every_parameter_task_and_challenge() -> None:
    text = (TRACK / "README.md").read_text()
    words = set(re.findall(r"`([\w-]+)`", text))
    templates = "".join(path.read_text() for path in TRACK.rglob("*.json"))
    asked_for = set(re.findall(r"(\w+) \| default\(", templates)) | {"target_throughput"}
    assert asked_for >= PARAMETERS.keys()
    assert words >= {*asked_for, *SEARCHES, "append-no-conflicts", "index-only", "search-only"}


def test_the_templates_are_json_without_parameters() -> None:
    rendered = jinja2.Template(Path(TRACK / "index.json").read_text()).render()
    assert json.loads(rendered).keys() == {"settings", "mappings"}
