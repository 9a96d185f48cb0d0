"""How far a race is, where there is no terminal."""

import io
import pickle
import subprocess
import sys
from dataclasses import replace

import pytest

from esrally_ebs.model import Block, Phase, Work
from esrally_ebs.rally.patches.outcome import RaceSuccess
from esrally_ebs.rally.sample_recorder import StageLines, line_writer

SEARCH = Block(arm="a", cluster="default", work=Work.SEARCH, task="q", round=1)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Gone(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


@pytest.mark.parametrize(
    ("stdout", "is_quiet", "text"),
    [(io.StringIO(), False, "[INFO] copy\n"), (io.StringIO(), True, ""), (Terminal(), False, "")],
)
def test_lines_are_for_who_has_no_terminal_and_did_not_ask_for_quiet(
    monkeypatch: pytest.MonkeyPatch, stdout: io.StringIO, is_quiet: bool, text: str
) -> None:
    monkeypatch.setattr(sys, "stdout", stdout)
    line_writer(is_quiet)("copy")
    assert stdout.getvalue() == text


def test_a_reader_that_has_gone_does_not_end_the_race(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Gone())
    line_writer(False)("copy")


def test_each_stage_of_a_race_is_one_line_with_what_is_left() -> None:
    lines: list[str] = []
    seconds = iter([0.0, 1.0, 59.6, 130.0, 131.0, 132.0, 133.0])
    stages = StageLines(4, write=lines.append, now=lambda: next(seconds))
    fio = replace(SEARCH, work=Work.FIO, task="j", round=0)
    order = [
        fio,
        replace(fio, arm="b"),
        replace(SEARCH, work=Work.INDEXING, round=0),
        replace(SEARCH, phase=Phase.WARMUP, round=0),
        SEARCH,
        replace(SEARCH, arm="b"),
        replace(SEARCH, round=2),
        replace(fio, round=1),
    ]
    for number, block in enumerate(order):
        stages.begins(block, len(order) - number)
    assert lines == [
        "fio: 8 tasks left, 0 min 01 s so far",
        "indexing: 6 tasks left, 1 min 00 s so far",
        "warm-up: 5 tasks left, 2 min 10 s so far",
        "round 1 of 4: 4 tasks left, 2 min 11 s so far",
        "round 2 of 4: 2 tasks left, 2 min 12 s so far",
        "fio again: 1 task left, 2 min 13 s so far",
    ]


def test_where_the_report_is_comes_after_all_that_rally_says() -> None:
    code = """
import pickle, sys
from esrally import racecontrol
assert isinstance(pickle.loads(bytes.fromhex(sys.argv[1])), racecontrol.Success)
print("SUCCESS")
"""
    message = pickle.dumps(RaceSuccess("The report is /r\n")).hex()
    ended = subprocess.run(
        [sys.executable, "-c", code, message], stdout=subprocess.PIPE, text=True, check=True
    )
    assert ended.stdout == "SUCCESS\nThe report is /r\n"
