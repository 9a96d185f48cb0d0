"""Writes the imported workload as a Rally track: all files except ``queries.ndjson``."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from esrally_ebs.units import number_of
from esrally_ebs.workload.queries.replay import MAX_TASKS, PARAM_SOURCE, TEMPLATES
from esrally_ebs.workload.queries.shapes import Template, Templates

TRACK_PY: Final = '''"""Rally loads this file; all it does is hand Rally's registry to the pack."""

from esrally_ebs.rally import register  # noqa: F401 - Rally calls track.register(registry)
'''

# The first lines mention the pack's track parameters, as Rally refuses parameters that a track does not use.
_TRACK: Final = """{%%- set session = {
  "plan": plan | default(""),
  "volumes": volumes | default(""),
  "rounds": rounds | default(0),
  "max_rounds": max_rounds | default(0),
  "budget": budget | default(""),
  "cache": cache | default(""),
  "accept": accept | default(""),
  "data": data | default(""),
  "snapshot": snapshot | default(""),
  "indices": indices | default(""),
  "set": set | default({})
} %%}
{
  "version": 2,
  "description": %(description)s,%(indices)s
  "operations": [
%(operations)s
  ],
  "challenges": [
    {
      "name": "by-template",
      "description": "Each template's requests, one template after the other",
      "default": true,
      "schedule": [
%(tasks)s
      ]
    },
    {
      "name": "in-order",
      "description": "The whole log, once, in its order; in rounds, a piece of it in each",
      "schedule": [
        {
          "operation": "whole-log",
          "tags": ["search"],
          {%%- if iterations is defined %%}
          "iterations": {{ iterations }},
          {%%- endif %%}
          "clients": {{ search_clients | default(1) }}
        }
      ]
    }%(as_logged)s
  ]
}
"""
# Left out if the log names only patterns: Rally refuses an empty list.
_INDICES: Final = """
  "indices": %s,"""
# Left out if the log has no arrivals: all requests would be due at once.
_AS_LOGGED: Final = """,
    {
      "name": "as-logged",
      "description": "The log's own arrivals, a piece of it in each round, the same on every arm",
      "schedule": [
        {
          "operation": "whole-log",
          "tags": ["search"],
          "schedule": "ebs-arrivals",
          "speed": {{ speed | default(1) }},
          "clients": {{ search_clients | default(8) }}
        }
      ]
    }"""
_AT_ITS_TIMES: Final = ", `as-logged` at the log's own times (`speed:2`: twice as fast)"
_TASK: Final = """        {
          "operation": %(name)s,
          "tags": ["search"],
          "clients": {{ search_clients | default(1) }},
          "warmup-iterations": {{ warmup_iterations | default(%(warmup)d) }},
          "iterations": {{ iterations | default(%(iterations)d) }}
        }"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSummary:
    """Result of one import; ``lines`` counts the logs' lines, all else searches and requests."""

    output: Path
    format: str
    lines: int
    requests: int
    joined: int  # lines that were added to a request begun by another line
    seconds: float  # from the first request to the last
    templates: int
    excluded: Mapping[str, int]  # number by reason
    first: Mapping[str, str]  # reason -> first occurrence: "search.json:12"
    changed: Mapping[str, int]  # number by kind of change from the log's request
    notes: Sequence[str]  # what the log lacks
    has_arrivals: bool  # its times are a real load's
    digest: str  # hash of the requests

    def text(self) -> str:
        rows = [
            f"{self.output}: {number_of(self.requests, 'request')} over {self.seconds:,.1f} s, "
            f"{number_of(self.templates, 'template')}, from {number_of(self.lines, 'line')} ({self.format})"
        ]
        if self.joined:
            rows.append(f"  {number_of(self.joined, 'line')} of further shards and phases of these requests")
        rows += [
            f"  left out {count:,}: {reason}"
            + (f" (first {self.first[reason]})" if reason in self.first else "")
            for reason, count in sorted(self.excluded.items(), key=lambda item: -item[1])
        ]
        rows += [f"  changed {count:,}: {how}" for how, count in sorted(self.changed.items())]
        rows += [f"  note: {note}" for note in self.notes]
        return "\n".join(rows) + "\n"


def write_track(folder: Path, summary: ImportSummary, templates: Templates, indices: Sequence[str]) -> None:
    """Write track.json, track.py, README.md, templates.json and excluded.json into ``folder``."""
    ranked = templates.ranked()
    tasks = ranked[:MAX_TASKS]
    texts = {
        "track.json": _track(summary, tasks, indices),
        "track.py": TRACK_PY,
        "README.md": _readme(summary, ranked, tasks),
        "excluded.json": _pretty(_excluded(summary)),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    with (folder / "templates.json").open("w", encoding="utf-8") as file:
        file.writelines(_templates(summary, templates))


def _templates(summary: ImportSummary, templates: Templates) -> Iterator[str]:
    """The text of templates.json, template by template: all at once take ten times the memory."""
    yield f'{{\n  "format": 1,\n  "requests": {summary.requests},\n  "templates": ['
    for number, row in enumerate(templates.rows()):
        yield f"{',' if number else ''}\n{_pretty(row).rstrip()}".replace("\n", "\n    ")
    yield "\n  ]\n}\n"


def _excluded(summary: ImportSummary) -> dict[str, Any]:
    return {
        "format": 1,
        "source": summary.format,
        "lines": summary.lines,
        "requests": summary.requests,
        "joined": summary.joined,
        "excluded": dict(sorted(summary.excluded.items())),
        "first": dict(sorted(summary.first.items())),
        "changed": dict(sorted(summary.changed.items())),
        "notes": list(summary.notes),
    }


def _track(summary: ImportSummary, tasks: Sequence[Template], indices: Sequence[str]) -> str:
    # sessions with other requests are not compared: their digests differ
    search = {"operation-type": "search", "param-source": PARAM_SOURCE, "queries": summary.digest}
    operations: list[dict[str, Any]] = [
        {"name": each.name, **search, "template": each.name} for each in tasks
    ]
    operations.append({"name": "whole-log", **search, TEMPLATES: len(tasks)})
    return _TRACK % {
        "description": _plain(f"{number_of(summary.requests, 'request')} of a log ({summary.format})"),
        "indices": _INDICES % _plain([{"name": name} for name in indices]) if indices else "",
        "as_logged": _AS_LOGGED if summary.has_arrivals else "",
        "operations": ",\n".join(f"    {_plain(operation)}" for operation in operations),
        "tasks": ",\n".join(
            _TASK
            % {"name": _plain(task.name), "warmup": min(task.count, 100), "iterations": min(task.count, 500)}
            for task in tasks
        ),
    }


def _plain(value: Any) -> str:  # noqa: ANN401 - what JSON can hold
    """JSON without Jinja syntax, as Rally reads tracks with Jinja: ``{{`` in an index's name."""
    text = orjson.dumps(value).decode()
    return re.sub(r'"(?:[^"\\]|\\.)*"', lambda part: _escaped(part[0]), text)


def _escaped(string: str) -> str:
    return re.sub(r"[{}%#]", lambda char: f"\\u{ord(char[0]):04x}", string)


def _readme(summary: ImportSummary, ranked: Sequence[Template], tasks: Sequence[Template]) -> str:
    share = sum(task.count for task in tasks) / summary.requests
    parts = [
        "# An imported workload",
        f"{number_of(summary.requests, 'request')} over {summary.seconds:,.1f} s in "
        f"{number_of(len(ranked), 'template')}, from {number_of(summary.lines, 'line')} of: "
        f"{summary.format}. Race it with `esrally race --track-path=` and this directory, on the indices of "
        "a stopped node's data directory with `--track-params=data:/path`.",
        "`by-template` (the default challenge) has a task for each of the most frequent templates "
        f"({len(tasks)}), {share:.1%} of all requests; `in-order` asks the whole log once, a piece in each "
        f"round{_AT_ITS_TIMES if summary.has_arrivals else ''}. Track parameters: "
        "`iterations`, `warmup_iterations`, `search_clients`, and the pack's own.",
        "`queries.ndjson` holds the queries with their literals, unless hashed; no other file does. "
        "`templates.json` has each template's share and what it took in the log; `excluded.json` what was "
        "left out, what was changed, and what the log does not tell.",
    ]
    return "\n\n".join(parts) + "\n"


def _pretty(value: Any) -> str:  # noqa: ANN401
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n"
