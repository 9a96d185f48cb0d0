"""What a JVM's collection log says, and how it is followed while it grows."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esrally_ebs.telemetry.gc_log import GcLog, parse_pauses

# As OpenJDK 17 wrote it on a node of the pack.
LOG = """\
[2026-11-21T08:57:08.871+0000] Using G1
[2026-11-21T08:57:08.871+0000] GC(0) Pause Young (Normal) (G1 Evacuation Pause) 25M->6M(512M) 13.347ms
[2026-11-21T08:57:09.000+0000] GC(1) Concurrent Mark Cycle
[2026-11-21T08:57:09.100+0000] GC(1) Pause Remark 49M->49M(512M) 13.893ms
[2026-11-21T08:57:09.200+0000] GC(1) Concurrent Mark Cycle 61.234ms
"""
AT_8_57_08_S = 1795251428.871  # date -u -d '2026-11-21 08:57:08.871' +%s.%3N


def test_pauses_are_told_from_all_else_by_their_end_length_and_name() -> None:
    first, remark = parse_pauses(LOG)

    assert (first.text, first.seconds) == ("Pause Young (Normal) (G1 Evacuation Pause)", 0.013347)
    assert first.end_at == pytest.approx(AT_8_57_08_S)
    assert (remark.text, remark.seconds) == ("Pause Remark", pytest.approx(0.013893))
    assert remark.end_at == pytest.approx(AT_8_57_08_S + 0.229)


@pytest.mark.parametrize(
    "line",
    [
        "[2026-11-21T08:57:08.871+0000][26][gc] GC(0) Pause Full (System.gc()) 25M->6M(512M) 13.347ms",
        "[2026-11-21T09:57:08,871+0100][info][gc   ] GC(0) Pause Full (System.gc()) 25M->6M(512M) 13,347ms",
    ],
)
def test_other_decorations_and_time_zones_are_read_too(line: str) -> None:
    (pause,) = parse_pauses(line)

    assert pause.end_at == pytest.approx(AT_8_57_08_S)
    assert pause.seconds == pytest.approx(0.013347)


@given(st.text())
def test_any_other_text_has_no_pause(text: str) -> None:
    assert parse_pauses(text) == []


def test_a_day_that_is_none_is_passed_over() -> None:
    assert parse_pauses(LOG.replace("2026-11-21", "2026-02-31")) == []


def test_a_growing_log_gives_each_pause_once_and_a_half_written_line_later(tmp_path: Path) -> None:
    path = tmp_path / "gc.log"
    log = GcLog(lambda: path.open("rb"))
    assert log.new() == []  # not there yet

    cut = LOG.index("13.347ms") + 3
    path.write_text(LOG[:cut])
    assert log.new() == []
    with path.open("a") as file:
        file.write(LOG[cut:])
    assert len(log.new()) == 2
    assert log.new() == []


def test_a_log_that_the_jvm_began_anew_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "gc.log"
    path.write_text(LOG)
    log = GcLog(lambda: path.open("rb"))
    log.new()

    path.write_text(LOG.splitlines(keepends=True)[1])

    assert len(log.new()) == 1
