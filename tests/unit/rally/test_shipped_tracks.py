"""The tracks but noaa-ebs: Rally reads them, and their documents are what their mappings say."""

import json
import re
import runpy
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from esrally import config
from esrally.track import loader, track
from rally_configuration import configuration, read_track

from esrally_ebs.errors import PlanError
from esrally_ebs.machine.resources import plan_path, resource
from esrally_ebs.plan import load_plan
from esrally_ebs.rally.processor import Pack
from esrally_ebs.rally.schedule import divide, expand, settled
from esrally_ebs.rally.settings import plan_for
from esrally_ebs.workload.corpus.files import RENDERERS
from esrally_ebs.workload.corpus.vectors import DIMENSIONS, Nearest

TRACKS = {"logs-ebs": "logs", "vectors-ebs": "vectors", "ingest-ebs": "uploads"}
PLANS = {
    **TRACKS,
    "ingest-ebs": "ingest",
    "recovery-ebs": "minutes-to-green",
}  # with the documents of logs-ebs


def load(name: str, tmp_path: Path, **params: object) -> track.Track:
    return read_track(configuration(tmp_path, pipeline="from-sources", **params), resource("tracks") / name)


@pytest.mark.parametrize("name", PLANS)
def test_rally_reads_it_with_every_parameter_that_its_readme_names(name: str, tmp_path: Path) -> None:
    readme = (resource("tracks") / name / "README.md").read_text()
    loaded = load(name, tmp_path, documents=90, plan="smoke", number_of_shards=2, cache="warm", rounds=2)
    tasks = [task.name for element in loaded.default_challenge.schedule for task in element]
    assert re.findall(r"^\| `([\w-]+)` \|", readme, re.M) == tasks
    templates = "".join(path.read_text() for path in (resource("tracks") / name).glob("*.json"))
    ours = set(re.findall(r"(\w+) \| default\(", templates.split("%}", 2)[2]))
    assert {word for word in ours if f"`{word}`" not in readme} == set()
    assert sum(each.number_of_documents for made in loaded.corpora for each in made.documents) == 90
    assert loaded.indices[0].body["settings"]["index.number_of_shards"] == 2


@pytest.mark.parametrize("name", PLANS)
def test_no_number_of_its_own_has_the_name_of_a_parameter_of_the_packs(name: str) -> None:
    template = (resource("tracks") / name / "track.json").read_text().split("%}", 2)[2]
    for parameter, default in re.findall(r"(\w+) \| default\((\d+)\)", template):
        assert plan_for({parameter: int(default)})


@pytest.mark.parametrize("pipeline", ["from-sources", "benchmark-only"])
@pytest.mark.parametrize(
    ("name", "documents"),
    [
        *product([*PLANS, "noaa-ebs"], [-1, 0, "many"]),
        *product(PLANS, ["full"]),  # which noaa-ebs alone has
    ],
)
def test_a_number_of_documents_that_none_can_have_is_left_to_the_plans_check(
    name: str, documents: object, pipeline: str, tmp_path: Path
) -> None:
    loaded = load(name, tmp_path, documents=documents)
    pack = Pack()
    pack.cfg = configuration(tmp_path, pipeline=pipeline, documents=documents)
    with pytest.raises(PlanError, match=r"dataset\.documents: "):
        pack.on_after_load_track(loaded)


@pytest.mark.parametrize("name", PLANS)
def test_its_plan_races_it(name: str) -> None:
    plan = load_plan(plan_path(PLANS[name]))
    assert plan.race is not None
    assert (plan.race.track, len(plan.arm)) == (name, 2)


@pytest.mark.parametrize("name", PLANS)
def test_it_is_raced_by_its_plan_when_none_is_named(name: str, tmp_path: Path) -> None:
    cfg = configuration(tmp_path, pipeline=None)
    cfg.add(config.Scope.benchmark, "track", "track.path", str(resource("tracks") / name))
    registry = loader.TrackProcessorRegistry(cfg)
    loader.load_track_plugins(cfg, name, register_track_processor=registry.register_track_processor)
    challenge = load(name, tmp_path).default_challenge
    loaded, plan = track.Track("one", challenges=[challenge]), load_plan(plan_path(PLANS[name]))
    expected = expand(challenge.schedule, settled(plan, loaded, *divide(challenge.schedule)))
    for pack in (each for each in registry.processors if isinstance(each, Pack)):
        pack.on_after_load_track(loaded)
    assert [str(task) for task in challenge.schedule] == [str(task) for task in expected]


