"""Sessions of fio alone: two are compared job by job, one is gated by its passes."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from golden_session import arm, fio
from small_plan import small_plan

from esrally_ebs.analysis.gate import parse_limit
from esrally_ebs.cli import main
from esrally_ebs.model import State
from esrally_ebs.report import RENDERERS
from esrally_ebs.report.gate import EXIT_CODES, judge_session, reason
from esrally_ebs.report.sessions import compare_sessions
from esrally_ebs.store import SessionFolder, load_session

JOB = {"name": "seq-rw-16k-x2", "rw": "rw", "bs": "16k", "numjobs": 2}


def make(
    home: Path,
    name: str,
    *,
    passes: int = 6,
    scale: float = 1.0,
    kind: str = "baseline",
    race: dict[str, Any] | None = None,
    **job: Any,  # noqa: ANN401 - any key of a job
) -> Path:
    """Reads of 418 us on gp2, 460 us on gp3 (10 % more), passes per milles apart; 1,000 times scale IOPS."""
    plan = small_plan(baseline=[{**JOB, "repeat": passes - 1, **job}], design={"rounds": 6}, race=race)
    folder = SessionFolder.create(home, name, kind=kind, plan=plan, started_at=1e9 * scale)
    folder.update(arms=[arm("gp2"), arm("gp3")], environment={"kernel": "6.1", "host": "here"})
    for pass_ in range(passes):
        for name_ in ("gp2", "gp3"):
            row = fio(name_, pass_, "read", 1000.0 * scale)
            p50_s = row.p50_s * (1 + 0.002 * ((pass_ * (3 if name_ == "gp2" else 5)) % 7))
            folder.rows_baseline([replace(row, p50_s=p50_s, p90_s=p50_s * 1.2)])
    folder.finish(State.COMPLETE, ended_at=1e9 * scale + 60)
    return folder.path


@pytest.mark.parametrize(
    ("limit", "code", "word"), [("5%", 1, "failed"), ("20%", 0, "passed"), ("10%", 5, "inc")]
)
def test_a_gate_on_fio_alone_decides_by_passes(
    home: Path, capsys: pytest.CaptureFixture[str], limit: str, code: int, word: str
) -> None:
    make(home, "f")
    assert main(["gate", "f", "--max-slowdown", f"p50={limit}", "--junit", str(home / "g.xml")]) == code
    out = capsys.readouterr().out
    assert out.startswith(f"gate {word}")
    assert "p50  seq-rw-16k-x2 read  +" in out
    assert 'tests="1"' in (home / "g.xml").read_text()


@pytest.mark.parametrize(
    ("slower", "limit", "code"), [(1.0, "1%", 5), (1.0, "2%", 0), (1.015, "1%", 5), (1.05, "2%", 1)]
)
def test_passes_that_agree_decide_no_limit_finer_than_the_buckets_of_fio(
    home: Path, slower: float, limit: str, code: int
) -> None:
    """Medians of 500 us and more or less are all read as the middle of one bucket, or of the next."""
    session = load_session(make(home, "f"))
    own = {"gp2": 0.0005, "gp3": 0.0005 * slower}
    rows = [{**row, "p50_s": own[row["arm"]]} for row in session.baseline.to_pylist()]
    agreed = replace(session, baseline=pa.Table.from_pylist(rows, schema=session.baseline.schema))
    assert EXIT_CODES[judge_session(agreed, [parse_limit(f"p50={limit}")]).outcome] == code


@pytest.mark.parametrize(
    ("made", "limits", "code", "says"),
    [
        ({}, ["p50=20%", "p90=20%"], 0, "all 2 limits are kept"),  # which share the doubt
        ({}, ["p50=10.5%"], 5, "more passes would hardly decide, as a limit is too near to what was meas"),
        ({"passes": 1}, ["p50=5%"], 5, "1 pass of 6 that an interval takes: repeat = 5 in its [[baseline]]"),
        ({"kind": "simulate"}, ["p50=5%"], 4, "session f: is simulated, nothing was measured; gate one that"),
        ({"kind": "race", "race": {}}, ["p50=20%"], 4, "esrally-ebs: session f: no search was compared"),
    ],
)
def test_what_else_a_gate_on_fio_alone_says(
    made: dict[str, Any],
    limits: list[str],
    code: int,
    says: str,
    home: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make(home, "f", **made)
    assert main(["gate", "f", *(f"--max-slowdown={limit}" for limit in limits)]) == code
    out, err = capsys.readouterr()
    assert says in (err if code == 4 else out)


def test_a_job_can_be_repeated_as_often_as_a_gate_asks_for(home: Path) -> None:
    session, draw = load_session(make(home, "f")), np.random.default_rng(1)
    rows = [{**row, "p50_s": 5e-4 * draw.lognormal(0, 0.2)} for row in session.baseline.to_pylist()]
    noisy = replace(session, baseline=pa.Table.from_pylist(rows, schema=session.baseline.schema))
    said = [reason(noisy, judge_session(noisy, [parse_limit(f"p50={limit}%")])) for limit in range(1, 60)]
    asked = [int(more) for more in re.findall(r"more passes may decide \(about (\d+)\)", "\n".join(said))]
    assert max(asked) > 100
    for more in asked:
        assert small_plan(baseline=[{**JOB, "repeat": 5 + more}]).baseline[0].repeat == 5 + more


def test_two_sessions_of_fio_alone_are_compared_job_by_job(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(home, "first-1", scale=1.0)
    make(home, "second-2", scale=1.1)
    assert main(["compare", "first-1", "second-2"]) == 0
    out = capsys.readouterr().out
    assert "second-2 against first-1: fio on gp2 (emulated), gp3 (emulated), and what changed." in out
    built = compare_sessions([load_session(home / "sessions" / name) for name in ("first-1", "second-2")])
    shown = json.loads(RENDERERS["json"](built))["tables"]["fio_gp3"]
    iops = shown["seq-rw-16k-x2: IOPS, reads and writes together"]
    assert iops["first-1"]["iops"] == pytest.approx(1000)
    assert iops["change"]["ratio"] == pytest.approx(1.1)
    # the median of 0, 5, 3, 1, 6, 4 (5 x pass modulo 7) is 3.5, of 2 per mille each
    read = shown["seq-rw-16k-x2: read latency, 50th percentile"]["first-1"]["p50_s"]
    assert read == pytest.approx(1.1 * 418e-6 * 1.007)


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ({"bs": "32k"}, "seq-rw-16k-x2 bs: 16384 in the first, 32768 in the second"),
        (
            {"kind": "simulate"},
            "compare: second-2: simulated in virtual time, nothing was measured; compare with simulated"
            " sessions alone",
        ),
    ],
)
def test_sessions_that_differ_are_not_compared(
    second: dict[str, Any], says: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(home, "first-1", scale=1.0)
    make(home, "second-2", scale=1.1, **second)
    assert main(["compare", "first-1", "second-2"]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
