"""Elasticsearch's query language, as far as needed to tell literals from a query's shape.

``Walk`` goes through the body of a search and rebuilds it; a subclass's ``literal`` replaces literals. It
also notes what the body needs: scripts, kinds of queries and aggregations.
"""

from typing import Any, Final

from esrally_ebs.workload.queries.search import words

Json = Any  # what JSON can hold

# Keys below these queries are fields; below a field are values or options.
_FIELD_QUERIES: Final = words(
    "fuzzy intervals match match_bool_prefix match_phrase match_phrase_prefix prefix range regexp "
    "span_gap span_term term terms terms_set text_expansion weighted_tokens wildcard"
)
_OPTION_QUERIES: Final = words(
    "bool boosting combined_fields constant_score dis_max distance_feature exists field_masking_span "
    "function_score geo_bounding_box geo_distance geo_polygon geo_shape ids knn match_all match_none "
    "more_like_this multi_match nested query_string script script_score simple_query_string "
    "span_containing span_field_masking span_first span_multi span_near span_not span_or span_within wrapper"
)
# Need modules or x-pack, which a node may lack: unknown to 8.8.2 without them.
_MODULE_QUERIES: Final = words(
    "geo_grid has_child has_parent kql parent_id percolate pinned rank_feature rule rule_query semantic "
    "shape sparse_vector text_expansion weighted_tokens"
)
_QUERIES: Final = _FIELD_QUERIES | _OPTION_QUERIES | _MODULE_QUERIES
_CLAUSES: Final = words(
    "background_filter big clauses filter filters functions highlight_query little must must_not negative "
    "organic positive post_filter queries query rescore_query should"
)
# with fields that are no options
_DOCUMENTS: Final = words(
    "after contexts doc document documents ext match_criteria meta params points search_after"
)
_SPAN_CLAUSES: Final = frozenset(("exclude", "include", "match"))  # have another meaning elsewhere
_AGGREGATIONS: Final = words(
    "avg avg_bucket bucket_script cardinality composite cumulative_sum date_histogram date_range "
    "diversified_sampler extended_stats extended_stats_bucket filter filters geo_bounds geo_centroid "
    "geo_distance geohash_grid geotile_grid global histogram ip_prefix ip_range max max_bucket "
    "median_absolute_deviation min min_bucket missing nested percentile_ranks percentiles "
    "percentiles_bucket random_sampler range rare_terms reverse_nested sampler scripted_metric "
    "serial_diff significant_terms significant_text stats stats_bucket sum sum_bucket terms top_hits "
    "value_count variable_width_histogram weighted_avg"
)
_MODULE_AGGREGATIONS: Final = words(
    "adjacency_matrix auto_date_histogram boxplot bucket_correlation bucket_count_ks_test bucket_selector "
    "bucket_sort cartesian_bounds cartesian_centroid categorize_text change_point children "
    "cumulative_cardinality derivative frequent_item_sets geo_line geohex_grid inference matrix_stats "
    "moving_fn moving_percentiles multi_terms normalize parent rate string_stats t_test time_series "
    "top_metrics"
)
# Strings that belong to a query's shape, and numbers that some clients send as strings; all other values are
# literals.
_STRUCTURE: Final = words(
    "_index _source alternative analyzer boost boost_mode calendar_interval categorization_analyzer "
    "collect_mode decay default_field default_operator distance distance_type docvalue_fields excludes "
    "execution_hint factor fetch_fields field fields fixed_interval flags format fuzziness fuzzy_rewrite "
    "gap_policy ignore_unmapped includes index inference_id input_field interval k lang max_expansions "
    "max_gaps method min_doc_count min_score minimum_interval minimum_should_match "
    "minimum_should_match_field missing_order mode model_id modifier multi_value_mode negative_boost "
    "normalizer num_candidates numeric_type offset on_script_error operator parent_type path pivot "
    "post_filter pre_filter precision prefix_length query_weight quote_analyzer quote_field_suffix "
    "rank_constant rank_window_size relation rescore_query_weight rewrite ruleset_ids sampling_method "
    "scale score_mode shard_size similarity size slop source_fields stored_fields strategy "
    "string_distance suggest_mode target_field target_index terminate_after tie_breaker time_zone type "
    "unit unmapped_type use_field validation_method value_type version_type weight window_size "
    "zero_terms_query"
)
_TOP_STRUCTURE: Final = words(
    "_source docvalue_fields explain fields profile seq_no_primary_term size slice stored_fields "
    "timeout track_scores track_total_hits version"
)
PARTS: Final = _TOP_STRUCTURE | words(
    "aggregations aggs collapse ext from highlight indices_boost knn min_score pit post_filter query rescore "
    "runtime_mappings script_fields search_after sort stats suggest terminate_after"
)
MODULE_PARTS: Final = words("rank retriever sub_searches")  # in versions after 8.8, or x-pack
_PLACES: Final = words("collate highlight indexed_shape rescore")  # where other names are options
_ORDERS: Final = frozenset(("asc", "desc", "ASC", "DESC"))
PATHS_OF_ALL: Final = words("_bucket_count _count _key _term _time")  # exist in every bucket


