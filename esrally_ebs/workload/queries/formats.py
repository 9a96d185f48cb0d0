"""Formats of query logs: from lines to entries, one per line, pair or request.

Parsers never raise because of a line's content: an unusable line is an entry with the reason.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

from esrally_ebs.workload.queries import rest
from esrally_ebs.workload.queries.fields import (
    Fields,
    body_of,
    client_of,
    flat,
    logged_time,
    ms_of,
    number_of,
    search_type_of,
    targets_of,
    text_of,
    took_ms_of,
)
from esrally_ebs.workload.queries.logs import TOO_LONG, without_nuls
from esrally_ebs.workload.queries.search import (
    FIELD_ERRORS,
    Entry,
    LoggedSearch,
    Part,
    Reason,
    Skipped,
    parse_time,
    words,
)

Parser = Callable[[Iterable[bytes]], Iterator[Entry]]

_EVENT: Final = Skipped(Reason.EVENT)
_OTHER: Final = Skipped(Reason.FORMAT)
_LINE: Final = Skipped(Reason.LINE)
_LONG: Final = Skipped(Reason.LONG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    name: str
    title: str
    matches: Callable[[bytes], bool]  # whether a line can be of this format only
    parse: Parser
    lacks: str  # what such logs lack, shown in every summary; "": nothing
    has_arrivals: bool = True  # its times are a real load's, not just those of a set of queries


def _json_lines(entries: Callable[[Fields], Iterable[Entry]]) -> Parser:
    """A parser for one JSON object per line, which may contain several entries."""

    def parse(lines: Iterable[bytes]) -> Iterator[Entry]:
        for line in without_nuls(lines):
            try:
                yield from entries(orjson.loads(line))
            except FIELD_ERRORS:  # includes orjson's, a ValueError
                if line.strip():
                    yield _LONG if line is TOO_LONG else _LINE

    return parse


_BEGIN: Final = r"\[[^\]]+\]\[[A-Z ]+\]"  # of a line of text: time and level; its logger follows
_PLAIN_FIELD: Final = re.compile(r"(total_hits|total_shards|search_type|indices)\[([^\]]*)\]")


def _plain_lines(pattern: re.Pattern[str], logger: str, entry: Callable[[Fields], Entry]) -> Parser:
    """A parser for lines of text with searches of one logger."""

    def parse(lines: Iterable[bytes]) -> Iterator[Entry]:
        for line in without_nuls(lines):
            try:
                match = pattern.match(line.decode())
                if match is not None:
                    yield entry(match.groupdict() | dict(_PLAIN_FIELD.findall(match["between"])))
                elif line.strip():
                    is_other = line.startswith(b"[") and not re.match(f"{_BEGIN}{logger}".encode(), line)
                    kind = _LINE if not is_other else _OTHER if re.match(_LOGGERS, line) else _EVENT
                    yield _LONG if line is TOO_LONG else kind
            except FIELD_ERRORS:
                yield _LINE

    return parse


def _one_entry(entry: Callable[[Fields], Entry]) -> Parser:
    """A parser for one JSON object with one entry per line."""
    return _json_lines(lambda fields: (entry(fields),))


def _with_keys(*alternatives: set[str]) -> Callable[[bytes], bool]:
    """A test whether a line is a JSON object with all keys of one of these sets."""

    def matches(line: bytes) -> bool:
        try:
            fields = orjson.loads(line)
        except orjson.JSONDecodeError:
            return False
        return isinstance(fields, dict) and any(keys <= flat(fields).keys() for keys in alternatives)

    return matches


# For each log in JSON, a field that marks its line as a search.
_OF_SEARCHES: Final = words(
    "elasticsearch.querylog.type elasticsearch.slowlog.total_shards total_shards phase_took phase_took_millis"
)


def _no_search(fields: Fields) -> Skipped:
    """For a line that is no search of this log; a file may mix logs."""
    return _EVENT if _OF_SEARCHES.isdisjoint(fields) else _OTHER


# --- Elasticsearch ------------------------------------------------------------------------------------------

# Complete constants: names built from parts would be hashed again for each line.
_KIND: Final = "elasticsearch.querylog.type"


def _query_log(fields: Fields) -> Entry:
    fields = flat(fields)
    kind = fields.get(_KIND)
    if kind is None:
        return _no_search(fields)
    if kind != "dsl":
        return Skipped(Reason.LANGUAGE)
    if fields.get("event.outcome") == "failure":
        return Skipped(Reason.FAILED)
    took = fields.get("elasticsearch.querylog.took")
    took_ms = ms_of(fields.get("elasticsearch.querylog.took_millis") if took is None else float(took) / 1e6)
    is_bound = fields.get("elasticsearch.querylog.dsl.total_count_partial")
    end_us, zoned = logged_time(fields, "@timestamp")
    return LoggedSearch(
        at_us=end_us - round((took_ms or 0.0) * 1000),
        targets=targets_of(fields.get("elasticsearch.querylog.indices")),
        body=body_of(fields["elasticsearch.querylog.query"]),
        took_ms=took_ms,
        hits=None if is_bound else number_of(fields.get("elasticsearch.querylog.dsl.total_count")),
        client=client_of(fields.get("http.request.headers.x_opaque_id") or fields.get("user.name")),
        zoned=zoned,
    )


class _SlowLog(NamedTuple):
    """Names of a shard slow log's fields."""

    message: str
    source: str
    took: str
    took_millis: str
    total_hits: str
    total_shards: str
    search_type: str
    id: str


