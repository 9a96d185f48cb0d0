"""Literals: what a hash keeps, and what makes no template."""

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from query_logs import query_line, requests, write

from esrally_ebs.errors import FormatError
from esrally_ebs.workload.queries import Options, import_logs
from esrally_ebs.workload.queries.prepare import Hasher, hash_query, hash_text
from esrally_ebs.workload.queries.shapes import Shapes

A, BOB, U = map(hash_text, ("a", "bob", "u"))


def before_hashing(body: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(body)
    for word in ("a", "bob", "u"):
        text = text.replace(hash_text(word), word)
    return dict(json.loads(text))


@pytest.mark.parametrize(
    "text",
    [
        "2026/01/02",
        "31.12.2026 10:00",
        "2026-01-02",
        "2026-01-02T10:00:00.000Z",
        "2026-01-02T10+02:00",
        "2026-01-02T10:00:00.000Z||-1d/d",
        "now-1d",
        "",
        "*",
        "?",
    ],
)
def test_what_is_no_word_is_not_hashed(text: str) -> None:
    assert hash_text(text) == text


@pytest.mark.parametrize("word", ["हिन्दी", "ก็", "cafe\u0301", "שָׁלוֹם", "क्\u200dष", "葛\U000e0100城"])
def test_a_word_is_hashed_with_its_vowel_signs_and_accents(word: str) -> None:
    assert re.fullmatch(r"h[0-9a-f]{12} \*h[0-9a-f]{12}\*", hash_text(f"{word} *{word}*"))
    assert hash_query(f"{word}:{word}") == f"{word}:{hash_text(word)}"


def test_a_hash_keeps_what_the_query_needs() -> None:
    assert not {"078", "05", "1120"} & {*hash_text("078-05-1120").split("-")}  # no date
    assert not {"4111", "3333"} & {*hash_text("4111-22-3333").split("-")}  # nor that, with a zone
    assert not {"4111", "0800"} & {*hash_query("card:4111-12-0800").split("-")}
    assert hash_text("red shoes").count(" ") == 1
    assert hash_text("red shoes").split() == [hash_text("red"), hash_text("shoes")]
    assert hash_text("sho*").endswith("*")
    assert len(hash_text("4711")) == 4
    assert hash_text("4711").isdigit()
    assert all(hash_text(f"9223372036854775{n}")[0] == "0" for n in range(100, 150))  # still a long
    assert hash_text("192.168.0.1").startswith("10.")
    assert hash_text("192.168.0.0/16") == f"{hash_text('192.168.0.0')}/16"
    assert hash_query("ip:192.168.0.1 AND a:b") == f"ip:{hash_text('192.168.0.1')} AND a:{hash_text('b')}"
    assert hash_text("2001:db8::1").startswith("fd")
    assert (
        hash_query("user:bob AND NOT status:open")
        == f"user:{hash_text('bob')} AND NOT status:{hash_text('open')}"
    )


@pytest.mark.parametrize(
    "bound", ['"2026-01-02T10:00:00.000Z||/d"', "2026-01-02||-1M/M", r"2026-01-02||+1h\/d-3m"]
)
def test_maths_on_a_date_of_a_query_string_are_not_hashed(bound: str) -> None:
    bob = hash_text("bob")
    assert hash_query(f"ts:[{bound} TO *] AND (bob||-bob)") == f"ts:[{bound} TO *] AND ({bob}||-{bob})"


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ('user:"bob: bob" AND "bob:bob"', f'user:"{BOB}: {BOB}" AND "{BOB}:{BOB}"'),
        (r'"say \"bob: u\""', rf'"{hash_text("say")} \"{BOB}: {U}\""'),
        (
            r"app-name:bob labels.app\ id:bob name.\*:bob",
            rf"app-name:{BOB} labels.app\ id:{BOB} name.\*:{BOB}",
        ),
        ('n:["10" TO "20"] AND "bob" OR u : bob', f'n:["10" TO "20"] AND "{BOB}" OR u : {BOB}'),
    ],
)
def test_fields_of_a_query_string_stay_and_no_word_of_a_phrase(text: str, becomes: str) -> None:
    assert hash_query(text) == becomes


