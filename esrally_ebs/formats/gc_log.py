"""The JVM's unified log of its garbage collector (``-Xlog:gc:file=...:utctime``): lines in, pauses out.

Source: JEP 158 for the decorations, JEP 271 for what the collector says. A pause is logged when it ends.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

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
