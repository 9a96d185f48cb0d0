"""The dataset that any track makes: what decides which one it is, and how the track indexes it."""

import json
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import user_tracks
from es_gp3 import node_of
from esrally import config, exceptions
from esrally import track as rally_track
from esrally.driver import runner
from esrally.track import loader
from esrally.utils import opts
from loopback_server import Answers, serving
from rally_configuration import SEARCH, Config, configuration, read_track, written
from small_plan import TWO_ARMS

from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.node.data_directory import DataDirectory
from esrally_ebs.plan import parse_plan
from esrally_ebs.rally import any_track, processor
from esrally_ebs.rally.indexing import TrackIndexing, left_out, with_tasks
from esrally_ebs.rally.settings import race_settings

DAY = ("morning", "evening")


def shape(track_dir: Path, cfg: Any) -> str:  # noqa: ANN401 - Rally's
    """What a dataset of this track is kept under."""
    track = read_track(cfg, track_dir)
    challenge = track.selected_challenge_or_default
    indexing = with_tasks(track, challenge.schedule[:6])
    source = TrackIndexing(cfg=cfg, track=indexing, corpora={}, prepare=lambda: None)
    return str(source.shape())


def test_a_dataset_is_another_when_a_task_a_mapping_the_documents_or_the_code_is_another(
    cfg: Config, tmp_path: Path
) -> None:
    folder = user_tracks.places(tmp_path / "places")
    shapes = [shape(folder, cfg)]
    (folder / ".#track.py").symlink_to("me@machine.123")  # as Emacs locks what is edited
    shapes.append(shape(folder, cfg))
    assert len(set(shapes)) == 1
    for name, old, new in (
        ("track.json", '"bulk-size": 500', '"bulk-size": 501'),
        ("track.json", '"warmup-time-period": 1}', '"warmup-time-period": 1, "time-period": 2}'),
        ("track.json", '"document-count": 2000', '"document-count": 1999'),
        ("index.json", '"text"', '"keyword"'),
        ("track.py", "indexed", "made"),
        ("places.json", "red", "blue"),  # as many documents as before
    ):
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))
        shapes.append(shape(folder, cfg))
    assert len(set(shapes)) == 7


def test_a_dataset_is_another_when_code_beside_the_track_that_it_imports_is_another(
    cfg: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RALLY_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path])  # which Rally puts tmp_path before
    for name in ("places", "shared_by_tracks", "other_track"):
        (tmp_path / name).mkdir()
    user_tracks.places(tmp_path / "places")
    own = tmp_path / "places" / "track.py"
    inner = tmp_path / "places" / "sources"
    inner.mkdir()
    (inner / "made.py").write_text("SIZE = 1\n")
    own.write_text(
        f"from places.sources.made import SIZE\nfrom shared_by_tracks.made import KIND\n{own.read_text()}"
    )
    (tmp_path / "shared_by_tracks" / "made.py").write_text("KIND = 1\n")
    read_track(cfg, tmp_path / "places")
    loader.load_track_plugins(cfg, "places")
    shapes = [shape(tmp_path / "places", cfg)]
    (tmp_path / "other_track" / "track.py").write_text("")
    shapes.append(shape(tmp_path / "places", cfg))
    assert len(set(shapes)) == 1
    (tmp_path / "shared_by_tracks" / "made.py").write_text("KIND = 2\n")
    shapes.append(shape(tmp_path / "places", cfg))
    for package in (tmp_path / "shared_by_tracks", inner):
        (package / "words.json").write_text(str(package))  # which its sources may draw from
        shapes.append(shape(tmp_path / "places", cfg))
    (tmp_path / "shared_by_tracks" / "made.pyc").write_bytes(b"later")
    shapes.append(shape(tmp_path / "places", cfg))
    assert len(set(shapes)) == 4
    assert shapes[-1] == shapes[-2]


