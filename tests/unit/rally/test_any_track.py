"""The pack on tracks that do not know it: what is registered when, and what makes a dataset another."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import user_tracks
from es_gp3 import node_of
from esrally import config
from esrally import track as rally_track
from esrally.driver import runner, scheduler
from esrally.track import loader
from esrally.track import params as rally_params
from esrally.utils import opts
from loopback_server import serving
from rally_configuration import configuration, read_track
from small_plan import TWO_ARMS

from esrally_ebs.cli import main
from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.model import Block, Request, Work
from esrally_ebs.node.data_directory import DataDirectory
from esrally_ebs.plan import parse_plan
from esrally_ebs.rally import any_track, open_loop, processor, register
from esrally_ebs.rally.indexing import TrackIndexing, require_raceable, with_tasks
from esrally_ebs.rally.request_source import BLOCK, RequestSource
from esrally_ebs.rally.runners import OnArm
from esrally_ebs.rally.schedule import divide, expand
from esrally_ebs.rally.settings import race_settings
from esrally_ebs.session import runs
from esrally_ebs.workload.queries import replay
from esrally_ebs.workload.queries.output import TRACK_PY


@pytest.fixture(autouse=True)
def no_runners() -> Any:  # noqa: ANN401 - a fixture
    known = vars(runner)["__RUNNERS"]
    before = dict(known)
    known.clear()
    yield
    known.clear()
    known.update(before)


class Registry(SimpleNamespace):
    """What Rally hands to a track's ``register`` in a worker."""

    def __init__(self) -> None:
        super().__init__(runner_registry=runner.register_runner, param_sources={})

    def register_param_source(self, name: str, source: object) -> None:
        self.param_sources[name] = source

    def register_track_processor(self, processor: object) -> None:
        """A worker has none."""

    def register_scheduler(self, name: str, scheduler: object) -> None:
        """Rally refuses a name that it has, so tests leave its table alone."""

    def register_runner(self, name: str, made: object, **settings: object) -> None:
        self.runner_registry(name, made, **settings)


async def own(es: object, params: object) -> None:
    """A runner of a track."""


def is_on_arm(operation: str) -> bool:
    return isinstance(runner.unwrap(runner.runner_for(operation)), OnArm)


def test_runners_of_rally_and_of_the_track_go_to_the_arm_whenever_they_are_registered() -> None:
    runner.register_default_runners()
    registry = Registry()
    registry.register_runner("before", own, async_runner=True)
    register(registry)
    registry.register_runner("after", own, async_runner=True)
    register(registry)  # the line in a track that is raced by our command
    for operation in ("search", "scroll-search", "esql", "create-data-stream", "before", "after"):
        assert is_on_arm(operation)
        assert not isinstance(runner.unwrap(runner.unwrap(runner.runner_for(operation)).inner), OnArm)
    assert not is_on_arm("fio-baseline")


def test_in_plain_rally_a_tracks_own_runner_has_all_clusters() -> None:
    class Both(runner.Runner):  # type: ignore[misc]
        multi_cluster = True

        async def __call__(self, es: dict[str, Any], params: object) -> dict[str, Any]:
            return {"clusters": sorted(es)}

    registry = Registry()
    register(registry)
    registry.register_runner("both", Both(), async_runner=True)
    result = asyncio.run(runner.runner_for("both")({"default": None, "other": None}, {}))
    assert result == {"clusters": ["default", "other"]}


def test_a_worker_registers_what_the_process_that_it_is_forked_from_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = dict(vars(scheduler)["__SCHEDULERS"])
    monkeypatch.setattr(scheduler, "__SCHEDULERS", known)
    monkeypatch.setattr(Registry, "register_scheduler", staticmethod(scheduler.register_scheduler))
    register(Registry())
    register(Registry())
    assert known[open_loop.NAME] is open_loop.OpenLoop


class Waiting(runner.Runner):  # type: ignore[misc]
    """As wait-for-transform of Rally: the third time that it asks, what it waits for is done."""

    completed, percent_completed, asked = False, 0.0, 0

    async def __call__(self, es: object, params: object) -> tuple[int, str]:
        self.asked += 1
        self.completed = self.asked >= 3
        return 1, "ops"


