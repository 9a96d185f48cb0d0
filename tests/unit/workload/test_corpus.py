"""The synthetic corpus holds what the real one holds, as far as published figures and NOAA's facts say."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jinja2
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow.json import read_json

from esrally_ebs.machine.resources import resource
from esrally_ebs.workload.corpus import Corpus, generate

DOCUMENTS = 200_000
Query = Callable[[pa.Table], np.ndarray]  # which documents it hits


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    path = tmp_path_factory.mktemp("corpus") / "documents.json"
    return generate(path, documents=DOCUMENTS, workers=1)


@pytest.fixture(scope="module")
def documents(corpus: Corpus) -> pa.Table:
    """A row per document; an object is a column per field, as ``TRANGE.gte``."""
    return read_json(corpus.path).flatten().flatten()


def in_range(low: float, high: float) -> Query:
    """What a range query on a range field hits: every range that touches [low, high]."""
    # no range is NaN, which is neither above nor below anything
    return lambda docs: (docs["TRANGE.gte"].to_numpy() <= high) & (docs["TRANGE.lte"].to_numpy() >= low)


def from_country(code: str) -> Query:
    return lambda docs: pc.equal(docs["station.country_code"], code).to_numpy()


BIG_RANGE, SMALL_RANGE = in_range(0, 30), in_range(-20, -10)
BIG_TERM, SMALL_TERM = from_country("US"), from_country("JA")

# Plausible shares of the real corpus, from station counts, climate normals and its published TMAX histogram.
SELECTIVITIES = {
    "big range": (BIG_RANGE, 0.33, 0.37),
    "small range": (SMALL_RANGE, 0.028, 0.042),
    "big range and small term": (lambda d: BIG_RANGE(d) & SMALL_TERM(d), 0.0040, 0.0050),
    "small range and small term": (lambda d: SMALL_RANGE(d) & SMALL_TERM(d), 3e-5, 6e-5),
    "small range and big term": (lambda d: SMALL_RANGE(d) & BIG_TERM(d), 0.017, 0.027),
    "big range and big term": (lambda d: BIG_RANGE(d) & BIG_TERM(d), 0.21, 0.26),
    "small range or small term": (lambda d: SMALL_RANGE(d) | SMALL_TERM(d), 0.033, 0.047),
    "big range or small term": (lambda d: BIG_RANGE(d) | SMALL_TERM(d), 0.33, 0.375),
}


@pytest.mark.parametrize("query", SELECTIVITIES)
def test_each_search_hits_a_plausible_share(documents: pa.Table, query: str) -> None:
    hits, low, high = SELECTIVITIES[query]
    share = hits(documents).mean()
    sampling = 3 * math.sqrt(high / DOCUMENTS)  # three standard errors of a rare event's share
    margin = sampling if high < 1e-3 else 0
    assert low - margin <= share <= high + margin


def test_forty_per_cent_of_the_reports_have_a_maximum_temperature(documents: pa.Table) -> None:
    # 13,532,662 of 33,659,481; the standard error of 200,000 documents is 0.11 %
    share = documents["TMAX"].is_valid().to_numpy().mean()
    assert share == pytest.approx(0.4020, abs=0.0033)


def test_the_mean_maximum_temperature_is_that_of_the_real_corpus(documents: pa.Table) -> None:
    # 17.209 C over values up to 201.6; standard deviation about 12 K, so 0.04 K over 80,000 values
    values = documents["TMAX"].to_numpy()
    assert values[values < 201.7].mean() == pytest.approx(17.21, abs=0.15)


def test_a_document_is_as_long_as_in_the_real_corpus(corpus: Corpus) -> None:
    # 9,684,262,698 bytes / 33,659,481 documents
    assert corpus.bytes / corpus.documents == pytest.approx(287.72, rel=0.02)


def test_two_thirds_of_the_reports_are_from_the_united_states(documents: pa.Table) -> None:
    assert 0.60 <= BIG_TERM(documents).mean() <= 0.70


def test_every_document_fits_the_strict_mapping(documents: pa.Table) -> None:
    properties = json.loads(jinja2.Template(resource("tracks/noaa-ebs/index.json").read_text()).render())
    fields = {(field.name, field.type) for field in documents.schema}
    assert fields - set(columns_of(properties["mappings"]["properties"])) == set()


def test_temperature_ranges_are_in_order(documents: pa.Table) -> None:
    low, high = documents["TRANGE.gte"], documents["TRANGE.lte"]
    assert low.is_valid() == high.is_valid()  # both ends, or no range
    assert pc.all(pc.less_equal(low, high)).as_py()


def test_stations_are_on_the_globe(documents: pa.Table) -> None:
    for name, most in (("lat", 90), ("lon", 180)):
        assert documents[f"station.location.{name}"].null_count == 0
        assert np.abs(documents[f"station.location.{name}"].to_numpy()).max() <= most


def test_no_station_reports_twice_a_day(documents: pa.Table) -> None:
    assert documents.group_by(["station.id", "date"]).aggregate([]).num_rows == DOCUMENTS


def test_a_report_is_of_a_day(documents: pa.Table) -> None:
    days = documents["date"].to_numpy()
    assert (days == days.astype("M8[D]")).all()


def test_the_first_thousand_documents_are_spread_over_all_years(documents: pa.Table) -> None:
    years = pc.year(documents["date"][:1000]).to_pylist()
    # a third each: 333 with a standard deviation of 15
    assert all(270 <= years.count(year) <= 400 for year in (2014, 2015, 2016))


TYPES: dict[str, dict[str, pa.DataType]] = {  # of a field, and of what is below it
    "keyword": {"": pa.string()},
    "date": {"": pa.timestamp("s")},
    "float": {"": pa.float64()},
    "double_range": {".gte": pa.float64(), ".lte": pa.float64()},
    "geo_point": {".lat": pa.float64(), ".lon": pa.float64()},
}


def columns_of(mapping: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, pa.DataType]]:
    """The columns that a mapping has a place for."""
    for name, field in mapping.items():
        if "properties" in field:
            yield from columns_of(field["properties"], f"{above}{name}.")
        else:
            yield from ((f"{above}{name}{below}", type_) for below, type_ in TYPES[field["type"]].items())
