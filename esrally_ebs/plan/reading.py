"""TOML text and overrides in, a validated Plan out, or one line that names file, key and what is allowed."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from esrally_ebs.errors import PlanError
from esrally_ebs.plan.tables import Plan
from esrally_ebs.plan.values import DATE, NAME, REGION


def parse_plan(text: str, source: str, overrides: Mapping[str, Any] | None = None) -> Plan:
    """A plan from TOML text, with dotted overrides (``{"design.rounds": 2}``) laid over it.

    ``source`` is the file's name, for messages only. Raises PlanError with file, key and what is allowed.
    """
    try:
        table = tomllib.loads(text)
    except ValueError as error:  # also of a number with more digits than Python reads
        raise PlanError(f"{source}: not TOML: {error}") from error
    except RecursionError as error:
        raise PlanError(
            f"{source}: lists or tables are nested too deeply; no key of a plan needs it"
        ) from error
    for key, value in (overrides or {}).items():
        _lay_over(table, key, value, source)
    try:
        return Plan.model_validate(table)
    except ValidationError as error:
        raise PlanError(f"{source}: {_first_problem(error)}") from error


def _lay_over(table: dict[str, Any], key: str, value: Any, source: str) -> None:  # noqa: ANN401
    *path, last = key.split(".")
    here: Any = table
    for part in path:
        here = here.setdefault(part, {}) if isinstance(here, dict) else None
    if not isinstance(here, dict):
        raise PlanError(f"{source}: --set {key}: only tables can be set; edit the plan for lists")
    here[last] = value


# What pydantic says in the words of its own types.
_PLAINLY = {
    "extra_forbidden": "unknown key; see docs/plans.md for the keys",
    "missing": "is required; see docs/plans.md",
    "tuple_type": "is not a list; write [...], or [[...]] before each of its tables",
    "model_type": "is not a table; write [...] before its keys",
}
_PATTERNS = {
    NAME: "is not a name; use up to 31 lower-case letters, digits and '-'",
    REGION: "is not a region; write for example 'eu-west-1'",
    DATE: "is not a date; write a year, month or day: '2015', '2015-07' or '2015-07-15'",
}


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    more = error.error_count() - 1
    text = _PLAINLY.get(problem["type"], problem["msg"].removeprefix("Value error, "))
    pattern = problem.get("ctx", {}).get("pattern")
    if pattern in _PATTERNS:
        text = f"{problem['input']!r} {_PATTERNS[pattern]}"
    return f"{where + ': ' if where else ''}{text}" + (f" (and {more} more)" if more else "")


def load_plan(path: Path, overrides: Mapping[str, Any] | None = None) -> Plan:
    """Read and validate a plan file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PlanError(
            f"{path}: {error.strerror}; plans are TOML files such as pipelines/gp2-vs-gp3.toml"
        ) from error
    except UnicodeDecodeError as error:
        raise PlanError(f"{path}: not UTF-8 at byte {error.start:,}; save it as UTF-8, as TOML is") from error
    return parse_plan(text, str(path), overrides)