def test_a_runner_that_knows_when_its_task_is_over_begins_anew_on_each_arm() -> None:
    waiting, asked = OnArm(Waiting()), {"a": 0, "b": 0}

    async def wait_on(arm: str) -> None:
        block = Block(arm=arm, cluster=arm, work=Work.INDEXING, task="wait", round=0)
        while not (asked[arm] and waiting.completed):
            asked[arm] += 1
            await waiting({arm: None}, {BLOCK: Request(block=block, number=asked[arm])})

    for arm in asked:
        asyncio.run(wait_on(arm))
    assert asked == {"a": 3, "b": 3}


def load_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What the track registers, by its own track.py and by the pack."""
    monkeypatch.setenv("RALLY_HOME", str(tmp_path / "rally"))
    made: list[object] = []
    copy = SimpleNamespace(TrackPluginReader=type("Reader", (loader.TrackPluginReader,), {}))
    any_track.join(copy)  # type: ignore[arg-type]
    reader = copy.TrackPluginReader(str(tmp_path / "mine"), track_processor_registry=made.append)
    if reader.can_load():
        reader.load()
    return made


@pytest.mark.parametrize("has_line", [True, False])
def test_the_pack_comes_once_and_after_what_the_track_registers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_line: bool
) -> None:
    (tmp_path / "mine").mkdir()
    ours = "\n    from esrally_ebs.rally import register as pack; pack(registry)" if has_line else ""
    text = f"def register(registry):\n    registry.register_track_processor('own'){ours}\n"
    (tmp_path / "mine" / "track.py").write_text(text)
    monkeypatch.setenv("ESRALLY_EBS_RACE", "{}")
    assert len(load_twice(tmp_path, monkeypatch)) == (3 if has_line else 1)
    for name, value in any_track.environment({"plan": "smoke"}).items():
        monkeypatch.setenv(name, value)
    own_one, pack, _ = load_twice(tmp_path, monkeypatch)
    assert isinstance(pack, processor.Pack)
    assert (own_one, pack._of_track) == ("own", has_line)


@pytest.mark.usefixtures("rally")
@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "def register(registry)",
            r"component \[mine\]: SyntaxError: expected ':' \(track.py, line 1\); mend",
        ),
        ("import nowhere", r"component \[mine\]: ModuleNotFoundError: No module named 'nowhere'; mend"),
        ("x = 1", "AttributeError: module 'mine.track' has no attribute 'register'; mend"),
    ],
)
def test_an_error_in_a_tracks_own_code_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "track.py").write_text(text)
    for name, value in any_track.environment({"plan": "smoke"}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(PlanError, match=says):
        load_twice(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("more", "is_search"),
    [
        ({"operation-type": "sleep"}, True),
        ({"stream": [{"operation-type": "raw-request", "path": "/i/_count"}]}, True),
        ({"operation-type": "raw-request", "path": "/i/_field_caps?fields=*"}, True),
        ({"operation-type": "raw-request", "path": "/i/_mvt/place/3/4/2", "method": "POST"}, True),
        ({"operation-type": "raw-request", "path": "/i/_terms_enum", "method": "POST"}, True),
        ({"operation-type": "raw-request", "path": "/i/_forcemerge"}, False),
        ({"operation-type": "raw-request", "path": "/i/_delete_by_query", "method": "POST"}, False),
        ({"operation-type": "raw-request", "path": "_search", "method": "DELETE"}, False),
        ({"operation-type": "submit-async-search"}, False),
    ],
)
def test_a_composite_operation_that_only_asks_is_a_search(more: dict[str, Any], is_search: bool) -> None:
    requests = [
        {"operation-type": "open-point-in-time"},
        {"stream": [{"operation-type": "paginated-search"}]},
        more,
    ]
    params = {"requests": requests}
    made = rally_track.Task("c", rally_track.Operation("c", "composite", params=params, param_source=None))
    assert divide([made]) == (([], [made]) if is_search else ([made], []))


def test_parameters_of_the_track_are_not_taken_for_the_packs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = configuration(tmp_path, pipeline="from-sources", plan="a trial", documents="many", cache=7)
    for name, value in any_track.environment({"plan": "smoke", "set": {"design.rounds": 3}}).items():
        monkeypatch.setenv(name, value)
    plan = race_settings(cfg, of_track=False).plan
    assert (plan.name, plan.design.rounds) == ("smoke", 3)


def test_a_track_that_asks_for_the_pack_has_its_parameters_by_our_command_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = configuration(tmp_path, pipeline="from-sources", cache="warm", set={"design.margin": 0.1})
    for name, value in any_track.environment({"plan": "smoke", "set": {"design.rounds": 3}}).items():
        monkeypatch.setenv(name, value)
    plan = race_settings(cfg).plan
    assert (plan.name, plan.cache.mode) == ("smoke", "warm")
    assert (plan.design.rounds, plan.design.margin) == (3, 0.1)


@pytest.mark.parametrize(
    ("words", "of_track", "raced"),
    [([], "logs", "logs"), (["--plan=smoke"], "logs", "smoke"), ([], "", "gp2-vs-gp3")],
)
def test_our_command_takes_the_tracks_own_plan_unless_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], of_track: str, raced: str
) -> None:
    (tmp_path / "track.json").write_text("{}")
    variables: dict[str, str] = {}
    monkeypatch.setattr(runs, "call_rally", lambda flags, name, env: variables.update(env) or 0)
    assert main(["race", f"--track-path={tmp_path}", *words]) == 0
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    cfg = configuration(tmp_path, pipeline="from-sources")
    assert any_track.parameters()
    assert race_settings(cfg, of_track).plan.name == raced


def test_a_tracks_directory_may_be_a_link_and_begin_with_a_tilde_as_for_rally(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raced: list[str] = []
    monkeypatch.setattr(runs, "call_rally", lambda flags, name, env: raced.append(flags[0]) or 0)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "places-1.2").mkdir()
    (tmp_path / "places-1.2" / "track.json").write_text("{}")
    (tmp_path / "places").symlink_to("places-1.2")  # whose name its code may import
    assert main(["race", "--track-path=~/places"]) == 0
    assert raced == [f"--track-path={tmp_path}/places"]
    assert main(["race", "--track-path=~nobody-of-that-name/places"]) == 2


def test_rally_without_the_variable_is_left_as_it_is() -> None:
    code = (
        "import sys; sys.argv[0] = 'esrally'; from esrally_ebs.rally import local_actors as l; l.install(); "
        "import esrally.track.loader as t; print(t.TrackPluginReader.load.__name__)"
    )
    for env, name in (({}, "load"), (any_track.environment({"plan": "smoke"}), "load_with_pack")):
        ended = subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path), **env}, capture_output=True
        )
        assert ended.stdout.decode().split() == [name], ended.stderr


def shape(track_dir: Path, cfg: Any) -> str:  # noqa: ANN401 - Rally's
    """What a dataset of this track is kept under."""
    track = read_track(cfg, track_dir)
    challenge = track.selected_challenge_or_default
    indexing = with_tasks(track, challenge.schedule[:6])
    source = TrackIndexing(cfg=cfg, track=indexing, corpora={}, prepare=lambda: None)
    return str(source.shape())


def test_a_dataset_is_another_when_a_task_a_mapping_the_documents_or_the_code_is_another(
    tmp_path: Path,
) -> None:
    cfg = configuration(tmp_path, pipeline="from-sources")
    folder = tmp_path / "places"
    folder.mkdir()
    user_tracks.places(folder)
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


def test_a_dataset_is_another_when_other_tasks_run_beside_one_another(tmp_path: Path) -> None:
    tasks = [{"operation": {"name": name, "operation-type": "refresh"}} for name in "ab"]
    schedules = [tasks, [{"parallel": {"tasks": tasks}}], [{"parallel": {"clients": 1, "tasks": tasks}}]]
    cfg, shapes = configuration(tmp_path, pipeline="from-sources"), set()
    for number, schedule in enumerate(schedules):
        (tmp_path / str(number)).mkdir()
        shapes.add(str(tasks_of(cfg, tmp_path / str(number), *schedule).shape()))
    assert len(shapes) == 3


def test_the_tracks_own_code_has_the_parameters_of_the_challenge_when_it_indexes(tmp_path: Path) -> None:
    cfg = configuration(tmp_path, pipeline="from-sources")
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


def test_documents_that_a_track_calls_generated_are_not_taken_for_the_packs(tmp_path: Path) -> None:
    cfg = configuration(tmp_path, pipeline="from-sources")
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


def test_documents_that_are_not_there_are_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "papers"
    folder.mkdir()
    user_tracks.papers(folder)
    (folder / "papers.json").unlink()
    cfg = configuration(tmp_path, pipeline="from-sources")
    track = read_track(cfg, folder)
    pack = processor.Pack()
    loader.TrackProcessorRegistry(cfg).register_track_processor(pack)  # which gives it what Rally gives
    source = pack._source(with_tasks(track, []), race_settings(cfg).plan)
    with pytest.raises(
        SetupError, match=r"^documents of track papers: .*; mend the track, or see Rally's log$"
    ):
        source.room_bytes()


def written(cfg: Any, folder: Path, **parts: Any) -> Any:  # noqa: ANN401 - JSON and Rally's
    """A track of these parts, as Rally reads it."""
    folder.mkdir(exist_ok=True)
    (folder / "track.json").write_text(json.dumps({"version": 2, "description": "d", **parts}))
    return read_track(cfg, folder)


SEARCH = {"operation-type": "search", "body": {}}


@pytest.mark.parametrize(
    ("more", "key", "value", "line"),
    [
        ({}, "challenge.name", "mornin", "--challenge mornin: track mine .*; did you mean 'morning'"),
        ({"param-source": "nowhere"}, "", "", r"task q \(search\): no parameter source .* 'nowhere'; mend"),
        ({"operation-type": "serach"}, "", "", r"task q \(serach\): No runner .* \[serach\]; mend the track"),
        ({"index": None}, "", "", r"task q \(search\): 'index' or 'data-stream' is mandatory .*; mend the"),
    ],
)
def test_what_rally_would_refuse_when_nodes_run_is_refused_before(
    tmp_path: Path, more: dict[str, Any], key: str, value: str, line: str
) -> None:
    cfg = configuration(tmp_path, pipeline="from-sources")
    if key:
        cfg.add(config.Scope.benchmark, "track", key, value)
    schedule = [{"operation": {"name": "q", **SEARCH, "index": "a", **more}}]
    challenges = [{"name": name, "default": name == "evening", "schedule": schedule} for name in DAY]
    track = written(cfg, tmp_path / "mine", challenges=challenges)
    with pytest.raises(PlanError, match=f"^{line}"):
        require_raceable(cfg, track)
    assert vars(runner)["__RUNNERS"] == {}


DAY = ("morning", "evening")


@pytest.mark.usefixtures("rally")
def test_a_log_with_fewer_requests_than_rounds_is_refused_before_anything_starts(tmp_path: Path) -> None:
    cfg = configuration(tmp_path, pipeline="from-sources")
    operation = {"name": "log", "operation-type": "search", "param-source": replay.PARAM_SOURCE}
    track = written(cfg, tmp_path / "mine", schedule=[{"operation": operation}])
    (tmp_path / "mine" / "track.py").write_text(TRACK_PY)
    (tmp_path / "mine" / replay.QUERIES).write_text("{}\n" * 5)
    pack = processor.Pack()
    loader.TrackProcessorRegistry(cfg).register_track_processor(pack)  # which gives it what Rally gives
    with pytest.raises(PlanError, match="5 requests are too few for 16 rounds; ask for fewer rounds"):
        pack.on_after_load_track(track)


def test_a_filter_that_leaves_no_task_is_one_line(tmp_path: Path) -> None:
    cfg = configuration(tmp_path, pipeline="from-sources")
    cfg.add(config.Scope.benchmark, "track", "include.tasks", ["serach"])
    track = written(cfg, tmp_path / "mine", schedule=[{"operation": {**SEARCH, "index": "a"}}])
    loader.TaskFilterTrackProcessor(cfg).on_after_load_track(track)
    with pytest.raises(PlanError, match=r"^challenge default: --include-tasks .* leaves no task of it; give"):
        require_raceable(cfg, track)


def test_what_the_tracks_own_code_cannot_make_yet_is_left_for_later(tmp_path: Path) -> None:
    cfg = configuration(tmp_path, pipeline="from-sources")
    operation = {"operation-type": "own", "param-source": "from-file"}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "track.py").write_text(
        """
