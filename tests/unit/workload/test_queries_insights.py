"""OpenSearch's Query Insights, in the forms of its versions."""

import json
from pathlib import Path

import pytest
from query_logs import requests, write

from esrally_ebs.workload.queries import import_logs


def test_the_answer_of_a_search_of_insights_is_read(tmp_path: Path) -> None:
    record = {"timestamp": 1, "source": {}, "indices": ["i"], "measurements": {"latency": {"number": 9}}}
    hits = [{"_index": "top_queries-2025", "_source": record}] * 2
    for number, indent in enumerate((None, 2)):
        answer = json.dumps({"took": 1, "hits": {"hits": hits}}, indent=indent)
        assert import_logs([write(tmp_path / "log", answer)], tmp_path / f"out{number}").requests == 2


def test_records_of_insights_have_their_latency_in_any_version_and_none_failed(tmp_path: Path) -> None:
    record = {"timestamp": 1, "source": {}, "indices": ["i"], "phase_latency_map": {"query": 22}}
    before_2_17 = {**record, "latency": 31, "cpu": 15461000}
    of_3 = {**record, "source": "{}", "failed": False, "measurements": {"latency": {"number": 9, "count": 1}}}
    log = write(tmp_path / "log", *map(json.dumps, (before_2_17, of_3, {**of_3, "failed": True})))
    assert import_logs([log], tmp_path / "out").excluded == {"failed or refused": 1}
    assert [request["took_ms"] for request in requests(tmp_path / "out")] == [31, 9]


@pytest.mark.parametrize("cut", ['{"timestamp": 1,', "}", "half"])
def test_half_a_line_of_insights_costs_no_other(cut: str, tmp_path: Path) -> None:
    record = json.dumps({"timestamp": 1, "source": {}, "indices": ["i"], "measurements": {"latency": 9}})
    summary = import_logs([write(tmp_path / "log", record, cut, record, record)], tmp_path / "out")
    assert (summary.requests, summary.excluded) == (3, {"line cut off or not of the format": 1})


def test_a_group_of_insights_took_the_mean_of_its_queries(tmp_path: Path) -> None:
    latencies = [
        {"number": 160, "count": 10, "aggregationType": "AVERAGE"},  # the number is the total
        {"number": 16, "count": 1, "aggregationType": "NONE"},
    ]
    records = [
        {"timestamp": 1, "source": {}, "indices": ["i"], "measurements": {"latency": latency}}
        for latency in latencies
    ]
    import_logs([write(tmp_path / "log", json.dumps({"top_queries": records}))], tmp_path / "out")
    assert [row["took_ms"] for row in requests(tmp_path / "out")] == [16, 16]
