"""The catalog's data as of a date: from ``catalog.json`` to the constants of a volume type or instance.

A type has generations, from the days on which AWS changed its limits; each has only what changed. Every
constant has the key of its source, and every source has a date.
"""

import json
from calendar import monthrange
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date as day
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from esrally_ebs.errors import PlanError
from esrally_ebs.model import VolumeSpec
from esrally_ebs.units import GIB, MIB

Constants = Mapping[str, Any]
_FORGOTTEN_UNIT = 1e-3  # of a GiB or MiB/s: probably a unit was left out


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A type's constants from one day on."""

    type: str  # as the catalog calls it
    rule: str  # name of the rule from its constants to limits
    since: str  # ISO date
    constants: Constants
    sources: tuple[str, ...]  # of the constants, with dates


def who(spec: VolumeSpec) -> str:
    """A volume's name in messages."""
    return f"{spec.type} volume '{spec.name}'"


def outside(number: float, low: float, high: float, unit: str) -> str:
    """Message that a number is out of bounds, with enough digits to see the difference."""
    if 0 < number < _FORGOTTEN_UNIT:
        count = round(number * (GIB if unit == "GiB" else MIB))
        return f"{count:,} bytes are outside {low:,} to {high:,.0f} {unit}: a number without a unit is bytes"
    texts = (f"{number:.{digits}g}" for digits in range(6, 18))
    text = next((text for text in texts if not low <= float(text) <= high), str(number))
    return f"{text} {unit} is outside {low:,} to {high:,.0f} {unit}"


def volume_types() -> tuple[str, ...]:
    return tuple(_catalog()["types"])


def type_aliases() -> tuple[str, ...]:
    return tuple(_catalog()["aliases"])


def generation_of(spec: VolumeSpec) -> Generation:
    """The generation of the spec's type at its date (default: the newest) on its instance.

    Raises PlanError if the type is unknown or did not exist yet, or the day does not exist.
    """
    catalog = _catalog()
    type_ = catalog["aliases"].get(spec.type, spec.type)
    if type_ not in catalog["types"]:
        raise PlanError(
            f"volume '{spec.name}': no type {spec.type!r}; use one of {', '.join(volume_types())}", key="type"
        )
    until = "9999" if spec.date is None else last_day(_checked(spec.date, spec))
    entry = catalog["types"][type_]
    generations = [each for each in entry["generations"] if each["since"] <= until and _reaches(each, spec)]
    if not generations:
        first = entry["generations"][0]["since"]
        raise PlanError(
            f"{who(spec)}: there was none on {until}, the type is of {first}; change date or type", key="date"
        )
    return _merged(type_, entry["rule"], generations)


def _checked(date: str, spec: VolumeSpec) -> str:
    try:
        day.fromisoformat(date + "2000-01-01"[len(date) :])
    except ValueError:
        raise PlanError(
            f"{who(spec)}: there is no day {date!r}; give date as '2015', '2015-07' or '2015-07-31'",
            key="date",
        ) from None
    return date


def _reaches(generation: Mapping[str, Any], spec: VolumeSpec) -> bool:
    """Whether the spec's instance has this generation's improvements; some came to few families first.

    A type named after the improvement has it if no instance is named.
    """
    if "only_on" not in generation:
        return True
    families, _ = generation["only_on"]
    if spec.instance is None:
        return spec.type in _catalog()["aliases"]
    return spec.instance.partition(".")[0] in families


def last_day(date: str) -> str:
    """The last day of a year, month or day, as text that sorts like dates."""
    if len(date) == len("2015-07"):
        return f"{date}-{monthrange(*map(int, date.split('-')))[1]}"
    return date + "9999-12-31"[len(date) :]


def instance_named(name: str, who: str) -> Mapping[str, Any]:
    """The entry of an EC2 instance type; ``who`` is for the PlanError if it is unknown.

    A suffix after ``#`` only distinguishes instances of one type.
    """
    instances: Mapping[str, Mapping[str, Any]] = _catalog()["instances"]
    type_ = name.partition("#")[0]
    if type_ not in instances:
        names = get_close_matches(type_, instances, n=5, cutoff=0.5)
        raise PlanError(
            f"{who}: no instance type {type_!r}"
            + "; 'catalog.json' has all that are known"
            + (f"; did you mean {', '.join(names)}?" if names else ""),
            key="instance",
        )
    return instances[type_]


def constant(name: str) -> Any:  # noqa: ANN401 - whatever the catalog holds
    """A constant that belongs to no type."""
    return _catalog()[name][0]


@cache
def _catalog() -> Mapping[str, Any]:
    parsed: Mapping[str, Any] = json.loads(Path(__file__).with_name("catalog.json").read_text())
    return parsed


def _merged(type_: str, rule: str, generations: Sequence[Mapping[str, Any]]) -> Generation:
    merged = {name: value for generation in generations for name, value in generation.items()}
    since = merged.pop("since")
    for name in ("note", "only_on"):
        merged.pop(name, None)
    sources = (_catalog()["sources"][key] for key in dict.fromkeys(key for _, key in merged.values()))
    return Generation(
        type=type_,
        rule=rule,
        since=since,
        constants={name: value for name, (value, _) in merged.items()},
        sources=tuple(f"{source['text']} ({source['date']})" for source in sources),
    )