_SLOW_7: Final = _SlowLog(*_SlowLog._fields)
_SLOW_8: Final = _SlowLog(*(f"elasticsearch.slowlog.{name}" for name in _SlowLog._fields))
_SOURCE_OF_TEXT: Final = "elasticsearch.slowlog.source_query"  # as shippers call it in lines of text


def _slow_log(fields: Fields) -> Entry:
    """A line of version 7 or 8: an upgraded node has both in one file."""
    if fields.get("type") == "index_search_slowlog":
        phase = _phase(text_of(fields.get("component")))
        return _shard_line(fields, _SLOW_7, logged_time(fields), phase, text_of(fields.get("id")))
    fields = flat(fields)
    logger = fields.get("log.logger") or fields.get("elasticsearch.component")  # of version 7, ingested
    logger = logger or fields.get("elasticsearch.slowlog.logger", "")  # of text, ingested
    if not logger.startswith(("index.search.slowlog", "i.s.s.")):
        is_indexing = logger.startswith(("index.", "i.i.s."))
        return _EVENT if is_indexing else _no_search(fields)
    if _SLOW_8.message not in fields:
        fields = _before_ingest(fields)
    request = text_of(fields.get("trace.id")) or text_of(fields.get(_SLOW_8.id))
    return _shard_line(fields, _SLOW_8, logged_time(fields, "@timestamp"), _phase(logger), request)


def _before_ingest(fields: Fields) -> Fields:
    """Restore the original line's fields in a document of Filebeat or Elastic Agent."""
    duration_ns = fields.get("event.duration")
    took_millis = None if duration_ns is None else duration_ns / 1e6
    shard = f"[{fields['elasticsearch.index.name']}][{fields['elasticsearch.shard.id']}]"
    source = fields.get(_SLOW_8.source, fields.get(_SOURCE_OF_TEXT))
    return {**fields, _SLOW_8.message: shard, _SLOW_8.took_millis: took_millis, _SLOW_8.source: source}


_FETCH: Final = re.compile(r"(?:\w+\.){3}f")


def _phase(logger: str) -> str:
    """The shard's phase: ``index.search.slowlog.fetch``, or ``i.s.s.f.ID`` with the index's id."""
    return "fetch" if _FETCH.match(logger) else "query"


# Of a vector search a shard's query phase logs but these, which are each shard's own.
_NEAREST: Final = re.compile(r'(?<="knn_score_doc":\{"values":\[)[^\]]+')