def test_hidden_files_and_packages_elsewhere_are_no_code_of_a_track(
    cfg: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, folder in (("places.sources", "places/sources"), ("places.far", "elsewhere/far")):
        (tmp_path / folder).mkdir(parents=True)
        package = ModuleType(name)
        package.__path__ = [str(tmp_path / folder)]
        monkeypatch.setitem(sys.modules, name, package)
    user_tracks.places(tmp_path / "places")
    before = shape(tmp_path / "places", cfg)
    (tmp_path / "places" / "sources" / ".git").mkdir()
    for path in ("places/sources/.git/index", "elsewhere/far/words.json"):
        (tmp_path / path).write_text("later")
    assert shape(tmp_path / "places", cfg) == before


def test_a_dataset_is_another_when_other_tasks_run_beside_one_another(cfg: Config, tmp_path: Path) -> None:
    tasks = [{"operation": {"name": name, "operation-type": "refresh"}} for name in "ab"]
    schedules = [tasks, [{"parallel": {"tasks": tasks}}], [{"parallel": {"clients": 1, "tasks": tasks}}]]
    shapes = set()
    for number, schedule in enumerate(schedules):
        (tmp_path / str(number)).mkdir()
        shapes.add(str(tasks_of(cfg, tmp_path / str(number), *schedule).shape()))
    assert len(shapes) == 3


def test_the_tracks_own_code_has_the_parameters_of_the_challenge_when_it_indexes(
    cfg: Config, tmp_path: Path
) -> None:
    cfg.add(config.Scope.benchmark, "track", "challenge.name", "morning")
    shapes = set()
    for parameters in ({}, {"start-date": "2020-01-01"}, {"start-date": "2020-01-02"}):
        schedule = [{"operation": {"operation-type": "refresh"}}]
        challenges = [
            {"name": name, "default": name == "evening", "schedule": schedule, "parameters": parameters}
            for name in DAY
        ]
        track = written(cfg, tmp_path / "mine", challenges=challenges)
        indexing = with_tasks(track, track.selected_challenge.schedule)
        assert indexing.selected_challenge.parameters == parameters  # of elastic/logs: what to generate
        shapes.add(str(TrackIndexing(cfg=cfg, track=indexing, corpora={}, prepare=lambda: None).shape()))
    assert len(shapes) == 3


def test_documents_that_a_track_calls_generated_are_not_taken_for_the_packs(
    cfg: Config, tmp_path: Path
) -> None:
    documents = {"source-file": "generated/0.json", "document-count": 7, "target-index": "a"}
    track = written(
        cfg,
        tmp_path / "mine",
        corpora=[{"name": "own", "meta": {"generated": True}, "documents": [documents]}],  # as elastic/logs
        schedule=[{"operation": {"operation-type": "bulk", "bulk-size": 1}}],
    )
    processor._size_corpus(track, race_settings(cfg))
    (own_documents,) = track.corpora[0].documents
    assert (own_documents.document_file, own_documents.number_of_documents) == ("generated/0.json", 7)
    pack = processor.Pack()
    pack.cfg = cfg
    assert not list(pack.on_prepare_track(track, "unused"))


def test_documents_that_are_not_there_are_one_line(cfg: Config, tmp_path: Path) -> None:
    folder = user_tracks.papers(tmp_path / "papers")
    (folder / "papers.json").unlink()
    track = read_track(cfg, folder)
    pack = processor.Pack()
    loader.TrackProcessorRegistry(cfg).register_track_processor(pack)  # which gives it what Rally gives
    source = pack._source(with_tasks(track, []), race_settings(cfg).plan)
    with pytest.raises(
        SetupError, match=r"^documents of track papers: .*; mend the track, or see Rally's log$"
    ):
        source.room_bytes()


@pytest.mark.parametrize(
    ("given", "share"),
    [
        ([], 1.0),
        ([{"ingest-percentage": 10}], 0.1),
        ([{"ingest-percentage": "2.5"}, {"ingest-doc-count": 40}], 0.125),  # of 400
        ([{}], 1.0),
        ([{}, {"ingest-percentage": 50}], 1.5),  # the first half again
    ],
)
def test_room_is_asked_for_what_is_indexed(
    cfg: Config, tmp_path: Path, given: list[Any], share: float
) -> None:
    folder = user_tracks.papers(tmp_path / "papers")
    track = read_track(cfg, folder)
    bulks = [
        rally_track.Task(f"{number}", rally_track.Operation("bulk", "bulk", params={"bulk-size": 5, **own}))
        for number, own in enumerate(given)
    ]
    source = TrackIndexing(cfg=cfg, track=with_tasks(track, bulks), corpora={}, prepare=lambda: None)
    assert source.room_bytes() == pytest.approx(2 * share * (folder / "papers.json").stat().st_size)


@pytest.mark.parametrize(
    ("own", "way"),
    [({}, "--track-params=data:/path"), (any_track.environment({"set": {}}), "--set dataset.data=/path")],
)
def test_a_track_with_nothing_to_make_its_indices_of_says_how_to_give_them(
    cfg: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: dict[str, str], way: str
) -> None:
    track = written(cfg, tmp_path / "mine", schedule=[{"operation": SEARCH}])
    for name, value in own.items():  # Rally refuses parameters that the track lacks
        monkeypatch.setenv(name, value)
    with pytest.raises(PlanError, match=rf"^track mine: has no documents .* {way} \(or a snapshot\)"):
        processor.Pack()._source(with_tasks(track, []), race_settings(cfg).plan)


def test_an_index_that_only_a_template_makes_is_not_created_before_its_documents(
    cfg: Config, tmp_path: Path
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "documents.json").write_text('{"a": 1}\n')
    documents = {"source-file": "documents.json", "document-count": 1, "target-index": "logs-1"}
    track = written(
        cfg,
        folder,
        corpora=[{"name": "logs", "documents": [documents]}],
        schedule=[{"operation": {"operation-type": "search", "index": "logs-*", "body": {}}}],
    )
    made = with_tasks(track, [])
    assert [task.name for task in made.challenges[0].schedule] == ["bulk", "refresh"]
    assert [corpus.name for corpus in loader.used_corpora(made)] == ["logs"]


def test_data_of_ones_own_must_have_the_data_streams_of_the_track(cfg: Config, tmp_path: Path) -> None:
    plan = parse_plan(TWO_ARMS, "p.toml", {"dataset.data": "/data"})
    operation = {**SEARCH, "data-stream": "logs"}
    track = written(
        cfg, tmp_path / "mine", **{"data-streams": [{"name": "logs"}]}, schedule=[{"operation": operation}]
    )
    source = processor.Pack()._source(with_tasks(track, []), plan)
    assert isinstance(source, DataDirectory)
    assert source.searched == ["logs"]


def test_a_track_that_only_searches_gets_all_its_documents_indexed(cfg: Config, tmp_path: Path) -> None:
    folder = user_tracks.papers(tmp_path / "papers")
    track = read_track(cfg, folder)
    made = with_tasks(track, [])
    assert [task.operation.type for task in made.challenges[0].schedule] == [
        "create-index",
        "bulk",
        "refresh",
    ]
    assert [each.name for each in loader.used_corpora(made)] == ["papers"]
    assert len(track.challenges[0].schedule) == 2  # the track itself is as it was


def operation(name: str, kind: str = "search") -> dict[str, Any]:
    return {"operation": {"name": name, "operation-type": kind, "body": {}, "bulk-size": 1}}


@pytest.mark.parametrize(
    ("chosen", "makes"),
    [
        (["early"], [["create-index", "first"]]),
        (["early", "late"], [["create-index", "first"]]),
        # what the challenge does between the two, but nothing beside a search or that may be one
        (["late"], [["create-index", "first"], ["second"], ["force-merge"]]),
    ],
)
def test_searches_that_are_chosen_alone_have_what_their_challenge_does_before_them(
    cfg: Config, tmp_path: Path, chosen: list[str], makes: list[list[str]]
) -> None:
    cfg.add(config.Scope.benchmark, "track", "include.tasks", chosen)
    beside = [operation("middle"), operation("append", "bulk")]
    schedule = [
        {"parallel": {"tasks": [operation("create-index", "create-index"), operation("first", "bulk")]}},
        *(operation("early"), operation("second", "bulk"), operation("own", "a-runner-of-the-track")),
        *({"parallel": {"tasks": beside}}, operation("force-merge", "force-merge"), operation("late")),
    ]
    track = written(cfg, tmp_path / "mine", indices=[{"name": "i"}], schedule=schedule)
    loader.TaskFilterTrackProcessor(cfg).on_after_load_track(track)
    made = left_out(cfg, track, track.challenges[0].schedule)
    assert [[task.name for task in element] for element in made] == makes


def test_searches_that_are_chosen_alone_get_all_documents_where_their_challenge_indexes_none(
    cfg: Config, tmp_path: Path
) -> None:
    cfg.add(config.Scope.benchmark, "track", "include.tasks", ["q"])
    track = written(
        cfg, tmp_path / "mine", schedule=[operation("cluster-health", "cluster-health"), operation("q")]
    )
    assert left_out(cfg, track, track.challenges[0].schedule[1:]) == []


def test_a_track_is_read_again_as_it_is_here(
    cfg: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg.add(config.Scope.benchmark, "track", "include.tasks", ["q"])
    track = written(cfg, tmp_path / "mine", schedule=[operation("index", "bulk"), operation("q")])
    asked: list[dict[str, bool]] = []

    def repository(cfg: Any, **how: bool) -> Any:  # noqa: ANN401 - Rally's
        asked.append(how)
        return loader.SimpleTrackRepository(cfg.opts("track", "track.path"))

    monkeypatch.setattr(loader, "track_repo", repository)
    assert len(left_out(cfg, track, track.challenges[0].schedule[1:])) == 1
    assert asked == [{"fetch": False, "update": False}]


def tasks_of(cfg: Any, tmp_path: Path, *schedule: dict[str, Any]) -> TrackIndexing:  # noqa: ANN401 - Rally's
    """A source of these tasks alone."""
    track = written(cfg, tmp_path / "mine", schedule=schedule)
    for section, key, value in (
        ("driver", "profiling", False),
        ("driver", "assertions", False),
        ("client", "options", opts.ClientOptions("timeout:1", target_hosts=opts.TargetHosts("localhost:1"))),
    ):
        cfg.add(config.Scope.benchmark, section, key, value)
    indexing = with_tasks(track, track.challenges[0].schedule)
    return TrackIndexing(cfg=cfg, track=indexing, corpora={}, prepare=lambda: None)


NOBODY = replace(node_of(1), port=1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the client that Rally makes
@pytest.mark.usefixtures("no_runners")
@pytest.mark.parametrize(("clients", "order"), [({"clients": 1}, "slow fast "), ({}, "fast slow ")])
def test_a_parallel_element_has_no_more_clients_than_it_says(
    cfg: Config, tmp_path: Path, clients: dict[str, int], order: str
) -> None:
    tasks = [
        {"operation": {"name": name, "operation-type": "note", "seconds": seconds}}
        for name, seconds in (("slow", 0.3), ("fast", 0.0))
    ]
    source = tasks_of(cfg, tmp_path, {"parallel": {**clients, "tasks": tasks}})
    (tmp_path / "mine" / "track.py").write_text(
        """
import asyncio
from pathlib import Path

async def note(es, params):
    es.on_request_start()
    await asyncio.sleep(params["seconds"])
    es.on_request_end()
    with Path(__file__).with_name("order").open("a") as file:
        file.write(params["name"] + " ")

def register(registry):
    registry.register_runner("note", note, async_runner=True)
"""
    )
    source.build(NOBODY)
    assert (tmp_path / "mine" / "order").read_text() == order


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the client that Rally makes
@pytest.mark.usefixtures("no_runners")
@pytest.mark.parametrize(
    "operation",
    [
        {"operation-type": "put-settings"},
        {"operation-type": "raw-request", "path": "/_cluster/settings", "method": "PUT"},
    ],
)
def test_settings_that_a_track_makes_for_its_searches_outlive_the_node_that_indexes(
    cfg: Config, tmp_path: Path, operation: dict[str, str]
) -> None:
    body = {"persistent": {"a": 1, "b": 1}, "transient": {"b": 2, "search.max_buckets": 9}}
    source = tasks_of(cfg, tmp_path, {"operation": {**operation, "body": body}})
    (tmp_path / "mine" / "track.py").write_text(
        """
import json
from pathlib import Path

async def note(es, params):
    es.on_request_start()
    es.on_request_end()
    Path(__file__).with_name("sent").write_text(json.dumps(params["body"]))

def register(registry):
    for name in ("put-settings", "raw-request"):
        registry.register_runner(name, note, async_runner=True)
"""
    )
    source.build(NOBODY)
    sent = json.loads((tmp_path / "mine" / "sent").read_text())
    assert sent == {"persistent": {"a": 1, "b": 2, "search.max_buckets": 9}}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the client that Rally makes
@pytest.mark.usefixtures("no_runners")
def test_policies_and_results_of_tasks_that_a_track_makes_end_with_its_indexing(
    cfg: Config, tmp_path: Path
) -> None:
    asked: list[str] = []

    class Answering(Answers):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.answer()

        do_DELETE = do_POST

    source = tasks_of(cfg, tmp_path, {"operation": {"operation-type": "sleep", "duration": 0}})
    with serving(Answering) as port:
        source.build(replace(NOBODY, port=port))
    assert {"/_ilm/stop", "/.tasks"} <= set(asked)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the client that Rally makes
@pytest.mark.usefixtures("no_runners")
def test_replicas_that_one_node_cannot_have_are_not_waited_for(cfg: Config, tmp_path: Path) -> None:
    class Yellow(Answers):
        def do_GET(self) -> None:
            health = {
                "status": "yellow",
                "number_of_nodes": 1,
                "unassigned_shards": 3,
                "relocating_shards": 0,
            }
            of_client = ("Content-Type", "application/json"), ("X-Elastic-Product", "Elasticsearch")
            self.answer(json.dumps(health), headers=of_client)

    waits = {"operation-type": "cluster-health", "request-params": {"wait_for_status": "green"}}
    source = tasks_of(cfg, tmp_path, {"name": "green", "operation": {**waits, "retry-until-success": True}})
    with (
        serving(Yellow) as port,
        pytest.raises(PlanError, match="task green: waits for status green, and 3 replicas need"),
    ):
        source.build(replace(NOBODY, port=port))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the client that Rally makes
@pytest.mark.usefixtures("no_runners")
def test_ctrl_c_while_a_track_indexes_is_ctrl_c(cfg: Config, tmp_path: Path) -> None:
    source = tasks_of(cfg, tmp_path, {"operation": {"operation-type": "sleep", "duration": 60}})
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    before = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        source.build(NOBODY)
    assert time.monotonic() - before < 50


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the client that Rally makes
@pytest.mark.usefixtures("no_runners")
def test_a_task_that_fails_is_one_line_with_the_track(cfg: Config, tmp_path: Path) -> None:
    source = tasks_of(cfg, tmp_path, {"operation": {"operation-type": "refresh"}})
    with pytest.raises(
        SetupError, match=r"^indexing of track mine: Cannot run task \[refresh\].*mend the track"
    ):
        source.build(NOBODY)
    assert vars(runner)["__RUNNERS"] == {}


@pytest.mark.parametrize(
    "why",  # of 8.8.2 without modules
    [
        "Incorrect HTTP method for uri [/_data_stream/s] and method [PUT], allowed: [POST]",
        "no handler found for uri [/_ilm/policy/x] and method [PUT]",
        "Failed to parse mapping: No handler for type [scaled_float] declared on field [f]",
        "unknown setting [index.lifecycle.name] please check that any required plugins are installed, or",
        "Custom Analyzer [z] failed to find filter under name [asciifolding]",
        "Unknown analyzer type [english] for [z]",
        "No processor type exists with name [set]",
        "failed to create query: script_lang not supported [painless]",
    ],
)
def test_what_the_node_has_no_module_for_says_how_to_have_one(tmp_path: Path, why: str) -> None:
    source = tasks_of(configuration(tmp_path, pipeline="from-sources"), tmp_path, {"operation": SEARCH})
    with pytest.raises(SetupError, match="mend the track, or set ES_IMAGE to"), source._one_line("indexing"):
        raise exceptions.RallyError(f"Cannot run task [s]: {why}")