class FromFile:
    def __init__(self, track, params, **kwargs):
        open("/not-there-yet")

async def own(es, params):
    pass

def register(registry):
    registry.register_param_source("from-file", FromFile)
    registry.register_runner("own", own, async_runner=True)
"""
    )
    require_raceable(cfg, written(cfg, tmp_path / "mine", schedule=[{"operation": operation}]))


def test_documents_that_the_track_makes_itself_are_made_before_it_is_indexed(tmp_path: Path) -> None:
    cfg = configuration(tmp_path, pipeline="from-sources")
    documents = {"source-file": "documents.json", "document-count": 1}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "track.py").write_text(
        """
from pathlib import Path

class Maker:
    def on_after_load_track(self, track):
        pass

    def on_prepare_track(self, track, data_root_dir):
        folder = Path(data_root_dir, "own")
        folder.mkdir()
        yield (folder / "documents.json").write_text, {"data": '{"a": 1}\\n'}

def register(registry):
    from esrally.track import loader
    registry.register_track_processor(Maker())
    registry.register_track_processor(loader.DefaultTrackPreparator())
"""
    )
    track = written(
        cfg,
        tmp_path / "mine",
        indices=[{"name": "a"}],
        corpora=[{"name": "own", "documents": [documents]}],
        schedule=[{"operation": SEARCH}],
    )
    pack = processor.Pack()
    pack.cfg = cfg
    assert pack._source(with_tasks(track, []), race_settings(cfg).plan).room_bytes() > 0


def documents_of(folder: Path, *names: str) -> list[dict[str, Any]]:
    """A corpus of one document for each name, of which the first alone is there."""
    folder.mkdir()
    (folder / f"{names[0]}.json").write_text('{"a": 1}\n')
    return [
        {"name": name, "documents": [{"source-file": f"{name}.json", "document-count": 1}]} for name in names
    ]


def test_what_is_indexed_first_leaves_other_documents_for_rally_to_prepare(tmp_path: Path) -> None:
    cfg = configuration(tmp_path, pipeline="from-sources")
    bulk = {"operation-type": "bulk", "bulk-size": 1}
    track = written(
        cfg,
        tmp_path / "mine",
        indices=[{"name": "a"}],
        corpora=documents_of(tmp_path / "mine", "old", "new"),
        schedule=[
            {"operation": {"name": "index", **bulk, "corpora": "old"}},
            {"parallel": {"tasks": [{"operation": SEARCH}, {"operation": {**bulk, "corpora": "new"}}]}},
        ],
    )
    indexing = with_tasks(track, track.challenges[0].schedule[:1])
    source = TrackIndexing(cfg=cfg, track=indexing, corpora={}, prepare=lambda: None)
    assert source.room_bytes() > 0
    assert indexing.corpora[0].documents[0].document_file == str(tmp_path / "mine" / "old.json")
    files = [documents.document_file for corpus in track.corpora for documents in corpus.documents]
    assert files == ["old.json", "new.json"]


@pytest.mark.usefixtures("rally")
def test_parallel_tasks_that_are_all_left_out_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = configuration(tmp_path, pipeline="from-sources")
    sources: list[Any] = []
    monkeypatch.setattr(processor.Pack, "_start", lambda self, nodes, *_: sources.append(nodes.source))
    pack = processor.Pack()
    loader.TrackProcessorRegistry(cfg).register_track_processor(pack)  # which gives it what Rally gives
    searches = [{"operation": {"name": name, **SEARCH}} for name in "abc"]
    track = written(
        cfg,
        tmp_path / "mine",
        indices=[{"name": "i"}],
        corpora=documents_of(tmp_path / "mine", "old"),
        schedule=[
            {"operation": {"operation-type": "bulk", "bulk-size": 1}},
            {"parallel": {"tasks": searches[:2]}},
            searches[2],
        ],
    )
    cfg.add(config.Scope.benchmark, "track", "exclude.tasks", ["a", "b"])  # as the refusal of them says
    loader.TaskFilterTrackProcessor(cfg).on_after_load_track(track)
    pack.on_after_load_track(track)
    assert [[task.name for task in element] for element in sources[0].track.challenges[0].schedule] == [
        ["bulk"]
    ]
    alone = written(cfg, tmp_path / "mine", schedule=[{"parallel": {"tasks": searches[:2]}}])
    loader.TaskFilterTrackProcessor(cfg).on_after_load_track(alone)
    with pytest.raises(PlanError, match="--exclude-tasks leaves no task of it"):
        pack.on_after_load_track(alone)


class Drawn:
    """A parameter source as rally-tracks have them: of chance, shared by the clients of a worker."""

    def __init__(self, track: object, params: dict[str, Any], **_: object) -> None:
        self.first = random.random()

    def partition(self, index: int, total: int) -> "Drawn":
        return self

    def params(self) -> dict[str, Any]:
        return {"body": (self.first, random.random(), np.random.rand())}


@pytest.fixture
def drawn() -> Iterator[rally_track.Task]:
    """A task of two clients with that source."""
    rally_params.register_param_source_for_name("drawn", Drawn)
    operation = rally_track.Operation("q", "search", params={}, param_source="drawn")
    yield rally_track.Task("q", operation, clients=2)
    rally_params._unregister_param_source_for_name("drawn")


@pytest.mark.parametrize(("cache", "rounds"), [("cold", 3), ("warm", 1)])
def test_what_a_track_leaves_to_chance_is_the_same_on_all_arms(
    drawn: rally_track.Task, cache: str, rounds: int
) -> None:
    plan = parse_plan(TWO_ARMS, "p.toml", {"cache.mode": cache, "design.rounds": 3})
    bodies: dict[str, list[Any]] = {}
    for each in expand([drawn], plan):
        source = RequestSource(None, each.operation.params)
        clients = [source.partition(number, 2) for number in range(2)]
        bodies[each.name] = [client.params()["body"] for client in clients * 3]
    asked = [bodies[f"q-gp2-r{number}"] for number in (1, 2, 3)]
    assert asked == [bodies[f"q-gp3-r{number}"] for number in (1, 2, 3)]
    assert len({body[1] for body in asked[0]}) == len({body[2] for body in asked[0]}) == 6
    assert len({str(each) for each in asked}) == rounds  # as with the requests of a log


class PassedOn(Drawn):
    """As bring-your-own of rally-tracks has it: what it does not know are parameters of a search template."""

    def __init__(self, track: object, params: dict[str, Any], **_: object) -> None:
        self.own = params

    def params(self) -> dict[str, Any]:
        return {"method": "POST", "path": "/i/_search/template", "body": {"id": "t", "params": {**self.own}}}


def test_a_source_of_the_tracks_own_gets_nothing_that_no_request_can_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(vars(rally_params)["__PARAM_SOURCES_BY_NAME"], "passed-on", PassedOn)
    operation = rally_track.Operation("q", "raw-request", params={"size": 9}, param_source="passed-on")
    search = rally_track.Task("q", operation, tags=["search"])
    for each in expand([search], parse_plan(TWO_ARMS, "p.toml", {"cache.mode": "warm"})):
        request = RequestSource(None, each.operation.params).partition(0, 1).params()
        assert json.loads(json.dumps(request["body"]))["params"]["size"] == 9


def test_hits_are_read_whatever_a_source_of_the_tracks_own_hands_on(drawn: rally_track.Task) -> None:
    write = rally_track.Task("w", rally_track.Operation("w", "bulk", params={}, param_source="drawn"))
    plan = parse_plan(TWO_ARMS, "p.toml", {"cache.mode": "warm"})
    for element, expected in (
        (drawn, {("q", True)}),
        (rally_track.Parallel([drawn, write]), {("q", False), ("w", None)}),  # of an index that grows
    ):
        tasks = [task for made in expand([element], plan) for task in made if task.operation.param_source]
        sources = [(task, RequestSource(None, task.operation.params).partition(0, 1)) for task in tasks]
        details = {(task.operation.name, source.params().get("detailed-results")) for task, source in sources}
        assert details == expected


class OwnBulks:
    """A parameter source of a track's own for so many bulk requests."""

    infinite = False

    def __init__(self, track: object, params: dict[str, Any], **_: object) -> None:
        self.left = list(range(params["count"]))

    def partition(self, index: int, total: int) -> "OwnBulks":
        self.left = self.left[index::total]
        return self

    def params(self) -> dict[str, Any]:
        if not self.left:
            raise StopIteration
        return {"body": self.left.pop(0)}


