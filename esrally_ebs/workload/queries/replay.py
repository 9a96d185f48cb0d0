"""Requests of an imported workload, as Rally asks its parameter sources for them.

Rally makes one source per task and process, so a source keeps only where each of its requests is in
``queries.ndjson`` (8 bytes each) and reads it when its turn comes.
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

PARAM_SOURCE: Final = "ebs-workload"
QUERIES: Final = "queries.ndjson"
TEMPLATES: Final = "templates"  # key of how many of them a whole log has
MAX_TASKS: Final = 20  # of the default challenge; the share of what has no task is said
# Every other request of a template is this share of it further, from the fastest in the log to the slowest
# (the golden ratio spreads any number of them evenly); the one after it is as far from the other end.
_STRIDE: Final = (math.sqrt(5) - 1) / 2


class Replay:
    """Parameters of Rally's ``search`` from ``queries.ndjson`` in the track's directory.

    With ``template`` in the operation: that template's requests, spread over their durations in the log (over
    the log, if it has none), none twice before all have been once, without end, from the one numbered
    ``first`` on. Without: the whole log in
    order, once (with ``cycle`` again and again), or with ``piece`` = (number from 1, of how many) a piece of
    it; each client takes its share.
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
        """Whether it begins again after its last request."""
        return self._cycles or self._template is not None

    @property
    def percent_completed(self) -> float | None:
        """How much of the log has been asked for, 0 to 1; None for a template."""
        return None if self.infinite else self._asked * self._clients / len(self)

    def __len__(self) -> int:
        """Of how many requests it is."""
        return len(self._offsets)

    def partition(self, index: int, total: int) -> "Replay":
        """The requests of one client of ``total``."""
        part = Replay.__new__(Replay)
        part.__dict__ = {**self.__dict__, "_client": index, "_clients": total, "_asked": 0}
        return part

    def due_s(self) -> float:
        """When the log has the next request, s since its first; StopIteration after the last."""
        return self._at(self._position()) - self._at(0)

    def gap_s(self) -> float:
        """From one request to the next in the mean, s; 0 where there is but one."""
        count = len(self)
        return (self._at(count - 1) - self._at(0)) / (count - 1) if count > 1 else 0.0

    def _at(self, position: int) -> float:
        return float(self._read(position)["at"])

    def _position(self) -> int:
        """The place of the next request in ``_offsets``; StopIteration after the last of the log."""
        position = self._first + self._asked * self._clients + self._client
        count = len(self._offsets)
        if position >= count and not self.infinite:
            raise StopIteration
        return position % count

    def params(self) -> dict[str, Any]:
        """The next request; StopIteration after the last of the log."""
        request = self._read(self._position())
        self._asked += 1
        index = request["path"].rpartition("/")[0].lstrip("/")  # quoted, as Rally puts it into a path
        return {
            "operation-type": "search",
            "index": index,
            "type": None,
            # or requests that are asked again, and those with fixed dates, would not reach the volume
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
        except (orjson.JSONDecodeError, AttributeError):  # the latter of what is no object
            pass
        raise PlanError(f"{self._path}: no request: {line[:80]!r}; {_AGAIN}")


_PARTS: Final = frozenset(("at", "path", "params", "body"))
_AGAIN: Final = "import the workload again, from this file if you have changed it"
_LENGTH_BITS: Final = 26  # of a line: up to 64 MiB
_LENGTH_MASK: Final = (1 << _LENGTH_BITS) - 1


def _piece(offsets: "array[int]", number: int, of: int, path: Path) -> "array[int]":
    size = len(offsets) // of
    if size == 0:
        raise PlanError(f"{path}: {len(offsets)} requests are too few for {of} rounds; ask for fewer rounds")
    return offsets[(number - 1) * size : number * size]


def _version(path: Path) -> int:
    """When the file was last written; 0 when it is not there."""
    return path.stat().st_mtime_ns if path.exists() else 0


@cache
def _opened(path: Path, version: int) -> int:
    """The log, open for all sources of a process: of a knee's clients each has one for each template."""
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


@lru_cache(maxsize=MAX_TASKS)
def _offsets(path: Path, template: str | None, version: int) -> "array[int]":
    """Where the requests of a template (None = all) are: offset and length in one number.

    Kept, since each block of a race has a source of its own, which would read the whole file again.
    """
    ending = f'"template":"{template}"}}\n'.encode() if template is not None else b""
    offsets, took_ms = array("Q"), array("d")
    start = 0
    try:
        with path.open("rb") as lines:
            for line in lines:
                if line.endswith(ending) and not line.isspace():
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
    """The same in another order: any number of the first have the median of all durations, nearly."""
    import numpy as np  # here, where requests are replayed: to make a track of logs needs none of it

    shares = (0.5 + np.arange(len(offsets) // 2 + 1) * _STRIDE) % 1
    both = np.stack([shares, 1 - shares], axis=1).ravel()[: len(offsets)]
    turns = both.argsort(kind="stable").argsort()
    return array("Q", np.array(offsets, np.uint64)[np.argsort(took_ms, kind="stable")[turns]].tobytes())


def _took_ms(line: bytes) -> float:
    """The log's duration of a request; 0 where it has none. Without reading all of a long body."""
    number = re.match(rb"\d+(?:\.\d+)?(?:e[+-]?\d+)?", line.rpartition(b'"took_ms":')[2])
    return float(number[0]) if number else 0.0
