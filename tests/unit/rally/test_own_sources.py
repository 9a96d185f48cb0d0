"""Requests that a track's own parameter source makes, drawn by chance or handed on, and its files."""

import itertools
import json
import os
import random
import secrets
import uuid
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import user_tracks
from esrally import track as rally_track
from esrally.track import params as rally_params
from rally_configuration import Config, read_track
from small_plan import TWO_ARMS

from esrally_ebs.plan import parse_plan
from esrally_ebs.rally.indexing import TrackIndexing, tag_searches, with_tasks
from esrally_ebs.rally.request_source import RequestSource, SentRequests
from esrally_ebs.rally.schedule import expand


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


class Unseeded(Drawn):
    """As msmarco and wikipedia of rally-tracks shuffle their queries, unless they are given a seed."""

    def __init__(self, track: object, params: dict[str, Any], **_: object) -> None:
        self.queries = list(range(1000))
        random.Random(params.get("seed")).shuffle(self.queries)
        random.seed(params.get("seed"))
        np.random.seed(params.get("seed"))
        self.own = np.random.default_rng()

    def params(self) -> dict[str, Any]:
        drawn = random.random(), np.random.rand(), self.own.random(), np.random.RandomState().rand()
        of_kernel = os.urandom(8), random.SystemRandom().random(), secrets.token_hex(), str(uuid.uuid4())
        return {"body": (self.queries.pop(), *drawn, *of_kernel)}


def test_what_a_track_seeds_with_nothing_is_the_same_on_all_arms_and_another_in_each_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(vars(rally_params)["__PARAM_SOURCES_BY_NAME"], "unseeded", Unseeded)
    search = rally_track.Task("q", rally_track.Operation("q", "search", params={}, param_source="unseeded"))
    bodies: dict[str, list[Any]] = {}
    for each in expand([search], parse_plan(TWO_ARMS, "p.toml", {"cache.mode": "cold"})):
        client = RequestSource(None, each.operation.params).partition(0, 1)
        bodies[each.name] = [client.params()["body"] for _ in range(3)]
    asked = [[bodies[f"q-{arm}-r{number}"] for number in (1, 2)] for arm in ("gp2", "gp3")]
    assert asked[0] == asked[1]
    assert len({part for rounds in asked[0] for body in rounds for part in body}) == 2 * 3 * 9
    outside = []
    for _ in range(2):
        random.seed("t")
        outside.append((random.Random().random(), uuid.uuid4(), secrets.token_hex()))
    assert all(first != second for first, second in zip(*outside, strict=True))


def workflow(asked: object) -> type[Drawn]:
    """A parameter source of composite or raw requests, as elastic/logs has one."""

    class Workflow(Drawn):
        def params(self) -> Any:  # noqa: ANN401 - Rally's
            if isinstance(asked, Exception):
                raise asked
            return asked

    return Workflow


@pytest.mark.parametrize(
    ("kind", "asked", "tags"),
    [
        ("composite", {"requests": [{"stream": [{"operation-type": "search"}]}]}, ["own", "search"]),
        ("composite", {"requests": [{"operation-type": "search"}, {"operation-type": "bulk"}]}, ["own"]),
        ("raw-request", {"path": "/i/_search", "method": "POST"}, ["own", "search"]),
        ("raw-request", {"path": "/i/_doc", "method": "POST"}, ["own"]),
        ("my-search", {"path": "/i/_search"}, ["own"]),  # nothing tells what its runner does
        ("composite", OSError("its documents are not there yet"), ["own"]),
        ("composite", None, ["own"]),
    ],
)
def test_what_a_source_makes_tells_whether_its_task_searches(
    monkeypatch: pytest.MonkeyPatch, kind: str, asked: object, tags: list[str]
) -> None:
    monkeypatch.setitem(vars(rally_params)["__PARAM_SOURCES_BY_NAME"], "flow", workflow(asked))
    task = rally_track.Task("f", rally_track.Operation("f", kind, param_source="flow"), tags=["own"])
    challenge = rally_track.Challenge("c", schedule=[rally_track.Parallel([task])])
    tag_searches(rally_track.Track("t"), challenge)
    assert task.tags == tags
    assert task.operation.params == {}