@pytest.mark.parametrize(
    ("infinite", "count", "wrote"), [(False, 4, [1, 3, 1, 3, 1]), (True, 99, [1, 3, 5, 7, 9])]
)
def test_writes_by_a_source_of_the_tracks_own_go_on_as_long_as_their_search(
    infinite: bool, count: int, wrote: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OwnBulks, "infinite", infinite)
    monkeypatch.setitem(vars(rally_params)["__PARAM_SOURCES_BY_NAME"], "own-bulks", OwnBulks)
    operation = rally_track.Operation("w", "bulk", params={"count": count}, param_source="own-bulks")
    search = rally_track.Task("q", rally_track.Operation("q", "search", params={}))
    plan = parse_plan(TWO_ARMS, "p.toml", {"cache.mode": "warm"})
    made = expand([rally_track.Parallel([search, rally_track.Task("w", operation, clients=2)])], plan)
    write = next(each for element in made for each in element if each.name.startswith("w-beside"))
    client = RequestSource(None, write.operation.params).partition(1, 2)
    assert [client.params()["body"] for _ in wrote] == wrote
    assert not client.infinite  # else Rally would send one request and end


def test_what_a_search_draws_is_the_same_whenever_writes_come_between(drawn: rally_track.Task) -> None:
    write = rally_track.Task("w", rally_track.Operation("w", "bulk", params={}, param_source="drawn"))
    plan = parse_plan(TWO_ARMS, "p.toml", {"cache.mode": "warm"})
    made = expand([rally_track.Parallel([drawn, write])], plan)
    tasks = next(list(each) for each in made if each.nested)

    def asked(order: str) -> list[list[Any]]:
        sources = [RequestSource(None, each.operation.params).partition(0, 1) for each in tasks]
        by_source: list[list[Any]] = [[], []]
        for number in map(int, order):
            by_source[number].append(sources[number].params()["body"])
        return by_source

    assert asked("010101") == asked("000111") == asked("110001")


