"""What the track processor leaves to Rally, and what it prepares, when the user has started the nodes."""

import bz2
import gzip
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ended_process import ended_process
from esrally import config, racecontrol
from esrally import track as rally_track
from esrally.track import loader
from esrally.utils import opts
from rally_configuration import Config, as_our_command, configuration, read_track, written
from small_plan import TWO_ARMS

from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.machine.resources import resource
from esrally_ebs.plan import parse_plan
from esrally_ebs.rally import processor
from esrally_ebs.rally.indexing import TrackIndexing, require_raceable, with_tasks
from esrally_ebs.rally.recovery import RECOVERY
from esrally_ebs.rally.settings import PLAIN, race_settings


def prepare(cfg: Any, track: Any) -> None:  # noqa: ANN401 - Rally's
    """What Rally's preparing processes do with every registered processor, in order."""
    registry = loader.TrackProcessorRegistry(cfg)
    loader.load_track_plugins(cfg, "noaa-ebs", register_track_processor=registry.register_track_processor)
    for each in registry.processors:
        for function, parameters in each.on_prepare_track(track, "unused"):
            function(**parameters)


def test_plain_rally_races_the_track_as_it_is(tmp_path: Path) -> None:
    track = loader.load_track(configuration(tmp_path, pipeline="benchmark-only", documents=300))
    names = [task.name for task in track.find_challenge_or_default("append-no-conflicts").schedule]
    assert "range_field_big_range" in names
    assert len(names) == len(set(names)) == 16  # eight of indexing, eight searches
    assert not [task for task in track.challenges[0].schedule if task.operation.param_source]


def test_the_other_processes_of_a_plain_race_leave_the_schedule_alone_too(tmp_path: Path) -> None:
    cfg = configuration(tmp_path, pipeline="benchmark-only", documents=300)
    loader.load_track(cfg)  # race control; the section "driver" of its configuration is sent to the others
    other = configuration(tmp_path, pipeline=None, documents=300)
    other.add_all(cfg, "driver")
    assert race_settings(other).managed is False
    assert race_settings(configuration(tmp_path, pipeline=None)).managed is True


@pytest.mark.parametrize(
    ("pipeline", "managed"),
    [("from-sources", True), ("benchmark-only", False), ("from-distribution", False), ("docker", False)],
)
def test_a_pipeline_that_was_asked_for_is_rallys_own(tmp_path: Path, pipeline: str, managed: bool) -> None:
    # Rally itself says from-sources when neither a pipeline nor a version was given
    assert race_settings(configuration(tmp_path, pipeline=pipeline)).managed is managed


@pytest.mark.parametrize("pipeline", ["benchmark-only", "from-distribution"])
def test_our_own_command_does_not_race_nodes_that_are_no_arms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: str
) -> None:
    cfg = configuration(tmp_path, pipeline=pipeline, documents=300)
    as_our_command(monkeypatch, {"set": {}})
    with pytest.raises(PlanError, match=f"^--pipeline {pipeline}: is of other nodes than"):
        loader.load_track(cfg)
    other = configuration(tmp_path, pipeline=None, documents=300)  # of a race's other processes
    other.add(config.Scope.benchmark, "driver", PLAIN, True)
    loader.load_track(other)


def raced_by_rally(cfg: Any, hosts: str) -> Any:  # noqa: ANN401 - Rally's
    """The configuration as Rally's race control has it, with these hosts of the user's."""
    cfg.add(config.Scope.applicationOverride, "client", "hosts", opts.TargetHosts(hosts))
    cfg.add(config.Scope.application, "provisioning", "node.http.port", 39200)
    racecontrol.set_default_hosts(cfg, port=39200)
    return cfg


@pytest.mark.parametrize(
    ("hosts", "key", "value", "line"),
    [
        (
            "10.0.0.5:9200",
            "car.plugins",
            [],
            "--target-hosts 10.0.0.5:9200: .* with --pipeline=benchmark-only",
        ),
        ("", "options", opts.ClientOptions("use_ssl:true"), "--client-options use_ssl: .* plain HTTP"),
        ("", "options", opts.ClientOptions("tiemout:3"), "--client-options: .*'tiemout'; mend"),
        ("", "options", opts.ClientOptions("basic_auth_user:me"), "--client-options: .*_user'; mend"),
        ("", "car.plugins", ["analysis-icu"], "--elasticsearch-plugins analysis-icu: .* by ES_IMAGE"),
        ("", "runtime.jdk", "21", "--runtime-jdk 21: .* by ES_IMAGE"),
    ],
)
def test_other_nodes_than_those_that_the_pack_starts_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosts: str, key: str, value: object, line: str
) -> None:
    monkeypatch.setattr(processor.Pack, "_start", lambda *_: None)
    cfg = raced_by_rally(configuration(tmp_path, pipeline="from-sources"), hosts)
    section = "client" if key == "options" else "mechanic"
    cfg.add(config.Scope.applicationOverride, section, key, value)
    with pytest.raises(PlanError, match=f"^{line}"):
        loader.load_track(cfg)