@pytest.mark.parametrize(
    ("before", "bound", "after"),
    [
        ("id:4bob AND 4111 AND", '@timestamp:["2026-01-02T10:00:00.000Z||-1h" TO *]', 'AND "4111"'),
        ("4bob", "ts:(>=2026-01-02T10:00:00Z AND <1767348000)", "4111"),
        ("078-05-1120", "ts:2026-01-02 price:[-5 TO 1.5e3] n:{1 TO 9]", "2026-1120"),
        ("4bob", "price:[1.5e-3 TO 2E+4]", "4111"),
        ("4bob", r"ts:2026-01-02T10\:00\:00.000Z", "4111"),
        ("4bob", 'ts:["2026/01/02 10:00:00.000" TO "02.01.2026 11:00:00.000"]', "4111"),
    ],
)
def test_bounds_of_a_query_string_stay_and_nothing_beside_them(before: str, bound: str, after: str) -> None:
    first, last = hash_query(before), hash_query(after)
    assert hash_query(f"{before} {bound} {after}") == f"{first} {bound} {last}"
    assert not [word for word in ("4bob", "4111", "078", "1120") if word in first + last]


def test_a_simple_query_string_has_no_fields() -> None:
    body = {"query": {"simple_query_string": {"query": 'bob:u +"bob: u"~2'}}}
    hashed = {"query": {"simple_query_string": {"query": f'{BOB}:{U} +"{BOB}: {U}"~2'}}}
    assert Hasher().body(body) == hashed


def test_what_a_node_would_refuse_if_it_were_hashed_stays() -> None:
    lookup = {"index": "users", "id": BOB, "path": "friends"}
    factor = {"field_value_factor": {"field": "likes", "modifier": "log1p", "missing": 1}}
    near = {"gauss": {"place": {"origin": "52.5,13.4", "scale": "2km"}, "multi_value_mode": "avg"}}
    clauses = [
        {"term": {"open": "true"}},
        {"range": {"ts": {"gte": "1700000000000", "lt": "31/12/2026", "boost": "2.0"}}},
        {"terms": {"user": lookup}},
        {"query_string": {"query": "_exists_ : user.name AND open:false AND n:[10 TO 20]^2.5"}},
    ]
    clauses.append({"match": {"ts": "31/12/2026"}})
    users = {"terms": {"field": "user", "missing_order": "last"}}
    grid = {"geohash_grid": {"field": "place", "precision": "10km"}}
    spans = {"auto_date_histogram": {"field": "ts", "minimum_interval": "day"}}
    body = {
        "from": "20",
        "query": {"function_score": {"query": {"bool": {"filter": clauses}}, "functions": [factor, near]}},
        "sort": [{"price": {"order": "desc", "missing": "_last"}}, {"_geo_distance": {"place": "u33dc1"}}],
        "aggs": {BOB: grid, U: spans, A: {"composite": {"sources": [{U: users}]}}},
    }
    assert Hasher().body(before_hashing(body)) == body
    assert hash_text("10.0.0.1") in str(Hasher().body({"query": {"range": {"ip": {"gte": "10.0.0.1"}}}}))


