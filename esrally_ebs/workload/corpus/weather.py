"""Documents of the synthetic corpus: from slots (a station on a day) to lines of JSON.

From the stations and a seed to the bytes of any run of documents; workers are independent. Everything is a
look-up of ready-made text by an integer draw, without dicts or floats. Stations are made by rule from the
small tables beside this module, the same for every seed, as the real ones are.
"""

import datetime
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from esrally_ebs.workload.corpus.hashing import (
    DRAWS,
    HashDraws,
    Integers,
    Permutation,
    gamma_table,
    keyed,
    normal_table,
    quantile_table,
)

_SEED: Final = 2016
_LAPSE_DK_PER_KM: Final = 53
_MISSING_ELEVATION: Final = "-999.9"  # NOAA's value for "missing"
Texts = npt.NDArray[np.object_]
FIRST_DAY: Final = datetime.date(2014, 1, 1)
DAYS: Final = 1096  # 2014, 2015 and the leap year 2016
_PEAK_DAY: Final = 203  # of the year, in the north
_COLD: Final = 15  # seasonal mean, in tenths of a degree, below which snow falls and lies
_LOWEST, _HIGHEST = -1000, 31000  # tenths of a degree with a ready-made text; values outside are clipped
_GAMMA_SHAPE: Final = 7.5  # of the daily range
# The real corpus keeps 133 TMAX of 201.7 to 3042.9 C that failed NOAA's quality control, in 13.5 M with TMAX
_GARBAGE_LOW, _GARBAGE_SPAN = 2017, 28_412
_TEMPERATURES: Final = ("TMAX", "TMIN", "TAVG", "TOBS")
_DEGREE_PATTERNS: Final = {
    "TMAX": '"TMAX": {}, ',
    "TMIN": '"TMIN": {}, ',
    "gte": '"TRANGE": {{"gte": {}, ',
    "lte": '"lte": {}}}, ',
    "TAVG": '"TAVG": {}, ',
    "TOBS": '"TOBS": {}, ',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StationClass:
    """A kind of station: which stations, how many days each reports, and what."""

    first_station: int
    stations: int
    report_days: int
    elements: Mapping[str, float]  # element -> share of reports that contain it
    fahrenheit: bool  # measured in whole degrees Fahrenheit, as in the United States

    @property
    def reports(self) -> int:
        return self.stations * self.report_days


@dataclass(frozen=True, slots=True, kw_only=True)
class Stations:
    """All stations by class; temperatures in tenths of a degree Celsius."""

    classes: tuple[StationClass, ...]
    json_text: npt.NDArray[np.object_]  # end of a document: "station": {...}}
    mean: Integers
    amplitude: Integers  # half the July-January difference; negative in the south
    daily_range: Integers


def table(name: str) -> dict[str, Any]:
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
    """Makes one class's stations in one region."""

    def __init__(self, kind: str, prefix: str, region: str, tables: Mapping[str, Any]) -> None:
        network, _, self._state = region.partition("-")
        self._kind = kind
        self._code = network[:2]
        self._country = tables["countries"][self._code]
        self._state_word = tables["states"].get(self._state)
        self._words = tables["names"]
        self._prefix = prefix.format(country=self._code, state=self._state)
        anchors = tables["regions"][region]
        # anchors are repeated by their weight, so that drawing one index is enough
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tables:
    """Everything that documents are assembled from, for any seed."""

    stations: Stations
    # per class of stations, ready-made texts of each element: DRAWS for warm days, then DRAWS for cold ones
    elements: list[list[Texts]]
    dates: Texts
    degrees: Mapping[str, Texts]
    season: Integers  # -1000 to 1000 per day, 1000 at the height of the northern summer
    strides: Integers
    normal: Integers
    gamma: Integers


@cache
def _tables() -> _Tables:
    stations, elements = load_stations(), table("elements")["elements"]
    return _Tables(
        stations=stations,
        elements=[
            [
                _element(name, elements[name], share)
                for name, share in sorted(kind.elements.items())
                if name not in _TEMPERATURES
            ]
            for kind in stations.classes
        ],
        dates=np.array([f'{{"date": "{day}T00:00:00", ' for day in map(_date, range(DAYS))], dtype=object),
        degrees={name: _degree_texts(pattern) for name, pattern in _DEGREE_PATTERNS.items()},
        season=np.array([_season(day) for day in range(DAYS)], dtype=np.int64),
        # a stride without common factors with 1096 = 8 * 137 visits every day once
        strides=np.array([n for n in range(401, 701, 2) if n % 137], dtype=np.int64),
        normal=normal_table(),
        gamma=gamma_table(_GAMMA_SHAPE),
    )


class WeatherRenderer:
    """Writes any run of documents of one seed's corpus, which has at most ``capacity`` documents."""

    bytes_per_document = 288

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._tables = _tables()
        self._classes = self._tables.stations.classes
        self._first_slots = np.cumsum([0, *(kind.reports for kind in self._classes)])
        self.capacity = int(self._first_slots[-1])
        self._order = Permutation(self.capacity, seed)

    def lines(self, start: int, stop: int) -> bytes:
        slots = self._order(np.arange(start, stop, dtype=np.int64))
        kinds = np.searchsorted(self._first_slots, slots, side="right") - 1
        by_kind = np.argsort(kinds.astype(np.uint8), kind="stable")
        bounds = np.searchsorted(kinds[by_kind], np.arange(len(self._classes) + 1))
        lines = np.empty(stop - start, dtype=object)
        for number in range(len(self._classes)):
            places = by_kind[bounds[number] : bounds[number + 1]]
            if places.size:
                lines[places] = self._documents(number, slots[places])
        return "".join(lines.tolist()).encode("ascii")

    def _documents(self, number: int, slots: Integers) -> list[str]:
        tables, kind = self._tables, self._classes[number]
        station, turn = np.divmod(slots - self._first_slots[number], kind.report_days)
        station += kind.first_station
        day = (turn * tables.strides[station % len(tables.strides)] + station * 31) % DAYS
        draws = HashDraws(keyed(self._seed, slots))
        season_mean = tables.stations.mean[station] + (
            tables.stations.amplitude[station] * tables.season[day] // 1000
        )
        columns: list[list[str]] = [tables.dates[day].tolist()]
        if "TMAX" in kind.elements:
            columns += self._temperatures(kind, station, day, season_mean, draws)
        cold = np.where(season_mean < _COLD, DRAWS, 0)
        columns += [texts[draws.next() + cold].tolist() for texts in tables.elements[number]]
        columns.append(tables.stations.json_text[station].tolist())
        return list(map("".join, zip(*columns, strict=True)))

    def _temperatures(
        self, kind: StationClass, station: Integers, day: Integers, season_mean: Integers, draws: HashDraws
    ) -> list[list[str]]:
        lowest, middle, highest = self._day(station, day, season_mean, draws)
        observed = lowest + (highest - lowest) * draws.next() // DRAWS
        average = middle + draws.next() % 9 - 4
        if kind.fahrenheit:
            highest, lowest, observed = (_whole_fahrenheit(value) for value in (highest, lowest, observed))
        garbage = (draws.next() == 0) & (draws.next() % 6 == 0)  # one in 98,304
        highest = np.where(garbage, _GARBAGE_LOW + draws.next() * _GARBAGE_SPAN // DRAWS, highest)
        has = _present(kind, draws)
        both = has["TMAX"] & has["TMIN"]
        return [
            self._degree_column("TMAX", highest, has["TMAX"]),
            self._degree_column("TMIN", lowest, has["TMIN"]),
            self._degree_column("gte", lowest, both),
            self._degree_column("lte", highest, both),
            self._degree_column("TAVG", average, has["TAVG"]),
            self._degree_column("TOBS", observed, has["TOBS"]),
        ]

    def _day(
        self, station: Integers, day: Integers, season_mean: Integers, draws: HashDraws
    ) -> tuple[Integers, Integers, Integers]:
        """Lowest, middle and highest temperature, in tenths of a degree."""
        tables = self._tables
        amplitude = tables.stations.amplitude[station]
        # day-to-day spread in 1/100 K: larger inland, where the seasons differ much, and largest in winter
        summer = tables.season[day] * np.sign(amplitude)
        spread = (80 + 5 * np.abs(amplitude) // 2) * (900 - 250 * summer // 1000) // 1000
        middle = season_mean + spread * tables.normal[draws.next()] // 10_000
        half = tables.stations.daily_range[station] * tables.gamma[draws.next()] // 2000
        return middle - half, middle, middle + half

    def _degree_column(self, name: str, tenths: Integers, present: npt.NDArray[np.bool_]) -> list[str]:
        texts = self._tables.degrees[name]
        entries = np.where(present, np.clip(tenths, _LOWEST, _HIGHEST) - _LOWEST, len(texts) - 1)
        picked: list[str] = texts[entries].tolist()
        return picked


def _element(name: str, shape: Mapping[str, Any], share: float) -> Texts:
    present = _threshold(share)
    texts = np.full(2 * DRAWS, "", dtype=object)
    for start, points in ((0, shape["values"]), (DRAWS, shape.get("cold", shape["values"]))):
        values = quantile_table(points, present) * shape.get("step", 1)
        # one object per distinct text: then the whole table stays in the CPU's cache
        distinct, which = np.unique(values, return_inverse=True)
        shown = [_decimal(value, 1) if "decimal" in shape else f'"{value}"' for value in distinct.tolist()]
        written = [f'"{name}": {text}, ' for text in shown]
        texts[start : start + present] = np.array(written, dtype=object)[which]
    return texts


def _present(kind: StationClass, draws: HashDraws) -> dict[str, npt.NDArray[np.bool_]]:
    chances = {name: draws.next() for name in _TEMPERATURES}
    # a failing thermometer loses both ends: half of the gaps in TMAX and TMIN coincide
    chances["TMIN"] = np.where(chances["TMIN"] % 2 == 1, chances["TMAX"], chances["TMIN"])
    return {name: chance < _threshold(kind.elements.get(name, 0.0)) for name, chance in chances.items()}


def _threshold(share: float) -> int:
    return round(share * DRAWS)


def _whole_fahrenheit(tenths: Integers) -> Integers:
    degrees = (tenths * 9 + 25) // 50  # whole degrees above 32 F
    return (degrees * 100 + 9) // 18


def _date(day: int) -> datetime.date:
    return FIRST_DAY + datetime.timedelta(days=day)


def _season(day: int) -> int:
    of_year = _date(day).timetuple().tm_yday
    return round(1000 * math.cos(2 * math.pi * (of_year - _PEAK_DAY) / 365.25))


def _degree_texts(pattern: str) -> Texts:
    texts = [pattern.format(_decimal(value, 1)) for value in range(_LOWEST, _HIGHEST + 1)]
    return np.array([*texts, ""], dtype=object)