@pytest.mark.parametrize("name", TRACKS)
def test_documents_have_the_fields_of_the_mapping_and_the_seed_decides_them(
    name: str, tmp_path: Path
) -> None:
    fields = load(name, tmp_path).indices[0].body["mappings"]["properties"]
    renderer = RENDERERS[TRACKS[name]]
    text = renderer(7).lines(0, 50)
    assert text == renderer(7).lines(0, 50)
    assert len({text, renderer(8).lines(0, 50), renderer(7).lines(50_000, 50_050)}) == 3
    rows = [json.loads(line) for line in text.splitlines()]
    assert len(rows) == 50
    assert all(row.keys() == fields.keys() for row in rows)
    assert 0.6 < len(text) / 50 / renderer(7).bytes_per_document < 1.2


def test_parts_of_the_log_are_days_that_follow_one_another() -> None:
    def times(seed: int) -> list[int]:
        return [
            json.loads(line)["@timestamp"] for line in RENDERERS["logs"](seed).lines(0, 1000).splitlines()
        ]

    first, second = times(0), times(1)
    assert first == sorted(first)
    assert second[0] - first[0] == pytest.approx(86_400_000, abs=1000)


def test_every_arm_searches_the_neighbours_of_the_same_points() -> None:
    operation: Mapping[str, Any] = {"index": "i", "k": 3, "num_candidates": 9, "detailed-results": True}
    sources = [Nearest(None, dict(operation)).partition(0, 1) for _ in range(2)]
    searches = [[source.params() for _ in range(3)] for source in sources]
    assert searches[0] == searches[1]
    points = [given["body"]["knn"]["query_vector"] for given in searches[0]]
    assert len({tuple(point) for point in points}) == 3
    assert {len(point) for point in points} == {DIMENSIONS}
    assert (searches[0][0]["index"], searches[0][0]["body"]["knn"]["k"]) == ("i", 3)


def test_clients_share_the_points_from_the_first_that_is_named() -> None:
    def points(source: Nearest, count: int) -> list[list[float]]:
        return [source.params()["body"]["knn"]["query_vector"] for _ in range(count)]

    one, two = (Nearest(None, {"index": "i", "first": 2**31}).partition(client, 2) for client in (0, 1))
    both = [point for pair in zip(points(one, 2), points(two, 2), strict=True) for point in pair]
    assert both == points(Nearest(None, {"index": "i", "first": 2**31}), 4)
    assert both[0] not in points(Nearest(None, {"index": "i"}), 4)


def test_the_benchmark_of_knees_asks_any_document_of_two_like_volumes(tmp_path: Path) -> None:
    folder = Path(__file__).parents[3] / "benchmarks" / "lookups"
    plan = load_plan(folder / "plan.toml")
    left, right = plan.arm
    assert replace(left, name=right.name) == right
    cfg = configuration(tmp_path, pipeline="from-sources", plan=str(folder / "plan.toml"), set={})
    loaded = read_track(cfg, folder)
    schedule = loaded.default_challenge.schedule
    made = expand(schedule, settled(plan, loaded, *divide(schedule)))
    assert [task.name for task in made[:2]] == ["by-number-left-warmup", "by-number-right-warmup"]
    assert {task.name for task in made[2:4]} == {"queries-left-r1", "queries-right-r1"}
    (documents,) = loaded.corpora[0].documents
    assert documents.number_of_documents == plan.dataset.documents
    by_number = runpy.run_path(str(folder / "track.py"))["by_number"]
    asked = {by_number(loaded, {})["body"]["query"]["term"]["_seq_no"] for _ in range(100)}
    assert len(asked) > 50
    assert asked <= set(range(documents.number_of_documents))