@pytest.mark.parametrize(
    "body",
    [
        {"query": {"has_parent": {"parent_type": "blog", "query": {"match_all": {}}}}},
        {"query": {"terms_set": {"tag": {"terms": [1], "minimum_should_match_field": "least"}}}},
        {"query": {"intervals": {"text": {"match": {"query": "", "use_field": "exact"}}}}},
        {"query": {"knn": {"field": "v", "query_vector": "00ff7f"}}},
        {"query": {"rule": {"organic": {"match_all": {}}, "ruleset_ids": ["sale"]}}},
        {"query": {"sparse_vector": {"field": "v", "inference_id": "elser", "query": ""}}},
        {"highlight": {"fields": {name: {"type": "plain"} for name in ("doc", "order", "script", "sort")}}},
        {"retriever": {"linear": {"retrievers": [{"normalizer": "minmax", "weight": 2}]}}},
        {"aggs": {A: {"significant_text": {"field": "a", "source_fields": ["b"]}}}},
        {
            "terminate_after": "1000",
            "min_score": "1.5",
            "rescore": {"window_size": "50"},
        },  # of PHP
        {"aggs": {A: {"geohash_grid": {"field": "a", "bounds": {"top_left": "u3", "bottom_right": "u4"}}}}},
        {"query": {"distance_feature": {"field": "a", "pivot": "1km", "origin": "Point (13.4 -52.5)"}}},
        {"aggs": {A: {"geo_line": {"point": {"field": "place"}, "sort": {"field": "@timestamp"}}}}},
        {"aggs": {A: {"bucket_count_ks_test": {"alternative": ["less"], "sampling_method": "uniform"}}}},
        {"suggest": {A: {"phrase": {"direct_generator": [{"pre_filter": "turn", "post_filter": "turn"}]}}}},
        {"query": {"more_like_this": {"like": [{"_index": "logs", "version_type": "external"}]}}},
        {"aggs": {A: {"categorize_text": {"field": "a", "categorization_analyzer": "standard"}}}},
        {
            "runtime_mappings": {
                "user": {
                    "type": "lookup",
                    "target_index": "users",
                    "input_field": "id",
                    "target_field": "key",
                    "fetch_fields": ["name"],
                },
                "order": {"type": "keyword", "script": "emit(1)", "on_script_error": "continue"},
            }
        },
    ],
)
def test_names_that_are_no_literals_are_not_hashed(body: dict[str, Any]) -> None:
    assert Hasher().body(before_hashing(body)) == body


def test_points_and_regular_expressions(tmp_path: Path) -> None:
    near = {"geo_distance": {"distance": "10km", "place": "52.5,13.4"}}
    lines = (query_line({"query": query}) for query in (near, {"regexp": {"host": "web[0-9]+"}}))
    options = Options(hash_literals=True)
    summary = import_logs([write(tmp_path / "log", *lines)], tmp_path / "out", options)
    assert summary.excluded == {"regular expression, script or KQL that cannot be hashed": 1}
    assert requests(tmp_path / "out")[0]["body"] == {"query": near}


def test_networks_and_pairs_of_long_numbers_are_hashed() -> None:
    ranges = {"ranges": [{"mask": "203.0.113.0/25"}, {"to": "203.0.113.7"}]}
    ips, ids = {"ip_range": {"field": "ip", **ranges}}, "4111111111111111, 4711"
    hashed = Hasher().body({"query": {"match": {"cards": ids}}, "aggs": {A: ips}})
    network, address = map(hash_text, ("203.0.113.0", "203.0.113.7"))
    (aggregation,) = hashed["aggs"].values()
    assert aggregation["ip_range"]["ranges"] == [{"mask": f"{network}/25"}, {"to": address}]
    assert hash_query(r"ip:203.0.113.0\/25 AND a:b") == rf"ip:{network}\/25 AND a:{hash_text('b')}"
    assert hashed["query"]["match"]["cards"] == ", ".join(map(hash_text, ids.split(", ")))


def test_an_address_stays_one_whose_colons_a_query_string_escapes() -> None:
    first, last = map(hash_text, ("2001:db8::1", "2001:db8::ff"))
    assert hash_query(r"ip:2001\:db8\:\:1\/64") == "ip:" + first.replace(":", r"\:") + r"\/64"
    assert hash_query("ip:[2001:db8::1 TO 2001:db8::ff]") == f"ip:[{first} TO {last}]"
    assert hash_query(r"at:[2026-01-02T10\:00\:00 TO *]") == r"at:[2026-01-02T10\:00\:00 TO *]"
    assert ":1b:" not in hash_query("mac:[00:1b:44:11:3a:b7 TO *]")


def test_names_of_filters_are_literals(tmp_path: Path) -> None:
    bodies = [
        {
            "aggs": {
                "who": {
                    "filters": {
                        "filters": {f"user:{name}": {"term": {"user": name}}, "2": {"match_all": {}}},
                        "other_bucket_key": name,
                    },
                    "aggs": {"n": {"bucket_script": {"buckets_path": {"a": f"x['user:{name}']>n"}}}},
                }
            }
        }
        for name in ("bob", "zoe")
    ]
    log = write(tmp_path / "log", *(query_line(body) for body in bodies))
    import_logs([log], tmp_path / "out", Options(hash_literals=True))
    texts = [(tmp_path / "out" / name).read_text() for name in ("queries.ndjson", "templates.json")]
    assert not [name for name in ("bob", "zoe") if name in "".join(texts)]
    assert len(json.loads(texts[1])["templates"]) == 1
    (who,) = requests(tmp_path / "out")[0]["body"]["aggs"].values()
    (name, _) = who["filters"]["filters"]
    ((n, counted),) = who["aggs"].items()
    assert counted["bucket_script"]["buckets_path"] == {"a": f"{hash_text('x')}['{name}']>{n}"}