def test_clients_of_other_workers_do_not_ask_the_same(drawn: rally_track.Task) -> None:
    plan = parse_plan(TWO_ARMS, "p.toml", {"design.rounds": 3})
    params = next(each.operation.params for each in expand([drawn], plan) if each.name == "q-gp2-r1")
    asked = []
    for number in range(2):  # each worker makes a source of its own, and has one of the clients
        client = RequestSource(None, params).partition(number, 2)
        asked += [client.params()["body"][1] for _ in range(3)]
    assert len(set(asked)) == 6


def test_assertions_about_hits_that_are_not_counted_are_no_error(tmp_path: Path) -> None:
    cfg = configuration(tmp_path, pipeline="from-sources")
    checked = {"detailed-results": True, "assertions": [{"property": "hits", "condition": ">", "value": 0}]}
    tasks = [
        {"operation": {"name": "q", **SEARCH, **checked}},
        {"operation": {"name": "w", "operation-type": "bulk", "bulk-size": 10}},
    ]
    track = written(
        cfg, tmp_path / "mine", indices=[{"name": "a"}], schedule=[{"parallel": {"tasks": tasks}}]
    )
    made = expand(track.challenges[0].schedule, parse_plan(TWO_ARMS, "p.toml", {"cache.mode": "warm"}))
    search = next(each for element in made if element.nested for each in element)
    assert "assertions" not in RequestSource(track, search.operation.params).params()


