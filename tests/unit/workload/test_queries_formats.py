"""Every format of query log: a log with its traps becomes what the golden files hold."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from query_logs import GOLDEN_LOGS as LOGS
from query_logs import requests

from esrally_ebs.workload.queries import FORMATS, import_logs


@pytest.mark.parametrize("name", FORMATS)
def test_a_log_of_each_format_becomes_its_golden_requests(
    name: str, tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    summary = import_logs([LOGS / f"{name}.log"], tmp_path / "out")
    assert summary.format == FORMATS[name].title  # detected
    for file in ("queries.ndjson", "excluded.json", "templates.json"):
        golden(f"workload/{name}.{file}", (tmp_path / "out" / file).read_text())


@pytest.mark.parametrize("name", FORMATS)
def test_a_packed_log_gives_what_the_plain_one_gives(name: str, tmp_path: Path) -> None:
    plain = (LOGS / f"{name}.log").read_bytes()
    (tmp_path / "log.gz").write_bytes(gzip.compress(plain))
    import_logs([tmp_path / "log.gz"], tmp_path / "packed")
    import_logs([LOGS / f"{name}.log"], tmp_path / "plain")
    assert (tmp_path / "packed/queries.ndjson").read_text() == (tmp_path / "plain/queries.ndjson").read_text()


@pytest.mark.parametrize("name", FORMATS)
def test_what_was_imported_imports_as_itself(name: str, tmp_path: Path) -> None:
    import_logs([LOGS / f"{name}.log"], tmp_path / "first")
    summary = import_logs([tmp_path / "first/queries.ndjson"], tmp_path / "second")
    assert summary.format == FORMATS["queries"].title
    assert requests(tmp_path / "first") == requests(tmp_path / "second")


@pytest.mark.parametrize("name", FORMATS)
def test_no_file_but_the_queries_holds_a_literal_or_a_secret(name: str, tmp_path: Path) -> None:
    import_logs([LOGS / f"{name}.log"], tmp_path / "out")
    for path in (tmp_path / "out").iterdir():
        text = path.read_text()
        assert "c2VjcmV0" not in text  # of the header Authorization
        assert not {"alice", "kibana", "dashboard-7"} & set(text.replace('"', " ").split())
        if path.name != "queries.ndjson":
            assert not [
                literal for literal in ("acme", "globex", "bob", "größe", "web[0-9]") if literal in text
            ]


def test_the_own_format_has_the_documented_fields_in_order(tmp_path: Path) -> None:
    import_logs([LOGS / "es-query-log.log"], tmp_path / "out")
    rows = [json.loads(line) for line in (tmp_path / "out/queries.ndjson").read_text().splitlines()]
    fields = ["at", "method", "path", "params", "body", "took_ms", "hits", "client", "template"]
    assert [list(row) for row in rows] == [fields] * len(rows)
    assert [row["at"] for row in rows] == sorted(row["at"] for row in rows)
    assert rows[0]["at"] == 0