def test_names_that_a_query_gives_are_literals(tmp_path: Path) -> None:
    def body(name: str) -> dict[str, Any]:
        total = f"total of {name}"
        sums = {
            total: {"sum": {"field": "price"}},
            "best": {"bucket_sort": {"sort": [total, {f"{name}>{total}.value": "desc"}, {"_key": "asc"}]}},
        }
        users = {
            "terms": {"field": "user", "order": [{total: "desc"}, {"_count": "asc"}]},
            "aggs": sums,
            "meta": {name: 1},
        }
        pages = {"sources": [{name: {"terms": {"field": "user"}}}], "after": {name: name}}
        paths = {"t": f"{name} > {total}", "n": "_count", "p": f"{name}[99.5]", "q": f"{name}>a.{name}.99"}
        return {
            "stats": [name],
            "script_fields": {name: {"script": "1"}},
            "suggest": {"text": name, name: {"term": {"field": "user"}}},
            "aggs": {
                name: users,
                "pages": {"composite": pages},
                "most": {"max_bucket": {"buckets_path": f"{name}>{total}"}},
                "all": {"bucket_script": {"buckets_path": paths, "script": "params.t"}},
            },
        }

    log = write(tmp_path / "log", *(query_line(body(name)) for name in ("bob", "zoe")))
    import_logs([log], tmp_path / "plain")
    import_logs([log], tmp_path / "out", Options(hash_literals=True))
    plain, shapes = ((tmp_path / name / "templates.json").read_text() for name in ("plain", "out"))
    assert plain == shapes
    assert len(json.loads(shapes)["templates"]) == 1
    texts = shapes + (tmp_path / "out" / "queries.ndjson").read_text()
    assert not [name for name in ("bob", "zoe") if name in texts]
    hashed = requests(tmp_path / "out")[0]["body"]
    (bob, _, _, script) = hashed["aggs"]
    users = hashed["aggs"][bob]
    (total, best) = users["aggs"]
    assert users["terms"]["order"] == [{total: "desc"}, {"_count": "asc"}]
    sort = users["aggs"][best]["bucket_sort"]["sort"]
    assert sort == [total, {f"{bob}>{total}.value": "desc"}, {"_key": "asc"}]
    paths = hashed["aggs"][script]["bucket_script"]["buckets_path"]
    assert (paths["t"], paths["n"], paths["p"]) == (f"{bob} > {total}", "_count", f"{bob}[99.5]")
    assert hashed["suggest"].keys() == {"text", bob}


@pytest.mark.parametrize(
    "query",
    [
        {"sparse_vector": {"field": "f", "query_vector": {"bob": 0.5, "zoe": 0.1}}},
        {"weighted_tokens": {"f": {"tokens": {"bob": 0.5}}}},
        {"more_like_this": {"like": [{"_index": "i", "doc": {"type": "bob", "path": "bob"}}]}},
        {"percolate": {"field": "q", "document": {"type": "bob", "script": "bob", "sort": ["bob"]}}},
        {"percolate": {"field": "q", "documents": [{"mode": "bob"}, {"lang": "bob"}]}},
        {"geo_shape": {"area": {"indexed_shape": {"index": "i", "id": "bob", "path": "p"}}}},
    ],
)
def test_words_that_are_keys_and_documents_of_a_query_are_literals(
    query: dict[str, Any], tmp_path: Path
) -> None:
    log = write(tmp_path / "log", query_line({"query": query}))
    import_logs([log], tmp_path / "out", Options(hash_literals=True))
    assert not [path.name for path in (tmp_path / "out").iterdir() if "bob" in path.read_text()]
    assert len(requests(tmp_path / "out")) == 1


