"""What holds of every import: nothing is lost, order is kept, templates do not depend on literals."""

import gzip
import json
import re
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from query_logs import accounted, query_line, requests, write

from esrally_ebs.workload.queries import Options, import_logs, shapes
from esrally_ebs.workload.queries.dates import Freezer
from esrally_ebs.workload.queries.importing import Ordering
from esrally_ebs.workload.queries.logs import Log
from esrally_ebs.workload.queries.prepare import Hasher, hash_text
from esrally_ebs.workload.queries.shapes import Shapes, Templates, asked_of

NUMBERS = st.one_of(st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False))
SCALARS = st.one_of(st.text(max_size=12), NUMBERS, st.booleans(), st.none())
WORDS = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=10)
# a field may be called as an option is: its value is a literal all the same
FIELDS = st.sampled_from(
    ["customer", "type", "field", "order", "path", "size", "lang", "a b", 'quo"ted', "größe"]
)


def leaf(value: Any, field: str) -> st.SearchStrategy[dict[str, Any]]:  # noqa: ANN401
    return st.sampled_from(
        [
            {"term": {field: value}},
            {"term": {field: {"value": value, "boost": 2.0}}},
            {"terms": {field: [value, value]}},
            {"match": {field: {"query": value, "operator": "and"}}},
            {"range": {field: {"gte": value, "format": "yyyy"}}},
            {"multi_match": {"query": value, "fields": ["title", "body"]}},
            {"query_string": {"query": value}},
        ]
    )


@st.composite
def bodies(draw: st.DrawFn, values: st.SearchStrategy[Any] = SCALARS) -> dict[str, Any]:
    """Bodies of searches; all literals are drawn from ``values``."""
    clauses = [draw(leaf(draw(values), draw(FIELDS))) for _ in range(draw(st.integers(1, 3)))]
    body: dict[str, Any] = {
        "size": 10,
        "query": {"bool": {draw(st.sampled_from(["must", "filter"])): clauses}},
    }
    if draw(st.booleans()):
        terms = {"terms": {"field": "customer", "missing": draw(values), "order": {"_count": "desc"}}}
        body["aggs"] = {"top": {**terms, "aggs": {"mean": {"avg": {"field": "duration"}}}}}
    if draw(st.booleans()):
        body["sort"] = [{"@timestamp": {"order": "desc", "missing": draw(values)}}, "_doc"]
        body["search_after"] = [draw(values)]
    return body


def replaced(node: Any, literal: Callable[[Any], bool], other: Any) -> Any:  # noqa: ANN401
    if isinstance(node, dict):
        return {key: replaced(value, literal, other) for key, value in node.items()}
    if isinstance(node, list):
        return [replaced(value, literal, other) for value in node]
    return other if literal(node) else node


@given(bodies(st.just("LITERAL")), SCALARS)
def test_the_template_of_a_query_does_not_depend_on_its_literals(body: dict[str, Any], other: Any) -> None:  # noqa: ANN401
    changed = replaced(body, lambda node: node == "LITERAL", other)
    one, two = Shapes().of(json.dumps(body)), Shapes().of(json.dumps(changed, ensure_ascii=False))
    assert one.text == two.text
    assert "LITERAL" not in one.text


@given(bodies())
def test_a_shape_is_the_same_however_json_is_written(body: dict[str, Any]) -> None:
    written = (json.dumps(body), json.dumps(body, indent=2), json.dumps(body, separators=(",", ":")))
    assert len({Shapes().of(text).text for text in written}) == 1


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("literal", [1, -0.5e-7, "a ]", 'quo"ted', True, None])
def test_a_list_is_one_literal_however_long(literal: object, indent: int | None) -> None:
    shapes = Shapes()
    asked = [{"query": {"terms": {"user": [literal] * count}}, "size": 1} for count in (1, 2, 70)]
    assert len({id(shapes.of(json.dumps(body, indent=indent))) for body in asked}) == 1  # walked through once
    assert shapes.of(json.dumps(asked[0])).text == '{"query":{"terms":{"user":["?"]}},"size":1}'


@given(st.lists(bodies(), max_size=6))
def test_a_shape_does_not_depend_on_what_was_met_before(met: list[dict[str, Any]]) -> None:
    shapes = Shapes()
    for body in met:
        assert shapes.of(json.dumps(body)).text == Shapes().of(json.dumps(body)).text


