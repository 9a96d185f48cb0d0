"""Which searches --index takes, and what of each it leaves."""

import json
from pathlib import Path

import pytest
from query_logs import query_line, requests, write

from esrally_ebs.workload.queries import Options, import_logs

MATCH_ALL = {"query": {"match_all": {}}}
OF_STREAM = (
    ".ds-logs-app-2026.01.02-000001",
    "partial-.ds-logs-app-000002",
    ".migrated-ds-logs-app-2026.01.02-000003",  # reindexed before an upgrade
)


def test_only_what_an_index_was_named_for_is_narrowed(tmp_path: Path) -> None:
    log = write(tmp_path / "log", query_line({}, indices=["a", "", "b"]))
    assert not import_logs([log], tmp_path / "out").changed
    narrowed = import_logs([log], tmp_path / "narrowed", Options(index="a"))
    assert narrowed.changed == {"narrowed to the index": 1}


@pytest.mark.parametrize(
    ("indices", "index", "asked"),
    [
        (["logs-*"], "logs-2", "logs-2"),
        (["logs-*", "-logs-2"], "logs-2", None),
        (["logs-*", "-logs-1"], "logs-2", "logs-2"),
        (["logs-*", "-logs-2", "other"], "logs-*", "logs-*,-logs-2"),
        (["other-*", "-logs-2"], "logs-*", None),
        (["_all"], "logs-2", "logs-2"),
        (["*", "-other"], "logs-*", "logs-*"),
        (["*", "-logs-*"], "logs-*", None),
        (["*", "-logs-*", "logs-1"], "logs-*", "logs-1"),
        (["*", "-logs-*", "logs-1*", "-logs-*"], "logs-*", None),
        (["*", "-*"], "logs-*", None),
        (["*", "-log*"], "logs-*", None),
        (["logs-1", "-logs-*"], "logs-*", "logs-1"),  # no pattern before it: to a node, a name
        (["*", "-logs-1"], "logs-*", "logs-*,-logs-1"),
        (["*", "logs-1"], "logs-*", "logs-*,logs-1"),
        (["logs*"], "logs-*", "logs-*"),
        (["l*", "other", "-logs-1*"], "logs-*", "logs-*,-logs-1*"),
        (["l*", "-logs*"], "logs-*", None),
        (["l*"], "*-2,x-*", None),
        (["logs-1"], "logs-2,logs-1", "logs-1"),
        (["logs-*"], "logs-1,logs-2", "logs-1,logs-2"),
        (["other"], "logs-1,logs-2", None),
        (["logs-2"], "logs-*,*-2", "logs-2"),
    ],
)
def test_a_search_is_narrowed_to_what_it_reaches(
    indices: list[str], index: str, asked: str | None, tmp_path: Path
) -> None:
    lines = [query_line({}, indices=indices), query_line({}, indices=["logs-2"])]
    summary = import_logs([write(tmp_path / "log", *lines)], tmp_path / "out", Options(index=index))
    paths = [row["path"] for row in requests(tmp_path / "out")]
    assert paths == ([f"/{asked}/_search"] if asked else []) + ["/logs-2/_search"]
    assert summary.excluded == ({} if asked else {"another index": 1})


@pytest.mark.parametrize(
    ("index", "asked"), [(None, []), ("logs-*", ["/logs-*/_search"]), ("*-7", ["/logs-2026-7/_search"])]
)
def test_more_names_than_a_url_takes_are_asked_by_their_pattern(
    index: str | None, asked: list[str], tmp_path: Path
) -> None:
    days = [f"logs-2026.{number // 28 + 1:02d}.{number % 28 + 1:02d}" for number in range(330)]
    lines = [query_line({}, indices=[*days, "logs-2026-7"]), query_line({}, indices=["logs-7"])]
    summary = import_logs([write(tmp_path / "log", *lines)], tmp_path / "out", Options(index=index))
    assert [row["path"] for row in requests(tmp_path / "out")] == [*asked, "/logs-7/_search"]
    reason = "more names of indices than a URL takes (give --index a pattern)"
    assert summary.excluded == ({} if asked else {reason: 1})


@pytest.mark.parametrize(("index", "asked"), [(None, "_all"), ("logs-2", "logs-2"), ("logs-*", "logs-*")])
def test_a_request_that_names_no_index_asks_all_as_one_that_says_so(
    index: str | None, asked: str, tmp_path: Path
) -> None:
    paths = ("/_search", "/_all/_search", "/*/_search" if index else "/_all/_search")
    lines = [json.dumps({"at": 0, "method": "GET", "path": path}) for path in paths]
    import_logs([write(tmp_path / "log", *lines)], tmp_path / "out", Options(format="queries", index=index))
    assert [row["path"] for row in requests(tmp_path / "out")] == [f"/{asked}/_search"] * 3


@pytest.mark.parametrize(
    ("index", "asked"),
    [
        ("logs-app", ["logs-app"] * 3),
        ("logs-*", [*OF_STREAM]),
        ("logs-a*,web", [*OF_STREAM, "web"]),
        (".ds-logs-*", [".ds-logs-app-2026.01.02-000001"]),
    ],
)
def test_a_data_stream_is_reached_by_its_indices(index: str, asked: list[str], tmp_path: Path) -> None:
    indices = (*OF_STREAM, "web", "-.ds-logs-app-000001", ".fs-logs-app-2026.01.02-000001")
    lines = [query_line(MATCH_ALL, indices=[name]) for name in indices]
    import_logs([write(tmp_path / "log", *lines)], tmp_path / "out", Options(index=index))
    assert [row["path"] for row in requests(tmp_path / "out")] == [f"/{name}/_search" for name in asked]


@pytest.mark.parametrize(
    ("indices", "index", "asked"),
    [
        (["*", "-*-1"], "logs-*", "logs-*,-*-1"),
        (["*", "-.*", "-*-1"], "logs-*,web-*", "logs-*,web-*,-*-1"),
        (["*", "-logs-*", "logs*", "-l*"], "logs-*", None),
        (["other-*", "-logs-2", "logs-1"], "logs-*", "logs-1"),  # first, "-logs-2" would be a name
        (["*", "-partial-.ds-logs-2-000001"], "logs-2", "logs-2"),  # one index of those of the stream
    ],
)
def test_what_a_search_excludes_stays_excluded(
    indices: list[str], index: str, asked: str | None, tmp_path: Path
) -> None:
    lines = [query_line(MATCH_ALL, indices=names) for names in (indices, ["logs-2"])]
    import_logs([write(tmp_path / "log", *lines)], tmp_path / "out", Options(index=index))
    paths = [row["path"] for row in requests(tmp_path / "out")]
    assert paths == ([f"/{asked}/_search"] if asked else []) + ["/logs-2/_search"]
