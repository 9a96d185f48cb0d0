"""The synthetic corpus holds what the real one holds, as far as published figures and NOAA's facts say."""

import gc
import json
import math
from collections.abc import Callable
from typing import Any

import jinja2
import pytest

from esrally_ebs.corpus import Corpus, generate
from esrally_ebs.resources import resource

DOCUMENTS = 200_000
Document = dict[str, Any]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    path = tmp_path_factory.mktemp("corpus") / "documents.json"
    return generate(path, documents=DOCUMENTS, workers=1)


@pytest.fixture(scope="module")
def documents(corpus: Corpus) -> list[Document]:
    lines = corpus.path.read_text().splitlines()
    gc.disable()  # a million small objects, none of them garbage
    try:
        found: list[Document] = json.loads(f"[{','.join(lines)}]")
    finally:
        gc.enable()
    return found


def in_range(low: float, high: float) -> Callable[[Document], bool]:
    """What a range query on a range field hits: every range that touches [low, high]."""
    return lambda doc: "TRANGE" in doc and doc["TRANGE"]["gte"] <= high and doc["TRANGE"]["lte"] >= low


def from_country(code: str) -> Callable[[Document], bool]:
    return lambda doc: doc["station"]["country_code"] == code


BIG_RANGE, SMALL_RANGE = in_range(0, 30), in_range(-20, -10)
BIG_TERM, SMALL_TERM = from_country("US"), from_country("JA")

# Plausible shares of the real corpus, from station counts, climate normals and its published TMAX histogram.
SELECTIVITIES = {
    "big range": (BIG_RANGE, 0.33, 0.37),
    "small range": (SMALL_RANGE, 0.028, 0.042),
    "big range and small term": (lambda d: BIG_RANGE(d) and SMALL_TERM(d), 0.0040, 0.0050),
    "small range and small term": (lambda d: SMALL_RANGE(d) and SMALL_TERM(d), 3e-5, 6e-5),
    "small range and big term": (lambda d: SMALL_RANGE(d) and BIG_TERM(d), 0.017, 0.027),
    "big range and big term": (lambda d: BIG_RANGE(d) and BIG_TERM(d), 0.21, 0.26),
    "small range or small term": (lambda d: SMALL_RANGE(d) or SMALL_TERM(d), 0.033, 0.047),
    "big range or small term": (lambda d: BIG_RANGE(d) or SMALL_TERM(d), 0.33, 0.375),
}


@pytest.mark.parametrize("query", SELECTIVITIES)
def test_each_search_hits_a_plausible_share(documents: list[Document], query: str) -> None:
    hits, low, high = SELECTIVITIES[query]
    share = sum(hits(doc) for doc in documents) / DOCUMENTS
    sampling = 3 * math.sqrt(high / DOCUMENTS)  # three standard errors of a rare event's share
    margin = sampling if high < 1e-3 else 0
    assert low - margin <= share <= high + margin


def test_forty_per_cent_of_the_reports_have_a_maximum_temperature(documents: list[Document]) -> None:
    # 13,532,662 of 33,659,481; the standard error of 200,000 documents is 0.11 %
    share = sum("TMAX" in doc for doc in documents) / DOCUMENTS
    assert share == pytest.approx(0.4020, abs=0.0033)


def test_the_mean_maximum_temperature_is_that_of_the_real_corpus(documents: list[Document]) -> None:
    # 17.209 C over values up to 201.6; standard deviation about 12 K, so 0.04 K over 80,000 values
    values = [doc["TMAX"] for doc in documents if doc.get("TMAX", 999) < 201.7]
    assert sum(values) / len(values) == pytest.approx(17.21, abs=0.15)


def test_a_document_is_as_long_as_in_the_real_corpus(corpus: Corpus) -> None:
    # 9,684,262,698 bytes / 33,659,481 documents
    assert corpus.bytes / corpus.documents == pytest.approx(287.72, rel=0.02)


def test_two_thirds_of_the_reports_are_from_the_united_states(documents: list[Document]) -> None:
    assert 0.60 <= sum(map(BIG_TERM, documents)) / DOCUMENTS <= 0.70


def test_every_document_fits_the_strict_mapping(documents: list[Document]) -> None:
    mapping = rendered_mapping()
    assert {problem for doc in documents for problem in misfits(doc, mapping)} == set()


def test_no_station_reports_twice_a_day(documents: list[Document]) -> None:
    assert len({(doc["station"]["id"], doc["date"]) for doc in documents}) == DOCUMENTS


def test_temperature_ranges_are_in_order(documents: list[Document]) -> None:
    ranges = [doc["TRANGE"] for doc in documents if "TRANGE" in doc]
    assert all(found["gte"] <= found["lte"] for found in ranges)


def test_the_first_thousand_documents_are_spread_over_all_years(documents: list[Document]) -> None:
    years = [doc["date"][:4] for doc in documents[:1000]]
    # a third each: 333 with a standard deviation of 15
    assert all(270 <= years.count(year) <= 400 for year in ("2014", "2015", "2016"))


def rendered_mapping() -> Document:
    text = jinja2.Template(resource("tracks/noaa-ebs/index.json").read_text()).render()
    properties: Document = json.loads(text)["mappings"]["properties"]
    return properties


FITS: dict[str, Callable[[Any], bool]] = {
    "keyword": lambda value: isinstance(value, str),
    "date": lambda value: isinstance(value, str) and value.endswith("T00:00:00"),
    "float": lambda value: isinstance(value, float),
    "double_range": lambda value: value.keys() == {"gte", "lte"},
    "geo_point": lambda value: abs(value["lat"]) <= 90 and abs(value["lon"]) <= 180,
}


def misfits(doc: Document, mapping: Document) -> list[str]:
    found = []
    for name, value in doc.items():
        field = mapping.get(name)
        if field is None:
            found.append(f"{name} is not mapped")
        elif "properties" in field:
            found += misfits(value, field["properties"])
        elif not FITS[field["type"]](value):
            found.append(f"{name} is no {field['type']}: {value!r}")
    return found