def test_a_track_with_nothing_to_make_its_indices_of_says_how_to_give_them(tmp_path: Path) -> None:
    cfg = configuration(tmp_path, pipeline="from-sources")
    track = written(cfg, tmp_path / "mine", schedule=[{"operation": SEARCH}])
    with pytest.raises(PlanError, match=r"^track mine: has no documents .* --track-params=data:/path"):
        processor.Pack()._source(with_tasks(track, []), race_settings(cfg).plan)


def test_an_index_that_only_a_template_makes_is_not_created_before_its_documents(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "documents.json").write_text('{"a": 1}\n')
    documents = {"source-file": "documents.json", "document-count": 1, "target-index": "logs-1"}
    cfg = configuration(tmp_path, pipeline="from-sources")
    track = written(
        cfg,
        folder,
        corpora=[{"name": "logs", "documents": [documents]}],
        schedule=[{"operation": {"operation-type": "search", "index": "logs-*", "body": {}}}],
    )
    made = with_tasks(track, [])
    assert [task.name for task in made.challenges[0].schedule] == ["bulk", "refresh"]
    assert [corpus.name for corpus in loader.used_corpora(made)] == ["logs"]


def test_data_of_ones_own_must_have_the_data_streams_of_the_track(tmp_path: Path) -> None:
    cfg = configuration(tmp_path, pipeline="from-sources")
    plan = parse_plan(TWO_ARMS, "p.toml", {"dataset.data": "/data"})
    operation = {**SEARCH, "data-stream": "logs"}
    track = written(
        cfg, tmp_path / "mine", **{"data-streams": [{"name": "logs"}]}, schedule=[{"operation": operation}]
    )
    source = processor.Pack()._source(with_tasks(track, []), plan)
    assert isinstance(source, DataDirectory)
    assert source.searched == ["logs"]


