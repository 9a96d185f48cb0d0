"""What an import gave: counts, what was left out and why, what the log does not tell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSummary:
    """The result of one import; ``lines`` are those of the logs, all else counts searches and requests."""

    output: Path
    format: str
    lines: int
    requests: int
    joined: int  # lines that belong to a request begun by another line
    seconds: float  # from the first request to the last
    templates: int
    excluded: Mapping[str, int]  # by reason
    first: Mapping[str, str]  # reason -> where it was met first: "search.json:12"
    changed: Mapping[str, int]  # how requests differ from those of the log
    notes: Sequence[str]  # what the log does not tell

    def text(self) -> str:
        """For a terminal."""
        rows = [
            f"{self.output}: {self.requests:,} requests over {self.seconds:,.1f} s, "
            f"{self.templates:,} templates, from {self.lines:,} lines ({self.format})"
        ]
        if self.joined:
            rows.append(f"  {self.joined:,} lines are further shards and phases of these requests")
        rows += [
            f"  left out {count:,}: {reason}"
            + (f" (first {self.first[reason]})" if reason in self.first else "")
            for reason, count in sorted(self.excluded.items(), key=lambda item: -item[1])
        ]
        rows += [f"  changed {count:,}: {how}" for how, count in sorted(self.changed.items())]
        rows += [f"  note: {note}" for note in self.notes]
        return "\n".join(rows) + "\n"
