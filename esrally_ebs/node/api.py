"""The pack's own few HTTP requests to a node; Rally sends all others."""

import json
import os
import re
import select
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any

from esrally_ebs.errors import SetupError

_REASON_SIGNS = 300
_ROUND_TRIPS = 21
_CAUSE = re.compile(r"^Caused by: (.+)", re.MULTILINE)
# By process and port: kept for the next request, such as the one before each cold search.
_idle: defaultdict[tuple[int, int], list[HTTPConnection]] = defaultdict(list)


def get(port: int, path: str, *, timeout_s: float = 10.0) -> Any:  # noqa: ANN401 - JSON
    """``GET path`` on 127.0.0.1. Raises SetupError unless the node answers with success and JSON."""
    return _send("GET", port, path, timeout_s)


def post(port: int, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float = 30.0) -> Any:  # noqa: ANN401 - JSON
    """``POST path``, with a JSON body if given; otherwise like ``get``."""
    return _send("POST", port, path, timeout_s, body)


def put(port: int, path: str, body: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
    return _send("PUT", port, path, 30.0, body)


def delete(port: int, path: str) -> Any:  # noqa: ANN401 - JSON
    return _send("DELETE", port, path, 30.0)


def is_ready(port: int, *, nodes: int = 1, patience_s: float = 1.0) -> bool:
    """Whether the node is in a cluster of this size with a master and all primary shards.

    Asks once, for an answer within ``patience_s``.
    """
    wanted = f"wait_for_status=yellow&wait_for_nodes={nodes}&timeout={patience_s:.0f}s"
    try:
        health = get(port, f"/_cluster/health?{wanted}", timeout_s=patience_s + 2.0)
    except SetupError:
        return False
    return health.get("status") in ("yellow", "green") and not health.get("timed_out", True)


def active_shards(port: int) -> int:
    """Copies of shards that the node's cluster serves; 0 if it does not say."""
    with suppress(SetupError):
        return int(get(port, "/_cluster/health?filter_path=active_shards").get("active_shards", 0))
    return 0


def missing_shard(port: int) -> str:
    """The unserved shard and the node's explanation; "" if it has none or misses none."""
    with suppress(SetupError, KeyError, TypeError):
        facts = get(port, "/_cluster/allocation/explain")
        if facts["primary"]:
            why = facts["unassigned_info"].get("details") or facts["allocate_explanation"]
            why = [why, *_CAUSE.findall(why)][-1]  # a Java stack's last cause is the root
            way = "give data and an image (ES_IMAGE) that have all of it, or a snapshot of others"
            if refused := _refused(facts):
                why = refused
                way = (
                    "set it to null where the index is made (by a task of the track, or on a node of your "
                    "own that you stop again), or give a snapshot"
                )
            text = _line(f"shard {facts['shard']} of {facts['index']} is missing: {why}")
            return f"{text}; {way}"
    return ""


def _refused(explained: Mapping[str, Any]) -> str:
    """The setting of an index or the cluster that keeps a shard from a node with its files."""
    for node in explained.get("node_allocation_decisions", ()):
        for decider in node.get("deciders", ()):
            if decider["decider"] in ("filter", "enable"):
                return str(decider["explanation"])
    return ""


def round_trip_s(port: int) -> float:
    """Seconds that a node takes to answer ``GET /``, on one connection: the median of several times."""
    connection = HTTPConnection("127.0.0.1", port, timeout=10.0)
    took = []
    try:
        for _ in range(_ROUND_TRIPS):
            began_s = time.perf_counter()
            connection.request("GET", "/")
            connection.getresponse().read()
            took.append(time.perf_counter() - began_s)
    except (HTTPException, OSError) as error:
        raise SetupError(
            f"http://127.0.0.1:{port}/: {error}; see the node's log with 'docker logs'"
        ) from error
    finally:
        connection.close()
    return statistics.median(took[1:])  # the first request connects


def _send(method: str, port: int, path: str, timeout_s: float, body: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401 - JSON
    connection = _connection(port, timeout_s)
    sent = None if body is None else json.dumps(body)
    try:
        connection.request(method, path, sent, {"Content-Type": "application/json"} if sent else {})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status >= HTTPStatus.MULTIPLE_CHOICES:
            raise HTTPException(f"HTTP Error {answer.status}: {answer.reason}{_answered(text)}")
        result = json.loads(text)
    except (HTTPException, OSError, ValueError) as error:
        connection.close()
        url = f"http://127.0.0.1:{port}{path}"
        raise SetupError(f"{url}: {error}; see the node's log with 'docker logs'") from error
    _idle[os.getpid(), port].append(connection)
    return result


def _connection(port: int, timeout_s: float) -> HTTPConnection:
    """An idle connection that the node has not closed, or a new one."""
    idle = _idle[os.getpid(), port]
    while idle:
        connection = idle.pop()
        closed = select.poll()
        if connection.sock is not None:
            closed.register(connection.sock, select.POLLIN)
            if not closed.poll(0):
                connection.sock.settimeout(timeout_s)
                return connection
        connection.close()
    return HTTPConnection("127.0.0.1", port, timeout=timeout_s)


def _answered(body: bytes) -> str:
    try:
        reason = root_cause(json.loads(body))
    except ValueError:
        return ""
    return f": {reason}" if reason else ""


def root_cause(answer: object) -> str:
    """The innermost reason in an Elasticsearch error's body, on one line; "" if there is none."""
    cause = answer.get("error") if isinstance(answer, Mapping) else None
    while isinstance(cause, Mapping) and isinstance(cause.get("caused_by"), Mapping):
        cause = cause["caused_by"]
    text = cause.get("reason") if isinstance(cause, Mapping) else cause
    return _line(str(text or ""))


def _line(reason: str) -> str:
    return " ".join(reason.split())[:_REASON_SIGNS]
