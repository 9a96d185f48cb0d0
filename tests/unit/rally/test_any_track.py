"""The pack on tracks that do not know it: what is registered when, and what makes a dataset another."""

import asyncio
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from esrally import config
from esrally import track as rally_track
from esrally.driver import runner, scheduler
from esrally.track import loader
from rally_configuration import SEARCH, Config, configuration, written
from small_plan import TWO_ARMS

from esrally_ebs.cli import main
from esrally_ebs.errors import PlanError
from esrally_ebs.model import Block, Request, Work
from esrally_ebs.plan import parse_plan
from esrally_ebs.rally import any_track, open_loop, processor, register
from esrally_ebs.rally.indexing import TrackIndexing, with_tasks
from esrally_ebs.rally.request_source import BLOCK, RequestSource
from esrally_ebs.rally.runners import OnArm
from esrally_ebs.rally.schedule import divide, expand
from esrally_ebs.rally.settings import race_settings
from esrally_ebs.session import runs
from esrally_ebs.workload.queries import replay
from esrally_ebs.workload.queries.output import TRACK_PY


class Registry(SimpleNamespace):
    """What Rally hands to a track's ``register`` in a worker."""

    def __init__(self) -> None:
        super().__init__(runner_registry=runner.register_runner, param_sources={})

    def register_param_source(self, name: str, source: object) -> None:
        self.param_sources[name] = source

    def register_track_processor(self, processor: object) -> None:
        """A worker has none."""

    def register_runner(self, name: str, made: object, **settings: object) -> None:
        self.runner_registry(name, made, **settings)


async def own(es: object, params: object) -> None:
    """A runner of a track."""


def is_on_arm(operation: str) -> bool:
    return isinstance(runner.unwrap(runner.runner_for(operation)), OnArm)


@pytest.mark.usefixtures("no_runners")
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


@pytest.mark.usefixtures("no_runners")
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


@pytest.mark.usefixtures("no_runners")
def test_a_worker_registers_what_the_process_that_it_is_forked_from_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = dict(vars(scheduler)["__SCHEDULERS"])
    monkeypatch.setattr(scheduler, "__SCHEDULERS", known)
    known[open_loop.NAME] = own  # of a track that calls one of its own so
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


@pytest.mark.usefixtures("rally")
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
    assert (own_one, type(pack), pack._of_track) == ("own", processor.Pack, has_line)


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
        (
            "def register(registry):\n    raise SystemExit('no')",
            "^track.py: SystemExit: no; mend the track's",
        ),
        ("raise SystemExit(3)", r"component \[mine\]: SystemExit: 3; mend the track's code"),
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
        ({"operation-type": "raw-request", "path": "/i/_explain/1", "method": "POST"}, True),
        ({"operation-type": "raw-request", "path": "/i/_doc/1"}, True),
        ({"operation-type": "raw-request", "path": "/i/_doc/1", "method": "POST"}, False),
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
    cfg: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], of_track: str, raced: str
) -> None:
    (tmp_path / "track.json").write_text("{}")
    variables: dict[str, str] = {}
    monkeypatch.setattr(runs, "call_rally", lambda flags, name, env: variables.update(env) or 0)
    assert main(["race", f"--track-path={tmp_path}", *words]) == 0
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
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


@pytest.mark.usefixtures("no_runners", "rally")
def test_a_log_with_fewer_requests_than_rounds_is_refused_before_anything_starts(
    cfg: Config, tmp_path: Path
) -> None:
    operation = {"name": "log", "operation-type": "search", "param-source": replay.PARAM_SOURCE}
    track = written(cfg, tmp_path / "mine", schedule=[{"operation": operation}])
    (tmp_path / "mine" / "track.py").write_text(TRACK_PY)
    (tmp_path / "mine" / replay.QUERIES).write_text("{}\n" * 5)
    pack = processor.Pack()
    loader.TrackProcessorRegistry(cfg).register_track_processor(pack)  # which gives it what Rally gives
    with pytest.raises(PlanError, match="5 requests cannot fill 16 rounds; ask for fewer rounds"):
        pack.on_after_load_track(track)


