"""Converts NOAA's GHCN-Daily files to a corpus file in random order, like Rally's ``noaa`` corpus.

sort(1) does the sorting, as it needs no memory: first rows by station and day, then documents by a hash of
their text, so that the same files give the same bytes. Documents are as in Rally's ``noaa`` track, by its
makers' rules: tenths become numbers, everything else stays text, a country is the first word of its name,
rows that failed a quality check stay. Elements that the index does not know are left out. Source of the
formats: NOAA, readme-by_year.txt and readme.txt of GHCN-Daily.
"""

import gzip
import hashlib
import itertools
import json
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

from esrally_ebs.errors import PlanError
from esrally_ebs.machine.processes import run
from esrally_ebs.workload.corpus.files import Corpus, adopt, disk_errors

# tenths of their unit in NOAA's files, numbers in the index
_DECIMAL = "AWND EVAP MDPR MDTN MDTX MNPN MXPN PRCP TAVG THIC TMAX TMIN TOBS WESD WESF WSF2 WSF5 WSFG WSFI"
_AS_IT_IS = (
    "AWDR DAPR DASF DATN DATX DWPR MDSF PGTM PSUN SN31 SN32 SN33 SN35 SN36 SN51 SN52 SN53 SN55 SN56 SN57"
    " SNOW SNWD SX31 SX32 SX33 SX35 SX36 SX51 SX52 SX53 SX55 SX56 SX57 TSUN WDF2 WDF5 WDFG WDMV"
    " WT01 WT02 WT03 WT04 WT05 WT06 WT07 WT08 WT09 WT10 WT11 WT17 WT18"
)
NUMBERS: Final = frozenset(_DECIMAL.split())
KEYWORDS: Final = frozenset(_AS_IT_IS.split())
# strptime would take three times as long as all the rest
_DAY: Final = re.compile(r"[0-9]{4}(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])")
_RANGES: Final = (("TMIN", "TMAX", "TRANGE"), ("MDTN", "MDTX", "MDTRANGE"))

Station = Mapping[str, Any]  # a station's part of a document
_SORT_TIMEOUT_S: Final = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class GhcnRow:
    station: str
    day: str  # YYYYMMDD
    element: str
    value: int


def parse_row(line: str) -> GhcnRow:
    """Parse ``ID,YYYYMMDD,ELEMENT,VALUE,...``. Raises PlanError, quoting the line, for others."""
    fields = line.rstrip("\n").split(",")
    try:
        station, day, element, value = fields[:4]
        row = GhcnRow(station, day, element, int(value))
    except ValueError:
        row = None
    if row is None or len(row.station) != 11 or not _DAY.fullmatch(row.day):
        raise PlanError(
            f"GHCN-Daily row {line.strip()[:80]!r}: is not ID,YYYYMMDD,ELEMENT,VALUE,...; give by_year files"
        )
    return row


def parse_stations(
    lines: Iterable[str], *, countries: Mapping[str, str], states: Mapping[str, str]
) -> dict[str, Station]:
    """Stations of ``ghcnd-stations.txt`` by id. Raises PlanError for a line that does not fit the columns."""
    return {
        line[:11]: _station(line.rstrip("\n"), number, countries, states)
        for number, line in enumerate(lines, start=1)
        if line.strip()
    }


def parse_names(lines: Iterable[str]) -> dict[str, str]:
    """First word of each name by code, from ``ghcnd-countries.txt`` or ``ghcnd-states.txt``."""
    return {line[:2]: line[3:].split()[0] for line in lines if line[3:].strip()}


def _station(
    line: str, number: int, countries: Mapping[str, str], states: Mapping[str, str]
) -> dict[str, Any]:
    code = line[:2]
    try:
        place = {"lat": float(line[12:20]), "lon": float(line[21:30])}
        elevation = float(line[31:37])
    except ValueError as error:
        raise PlanError(
            f"ghcnd-stations.txt line {number}: {line[:40]!r} is not in NOAA's columns; fetch it anew"
        ) from error
    state = line[38:40].strip() if code == "US" else ""
    named = {
        "country": countries.get(code, ""),
        "state_code": state,
        "state": states.get(state, ""),
        "name": line[41:71].strip(),
        "gsn_flag": line[72:75].strip(),
        "hcn_crn_flag": line[76:78].strip(),  # two of its three letters, like the real corpus
        "wmo_id": line[80:85].strip(),
    }
    return {
        "elevation": elevation,  # -999.9 if unknown, like the real corpus
        **{key: text for key, text in named.items() if text},
        "location": place,
        "country_code": code,
        "id": line[:11],
    }


