"""A small session in every format, and what each output must say."""

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from golden_session import ARMS, arm, make, record, samples
from small_plan import small_plan

from esrally_ebs import report
from esrally_ebs.model import Check, Kind, Severity
from esrally_ebs.store import SessionFolder, load_session


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    return record(tmp_path)


@pytest.mark.parametrize("form", report.RENDERERS)
def test_a_report_is_what_the_golden_file_holds(
    recorded: Path, golden: Callable[[str, str], None], form: str
) -> None:
    built = report.build(load_session(recorded))
    golden(f"report.{report.SUFFIX[form]}", report.RENDERERS[form](built))


@pytest.mark.parametrize("form", report.RENDERERS)
def test_every_output_says_emulated_warm_and_that_segments_differ(tmp_path: Path, form: str) -> None:
    path = make(tmp_path, samples(rounds=1), cache={"mode": "warm"})
    SessionFolder(path).update(dataset={"documents": 10, "copied": False})
    text = report.RENDERERS[form](report.build(load_session(path)))
    assert "emulated" in text
    assert "cache: warm" in text
    assert "segments differ: each arm indexed by itself" in text


def test_nothing_is_called_emulated_that_is_not(tmp_path: Path) -> None:
    arms = [arm(name, Kind.DIRECTORY) for name in ARMS]
    path = make(tmp_path, samples(rounds=1), arms=arms)
    assert "emulated" not in report.render_text(report.build(load_session(path)))


def test_the_csv_and_the_json_hold_the_same_values(recorded: Path) -> None:
    built = report.build(load_session(recorded))
    tables = json.loads(report.render_json(built))["tables"]
    rows = list(csv.DictReader(io.StringIO(report.render_csv(built))))
    compared = 0
    for row in rows:
        if row["table"] in tables and row["value"]:
            value = tables[row["table"]][row["item"]][row["subject"]][row["metric"]]
            assert row["value"] == (f"{value:.9g}" if isinstance(value, float) else str(value))
            compared += 1
    assert compared > 50


def test_programs_have_the_confidence_of_intervals_which_is_that_of_a_look_where_rounds_end_themselves(
    tmp_path: Path,
) -> None:
    plan = small_plan(race={}, design={"rounds": "auto", "margin": 0.1})
    built = report.build(replace(load_session(record(tmp_path)), plan=plan))
    document = json.loads(report.render_json(built))
    assert (document["confidence"], document["margin"]) == (pytest.approx(1 - 0.05 / 6), 0.1)
    rows = list(csv.DictReader(io.StringIO(report.render_csv(built))))
    of_session = {row["metric"]: row["value"] for row in rows if row["table"] == "session"}
    assert (of_session["confidence"], of_session["margin"]) == ("0.991666667", "0.1")


def test_the_csv_tells_a_check_that_warns_from_one_that_failed(recorded: Path) -> None:
    warns = Check(name="clients", ok=False, value="", text="", severity=Severity.WARN)
    checks = (warns, replace(warns, severity=Severity.STOP))
    built = replace(report.build(load_session(recorded)), checks=checks)
    rows = csv.DictReader(io.StringIO(report.render_csv(built)))
    assert [row["value"] for row in rows if row["metric"] == "mark"] == ["warning", "FAILED"]


def test_colour_only_adds_to_what_is_there_as_text(recorded: Path) -> None:
    built = report.build(load_session(recorded))
    coloured, plain = report.render_text(built, colour=True), report.render_text(built)
    assert "\x1b[" in coloured
    assert "61.22 ms *" in plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured).split() == plain.split()
