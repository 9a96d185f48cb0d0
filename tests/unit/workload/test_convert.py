"""GHCN-Daily files to documents: the rules of the noaa track on rows and stations in NOAA's formats."""

import gzip
import json
from pathlib import Path

import jinja2
import pytest

from esrally_ebs.cli import main
from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.machine.resources import resource
from esrally_ebs.workload.corpus import convert, ensure
from esrally_ebs.workload.corpus.convert import KEYWORDS, NUMBERS

SHARJAH = "AE000041196  25.3330   55.5170   34.0    SHARJAH INTER. AIRP            GSN     41196"
FRESNO = "USW00093193  36.7800 -119.7194  101.5 CA FRESNO YOSEMITE INTL AP        GSN HCN 72389"
NOWHERE = "XX000000001 -10.0000   20.0000 -999.9    SOMEWHERE"
COUNTRIES = "AE United Arab Emirates\nUS United States\n"
STATES = "CA CALIFORNIA\n"
ROWS = """\
USW00093193,20160117,TMIN,161,,,7,0700
AE000041196,20160101,TMIN,155,,,S,
USW00093193,20160117,TMAX,56,,,7,0700
USW00093193,20160117,SNOW,0,,,7,
USW00093193,20160117,PRCP,0,,,7,
USW00093193,20160117,ADPT,44,,,7,
AE000041196,20160101,TAVG,229,H,,S,
ZZ000000000,20160101,TAVG,229,H,,S,
"""


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """The three lists beside the rows."""
    texts = {"stations": f"{SHARJAH}\n{FRESNO}\n{NOWHERE}\n", "countries": COUNTRIES, "states": STATES}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return {name: tmp_path / name for name in texts}


def converted(files: dict[str, Path], tmp_path: Path, *by_year: Path) -> list[dict[str, object]]:
    made = convert(by_year, tmp_path / "corpus", **files)
    return [json.loads(line) for line in made.path.read_text().splitlines()]


def test_a_day_of_a_station_becomes_one_document_as_in_the_real_corpus(
    files: dict[str, Path], tmp_path: Path
) -> None:
    rows = tmp_path / "2016.csv"
    rows.write_text(ROWS)
    by_country = {doc["station"]["country_code"]: doc for doc in converted(files, tmp_path, rows)}  # type: ignore[index]
    assert by_country["AE"] == {
        "date": "2016-01-01T00:00:00",
        "TAVG": 22.9,
        "TMIN": 15.5,
        "station": {
            "elevation": 34.0,
            "name": "SHARJAH INTER. AIRP",
            "country": "United",
            "gsn_flag": "GSN",
            "location": {"lat": 25.333, "lon": 55.517},
            "country_code": "AE",
            "wmo_id": "41196",
            "id": "AE000041196",
        },
    }
    fresno = by_country["US"]
    assert fresno["station"]["state"] == "CALIFORNIA"  # type: ignore[index]
    assert fresno["station"]["hcn_crn_flag"] == "HC"  # type: ignore[index]
    assert (fresno["SNOW"], fresno["PRCP"]) == ("0", 0.0)  # text stays text, tenths become numbers
    assert fresno["TRANGE"] == {"gte": 5.6, "lte": 16.1}  # though the rows have them the wrong way round
    assert "ADPT" not in fresno  # the index is strict and does not know it


def test_the_order_of_the_files_and_their_packing_do_not_change_a_byte(
    files: dict[str, Path], tmp_path: Path
) -> None:
    lines = ROWS.splitlines(keepends=True)
    first, second = tmp_path / "2015.csv", tmp_path / "2016.csv.gz"
    first.write_text("".join(lines[:3]))
    second.write_bytes(gzip.compress("".join(lines[3:]).encode()))
    one = convert([first, second], tmp_path / "one", **files).path.read_bytes()
    assert convert([second, first], tmp_path / "two", **files).path.read_bytes() == one
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == [
        "documents-2.json",
        "documents-2.json.offset",
        "documents-2.json.stamp",
    ]