def test_a_host_that_rally_names_by_itself_is_none_of_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    monkeypatch.setattr(processor.Pack, "_start", lambda *given: started.append(given))
    loader.load_track(raced_by_rally(configuration(tmp_path, pipeline="from-sources"), ""))
    assert started


@pytest.mark.parametrize(
    ("before_search", "is_own", "says"),
    [
        (True, False, "runs once, to make"),
        (True, True, "runs not at all"),
        (False, False, "once on each arm"),
    ],
)
def test_what_becomes_of_a_task_that_may_search_is_said(before_search: bool, is_own: bool, says: str) -> None:
    task = rally_track.Task("recall", rally_track.Operation("recall", "knn-recall", params={}))
    assert says in processor._untold([task], before_search, is_own)


@pytest.mark.parametrize("key", ["data", "snapshot", ""])
def test_tasks_that_do_not_run_as_the_index_is_the_users_are_said(key: str) -> None:
    kinds = {"create-index": "create-index", "script": "raw-request", "recall": "knn-recall"}
    made = [rally_track.Task(name, rally_track.Operation(name, kind)) for name, kind in kinds.items()]
    made[1].operation.params = {"method": "PUT", "path": "/_scripts/x"}
    plan = parse_plan(TWO_ARMS, "p.toml", {f"dataset.{key}": "/mnt/x/y"} if key else {})
    says = processor._left_undone(made, plan)
    assert says.startswith("task create-index, script: does not run" if key else "")  # of recall says _untold
    assert bool(says) == bool(key)
    assert not processor._left_undone([], plan)


def test_what_counts_as_a_search_though_nothing_tells_it_is_said() -> None:
    """As to measure recall, which takes minutes, in most tracks of vectors."""
    kinds: tuple[tuple[str, str, list[str]], ...] = (
        ("q", "search", []),
        ("recall", "knn-recall", []),
        ("own", "my-search", ["search"]),
        ("move", RECOVERY, []),
    )
    made = [
        rally_track.Task(name, rally_track.Operation(name, kind), tags=tags) for name, kind, tags in kinds
    ]
    plan = parse_plan(TWO_ARMS, "p.toml", {})
    says = processor._taken_for_searches(made, plan)
    assert says.startswith("task recall: nothing tells that it searches")
    assert "asked 3 times in each round" in says
    assert says.endswith("leave it out: --exclude-tasks=recall")
    assert not processor._taken_for_searches(made[:1], plan)


def test_searches_that_a_track_has_in_parallel_and_what_is_left_out_after_one_are_said() -> None:
    made = [rally_track.Task(name, rally_track.Operation(name, "search")) for name in "pqr"]
    write = rally_track.Task("w", rally_track.Operation("w", "bulk"))
    elements = [made[0], rally_track.Parallel([*made[1:], write]), rally_track.Parallel([made[0], write])]
    assert processor._in_parallel(elements, parse_plan(TWO_ARMS, "p.toml", {})) == ["q, r"]
    knee = parse_plan(TWO_ARMS, "p.toml", {"cache.mode": "steady", "design.knee": "p99=100ms"})
    assert not processor._in_parallel(elements, knee)  # whose steps ask all of them at once
    stats = rally_track.Task("s", rally_track.Operation("s", "node-stats"))
    assert processor._idle([made[0], rally_track.Parallel([*made[1:], stats])], made).startswith("task s: ch")
    assert processor._idle(elements, elements) == ""


def test_documents_are_generated_where_rally_looks_before_it_looks(tmp_path: Path) -> None:
    cfg = configuration(tmp_path, pipeline="benchmark-only", documents=300)
    cfg.add(config.Scope.benchmark, "track", "challenge.name", "append-no-conflicts")
    track = loader.load_track(cfg)
    select(track, "append-no-conflicts")
    prepare(cfg, track)
    made = tmp_path / "noaa-ebs" / "documents-300.json"
    assert len(made.read_bytes().splitlines()) == 300


def test_no_documents_are_generated_when_the_challenge_does_not_index(tmp_path: Path) -> None:
    cfg = configuration(tmp_path, pipeline="benchmark-only", documents=300)
    track = loader.load_track(cfg)
    select(track, "search-only")
    prepare(cfg, track)
    assert list(tmp_path.iterdir()) == []


def test_test_mode_generates_the_thousand_documents_that_rally_then_reads(tmp_path: Path) -> None:
    cfg = configuration(tmp_path, pipeline="benchmark-only")
    cfg.add(config.Scope.benchmark, "track", "test.mode.enabled", True)
    track = loader.load_track(cfg)
    select(track, "append-no-conflicts")
    prepare(cfg, track)
    loader.set_absolute_data_path(cfg, track)
    documents = track.corpora[0].documents[0]
    assert documents.document_file == str(tmp_path / "noaa-ebs" / "documents-1000.json")
    assert documents.number_of_documents == 1000


