"""docs/workload.md: its commands run as they stand there, its tables name what there is."""

import re
import shlex
from pathlib import Path

import pytest
from query_logs import GOLDEN_LOGS

from esrally_ebs.cli import main
from esrally_ebs.workload.queries import FORMATS
from esrally_ebs.workload.queries.output import MAX_TASKS

PAGE = (Path(__file__).parents[3] / "docs" / "workload.md").read_text()


def test_the_import_that_the_page_shows_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (line,) = re.findall(r"^\$ esrally-ebs (workload import .*)$", PAGE, re.MULTILINE)
    race, *_ = re.findall(r"^\$ esrally (race .*)$", PAGE, re.MULTILINE)
    words = [str(GOLDEN_LOGS / "es-query-log.log") if "/" in word else word for word in shlex.split(line)]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == f"race it on a stopped node's data directory: esrally {race}"
    written = {path.name for path in (tmp_path / "my-queries").iterdir()}
    section = PAGE.split("## What is written\n")[1].split("\n## ")[0]
    assert written == set(re.findall(r"`([\w-]+\.\w+)`", section))


def test_every_format_has_a_row_and_no_other() -> None:
    section = PAGE.split("## What each format gives")[1].split("\n\n**")[0]
    rows = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([\w-]+)`", row)}
    assert named - {"--format"} == set(FORMATS)


def test_the_number_of_tasks_is_the_one_that_the_page_says() -> None:
    assert f"each of the {MAX_TASKS} most frequent templates" in PAGE
