"""What the track processor leaves to Rally, and what it prepares, when the user has started the nodes."""

from pathlib import Path
from typing import Any

import esrally
import pytest
from esrally import config
from esrally.track import loader

from esrally_ebs.rally.settings import race_settings
from esrally_ebs.resources import resource

TRACK = resource("tracks/noaa-ebs")


def configuration(tmp_path: Path, *, pipeline: str | None, **params: object) -> Any:  # noqa: ANN401 - Rally's
    """Rally's configuration of a race; without a pipeline, as in processes other than race control."""
    cfg = config.Config()
    values: dict[tuple[str, str], object] = {
        ("track", "track.path"): str(TRACK),
        ("track", "params"): params,
        ("track", "test.mode.enabled"): False,
        ("track", "include.tasks"): [],
        ("track", "exclude.tasks"): [],
        ("benchmarks", "local.dataset.cache"): str(tmp_path),
        ("node", "rally.root"): str(Path(esrally.__file__).parent),
        ("system", "race.id"): "0",
        ("system", "offline.mode"): True,
    }
    for (section, key), value in values.items():
        cfg.add(config.Scope.benchmark, section, key, value)
    if pipeline:
        cfg.add(config.Scope.benchmark, "race", "pipeline", pipeline)
    return cfg


def prepare(cfg: Any, track: Any) -> None:  # noqa: ANN401 - Rally's
    """What Rally's preparing processes do with every registered processor, in order."""
    registry = loader.TrackProcessorRegistry(cfg)
    loader.load_track_plugins(cfg, "noaa-ebs", register_track_processor=registry.register_track_processor)
    for processor in registry.processors:
        for function, parameters in processor.on_prepare_track(track, "unused"):
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


def select(track: Any, name: str) -> None:  # noqa: ANN401 - Rally's
    for challenge in track.challenges:
        challenge.selected = challenge.name == name


@pytest.fixture(autouse=True)
def rallys_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rally writes its own files there."""
    monkeypatch.setenv("RALLY_HOME", str(tmp_path_factory.mktemp("rally")))