@pytest.mark.parametrize(("line_bytes", "at_once"), [(300, 5000), (8_389, 999), (20_000_000, 1)])
def test_large_documents_are_indexed_by_smaller_bulk_requests(
    cfg: Config, tmp_path: Path, line_bytes: int, at_once: int
) -> None:
    folder = resource("tracks") / "recovery-ebs"
    track = read_track(cfg, folder)
    (documents,) = track.corpora[0].documents
    documents.document_file, documents.number_of_documents = str(tmp_path / "documents.json"), 2
    (tmp_path / "documents.json").touch()
    os.truncate(tmp_path / "documents.json", 2 * line_bytes)
    indexing = TrackIndexing(cfg=cfg, track=with_tasks(track, []), corpora={}, prepare=lambda: None)
    indexing._fit_bulk_size()
    tasks = {task.name: task for element in indexing.track.challenges[0].schedule for task in element}
    assert tasks["bulk"].operation.params["bulk-size"] == at_once


def select(track: Any, name: str) -> None:  # noqa: ANN401 - Rally's
    for challenge in track.challenges:
        challenge.selected = challenge.name == name


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("noaa-ebs", ["noaa-ebs/documents-90.json"]),
        ("logs-ebs", [f"logs-ebs-{n}/documents-30.json" for n in range(3)]),
    ],
)
def test_race_control_has_the_documents_of_the_dataset_ready(
    tmp_path: Path, name: str, files: list[str]
) -> None:
    cfg = configuration(tmp_path, pipeline="from-sources", documents=90)
    track = read_track(cfg, resource("tracks") / name)
    processor._size_corpus(track, race_settings(cfg))
    pack = processor.Pack()
    pack.cfg, pack.downloader, pack.decompressor = cfg, None, None
    indexing = with_tasks(track, [])
    source = pack._source(indexing, race_settings(cfg).plan)
    key = source.shape()
    assert source.room_bytes() > 0
    made = [tmp_path / file for file in files]
    assert [len(path.read_bytes().splitlines()) for path in made] == [90 // len(files)] * len(files)
    assert len({path.read_bytes() for path in made}) == len(files)
    # where Rally's own bulk tasks read them
    documents = [each.document_file for corpus in indexing.corpora for each in corpus.documents]
    assert documents == [str(path) for path in made]
    # the next session names the dataset the same before anything was prepared
    again = read_track(cfg, resource("tracks") / name)
    processor._size_corpus(again, race_settings(cfg))
    assert pack._source(with_tasks(again, []), race_settings(cfg).plan).shape() == key


def test_an_earlier_race_that_has_ended_is_not_the_command_of_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ended_process() as ended, subprocess.Popen(["cat"], stdin=subprocess.PIPE) as runs:
        monkeypatch.setattr(processor.process, "is_rally_process", lambda of: of.pid in (ended, runs.pid))
        monkeypatch.setattr(os, "getsid", lambda pid: pid)
        assert processor.main_process() == runs.pid


@pytest.mark.usefixtures("no_runners", "rally")
def test_a_runner_that_rally_refuses_is_named_in_a_track_that_has_our_line(
    cfg: Config, tmp_path: Path
) -> None:
    search = {"operation": {"operation-type": "search", "index": "a", "body": {}}}
    track = written(cfg, tmp_path / "mine", schedule=[search])
    (tmp_path / "mine" / "track.py").write_text(
        "from esrally_ebs.rally import register as pack\ndef ask(es, params): ...\n"
        "def register(registry):\n    registry.register_runner('ask', ask)\n    pack(registry)\n"
    )
    with pytest.raises(PlanError, match=r"Runner \[<function ask at .*>\] must be .* async runner"):
        require_raceable(cfg, track)


@pytest.mark.parametrize(
    ("archive", "content", "line"),
    [
        ("d.json.bz2", bz2.compress(b'{"a": 1}\n' * 999)[:-20], "EOFError: Compressed file ended before"),
        ("d.json.bz2", b"<html>", "OSError: Invalid data stream"),
        ("d.json.gz", gzip.compress(b"{}\n")[:-9], "EOFError: Compressed file ended before"),
    ],
    ids=["cut off", "a page", "cut off gz"],
)
def test_an_archive_that_is_not_whole_is_named(
    cfg: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archive: str, content: bytes, line: str
) -> None:
    monkeypatch.setenv("PATH", "")  # Rally prefers programs, and then tries Python's libraries
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / archive).write_bytes(content)
    track = written(
        cfg,
        tmp_path / "mine",
        indices=[{"name": "i"}],
        corpora=[{"name": "c", "documents": [{"source-file": archive, "document-count": 1}]}],
        schedule=[{"operation": {"operation-type": "bulk", "bulk-size": 1}}],
    )
    pack = processor.Pack()
    pack.cfg = cfg
    with pytest.raises(SetupError, match=rf"^documents {archive}: .* \({line}.*\); see that the file is"):
        pack._prepare(track)
