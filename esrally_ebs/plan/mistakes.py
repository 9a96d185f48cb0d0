"""One-line messages about mistakes in a plan: the key, the value, what is allowed, and a close known name."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from esrally_ebs.errors import PlanError, near
from esrally_ebs.model import DATE, ENGINE, NAME, REGION, SNAPSHOT, SSH

Keys = Mapping[str, Sequence[str]]  # allowed keys of each table by its name; "" = the top

# pydantic's messages that use the names of its own types, reworded for users.
_MESSAGES = {
    "missing": "is required; see docs/plans.md",
    "too_short": "is empty; give at least one",
    "tuple_type": "is not a list; write [...], or [[...]] before each of its tables",
    "model_type": "is not a table; write [...] before its keys",
    "dataclass_type": "is not a table; write [...] before its keys",
}
_KINDS = {
    "bool_parsing": "neither true nor false",
    "bool_type": "neither true nor false",
    "int_parsing": "not a whole number",
    "int_type": "not a whole number",
    "int_from_float": "not a whole number",
    "float_parsing": "not a number",
    "float_type": "not a number",
    "string_type": "no text; write it in quotes",  # TOML has dates, too
    "path_type": "no text; write it in quotes",
}
_WORD = re.compile(r"'([^']*)'")
_KEY = re.compile(r"[a-z_]+: ")
_MAX_INTEGER = 2**63  # first integer beyond signed 64 bits
_SHOWN = 60  # characters of a value shown in a message
_PATTERNS = {
    NAME: "is not a name; use up to 31 lower-case letters, digits and '-'",
    REGION: "is not a region; write for example 'eu-west-1'",
    ENGINE: "is no engine of that host; write 'unix:///path/of/its/socket', or a Docker context there",
    SSH: "is no destination of ssh; write 'ssh://user@address:22', or a Host of its configuration",
    SNAPSHOT: "is not a snapshot; write for example 'snap-0123456789abcdef0'",
    DATE: "is not a date; write a year, month or day: '2015', '2015-07' or '2015-07-15'",
}


def keys_of(table: type) -> tuple[str, ...]:
    """Keys that a plan may have in a table, from the class that validates it."""
    return tuple(TypeAdapter(table).json_schema()["properties"])


def unknown_key(document: Mapping[str, Any], keys: Keys) -> str | None:
    """The first unknown key, with the known ones; None when all are known."""
    for name, where, table in _tables(document):
        for key in table:
            if name in keys and key not in keys[name]:
                others = [other for other, known in keys.items() if key in known]
                meant = near(key, keys[name]) or (
                    f"; did you mean {_place(key, others[0])}?" if others else ""
                )
                return f"{where}{key}: unknown key; there are {', '.join(keys[name])}{meant}"
    return None


def _place(key: str, table: str) -> str:
    return f"[{table}] {key}" if table else f"{key} at the top of the plan"


def _tables(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Every table of a plan: its name, the prefix of its keys' paths, and the table."""
    yield "", "", document
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield name, f"{name}.", value
        elif isinstance(value, list):
            for number, entry in enumerate(value):
                if isinstance(entry, Mapping):
                    yield name, f"{name}.{number}.", entry


def refuse_odd_values(value: Any, kept: Any, place: str) -> None:  # noqa: ANN401
    """Raise PlanError for numbers that ``session.json`` cannot keep, text that names no file, and booleans
    where a number belongs (pydantic takes them as 1 or 0).

    ``kept`` is the value as validated; ``place`` is the path of its key.
    """
    if isinstance(value, Mapping | list):
        for key, entry in value.items() if isinstance(value, Mapping) else enumerate(value):
            refuse_odd_values(entry, _part(kept, key), f"{place}{key}.")
    elif isinstance(value, bool):
        if type(kept) in (int, float) and not place.endswith(".repeat."):  # repeat = true means 1
            raise PlanError(f"{place[:-1]}: {str(value).lower()} is not a number")
    elif isinstance(value, str) and "\0" in value:
        raise PlanError(f"{place[:-1]}: {value!r} has a NUL, at which the kernel ends a name; leave it out")
    elif isinstance(value, int | float) and not -_MAX_INTEGER < value < _MAX_INTEGER:
        shown = f"a number of {len(str(value))} digits" if isinstance(value, int) else str(value)
        raise PlanError(f"{place[:-1]}: {shown} does not fit into 64 bits; give one nearer to 0")


def _part(kept: Any, key: str | int) -> Any:  # noqa: ANN401
    """The entry of a table or list at this key or index; None if there is none."""
    try:
        return kept[key]
    except (TypeError, LookupError):
        return None


def first_problem(error: ValidationError) -> str:
    """The first mistake that pydantic reports, and how many others there are."""
    problems = error.errors()
    places = [problem["loc"] for problem in problems]
    # An invalid entry of a list is also reported as a list that is too short.
    own = [
        problem
        for problem, loc in zip(problems, places, strict=True)
        if not any(len(other) > len(loc) and other[: len(loc)] == loc for other in places)
    ]
    more = f" (and {len(own) - 1} more)" if len(own) > 1 else ""
    where, text = ".".join(str(part) for part in own[0]["loc"]), _text(own[0])
    if where:  # a message that names the key itself is appended to the place
        text = f"{where}.{text}" if _KEY.match(text) else f"{where}: {text}"
    return text + more


def _text(problem: Any) -> str:  # noqa: ANN401 - pydantic's own record
    context, value, kind = problem.get("ctx", {}), problem["input"], problem["type"]
    if kind == "value_error":
        return str(context["error"])
    if kind in _MESSAGES:
        return _MESSAGES[kind]
    if kind in _KINDS:
        return f"{(repr(value) if isinstance(value, str) else str(value))[:_SHOWN]} is {_KINDS[kind]}"
    if context.get("pattern") in _PATTERNS:
        return f"{repr(value)[:_SHOWN]} {_PATTERNS[context['pattern']]}"
    allowed = str(problem["msg"]).replace("Input should", "it should")
    meant = near(str(value), _WORD.findall(str(context.get("expected", ""))))
    return f"{repr(value)[:_SHOWN]} is not allowed: {allowed}{meant}"
