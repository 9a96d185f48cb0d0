"""What becomes of a request on its arm: which copies of shards it asks, what it does not wait for."""

import asyncio
import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from es_gp3 import node_of
from esrally.driver import runner
from small_plan import small_plan

from esrally_ebs.errors import PlanError
from esrally_ebs.model import Block, Kind, Phase, Request, Volume, VolumeSpec, Work
from esrally_ebs.rally import activation, indexing, runners
from esrally_ebs.report.build import faults
from esrally_ebs.store import SessionFolder
from esrally_ebs.store.context import Arm, Context, Member

BLOCK = Block(arm="gp2", cluster="default", work=Work.SEARCH, task="t", round=1, phase=Phase.MEASURE)


@pytest.mark.parametrize(
    ("params", "asked"),
    [
        ({"index": "i"}, {"request-params": {"preference": "ebs-3"}}),
        (
            {"index": "i", "request-params": {"preference": "_local"}},
            {"request-params": {"preference": "ebs-3"}},
        ),
        (
            {"index": "i", "request-params": {"preference": "_shards:0,2|mine"}},
            {"request-params": {"preference": "_shards:0,2|ebs-3"}},
        ),
        ({"path": "/i/_search", "method": "POST"}, {"request-params": {"preference": "ebs-3"}}),
        (
            {"path": "/_count", "request-params": {"df": "b"}},
            {"request-params": {"preference": "ebs-3", "df": "b"}},
        ),
        ({"path": "/i/_doc/1"}, {"request-params": {"preference": "ebs-3"}}),
        ({"path": "/i/_explain/1"}, {"request-params": {"preference": "ebs-3"}}),
        ({"path": "/_count?q=a%20b"}, {"path": "/_count?q=a%20b&preference=ebs-3"}),
        ({"path": "/i/_search?preference=mine&size=1"}, {"path": "/i/_search?preference=ebs-3&size=1"}),
        ({"path": "/_msearch"}, {}),
        ({"path": "/i/_search/template"}, {}),
        ({"body": {"query": "SELECT 1"}}, {}),
        ({"requests": 100}, {}),  # a parameter of the track's own runner
        ({"requests": ["a", "b"]}, {}),
        ({"index": "i", "operation-type": "field-caps"}, {}),
        (
            {"requests": [{"stream": [{"index": "i", "name": "p"}, {"with-point-in-time-from": "p"}]}]},
            {
                "requests": [
                    {
                        "stream": [
                            {"index": "i", "name": "p", "request-params": {"preference": "ebs-3"}},
                            {"with-point-in-time-from": "p"},  # which has that of its point in time
                        ]
                    }
                ]
            },
        ),
    ],
)
def test_what_takes_a_preference_has_that_of_its_arm(
    params: dict[str, Any], asked: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = search_on_arm(params, tmp_path, monkeypatch, preference="ebs-3")
    assert search.params == {**params, **asked}


def test_on_one_node_what_names_an_index_in_its_body_is_refused_when_only_the_request_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"query": {"bool": {"filter": [{"terms": {"_index": ["i"]}}]}}}
    with pytest.raises(PlanError, match=r'^task t: its body names an index.*; set design.nodes = "per-arm"'):
        search_on_arm({"index": "i", "body": body}, tmp_path, monkeypatch, suffix="_gp2")
    search = search_on_arm({"index": None, "body": {"size": 1}}, tmp_path, monkeypatch, suffix="_gp2")
    assert search.params["index"] == "*_gp2"


@pytest.mark.parametrize(
    ("method", "path", "writes"),
    [
        ("PUT", "/_query_rules/r", True),  # of wikipedia
        ("put", "/i/_settings?flat_settings=true", True),
        ("DELETE", "/i", True),
        ("POST", "/i/_doc", True),
        ("POST", "/i/_update/1?refresh=true", True),
        ("POST", "/_reindex", True),
        ("POST", "/i/_search", False),
        ("POST", "/_application/search_application/a/_search", False),
        ("POST", "/i/_pit?keep_alive=1m", False),
        ("DELETE", "/_pit", False),
        ("DELETE", "/_search/scroll", False),
        ("GET", "/i/_doc/1", False),
    ],
)
def test_a_write_that_only_the_request_shows_is_refused(
    method: str, path: str, writes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = {"method": method, "path": path}
    says = rf"^task t: its parameter source makes {method.upper()} {re.escape(path.partition('?')[0])}, .*=t$"
    for params in (raw, {"requests": [{"operation-type": "sleep"}, {"stream": [raw]}]}):
        with pytest.raises(PlanError, match=says) if writes else nullcontext():
            search_on_arm(params, tmp_path, monkeypatch)


def test_requests_that_differ_between_arms_are_an_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings = iter(["", "t: arms were sent different requests"])
    monkeypatch.setattr(runners, "_sent", SimpleNamespace(add=lambda *_: next(warnings)))
    for _ in range(2):
        search_on_arm({"index": "i"}, tmp_path, monkeypatch)
    search_on_arm({"index": "i"}, tmp_path, monkeypatch, suffix="_gp2")  # both arms' is made once
    (event,) = SessionFolder(tmp_path).events()
    assert list(faults([event, event])) == ["requests-differ: t: arms were sent different requests"]


@pytest.mark.parametrize(("details", "hits"), [(True, 7), (False, None)])
def test_hits_of_an_index_that_grows_are_left_out_even_where_rally_counts_them(
    details: bool, hits: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def pages(es: object, params: object) -> dict[str, Any]:
        return {"weight": 2, "unit": "pages", "hits": 7}

    monkeypatch.setattr(runners, "observed", lambda *_: runners.nullcontext())
    monkeypatch.setattr(runners.Search, "_require_nodes", lambda self: None)
    search = search_on_arm({"detailed-results": details}, tmp_path, monkeypatch)
    search.runner = runners.OnArm(pages)
    assert asyncio.run(search.request()).get("hits") == hits


@pytest.mark.parametrize(
    ("status", "waits", "says"),
    [
        ("yellow", {"retry-until-success": True}, "task t: waits for status green, and 2 replicas need"),
        ("yellow", {}, ""),  # Rally asks once
        ("green", {"retry-until-success": True}, ""),
    ],
)
def test_replicas_that_an_arm_cannot_have_are_not_waited_for_where_it_indexes_by_itself(
    status: str, waits: dict[str, Any], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    health = {"status": status, "number_of_nodes": 1, "unassigned_shards": 2}
    monkeypatch.setattr(indexing.api, "get", lambda *_, **more: health)
    search_on_arm({}, tmp_path, monkeypatch)
    on_arm = runners.OnArm(runner.Retry(runner.ClusterHealth()))
    params = {"index": "i", "request-params": {"wait_for_status": "green"}, **waits}
    own = replace(BLOCK, work=Work.INDEXING, round=0)
    with pytest.raises(PlanError, match=says) if says else nullcontext():
        asyncio.run(on_arm._require_green(own, params))


def search_on_arm(
    params: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **of_arm: str
) -> runners.Search:
    spec = VolumeSpec(name="gp2", type="directory", size_bytes=1 << 30)
    member = Member(volume=Volume(spec=spec, kind=Kind.DIRECTORY, mount=tmp_path), node=node_of(1))
    arm = Arm(name="gp2", cluster="default", members=(member,), **of_arm)
    context = Context(session="s", folder=tmp_path, run=tmp_path, plan=small_plan(), arms=(arm,))
    context.save()
    monkeypatch.setattr(activation, "_installed", {"path": context.path})
    return runners.Search(runners.OnArm(None), None, Request(block=BLOCK, number=1), params)
