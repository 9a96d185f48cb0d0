"""The commands on recorded sessions: list, compare, gate; their exit codes and what they print."""

import json
import resource
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.console import Console
from sessions_of_six_rounds import make, volume
from small_plan import small_plan

from esrally_ebs.cli import main, sessions
from esrally_ebs.model import Check, State
from esrally_ebs.session import runs
from esrally_ebs.store import SessionFolder


def test_compare_refuses_with_exit_code_4_and_one_line(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(home, "one")
    make(home, "two", hits=6)
    make(home, "three")
    assert main(["compare", "one", "two", "--format", "json"]) == 4
    printed = capsys.readouterr()
    assert json.loads(printed.out)["verdict"].startswith("Not comparable: hits")
    assert printed.err == "esrally-ebs: Not comparable: hits: q: [5] in the first, [6] in the second.\n"
    assert main(["compare", "one", "three"]) == 0
    assert main(["compare", "one", "three", "two"]) == 4
    assert "hits: second = two: q: [5] in the first, [6] in the second" in capsys.readouterr().err


def test_where_an_id_has_no_room_its_start_is_on_one_line(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = make(home, "5fb07a3d-a707-4d18-b5bf-e16f05828413")
    monkeypatch.setattr(sessions, "console", lambda: Console(width=80))
    assert main(["sessions"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "5fb07a3d" in line)
    start = line.split()[1]
    assert 8 < len(start) < len(made.name)
    assert main(["report", start]) == 0


def test_compare_refuses_a_session_whose_samples_a_disk_has_changed(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(home, "one")
    (make(home, "two") / "samples" / "part-9.parquet").write_bytes(b"PAR1")
    assert main(["compare", "one", "two"]) == 4
    assert "second session: samples/part-9.parquet: not readable as Parquet" in capsys.readouterr().err


def test_compare_wants_two_different_sessions_and_a_format_that_is_known(home: Path) -> None:
    make(home, "one")
    make(home, "two")
    assert main(["compare", "one"]) == 2
    assert main(["compare", "one", "one"]) == 2
    assert main(["compare", "one", "nosuch"]) == 2
    assert main(["compare", "one", "two", "--format", "pdf"]) == 2


@pytest.mark.parametrize(
    ("codes", "exit_code", "seeds", "says", "complains"),
    [
        ((0, 0, 0), 0, [7, 8, 9], "All 3 sessions together", ""),
        ((0, 4, 0, 0), 4, [7, 8, 9, 10], "All 3 sessions together", "session 2 of 4 failed with exit code 4"),
        ((0, 4, 0), 4, [7, 8, 9], "", "needs 3 sessions; add others: esrally-ebs compare {0} {2} ..."),
        ((3, 0, 0), 3, [7], "", "session 1 of 3 failed with exit code 3"),
        ((0, 130, 0), 130, [7, 8], "", "session 2 of 3 failed with exit code 130"),
    ],
)
def test_a_plan_is_raced_several_times_for_one_verdict(
    codes: tuple[int, ...],
    exit_code: int,
    seeds: list[int],
    says: str,
    complains: str,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    drawn: list[int] = []
    ids: list[str] = []

    def race(path: Path, plan: object, overrides: Mapping[str, int], session: str) -> int:
        drawn.append(overrides["design.seed"])
        ids.append(session)
        code = codes[len(ids) - 1]
        if not code:
            make(home, session, at=float(len(ids)))
        return code

    monkeypatch.setattr(runs, "_race", race)
    assert main(["run", "smoke", "--set", "design.seed=7", "--sessions", str(len(codes))]) == exit_code
    printed = capsys.readouterr()
    assert drawn == seeds
    assert says in printed.out
    assert complains.format(*ids) in printed.err


@pytest.mark.parametrize("form", ["text", "markdown", "csv", "json", "html"])
def test_compare_writes_every_format_to_a_file(home: Path, form: str) -> None:
    for place, name in enumerate(("one", "two", "three")):
        make(home, name, at=float(place))
    assert main(["compare", "one", "two", "three", "--format", form, "--output", str(home / "out")]) == 0
    assert "3 sessions from one to three" in (home / "out").read_text()


def test_sessions_are_chosen_by_plan_state_and_number_and_given_to_other_commands(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for place, name in enumerate(("one", "two", "three")):
        make(home, name, at=float(place))
    failed = SessionFolder.create(home, "four", kind="race", plan=small_plan(), started_at=4.0)
    failed.finish(State.FAILED, "no disk")
    SessionFolder.create(home, "five", kind="race", plan=small_plan(name="other"), started_at=5.0)

    def ids(*options: str) -> list[str]:
        assert main(["sessions", "--ids", *options]) == 0
        return capsys.readouterr().out.split()

    assert ids() == ["one", "two", "three", "four", "five"]
    assert ids("--plan", "p", "--state", "complete", "--last", "2") == ["two", "three"]
    assert ids("--state", "failed") == ["four"]
    assert ids("--plan", "none") == []
    assert json.loads("".join(ids("--json", "--last", "2"))) == ["four", "five"]


def test_the_list_tells_simulated_sessions_from_those_on_emulated_volumes(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(home, "raced")
    simulated = SessionFolder.create(home, "simulated", kind="simulate", plan=small_plan(), started_at=1.0)
    simulated.update(arms=[volume("gp2")])
    simulated.finish(State.COMPLETE)
    assert main(["sessions"]) == 0
    out = capsys.readouterr().out
    assert "gp2, gp3 (emulated)" in out
    assert "gp2 (simulated)" in out


def test_the_gate_command_has_the_exit_codes_of_the_contract_and_writes_junit(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make(home, "one")
    junit = home / "gate.xml"
    passing = ["gate", "one", "--max-slowdown", "p50=5%", "--junit", str(junit)]
    assert main(passing) == 0
    assert "<failure" not in junit.read_text()
    assert main([*passing, "--base", "gp3", "--other", "gp2"]) == 1
    assert "<failure" in junit.read_text()
    assert main(["gate", "one", "--max-slowdown", "p99=5%"]) == 5
    assert main(["gate", "one"]) == 2
    SessionFolder(path).add_check(Check(name="cold", ok=False, value="", text="9 % resident"))
    capsys.readouterr()
    assert main(passing) == 4
    assert "9 % resident" in capsys.readouterr().err
    assert 'type="invalid"' in junit.read_text()


@pytest.mark.parametrize(
    ("form", "name", "begins"),
    [
        (None, "report.html", "<!doctype html>"),
        (None, "report.json", "{"),
        (None, "report.markdown", "# p: session"),
        (None, "REPORT.HTML", "<!doctype html>"),
        (None, "report.htm", "<!doctype html>"),
        (None, "report.txt", "p: session"),
        (None, "report", "p: session"),
        ("text", "report.html", "p: session"),
    ],
)
def test_a_report_has_the_format_that_its_file_is_named_for(
    home: Path, tmp_path: Path, form: str | None, name: str, begins: str
) -> None:
    make(home, "one")
    output = tmp_path / name
    words = ["--format", form] if form else []
    assert main(["report", "one", "--output", str(output), *words]) == 0
    assert output.read_text().lower().startswith(begins)


def test_a_page_links_to_files_of_the_session_only_from_its_folder(home: Path, tmp_path: Path) -> None:
    inside, outside = make(home, "one") / "report.html", tmp_path / "report.html"
    for output in (inside, outside):
        assert main(["report", "one", "--output", str(output)]) == 0
    assert 'href="session.json"' in inside.read_text()
    assert 'href="session.json"' not in outside.read_text()


def test_a_report_of_a_folder_called_latest_is_not_of_the_latest_session(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make(home, "one").rename("latest")
    make(home, "two", hits=6)
    reports = []
    for name in ("./latest", str(tmp_path / "latest")):
        assert main(["report", name]) == 0
        reports.append(capsys.readouterr().out)
    assert reports[0] == reports[1]


@pytest.mark.parametrize(("term", "escapes"), [("xterm", True), ("dumb", False)])
def test_a_terminal_that_knows_no_escapes_gets_none(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], term: str, escapes: bool
) -> None:
    make(home, "one")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", term)
    assert main(["report", "one"]) == 0
    assert ("\x1b" in capsys.readouterr().out) is escapes


def test_a_report_that_does_not_fit_leaves_the_one_before_it(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(home, "one")
    (folder := tmp_path / "reports").mkdir()
    (output := folder / "report.html").write_text("yesterday's")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))  # as a disk with so much room
    try:
        assert main(["report", "one", "--output", str(output)]) == 3
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert f"{output}: File too large; name a file elsewhere" in capsys.readouterr().err
    assert [path.read_text() for path in folder.iterdir()] == ["yesterday's"]