def test_a_query_in_base64_is_the_query_that_it_wraps(tmp_path: Path) -> None:
    script = {"script": {"script": "1"}}
    queries = ({"range": {"ts": {"gte": "now-1d"}}}, {"match": {"who": "bob"}}, script, "no query")
    texts = (base64.b64encode(json.dumps(query).encode()).decode() for query in queries)
    wrapped = [{"query": {"bool": {"must": [{"wrapper": {"query": text}}]}}} for text in texts]
    options = Options(hash_literals=True, modules=False)
    log = write(tmp_path / "log", *map(query_line, wrapped))
    assert import_logs([log], tmp_path / "out", options).excluded == {
        "needs a module that the node lacks": 1,
        "regular expression, script or KQL that cannot be hashed": 1,  # what is left in Base64
    }
    (first, second) = (row["body"]["query"]["bool"]["must"][0] for row in requests(tmp_path / "out"))
    assert first["range"]["ts"]["gte"].endswith("||-1d")
    assert second == {"match": {"who": hash_text("bob")}}


def test_the_words_of_a_sparse_vector_make_no_template(tmp_path: Path) -> None:
    vectors = ({"bob": 0.5}, {"zoe": 0.2, "ann": 0.1})
    queries = ({"sparse_vector": {"field": "f", "query_vector": vector}} for vector in vectors)
    log = write(tmp_path / "log", *(query_line({"query": query}) for query in queries))
    assert import_logs([log], tmp_path / "out").templates == 1


@pytest.mark.parametrize(
    "query",
    [
        lambda points: {"geo_shape": {"area": {"shape": {"type": "polygon", "coordinates": [points]}}}},
        lambda points: {"geo_polygon": {"place": {"points": points}}},
        lambda points: {"geo_polygon": {"place": {"points": [{"lat": y, "lon": x} for x, y in points]}}},
    ],
    ids=["shape", "lists", "objects"],
)
def test_a_polygon_is_a_literal_however_many_points_it_has(query: Callable[[Any], Any]) -> None:
    points = [[13.4 + number, 52.5] for number in range(20)]
    shapes = {Shapes().of(json.dumps({"query": query(points[:count])})).text for count in (4, 5, 20)}
    assert len(shapes) == 1
    ranges = [{"from": 1, "to": 2}, {"from": 2, "to": 3}]  # buckets are no points
    aggs = [{"aggs": {"a": {"range": {"field": "x", "ranges": ranges[:count]}}}} for count in (1, 2)]
    assert len({Shapes().of(json.dumps(body)).text for body in aggs}) == 2


@pytest.mark.parametrize("order", [str, lambda word: {"order": word}], ids=["alone", "as an option"])
def test_the_order_of_sorting_is_no_literal_in_capitals_either(order: Callable[[str], object]) -> None:
    bodies = [{"sort": [{"price": order(word)}]} for word in ("ASC", "DESC")]
    assert len({Shapes().of(json.dumps(body)).text for body in bodies}) == 2
    assert [Hasher().body(body) for body in bodies] == bodies


@pytest.mark.parametrize("intervals", [(10, 1000), (0.5, 50.0), (1e-7, 1e22), ("10", "1000"), ("1h", "1d")])
def test_an_interval_is_no_literal(intervals: tuple[object, object]) -> None:
    def shape(interval: object, floor: int) -> str:
        histogram = {"field": "price", "interval": interval, "offset": floor}
        price = {"term": {"interval": floor}}  # a field
        return Shapes().of(json.dumps({"query": price, "aggs": {"a": {"histogram": histogram}}})).text

    first, second = intervals
    assert shape(first, 1) == shape(first, 2) != shape(second, 1)


