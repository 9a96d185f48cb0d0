"""Replays an imported workload's requests as a Rally parameter source.

Rally makes a source for each task and process, so a source only keeps the places of its requests in
``queries.ndjson`` (8 bytes each), and reads a request when it is needed.
"""

import math
import os
import re
from array import array
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

import orjson

from esrally_ebs.errors import PlanError
from esrally_ebs.units import number_of

PARAM_SOURCE: Final = "ebs-workload"
QUERIES: Final = "queries.ndjson"
TEMPLATES: Final = "templates"  # key: number of templates in a whole log
MAX_TASKS: Final = 20  # of the default challenge; the share without a task is reported
# Requests of a template alternate: one is this share further from the fastest to the slowest (multiples of
# the golden ratio are evenly spread), the next as far from the other end.
_STRIDE: Final = (math.sqrt(5) - 1) / 2


class Replay:
    """Parameters for Rally's ``search`` from ``queries.ndjson`` in the track's directory.

    With ``template`` in the operation: that template's requests, from number ``first`` on, without end;
    spread over their durations in the log (over the log, if it has none), all once before any repeats.
    Without: the whole log in order, once (with ``cycle``, repeatedly), or with ``piece`` = (number from 1, of
    how many) a piece of it; each client takes its share.
    """

    def __init__(self, track: Any, params: dict[str, Any], **_: object) -> None:  # noqa: ANN401 - Rally's
        self._template = params.get("template")
        self._path = Path(track.root) / QUERIES
        self._version = _version(self._path)
        self._offsets = _offsets(self._path, self._template, self._version)
        self._cycles = bool(params.get("cycle"))
        self._first = int(params.get("first", 0))
        if "piece" in params:
            number, of = params["piece"]
            self._offsets = _piece(self._offsets, number, of, self._path)
        self._settings: dict[str, Any] = {
            name: params[name] for name in ("cache", "detailed-results") if name in params
        }
        self._client, self._clients = 0, 1
        self._asked = 0

    @property
    def infinite(self) -> bool:
        """Whether it starts over after its last request."""
        return self._cycles or self._template is not None

    @property
    def percent_completed(self) -> float | None:
        """Share of the log that has been sent, 0 to 1; None for a template."""
        return None if self.infinite else self._asked * self._clients / len(self)

    def __len__(self) -> int:
        """Number of its requests."""
        return len(self._offsets)

    def partition(self, index: int, total: int) -> "Replay":
        """The requests of one client of ``total``."""
        part = Replay.__new__(Replay)
        part.__dict__ = {**self.__dict__, "_client": index, "_clients": total, "_asked": 0}
        return part

    def due_s(self) -> float:
        """When the log's next request is due, in seconds since its first. StopIteration after the last."""
        return self._at(self._position()) - self._at(0)

    def gap_s(self) -> float:
        """Mean seconds between requests; 0 if there is only one."""
        count = len(self)
        return (self._at(count - 1) - self._at(0)) / (count - 1) if count > 1 else 0.0

    def _at(self, position: int) -> float:
        return float(self._read(position)["at"])

    def _position(self) -> int:
        """Index of the next request in ``_offsets``. StopIteration after the log's last."""
        position = self._first + self._asked * self._clients + self._client
        count = len(self._offsets)
        if position >= count and not self.infinite:
            raise StopIteration
        return position % count

    def params(self) -> dict[str, Any]:
        """The next request. StopIteration after the log's last."""
        request = self._read(self._position())
        self._asked += 1
        index = request["path"].rpartition("/")[0].lstrip("/")  # quoted, as Rally puts it into a path
        return {
            "operation-type": "search",
            "index": index,
            "type": None,
            # else repeated requests, and those with fixed dates, would not reach the volume
            "cache": None if "request_cache" in request["params"] else False,
            "detailed-results": False,
            "response-compression-enabled": True,
            **self._settings,
            "request-params": request["params"],
            "body": request["body"],
        }

    def _read(self, position: int) -> dict[str, Any]:
        start, end = self._offsets[position] >> _LENGTH_BITS, self._offsets[position] & _LENGTH_MASK
        line = os.pread(_opened(self._path, self._version), end, start)
        try:
            request: dict[str, Any] = orjson.loads(line)
            if request.keys() >= _PARTS:
                return request
        except (orjson.JSONDecodeError, AttributeError):  # AttributeError: no object
            pass
        raise PlanError(f"{self._path}: no request: {line[:80]!r}; {_AGAIN}")


_PARTS: Final = frozenset(("at", "path", "params", "body"))
_AGAIN: Final = "import the workload again, from this file if you have changed it"
_LENGTH_BITS: Final = 28  # of a line's length: hashed words of a line of 16 MiB take more than 100
_LENGTH_MASK: Final = (1 << _LENGTH_BITS) - 1


def _piece(offsets: "array[int]", number: int, of: int, path: Path) -> "array[int]":
    size = len(offsets) // of
    if size == 0:
        requests = number_of(len(offsets), "request")
        raise PlanError(f"{path}: {requests} cannot fill {of} rounds; ask for fewer rounds")
    return offsets[(number - 1) * size : number * size]


def _version(path: Path) -> int:
    """When the file was last written; 0 if it does not exist."""
    return path.stat().st_mtime_ns if path.exists() else 0


@cache
def _opened(path: Path, version: int) -> int:
    """The log, opened once for all sources in a process: a knee's clients have one for each template."""
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


@lru_cache(maxsize=MAX_TASKS)
def _offsets(path: Path, template: str | None, version: int) -> "array[int]":
    """Places of a template's requests (None = all): offset and length in one number.

    Cached, since each block of a race has its own source, which would read the whole file again.
    """
    ending = f'"template":"{template}"}}\n'.encode() if template is not None else b""
    offsets, took_ms = array("Q"), array("d")
    start = 0
    try:
        with path.open("rb") as lines:
            for line in lines:
                if line.endswith(ending) and not line.isspace():
                    if start >> (64 - _LENGTH_BITS):
                        raise PlanError(f"{path}: is over 64 GiB; import a part of the log")
                    offsets.append(start << _LENGTH_BITS | len(line))
                    took_ms.append(_took_ms(line) if template is not None else 0.0)
                start += len(line)
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}; import the workload again") from error
    if not offsets:
        what = f"no request of template {template}" if template else "no request"
        raise PlanError(f"{path}: has {what}; {_AGAIN}")
    return offsets if template is None else _spread(offsets, took_ms)


def _spread(offsets: "array[int]", took_ms: "array[float]") -> "array[int]":
    """Reordered so that any number of first entries has nearly the median of all durations."""
    import numpy as np  # imported here, for replaying: making a track from logs does not need it

    shares = (0.5 + np.arange(len(offsets) // 2 + 1) * _STRIDE) % 1
    both = np.stack([shares, 1 - shares], axis=1).ravel()[: len(offsets)]
    turns = both.argsort(kind="stable").argsort()
    return array("Q", np.array(offsets, np.uint64)[np.argsort(took_ms, kind="stable")[turns]].tobytes())


def _took_ms(line: bytes) -> float:
    """A request's duration in the log; 0 if it has none. Does not parse long bodies completely."""
    number = re.match(rb"\d+(?:\.\d+)?(?:e[+-]?\d+)?", line.rpartition(b'"took_ms":')[2])
    return float(number[0]) if number else 0.0
