"""The protocol of benchmarks/advice.py, whose pieces need a machine."""

import json
from pathlib import Path

import advice
import pytest


def test_races_have_as_many_rounds_as_the_recording_was_made_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raced: list[tuple[str, int]] = []
    monkeypatch.setattr(advice, "raced_as", lambda name, _, rounds: raced.append((name, rounds)) or name)
    monkeypatch.setattr(advice, "predict", lambda _: "")
    monkeypatch.setattr(advice, "raced", lambda _: {"today": None})
    monkeypatch.setattr(advice, "fio_longer", lambda *_: {})
    results = tmp_path / "results"
    advice.go(results, 1, rounds="27")
    advice.go(results, 9)
    assert raced == [("advice-record", 27), *[("advice-race", 27)] * 4]
    assert json.loads(results.read_text().splitlines()[0])["rounds"] == 27


def test_the_order_of_settings_is_told_of_those_that_were_predicted_apart(
    capsys: pytest.CaptureFixture[str],
) -> None:
    advice.print_order([(1.0, 1.1), (1.01, 1.0), (2.0, 2.1), (0.5, 2.2)])
    assert "of 5 pairs predicted over 4% apart 2 were raced in that order" in capsys.readouterr().out