def _shard_line(fields: Fields, names: _SlowLog, ended: tuple[int, bool], phase: str, request: str) -> Entry:
    """A line of a shard slow log; its time is when the phase ended on the shard."""
    shard = fields[names.message]
    index = shard[1 : shard.index("]")]
    took_ms = took_ms_of(fields.get(names.took), fields.get(names.took_millis))
    end_us, zoned = ended
    body = body_of(fields[names.source])
    return LoggedSearch(
        at_us=end_us - round((took_ms or 0.0) * 1000),
        targets=index,
        body=_NEAREST.sub("", body) if body and '"knn_score_doc"' in body else body,
        params=search_type_of(fields.get(names.search_type)),
        took_ms=took_ms,
        hits=number_of(fields.get(names.total_hits)),
        client=client_of(fields.get(names.id)),
        part=Part(request, index, shard, phase, number_of(fields.get(names.total_shards)) or 0),
        zoned=zoned,
    )


_SHARD_LOGGER: Final = r"\[(?P<logger>(?:index\.search\.slowlog|i\.s\.s)\.[^\] ]+) *\]"
_NODE: Final = ".{0,500}?"  # has an end, or each "took" of a long line is looked at to the line's end
# [time][level][logger] [node] [index][shard] took[..], took_millis[..], ... source[..], id[..]
_SHARD_PLAIN: Final = re.compile(
    rf"\[(?P<timestamp>[^\]]+)\]\[[A-Z]+ *\]{_SHARD_LOGGER} {_NODE}(?P<message>\[[^\[\]]+\]\[\d+\]) "
    r"took\[(?P<took>[^\]]*)\], took_millis\[(?P<took_millis>\d+)\], (?P<between>[^{]*?)"
    r"source\[(?P<source>\{.*\}|)\](?:, extra_source\[\])?(?:, id\[(?P<id>[^\]]*)\])?,?\s*\Z",
    re.DOTALL,
)


def _plain_shard_line(fields: Fields) -> Entry:
    phase = _phase(fields["logger"])
    return _shard_line(fields, _SLOW_7, logged_time(fields), phase, text_of(fields["id"]))


def _audit_log(fields: Fields) -> Iterable[Entry]:
    fields = flat(fields)
    action = fields.get("event.action")
    url = fields.get("url.path") or fields.get("url.original")  # the latter has the query, too, after ingest
    if url is None or action != "authentication_success":
        refused = action in ("authentication_failed", "anonymous_access_denied", "run_as_denied")
        return (Skipped(Reason.FAILED) if refused else _no_search(fields),)
    body = fields.get("request.body", fields.get("http.request.body.content"))
    at_us, zoned = logged_time(fields)
    opaque_id = fields.get("opaque_id") or fields.get("elasticsearch.audit.opaque_id")
    client = client_of(opaque_id or fields.get("user.name"))
    method = fields.get("request.method") or fields["http.request.method"]
    path, _, query = url.partition("?")
    params = rest.url_params(query or text_of(fields.get("url.query")))
    search = LoggedSearch(at_us=at_us, targets="", body=body_of(body or ""), client=client, zoned=zoned)
    missing = Reason.NO_BODY if body is None and not {"q", "source"} & params.keys() else None
    return rest.searches(search, method, path, params, missing=missing)


# --- OpenSearch ---------------------------------------------------------------------------------------------

_LOGGER: Final = r"\[c(?:luster)?\.s(?:earch)?\.r(?:equest)?\.slowlog[^\]]*\]"  # abbreviated or in full
_LOGGERS: Final = f"{_BEGIN}(?:{_SHARD_LOGGER}|{_LOGGER})".encode()
# [time][level][logger] [node] took[..], took_millis[..], ... source[..], id[..]; the source may hold brackets
_PLAIN: Final = re.compile(
    rf"\[(?P<timestamp>[^\]]+)\]\[[A-Z ]+\]{_LOGGER}{_NODE} "
    r"took\[(?P<took>[^\]]*)\], took_millis\[(?P<took_millis>\d+)\], "
    r"(?P<between>(?:(?!source\[).)*+)source\[(?P<source>.*)\], id\[(?P<id>[^\]]*)\]"
    r"(?:, request_id\[[^\]]*\])?,?\s*\Z",
    re.DOTALL,
)


def _request_slow_log(fields: Fields) -> Entry:
    if fields.get("phase_took_millis", fields.get("phase_took")) is None:
        return _no_search(fields)
    return _request_line(fields) if "source" in fields else _EVENT