@pytest.mark.parametrize(
    ("source", "refused"),
    [
        ("doc['user'].value == 'bob'", True),
        ('emit("bob")', True),
        ("doc['a'].value > params['x'] && doc.containsKey('b') && field('c').get(0) > 1", False),
        ("cosineSimilarity(params.v, 'vector') + 1.0", False),
        ("params._source['a'][0]['b'] + doc ['c'].value + l1norm( params.v, 'vector')", False),
        ("['bob'].contains(doc['user'].value)", True),
        ("return ['bob': 2].getOrDefault(doc['user'].value, 1)", True),
        ("def boost = [:]; boost['bob'] = 2; boost[doc['user'].value]", True),
        ("doc['user'].value.replace(params.a, 'bob')", True),
        ("doc['a'].value * 2 // for bob", True),
        ("/* bob */ doc['a'].value / 2", True),
        ("doc['user'].value =~ /bob/ ? 1 : 0", True),
        ("return /bob/.matcher(doc['user'].value).find()", True),
        ("def all = [/bob/]; all.stream().anyMatch(p -> /bob/.matcher(p).find())", True),
        ("return doc['user'].value + /bob/", True),
        ("for (int i = 0; i < 3; i++) {} /bob/.matcher(doc['user'].value).find()", True),
        ("doc['a'].value[0] / 2 > doc['b'].value / 3 ? (params.n) / 2 : params.n++ / 2", False),
        ("doc['a'].value/doc['b'].value / (params.n / 2)", False),
    ],
)
def test_a_script_with_a_literal_is_not_hashed(source: str, refused: bool) -> None:
    for script in (source, {"source": source, "params": {"x": 1}}):
        hasher = Hasher()
        hasher.body({"query": {"script": {"script": script}}})
        assert hasher.refused is refused


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        ({"query": {"query_string": {"query": "host:/web[0-9]+/ AND a:b"}}}, True),
        ({"query": {"query_string": {"query": 'ts:[now-1d/d TO now/d] AND url:"http://a.b/c/"'}}}, False),
        ({"query": {"simple_query_string": {"query": "host:/web[0-9]+/"}}}, False),  # it has none
        ({"query": {"kql": {"query": "user: bob and n > 5"}}}, True),  # whose words a node needs
        ({"query": {"wrapper": {"query": "eyJ0ZXJtIjp7InUiOiJib2IifX0="}}}, True),
        ({"query": {"intervals": {"t": {"any_of": {"intervals": [{"regexp": {"pattern": "b.b"}}]}}}}}, True),
        ({"query": {"intervals": {"t": {"wildcard": {"pattern": "b*"}}}}}, False),
        ({"suggest": {"s": {"regex": "bo[bx]", "completion": {"field": "m"}}}}, True),
        ({"suggest": {"s": {"phrase": {"collate": {"query": {"match": {"t": "bob"}}}}}}}, True),  # no script
        ({"aggs": {"a": {"categorize_text": {"field": "m", "categorization_filters": ["bob.*"]}}}}, True),
        ({"aggs": {"a": {"frequent_item_sets": {"fields": [{"field": "m", "include": "b[a-z]b"}]}}}}, True),
    ],
)
def test_what_would_be_another_language_if_it_were_hashed(body: dict[str, Any], refused: bool) -> None:
    hasher = Hasher()
    hasher.body(body)
    assert hasher.refused is refused


def test_a_map_that_a_script_gets_is_a_literal_with_all_its_keys(tmp_path: Path) -> None:
    source = "params.weights.getOrDefault(doc[params.field].value, 1)"
    queries = [
        {"script_score": {"script": {"source": source, "params": {"field": "user", "weights": weights}}}}
        for weights in ({"bob": 2}, {"zoe": 3, "ann": [{"bob": 1}]})
    ]
    metrics = [
        {"scripted_metric": {"map_script": "1", "params": {"weights": {name: 1}}}} for name in ("bob", "zoe")
    ]
    bodies = [*({"query": query} for query in queries), *({"aggs": {"a": metric}} for metric in metrics)]
    log = write(tmp_path / "log", *map(query_line, bodies), query_line({}))
    assert import_logs([log], tmp_path / "out").templates == 3
    assert not [name for name in ("bob", "zoe") if name in (tmp_path / "out" / "templates.json").read_text()]
    assert [request["body"]["query"] for request in requests(tmp_path / "out")[:2]] == queries
    excluded = import_logs([log], tmp_path / "hashed", Options(hash_literals=True)).excluded
    assert excluded == {"regular expression, script or KQL that cannot be hashed": 4}


