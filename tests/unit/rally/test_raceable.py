"""What is refused of a track before anything starts, for Rally would refuse or ignore it once nodes run."""

from pathlib import Path
from typing import Any

import pytest
from esrally import config
from esrally.driver import runner
from esrally.track import loader
from rally_configuration import SEARCH, Config, written

from esrally_ebs.errors import PlanError
from esrally_ebs.rally.indexing import require_raceable

DAY = ("morning", "evening")
FLOW, ESQL = {"operation-type": "composite"}, {"operation-type": "esql", "query": "FROM i"}


@pytest.mark.parametrize(
    ("more", "key", "value", "line"),
    [
        ({}, "challenge.name", "mornin", "--challenge mornin: track mine .*; did you mean 'morning'"),
        ({"param-source": "nowhere"}, "", "", r"task q \(search\): no parameter source .* 'nowhere'; mend"),
        ({"operation-type": "serach"}, "", "", r"task q \(serach\): No runner .* \[serach\]; mend the track"),
        ({"index": None}, "", "", r"task q \(search\): 'index' or 'data-stream' is mandatory .*; mend the"),
        ({"pages": 2}, "target-throughput", "9 docs/s", r"task q .*: 'docs/s' is not .* pages/s or ops/s;"),
        ({}, "target-throughput", "9 pages/s", r"task q .*throughput: 'pages/s' is .* it, ops/s; mend"),
        ({}, "schedule", "ebs-arrivals", r"task q .*'ebs-arrivals' is the times of an imported "),
        ({}, "schedule", "ebs-open-loop", r"task q .*: 'ebs-open-loop' is what the pack itself calls so;"),
        ({}, "schedule", "ebs-steps", r"task q .*: 'ebs-steps' is what the pack itself calls so;"),
        ({"operation-type": "start-nodes"}, "", "", r"task q .*: 'start-nodes' is what the pack itself cal"),
        ({"param-source": "ebs-on-arm"}, "", "", r"task q .*: 'ebs-on-arm' is what the pack itself calls"),
        (
            {**FLOW, "requests": ["x"]},
            "",
            "",
            r"task q \(composite\): its requests have 'x', which is nothing",
        ),
        (
            {**FLOW, "requests": {"a": 1}},
            "",
            "",
            r"task q \(composite\): its requests have \{'a': 1\}, which is",
        ),
        (
            {**FLOW, "requests": [{"stream": [{**ESQL}]}]},
            "",
            "",
            r"task q .*: its requests have 'esql', which",
        ),
        ({}, "ignore-response-error-level", "fatal", r"task q .*only allowed values are \[non-fatal\]; mend"),
    ],
)
@pytest.mark.usefixtures("no_runners")
def test_what_rally_would_refuse_when_nodes_run_is_refused_before(
    cfg: Config, tmp_path: Path, more: dict[str, Any], key: str, value: str, line: str
) -> None:
    if key == "challenge.name":
        cfg.add(config.Scope.benchmark, "track", key, value)
    of_task = {} if key in ("", "challenge.name") else {key: value}
    schedule = [{"operation": {"name": "q", **SEARCH, "index": "a", **more}, **of_task}]
    challenges = [{"name": name, "default": name == "evening", "schedule": schedule} for name in DAY]
    track = written(cfg, tmp_path / "mine", challenges=challenges)
    with pytest.raises(PlanError, match=f"^{line}"):
        require_raceable(cfg, track)
    assert vars(runner)["__RUNNERS"] == {}


@pytest.mark.parametrize(
    ("option", "names", "line"),
    [
        ("include", ["q", "qq"], r"--include-tasks \(of knee: --task\) qq: challenge morning has no such ta"),
        ("include", ["q", "late"], r"--include-tasks .* late: challenge morning has no such task"),
        ("include", ["q", "type:serach"], r"--include-tasks .* type:serach: challenge morning has no such t"),
        ("include", ["type:search", "tag:a"], r"--include-tasks .* tag:a: challenge morning has no such ta"),
        ("exclude", ["lat"], r"--exclude-tasks lat: track mine has no such task; did you mean 'late'\?; 'es"),
        ("exclude", ["late", "tag:a"], r"--exclude-tasks tag:a: track mine has no such task; 'esrally info"),
    ],
)
@pytest.mark.usefixtures("no_runners")
def test_a_filter_that_fits_no_task_is_one_line(
    cfg: Config, tmp_path: Path, option: str, names: list[str], line: str
) -> None:
    cfg.add(config.Scope.benchmark, "track", f"{option}.tasks", names)
    tasks = zip(DAY, ("q", "late"), strict=True)
    challenges = [
        {"name": part, "default": part == "morning", "schedule": [{"operation": {"name": name, **SEARCH}}]}
        for part, name in tasks
    ]
    track = written(cfg, tmp_path / "mine", indices=[{"name": "a"}], challenges=challenges)
    loader.TaskFilterTrackProcessor(cfg).on_after_load_track(track)
    with pytest.raises(PlanError, match=f"^{line}"):
        require_raceable(cfg, track)


@pytest.mark.usefixtures("no_runners")
def test_what_the_tracks_own_code_cannot_make_yet_is_left_for_later(cfg: Config, tmp_path: Path) -> None:
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
