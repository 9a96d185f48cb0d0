"""The table of what is replaced in Rally: it is complete, checked, and nothing is wrapped twice."""

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
import psutil
import pytest
from ended_process import ended_process
from esrally import exceptions, metrics, track
from esrally.driver import driver
from esrally.track import loader
from rally_configuration import Config, configuration, written

from esrally_ebs.errors import EbsError, PlanError, SetupError
from esrally_ebs.rally import any_track, patches
from esrally_ebs.rally.patches import outcome, worker

NUMBERS = {"seven": 7, "fifteen": 15, "twenty-two": 22}


class Race:
    """Hears of nothing."""

    def load_may_go(self) -> None: ...

    def complete(self) -> None: ...
    def fail(self, error: EbsError) -> None: ...
    def end(self, cancelled: bool) -> None: ...
    def last_line(self) -> str: ...
    def first_fault(self) -> None: ...


def install_all() -> None:
    patches.install((*patches.WAITS, patches.FAILURE, *patches.LOADING))
    patches.install(patches.DRIVING, None)
    patches.install(patches.RACE_CONTROL, Race())


def test_each_name_stands_once_in_the_table_and_the_docstring_counts_them() -> None:
    names = {(patch.owner, patch.name) for patch in patches.TABLE}
    assert len(names) == len(patches.TABLE)
    every, driving, control = re.search(  # type: ignore[union-attr]
        r"([\w-]+) names are replaced: (\w+) in all.*?, (\w+)\s*in race control",
        patches.__doc__ or "",
        re.DOTALL,
    ).groups()
    assert NUMBERS[every.lower()] == len(patches.TABLE)
    assert NUMBERS[driving] == len(patches.DRIVING) + len(patches.WAITS) + len(patches.LOADING) + 1
    assert NUMBERS[control] == len(patches.RACE_CONTROL)
    assert all(patch.why for patch in patches.TABLE)


def test_no_name_of_rally_is_replaced_anywhere_else() -> None:
    package = Path(patches.__file__).parents[1]
    assignment = re.compile(
        r"^\s*(?:driver|runner|actor|mechanic|racecontrol|rally|telemetry|metrics|loader)\.[\w.]+ = "
        r"|setattr\(",
        re.MULTILINE,
    )
    places = {path.name for path in package.rglob("*.py") if assignment.search(path.read_text())}
    # the table; sys in Rally's own command; where actors listen, long before the table is loaded; and numpy's
    # seed of nothing, while a track's own source is made
    assert places == {"__init__.py", "outcome.py", "local_actors.py", "request_source.py"}


@pytest.mark.usefixtures("rally")
def test_what_is_installed_again_is_wrapped_once() -> None:
    install_all()
    install_all()
    for patch in patches.TABLE:
        now: Any = getattr(patch.owner, patch.name)
        assert now is not patches.unpatched(patch.owner, patch.name)
        assert not hasattr(getattr(now, "__wrapped__", None), "__wrapped__")


@pytest.mark.usefixtures("rally")
def test_every_replaced_name_is_checked_also_once_it_is_replaced() -> None:
    before = patches.check_signatures()
    install_all()
    assert patches.check_signatures() == before
    assert all(check.ok for check in before)
    names = {check.name for check in before}
    assert names >= {"driver.Worker.drive", "mechanic.StartEngine", "driver.Worker.WAKEUP_INTERVAL_SECONDS"}
    assert len(names) == len(before)


@pytest.mark.parametrize("other", [lambda self, now: None, None], ids=["other", "missing"])
def test_a_rally_that_differs_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, other: Callable[..., None] | None
) -> None:
    monkeypatch.setattr(patches, "_UNPATCHED", {})
    patches.require_signatures.cache_clear()
    if other is None:
        monkeypatch.delattr(driver.Worker, "send_samples")
    else:
        monkeypatch.setattr(driver.Worker, "send_samples", lambda worker: None)
    with pytest.raises(SetupError, match=r"driver\.Worker\.send_samples \((worker|missing)\)"):
        patches.require_signatures()


