"""Documents of the synthetic corpus: from slots (a station on a day) to lines of JSON.

Takes the stations and a seed, gives the bytes of any run of documents; workers need not know each other.
Everything is a look-up of ready-made text by an integer draw; nothing is a dict or a float.
"""

import datetime
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
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
from esrally_ebs.workload.corpus.stations import StationClass, Stations, load_stations, table

Texts = npt.NDArray[np.object_]

FIRST_DAY: Final = datetime.date(2014, 1, 1)
DAYS: Final = 1096  # 2014, 2015 and the leap year 2016
_PEAK_DAY: Final = 203  # of the year, in the north
_COLD: Final = 15  # seasonal mean in tenths of a degree below which snow falls and lies
_LOWEST, _HIGHEST = -1000, 31000  # tenths of a degree that have a text; what lies outside is cut
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


@dataclass(frozen=True, slots=True)
class _Element:
    """Ready-made text of one element: ``DRAWS`` entries for warm days, then ``DRAWS`` for cold ones."""

    texts: Texts

    def pick(self, draw: Integers, cold: Integers) -> list[str]:
        picked: list[str] = self.texts[draw + cold].tolist()
        return picked


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tables:
    """All that documents are put together from, whatever the seed."""

    stations: Stations
    elements: list[list[_Element]]  # per class of stations
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
        elements=[_class_elements(kind, elements) for kind in stations.classes],
        dates=np.array([_date_text(day) for day in range(DAYS)], dtype=object),
        degrees={name: _degree_texts(pattern) for name, pattern in _DEGREE_PATTERNS.items()},
        season=np.array([_season(day) for day in range(DAYS)], dtype=np.int64),
        # a stride that shares no factor with 1096 = 8 * 137 visits every day once
        strides=np.array([n for n in range(401, 701, 2) if n % 137], dtype=np.int64),
        normal=normal_table(),
        gamma=gamma_table(_GAMMA_SHAPE),
    )


class WeatherRenderer:
    """Writes any run of documents of one seed's corpus; ``capacity`` is how many there are at most."""

    bytes_per_document = 288

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._tables = _tables()
        self._classes = self._tables.stations.classes
        self._first_slots = np.cumsum([0, *(kind.reports for kind in self._classes)])
        self.capacity = int(self._first_slots[-1])
        self._order = Permutation(self.capacity, seed)

    def lines(self, start: int, stop: int) -> bytes:
        """Documents ``start`` to ``stop - 1``, one per line."""
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
        columns += [element.pick(draws.next(), cold) for element in tables.elements[number]]
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
        """Lowest, middle and highest temperature in tenths of a degree."""
        tables = self._tables
        amplitude = tables.stations.amplitude[station]
        # day-to-day spread in 1/100 K: larger inland, where the seasons are far apart, and largest in winter
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


def _class_elements(kind: StationClass, elements: Mapping[str, Any]) -> list[_Element]:
    names = sorted(name for name in kind.elements if name not in _TEMPERATURES)
    return [_element(name, elements[name], kind.elements[name]) for name in names]


def _element(name: str, shape: Mapping[str, Any], share: float) -> _Element:
    present = _threshold(share)
    texts = np.full(2 * DRAWS, "", dtype=object)
    for start, points in ((0, shape["values"]), (DRAWS, shape.get("cold", shape["values"]))):
        values = quantile_table(points, present) * shape.get("step", 1)
        # one object per distinct text: the whole table then stays in the CPU's cache
        distinct, which = np.unique(values, return_inverse=True)
        written = [_value_text(name, value, decimal="decimal" in shape) for value in distinct.tolist()]
        texts[start : start + present] = np.array(written, dtype=object)[which]
    return _Element(texts)


def _value_text(name: str, value: int, *, decimal: bool) -> str:
    return f'"{name}": {_tenths(value)}, ' if decimal else f'"{name}": "{value}", '


def _present(kind: StationClass, draws: HashDraws) -> dict[str, npt.NDArray[np.bool_]]:
    chances = {name: draws.next() for name in _TEMPERATURES}
    # a thermometer that fails loses both ends: half of the gaps in TMAX and TMIN are shared
    chances["TMIN"] = np.where(chances["TMIN"] % 2 == 1, chances["TMAX"], chances["TMIN"])
    return {name: chance < _threshold(kind.elements.get(name, 0.0)) for name, chance in chances.items()}


def _threshold(share: float) -> int:
    return round(share * DRAWS)


def _whole_fahrenheit(tenths: Integers) -> Integers:
    degrees = (tenths * 9 + 25) // 50  # whole degrees above 32 F
    return (degrees * 100 + 9) // 18


def _season(day: int) -> int:
    of_year = (FIRST_DAY + datetime.timedelta(days=day)).timetuple().tm_yday
    return round(1000 * math.cos(2 * math.pi * (of_year - _PEAK_DAY) / 365.25))


def _date_text(day: int) -> str:
    return f'{{"date": "{FIRST_DAY + datetime.timedelta(days=day)}T00:00:00", '


def _degree_texts(pattern: str) -> Texts:
    texts = [pattern.format(_tenths(value)) for value in range(_LOWEST, _HIGHEST + 1)]
    return np.array([*texts, ""], dtype=object)


def _tenths(value: int) -> str:
    return f"{'-' if value < 0 else ''}{abs(value) // 10}.{abs(value) % 10}"