@given(bodies(st.just("LITERAL")), SCALARS, SCALARS)
def test_fixing_dates_changes_nothing_else(body: dict[str, Any], one: Any, other: Any) -> None:  # noqa: ANN401
    for value in (one, other):
        if not (isinstance(value, str) and "now" in value):
            node = replaced(body, lambda node: node == "LITERAL", value)
            assert Freezer(0, {}).freeze(node) is None


@given(bodies(), bodies())
def test_the_same_string_is_always_hashed_to_the_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    alone = [Hasher().body(body) for body in (one, other)]
    assert [Hasher().body(one), Hasher().body(other)] == alone


@given(WORDS, WORDS)
def test_different_words_have_different_hashes(one: str, other: str) -> None:
    assert (hash_text(one) == hash_text(other)) == (one == other) or one.isdigit() or other.isdigit()


@given(bodies(st.just("secretword")))
def test_no_word_is_left_when_literals_are_hashed(body: dict[str, Any]) -> None:
    assert "secretword" not in json.dumps(Hasher().body(body))


def test_blanks_in_a_path_are_not_looked_at_again_and_again() -> None:
    """60,000 of them took a minute."""
    begun = time.process_time()
    path = Hasher().path(f"sales{' ' * 60_000}x > mean.value")
    assert time.process_time() - begun < 5
    assert re.fullmatch(r"h[0-9a-f]{12} > h[0-9a-f]{12}\.value", path)


def test_hashing_changes_no_template(tmp_path: Path) -> None:
    log = write(
        tmp_path / "log", *(query_line({"query": {"term": {"user": name}}}) for name in ("ann", "bob"))
    )
    import_logs([log], tmp_path / "plain")
    import_logs([log], tmp_path / "hashed", Options(hash_literals=True))
    plain, hashed = requests(tmp_path / "plain"), requests(tmp_path / "hashed")
    assert [row["template"] for row in plain] == [row["template"] for row in hashed]
    assert len({json.dumps(row["body"]) for row in hashed}) == 2
    assert not {"ann", "bob"} & {row["body"]["query"]["term"]["user"] for row in hashed}


def test_a_query_has_one_template_whichever_days_were_slow_enough_for_the_log(tmp_path: Path) -> None:
    days = (["logs-01"], ["logs-02", "logs-04"], ["logs-01", "logs-02", "logs-03", "other"])
    log = write(tmp_path / "log", *(query_line({"size": 0}, indices=names) for names in days))
    import_logs([log], tmp_path / "out")
    rows = json.loads((tmp_path / "out/templates.json").read_text())["templates"]
    assert [(row["target"], row["count"]) for row in rows] == [("logs-?", 2), ("logs-?,other", 1)]


LINES = st.one_of(
    st.builds(query_line, bodies()),
    st.builds(query_line, bodies(), type=st.sampled_from(["esql", "sql", "dsl"])),
    st.builds(query_line, st.text(max_size=20), indices=st.lists(WORDS, max_size=2)),
    st.builds(lambda line, at: line[:at], st.builds(query_line, bodies()), st.integers(1, 200)),
    st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=20),
)