@pytest.mark.usefixtures("rally")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"version": 2,', r"^Could not load '.*track.json': Expecting property name .*\(char 14\)$"),
        ('{"version": {{', r"^Could not load '.*track.json' due to Jinja Syntax Exception: unexpected"),
        ('{"version": 2}', r"^Track 'mine' is invalid"),
        (
            '{% import "macros.j2" as own %}{"version": 2}',
            r"^/.*/track\.json: includes macros\.j2, which is not there; mend the track$",
        ),
        (
            '{"version": 2, "description": "d", "indices": [{"name": "a", "body": "a.json"}], "schedule": '
            '[{"operation": {"operation-type": "search", "body": {}}}]}',
            r"^/.*/a\.json: No such file or directory; mend the track$",
        ),
        (
            '{"version": 2, "description": "d", "indices": [{"name": "b", "body": "b.json"}], "schedule": '
            '[{"operation": "force-merge"}]}',
            r"^definition for index b in b\.json: Unexpected end of template\. .*; mend the track$",
        ),
        ("[]", r"^/.*/track\.json, or a file beside it: AttributeError: 'list' object .*; mend the track$"),
        (
            '{"version": 2, "description": "d", "indices": [{"name": "c", "body": "c.json"}], "schedule": '
            '[{"operation": "force-merge"}]}',
            r"^/.*/track\.json, or a file beside it: UnicodeDecodeError: 'utf-8' .*; mend the track$",
        ),
        ('{"version": 3}', r"^Track mine requires a newer version of Rally\. .*: 3\)$"),
    ],
)
@pytest.mark.parametrize("has_line", [True, False])
def test_a_tracks_syntax_is_one_line_in_a_race_of_ours_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str, has_line: bool
) -> None:
    (tmp_path / "b.json").write_text('{% if shards %}{"settings": {}}')
    (tmp_path / "c.json").write_bytes(b"\xfc")
    track = tmp_path / "track.json"
    track.write_text(text)
    reader = loader.TrackFileReader(configuration(tmp_path, pipeline="from-sources"))
    patches.install(patches.LOADING)
    of_rally = exceptions.RallyError, jinja2.TemplateError
    with pytest.raises((*of_rally, FileNotFoundError, AttributeError, UnicodeDecodeError)):
        reader.read("mine", str(track), str(tmp_path))
    if has_line:
        (tmp_path / "track.py").write_text("from esrally_ebs.rally import register\n")
    for name, value in any_track.environment({} if has_line else {"plan": "smoke"}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(PlanError, match=message) as refused:
        reader.read("mine", str(track), str(tmp_path))
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.usefixtures("rally")
@pytest.mark.parametrize(("is_ours", "left"), [(True, 0), (False, 1)])
def test_the_file_that_rally_renders_a_track_to_is_not_left_by_a_race_of_ours(
    cfg: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_ours: bool, left: int
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    patches.install(patches.LOADING)
    for name, value in any_track.environment({"plan": "smoke"} if is_ours else {}).items():
        monkeypatch.setenv(name, value)
    written(cfg, tmp_path / "mine", schedule=[{"operation": "refresh"}])
    assert len([*(tmp_path / "tmp").iterdir()]) == left
    assert tempfile.gettempdir() == str(tmp_path / "tmp")


def test_rally_refuses_no_race_for_one_that_has_ended() -> None:
    with ended_process() as ended:
        races = [
            outcome.is_rally_process(lambda _: True, psutil.Process(pid)) for pid in (ended, os.getpid())
        ]
    assert races == [False, True]


def test_a_task_that_ends_is_told_so() -> None:
    calls: list[object] = []

    class Driven:
        def require_load(self) -> None:
            calls.append("load")

    def rallys(driver: object, task_finished: bool = False) -> None:
        calls.append(task_finished)

    update = partial(worker.update_progress_message, rallys, Driven())  # type: ignore[arg-type]
    update(None)
    update(None, task_finished=True)  # as Rally does at each of its joinpoints
    assert calls == ["load", False, "load", True]


class Scanned(list[dict[str, Any]]):
    """A store's documents, which count how often somebody goes through all of them."""

    scans = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.scans += 1
        return super().__iter__()


@pytest.mark.usefixtures("rally")
def test_rallys_summary_is_the_same_and_does_not_look_through_all_for_each_task() -> None:
    names = [f"task {number}" for number in range(30)]
    docs = Scanned()
    for at, task in enumerate(names * 4):
        for name in ("service_time", "latency", "processing_time", "throughput"):
            docs.append(
                {"name": name, "value": at * 1.5, "unit": "ms", "task": task, "operation-type": "Search"}
                | {"sample-type": "normal" if at % 7 else "warmup", "relative-time": at}
                | {"meta": {"success": at % 5 > 0}}
            )
    whole = {"name": "segments_count", "value": 3, "unit": "", "task": None, "relative-time": 0}
    docs.append(whole | {"sample-type": "normal"})
    store = object.__new__(metrics.InMemoryMetricsStore)
    store.docs = docs
    tasks = [track.Task(name, track.Operation(name, "Search", param_source="search")) for name in names]
    race = SimpleNamespace(track=track.Track("noaa"), challenge=track.Challenge("search", schedule=tasks))
    theirs = patches.unpatched(metrics, "calculate_results")(store, race).as_dict()
    install_all()
    docs.scans = 0

    assert metrics.calculate_results(store, race).as_dict() == theirs
    assert theirs["segment_count"] == 3
    assert [len(theirs["op_metrics"]), len({one["duration"] for one in theirs["op_metrics"]})] == [30, 30]
    assert docs.scans < 100
