"""Bad input of an import: one clear line, the right exit code, nothing written, the logs untouched."""

import errno
import gzip
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from query_logs import query_line, slow_line, write

from esrally_ebs.cli import main
from esrally_ebs.errors import FormatError, PlanError
from esrally_ebs.machine.processes import SYSTEM_CLOCK
from esrally_ebs.workload.queries import Options, import_logs, logs

MATCH_ALL = {"query": {"match_all": {}}}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write(tmp_path / "log.json", query_line(MATCH_ALL))


def refused(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str]:
    """Exit code and the one line that ``workload import`` says."""
    code = main(["workload", "import", *map(str, words)])
    (line,) = capsys.readouterr().err.splitlines()
    return code, line


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["no.json"], 2, "no.json: No such file"),
        (["log.json", "--format", "es-slow-log-8"], 4, "no request to race in 1 line read as es-slow-log-8"),
        (["log.json", "--format", "apache"], 2, "--format apache: choose auto, es-query-log"),
        (["log.json", "msearch"], 2, "import them by themselves"),
        (["log.json", "same"], 2, "same: begins as log.json does; name one of them, the longer"),
        (["log.json", "grown"], 2, "grown: begins as log.json"),
        (["log.json", "log.json.gz"], 2, "log.json.gz: begins as log.json"),
        (["msearch", "again"], 2, "again: begins as msearch does"),
        (["zones"], 4, "zones:2: some times name a time zone"),
        (["log.json", "--index", "orders"], 2, "--index orders: no search of"),
        (["log.json", "--index", "orders"], 2, "it has logs"),
        (["log.json", "--index", ""], 2, "--index '': an empty value; is a variable of your shell not set?"),
        (["log.json", "--index", "a/b"], 2, "no name of an index"),
        (["log.json", "--index", "caf\udce9"], 2, "no name of an index"),  # bytes that are no UTF-8
        (["log.json", "--index", "logs*,-logs-old"], 2, "--index logs*,-logs-old: no name of an index"),
        (["log.json", "--index", "far:logs"], 2, "index of another cluster"),
        (["log.json", "--index", "<logs-{now/d}>"], 2, "date maths"),
        (["log.json", "--output", "/proc/self/out"], 3, "/proc/self/out: cannot be written"),
    ],
)
def test_words_that_cannot_be_meant(
    words: list[str],
    code: int,
    says: str,
    log: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(log.parent)
    write(Path("msearch"), '{"index":"a"}', "{}")
    Path("again").symlink_to("msearch")
    Path("same").symlink_to(log)
    write(Path("grown"), query_line(MATCH_ALL), query_line(MATCH_ALL))
    Path("log.json.gz").write_bytes(gzip.compress(log.read_bytes()))
    write(Path("zones"), query_line(MATCH_ALL), query_line(MATCH_ALL, at="2026-01-02T10:00:00.000"))
    ended, line = refused(capsys, "--output", "out", *words)
    assert (ended, says in line) == (code, True), line


def test_files_of_msearch_may_begin_alike_as_they_have_no_times(tmp_path: Path) -> None:
    pair = ['{"index":"a"}', "{}"]
    logs = [write(tmp_path / str(count), *pair * count) for count in (1, 2)]
    assert import_logs(logs, tmp_path / "out").requests == 3


def test_lines_of_an_unknown_log_among_others_are_counted(log: Path, tmp_path: Path) -> None:
    """One file of another program, matched by a pattern of names, refused the import of all."""
    other, output = write(tmp_path / "gc.log", "[0.1s] GC(0) Pause", "[0.2s] GC(1) Pause"), tmp_path / "out"
    assert main(["workload", "import", str(other), str(log), "--output", str(output)]) == 0
    assert len((output / "queries.ndjson").read_text().splitlines()) == 1
    excluded = json.loads((output / "excluded.json").read_text())
    assert excluded["excluded"] == {"line cut off or not of the format": 2}
    assert excluded["first"] == {"line cut off or not of the format": "gc.log:1"}


@pytest.mark.parametrize("kind", ["directory", "fifo", "device"])
def test_a_log_that_is_no_file(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path("/dev/zero") if kind == "device" else tmp_path / kind
    if kind == "directory":
        path.mkdir()
    if kind == "fifo":
        os.mkfifo(path)
    code, line = refused(capsys, path, "--output", tmp_path / "out")
    assert code == 2
    assert str(path) in line
    assert "name the log files" in line


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b"\x28\xb5\x2f\xfd" + bytes(90), "unpack it"),
        (query_line(MATCH_ALL).encode("utf-16"), "iconv"),
        (query_line(MATCH_ALL).encode("utf-16-le"), "iconv"),
        (
            json.dumps({"@timestamp": "", "elasticsearch.querylog.search_type": "ESQL"}).encode(),
            "a log of ES|QL's queries, which are not raced",
        ),
        (
            b"[2023-01-05T11:59:37,786][WARN ][i.s.s.query              ] [n] [i][0] took[1ms]\n",
            "as its node wrote it",
        ),
        (
            b"[2018-06-29T10:06:14,933][WARN ][index.search.slowlog.query] [n] [i][0] took[1ms]\n",
            "as its node wrote it",
        ),
        (json.dumps({"log": query_line(MATCH_ALL)}).encode(), "jq"),
        (f"[\n{query_line(MATCH_ALL)},\n{query_line(MATCH_ALL)}]".encode(), "jq -rc '.[]'"),
        (f"[\n{query_line(MATCH_ALL)},\n{query_line(MATCH_ALL)}\n]\n".encode(), "jq -rc '.[]'"),  # by line
        (json.dumps({"stream": "stdout", "log": "x" * 16384}).encode(), "together: jq -rj .log"),
        (json.dumps({"_p": "F", "log": "x" * 16384}).encode(), "Fluent Bit: jq -r .log"),
        (json.dumps(json.loads(query_line(MATCH_ALL)), indent=2).encode(), "jq -c ."),
        (b"Jan  2 10:00:00 node es[7]: " + query_line(MATCH_ALL).encode(), "take it off: sed"),
        (
            b"2026-01-02T10:00:00.123Z [2026-01-02T10:00:00,123][WARN ][index.search.slowlog.query] [n] ",
            "sed -E 's/^[^[]*(",
        ),
        (b"Jan  2 10:00:00 n es[7]: [2026-01-02T10:00:00,123][WARN ][i.s.s.query] [n] ", "[0-9]+"),
        (b"es01 | [2026-01-02T10:00:00,123][WARN ][c.s.r.slowlog] [n] took[1ms], ", "sed -E 's/^[^[]*("),
        (b"2023-05-16T13:43:25.434Z stdout F " + query_line(MATCH_ALL).encode(), "first three words"),
        (b"2023-05-16T13:43:25.434Z stdout P " + query_line(MATCH_ALL).encode(), 'awk \'{e = $3 == "P"'),
        (b"[" * 1000 + b"]" * 1000, "known format"),
        (b'@timestamp,@message\n2026-01-02 10:00:00.000,"{""a"": 1}"\n', "a table (CSV)"),
        (b"[2026-01-01T00:00:00,000][INFO ][o.e.n.Node] [n] started\n" * 300, "known format"),
        (b"\x1f\x8b\x08\x00garbage", "is the file whole"),
        (query_line(MATCH_ALL).encode()[:90], "known format"),
        (b"\x00\xff\xfe" * 1000, "known format"),
    ],
)
def test_a_log_that_is_none(
    content: bytes, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log").write_bytes(content)
    code, line = refused(capsys, tmp_path / "log", "--output", tmp_path / "out")
    assert code == 4
    assert says in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log"]


LINE = query_line(MATCH_ALL)
FIELDS = json.loads(LINE)
STARTED = "[2026-01-01T00:00:00,000][INFO ][o.e.n.Node] [n] started"


@pytest.mark.parametrize(
    ("around", "jq"),
    [
        (LINE, "-r ."),
        ([FIELDS], "-c '.[]'"),
        ([STARTED, LINE], "-r '.[]'"),
        ({"_source": FIELDS, "_index": "i"}, "-c ._source"),  # an export of an index
        ({"_id": "", "_source": {"message": LINE}}, "-r ._source.message"),
        ({"hits": {"total": 1, "hits": [{"_source": FIELDS}]}}, "-c '.hits.hits[]._source'"),
        ({"stream": "stdout", "log": f"{LINE}\n"}, "-rj .log"),  # Docker
        ({"_p": "F", "log": LINE}, "-r .log"),  # Fluent Bit
        ({"log": {"offset": 0}, "message": LINE}, "-r .message"),  # Filebeat
        ({"event": {"original": LINE}}, "-r .event.original"),
        ({"json": FIELDS}, "-c .json"),
        ({"PRIORITY": "6", "MESSAGE": LINE}, "-r .MESSAGE"),  # the journal
        ({"result": {"_raw": LINE}}, "-r .result._raw"),  # Splunk
        ({"short_message": "x", "full_message": LINE}, "-r .full_message"),  # Graylog
        ({"labels": {"app": "es"}, "line": LINE}, "-r .line"),  # Loki's command, then its API
        ({"data": {"result": [{"stream": {}, "values": [["1", LINE]]}]}}, "-r '.data.result[].values[][1]'"),
        ({"events": [{"message": STARTED}, {"message": LINE}]}, "-r '.events[].message'"),  # CloudWatch
        ({"@timestamp": "", "@message": LINE}, """-r '."@message"'"""),
        ({"results": [[{"field": "@message", "value": LINE}]]}, "-r '.results[][].value'"),  # its Insights
        ({"tables": [{"rows": [["2026", LINE]]}]}, "-r '.tables[].rows[][1]'"),  # Azure
        ({"time": "", "properties": {"log": LINE}}, "-r .properties.log"),
        ({"textPayload": LINE}, "-r .textPayload"),  # Google
        ({"jsonPayload": FIELDS}, "-c .jsonPayload"),
        ({"resourceLogs": [{"body": {"stringValue": LINE}}]}, "-r '.resourceLogs[].body.stringValue'"),
        ({"it's": LINE}, """-r '."it'"'"'s"'"""),
    ],
)
def test_a_log_within_other_json_is_taken_out_by_what_the_line_says(
    around: object, jq: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = write(tmp_path / "log", json.dumps({"started": True}), json.dumps(around))
    code, line = refused(capsys, log, "--output", tmp_path / "out")
    assert (code, line.partition("; take it out: jq ")[2]) == (4, jq)
    if shutil.which("jq"):
        text = json.dumps(around).encode()
        lines = subprocess.run(f"jq {jq}", shell=True, input=text, capture_output=True, check=True).stdout
        log.write_bytes(lines)
        assert import_logs([log], tmp_path / "out").requests == 1


def test_a_log_that_begins_with_how_the_node_starts_is_read(tmp_path: Path) -> None:
    said = json.dumps({"@timestamp": "2026-01-02T10:00:00.000Z", "log.logger": "o.e.n.Node", "message": "hi"})
    log = write(tmp_path / "log", *[said] * 500, query_line(MATCH_ALL))
    assert import_logs([log], tmp_path / "out").excluded == {"no search": 500}


@pytest.mark.parametrize("words", [[], ["--format", "es-query-log"]], ids=["detected", "named"])
@pytest.mark.parametrize("kind", ["tar", "gztar", "zip"])
def test_an_archive_is_unpacked_first_as_each_of_its_files_would_lose_a_line(
    kind: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "log", *[query_line(MATCH_ALL)] * 3)
    archive = shutil.make_archive(str(tmp_path / "archive"), kind, tmp_path / "in")
    code, line = refused(capsys, archive, *words, "--output", tmp_path / "out")
    assert (code, "is packed, and not by gzip alone; unpack it" in line) == (4, True)


@pytest.mark.parametrize("words", [[], ["--format", "es-query-log"]], ids=["detected", "named"])
@pytest.mark.parametrize("size", [2, 9, 10, 30])
def test_half_a_packed_log_is_not_taken_for_an_empty_one(
    size: int, words: list[str], log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    half = log.with_name("half.gz")
    half.write_bytes(gzip.compress(log.read_bytes())[:size])
    code, line = refused(capsys, log, half, *words, "--output", log.parent / "out")
    assert (code, "half.gz: cannot be read after line 0: " in line) == (4, True)


@pytest.mark.parametrize("opens", ["log", "temporary file"])
def test_too_many_logs_ask_for_a_higher_limit(
    opens: str, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(*((os, "open") if opens == "log" else (tempfile, "TemporaryFile")), fail)
    _, line = refused(capsys, log, "--output", tmp_path / "out")
    assert line.endswith("Too many open files; allow more open files: ulimit -n 10000")


def test_half_a_line_is_counted_with_its_place(tmp_path: Path) -> None:
    whole = query_line(MATCH_ALL)
    log = write(tmp_path / "log", whole, whole[:-20])
    summary = import_logs([log], tmp_path / "out")
    assert summary.excluded == {"line cut off or not of the format": 1}
    assert summary.first == {"line cut off or not of the format": "log:2"}


def test_a_log_may_have_any_name(tmp_path: Path) -> None:
    log = tmp_path / os.fsdecode(b"caf\xe9\n.log")
    write(log, query_line(MATCH_ALL), "{")
    summary = import_logs([log], tmp_path / "out")
    assert summary.first == {"line cut off or not of the format": "caf\\udce9\n.log:2"}
    assert json.loads((tmp_path / "out" / "excluded.json").read_text())["first"] == summary.first


def test_times_of_several_zones_are_one_order(tmp_path: Path) -> None:
    log = write(
        tmp_path / "log",
        query_line(MATCH_ALL, at="2026-01-02T12:00:01.000+02:00"),
        query_line(MATCH_ALL, at="2026-01-02T10:00:00.000Z"),
    )
    assert import_logs([log], tmp_path / "out").seconds == 1.0


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (1767348000000, None),  # milliseconds, as an index gives them with "format": "epoch_millis"
        (1767348000000.0, None),
        pytest.param(
            "1767348000000", None, id="text"
        ),  # as shippers write it; 1767-34 is no month, and 1712-01 is one
        (1767348000.0, None),  # seconds, as Fluent Bit writes them
        (1767348000, "line cut off or not of the format"),  # which other shippers have cut
        ("20260102100000", "line cut off or not of the format"),  # which is no year 2612
        ("202601021000", "line cut off or not of the format"),
        (1767348000000000, "line cut off or not of the format"),
        (True, "line cut off or not of the format"),
    ],
)
def test_a_time_may_be_milliseconds_since_the_epoch(
    at: float | str, reason: str | None, tmp_path: Path
) -> None:
    first, second = (json.loads(query_line(MATCH_ALL, at=f"2026-01-02T10:00:0{s}.000Z")) for s in (1, 2))
    log = write(tmp_path / "log", json.dumps({**first, "@timestamp": at}), json.dumps(second))
    summary = import_logs([log], tmp_path / "out")
    assert summary.excluded == ({reason: 1} if reason else {})
    assert summary.seconds == (0.0 if reason else 2.0)


@pytest.mark.parametrize(
    "fields",
    [
        {"@timestamp": "0001-01-01T00:00:00Z"},
        {"elasticsearch.slowlog.took_millis": -5},
        {"elasticsearch.slowlog.total_shards": 1e300},
    ],
    ids=["no time", "no duration", "no number of shards"],
)
def test_an_impossible_number_costs_one_line_of_a_slow_log_out_of_order(
    fields: dict[str, object], tmp_path: Path
) -> None:
    """Year 1 is what a shipper in Go writes for a time that it could not read."""
    late, early = (slow_line(MATCH_ALL, at=f"2026-01-02T10:00:{s}.000Z") for s in (30, 10))
    log = write(tmp_path / "log", late, json.dumps({**json.loads(early), **fields}), early)
    summary = import_logs([log], tmp_path / "out")
    assert summary.requests + summary.joined + sum(summary.excluded.values()) == 3


@pytest.mark.parametrize("at", ["1970-01-21T10:55:48.000Z", "1970-01-01T00:01:00Z", "0001-01-01T00:00:00Z"])
def test_a_time_before_all_logs_is_not_when_this_one_begins(at: str, tmp_path: Path) -> None:
    log = write(tmp_path / "log", query_line(MATCH_ALL, at=at), query_line(MATCH_ALL), query_line(MATCH_ALL))
    summary = import_logs([log], tmp_path / "out")
    assert summary.excluded == {"line cut off or not of the format": 1}
    assert summary.seconds == 0.0


def test_a_log_without_names_of_indices_asks_for_one(tmp_path: Path) -> None:
    log = write(tmp_path / "log", '{"index":null}', '{"size":1}')
    with pytest.raises(PlanError, match="say it with --index NAME"):
        import_logs([log], tmp_path / "out")
    assert import_logs([log], tmp_path / "out", Options(index="logs")).requests == 1


def test_a_time_beyond_all_dates_is_counted(tmp_path: Path) -> None:
    body = {"query": {"range": {"ts": {"gte": "now-1d"}}}}
    rows = [{"at": at, "method": "POST", "path": "/i/_search", "body": body} for at in (1e9, 999_999_999_999)]
    summary = import_logs([write(tmp_path / "log", *map(json.dumps, rows))], tmp_path / "out")
    assert (summary.requests, summary.excluded) == (1, {"line cut off or not of the format": 1})


def test_a_point_in_time_asks_for_no_index(tmp_path: Path) -> None:
    lines = [query_line(MATCH_ALL), query_line({"pit": {"id": "x"}}, indices=[])]
    excluded = import_logs([write(tmp_path / "log", *lines)], tmp_path / "out").excluded
    assert excluded == {"point in time": 1}


@pytest.mark.parametrize("kind", ["full directory", "file", "link"])
def test_an_output_that_is_taken_stays_as_it_is(
    kind: str, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = log.parent / "out"
    if kind == "full directory":
        output.mkdir()
        (output / "mine").write_text("precious")
    elif kind == "file":
        output.write_text("precious")
    else:
        output.symlink_to(log.parent / "elsewhere")
    code, _ = refused(capsys, log, "--output", output)
    assert code == 2
    assert kind == "link" or (output / "mine" if output.is_dir() else output).read_text() == "precious"
    assert sorted(path.name for path in log.parent.iterdir()) == ["log.json", "out"]


@pytest.mark.parametrize("signals", [["SIGINT"], ["SIGTERM"], ["SIGHUP", "SIGHUP"]], ids=" ".join)
def test_an_import_that_is_ended_leaves_nothing(signals: list[str], tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        log.writelines([query_line(MATCH_ALL) + "\n"] * 200_000)  # some seconds of work
    as_in_a_terminal = ["env", "--default-signal=HUP,INT,TERM"]  # whatever nohup, or a shell, had us ignore
    command = [*as_in_a_terminal, sys.executable, "-m", "esrally_ebs", "workload", "import", "log"]
    command += ["--output", "new/parent/out"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE) as running:
        begun = SYSTEM_CLOCK.wait_until(
            lambda: any(tmp_path.glob("new/parent/.out-*")), limit_s=60, poll_s=0.01
        )
        for name in signals:
            running.send_signal(signal.Signals[name])
        _, said = running.communicate()
    assert begun
    assert (running.returncode, said) == (130, b"esrally-ebs: cancelled\n")
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_an_empty_output_directory_is_used(log: Path) -> None:
    (log.parent / "out").mkdir()
    assert import_logs([log], log.parent / "out").requests == 1


@pytest.mark.parametrize("name", [".", "../here"])
def test_the_working_directory_keeps_its_place(name: str, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (log.parent / "here").mkdir()
    monkeypatch.chdir(log.parent / "here")
    with pytest.raises(PlanError, match="is the working directory, or a mount; name a new one in it"):
        import_logs([log], Path(name))
    assert not list(Path().iterdir())


def test_the_command_to_race_with_can_be_copied(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "import", str(log), "--output", str(log.parent / "my queries")]) == 0
    assert f" --track-path='{log.parent / 'my queries'}' --track-params=" in capsys.readouterr().out


def test_logs_are_only_read(log: Path) -> None:
    before = hashlib.sha256(log.read_bytes()).digest(), log.stat().st_mtime_ns
    import_logs([log], log.parent / "out")
    assert (hashlib.sha256(log.read_bytes()).digest(), log.stat().st_mtime_ns) == before


def test_a_line_longer_than_memory_allows_is_counted(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.write(f"{query_line(MATCH_ALL)}\n".encode())
        file.write(b"{" + b" " * (3 * logs.MAX_LINE_BYTES) + b"}\n")
        file.write(f"{query_line(MATCH_ALL)}\n".encode())
    summary = import_logs([log], tmp_path / "out")
    assert (summary.lines, summary.requests) == (3, 2)
    assert summary.excluded == {"line longer than 16 MiB": 1}


def test_a_body_nested_too_deep_is_counted(tmp_path: Path) -> None:
    deep = '{"query":{"bool":{"must":' * 100 + "{}" + "}}}" * 100
    log = write(tmp_path / "log", query_line(MATCH_ALL), query_line(deep))
    assert import_logs([log], tmp_path / "out").excluded == {"body nested deeper than 60 levels": 1}


def test_a_log_without_searches_is_no_workload(tmp_path: Path) -> None:
    log = write(tmp_path / "log", query_line("FROM logs", type="esql"))
    with pytest.raises(FormatError, match=r"in 1 line read as es-query-log \([^0-9]+: 1\); name another"):
        import_logs([log], tmp_path / "out")
    assert not (tmp_path / "out").exists()