@settings(max_examples=50)
@given(st.lists(LINES, max_size=12))
def test_every_line_becomes_a_request_or_a_counted_reason(lines: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = write(Path(folder, "log"), query_line({"query": {"match_all": {}}}), *lines)
        summary = import_logs([log], Path(folder, "out"))
        assert accounted(Path(folder, "out")) == summary.lines == len(lines) + 1


@settings(max_examples=50)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.sampled_from([1, 200, 10**6]))
def test_order_is_by_time_and_then_as_in_the_log(times: list[int], run_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ordering = Ordering(Path(folder), run_bytes=run_bytes)
        for number, at in enumerate(times):
            ordering.add(at, b"%d\n" % number)
        rows = [(at, int(line)) for at, line in ordering.rows()]
        ordering.close()
    assert rows == sorted((at, number) for number, at in enumerate(times))


def test_lines_wait_on_disk_for_those_of_other_logs(tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        waiting = []
        for _ in range(8):
            ordering = Ordering(tmp_path)
            for at in range(2000):
                ordering.add(at, b"x" * 1000 + b"\n")
            waiting.append((ordering, ordering.rows()))
            assert next(waiting[-1][1])[0] == 0
        memory, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    for ordering, _ in waiting:
        ordering.close()
    assert memory < 8e6  # of 16 MB


def unlike(number: int) -> str:
    """A body of a shape of its own, with hundreds of clauses."""
    clauses = [{"term": {f"f{(number >> bit) & 1}": bit}} for bit in range(500)]
    return json.dumps({"query": {"bool": {"should": clauses}}})


def test_shapes_take_no_more_memory_the_longer_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "_MAX_CHARS", 100_000)
    known, templates = Shapes(), Templates()
    tracemalloc.start()
    try:
        names = {templates.of(known.of(unlike(number)), "logs").name for number in range(100)}
        memory, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(names) == 100
    assert memory < 500_000  # of 2 MB


def test_names_of_indices_take_no_more_memory_the_longer_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "_MAX_CHARS", 100_000)
    shape, templates = Shapes().of("{}"), Templates()
    tracemalloc.start()
    try:
        for number in range(1000):
            templates.of(shape, f"{'logs-1,' * 300}logs-{number}")
        memory, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert memory < 500_000  # of 2 MB


def test_hundreds_of_logs_are_open_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(query_line({"size": 1}).encode() * 10_000))
    tracemalloc.start()
    try:
        logs = [Log(path) for _ in range(10)]
        memory, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    for log in logs:
        log.close()
    assert memory / len(logs) < 1_000_000  # of 300 MB for all


def test_a_shape_that_is_too_long_to_be_kept_is_listed_by_its_size_and_hash(tmp_path: Path) -> None:
    import_logs([write(tmp_path / "log", query_line(unlike(1)), query_line(unlike(2)))], tmp_path / "out")
    listed = json.loads((tmp_path / "out/templates.json").read_text())["templates"]
    assert len({row["shape"] for row in listed}) == 2
    assert all(re.fullmatch(r"[\d,]+ bytes, [0-9a-f]{32}", row["shape"]) for row in listed)


@pytest.mark.parametrize(
    ("body", "label"),
    [
        ({"knn": {"field": "v", "query_vector": [1, 2], "k": 1, "num_candidates": 2}}, "knn"),
        (
            {"knn": [{"field": "v", "filter": {"term": {"a": 1}}}], "query": {"match": {"a": "b"}}},
            "knn-term-match",
        ),
        ({"suggest": {"s": {"prefix": "a", "completion": {"field": "b"}}}}, "suggest"),
        ({"size": 0}, "match_all"),
    ],
)
def test_a_template_is_called_by_all_that_searches(body: dict[str, Any], label: str) -> None:
    assert Shapes().of(json.dumps(body)).label == label


@pytest.mark.parametrize("kind", ["match", "prefix", "term"])
def test_values_of_a_field_called_as_an_option_need_no_walk_of_their_own(kind: str) -> None:
    known = Shapes()
    one, two = (known.of(json.dumps({"query": {kind: {"path": path}}})) for path in ("/a", "/b"))
    assert one is two
    suggested = (
        known.of(json.dumps({"suggest": {"s": {"text": "a", "term": {"field": field}}}}))
        for field in ("f", "g")
    )
    assert len({shape.text for shape in suggested}) == 2


def test_a_size_that_is_text_tells_templates_apart_as_a_number_does() -> None:
    for size in ("10", "10000", 10, 10000):
        text = Shapes().of(json.dumps({"size": size, "query": {"term": {"size": size}}})).text
        assert json.loads(text) == {"size": size, "query": {"term": {"size": "?"}}}


def test_parameters_of_the_url_tell_templates_apart_as_the_same_parts_of_a_body_do() -> None:
    shape, templates = Shapes().of("{}"), Templates()

    def name(**params: str) -> str:
        return templates.of(shape, asked_of("logs", params)).name

    assert len({name(), name(size="10"), name(size="10000"), name(sort="at:asc"), name(sort="at:desc")}) == 5
    assert name(size="10", q="a", routing="1") == name(size="10", q="b", routing="2")
    assert len(asked_of("logs", {"_source": "a" * 10_000})) < 300  # of a log of one's own
