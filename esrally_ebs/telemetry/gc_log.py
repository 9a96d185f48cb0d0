"""Follows a node's garbage collection log (``-Xlog:gc:file=...:utctime``): gives pauses.

Source: JEP 158 for the decorations, JEP 271 for the collector's messages. A pause is logged when it ends.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from esrally_ebs.errors import SetupError
from esrally_ebs.model import Node

# As compose/node.yml sets it, inside the node's container.
LOG = Path("usr/share/elasticsearch/logs/ebs-gc.log")

# [2026-11-21T08:10:11.123+0000] GC(5) Pause Young (Normal) (G1 Evacuation Pause) 102M->31M(512M) 6.123ms
# Other decorations ([info], [gc], the pid) may come between time and text.
_PAUSE = re.compile(
    r"^\[(?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.,]\d{3}[+-]\d{4})\](?:\[[^\]]*\])*\s+"
    r"(?:GC\(\d+\)\s+)?(?P<what>Pause [A-Za-z ]*(?:\([^()]*\)\s?)*).*?(?P<ms>\d+[.,]\d+)ms\s*$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A pause of all threads of a JVM."""

    end_at: float  # epoch seconds, to a millisecond
    seconds: float
    text: str  # the collector's name for it: "Pause Young (Normal) (G1 Evacuation Pause)"


def parse_pauses(text: str) -> list[Pause]:
    """Pauses in the lines of a log; skips all other lines (concurrent phases, other tags)."""
    pauses = []
    for match in filter(None, map(_PAUSE.match, text.splitlines())):
        seconds = float(match["ms"].replace(",", ".")) / 1000
        with suppress(ValueError):  # the 31st of February
            end_at = datetime.fromisoformat(match["at"]).timestamp()
            pauses.append(Pause(end_at=end_at, seconds=seconds, text=match["what"].strip()))
    return pauses


def log_of(node: Node) -> Path:
    """Path of a node's log in its container, through its process's root directory."""
    return Path(f"/proc/{node.pid}/root") / LOG


class GcLog:
    """Pauses of one JVM; none if there is no log (another kind of node)."""

    def __init__(self, open_: Callable[[], BinaryIO]) -> None:
        """``open_`` opens the current log at its beginning; it may raise OSError or SetupError."""
        self._open = open_
        self._read = 0
        self._rest = b""

    def new(self) -> list[Pause]:
        """Pauses since the last call; at first, since the node's start. Never raises."""
        try:
            with self._open() as file:
                if file.seek(0, 2) < self._read:  # the JVM began a new file
                    self._read, self._rest = 0, b""
                file.seek(self._read)
                data = file.read()
        except (OSError, SetupError):
            return []
        self._read += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return parse_pauses("\n".join(line.decode(errors="replace") for line in lines))