class Walk:
    """One walk through one body; ``node`` is the original, results are new."""

    def __init__(self) -> None:
        self.queries: list[str] = []
        self.aggregations: list[str] = []
        self.scripts: list[Json] = []

    # --- for subclasses to override

    def literal(self, value: Json, key: str, where: str) -> Json:
        """Replacement for a literal; ``where`` is the kind of the surrounding query or aggregation."""
        return value

    def options(self, options: dict[str, Json], where: str, *, walked: dict[str, Json]) -> dict[str, Json]:
        """Replacement for the ``walked`` options of a query's field or of an aggregation."""
        return walked

    def named(self, parts: dict[str, Json]) -> dict[str, Json]:
        """Replacement for walked parts with names chosen by the query's author, or with words.

        Kibana names filters by the queries themselves.
        """
        return parts

    def data(self, parts: dict[str, Json]) -> Json:
        """What takes the place of a walked map that a script gets as a parameter: ``{"product-7": 1.5}``."""
        return parts

    def path(self, text: str) -> str:
        """Replacement for a path of such names: ``sales>mean.value``."""
        return text

    # --- for subclasses to use

    @property
    def unknown_query(self) -> bool:
        return any(name not in _QUERIES for name in self.queries)

    @property
    def unknown_aggregation(self) -> bool:
        return any(name not in _AGGREGATIONS | _MODULE_AGGREGATIONS for name in self.aggregations)

    @property
    def needs_modules(self) -> bool:
        """Whether a node without modules cannot answer."""
        return bool(
            self.scripts
            or any(name in _MODULE_QUERIES for name in self.queries)
            or any(name in _MODULE_AGGREGATIONS for name in self.aggregations)
        )

    # --- the walk

    def body(self, node: dict[str, Json]) -> dict[str, Json]:
        """A search's body, or a similar one (``top_hits``, ``inner_hits``)."""
        return {key: self._top(key, value) for key, value in node.items()}

    def _top(self, key: str, value: Json) -> Json:
        if key in ("aggs", "aggregations"):
            return self._aggregations(value)
        if key == "sort":
            return self._sort(value)
        if key in _TOP_STRUCTURE:
            return self._fields(value, key)
        if key in ("runtime_mappings", "script_fields") and isinstance(value, dict):
            walked = {name: self._options(field, key) for name, field in value.items()}
            return walked if key == "runtime_mappings" else self.named(walked)  # runtime_mappings: fields
        if key == "suggest" and isinstance(value, dict):
            return self._suggestions(value)
        return self._option(key, value, "")

    def _suggestions(self, node: dict[str, Json]) -> Json:
        """Suggestions by name, and a text shared by those without one."""
        of_all = {key: value for key, value in node.items() if not isinstance(value, dict)}
        named = {name: self._options(value, "") for name, value in node.items() if name not in of_all}
        return {**self._options(of_all, ""), **self.named(named)}

    def _fields(self, node: Json, key: str) -> Json:
        """A list of fields; it has no literals."""
        return node

    def _query(self, node: Json) -> Json:
        if isinstance(node, list):
            return [self._query(part) for part in node]
        if not isinstance(node, dict):
            return self._literals(node, "query", "")
        if not node:
            self.queries.append("")  # invalid in Elasticsearch
        return {name: self._one_query(name, value) for name, value in node.items()}

    def _one_query(self, name: str, node: Json) -> Json:
        is_other_knn = name == "knn" and isinstance(node, dict) and "field" not in node  # OpenSearch's
        self.queries.append("knn of a field" if is_other_knn else name)
        if name not in _FIELD_QUERIES:
            return self._options(node, name)
        if not isinstance(node, dict):
            return self._literals(node, name, name)
        return {
            field: self.options(value, name, walked=self._options(value, name))
            if isinstance(value, dict)
            else self._literals(value, field, name)
            for field, value in node.items()
        }

    def _options(self, node: Json, where: str) -> Json:
        if isinstance(node, list):
            return [self._options(part, where) for part in node]
        if not isinstance(node, dict):
            return self.literal(node, "", where)
        return {key: self._option(key, value, where) for key, value in node.items()}

    def _option(self, key: str, value: Json, where: str) -> Json:
        if where == "highlight" and key != "highlight_query":  # an option, or a field such as "query"
            return self._options(value, where) if _has_objects(value) else value
        if key == "script" or key.endswith("_script") or (key == "query" and where == "collate"):
            return self._script(value)
        if key in ("aggs", "aggregations") and isinstance(value, dict):
            return self._aggregations(value)
        if key in ("inner_hits", "top_hits") and isinstance(value, dict):
            return self.body(value)
        # except geo_line's sort, an option with a field, and fields with such names
        if key in ("sort", "order", "buckets_path") and where != "geo_line":
            return self._sorted_by(key, value, where)
        if _has_objects(value):
            return self._objects(key, value, where)
        if key in _STRUCTURE:
            return value
        return self._literals(value, key, where)

    def _objects(self, key: str, value: Json, where: str) -> Json:
        """An option that contains objects: clauses, further options, or only literals."""
        # weighted words, or a composite bucket by its sources' names
        is_named = key in ("query_vector", "tokens") or (key == "after" and where == "composite")
        if is_named and isinstance(value, list):
            return self._list([self._objects(key, part, where) for part in value])
        if is_named and isinstance(value, dict):
            walked = self._literals(value, key, where)
            return self.named(walked) if isinstance(walked, dict) else walked
        if key in _DOCUMENTS:
            is_script = key == "params" and where == "scripted_metric"
            return self._script_params(value) if is_script else self._literals(value, key, where)
        spans = key in _SPAN_CLAUSES and where.startswith("span_")
        # functions of function_score and queries of rescore are options, not queries; OpenSearch can take the
        # values of terms from a query
        is_option = where in _FIELD_QUERIES and (where, key) != ("terms", "query")
        plain = key == "functions" or (where == "rescore" and key == "query") or is_option
        if (key in _CLAUSES and not plain) or spans:
            return self._query(value)
        return self._options(value, key if key in _PLACES else where)

    def _script(self, node: Json) -> Json:
        self.scripts.append(node)
        if not isinstance(node, dict):
            return node
        return {key: self._script_params(value) if key == "params" else value for key, value in node.items()}

    def _script_params(self, node: Json) -> Json:
        if not isinstance(node, dict):
            return node
        return {name: self._literals(value, name, "script") for name, value in node.items()}

    def _aggregations(self, node: Json) -> Json:
        if not isinstance(node, dict):
            return self._literals(node, "aggs", "")
        return self.named({name: self._one_aggregation(value) for name, value in node.items()})

    def _one_aggregation(self, node: Json) -> Json:
        if not isinstance(node, dict):
            return self._literals(node, "aggs", "")
        return {key: self._part_of_aggregation(key, value) for key, value in node.items()}

    def _part_of_aggregation(self, key: str, value: Json) -> Json:
        if key in ("aggs", "aggregations"):
            return self._aggregations(value)
        if key == "meta":
            walked = self._literals(value, key, "")
            return self.named(walked) if isinstance(walked, dict) else walked
        self.aggregations.append(key)
        if key == "filter":
            return self._query(value)
        if key in ("filters", "adjacency_matrix"):
            return self._filters(value)
        if key == "top_hits" and isinstance(value, dict):
            return self.body(value)
        if key == "composite" and isinstance(value, dict):
            return self._composite(value)
        walked = self._options(value, key)
        return self.options(value, key, walked=walked) if isinstance(value, dict) else walked

    def _filters(self, node: Json) -> Json:
        """Filters by name, or a list of them."""
        filters = node.get("filters") if isinstance(node, dict) else None
        if not filters:
            return self._options(node, "filters")
        rest = self._options({key: value for key, value in node.items() if key != "filters"}, "filters")
        if isinstance(filters, dict):
            walked = self.named({name: self._query(value) for name, value in filters.items()})
        else:
            walked = self._query(filters)
        return {**rest, "filters": walked}

    def _composite(self, node: dict[str, Json]) -> Json:
        sources = node.get("sources")
        rest = self._options({key: value for key, value in node.items() if key != "sources"}, "composite")
        if isinstance(sources, list):
            return {"sources": [self._source(source) for source in sources], **rest}
        return {**rest, **({} if sources is None else {"sources": self._options(sources, "composite")})}

    def _source(self, node: Json) -> Json:
        if not isinstance(node, dict):
            return self._literals(node, "sources", "composite")
        return self.named({name: self._options(kind, "composite") for name, kind in node.items()})

    def _sorted_by(self, key: str, value: Json, where: str) -> Json:
        """The criteria by which hits or buckets are sorted or computed."""
        if key == "buckets_path":
            return self._paths(value)
        if where == "bucket_sort":
            return self._order(value if isinstance(value, list) else [value])
        return self._sort(value) if key == "sort" else self._order(value)

    def _order(self, node: Json) -> Json:
        """An order of buckets by paths; or just ``asc``, where the criterion is implied."""
        if isinstance(node, list):
            return [self.path(part) if isinstance(part, str) else self._order(part) for part in node]
        return {self.path(path): order for path, order in node.items()} if isinstance(node, dict) else node

    def _paths(self, node: Json) -> Json:
        """Path to other aggregations' results: one, a list, or by names of variables."""
        if isinstance(node, dict):
            return {name: self._paths(path) for name, path in node.items()}
        if isinstance(node, list):
            return [self._paths(path) for path in node]
        return self.path(node) if isinstance(node, str) else node

    def _sort(self, node: Json) -> Json:
        if isinstance(node, list):
            return [self._sort(part) for part in node]
        if not isinstance(node, dict):
            return node  # a field's name
        return {
            field: self._options(value, "geo_distance" if field == "_geo_distance" else "sort")
            if isinstance(value, dict)
            else (value if str(value) in _ORDERS else self._literals(value, field, "sort"))
            for field, value in node.items()
        }

    def _literals(self, node: Json, key: str, where: str) -> Json:
        """A literal, or a value that consists only of literals."""
        if isinstance(node, dict):
            walked = {name: self._literals(value, name, where) for name, value in node.items()}
            return self.data(walked) if where == "script" else walked
        if isinstance(node, list):
            return self._list([self._literals(part, key, where) for part in node])
        return self.literal(node, key, where)

    def _list(self, walked: list[Json]) -> list[Json]:
        """Replacement for a list of literals."""
        return walked


def _has_objects(value: Json) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(v, dict) for v in value))