def documents(rows: Iterable[GhcnRow], stations: Mapping[str, Station]) -> Iterator[str]:
    """One JSON document, without line end, per station and day; rows must be sorted by station, then day.

    Leaves out stations that are not in ``stations``, and days without an element that the index knows.
    """
    for (station, day), own in itertools.groupby(rows, key=lambda row: (row.station, row.day)):
        known = stations.get(station)
        values = {row.element: row.value for row in own}
        elements = _elements(values)
        if known is not None and elements:
            date = f"{day[:4]}-{day[4:6]}-{day[6:]}T00:00:00"
            yield json.dumps({"date": date, **elements, "station": known, **_ranges(elements)})


def _elements(values: Mapping[str, int]) -> dict[str, float | str]:
    kept: dict[str, float | str] = {}
    for element, value in values.items():
        if element in NUMBERS:
            kept[element] = value / 10
        elif element in KEYWORDS:
            kept[element] = str(value)
    return kept


def _ranges(elements: Mapping[str, float | str]) -> dict[str, dict[str, Any]]:
    return {
        name: dict(zip(("gte", "lte"), sorted((elements[low], elements[high]), key=float), strict=True))
        for low, high, name in _RANGES
        if low in elements and high in elements
    }


def convert(
    by_year: Sequence[Path], directory: Path, *, stations: Path, countries: Path, states: Path
) -> Corpus:
    """Write ``documents-<count>.json`` with its offset table and stamp into ``directory``.

    ``by_year`` are ``<year>.csv`` or ``<year>.csv.gz``, the others NOAA's ``ghcnd-*.txt``. Needs up to three
    times the size of the rows on the disk of ``directory``. Raises PlanError for a file that is missing or
    not in NOAA's format, or if no row gives a document; SetupError if the disk is full.
    """
    known = parse_stations(
        _lines(stations), countries=parse_names(_lines(countries)), states=parse_names(_lines(states))
    )
    with disk_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".convert-", dir=directory) as scratch:
            written = _documents(by_year, known, Path(scratch))
            if written.stat().st_size == 0:
                raise PlanError(
                    f"{by_year[0]}: no row belongs to a station of {stations}; take all files from one place"
                )
            return adopt(written, directory)


def _documents(by_year: Sequence[Path], known: Mapping[str, Station], scratch: Path) -> Path:
    """Write all documents in random order to a file in ``scratch``; returns its path."""
    rows = _sorted([_plain(path, scratch) for path in by_year], scratch / "rows", "-t,", "-k1,2")
    keyed = scratch / "keyed"
    with rows.open(encoding="utf-8", errors="replace") as source, keyed.open("w") as target:
        parsed = (parse_row(line) for line in source)
        for document in documents(parsed, known):
            target.write(f"{hashlib.blake2b(document.encode(), digest_size=8).hexdigest()}\t{document}\n")
    rows.unlink()
    shuffled = _sorted([keyed], scratch / "shuffled")
    keyed.unlink()
    written = scratch / "documents.json"
    with shuffled.open() as source, written.open("w") as target:
        target.writelines(line.partition("\t")[2] for line in source)
    return written


def _sorted(sources: Sequence[Path], target: Path, *keys: str) -> Path:
    run(
        ["sort", *keys, "-T", str(target.parent), "-o", str(target), "--", *map(str, sources)],
        timeout_s=_SORT_TIMEOUT_S,
        env={"LC_ALL": "C"},
    )
    return target


def _plain(path: Path, scratch: Path) -> Path:
    """The file itself, or an unpacked copy: sort(1) cannot read gzip."""
    if path.suffix != ".gz":
        with _open(path):
            return path
    _open(path).close()
    plain = scratch / f"{len(list(scratch.iterdir()))}-{path.stem}"  # file names may repeat
    try:
        with gzip.open(path) as source, plain.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise PlanError(f"{path}: cannot be read as gzip: {error}; fetch the file anew") from error
    return plain


def _lines(path: Path) -> Iterator[str]:
    with _open(path) as file:
        yield from file


def _open(path: Path) -> TextIO:
    try:
        return path.open(encoding="utf-8", errors="replace")
    except OSError as error:
        raise PlanError(f"{path}: {os.strerror(error.errno or 0)}; name a file of GHCN-Daily") from error
