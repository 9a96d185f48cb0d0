"""A node's garbage collection log (``-Xlog:gc:file=...:utctime``), followed while it grows: pauses out.

Source: JEP 158 for the decorations, JEP 271 for what the collector says. A pause is logged when it ends.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from esrally_ebs.errors import SetupError
from esrally_ebs.model import Node

# Where compose/node.yml lets the JVM write it, inside the node's container.
LOG = Path("usr/share/elasticsearch/logs/ebs-gc.log")

# [2026-11-21T08:10:11.123+0000] GC(5) Pause Young (Normal) (G1 Evacuation Pause) 102M->31M(512M) 6.123ms
# Other decorations ([info], [gc], the pid) may stand between the time and the text.
_PAUSE = re.compile(
    r"^\[(?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.,]\d{3}[+-]\d{4})\](?:\[[^\]]*\])*\s+"
    r"(?:GC\(\d+\)\s+)?(?P<what>Pause [A-Za-z ]*(?:\([^()]*\)\s?)*).*?(?P<ms>\d+[.,]\d+)ms\s*$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """All threads of a JVM stood still."""

    end_at: float  # seconds since the epoch, to a millisecond
    seconds: float
    text: str  # as the collector names it: "Pause Young (Normal) (G1 Evacuation Pause)"


def parse_pauses(text: str) -> list[Pause]:
    """The pauses among the lines of a log; any other line (concurrent phases, other tags) is passed over."""
    return [pause for line in text.splitlines() if (pause := _pause(line)) is not None]


def _pause(line: str) -> Pause | None:
    match = _PAUSE.match(line)
    if match is None:
        return None
    try:
        end = datetime.strptime(match["at"].replace(",", "."), "%Y-%m-%dT%H:%M:%S.%f%z")
    except ValueError:  # the 31st of February
        return None
    return Pause(
        end_at=end.astimezone(UTC).timestamp(),
        seconds=float(match["ms"].replace(",", ".")) / 1000,
        text=match["what"].strip(),
    )


def log_of(node: Node) -> Path:
    """The log of a node in its container, by the root directory of its process."""
    return Path(f"/proc/{node.pid}/root") / LOG


class GcLog:
    """The pauses of one JVM; a log that is not there (a node of another make) has none."""

    def __init__(self, open_: Callable[[], BinaryIO]) -> None:
        """``open_`` gives the log as it is now, at its beginning; it may raise OSError or SetupError."""
        self._open = open_
        self._read = 0
        self._rest = b""

    def new(self) -> list[Pause]:
        """Pauses since the last call; the first call gives all since the node's start. Raises nothing."""
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