def test_a_track_that_only_searches_gets_all_its_documents_indexed(tmp_path: Path) -> None:
    folder = tmp_path / "papers"
    folder.mkdir()
    user_tracks.papers(folder)
    cfg = configuration(tmp_path, pipeline="from-sources")
    track = read_track(cfg, folder)
    made = with_tasks(track, [])
    assert [task.operation.type for task in made.challenges[0].schedule] == [
        "create-index",
        "bulk",
        "refresh",
    ]
    assert [each.name for each in loader.used_corpora(made)] == ["papers"]
    assert len(track.challenges[0].schedule) == 2  # the track itself is as it was


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
@pytest.mark.parametrize(("clients", "order"), [({"clients": 1}, "slow fast "), ({}, "fast slow ")])
def test_a_parallel_element_has_no_more_clients_than_it_says(
    tmp_path: Path, clients: dict[str, int], order: str
) -> None:
    cfg = configuration(tmp_path, pipeline="from-sources")
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
@pytest.mark.parametrize(
    "operation",
    [
        {"operation-type": "put-settings"},
        {"operation-type": "raw-request", "path": "/_cluster/settings", "method": "PUT"},
    ],
)
def test_settings_that_a_track_makes_for_its_searches_outlive_the_node_that_indexes(
    tmp_path: Path, operation: dict[str, str]
) -> None:
    cfg = configuration(tmp_path, pipeline="from-sources")
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
def test_policies_that_a_track_makes_end_with_its_indexing(tmp_path: Path) -> None:
    asked: list[str] = []

    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is printed."""

    cfg = configuration(tmp_path, pipeline="from-sources")
    source = tasks_of(cfg, tmp_path, {"operation": {"operation-type": "sleep", "duration": 0}})
    with serving(Answering) as port:
        source.build(replace(NOBODY, port=port))
    assert "/_ilm/stop" in asked


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the client that Rally makes
def test_ctrl_c_while_a_track_indexes_is_ctrl_c(tmp_path: Path) -> None:
    cfg = configuration(tmp_path, pipeline="from-sources")
    source = tasks_of(cfg, tmp_path, {"operation": {"operation-type": "sleep", "duration": 60}})
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    before = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        source.build(NOBODY)
    assert time.monotonic() - before < 50


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the client that Rally makes
def test_a_task_that_fails_is_one_line_with_the_track(tmp_path: Path) -> None:
    cfg = configuration(tmp_path, pipeline="from-sources")
    source = tasks_of(cfg, tmp_path, {"operation": {"operation-type": "refresh"}})
    with pytest.raises(
        SetupError, match=r"^indexing of track mine: Cannot run task \[refresh\].*mend the track"
    ):
        source.build(NOBODY)
    assert vars(runner)["__RUNNERS"] == {}