@pytest.mark.usefixtures("no_runners", "rally")
def test_telemetry_that_rally_is_asked_for_is_regarded_when_nodes_are_chosen(
    cfg: Config, tmp_path: Path
) -> None:
    cfg.add(config.Scope.benchmark, "telemetry", "devices", ["disk-usage-stats"])
    track = written(cfg, tmp_path / "mine", schedule=[{"operation": {**SEARCH, "index": "a"}}])
    cfg.add(config.Scope.benchmark, "track", "params", {"set": {"design.nodes": "one"}})
    pack = processor.Pack()
    loader.TrackProcessorRegistry(cfg).register_track_processor(pack)
    with pytest.raises(PlanError, match=r"^--telemetry disk-usage-stats: asks for indices by name"):
        pack.on_after_load_track(track)


def test_documents_that_the_track_makes_itself_are_made_before_it_is_indexed(
    cfg: Config, tmp_path: Path
) -> None:
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


def test_what_is_indexed_first_leaves_other_documents_for_rally_to_prepare(
    cfg: Config, tmp_path: Path
) -> None:
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


@pytest.mark.parametrize("test_mode", [False, True])
@pytest.mark.usefixtures("no_runners", "rally")
def test_searches_that_are_chosen_alone_have_the_index_of_their_challenge(
    cfg: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, test_mode: bool
) -> None:
    cfg.add(config.Scope.benchmark, "track", "test.mode.enabled", test_mode)
    sources: list[Any] = []
    monkeypatch.setattr(processor.Pack, "_start", lambda self, nodes, *_: sources.append(nodes.source))
    bulk = {"operation-type": "bulk", "bulk-size": 1, "corpora": "parsed"}
    parts: dict[str, Any] = {
        "indices": [{"name": "i"}],
        "corpora": documents_of(tmp_path / "mine", "parsed", "unparsed"),
        "schedule": [{"operation": bulk}, *({"operation": {"name": name, **SEARCH}} for name in "ab")],
    }
    for included in ([], ["a"]):
        cfg.add(config.Scope.benchmark, "track", "include.tasks", included)
        track = written(cfg, tmp_path / "mine", **parts)
        registry = loader.TrackProcessorRegistry(cfg)
        registry.register_track_processor(processor.Pack())
        for each in registry.processors:
            each.on_after_load_track(track)
    whole, alone = sources
    assert [[task.name for task in element] for element in alone.track.challenges[0].schedule] == [["bulk"]]
    assert [corpus.name for corpus in loader.used_corpora(alone.track)] == ["parsed"]
    assert alone.shape() == whole.shape()  # and so the one that is kept


@pytest.mark.usefixtures("no_runners", "rally")
def test_a_challenge_that_does_no_more_than_wait_before_it_searches_has_all_documents(
    cfg: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(
        processor.Pack, "_start", lambda self, nodes, _, notes, *turns: started.extend((nodes, notes))
    )
    pack = processor.Pack()
    loader.TrackProcessorRegistry(cfg).register_track_processor(pack)  # which gives it what Rally gives
    track = written(
        cfg,
        tmp_path / "mine",
        indices=[{"name": "i"}],
        corpora=documents_of(tmp_path / "mine", "old"),
        schedule=[
            {"parallel": {"tasks": [{"operation": "cluster-health"}, {"operation": "node-stats"}]}},
            {"operation": {"name": "q", **SEARCH}},
        ],
    )
    pack.on_after_load_track(track)
    made = started[0].source.track.challenges[0]
    assert [task.name for task in made.schedule] == ["create-index", "bulk", "refresh"]
    assert [*filter(None, started[1])] == [
        "task cluster-health, node-stats: changes nothing that a search meets, so it does not run"
    ]


@pytest.mark.usefixtures("no_runners", "rally")
def test_parallel_tasks_that_are_all_left_out_leave_nothing(
    cfg: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    made = sources[0].track.challenges[0].schedule
    assert [[task.name for task in element] for element in made] == [["bulk"]]
    alone = written(cfg, tmp_path / "mine", schedule=[{"parallel": {"tasks": searches[:2]}}])
    loader.TaskFilterTrackProcessor(cfg).on_after_load_track(alone)
    with pytest.raises(PlanError, match="--exclude-tasks leaves no task of it"):
        pack.on_after_load_track(alone)


def test_assertions_about_hits_that_are_not_counted_are_no_error(cfg: Config, tmp_path: Path) -> None:
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
