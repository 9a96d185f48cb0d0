"""The few questions that the pack itself asks a node over HTTP; Rally asks all others."""

import json
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any

from esrally_ebs.errors import SetupError

# 127.0.0.1 is never behind a proxy, whatever the environment says
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get(port: int, path: str, *, timeout_s: float = 10.0) -> Any:  # noqa: ANN401 - JSON
    """``GET path`` on 127.0.0.1; SetupError when the node does not answer with JSON and success."""
    url = f"http://127.0.0.1:{port}{path}"
    try:
        with _OPENER.open(url, timeout=timeout_s) as answer:
            return json.load(answer)
    except (urllib.error.URLError, HTTPException, OSError, ValueError) as error:
        raise SetupError(f"{url}: {error}; see the node's log with 'docker logs'") from error


def is_ready(port: int) -> bool:
    """Whether the node is its own master and every primary shard is there."""
    try:
        health = get(port, "/_cluster/health?wait_for_status=yellow&timeout=1s", timeout_s=3.0)
    except SetupError:
        return False
    return health.get("status") in ("yellow", "green") and not health.get("timed_out", True)
