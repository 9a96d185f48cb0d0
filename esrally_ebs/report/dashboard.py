"""A Kibana dashboard of what is in the store, as saved objects (NDJSON) that Kibana 8 and later import.

Each panel is a Vega-Lite drawing (``panels/*.json``) that holds its own query, so that what a panel asks can
be asked of any Elasticsearch; verdicts are a table, which is a saved search.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_DATA_VIEW = "rally-ebs"
_VERDICTS = "rally-ebs-verdicts"
_COLUMNS = ("plan", "task", "arm", "against", "verdict", "p50_ratio", "p50_ratio_low", "p50_ratio_high")
_WIDTH, _HEIGHT = 24, 15  # of a panel, in Kibana's grid of 48 columns
_NO_QUERY = {"query": {"query": "", "language": "kuery"}, "filter": []}

Json = dict[str, Any]


def render_dashboard() -> str:
    """All saved objects, one JSON object a line; import them under Stack Management, Saved Objects."""
    return "".join(f"{json.dumps(saved, sort_keys=True)}\n" for saved in _objects())


def panels() -> dict[str, Json]:
    """Name to Vega-Lite drawing of every panel, in their order on the dashboard."""
    folder = Path(__file__).with_name("panels")
    return {path.stem[3:]: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def _objects() -> Iterator[Json]:
    fields = {"title": "rally-ebs-*", "name": "Volumes under Elasticsearch", "timeFieldName": "@timestamp"}
    yield _object("index-pattern", _DATA_VIEW, fields, ())
    yield _object("search", _VERDICTS, _verdicts(), (_reference("index-pattern", _DATA_VIEW, _SOURCE),))
    drawn = panels()
    for name, spec in drawn.items():
        yield _object("visualization", f"rally-ebs-{name}", _drawing(spec), ())
    yield _dashboard(list(drawn))


_SOURCE = "kibanaSavedObjectMeta.searchSourceJSON.index"


def _verdicts() -> Json:
    source = {
        "query": {"query": "record : verdict", "language": "kuery"},
        "filter": [],
        "indexRefName": _SOURCE,
    }
    return {
        "title": "Volumes: verdicts",
        "columns": list(_COLUMNS),
        "sort": [["@timestamp", "desc"]],
        "kibanaSavedObjectMeta": {"searchSourceJSON": json.dumps(source)},
    }


def _drawing(spec: Json) -> Json:
    title = f"Volumes: {spec['title']}"
    state = {"title": title, "type": "vega", "params": {"spec": json.dumps(spec, indent=2)}, "aggs": []}
    return {
        "title": title,
        "visState": json.dumps(state),
        "uiStateJSON": "{}",
        "kibanaSavedObjectMeta": {"searchSourceJSON": json.dumps(_NO_QUERY)},
    }


def _dashboard(names: list[str]) -> Json:
    shown = [("search", _VERDICTS), *(("visualization", f"rally-ebs-{name}") for name in names)]
    placed, references = [], []
    for place, (kind, id_) in enumerate(shown):
        wide = kind == "search"
        at = {"x": 0 if wide or place % 2 else _WIDTH, "y": (place + 1) // 2 * _HEIGHT}
        grid = {**at, "w": 2 * _WIDTH if wide else _WIDTH, "h": _HEIGHT, "i": str(place)}
        name = f"panel_{place}"
        placed.append(
            {"type": kind, "gridData": grid, "panelIndex": str(place), "embeddableConfig": {}}
            | {"panelRefName": name}
        )
        references.append(_reference(kind, id_, f"{place}:{name}"))
    fields = {
        "title": "Volumes under Elasticsearch",
        "description": "Sessions of esrally_ebs: verdicts, times over sessions, fio, coldness, devices",
        "panelsJSON": json.dumps(placed),
        "optionsJSON": json.dumps({"useMargins": True, "hidePanelTitles": False}),
        "timeRestore": True,
        "timeFrom": "now-90d",
        "timeTo": "now",
        "kibanaSavedObjectMeta": {"searchSourceJSON": json.dumps(_NO_QUERY)},
    }
    return _object("dashboard", "rally-ebs", fields, tuple(references))


def _object(kind: str, id_: str, attributes: Json, references: tuple[Json, ...]) -> Json:
    return {"type": kind, "id": id_, "attributes": attributes, "references": list(references)}


def _reference(kind: str, id_: str, name: str) -> Json:
    return {"type": kind, "id": id_, "name": name}
