"""What an article published, as data: the JSON beside a study's plan in, a Study out.

Figures are kept as printed. Where the article printed a wrong unit the data name the unit that was meant, so
that both the printed and the corrected figure can be shown.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from esrally_ebs.errors import FormatError

UNITS: Mapping[
    str, float
] = {  # to base units: seconds, bytes, operations, all per second where they are rates
    "": 1.0,
    "IOPS": 1.0,
    "I/Os": 1.0,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "MB/s": 1e6,
    "GB/s": 1e9,
    "MiB/s": 1024.0**2,
    "GiB/s": 1024.0**3,
    "Mbit/s": 1e6 / 8,
    "KiB/s / 1000": 1024e3,  # the article of 2021 prints fio's KiB/s so, and calls them MB/s
    "GB": 1e9,
    "GiB": 1024.0**3,
    "USD": 1.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of figure of a study."""

    key: str
    title: str
    unit: str  # as printed
    meant: str  # what the unit should have been; the same where the article is right
    tolerance: float  # relative


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One figure as printed: a number, or a range from ``low`` to ``high``."""

    arm: str
    job: str
    kind: Kind
    low: float
    high: float
    about: bool = False  # the article says "about", or it was read off a graph
    given: bool = False  # taken into the model or the load: shown, but no test of either
    outside: str = ""  # why the model does not cover it
    correction: str = ""  # what is wrong with the article here
    corrected: float | None = None  # in the printed unit, where more than the unit is wrong

    @property
    def factor(self) -> float:
        """From the figure as printed to base units, as it was meant."""
        return UNITS[self.kind.meant]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What an article published of the jobs of a plan."""

    name: str
    title: str
    source: str
    figures: tuple[Published, ...]
    corrections: tuple[str, ...]
    notes: tuple[str, ...]
    not_covered: tuple[str, ...]
    knife_edges: Mapping[str, str] = field(
        default_factory=dict
    )  # "arm job" or "arm job kind": why it may be off
    settings: Mapping[str, Any] = field(default_factory=dict)  # what only this study needs

    def corrected(self) -> tuple[str, ...]:
        """Everything that the article got wrong, each with what is right."""
        of_figures = [figure.correction for figure in self.figures if figure.correction]
        return tuple(dict.fromkeys([*self.corrections, *of_figures]))


def parse_study(text: str, source: str) -> Study:
    """The data of a study from JSON; FormatError, naming ``source``, when they are not whole."""
    try:
        data = json.loads(text)
        kinds = {key: _kind(key, entry) for key, entry in data["kinds"].items()}
        return Study(
            name=source.removesuffix(".json"),
            title=data["title"],
            source=data["source"],
            figures=tuple(_figures(data["figures"], kinds)),
            corrections=tuple(data["corrections"]),
            notes=tuple(data["notes"]),
            not_covered=tuple(data["not_covered"]),
            knife_edges=data.get("knife_edges", {}),
            settings=data.get("settings", {}),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(
            f"{source}: not the data of a study: {error!r}; install esrally_ebs again"
        ) from error


def _kind(key: str, entry: Mapping[str, Any]) -> Kind:
    unit = entry.get("unit", "")
    meant = entry.get("meant", unit)
    for name in (unit, meant):
        if name not in UNITS:  # now, not when the figure is shown
            raise KeyError(f"unit {name}")
    return Kind(key=key, title=entry["title"], unit=unit, meant=meant, tolerance=entry["tolerance"])


def _figures(groups: Sequence[Mapping[str, Any]], kinds: Mapping[str, Kind]) -> Iterator[Published]:
    for group in groups:
        for key, value in group["values"].items():
            entry = value if isinstance(value, dict) else {"value": value}
            low, high = entry["value"] if isinstance(entry["value"], list) else [entry["value"]] * 2
            yield Published(
                arm=group.get("arm", ""),
                job=group.get("job", ""),
                kind=kinds[key],
                low=float(low),
                high=float(high),
                about=entry.get("about", False),
                given=entry.get("given", False),
                outside=entry.get("outside", ""),
                correction=entry.get("correction", ""),
                corrected=entry.get("corrected"),
            )
