"""The track of an import: Rally loads it, and its requests are those of the log."""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pytest
from esrally.driver import runner
from esrally.track import params, track
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from query_logs import query_line, requests, write
from rally_configuration import configuration, read_track

from esrally_ebs.errors import PlanError
from esrally_ebs.workload.queries import import_logs, prepare
from esrally_ebs.workload.queries.output import TRACK_PY
from esrally_ebs.workload.queries.replay import PARAM_SOURCE, Replay

ROOT = Path(__file__).parents[3]
USERS = 10


def load(folder: Path, **track_params: object) -> track.Track:
    """The track as Rally reads it."""
    return read_track(configuration(folder, pipeline=None, **track_params), folder)


@pytest.fixture(autouse=True, scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A place for the files that Rally leaves of tracks it reads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("rendered")))
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ten term queries and three aggregations on an index with a name that Jinja must not read."""
    terms = [query_line({"query": {"term": {"user": number}}}, indices=["logs"]) for number in range(USERS)]
    totals = {"size": 0, "aggs": {"n": {"sum": {"field": "n"}}}}
    sums = [query_line(totals, indices=["{{boom}}{%x%}", "a*"])] * 3
    import_logs([write(tmp_path / "log", *terms, *sums)], tmp_path / "out")
    return tmp_path / "out"


def test_the_track_hands_rally_to_the_pack_as_the_one_that_ships() -> None:
    assert (ROOT / "tracks/noaa-ebs/track.py").read_text() == TRACK_PY


def test_an_index_is_not_needed_that_a_request_can_do_without(tmp_path: Path) -> None:
    def line(index: str, **params: object) -> str:
        return json.dumps({"at": 0, "method": "GET", "path": f"/{index}/_search", "params": params})

    lines = [line("a,old", ignore_unavailable=True), line("a", ignore_unavailable=False), line("b")]
    lines.append(line("c,old?ignore_unavailable").replace("/_search", "").replace("old?", "old/_search?"))
    lines.append(line("alone", ignore_unavailable=True))  # without it nothing would be measured
    import_logs([write(tmp_path / "log", *lines)], tmp_path / "out")
    assert [index.name for index in load(tmp_path / "out").indices] == ["a", "alone", "b"]
    assert len(requests(tmp_path / "out")) == len(lines)


def test_rally_loads_it_with_a_task_for_each_template(folder: Path) -> None:
    loaded = load(folder)
    by_template, in_order, as_logged = loaded.challenges
    names = [row["name"] for row in json.loads((folder / "templates.json").read_text())["templates"]]
    assert by_template.default
    assert [task.operation.name for task in by_template.schedule] == names
    assert [task.iterations for task in by_template.schedule] == [USERS, 3]
    assert [task.operation.name for task in in_order.schedule] == ["whole-log"]
    assert in_order.schedule[0].iterations is None  # as many as the log has
    assert in_order.schedule[0].operation.params["templates"] == len(names)
    (task,) = as_logged.schedule
    assert (task.operation.name, task.schedule, task.clients) == ("whole-log", "ebs-arrivals", 8)
    assert {task.operation.type for task in by_template.schedule} == {"search"}
    assert [index.name for index in loaded.indices] == ["logs", "{{boom}}{%x%}"]
    assert not loaded.corpora


def test_a_set_of_queries_is_not_raced_at_the_times_of_a_load(tmp_path: Path) -> None:
    import_logs([write(tmp_path / "log", *['{"index":"a"}', "{}"] * 3)], tmp_path / "out")
    assert [each.name for each in load(tmp_path / "out").challenges] == ["by-template", "in-order"]
    readme = (tmp_path / "out" / "README.md").read_text()
    assert "as-logged" not in readme
    assert "speed" not in readme  # which Rally refuses, as its track does not use it


def test_the_track_names_the_indices_of_all_its_requests_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "_MAX_NAMES", 3)  # how many it remembers
    left_out = query_line({"pit": {"id": "x"}}, indices=["another"])
    lines = [query_line({}, indices=[f"logs-{number}", "logs"]) for number in range(10)]
    import_logs([write(tmp_path / "log", left_out, *lines)], tmp_path / "out")
    named = [index.name for index in load(tmp_path / "out").indices]
    assert named == ["logs", *(f"logs-{number}" for number in range(10))]


def test_one_request_is_no_requests(tmp_path: Path) -> None:
    summary = import_logs([write(tmp_path / "log", query_line({}))], tmp_path / "out")
    assert ": 1 request over 0.0 s, 1 template, from 1 line (" in summary.text()
    readme = (tmp_path / "out" / "README.md").read_text()
    assert "1 request over 0.0 s in 1 template, from 1 line of: " in readme
    assert load(tmp_path / "out").description.startswith("1 request of a log")


def test_rally_loads_the_track_of_a_log_that_names_patterns_alone(tmp_path: Path) -> None:
    import_logs([write(tmp_path / "log", query_line({}, indices=["logs-*"]))], tmp_path / "out")
    assert load(tmp_path / "out").indices == []


def test_it_takes_the_packs_track_parameters_and_its_own(folder: Path) -> None:
    ours = {"plan": "smoke", "volumes": "", "rounds": 2, "max_rounds": 4, "cache": "warm", "set": {}}
    loaded = load(folder, iterations=7, warmup_iterations=1, search_clients=2, **ours)
    task = loaded.challenges[0].schedule[0]
    assert (task.iterations, task.warmup_iterations, task.clients) == (7, 1, 2)
    assert loaded.challenges[1].schedule[0].iterations == 7


def source(folder: Path, **operation: object) -> Replay:
    return Replay(SimpleNamespace(root=str(folder)), operation)


def test_the_whole_log_comes_once_and_in_order(folder: Path) -> None:
    replay = source(folder)
    bodies = [row["body"] for row in requests(folder)]
    assert [replay.params()["body"] for _ in bodies] == bodies
    assert not replay.infinite
    with pytest.raises(StopIteration):
        replay.params()


def test_each_block_does_not_read_all_of_the_log_again_unless_it_was_written_anew(tmp_path: Path) -> None:
    log = write(tmp_path / "log", query_line({"query": {"term": {"user": 1}}}))
    import_logs([log], tmp_path / "out")
    first, second = source(tmp_path / "out"), source(tmp_path / "out")
    assert first._offsets is second._offsets
    queries = tmp_path / "out" / "queries.ndjson"
    queries.write_bytes(queries.read_bytes() * 2)
    os.utime(queries, ns=(0, 0))
    third = source(tmp_path / "out")
    assert [third.params()["body"] for _ in range(2)] == [first.params()["body"]] * 2


def test_clients_share_the_log(folder: Path) -> None:
    parts = [source(folder).partition(client, 3) for client in range(3)]
    bodies = [part.params()["body"] for _ in range(4) for part in parts]
    assert bodies == [row["body"] for row in requests(folder)][:12]


def test_any_number_of_clients_open_the_log_once(folder: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    parts = [source(folder, cycle=True).partition(client, 32) for client in range(32)]
    assert all(part.params() for part in parts)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1


def test_a_round_has_its_piece_of_the_log_at_the_logs_times(tmp_path: Path) -> None:
    lines = [
        query_line({"query": {"term": {"user": second}}}, at=f"2026-01-02T10:00:{second:02d}.500Z")
        for second in range(14)
    ]
    import_logs([write(tmp_path / "log", *lines)], tmp_path / "out")
    users = []
    for number in (1, 2, 3):
        replay = source(tmp_path / "out", piece=(number, 3))
        assert replay.gap_s() == 1
        for second in range(4):  # two of fourteen are left
            assert replay.due_s() == second
            users.append(replay.params()["body"]["query"]["term"]["user"])
        with pytest.raises(StopIteration):
            replay.due_s()
    assert users == list(range(12))
    again = source(tmp_path / "out", cycle=True)
    assert [again.params()["body"]["query"]["term"]["user"] for _ in range(15)] == [*range(14), 0]
    with pytest.raises(PlanError, match="14 requests cannot fill 15 rounds; ask for fewer rounds"):
        source(tmp_path / "out", piece=(1, 15))


@pytest.mark.parametrize("clients", [1, 2])
def test_no_request_of_a_template_comes_twice_before_all_came_once(folder: Path, clients: int) -> None:
    name = requests(folder)[0]["template"]
    parts = [source(folder, template=name).partition(client, clients) for client in range(clients)]
    users = [
        part.params()["body"]["query"]["term"]["user"] for _ in range(USERS // clients) for part in parts
    ]
    assert sorted(users) == list(range(USERS))
    assert users != list(range(USERS))  # spread over the log, so that the first few stand for all
    assert parts[0].infinite


def test_a_round_goes_on_where_the_one_before_ended(folder: Path) -> None:
    name = requests(folder)[0]["template"]
    all_of_it = source(folder, template=name)
    asked = [all_of_it.params()["body"] for _ in range(USERS + 2)]
    rounds = [source(folder, template=name, first=first) for first in range(0, USERS + 2, 2)]
    assert [each.params()["body"] for each in rounds for _ in range(2)] == asked[: 2 * len(rounds)]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(50, 400), st.integers(0, 1000), st.floats(0.05, 1.0))
def test_a_tenth_of_a_template_has_the_median_of_all_of_it(
    tmp_path: Path, count: int, seed: int, spread: float
) -> None:
    took_ms = np.random.default_rng(seed).lognormal(3, spread, count)
    rows = [
        {"at": 0.0, "method": "GET", "path": "/i/_search", "params": {}, "body": {"user": number},
         "took_ms": took, "hits": 1, "client": "c", "template": "t"}
        for number, took in enumerate(took_ms.tolist())
    ]  # fmt: skip
    (tmp_path / "queries.ndjson").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    replay = source(tmp_path, template="t")
    sample = [took_ms[replay.params()["body"]["user"]] for _ in range(count // 10)]
    rank = np.searchsorted(np.sort(took_ms), np.median(sample)) / count
    assert rank == pytest.approx(0.5, abs=0.03)


def test_a_request_is_what_rallys_search_takes(folder: Path) -> None:
    replay = source(folder, **{"detailed-results": True, "cache": False})
    given = replay.params()
    plain = params.SearchParamSource(
        load(folder), {"index": "logs", "body": {}, "detailed-results": True}, operation_name="x"
    ).params()
    assert given.keys() >= plain.keys() - {"request-timeout", "headers", "opaque-id"}
    assert (given["index"], given["detailed-results"], given["cache"]) == ("logs", True, False)
    assert runner.mandatory(given, "body", "search") == requests(folder)[0]["body"]


@pytest.mark.parametrize(("params", "cache"), [({}, False), ({"request_cache": "true"}, None)])
def test_no_request_is_answered_by_the_request_cache_unless_the_log_asks_for_it(
    params: dict[str, str], cache: bool | None, tmp_path: Path
) -> None:
    line = {"at": 0, "method": "POST", "path": "/a/_search", "params": params, "body": {"size": 0}}
    import_logs([write(tmp_path / "log", json.dumps(line))], tmp_path / "out")
    assert source(tmp_path / "out").params()["cache"] is cache


def test_targets_with_special_characters_stay_as_a_path_has_them(folder: Path) -> None:
    last = requests(folder)[-1]
    index = source(folder, template=last["template"]).params()["index"]
    # Rally makes a path of it without quoting
    assert f"/{index}/_search" == last["path"] == "/%7B%7Bboom%7D%7D%7B%25x%25%7D,a*/_search"


def test_rally_finds_the_source_by_its_name() -> None:
    registered: dict[str, Any] = {}
    registry = SimpleNamespace(
        register_track_processor=lambda _: None,
        register_param_source=registered.__setitem__,
        runner_registry=None,
    )
    from esrally_ebs.rally import register

    register(registry)
    assert registered[PARAM_SOURCE] is Replay


def test_queries_that_are_gone_are_one_line(folder: Path) -> None:
    with pytest.raises(PlanError, match="has no request of template x; import the workload again"):
        source(folder, template="x")
    (folder / "queries.ndjson").unlink()
    with pytest.raises(PlanError, match=r"queries\.ndjson: No such file"):
        source(folder)


def test_queries_that_were_changed_by_hand_are_asked_or_are_one_line(folder: Path) -> None:
    path = folder / "queries.ndjson"
    lines = path.read_text().splitlines()
    no_requests = ['{"at":1.0,', '{"at":1.0,"path":"/a/_search","body":{}}', "[]"]
    path.write_text("\n\n".join([*lines, *no_requests]) + "\n\n")
    replay = source(folder)
    assert [replay.params()["body"] for _ in lines] == [json.loads(line)["body"] for line in lines]
    for number in range(len(no_requests)):
        with pytest.raises(PlanError, match=r"queries\.ndjson: no request: .*; import .* from this file"):
            replay.partition(len(lines) + number, 100).params()
    path.write_text("".join(f"{json.dumps(json.loads(line))}\n" for line in lines))  # with blanks
    with pytest.raises(PlanError, match=r"has no request of template .*, from this file if you have changed"):
        source(folder, template=json.loads(lines[0])["template"])
    import_logs([path], folder / "again")
    assert len(requests(folder / "again")) == len(lines)


def test_tracks_of_other_requests_are_told_apart(tmp_path: Path) -> None:
    digests = []
    for name, value in (("a", 1), ("b", 1), ("c", 2)):
        log = write(tmp_path / "log", query_line({"query": {"term": {"user": value}}}))
        import_logs([log], tmp_path / name)
        (task, *_) = load(tmp_path / name).challenges[0].schedule
        digests.append(task.operation.params["queries"])
    assert (digests[0] == digests[1], digests[0] == digests[2]) == (True, False)