def test_two_files_of_one_name_are_both_taken(files: dict[str, Path], tmp_path: Path) -> None:
    lines = ROWS.splitlines(keepends=True)
    packed = [tmp_path / name / "2016.csv.gz" for name in ("x", "y")]
    for path, part in zip(packed, (lines[:1], lines[1:2]), strict=True):
        path.parent.mkdir()
        path.write_bytes(gzip.compress("".join(part).encode()))
    assert len(converted(files, tmp_path, *packed)) == 2


def test_a_race_takes_the_converted_corpus_instead_of_making_one(
    files: dict[str, Path], tmp_path: Path
) -> None:
    rows = tmp_path / "2016.csv"
    rows.write_text(ROWS)
    made = convert([rows], tmp_path, **files)
    before = made.path.read_bytes()
    assert ensure(tmp_path, documents=2, seed=7) == made
    assert made.path.read_bytes() == before


@pytest.mark.parametrize("lines", ["", "[benchmarks]\nlocal.dataset.cache = {}/data\n"])
def test_the_corpus_goes_where_rally_looks_for_it(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str
) -> None:
    """Else a race makes as many documents of its own, and says nothing."""
    (rally := tmp_path / ".rally").mkdir()
    (rally / "rally.ini").write_text(lines.format(tmp_path))
    monkeypatch.setenv("RALLY_HOME", str(tmp_path))
    rows = tmp_path / "2016.csv"
    rows.write_text(ROWS)
    named = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    assert main(["corpus", "convert", str(rows), *named]) == 0
    data = tmp_path / "data" if lines else rally / "benchmarks" / "data"
    assert (data / "noaa-ebs" / "documents-2.json").is_file()


def test_the_converter_knows_the_elements_of_the_index_and_no_other() -> None:
    body = json.loads(jinja2.Template(resource("tracks/noaa-ebs/index.json").read_text()).render())
    fields = body["mappings"]["properties"]
    assert {name for name, field in fields.items() if field.get("type") == "float"} == NUMBERS
    assert {name for name, field in fields.items() if field.get("type") == "keyword"} == KEYWORDS


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("TMIN,155\n", "GHCN-Daily row 'TMIN,155': is not ID,YYYYMMDD,ELEMENT,VALUE"),
        ("AE000041196,20169999,TMIN,155,,,S,\n", "is not ID,YYYYMMDD,ELEMENT,VALUE"),
        ("AE000041196,20160101,TMIN,warm,,,S,\n", "is not ID,YYYYMMDD,ELEMENT,VALUE"),
        ("ZZ000000000,20160101,TAVG,229,H,,S,\n", "no row belongs to a station"),
        ("", "no row belongs to a station"),
    ],
)
def test_rows_that_are_none_are_refused_in_one_line(
    files: dict[str, Path], tmp_path: Path, rows: str, message: str
) -> None:
    path = tmp_path / "2016.csv"
    path.write_text(rows)
    with pytest.raises(PlanError, match=message) as refused:
        convert([path], tmp_path / "corpus", **files)
    assert "\n" not in str(refused.value)
    assert list((tmp_path / "corpus").iterdir()) == []


def test_a_file_that_is_missing_or_no_gzip_is_named(files: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"2016\.csv: No such file or directory"):
        convert([tmp_path / "2016.csv"], tmp_path / "corpus", **files)
    broken = tmp_path / "2016.csv.gz"
    broken.write_bytes(b"not gzip")
    with pytest.raises(PlanError, match=r"2016\.csv\.gz: cannot be read as gzip"):
        convert([broken], tmp_path / "corpus", **files)


@pytest.mark.parametrize("inside", ["", "further"])
def test_a_directory_that_cannot_be_made_is_one_line(
    files: dict[str, Path], tmp_path: Path, inside: str
) -> None:
    rows = tmp_path / "2016.csv"
    rows.write_text(ROWS)
    with pytest.raises(SetupError, match=r"states.*: cannot write the corpus: .*; choose another directory"):
        convert([rows], files["states"] / inside, **files)
