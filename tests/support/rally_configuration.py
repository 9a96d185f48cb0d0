"""Rally's own configuration, as its processes have it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import esrally
import pytest
from esrally import config
from esrally.track import loader

from esrally_ebs.machine.resources import resource
from esrally_ebs.rally import any_track

Config = Any  # Rally is untyped
SEARCH = {"operation-type": "search", "body": {}}


def configuration(tmp_path: Path, *, pipeline: str | None, **params: object) -> Any:  # noqa: ANN401 - Rally's
    """Rally's configuration of a race; without a pipeline, as in processes other than race control."""
    cfg = config.Config()
    values: dict[tuple[str, str], object] = {
        ("track", "track.path"): str(resource("tracks/noaa-ebs")),
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


def read_track(cfg: Any, folder: Path) -> Any:  # noqa: ANN401 - Rally's
    """The track of a folder, as Rally reads it for a race."""
    cfg.add(config.Scope.benchmark, "track", "track.path", str(folder))
    return loader.TrackFileReader(cfg).read(folder.name, str(folder / "track.json"), str(folder))


def written(cfg: Any, folder: Path, **parts: Any) -> Any:  # noqa: ANN401 - JSON and Rally's
    """A track of these parts, as Rally reads it."""
    folder.mkdir(exist_ok=True)
    (folder / "track.json").write_text(json.dumps({"version": 2, "description": "d", **parts}))
    return read_track(cfg, folder)


def as_our_command(monkeypatch: pytest.MonkeyPatch, given: Mapping[str, object]) -> None:
    """Rally's processes are those that ``esrally-ebs race`` starts, with this of its command line."""
    for name, value in any_track.environment(given).items():
        monkeypatch.setenv(name, value)