_OF_MODULE = itertools.count()


class OfModule(Drawn):
    """It goes on where the arm before ended, as with a generator that its module seeds once."""

    def params(self) -> dict[str, Any]:
        return {"body": {"from": next(_OF_MODULE), "vector": [0.1, 0.2]}}


class OfArray(OfModule):
    def params(self) -> dict[str, Any]:
        return {"body": np.array([next(_OF_MODULE)])}


class OfDate(OfModule):
    def params(self) -> dict[str, Any]:
        return {"body": date.fromordinal(1 + next(_OF_MODULE))}  # which cannot be compared


@pytest.mark.parametrize(("source", "warned"), [(Drawn, []), (OfModule, [1]), (OfArray, [1]), (OfDate, [])])
@pytest.mark.parametrize("rounds", [1, 4])  # the last one, too
def test_requests_that_differ_between_arms_are_said_once_for_a_task(
    rounds: int, source: type, warned: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(vars(rally_params)["__PARAM_SOURCES_BY_NAME"], "s", source)
    search = rally_track.Task(
        "q", rally_track.Operation("q", "search", params={}, param_source="s"), clients=2
    )
    made = expand([search], parse_plan(TWO_ARMS, "p.toml", {"cache.mode": "warm", "design.rounds": rounds}))
    sent, warnings = SentRequests(), []
    for number, each in enumerate(task for task in made if "-r" in task.name):
        base = RequestSource(None, each.operation.params)
        clients = [base.partition(client, 2) for client in range(2)]
        for client in [*clients, *clients][:: -1 if number % 2 else 1]:  # in another order on each arm
            params = client.params()
            warnings.append(sent.add(params["ebs"].block, params))
    said = [warning for warning in warnings if warning]
    assert [int(warning.partition("first in round ")[2].partition(";")[0]) for warning in said] == warned


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


@pytest.mark.parametrize(
    ("made_by", "others"),
    [
        ({"operation-type": "bulk", "bulk-size": 5}, 0),  # queries may lie beside such a track, gigabytes
        ({"operation-type": "bulk", "bulk-size": 5, "param-source": "file-reader"}, 0),  # Rally's default
        ({"operation-type": "bulk", "bulk-size": 5, "param-source": "own"}, 1),
        ({"name": "note", "operation-type": "note-index"}, 1),
    ],
)
def test_a_dataset_is_another_when_a_file_that_the_tracks_own_tasks_may_read_is_another(
    cfg: Config, tmp_path: Path, made_by: dict[str, Any], others: int
) -> None:
    folder = tmp_path / "papers"
    folder.mkdir()
    user_tracks.papers(folder)
    track = json.loads((folder / "track.json").read_text())
    track["schedule"][:0] = [{"operation": {"name": "make", **made_by}}]
    (folder / "track.json").write_text(json.dumps(track))
    (folder / "words.json").write_text("[]")

    def shape() -> str:
        track = read_track(cfg, folder)
        indexing = with_tasks(track, track.selected_challenge_or_default.schedule[:1])
        return str(TrackIndexing(cfg=cfg, track=indexing, corpora={}, prepare=lambda: None).shape())

    shapes = [shape()]
    for derived in ("papers.json.offset", "__pycache__/track.pyc", ".git/index", "track.json"):
        (folder / derived).parent.mkdir(exist_ok=True)
        with (folder / derived).open("a") as file:
            file.write("\n")
        shapes.append(shape())
    assert len(set(shapes)) == 1
    (folder / "words.json").write_text('["other"]')
    assert len({*shapes, shape()}) == 1 + others