def test_a_language_without_fields_has_no_bounds_but_dates() -> None:
    text = "call >5551234 or [5551234 TO 5551235] on 2026-01-02"
    assert {"5551234", "5551235", "2026"} <= {*re.findall(r"\d+", hash_query(text))}
    assert "bob" not in hash_query("user:[bob:1 TO bob:9] AND user:>bob:5")  # nor has a range fields
    hashed = Hasher().body({"query": {"simple_query_string": {"query": text}}})
    numbers = {*re.findall(r"\d+", hashed["query"]["simple_query_string"]["query"])}
    assert {"5551234", "5551235", "2026"} & numbers == {"2026"}


def test_names_of_digits_alone_are_no_bounds() -> None:
    bounds = {"query": {"range": {"n": {"gte": "5551234", "_name": "5551234"}}}}
    assert Hasher().body(bounds)["query"]["range"]["n"] == {"gte": "5551234", "_name": hash_text("5551234")}
    buckets = {"aggs": {A: {"range": {"field": "n", "ranges": [{"to": "5551234", "key": "5551234"}]}}}}
    ((aggregation,),) = [Hasher().body(buckets)["aggs"].values()]
    assert aggregation["range"]["ranges"] == [{"to": "5551234", "key": hash_text("5551234")}]


def test_a_suggestion_is_collated_by_a_script(tmp_path: Path) -> None:
    query = {"source": {"match": {"{{field}}": "{{suggestion}}"}}}
    phrase = {"field": "t", "collate": {"query": query, "params": {"field": "t"}, "prune": True}}
    log = write(tmp_path / "log", query_line({"suggest": {"s": {"text": "bob", "phrase": phrase}}}))
    import_logs([log], tmp_path / "out")
    (request,) = requests(tmp_path / "out")
    assert request["body"]["suggest"]["s"]["phrase"] == phrase
    for options in (Options(hash_literals=True), Options(modules=False)):
        with pytest.raises(FormatError, match="no request to race"):
            import_logs([log], tmp_path / "none", options)


@pytest.mark.parametrize(
    ("preference", "hashed"),
    [
        ("_local", "_local"),
        ("_shards:1,2|_local", "_shards:1,2|_local"),
        ("_shards:1|bob", f"_shards:1|{BOB}"),
    ],
)
def test_a_users_own_preference_is_hashed(preference: str, hashed: str, tmp_path: Path) -> None:
    row = {"at": 0, "method": "GET", "path": "/i/_search", "params": {"preference": preference}}
    import_logs([write(tmp_path / "log", json.dumps(row))], tmp_path / "out", Options(hash_literals=True))
    assert requests(tmp_path / "out")[0]["params"] == {"preference": hashed}


def test_a_regular_expression_of_the_url_is_not_hashed(tmp_path: Path) -> None:
    rows = [{"at": 0, "method": "GET", "path": f"/i/_search?q=host:{q}"} for q in ("/web[0-9]+/", "bob")]
    log = write(tmp_path / "log", *map(json.dumps, rows))
    assert import_logs([log], tmp_path / "out", Options(hash_literals=True)).requests == 1


@pytest.mark.parametrize(
    "body",
    [
        {"query": {"geo_distance": {"distance": "1km", "at": "1,2", "_name": "bob"}}},
        {"suggest": {"s": {"prefix": "a", "completion": {"field": "f", "contexts": {"type": ["bob"]}}}}},
        {"aggs": {"a": {"geo_distance": {"field": "l", "ranges": [{"to": 9, "key": "bob"}]}}}},
        {"query": {"rule": {"match_criteria": {"type": "bob"}, "organic": {"match_all": {}}}}},
        {"retriever": {"rule": {"match_criteria": {"path": ["bob"]}, "retriever": {"standard": {}}}}},
        {"ext": {"generate": {"type": "bob", "turns": [{"type": "bob"}]}}},
        {"query": {"match": {"born": "2026-01-02||bob"}}},
        {"query": {"terms": {"u": {"index": "i", "path": "p", "query": {"term": {"type": "bob"}}}}}},
        {"query": {"weighted_tokens": {"f": {"tokens": [{"bob": 0.5}, {"bob": 1}]}}}},
    ],
)
def test_a_literal_is_one_wherever_it_stands(body: dict[str, Any]) -> None:
    assert "bob" not in json.dumps(Hasher().body(body))
    assert "bob" not in Shapes().of(json.dumps(body)).text
