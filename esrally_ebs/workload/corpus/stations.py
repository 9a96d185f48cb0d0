"""The weather stations of the synthetic corpus, made by rule from the small tables beside this module.

Takes ``tables/regions.json`` and ``tables/classes.json``, gives every station's JSON text and its climate.
The stations are the same for every seed, as the real ones are; the weather is what the seed changes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from esrally_ebs.workload.corpus.hashing import Integers, keyed

_SEED: Final = 2016
_LAPSE_DK_PER_KM: Final = 53
_MISSING_ELEVATION: Final = "-999.9"  # NOAA's mark


@dataclass(frozen=True, slots=True, kw_only=True)
class StationClass:
    """A kind of station: which stations, on how many days each reports, and what."""

    name: str
    first_station: int
    stations: int
    report_days: int
    elements: Mapping[str, float]  # element -> share of reports that hold it
    fahrenheit: bool  # measured in whole degrees Fahrenheit, as in the United States

    @property
    def reports(self) -> int:
        """How many documents this class has in a full corpus."""
        return self.stations * self.report_days


@dataclass(frozen=True, slots=True, kw_only=True)
class Stations:
    """All stations in class order; temperatures in tenths of a degree Celsius."""

    classes: tuple[StationClass, ...]
    json_text: npt.NDArray[np.object_]  # the end of a document: "station": {...}}
    mean: Integers
    amplitude: Integers  # half the July-January difference; negative in the south
    daily_range: Integers


def table(name: str) -> dict[str, Any]:
    """One of the package's own tables."""
    text = resources.files("esrally_ebs.workload.corpus").joinpath("tables", f"{name}.json").read_text()
    loaded: dict[str, Any] = json.loads(text)
    return loaded


@cache
def load_stations() -> Stations:
    """Make all stations; about half a second, once per process."""
    tables, kinds = {**table("regions"), "names": table("names")}, table("classes")["classes"]
    classes: list[StationClass] = []
    texts: list[str] = []
    climate: list[tuple[int, int, int]] = []
    for name, kind in kinds.items():
        first = len(texts)
        for region, count in kind["stations"].items():
            maker = _Region(name, kind["id"], region, tables)
            hashes = keyed(_SEED, np.arange(len(texts), len(texts) + count, dtype=np.int64))
            for number, chance in enumerate(hashes.tolist(), start=len(texts)):
                text, weather = maker.station(number, chance)
                texts.append(text)
                climate.append(weather)
        classes.append(
            StationClass(
                name=name,
                first_station=first,
                stations=len(texts) - first,
                report_days=kind["report_days"],
                elements=kind["elements"],
                fahrenheit=any(region.startswith("US") for region in kind["stations"]),
            )
        )
    mean, amplitude, daily_range = np.array(climate, dtype=np.int64).T
    return Stations(
        classes=tuple(classes),
        json_text=np.array(texts, dtype=object),
        mean=mean,
        amplitude=amplitude,
        daily_range=daily_range,
    )


class _Region:
    """Makes the stations of one class in one region."""

    def __init__(self, kind: str, prefix: str, region: str, tables: Mapping[str, Any]) -> None:
        network, _, self._state = region.partition("-")
        self._kind = kind
        self._code = network[:2]
        self._country = tables["countries"][self._code]
        self._state_word = tables["states"].get(self._state)
        self._words = tables["names"]
        self._prefix = prefix.format(country=self._code, state=self._state)
        anchors = tables["regions"][region]
        # an anchor stands in the list as often as its weight says, so that a draw of one place is enough
        self._anchors = [anchor for anchor in anchors for _ in range(anchor[0])]

    def station(self, number: int, chance: int) -> tuple[str, tuple[int, int, int]]:
        """The JSON text and (mean, amplitude, daily range) of station ``number``; ``chance`` is its hash."""
        _, latitude, longitude, elevation, mean, amplitude, daily_range = self._anchors[
            chance % len(self._anchors)
        ]
        bits = chance >> 20
        latitude = latitude * 100 + bits % 6000 - 3000  # 1/10000 degree, within 0.3 degrees of the anchor
        longitude = longitude * 100 + (bits >> 8) % 6000 - 3000
        height = max(1, elevation * 10 * (90 + (bits >> 14) % 21) // 100)  # dm, within 10 % of the anchor's
        mean -= _LAPSE_DK_PER_KM * (height - elevation * 10) // 10_000
        lost = (bits >> 19) % 1000 < (
            224 if self._code == "AS" else 20 if self._kind.startswith("USC") else 0
        )
        fields = {
            "elevation": _MISSING_ELEVATION if lost else _decimal(height, 1),
            "name": f'"{self._name(number, bits)}"',
            "country": f'"{self._country}"',
            "location": f'{{"lat": {_decimal(latitude, 4)}, "lon": {_decimal(longitude, 4)}}}',
            "country_code": f'"{self._code}"',
            **self._flags(number, bits >> 7),
            "id": f'"{self._id(number)}"',
        }
        body = ", ".join(f'"{key}": {value}' for key, value in fields.items())
        return f'"station": {{{body}}}}}\n', (mean, amplitude, daily_range)

    def _id(self, number: int) -> str:
        width = 11 - len(self._prefix)
        if self._kind == "US1":
            county = chr(65 + number // 26 % 26) + chr(65 + number % 26)
            return f"{self._prefix}{county}{number % 10_000:04d}"
        return f"{self._prefix}{number:0{width}d}"

    def _flags(self, number: int, bits: int) -> dict[str, str]:
        flags: dict[str, str] = {}
        if self._state_word is not None:
            flags |= {"state_code": f'"{self._state}"', "state": f'"{self._state_word}"'}
        if self._kind in ("SYN", "JA", "RS", "GM", "ASOS", "CRN") or (self._kind == "CAt" and bits % 3 == 0):
            flags["wmo_id"] = f'"{(number * 7919) % 90_000 + 10_000}"'
            if bits % 10 == 0:
                flags["gsn_flag"] = '"GSN"'
        if self._kind == "CRN" or (self._kind == "USCt" and bits % 100 < 22):
            flags["hcn_crn_flag"] = '"CR"' if self._kind == "CRN" else '"HC"'
        return flags

    def _name(self, number: int, bits: int) -> str:
        words = self._words
        if self._code not in ("US", "CA", "AS"):
            sizes = (bits % 29, (bits >> 5) % 30, (bits >> 10) % 28)
            return "".join(words["syllables"][size] for size in sizes[: 2 + number % 2])
        town = words["towns"][bits % len(words["towns"])]
        point = words["points"][(bits >> 6) % 16]
        if self._kind in ("US1", "CA1"):
            return f"{town} {(bits >> 10) % 9}.{(bits >> 14) % 10} {point}"
        if self._kind == "ASOS":
            return f"{town} {words['airports'][number % 3]}"
        return town if number % 3 else f"{town} {1 + (bits >> 10) % 12} {point}"


def _decimal(value: int, places: int) -> str:
    whole, part = divmod(abs(value), 10**places)
    digits = f"{part:0{places}d}".rstrip("0") or "0"
    return f"{'-' if value < 0 else ''}{whole}.{digits}"
