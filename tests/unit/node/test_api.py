"""What a node says of why it refuses, in one line."""

import json
import os
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback_server import Answers, serving

from esrally_ebs.errors import SetupError
from esrally_ebs.node import api

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.sampled_from(["error", "caused_by", "reason", "root_cause"]), inner)
    ),
)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (
            {"error": {"reason": "outer", "caused_by": {"reason": "inner", "caused_by": {"reason": "a\nb"}}}},
            "a b",
        ),
        ({"error": {"reason": "only", "root_cause": [{"reason": "root"}]}}, "only"),
        ({"error": "plain text"}, "plain text"),
        ({"error": {"type": "x"}}, ""),
        ({}, ""),
        (None, ""),
        ("text", ""),
    ],
)
def test_the_innermost_reason_is_given(answer: object, reason: str) -> None:
    assert api.root_cause(answer) == reason


@given(JSON)
def test_any_answer_has_a_reason_of_one_line_or_none(answer: object) -> None:
    assert len(api.root_cause(answer).splitlines()) <= 1


@pytest.fixture
def port() -> Iterator[int]:
    """A node that refuses everything, with the body that the path names."""

    class Refusing(Answers):
        def do_GET(self) -> None:
            body = {"/why": json.dumps({"error": {"reason": "no such thing"}}), "/html": "<html>"}
            self.answer(body.get(self.path, ""), 500)

    with serving(Refusing) as port:
        yield port


@pytest.mark.parametrize(
    ("path", "says"), [("/why", "Error: no such thing; see"), ("/html", "Error; see"), ("/", "Error; see")]
)
def test_an_error_says_what_the_node_said(port: int, path: str, says: str) -> None:
    with pytest.raises(SetupError, match=f"HTTP Error 500: Internal Server {says} the node's log"):
        api.get(port, path)


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        (
            {"primary": True, "unassigned_info": {"details": "no\ntokenizer [icu]"}},
            "shard 3 of logs is missing: no tokenizer [icu]; give data and an image",
        ),
        (
            {
                "primary": True,
                "unassigned_info": {
                    "details": "failed recovery\n\tat org\nCaused by: failed to recover\n\t... 8 more\n"
                    "Caused by: CorruptIndexException: checksum failed\n\tat org\n\t... 11 more\n"
                },
            },
            "shard 3 of logs is missing: CorruptIndexException: checksum failed; give data and an image",
        ),
        (
            {"primary": True, "unassigned_info": {}, "allocate_explanation": "no copy on any node"},
            "shard 3 of logs is missing: no copy on any node; give data",
        ),
        (
            {
                "primary": True,
                "unassigned_info": {},
                "allocate_explanation": "Elasticsearch isn't allowed to. Choose a node ...",
                "node_allocation_decisions": [
                    {
                        "deciders": [
                            {"decider": "max_retry", "explanation": "tried 5 times"},
                            {"decider": "filter", "explanation": "index.routing.allocation.require: hot"},
                        ]
                    }
                ],
            },
            "shard 3 of logs is missing: index.routing.allocation.require: hot; set it to null where the "
            "index is made (by a task of the track, or on a node of your own",
        ),
        ({"primary": False, "unassigned_info": {}, "allocate_explanation": "of a replica"}, ""),
        ({"error": "unable to find any unassigned shards to explain"}, ""),
    ],
)
def test_a_node_that_lacks_a_shard_says_which_and_why(facts: dict[str, object], says: str) -> None:
    class Explaining(Answers):
        def do_GET(self) -> None:
            status = 400 if "error" in facts else 200
            self.answer(json.dumps({"index": "logs", "shard": 3, **facts}), status)

    with serving(Explaining) as port:
        assert api.missing_shard(port)[: len(says) or None] == says


def test_requests_that_follow_one_another_go_by_one_connection_until_the_node_closes_it() -> None:
    callers: list[int] = []

    class Answering(Answers):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            callers.append(self.client_address[1])
            self.answer()
            self.close_connection = self.path == "/last"

    with serving(Answering) as port:
        for path in ("/", "/", "/last"):
            assert api.post(port, path) == {}
        time.sleep(0.1)
        api.post(port, "/")
        api._idle.pop((os.getpid(), port))[0].close()

    assert len(set(callers[:3])) == 1
    assert callers[3] != callers[2]