def _request_line(fields: Fields) -> Entry:
    took_ms = took_ms_of(fields.get("took"), fields.get("took_millis"))
    end_us, zoned = logged_time(fields)
    indices = fields.get("indices")  # since version 3.6: "[a, b]", as plain text "a, b"
    if isinstance(indices, str):
        indices = None if indices == "null" else indices.strip("[]").replace(" ", "").split(",")
    return LoggedSearch(
        at_us=end_us - round((took_ms or 0.0) * 1000),
        targets=targets_of(indices),
        body=body_of(fields["source"] or "{}"),
        params=search_type_of(fields.get("search_type")),
        took_ms=took_ms,
        hits=number_of(fields.get("total_hits")),
        client=client_of(fields.get("id")),
        zoned=zoned,
    )


_TOP_QUERIES = re.compile(rb'"top_queries"\s*:|"_index"\s*:\s*"top_queries')
_PRETTY: Final = re.compile(rb'\s*\{(\s*"top_queries"\s*:)?[\s\[{]*')  # first of several lines


def _is_query_insights(line: bytes) -> bool:
    is_record = b'"measurements"' in line or b'"phase_latency_map"' in line  # the latter in any version
    return bool(_TOP_QUERIES.search(line[:4096])) or (is_record and b'"source"' in line)


def _query_insights(lines: Iterable[bytes]) -> Iterator[Entry]:
    """Answers of ``GET /_insights/top_queries``, results from top_queries indices, or such documents."""
    rows = (line for line in lines if line.strip())
    for row in rows:
        document = b"".join([row, *rows]) if _PRETTY.fullmatch(row) else row
        try:
            yield from _insights_of(orjson.loads(document))
        except orjson.JSONDecodeError:
            yield _LONG if row is TOO_LONG else _LINE


def _insights_of(document: Any) -> Iterator[Entry]:  # noqa: ANN401
    records = document if isinstance(document, list) else None
    if isinstance(document, dict):
        hits = document.get("hits")
        records = document.get("top_queries", hits.get("hits") if isinstance(hits, dict) else None)
    for record in records if isinstance(records, list) else [document]:
        try:
            yield _insight(record.get("_source", record))
        except FIELD_ERRORS:
            yield _LINE


def _insight(record: Fields) -> Entry:
    source = record.get("source")
    if source is None or record.get("failed"):
        return Skipped(Reason.NO_BODY if source is None else Reason.FAILED)
    latency = record.get("measurements", record).get("latency")  # the latter before version 2.17
    number = _mean(latency) if isinstance(latency, dict) else latency
    labels = record.get("labels") or {}
    client = client_of(labels.get("X-Opaque-Id"))
    at = record["timestamp"]
    at_us = parse_time(at)[0] if isinstance(at, str) else int(at) * 1000
    return LoggedSearch(
        at_us,
        targets_of(record.get("indices")),
        body_of(source),
        params=search_type_of(record.get("search_type")),
        took_ms=ms_of(number),
        client=client,
    )


def _mean(measurement: Fields) -> float | None:
    """A query's mean; for a group of similar ones, ``number`` is the total."""
    number = ms_of(measurement.get("number"))
    is_total = measurement.get("aggregationType") == "AVERAGE"
    return number / (measurement["count"] or 1) if is_total and number is not None else number


# --- requests -----------------------------------------------------------------------------------------------


def _msearch(lines: Iterable[bytes]) -> Iterator[Entry]:
    for header, body in rest.pairs(lines):
        if TOO_LONG in (header, body):
            yield _LONG
        elif not body:
            yield _LINE
        else:
            entry = rest.msearch_pair(header, body, LoggedSearch(0, "", None))
            yield entry._replace(change="") if isinstance(entry, LoggedSearch) else entry


_HASHED: Final = re.compile("[0-9a-f]{8}")  # as an earlier import wrote it: clients keep their ids


def _own(fields: Fields) -> Iterable[Entry]:
    body, client = fields.get("body"), text_of(fields.get("client"))
    search = LoggedSearch(
        at_us=round(fields["at"] * 1e6),
        targets="",
        body=body_of("" if body is None else body),
        took_ms=ms_of(fields.get("took_ms")),
        hits=number_of(fields.get("hits")),
        client=client if _HASHED.fullmatch(client) else client_of(client),
    )
    params = rest.json_params(fields.get("params") or {})
    return rest.searches(search, fields["method"], fields["path"], params)


