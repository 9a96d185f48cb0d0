"""Documents of the synthetic corpus: from slots (a station on a day) to lines of JSON.

Takes the stations and a seed, gives the bytes of any run of documents; workers need not know each other.
Everything is a look-up of ready-made text by an integer draw; nothing is a dict or a float.
"""

import datetime
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from esrally_ebs.corpus.hashing import (
    DRAWS,
    Draws,
    Integers,
    Permutation,
    gamma_table,
    keyed,
    normal_table,
    quantile_table,
)
from esrally_ebs.corpus.stations import StationClass, load_stations, table

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


@dataclass(frozen=True, slots=True)
class _Element:
    """Ready-made text of one element: ``DRAWS`` entries for warm days, then ``DRAWS`` for cold ones."""

    texts: Texts

    def pick(self, draw: Integers, cold: Integers) -> list[str]:
        picked: list[str] = self.texts[draw + cold].tolist()
        return picked


class Renderer:
    """Writes any run of documents of one seed's corpus."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._stations = load_stations()
        self._first_slots = np.cumsum([0, *(kind.reports for kind in self._stations.classes)])
        self.capacity = int(self._first_slots[-1])
        self._order = Permutation(self.capacity, seed)
        elements = table("elements")["elements"]
        self._elements = [_class_elements(kind, elements) for kind in self._stations.classes]
        self._dates = np.array([_date_text(day) for day in range(DAYS)], dtype=object)
        self._season = np.array([_season(day) for day in range(DAYS)], dtype=np.int64)
        self._normal, self._gamma = normal_table(), gamma_table(_GAMMA_SHAPE)
        self._strides = _strides()
        patterns = {
            "TMAX": '"TMAX": {}, ',
            "TMIN": '"TMIN": {}, ',
            "TAVG": '"TAVG": {}, ',
            "TOBS": '"TOBS": {}, ',
            "gte": '"TRANGE": {{"gte": {}, ',
            "lte": '"lte": {}}}, ',
        }
        self._degrees = {name: _degree_texts(pattern) for name, pattern in patterns.items()}

    def lines(self, start: int, stop: int) -> bytes:
        """Documents ``start`` to ``stop - 1``, one per line."""
        slots = self._order(np.arange(start, stop, dtype=np.int64))
        kinds = np.searchsorted(self._first_slots, slots, side="right") - 1
        by_kind = np.argsort(kinds.astype(np.uint8), kind="stable")
        bounds = np.searchsorted(kinds[by_kind], np.arange(len(self._stations.classes) + 1))
        lines = np.empty(stop - start, dtype=object)
        for number in range(len(self._stations.classes)):
            places = by_kind[bounds[number] : bounds[number + 1]]
            if places.size:
                lines[places] = self._documents(number, slots[places])
        return "".join(lines.tolist()).encode("ascii")

    def _documents(self, number: int, slots: Integers) -> list[str]:
        kind = self._stations.classes[number]
        station, turn = np.divmod(slots - self._first_slots[number], kind.report_days)
        station += kind.first_station
        day = (turn * self._strides[station % len(self._strides)] + station * 31) % DAYS
        draws = Draws(keyed(self._seed, slots))
        season_mean = (
            self._stations.mean[station] + self._stations.amplitude[station] * self._season[day] // 1000
        )
        columns = [self._dates[day].tolist()]
        if "TMAX" in kind.elements:
            columns += self._temperatures(kind, station, day, season_mean, draws)
        cold = np.where(season_mean < _COLD, DRAWS, 0)
        columns += [element.pick(draws.next(), cold) for element in self._elements[number]]
        columns.append(self._stations.json_text[station].tolist())
        return list(map("".join, zip(*columns, strict=True)))

    def _temperatures(
        self, kind: StationClass, station: Integers, day: Integers, season_mean: Integers, draws: Draws
    ) -> list[list[str]]:
        amplitude = self._stations.amplitude[station]
        # day-to-day spread: larger inland (large amplitude), largest in winter
        summer = self._season[day] * np.sign(amplitude)
        spread = (80 + 5 * np.abs(amplitude) // 2) * (900 - 250 * summer // 1000)
        middle = season_mean + spread * self._normal[draws.next()] // 10_000_000
        half = self._stations.daily_range[station] * self._gamma[draws.next()] // 2000
        highest, lowest = middle + half, middle - half
        observed = lowest + (highest - lowest) * draws.next() // DRAWS
        average = middle + draws.next() % 9 - 4
        if kind.fahrenheit:
            highest, lowest, observed = (_whole_fahrenheit(value) for value in (highest, lowest, observed))
        garbage = (draws.next() == 0) & (draws.next() % 6 == 0)  # one in 98,304
        highest = np.where(garbage, _GARBAGE_LOW + draws.next() * _GARBAGE_SPAN // DRAWS, highest)
        lowest = np.minimum(lowest, highest)
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

    def _degree_column(self, name: str, tenths: Integers, present: npt.NDArray[np.bool_]) -> list[str]:
        texts = self._degrees[name]
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


def _present(kind: StationClass, draws: Draws) -> dict[str, npt.NDArray[np.bool_]]:
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


def _strides() -> Integers:
    # a stride that shares no factor with 1096 = 8 * 137 visits every day once
    return np.array([n for n in range(401, 701, 2) if n % 137], dtype=np.int64)


def _date_text(day: int) -> str:
    return f'{{"date": "{FIRST_DAY + datetime.timedelta(days=day)}T00:00:00", '


def _degree_texts(pattern: str) -> Texts:
    texts = [pattern.format(_tenths(value)) for value in range(_LOWEST, _HIGHEST + 1)]
    return np.array([*texts, ""], dtype=object)


def _tenths(value: int) -> str:
    return f"{'-' if value < 0 else ''}{abs(value) // 10}.{abs(value) % 10}"
