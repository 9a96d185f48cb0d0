"""How benchmarks race (benchmarks/races.py), with a program in Rally's place."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import races


@pytest.fixture
def rally(tmp_path: Path) -> Callable[[str], Path]:
    def write(script: str) -> Path:
        program = tmp_path / "rally"
        program.write_text(f"#!/bin/sh\ncd {tmp_path}\n{script}")
        program.chmod(0o755)
        return program

    return write


def test_a_race_waits_for_another_rally_and_does_not_count_the_wait(rally: Callable[[str], Path]) -> None:
    program = rally(
        'echo "$@ $EXTRA" >> said\n'
        '[ "$(wc -l < said)" -gt 1 ] || { echo "There are other Rally processes running"; exit 64; }\n'
    )
    began = time.monotonic()
    took = races.race("--offline", track=Path("t"), env={"EXTRA": "more"}, program=program, retry_s=0.2)
    assert time.monotonic() - began >= took + 0.2
    assert (program.parent / "said").read_text() == "race --track-path=t --offline more\n" * 2


def test_a_race_that_fails_says_its_code_its_command_and_what_it_said_last(
    rally: Callable[[str], Path],
) -> None:
    program = rally("echo begun; echo '[ERROR] no track'; echo Getting further help: >&2; exit 3")
    with pytest.raises(
        RuntimeError, match=r"^exit code 3: .*rally race --track-path=t\nbegun\n\[ERROR\] no track$"
    ):
        races.race(track=Path("t"), program=program)


def test_sessions_are_recorded_up_to_as_many_as_wanted_and_no_more_after_three_that_fail(
    tmp_path: Path,
) -> None:
    results, lock = tmp_path / "results", tmp_path / "lock"
    races.append(results, {"session": "before"})
    races.record_sessions(results, 3, lambda session: {"session": session}, lock=lock)
    assert len(races.lines_of(results)) == 3

    def one(session: str) -> None:
        raise RuntimeError("no track")

    races.record_sessions(results, 9, one, lock=lock)
    assert [line.get("failed") for line in races.lines_of(results)] == [None] * 3 + ["no track"] * 3