# --- the table ----------------------------------------------------------------------------------------------

_THRESHOLD: Final = (
    "a slow log has only what took longer than its threshold: fast queries are missing, so the load is "
    "smaller and slower than the real one; set the thresholds to 0ms and log again for all of them"
)
_NO_PARAMETERS: Final = "parameters of the URL (routing, preference, scroll ...) are not in the log"
_SHARDS: Final = (
    f"{_THRESHOLD}; each line is one shard and phase, made one request again by id, source and time, and "
    f"asked of the indices that have a shard in the log; {_NO_PARAMETERS}"
)

_SLOW_LOG: Final = _one_entry(_slow_log)  # for lines of both versions

_ALL: Final = (
    Format(
        name="es-query-log",
        title="Elasticsearch query log (9.4 and later)",
        matches=_with_keys({_KIND}),
        parse=_one_entry(_query_log),
        lacks="what took less than elasticsearch.querylog.threshold, where that is set, is missing; "
        f"entries are dropped under load; {_NO_PARAMETERS}",
    ),
    Format(
        name="es-slow-log-8",
        title="Elasticsearch 8 search slow log",
        matches=_with_keys({_SLOW_8.source}, {_SOURCE_OF_TEXT}),
        parse=_SLOW_LOG,
        lacks=_SHARDS,
    ),
    Format(
        name="es-slow-log-7",
        title="Elasticsearch 7 search slow log",
        matches=lambda line: b'"index_search_slowlog"' in line and _with_keys({"message", "source"})(line),
        parse=_SLOW_LOG,
        lacks=_SHARDS,
    ),
    Format(
        name="es-slow-log-text",
        title="Elasticsearch or OpenSearch search slow log (plain text)",
        matches=lambda line: _SHARD_PLAIN.match(line.decode("utf-8", "replace")) is not None,
        parse=_plain_lines(_SHARD_PLAIN, _SHARD_LOGGER, _plain_shard_line),
        lacks=_SHARDS,
    ),
    Format(
        name="es-audit",
        title="Elasticsearch audit log with request bodies",
        matches=_with_keys(
            {"event.action", "url.path"}, {"event.action", "url.original", "elasticsearch.audit.layer"}
        ),
        parse=_json_lines(_audit_log),
        lacks="an audit log has no durations and no hits",
    ),
    Format(
        name="opensearch-slow-log",
        title="OpenSearch search request slow log (JSON)",
        matches=_with_keys({"phase_took_millis", "source"}, {"phase_took", "source"}),
        parse=_one_entry(_request_slow_log),
        lacks=f"{_THRESHOLD}; {_NO_PARAMETERS}",
    ),
    Format(
        name="opensearch-slow-log-text",
        title="OpenSearch search request slow log (plain text)",
        matches=lambda line: _PLAIN.match(line.decode("utf-8", "replace")) is not None,
        parse=_plain_lines(_PLAIN, _LOGGER, _request_line),
        lacks=f"{_THRESHOLD}; {_NO_PARAMETERS}",
    ),
    Format(
        name="queries",
        title="our own queries.ndjson",
        matches=_with_keys({"at", "method", "path"}),
        parse=_json_lines(_own),
        lacks="",
    ),
    Format(
        name="query-insights",
        title="OpenSearch Query Insights",
        matches=_is_query_insights,
        parse=_query_insights,
        lacks="Query Insights keeps only the slowest queries of a window: a set of queries, no load",
        has_arrivals=False,
    ),
    Format(
        name="goreplay",
        title="GoReplay file",
        matches=lambda line: rest.PAYLOAD.fullmatch(line) is not None,
        parse=rest.parse_goreplay,
        lacks="requests have no durations and no hits",
    ),
    Format(
        name="msearch",
        title="NDJSON of _msearch",
        matches=lambda line: rest.is_header(line) and b'"index"' in line,
        parse=_msearch,
        lacks="there are no times: a set of queries, no load",
        has_arrivals=False,
    ),
)
FORMATS: Final = {format_.name: format_ for format_ in _ALL}
